"""Tables in a terminal: how columns share a line, and what is never cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfperf.render.styled_line import plain_text
from tfperf.render.terminal_table import column_widths, fits, table_lines, two_line_width
from tfperf.render.text_table import TextTable


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
