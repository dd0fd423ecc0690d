"""Columns made without `pyarrow.array` are those that it makes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfperf.export.query.arrow_tables import by_index, listed, numbers, words

WHOLE = st.integers(-(1 << 63), (1 << 63) - 1)
REAL = st.floats(width=64)
SMALL = st.integers(-(1 << 53) + 1, (1 << 53) - 1)


def lists(*values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.one_of(st.none(), *values))


@pytest.mark.parametrize(
    ("kind", "values"),
    [(pa.int64(), lists(WHOLE)), (pa.float64(), lists(REAL, SMALL)), (pa.bool_(), lists(st.booleans()))],
    ids=str,
)
def test_lists(kind: Any, values: st.SearchStrategy[list[Any]]) -> None:
    @given(values)
    def same(some: list[Any]) -> None:
        found = listed(some, kind)
        found.validate(full=True)
        assert found.equals(pa.array(some, kind, from_pandas=True))

    same()


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (pa.int64(), [True, None], pa.bool_()),
        (pa.float64(), ["a", None], pa.string()),
        (pa.float64(), [], pa.float64()),
        (pa.float64(), [None], pa.float64()),
        (pa.int64(), np.array([1, 2]), pa.int64()),
        (pa.int64(), (1, 2), pa.int64()),
    ],
    ids=str,
)
def test_what_does_not_fit_has_its_own_type(kind: Any, values: Any, expected: Any) -> None:
    found = listed(values, kind)
    assert found.type == expected
    assert found.to_pylist() == list(values)


@given(lists(st.text()))
def test_texts(texts: list[str | None]) -> None:
    found = words(texts)
    found.validate(full=True)
    assert found.equals(pa.array(texts, pa.large_string()))


def test_a_lone_surrogate_becomes_a_replacement_character() -> None:
    assert words(["a\ud800", None, "b"]).to_pylist() == ["a\ufffd", None, "b"]


@given(st.lists(st.tuples(WHOLE, st.booleans())))
def test_numbers_that_are_missing_are_null(rows: list[tuple[int, bool]]) -> None:
    values = np.array([value for value, _ in rows], np.int64)
    missing = np.array([is_missing for _, is_missing in rows], np.bool_)
    assert numbers(values, missing=missing).equals(pa.array(values, mask=missing))
    assert numbers(values).equals(pa.array(values))
    bits = numbers(values, "uint64", missing=missing)
    assert bits.equals(pa.array(values.view(np.uint64), mask=missing))


def test_names_are_held_once() -> None:
    column = by_index(numbers(np.array([1, 0, 1], np.int32), missing=np.array([False, False, True])), words(["a", "b"]))
    assert column.to_pylist() == ["b", "a", None]
    assert len(column.dictionary) == 2
