"""The event of the host that was at work in a gap; times in microseconds, one step of 100 us."""

from __future__ import annotations

from pathlib import Path

from builders import Event, Line, event, host_of, line, plane, trace_of

from tfperf.sections.idle.longest_gaps import Gap

CALL = event("EagerKernelExecute", 0, 100)


def longest_gap(tmp_path: Path, *threads: Line, kernel: Event) -> Gap:
    device = plane("/device:GPU:0", line("Stream #1", kernel))
    gap: Gap = host_of(trace_of(tmp_path, plane("/host:CPU", *threads), device), "idle")["idle"].gaps[0]
    return gap


def main(*events: Event) -> Line:
    return line("python", event("train", 0, 100, step_num=0), *events, id=1)


def test_the_thread_with_the_longest_work_for_the_cause_is_named(tmp_path: Path) -> None:
    """Two threads compute: `Long` for 40 us, `Short` for 30; the device waits from 0 to 60."""
    threads = [
        line("tf_Compute/1", event("Short:Short", 0, 30), id=2),
        line("tf_Compute/2", event("Long:Long", 0, 40), id=3),
    ]
    gap = longest_gap(tmp_path, main(CALL), *threads, kernel=event("gemm", 60, 40))
    assert (gap.cause, gap.thread, gap.event) == ("host_compute", "tf_Compute/2", "Long:Long")


def test_the_innermost_event_that_covers_half_as_much_tells_more(tmp_path: Path) -> None:
    """Inside 50 us of `Outer` are 30 us of `Inner`, and inside that 10 us of `Detail`, which is too little."""
    ops = [event("Outer:Outer", 0, 50), event("Inner:Inner", 10, 30), event("Detail:Detail", 15, 10)]
    gap = longest_gap(tmp_path, main(CALL), line("tf_Compute/1", *ops, id=2), kernel=event("gemm", 60, 40))
    assert gap.event == "Inner:Inner"


def test_events_of_other_causes_are_no_evidence(tmp_path: Path) -> None:
    """The gap from 0 to 60 is mostly a fetch of 35 us; an op runs for 60, but the fetch keeps the step."""
    fetch = line("tf_data_iterator_get_next/7", event("IteratorGetNextOp::DoCompute", 0, 35), id=2)
    op = line("tf_Compute/1", event("Mul:Mul", 0, 60), id=3)
    gap = longest_gap(tmp_path, main(CALL), fetch, op, kernel=event("gemm", 60, 40))
    assert (gap.cause, gap.thread, gap.event) == (
        "input",
        "tf_data_iterator_get_next/7",
        "IteratorGetNextOp::DoCompute",
    )


def test_a_main_thread_in_no_event_is_still_named(tmp_path: Path) -> None:
    gap = longest_gap(tmp_path, main(event("EagerKernelExecute", 60, 40)), kernel=event("gemm", 70, 30))
    assert (gap.cause, gap.thread, gap.event) == ("python", "python", "train")
    without_marker = line("python", event("EagerKernelExecute", 60, 40), id=1)
    start = line("other", event("other", 0, 1), id=2)
    gap = longest_gap(tmp_path, without_marker, start, kernel=event("gemm", 70, 30))
    assert (gap.cause, gap.thread, gap.event) == ("python", "python", None)
