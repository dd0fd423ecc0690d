"""Small functions on arrays, against what numpy or plain Python makes of the same numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfperf.arrays import MOST, capped_sum, distinct, distinct_index, group_sums, lookup, median, percentile, ranges

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
