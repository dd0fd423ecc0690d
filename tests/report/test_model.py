"""Declared columns as a DataFrame."""

from __future__ import annotations

import math

import pandas as pd

from tfperf.report.model import Column, frame, table_of

COLUMNS = (
    Column("path", "Path", str, level="data"),
    Column("name", "Name", str),
    Column("count", "Count", int, level="full"),
    Column("time_ms", "Time", float, "ms"),
    Column("is_slow", "Slow", bool),
)


def test_every_type_knows_what_is_unknown() -> None:
    known = {"path": "a", "name": "b", "count": 2, "time_ms": 1, "is_slow": True}
    data = {key: [value, "\udc80" if key == "path" else None] for key, value in known.items()}
    table = frame(COLUMNS, data)
    assert dict(table.dtypes) == {
        "path": "string",
        "name": "string",
        "count": "Int64",
        "time_ms": "Float64",
        "is_slow": "boolean",
    }
    assert table["path"].tolist() == ["a", "\udc80"]
    assert [table[key].isna().tolist() for key in table if key != "path"] == [[False, True]] * 4
    assert [table[key].tolist()[0] for key in table] == ["b", 1.0, True, 2, "a"]


def test_numbers_that_are_none_are_unknown() -> None:
    times = frame([Column("a", "A", float)], {"a": [1.5, math.nan, math.inf]})["a"]
    assert times.isna().tolist() == [False, True, True]
    assert times.sum() == 1.5


def test_without_rows_the_types_stay() -> None:
    empty = frame(COLUMNS, {column.key: () for column in COLUMNS})
    assert (len(empty), empty["count"].dtype, empty["name"].dtype) == (0, pd.Int64Dtype(), pd.StringDtype("python"))


def test_a_table_of_a_report_has_a_frame() -> None:
    assert table_of("t", "T", COLUMNS[1:2], {"name": ["a"]}).table["name"].tolist() == ["a"]
