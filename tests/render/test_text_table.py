"""Tables as text: headers with units, one line per cell, trees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfperf.render.text_table import (
    ASCII,
    DOTS,
    LINES,
    Branches,
    TextTable,
    column_widths,
    cut_note,
    fits,
    main_columns,
    plain_text,
    table_lines,
    text_table,
    two_line_width,
)
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


def test_number_columns_get_their_width_before_names() -> None:
    rows = (("n" * 50, "type", "1,234,567"), ("m", "other", "-"))
    table = TextTable(("Operation", "Type", "Total self time (ms)"), rows, (False, False, True))
    assert column_widths(table, 200) == [50, 5, 20]
    assert column_widths(table, 60) == [41, 5, 10]
    assert column_widths(table, 30) == [11, 5, 10]
    assert column_widths(table, 10) == [8, 5, 10]


def test_several_wide_text_columns_share_with_twice_the_room_for_the_widest() -> None:
    table = TextTable(("A", "B", "C"), (("a" * 90, "b" * 95, "c"),), (False, False, False))
    assert column_widths(table, 80) == [25, 50, 1]
    assert column_widths(table, 81) == [25, 51, 1]


@pytest.mark.parametrize(
    ("header", "width"), [("Share", 5), ("Self time (ms)", 9), ("Mean self time (us)", 9), ("", 0), ("a b", 1)]
)
def test_headers_may_take_two_lines(header: str, width: int) -> None:
    assert two_line_width(header) == width


@pytest.mark.parametrize(("width", "expected"), [(200, True), (60, True), (27, True), (26, False)])
def test_a_table_fits_while_its_numbers_and_short_texts_do(width: int, expected: bool) -> None:
    rows = (("n" * 50, "type", "1,234,567"), ("m", "other", "-"))
    assert fits(TextTable(("Operation", "Type", "Total self time (ms)"), rows, (False, False, True)), width) == expected


@given(st.lists(st.tuples(st.text("ab/", max_size=90), st.integers(0, 10**12)), min_size=1), st.integers(1, 100))
def test_every_number_is_whole_at_any_width(rows: list[tuple[str, int]], width: int) -> None:
    table = TextTable(("Name", "Count"), tuple((name, f"{number:,}") for name, number in rows), (False, True))
    for interactive in (False, True):
        lines = [plain_text(line) for line in table_lines(table, width, interactive=interactive)]
        last_words = [line.split(" ")[-1] for line in lines]
        assert all(f"{number:,}" in last_words for _, number in rows)
