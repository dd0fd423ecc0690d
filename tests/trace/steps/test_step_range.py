"""Steps of a range: what is selected, and that every section covers only their time."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from builders import Event, event, gpu, host, known, line, logdir_of, marks, plane, rows_of, space, trace_of
from msgspec.structs import replace
from sections.memory.made import alloc
from synthetic_gpu import synthetic_gpu
from tpu_twin import tpu_twin

import tfperf
from tfperf import TfperfError
from tfperf.analysis.registry import default_sections
from tfperf.base.arrays import Int64s
from tfperf.base.errors import StepsNotFoundError
from tfperf.export.query.sources import source_of
from tfperf.trace.host.python_activity import CpuTimes, Pauses, PythonActivity
from tfperf.trace.steps.find_steps import find_steps
from tfperf.trace.steps.step_range import StepRange, cut_trace, part_of, range_text, selected_rows
from tfperf.trace.steps.steps import Steps, plain_steps

PS = 1_000_000  # per microsecond


def job(*more: Event, waits: tuple[float, ...] = (10, 20, 30, 40, 50), first: int = 0) -> bytes:
    """Marked steps of 100 us, each of which waits for a batch (10, 20, ... us) and computes for the rest."""
    events: list[Event] = []
    for number, wait in enumerate(waits):
        start = 100.0 * number
        events += [
            event("train", start, 100, step_num=first + number),
            event("IteratorGetNextOp::DoCompute", start, wait),
            event(f"MatMul{number}:MatMul", start + wait, 100 - wait),
        ]
    return space(plane("/host:CPU", line("python", *events), line("worker", *more)))


def steps_of(numbers: list[int], kinds: str = "") -> Steps:
    """Steps of 10 ps with these numbers; `kinds`: a letter for each."""
    start = 10 * np.arange(len(numbers))
    names = tuple(map(str, numbers))
    span, letters = (start, start + 10), tuple({"t": "train", "e": "eval"}[each] for each in kinds or "t" * len(names))
    return plain_steps(("markers", "high", ""), span, np.array(numbers, np.int64), names, letters)


@pytest.mark.parametrize(
    ("numbers", "kinds", "wanted", "rows"),
    [
        ([5, 6, 7, 8], "", (6, 7), (1, 3)),
        ([5, 6, 7, 8], "", (6, None), (1, 4)),
        ([5, 6, 7, 8], "", (None, 6), (0, 2)),
        ([5, 6, 7, 8], "", (None, None), (0, 4)),
        ([5, 6, 7, 8], "", (8, 99), (3, 4)),
        ([5, 6, 9, 10], "", (6, 9), (1, 3)),  # events of 7 and 8 were lost
        ([0, 1, 2, 0, 1, 2], "", (1, 2), (1, 3)),  # numbers of each epoch: the first
        ([5, 6, 0, 1, 7], "tteet", (6, 7), (1, 5)),  # the evaluation between them belongs to them
        ([0, 1, 0, 1, 2, 3], "eetttt", (0, 1), (2, 4)),  # training steps, not those of the evaluation
        ([0, 1, 0, 1, 2, 3], "eettee", (1, None), (3, 6)),
        ([0, 1, 2, 0, 1, 2], "", (1, None), (1, 6)),
        ([5, 6, 0, 1, 7], "tteet", (0, 1), (2, 4)),  # no training step has these numbers
    ],
)
def test_which_steps_are_selected(numbers: list[int], kinds: str, wanted: StepRange, rows: tuple[int, int]) -> None:
    assert selected_rows(steps_of(numbers, kinds), wanted) == rows


@pytest.mark.parametrize(
    ("numbers", "wanted", "words"),
    [
        ([5, 6], (7, 9), "steps 7..9 do not exist; the steps are 5..6"),
        ([5, 6], (None, 4), r"steps ..4 do not exist; the steps are 5..6"),
        ([5], (7, 7), "step 7 does not exist; the only step is 5"),
        ([0, 0], (3, 4), "steps 3..4 do not exist; all steps have the number 0"),
        ([], (7, 9), "the profile has no steps; omit --steps, or name the step events with --step-marker"),
    ],
)
def test_steps_that_do_not_exist(numbers: list[int], wanted: StepRange, words: str) -> None:
    with pytest.raises(StepsNotFoundError) as raised:
        selected_rows(steps_of(numbers), wanted)
    assert (str(raised.value), raised.value.has_others) == (words, bool(numbers))


def test_a_range_is_printed_as_typed() -> None:
    assert [*map(range_text, ((3, 5), (3, None), (None, 5), (3, 3), (0, 0)))] == ["3..5", "3..", "..5", "3", "0"]


def test_averages_are_those_of_the_steps(tmp_path: Path) -> None:
    """By hand: steps 1 to 3 wait for 20, 30 and 40 of 100 us. XProf: sum of input over sum of step time."""
    logdir = logdir_of(tmp_path, a=job(event("Work:Work", 50, 300)))
    part = tfperf.load(logdir, steps=(1, 3))
    assert part["steps"].steps.numbers.tolist() == [1, 2, 3]
    assert part["steps"].time_ps["input"].tolist() == [20 * PS, 30 * PS, 40 * PS]
    assert part["overview"].input_percent == pytest.approx(100 * (20 + 30 + 40) / 300)
    assert known(part["overview"].step_time_ms).average == pytest.approx(0.1)
    ops = part["ops"].host
    assert sorted(rows_of(ops.table, "op_name", "occurrences", "total_ms")) == [
        ("MatMul1", 1, pytest.approx(0.08)),
        ("MatMul2", 1, pytest.approx(0.07)),
        ("MatMul3", 1, pytest.approx(0.06)),
        ("Work", 1, pytest.approx(0.25)),  # from the start of step 1, not from its own
    ]
    assert (part["wall"].start_ps, part["wall"].end_ps, part["wall"].before_ps) == (100 * PS, 400 * PS, 0)
    assert part.steps_text == "Only steps 1..3 are included: 3 of 5 steps, 0.300 of 0.500 ms."


@pytest.mark.parametrize("data", [job(), synthetic_gpu(), tpu_twin()], ids=["cpu", "gpu", "tpu"])
def test_all_steps_have_the_times_of_the_whole_run(data: bytes, tmp_path: Path) -> None:
    logdir = logdir_of(tmp_path, vm=data)
    whole, every = tfperf.load(logdir), tfperf.load(logdir, steps=(None, None))
    before, after = whole["steps"], every["steps"]
    assert before.columns() == after.columns()
    assert {key: ps.tolist() for key, ps in before.time_ps.items()} == {
        key: ps.tolist() for key, ps in after.time_ps.items()
    }
    assert [flaw for _, flaw in whole.flaws] == [flaw for _, flaw in every.flaws]
    some = tfperf.load(logdir, steps=(None, int(before.steps.numbers[1])))
    assert some["steps"].columns()["step_time_ms"] == before.columns()["step_time_ms"][: len(some["steps"].steps)]
    assert some.sections == (*dict.fromkeys((*some.sections, *default_sections())),)  # each of them has a result
    assert some.report().sections[0].findings[0].code == "selected_steps"


def test_kernels_count_with_their_part_inside(tmp_path: Path) -> None:
    """A kernel from 90 to 130 us and one from 180 to 220 us count in step 1 with 30 and 20 us."""
    kernels = gpu(event("a", 90, 40), event("b", 150, 10), event("a", 180, 40), event("c", 250, 10))
    data = space(host(*marks(4)), kernels)
    part = tfperf.load(logdir_of(tmp_path, vm=data), steps=(1, 1))
    assert sorted(rows_of(part["kernels"].table, "kernel", "occurrences", "total_us")) == [
        ("a", 2, pytest.approx(50)),
        ("b", 1, pytest.approx(10)),
    ]
    (device,) = part["idle"].devices
    assert device.busy_ps == 60 * PS
    breakdown = part["steps"]
    assert breakdown.compute_ps == 60 * PS == int(breakdown.time_ps["device_compute"][0])


def test_a_trace_is_cut_at_both_ends(tmp_path: Path) -> None:
    """Events that cross an end are shorter, parents still precede their children, and stats move along."""
    outer = event("outer", 0, 500)
    inner = [event(f"inner{n}", 100 * n, 100, correlation_id=n) for n in range(5)]
    trace = trace_of(
        tmp_path, plane("/host:CPU", line("python", outer, *inner), line("t", alloc(50, 1, 1, 1), alloc(250, 1, 2, 2)))
    )
    trace = replace(
        trace,
        python_activity=PythonActivity(
            Pauses(ps(150, 450), ps(250, 460), ps(0, 1), ("a", "b")),
            CpuTimes(ps(0, 190, 400), ps(190, 400, 500), ps(1, 2, 3), ps(0, 0, 0)),
        ),
    )
    steps = steps_of([0, 1, 2, 3, 4])
    steps = replace(steps, start_ps=steps.start_ps * 10 * PS, end_ps=steps.end_ps * 10 * PS)
    cut = cut_trace(trace, part_of(trace, steps, (2, 3)))
    rows = [
        (cut.names[name], start // PS, end // PS)
        for name, start, end in zip(cut.name.tolist(), cut.start_ps.tolist(), cut.end_ps.tolist(), strict=True)
    ]
    assert rows == [("outer", 200, 400), ("inner2", 200, 300), ("inner3", 300, 400)]
    assert cut.stat("correlation_id").by_event() == {1: 2, 2: 3}
    assert (cut.extent_ps, cut.is_part) == ((200 * PS, 400 * PS), True)
    assert cut.memory.start_ps.tolist() == [250 * PS]
    assert cut.memory.stats["bytes_allocated"].event.tolist() == [0]
    pauses, cpu = cut.python_activity.pauses, cut.python_activity.cpu
    assert pauses is not None
    assert (pauses.start_ps.tolist(), pauses.end_ps.tolist(), pauses.places) == ([200 * PS], [250 * PS], ("a",))
    assert cpu is not None
    assert cpu.cpu_ps.tolist() == [2 * PS]
    assert len(find_steps(cut)) <= 2  # nothing outside is left to find


def ps(*us: int) -> Int64s:
    return np.array(us, np.int64) * PS


def test_chips_are_cut_on_their_own_clocks(tmp_path: Path) -> None:
    """Runs of the twin begin before the host enqueues them, on another clock: each step still has its own run."""
    logdir = logdir_of(tmp_path, vm=tpu_twin())
    numbers = tfperf.load(logdir, sections=["steps"])["steps"].steps.numbers.tolist()
    whole = tfperf.load(logdir)["xla"].modules
    for number in numbers:
        (module,) = tfperf.load(logdir, steps=(number, number))["xla"].modules
        assert module.runs == 1 < whole[0].runs


def test_each_host_has_its_own_steps(tmp_path: Path) -> None:
    """Steps of hosts are matched as without a range; a host without these steps is left out, and named."""
    logdir = logdir_of(tmp_path, a=job(), b=job(first=1), ps=space(host(event("serve", 0, 10))))
    part = tfperf.load(logdir, steps=(1, 2))
    assert [host.host for host in part.hosts] == ["a", "b"]
    assert (part.without_steps, part.missing) == (("ps",), ())
    assert [host["steps"].steps.numbers.tolist() for host in part.hosts] == [[1, 2], [1, 2]]
    assert [host["steps"].time_ps["input"].tolist() for host in part.hosts] == [[20 * PS, 30 * PS], [10 * PS, 20 * PS]]
    assert part["steps"].time_ps["input"].tolist() == [15 * PS, 25 * PS]
    report = part.report(["ops"])
    assert [finding.text for finding in report.sections[0].findings] == [
        "Only steps 1..2 are included: 2 of 5 steps per host.",
        "ps does not have these steps.",
    ]
    assert report.source["steps"] == {"first": 1, "last": 2, "hosts_without_steps": ["ps"]}
    checked = tfperf.check(part, max_input_bound="90%")
    assert checked.notes[:2] == (part.steps_text, part.without_steps_text)
    more = part.more(["functions"])
    assert [host.part for host in more.hosts] == [host.part for host in part.hosts]
    with pytest.raises(TfperfError, match=r"^steps 7..9 do not exist; the steps are 0..4$"):
        tfperf.load(logdir, steps=(7, 9))


def test_steps_of_tensorflow_cannot_be_selected(tmp_path: Path) -> None:
    with pytest.raises(TfperfError, match="attribution tensorflow covers the whole capture"):
        tfperf.load(logdir_of(tmp_path, a=job()), steps=(1, 2), attribution="tensorflow")


def test_events_of_sql_and_datasets_are_cut(tmp_path: Path) -> None:
    """They add up to the same times as the tables of the report."""
    logdir = logdir_of(tmp_path, a=job(event("Work:Work", 50, 300)), b=job(first=1), ps=space(host(event("s", 0, 9))))
    source = source_of(logdir, steps=(1, 3))
    assert (source.described["steps"], source.described["hosts"]) == ("1..3", ["a", "b", "ps"])
    expected = {"a": (80 + 70 + 60 + 250) * PS, "b": (90 + 80 + 70) * PS}
    assert ops_by_host(source) == expected
    tfperf.write_parquet(logdir, tmp_path / "data", steps=(1, 3), sections=["steps"])
    assert ops_by_host(source_of(tmp_path / "data")) == expected
    with pytest.raises(TfperfError, match="is a dataset: select runs and hosts in the query"):
        source_of(tmp_path / "data", steps=(1, 3))


def ops_by_host(source: Any) -> dict[str, int]:
    """The time of ops in the table of events, by host."""
    events = source.tables({"events"})["events"]
    rows = (events if isinstance(events, pa.Table) else events.to_table()).to_pylist()
    totals: Counter[str] = Counter()
    for row in rows:
        totals[row["host"]] += row["duration_ps"] if ":" in row["name"] and "::" not in row["name"] else 0
    return dict(totals)
