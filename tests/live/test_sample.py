"""Samples: the figures of a trace, their lines of JSON, and the pace at which they are taken."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders import event, host, known, space
from live.fake_jobs import steps_trace
from live.views import EVIL, compare_list, measured, sample
from msgspec.structs import replace
from synthetic_gpu import synthetic_gpu

from tfperf.base.errors import TraceFormatError
from tfperf.capture.address import Address
from tfperf.live.sample import FirstCause, Measured, MemoryUse, NumberedSteps, RankedTime, Sample, measure
from tfperf.live.top import KEYS, sample_line
from tfperf.live.watcher import Pace, slowdown_between


def trace_of_sample(samples: Path, name: str) -> bytes:
    (path,) = (samples / name).rglob("*.xplane.pb")
    return path.read_bytes()


def test_a_job_that_waits_for_input(samples: Path) -> None:
    """The figures are those of `tfperf analyze` of the same profile (tests/gold)."""
    measured = measure(trace_of_sample(samples, "input_bound"))
    assert measured.step_ms == pytest.approx(19.386, abs=0.001)
    assert (measured.step_count, measured.batch_size) == (19, 8)
    assert measured.input_percent == pytest.approx(64.37, abs=0.01)
    assert measured.input_cost_percent == pytest.approx((64.37, 81.64), abs=0.01)
    assert measured.examples_per_second == pytest.approx(8 * (measured.steps_per_second or 0))
    assert measured.causes[0].code == "input_wait"
    assert measured.headline == measured.causes[0].text
    assert measured.device_busy_percent is None, "there is no device, which is not the same as an idle one"
    assert sum(each.percent or 0.0 for each in measured.categories) == pytest.approx(100.0)
    assert {each.key: each.percent for each in measured.categories}["device_compute"] is None
    bar = known(measured.bar)
    assert (bar.total, len(bar.values)) == (measured.step_ms, 19)
    assert {each.role: each.share for each in bar.segments}["input"] == "64.4%"
    assert measured.ranked_are == "host ops"
    assert [each.percent for each in measured.ranked] == sorted(
        (each.percent for each in measured.ranked), reverse=True
    )


def test_a_job_on_a_device() -> None:
    measured = measure(synthetic_gpu())
    assert measured.ranked_are == "kernels"
    assert measured.device_busy_percent == pytest.approx(60.66, abs=0.01)
    memory = known(measured.memory)
    assert memory.allocator == "GPU_1_bfc"
    assert memory.used_percent == pytest.approx(43.0)


def test_numbered_steps_and_when_they_start() -> None:
    numbered = known(measure(steps_trace(2000, 5, first=70, start_ns=10**18)).numbered)
    assert (numbered.first, numbered.last) == (70, 74)
    assert (numbered.first_ns, numbered.last_ns) == (10**18, 10**18 + 8_000_000)
    assert measure(steps_trace(2000, 5)).numbered is None, "the clock of the trace is unknown"


def test_a_trace_without_steps_has_no_step_time_and_says_why() -> None:
    measured = measure(space(host(event("layer/MatMul:MatMul", 0, 5))))
    assert (measured.step_ms, measured.step_count, measured.categories) == (None, 0, ())
    assert measured.why.startswith("the sample has no steps: ")
    assert [(each.name, each.type) for each in measured.ranked] == [("layer/MatMul", "MatMul")]


@pytest.mark.parametrize("data", [b"", b"garbage" * 9, steps_trace()[:-3]])
def test_what_is_no_trace_is_an_error_that_names_no_file(data: bytes) -> None:
    with pytest.raises(TraceFormatError, match=r"^its trace ") as caught:
        measure(data)
    assert tempfile.gettempdir() not in str(caught.value)


@pytest.mark.parametrize("has_files_in_memory", [True, False])
def test_nothing_stays_on_disk(has_files_in_memory: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_files_in_memory:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    measure(steps_trace())
    with pytest.raises(TraceFormatError):
        measure(b"garbage")
    assert list(tmp_path.iterdir()) == []


def document(of: Sample) -> dict[str, Any]:
    line = sample_line(Address("w0", 6009, task="worker-0"), of)
    assert line.endswith("\n")
    assert line.count("\n") == 1
    values: dict[str, Any] = json.loads(line)
    return values


def test_a_sample() -> None:
    values = document(sample(measured(), slowdown_percent=3.0))
    top = values.pop("top")
    assert values == {
        "format": 1,
        "time": "2027-01-15T07:59:58.000+00:00",
        "worker": "w0:6009",
        "task": "worker-0",
        "sample": 1,
        "ok": True,
        "reason": None,
        "message": None,
        "duration_s": 0.5,
        "answer_s": 0.6,
        "trace_bytes": 123_000,
        "profiled_percent": 10.0,
        "slowdown_percent": 3.0,
        "step_time_ms": 20.0,
        "step_time_median_ms": 19.0,
        "step_time_max_ms": 31.0,
        "steps": 24,
        "kind": "train",
        "steps_per_second": 50.0,
        "examples_per_second": 1600.0,
        "batch_size": 32,
        "input_percent": 66.0,
        "input_cost_low_percent": 66.0,
        "input_cost_high_percent": 78.4,
        "categories": {"input": 66.0, "host_compute": 24.0, "all_others": 10.0, "device_compute": None},
        "device_busy_percent": 12.5,
        "memory_allocator": "GPU_0_bfc",
        "memory_peak_bytes": 3_000_000_000,
        "memory_capacity_bytes": 4_000_000_000,
        "cause": "input_wait",
        "cause_gain_percent": 60.0,
        "headline": "Waiting for input takes 66.0% of the step: the blocking tf.data stage is Map.",
        "ranked": "host ops",
    }
    assert len(top) == 5
    assert top[0] == {"name": "layer_1/MatMul", "type": "MatMul", "percent": 50.0, "total_ms": 9.0}


@pytest.mark.parametrize(
    "of",
    [sample(None, reason="not_listening", message="nothing there"), sample(measured(step_ms=None, why="no steps"))],
)
def test_every_object_has_every_key_in_the_same_order(of: Sample) -> None:
    values = document(of)
    assert list(values) == list(KEYS)
    assert values["step_time_ms"] is None, "never 0"


def test_a_failure_has_a_reason_and_no_figure() -> None:
    values = document(sample(None, reason="not_listening", message="nothing there"))
    assert (values["ok"], values["reason"], values["message"]) == (False, "not_listening", "nothing there")
    known = {"format", "time", "worker", "task", "sample", "ok", "reason", "message", "duration_s", "profiled_percent"}
    assert {key for key, value in values.items() if value is not None} == known


def test_numbers_that_json_does_not_have_are_null() -> None:
    values = document(sample(measured(step_ms=float("nan"), device_busy_percent=float("inf"))))
    assert values["step_time_ms"] is None
    assert values["device_busy_percent"] is None


def test_hostile_names_come_through_and_nothing_acts_on_them() -> None:
    evil = replace(
        measured(),
        headline=EVIL,
        causes=(FirstCause(EVIL, EVIL, EVIL, EVIL, 1.0),),
        memory=MemoryUse(EVIL, 1, None),
        ranked=(RankedTime(EVIL, EVIL, 1.0, 1.0),),
    )
    line = sample_line(Address("w0", 6009), sample(evil, message=EVIL))
    assert line[:-1].isprintable()
    assert line.isascii()
    assert "##[" not in line
    assert json.loads(line)["top"][0]["name"] == EVIL.replace("\udc80", "\ufffd")


def test_the_page_lists_every_key(compare_gold: Callable[[Path, str], None]) -> None:
    rows = ((f"`{key}`", meaning) for key, meaning in KEYS.items())
    compare_list(compare_gold, "sample keys", ("key", "meaning"), *rows)


_MS = 1_000_000
GOOD = Measured(step_ms=10.0, step_count=40)


def pace(**options: Any) -> Pace:
    return Pace(**{"duration_s": 0.5, "interval_s": 5.0, **options})


def paced(measured: Measured | None = GOOD, **fields: Any) -> Sample:
    return Sample(**{"number": 1, "time_s": 0.0, "duration_s": 0.5, "answer_s": 0.6, "measured": measured, **fields})


def after(pace: Pace, last: Sample, overhead: float | None = None) -> float:
    """Return how long the pause is after a sample."""
    pace.learn(last.measured, last.answer_s, overhead)
    return pace.pause_s(last)


def test_samples_come_at_the_interval() -> None:
    assert after(pace(), paced()) == 5.0


def test_a_server_that_takes_long_is_profiled_for_half_of_the_time_at_most() -> None:
    assert after(pace(), paced(answer_s=7.0)) == 14.0


def test_a_slowdown_that_the_server_measured_makes_samples_rarer() -> None:
    """Steps that take 40 % longer for 0.6 s cost 0.24 s: 2 % of 12 s."""
    assert after(pace(), paced(), overhead=40.0) == pytest.approx(12.0)
    assert after(pace(), paced(), overhead=5.0) == 5.0
    assert after(pace(), paced(), overhead=1e6) == 300.0, "but it is not forgotten"


def test_the_median_of_the_last_slowdowns_counts() -> None:
    watched = pace()
    after(watched, paced())
    assert watched.slowdown_percent is None, "unknown, not zero"
    for overhead in (0.0, 100.0, 3.0, 2.0, 1.0):
        after(watched, paced(), overhead)
    assert watched.slowdown_percent == 2.0


@pytest.mark.parametrize(
    ("before", "now", "slowdown"),
    [
        # Step 109 starts at 1.09 s, step 500 at 5 s: 10 ms each, pauses included. In the sample they take 12 ms.
        ((60, 109, 600 * _MS, 1090 * _MS), (500, 540, 5000 * _MS, 5480 * _MS), 20.0),
        ((0, 10, 0, 100), (100, 110, 1000, 1050), 0.0),  # faster steps in a sample are no gain
        (None, (500, 540, 5000, 5480), None),
        ((60, 109, 600, 1090), None, None),
        ((600, 640, 600, 1090), (5, 20, 5000, 5480), None),  # counted from 0 again
        ((60, 109, 600, 1090), (111, 120, 1110, 1200), None),  # nearly nothing between
        ((60, 109, 600, 1090), (500, 500, 5000, 5000), None),
        ((60, 109, 600, 9000), (500, 540, 5000, 5480), None),  # a clock that goes back
    ],
)
def test_numbered_steps_tell_how_fast_the_job_is_between_samples(
    before: tuple[int, int, int, int] | None, now: tuple[int, int, int, int] | None, slowdown: float | None
) -> None:
    numbered = [NumberedSteps(*steps) if steps else None for steps in (before, now)]
    measured = Measured(step_ms=12.0, numbered=numbered[1])
    assert slowdown_between(numbered[0], measured) == (slowdown and pytest.approx(slowdown))


def test_analysis_on_the_machine_of_the_job_takes_a_twentieth_of_a_processor_at_most() -> None:
    costly = paced(Measured(step_ms=10.0, step_count=40, cpu_s=1.0))
    here, elsewhere = pace(is_here=True), pace()
    assert after(here, costly) == 5.0, "the first analysis imports its modules, too"
    assert after(here, costly) == pytest.approx(20.0)
    assert after(elsewhere, costly) == after(elsewhere, costly) == 5.0


def test_samples_without_a_whole_step_get_longer_and_rarer_and_shorter_again() -> None:
    watched, none = pace(), paced(Measured(why="no step"))
    pauses = []
    for _ in range(5):
        pauses.append(after(watched, none))
    assert watched.next_duration_s == 4.0, "8 times as long at most"
    assert pauses == [10.0, 20.0, 40.0, 40.0, 40.0], "so as much of the time as before is profiled"
    for _ in range(5):
        after(watched, paced())
    assert (watched.next_duration_s, after(watched, paced())) == (0.5, 5.0)


def test_a_port_is_tried_at_the_interval_and_a_server_that_refuses_is_left_alone() -> None:
    gone, refusing, idle = (paced(None, reason=reason) for reason in ("not_listening", "refused", "idle"))
    for last, pauses in ((gone, [5.0] * 5), (refusing, [10.0, 20.0, 40.0, 60.0, 60.0]), (idle, [5.0] * 5)):
        watched = pace()
        assert [after(watched, last) for _ in range(5)] == pauses
        assert after(watched, paced()) == 5.0, "an answer makes it all good"


def test_all_workers_are_due_at_the_same_moments() -> None:
    """Rounds begin 5, 10, 15, ... s after the first one, at 100 s; who is late by less than a round waits for all."""
    watched = pace()
    watched.learn(GOOD, 0.6, None)
    assert [watched.due_s(begun_s, paced(), 100.0) for begun_s in (100.0, 100.3, 101.0, 104.0)] == [105, 105, 105, 110]


def test_the_share_of_time_that_is_profiled() -> None:
    watched = pace()
    watched.begin(100.0)
    watched.learn(GOOD, 0.6, None)
    assert watched.profiled_percent(105.0) == pytest.approx(10.0)
    watched.learn(None, 0.0, None)
    assert watched.profiled_percent(110.0) == pytest.approx(5.0), "a worker that is gone is not profiled"
