"""When activities happen as TensorFlow has it: group by group, the groups end to end."""

from __future__ import annotations

from pathlib import Path

from builders import event, host, line, plane, trace_of

from tfperf.trace.host.activities import Activity
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.steps.tensorflow_groups import GroupSpans, group_spans, grouped_times

US = 1_000_000


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
