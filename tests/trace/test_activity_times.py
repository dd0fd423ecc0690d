"""When activities happen: in real time, on a TPU core, and stretched by group."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from builders import event, host, line, plane, trace_of

from tfperf.trace.activities import Activity
from tfperf.trace.activity_times import (
    ActivityTimes,
    GroupSpans,
    corrected_times,
    group_spans,
    grouped_times,
    has_groups,
    tpu_codes,
    tpu_times,
)
from tfperf.trace.host_trace import HostTrace

US = 1_000_000


def busy(times: ActivityTimes) -> dict[str, list[tuple[int, int]]]:
    """Activity -> start and end of its intervals in microseconds."""
    return {
        kind.name: list(zip((sets.start // US).tolist(), (sets.end // US).tolist(), strict=True))
        for kind, sets in times.busy.items()
    }


def test_activities_in_real_time_are_united_over_threads(tmp_path: Path) -> None:
    threads = line("a", event("x:MatMul", 0, 10), id=1), line("b", event("y:Add", 5, 10), id=2)
    gpu = plane("/device:GPU:0", line("Stream #1", event("k", 8, 4), event("MemcpyH2D", 20, 5)))
    trace = trace_of(tmp_path, plane("/host:CPU", *threads), gpu)
    window = np.array([0]), np.array([30 * US])
    expected = {"HOST_COMPUTE": [(0, 15)], "COMPUTE_UNKNOWN": [(8, 12)], "HOST_TO_DEVICE": [(20, 25)]}
    assert busy(corrected_times(trace, *window)) == expected


def test_where_no_op_is_an_infeed_waiting_of_the_host_explains_idle_time(tmp_path: Path) -> None:
    core = plane("/device:TPU:0", line("XLA Ops", event("fusion", 10, 5, hlo_category="loop fusion")))
    trace = trace_of(tmp_path, host(event("IteratorGetNextOp::DoCompute", 0, 9)), core)
    times = tpu_times(trace, 1, tpu_codes(trace), np.array([0]), np.array([30 * US]))
    assert busy(times) == {"COMPUTE_32": [(10, 15)], "WAIT_WHILE_IDLE": [(0, 9)]}


def test_each_group_has_a_stretch_of_its_own(tmp_path: Path) -> None:
    """Both steps run at the same time; the second follows the first on the stretched axis."""
    marks = [
        line(f"t{n}", event("train", 0, 10, group_id=n), event("x:MatMul", 2, 5, group_id=n), id=n + 1)
        for n in range(2)
    ]
    trace = trace_of(tmp_path, plane("/host:CPU", *marks), instants=True)
    group = trace.number("group_id", -1)
    times = grouped_times(trace, group, group_spans(trace, group))
    (compute,) = (sets for kind, sets in times.busy.items() if kind == Activity.HOST_COMPUTE)
    assert (compute.end - compute.start).tolist() == [5 * US, 5 * US]
    assert (times.start[1] >= times.end[0], (times.end - times.start).tolist()) == (True, [10 * US, 10 * US])
    assert times.origin.tolist() == times.start.tolist()


def spans(trace: HostTrace) -> dict[int, tuple[int, int]]:
    """Group -> start and end in microseconds."""
    group = trace.number("group_id", -1)
    made: GroupSpans = group_spans(trace, group)
    bounds = zip((made.start // US).tolist(), (made.end // US).tolist(), strict=True)
    return dict(zip(made.group.tolist(), bounds, strict=True))


def test_the_longest_marker_of_the_host(tmp_path: Path) -> None:
    events = [event("train", 0, 50, group_id=1), event("train", 60, 10, group_id=1), event("op", 0, 90, group_id=1)]
    assert spans(trace_of(tmp_path, host(*events))) == {1: (0, 50)}


def test_a_device_that_works_longer_than_the_marker_sets_the_span(tmp_path: Path) -> None:
    gpu = plane(
        "/device:GPU:0",
        line(
            "Stream #1", event("k", 20, 10, group_id=1), event("k", 70, 30, group_id=1), event("k", 120, 5, group_id=2)
        ),
    )
    marks = [event("train", 0, 50, group_id=1), event("train", 100, 50, group_id=2)]
    assert spans(trace_of(tmp_path, host(*marks), gpu)) == {1: (20, 100), 2: (100, 150)}


def test_a_file_without_groups_has_none(tmp_path: Path) -> None:
    assert not has_groups(trace_of(tmp_path, host(event("train", 0, 1))))
    assert has_groups(trace_of(tmp_path, host(event("train", 0, 1, group_id=0))))
