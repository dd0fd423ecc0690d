"""The figures of one sample: of whole steps only, and unknown where the trace does not show them."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from builders import event, host, space
from live.fake_jobs import steps_trace
from synthetic_gpu import synthetic_gpu

from tfperf.base.errors import TraceFormatError
from tfperf.live.sample import measure


def trace_of_sample(samples: Path, name: str) -> bytes:
    (path,) = (samples / name).rglob("*.xplane.pb")
    return path.read_bytes()


def test_a_job_that_waits_for_input(samples: Path) -> None:
    """The figures are those of `tfperf analyze` of the same profile (tests/gold)."""
    measured = measure(trace_of_sample(samples, "input_bound"))
    assert measured.step_ms == pytest.approx(19.386, abs=0.001)
    assert (measured.step_count, measured.batch_size) == (19, 8)
    assert measured.input_percent == pytest.approx(64.37, abs=0.01)
    assert measured.input_cost_percent == pytest.approx((64.37, 82.13), abs=0.01)
    assert measured.examples_per_second == pytest.approx(8 * (measured.steps_per_second or 0))
    assert measured.causes[0].code == "input_wait"
    assert measured.headline == measured.causes[0].text
    assert measured.device_busy_percent is None, "there is no device, which is not the same as an idle one"
    assert sum(each.percent or 0.0 for each in measured.categories) == pytest.approx(100.0)
    assert {each.key: each.percent for each in measured.categories}["device_compute"] is None
    assert measured.ranked_are == "host ops"
    assert [each.percent for each in measured.ranked] == sorted(
        (each.percent for each in measured.ranked), reverse=True
    )


def test_a_job_on_a_device() -> None:
    measured = measure(synthetic_gpu())
    assert measured.ranked_are == "kernels"
    assert measured.device_busy_percent == pytest.approx(60.66, abs=0.01)
    assert measured.memory is not None
    assert measured.memory.allocator == "GPU_1_bfc"
    assert measured.memory.used_percent == pytest.approx(43.0)


def test_numbered_steps_and_when_they_start() -> None:
    measured = measure(steps_trace(2000, 5, first=70, start_ns=10**18))
    numbered = measured.numbered
    assert numbered is not None
    assert (numbered.first, numbered.last) == (70, 74)
    assert (numbered.first_ns, numbered.last_ns) == (10**18, 10**18 + 8_000_000)
    assert measure(steps_trace(2000, 5)).numbered is None, "the clock of the trace is unknown"


def test_a_trace_without_steps_has_no_step_time_and_says_why() -> None:
    measured = measure(space(host(event("layer/MatMul:MatMul", 0, 5))))
    assert (measured.step_ms, measured.step_count, measured.categories) == (None, 0, ())
    assert measured.why.startswith("no step was found: ")
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
