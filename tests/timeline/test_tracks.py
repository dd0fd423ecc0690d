"""Which events share a track, and in which order things happen on it."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tfperf.timeline.tracks import BEGIN, END, INSTANT, nested_marks, split


def sorted_rows(events: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    rows = sorted(events, key=lambda one: (one[0], -one[1]))
    begin = np.array([begin for begin, _ in rows], np.int64)
    return begin, begin + np.array([duration for _, duration in rows], np.int64)


def lanes(*events: tuple[int, int]) -> list[int]:
    found: list[int] = split(*sorted_rows(list(events))).tolist()
    return found


def test_what_nests_stays_on_one_track() -> None:
    assert lanes((0, 10), (0, 10), (2, 3), (5, 5), (10, 4)) == [0] * 5
    assert lanes() == []


def test_a_chain_of_overlaps_takes_two_more_tracks() -> None:
    """Each event crosses the one before: the first stays, the others take turns on two tracks."""
    assert lanes(*((10 * i, 15) for i in range(6))) == [0, 1, 2, 1, 2, 1]


def test_what_is_inside_a_crossing_event_goes_with_it() -> None:
    """b crosses a; c is inside b, and crosses a itself; d is inside c."""
    a, b, c, d = (0, 10), (4, 20), (6, 10), (11, 2)
    assert lanes(a, b, c, d) == [0, 1, 1, 0]


def test_many_overlaps_end() -> None:
    """A thousand events, each of which crosses all others, take a thousand tracks."""
    assert sorted(lanes(*((i, 1000) for i in range(1000)))) == list(range(1000))


EVENTS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 15)), max_size=40)


@given(EVENTS)
def test_no_two_events_of_a_track_cross(events: list[tuple[int, int]]) -> None:
    begin, end = sorted_rows(events)
    track = split(begin, end)
    for i in range(len(begin)):
        for j in range(i):
            assert track[i] != track[j] or not begin[j] < begin[i] < end[j] < end[i]


@given(EVENTS)
def test_marks_make_a_stack(events: list[tuple[int, int]]) -> None:
    begin, end = sorted_rows(events)
    rows = np.flatnonzero(split(begin, end) == 0)
    begin, end = begin[rows], end[rows]
    marks = nested_marks(begin, end)
    stack: list[int] = []
    times, named = [], []
    for event, kind in zip(marks.event.tolist(), marks.kind.tolist(), strict=True):
        times.append(end[event] if kind == END else begin[event])
        if kind == END:
            assert stack.pop() == event
        else:
            named.append(event)
            assert (kind == BEGIN) == (end[event] > begin[event])
            assert kind in (BEGIN, INSTANT)
            stack += [event] if kind == BEGIN else []
    assert times == sorted(times)
    assert named == list(range(len(begin)))
