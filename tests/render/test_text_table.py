"""Tables as text: headers with units, one line per cell, trees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tfperf.render.text_table import ASCII, DOTS, LINES, Branches, cut_note, main_columns, text_table
from tfperf.report.model import Column, Table


def test_a_text_table_has_the_main_columns_and_knows_its_numbers() -> None:
    columns = (
        Column("name", "Name", str),
        Column("id", "Id", int),
        Column("ms", "Self", float, "ms"),
        Column("us", "Us", float, level="data"),
    )
    data: dict[str, list[Any]] = {"name": ["a", None], "id": [7, None], "ms": [None, None], "us": [1, 2]}
    table = Table("t", "T", columns, data, total_rows=2)
    assert main_columns(table) == columns[:3]
    texts = text_table(table)
    assert texts.headers == ("Name", "Id", "Self (ms)")
    assert texts.rows == (("a", "7", "-"), ("-", "-", "-"))
    assert texts.numeric == (False, True, True)


@pytest.mark.parametrize(
    ("title", "unit", "header"),
    [
        ("Self time", "ms", "Self time (ms)"),
        ("ms/step", "ms", "ms/step"),
        ("% of step", "%", "% of step"),
        ("Items", "ms", "Items (ms)"),
        ("Calls", "count", "Calls"),
        ("a\nb", "", r"a\nb"),
    ],
)
def test_a_header_names_its_unit_once(title: str, unit: Any, header: str) -> None:
    table = Table("t", "T", (Column("a", title, float, unit),), {"a": [1]}, total_rows=1)
    assert text_table(table).headers == (header,)


def test_truth_values_are_text_and_not_numbers() -> None:
    table = Table("t", "T", (Column("eager", "Eager", bool),), {"eager": [True, np.bool_(False)]}, total_rows=2)
    assert text_table(table).rows == (("yes",), ("no",))
    assert text_table(table).numeric == (False,)


def test_a_cut_table_says_how_to_see_all() -> None:
    table = Table("t", "T", (Column("n", "N", int),), {"n": list(range(10))}, total_rows=37)
    assert cut_note(table) == "showing 10 of 37; --top 37 shows all"
    assert cut_note(Table("t", "T", (Column("n", "N", int),), {"n": [1]}, total_rows=1)) == ""


@pytest.mark.parametrize(
    ("branches", "expected"),
    [
        (LINES, ["a", "├ b", "│ └ c", "└ d", "  └ e"]),
        (ASCII, ["a", "|-b", "| `-c", "`-d", "  `-e"]),
        (DOTS, ["a", "· b", "· · c", "· d", "· · e"]),
    ],
)
def test_a_column_with_depths_is_a_tree(branches: Branches, expected: list[str]) -> None:
    columns = (Column("stage", "Stage", str, depth_key="depth"),)
    data: dict[str, list[Any]] = {"stage": list("abcde"), "depth": [0, 1, 2, 1, 2]}
    assert [row[0] for row in text_table(Table("t", "T", columns, data, 5), branches).rows] == expected
