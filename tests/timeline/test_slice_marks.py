"""In which order slices start and end on a track."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from timeline.test_overlaps import sorted_rows

from tfperf.timeline.host_timeline import Track
from tfperf.timeline.overlaps import assign_tracks
from tfperf.timeline.slice_marks import END, INSTANT, START, marks_of_tracks, nested_marks


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 15)), max_size=40))
def test_marks_make_a_stack(events: list[tuple[int, int]]) -> None:
    start, end = sorted_rows(events)
    rows = np.flatnonzero(assign_tracks(start, end) == 0)
    start, end = start[rows], end[rows]
    marks = nested_marks(start, end)
    stack: list[int] = []
    times, started = [], []
    for event, kind in zip(marks.event.tolist(), marks.kind.tolist(), strict=True):
        times.append(end[event] if kind == END else start[event])
        if kind == END:
            assert stack.pop() == event
        else:
            started.append(event)
            assert (kind == START) == (end[event] > start[event])
            assert kind in (START, INSTANT)
            stack += [event] if kind == START else []
    assert times == sorted(times)
    assert started == list(range(len(start)))


def test_tracks_follow_one_another() -> None:
    """Two slices on a thread, then one that crosses them, on the extra track."""
    tracks = [Track("t", 0, 2), Track("t (2)", 2, 3, extra=True)]
    start, end = np.array([0, 2, 5]), np.array([10, 4, 12])
    marks = marks_of_tracks(tracks, start, end)
    assert list(zip(marks.event.tolist(), marks.kind.tolist(), strict=True)) == [
        (0, START),
        (1, START),
        (1, END),
        (0, END),
        (2, START),
        (2, END),
    ]
