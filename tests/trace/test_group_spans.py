"""The span of a group: its longest marker on the host, or on a device where that sticks out."""

from __future__ import annotations

from pathlib import Path

from builders import event, host, line, plane, trace_of

from tfperf.trace.activity_times import GroupSpans, group_spans, stored_groups
from tfperf.trace.host_trace import HostTrace

US = 1_000_000


def spans(trace: HostTrace) -> dict[int, tuple[int, int]]:
    """Group -> start and end in microseconds."""
    group = stored_groups(trace)
    assert group is not None
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
    assert stored_groups(trace_of(tmp_path, host(event("train", 0, 1)))) is None
