"""Small functions on arrays, against what numpy or plain Python makes of the same numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfperf.base.arrays import (
    EMPTY,
    MOST,
    Intervals,
    capped_sum,
    covered_before,
    covers,
    difference,
    distinct,
    distinct_index,
    distinct_rows,
    group_equal,
    group_sums,
    intersection,
    is_any,
    lookup,
    median,
    medians,
    overlap,
    percentile,
    ranges,
    sorted_in_groups,
    text_index,
    touches,
    union,
    union_all,
)

numbers = st.lists(st.integers(-3, 9), max_size=12)


def test_median_and_percentile_of_nothing_are_0() -> None:
    assert (median(np.empty(0)), percentile(np.empty(0), 0.95)) == (0, 0)


@given(numbers.filter(bool), st.floats(0, 1))
def test_median_and_percentile_agree_with_numpy(values: list[int], share: float) -> None:
    assert median(np.array(values)) == np.median(values)
    assert percentile(np.array(values), share) == pytest.approx(np.percentile(values, 100 * share))


@given(numbers)
def test_distinct_values_and_their_places_agree_with_numpy(values: list[int]) -> None:
    array = np.array(values, np.int64)
    unique, index = distinct_index(array)
    assert distinct(array).tolist() == unique.tolist() == np.unique(array).tolist()
    assert unique[index].tolist() == values


def test_large_and_negative_numbers_are_told_apart_too() -> None:
    values = np.array([1 << 62, -5, 1 << 62, 0])
    unique, index = distinct_index(values)
    assert (unique.tolist(), index.tolist()) == ([-5, 0, 1 << 62], [2, 0, 2, 1])


@given(numbers, st.sampled_from([1, 100, 1 << 20, 1 << 60]))
def test_equal_rows_are_found_whatever_their_size(values: list[int], scale: int) -> None:
    """Small numbers are found in a table, larger ones sorted as 16 or 64 bits, the largest by column."""
    columns = [np.array(values, np.int64) * scale, np.array(values[::-1], np.int64) * scale // 2]
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    first, index = distinct_rows(columns)
    assert [rows[place] for place in first.tolist()] == sorted(set(rows))
    assert first.tolist() == [rows.index(row) for row in sorted(set(rows))]
    assert [rows[first[place]] for place in index.tolist()] == rows
    order, starts = group_equal(columns)
    assert [rows[place] for place in order.tolist()] == sorted(rows)
    assert order[starts].tolist() == first.tolist()


@given(st.lists(st.sampled_from("abc")))
def test_texts_are_numbered_in_the_order_in_which_they_come(texts: list[str]) -> None:
    distinct_texts, index = text_index(texts)
    assert distinct_texts == [*dict.fromkeys(texts)]
    assert [distinct_texts[place] for place in index.tolist()] == texts


@given(numbers, numbers)
def test_lookup_finds_the_first_of_equals(ascending: list[int], wanted: list[int]) -> None:
    ordered = sorted(ascending)
    expected = [ordered.index(number) if number in ordered else -1 for number in wanted]
    assert lookup(np.array(ordered, np.int64), np.array(wanted, np.int64)).tolist() == expected


def test_ranges_follow_each_other() -> None:
    assert ranges(np.array([5, 0, 7]), np.array([2, 0, 3])).tolist() == [5, 6, 7, 8, 9]
    assert ranges(np.empty(0, np.int64), np.empty(0, np.int64)).tolist() == []


def test_sums_by_group() -> None:
    duration, names, lines = np.array([5, 7, 1, 2]), np.array([1, 1, 0, 1]), np.array([3, 3, 3, 4])
    assert list(group_sums(duration, [names, lines])) == [
        ([0, 3], (1, 1, 1, 1)),
        ([1, 3], (2, 12, 5, 7)),
        ([1, 4], (1, 2, 2, 2)),
    ]
    assert list(group_sums(duration[:0], [names[:0]])) == []


def test_sums_do_not_overflow() -> None:
    huge = np.full(4, MOST, np.int64)
    assert capped_sum(huge) == MOST
    assert list(group_sums(huge, [np.zeros(4, np.int64)])) == [([0], (4, MOST, MOST, MOST))]


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
    assert union(*made([(5, 0)])).total() == 0
    assert covered_before(EMPTY, np.array([3])).tolist() == [0]


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
    assert touches(flat, np.array([start]), np.array([end])).tolist() == [expected > 0]


@pytest.mark.parametrize("scale", [1, 1 << 59])
def test_medians_of_groups(scale: int) -> None:
    """Three groups: [1, 3, 5], [2, 4] and [-7]; numbers too large to pack are sorted by two keys."""
    group, values = np.array([1, 0, 0, 1, 2, 0]), np.array([4, 5, 1, 2, -7, 3]) * scale
    ordered, starts = sorted_in_groups(group, values)
    assert (ordered // scale).tolist() == [1, 3, 5, 2, 4, -7]
    assert starts.tolist() == [0, 3, 5]
    assert (medians(ordered, starts) / scale).tolist() == [3, 3, -7]
    assert [len(part) for part in sorted_in_groups(group[:0], values[:0])] == [0, 0]


def test_numbers_among_others() -> None:
    values = np.array([5, -1, 3, 5])
    assert is_any(values, [5, 7, -1]).tolist() == [True, True, False, True]
    assert is_any(values, []).tolist() == [False] * 4
    assert is_any(values[:0], [5]).tolist() == []
