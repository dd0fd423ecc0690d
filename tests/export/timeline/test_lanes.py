"""Lanes: the first that is free, and nothing overlaps in any."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tfperf.export.timeline.tracks import lanes

INTERVALS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=60).map(sorted)


def one_by_one(intervals: list[tuple[int, int]]) -> list[int]:
    """Give each interval the first free lane, as one would by hand."""
    free: list[int] = []
    chosen = []
    for start, length in intervals:
        lane = next((lane for lane, time in enumerate(free) if time <= start), len(free))
        free[lane : lane + 1] = [start + max(length, 1)]
        chosen.append(lane)
    return chosen


def given_lanes(intervals: list[tuple[int, int]]) -> list[int]:
    start, length = np.array(intervals, np.int64).reshape(-1, 2).T
    return list(lanes(start, start + length).tolist())


@given(INTERVALS)
def test_each_interval_gets_the_first_free_lane(intervals: list[tuple[int, int]]) -> None:
    assert given_lanes(intervals) == one_by_one(intervals)


def test_more_intervals_at_once_than_lanes_are_filled() -> None:
    intervals = [(0, 10)] * (250)
    assert given_lanes(intervals) == [*range(len(intervals))]
