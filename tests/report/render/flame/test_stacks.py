"""Stacks with whole numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfperf.report.flame_tree import flame_tree
from tfperf.report.render.flame import stacks
from tfperf.report.render.flame.stacks import StackRow, stack_rows, whole_numbers


def test_stacks_are_those_with_a_value_of_their_own() -> None:
    tree = flame_tree({("m", "a"): 3, ("m",): 2, ("m", "none"): 0})
    assert stack_rows("host", tree) == [StackRow(("host", "m"), 2), StackRow(("host", "m", "a"), 3)]


def test_very_many_stacks_are_bounded_and_their_sum_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "MOST_STACKS", 2)
    rows = stack_rows("host", flame_tree({(name,): value for name, value in (("a", 9), ("b", 5), ("c", 2), ("d", 1))}))
    assert rows == [StackRow(("host", "a"), 9), StackRow(("host", "b"), 5), StackRow(("host", "(2 other stacks)"), 3)]


def test_names_are_safe() -> None:
    (row,) = stack_rows("host", flame_tree({("a\nb\x1b[1m", ""): 1}))
    assert row.frames == ("host", r"a\nb\x1b[1m", "(no name)")


@given(st.lists(st.integers(0, 1 << 62), max_size=30), st.integers(1, 10**9))
def test_rounding_never_drifts(values: list[int], divisor: int) -> None:
    rounded, until, exact = whole_numbers(values, divisor), 0, 0
    for number, value in zip(rounded, values, strict=True):
        until, exact = until + number, exact + value
        assert number >= 0
        assert abs(2 * (until * divisor - exact)) <= divisor
