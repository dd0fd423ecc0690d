from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tfperf.arrays import EMPTY, Intervals, covered_before, covers, difference, intersection, overlap, union, union_all

spans = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10)), max_size=12)


def made(pairs: list[tuple[int, int]]) -> Intervals:
    table = np.array(pairs, np.int64).reshape(-1, 2)
    return Intervals(table[:, 0], table[:, 0] + table[:, 1])


def points(flat: Intervals) -> set[int]:
    return {t for start, end in zip(flat.start.tolist(), flat.end.tolist(), strict=True) for t in range(start, end)}


def test_touching_and_nested_intervals_become_one() -> None:
    flat = union(*made([(10, 5), (0, 10), (2, 3), (20, 1)]))
    assert flat.start.tolist() == [0, 20]
    assert flat.end.tolist() == [15, 21]
    assert flat.total() == 16


def test_an_empty_interval_covers_nothing() -> None:
    assert union(*made([(5, 0)])).total() == 0


@given(spans)
def test_union_covers_exactly_the_points_of_its_parts(pairs: list[tuple[int, int]]) -> None:
    flat = union(*made(pairs))
    assert points(flat) == points(made(pairs))
    assert (flat.start[1:] > flat.end[:-1]).all()


@given(spans, spans)
def test_set_operations_agree_with_sets_of_points(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    left, right = union(*made(a)), union(*made(b))
    assert points(union_all([left, right])) == points(left) | points(right)
    assert points(intersection(left, right)) == points(left) & points(right)
    assert points(difference(left, right)) == points(left) - points(right)
    times = np.arange(45)
    assert set(np.flatnonzero(covers(left, times)).tolist()) == points(left)


@given(spans, st.integers(0, 45), st.integers(0, 45))
def test_overlap_counts_the_points_in_the_window(pairs: list[tuple[int, int]], start: int, end: int) -> None:
    flat = union(*made(pairs))
    expected = len([t for t in points(flat) if start <= t < end])
    assert overlap(flat, np.array([start]), np.array([end])).tolist() == [expected]


def test_nothing_covers_nothing() -> None:
    assert covered_before(EMPTY, np.array([3])).tolist() == [0]
