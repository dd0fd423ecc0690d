"""Tables as text: headers with units, one line per cell, trees; measuring, cutting, folding and wrapping text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.cells import cell_len

from tfperf.report.model import Column, Ranked, Table
from tfperf.report.render.text_table import (
    ASCII,
    DOTS,
    LINES,
    Branches,
    Part,
    TextTable,
    bar_text,
    cells,
    coloured_text,
    column_widths,
    cut_note,
    fits,
    fold,
    header_width,
    joined,
    line_of,
    main_columns,
    plain_text,
    shorten,
    table_lines,
    text_table,
    width_of,
    wrap,
    wrap_prose,
)
from tfperf.report.render.values import safe


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
    assert cut_note(replace(table, all_rows_in="-s steps")) == "showing 10 of 37; -s steps shows all"


def test_a_cut_table_of_hosts_says_by_what_they_were_chosen() -> None:
    columns = (Column("host", "Host", str), Column("input_percent", "Input", float, "%"))
    data: dict[str, Any] = {"host": ["a", "b"], "input_percent": [9.0, None]}
    table = Table("t", "T", columns, data, total_rows=37, ranked=Ranked("input_percent", each="hosts"))
    assert cut_note(table) == "showing 2 of 37, the largest Input (%) first; --top 37 shows all"
    least = replace(table, ranked=Ranked("input_percent", each="hosts", least_is_worst=True))
    assert cut_note(least) == "showing 2 of 37, the least Input (%) first; --top 37 shows all"
    unknown = replace(table, data={**data, "input_percent": [None, None]})
    assert cut_note(unknown) == "showing 2 of 37; --top 37 shows all"
    hidden = replace(table, columns=columns[:1])
    assert cut_note(hidden) == "showing 2 of 37, the largest input_percent first; --top 37 shows all"


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
    assert column_widths(table, 10) == [8, 5, 9]


def test_several_wide_text_columns_share_with_twice_the_room_for_the_widest() -> None:
    table = TextTable(("A", "B", "C"), (("a" * 90, "b" * 95, "c"),), (False, False, False))
    assert column_widths(table, 80) == [25, 50, 1]
    assert column_widths(table, 81) == [25, 51, 1]


@pytest.mark.parametrize(
    ("header", "two", "three"),
    [("Share", 5, 5), ("Self time (ms)", 9, 4), ("Mean self time (us)", 9, 9), ("", 0, 0), ("a b", 1, 1)],
)
def test_headers_may_take_two_or_three_lines(header: str, two: int, three: int) -> None:
    assert (header_width(header, 2), header_width(header, 3)) == (two, three)


def test_headers_take_three_lines_only_where_two_are_too_wide() -> None:
    table = TextTable(("Step", "Device compute (ms)", "All others (ms)"), (("1", "4.59", "1.09"),), (True, True, True))
    assert column_widths(table, 80) == [4, 19, 15]
    assert column_widths(table, 32) == [4, 12, 10]
    assert column_widths(table, 29) == [4, 7, 6]


@pytest.mark.parametrize(("width", "expected"), [(200, True), (60, True), (26, True), (25, False)])
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


ANY_TEXT = st.text(st.characters())
"""Text with everything a Python string can hold, lone surrogates too."""

CONV = "gradient_tape/sequential/conv2d_1/Conv2D/Conv2DBackpropFilter"


@pytest.mark.parametrize(
    ("width", "shown"),
    [(80, CONV), (30, "gradient_…Conv2DBackpropFilter"), (7, "gr…lter"), (2, "…r"), (1, "…"), (0, "")],
)
def test_both_ends_of_a_cut_name_stay_visible(width: int, shown: str) -> None:
    assert shorten(CONV, width) == shown


def test_wide_characters_count_as_two_cells_when_cut() -> None:
    assert shorten("日本語日本語", 7) == "日…本語"


def test_a_folded_name_breaks_after_slashes_and_hangs() -> None:
    assert fold(CONV, 24, hang=2) == ["gradient_tape/", "  sequential/conv2d_1/", "  Conv2D/", "  Conv2DBackpropFilter"]


def test_a_name_without_slashes_is_folded_where_the_width_ends() -> None:
    assert fold("abcdefghij", 4) == ["abcd", "efgh", "ij"]
    assert fold("Input-bound", 10) == ["Input-", "bound"]
    assert fold("", 4) == [""]


@given(ANY_TEXT.map(safe), st.integers(2, 30), st.integers(0, 2))
def test_folding_loses_nothing(text: str, width: int, hang: int) -> None:
    first, *others = fold(text, width, hang=hang)
    assert first + "".join(line[hang:] for line in others) == text


@given(ANY_TEXT.map(safe), st.integers(4, 30))
def test_no_way_of_fitting_exceeds_the_width(text: str, width: int) -> None:
    for line in [shorten(text, width), *fold(text, width, hang=2), *wrap(text, width)]:
        assert cells(line) <= width


@given(ANY_TEXT.map(safe), st.integers(4, 30))
def test_wrapping_loses_nothing_but_spaces(text: str, width: int) -> None:
    assert "".join(wrap(text, width)).replace(" ", "") == text.replace(" ", "")


def test_words_are_wrapped_and_only_long_ones_folded() -> None:
    assert wrap("a slow map_function_with_a_long_name here", 12) == [
        "a slow",
        "map_",
        "function_",
        "with_a_long_",
        "name here",
    ]


@pytest.mark.parametrize(
    ("name", "width", "lines"),
    [
        ("volta_scudnn_128x64_relu_nn_v1", 16, ["volta_scudnn_", "  128x64_relu_", "  nn_v1"]),
        ("tensorflow::functor::RowReduceKernel", 30, ["tensorflow::functor::", "  RowReduceKernel"]),
        ("sequential/Conv2DBackpropFilter", 20, ["sequential/", "  Conv2DBackprop", "  Filter"]),
        ("EigenMetaKernel<float, scalar_product_op>", 32, ["EigenMetaKernel<float, scalar_", "  product_op>"]),
        ("_MklNativeConv2DBackpropFilter", 20, ["_MklNativeConv2D", "  BackpropFilter"]),
        ("xxxxxxxxxxxx", 8, ["xxxxxxxx", "  xxxx"]),
    ],
)
def test_names_are_broken_where_words_end(name: str, width: int, lines: list[str]) -> None:
    assert fold(name, width, hang=2) == lines


def test_a_long_run_of_combining_marks_is_broken_too() -> None:
    lines = fold("\u0301" * 10_000 + "x" * 100, 20)
    assert max(map(len, lines)) <= 100


def test_what_is_measured_without_rich_has_the_width_that_rich_gives_it() -> None:
    latin = "".join(map(chr, [*range(0x20, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x300)]))
    drawn = "".join(map(chr, [*range(0x2010, 0x2028), *range(0x2500, 0x25A0)]))
    for character in latin + drawn:
        assert cells(character) == cell_len(character) == 1, hex(ord(character))
    assert [cells(text) for text in ("", "a…b", "日本", "e\u0301")] == [0, 3, 4, 1]
    assert cells("\U0001f3fb") == cell_len("\U0001f3fb"), "versions of rich differ"


LINE = (Part("!! ", "bold red"), Part("日本 is slow"), Part("  ", "dim"))


def test_plain_text_has_neither_codes_nor_spaces_at_its_end() -> None:
    assert plain_text(LINE) == "!! 日本 is slow"


def test_a_style_is_switched_on_before_its_part_and_off_after_it() -> None:
    assert coloured_text(LINE) == "\x1b[1;31m!! \x1b[0m日本 is slow\x1b[2m  \x1b[0m"
    assert coloured_text(line_of("", "black on red")) == ""


def test_the_width_is_counted_in_cells() -> None:
    assert width_of(LINE) == 3 + 4 + 8 + 2
    assert width_of(()) == 0


def test_each_line_ends_with_a_newline() -> None:
    lines = [line_of("a", "bold"), line_of("")]
    assert joined(lines, colour=False) == "a\n\n"
    assert joined(lines, colour=True) == "\x1b[1ma\x1b[0m\n\n"


def test_words_are_not_cut_for_a_person_but_long_names_are() -> None:
    words, name = "tracing or compiling functions", "gradient_tape/sequential/conv2d_1/Conv2D"
    table = TextTable(("What",), ((words,), (name,), ("a b " * 40 + "c",)), (False,))
    lines = [plain_text(line) for line in table_lines(table, 20, interactive=True)][2:]
    folded = ["tracing or", "  compiling", "  functions"]
    assert lines == [*folded, "gradie…nv2d_1/Conv2D", "a b a …a b a b a b c"]


# --- a bar of letters ---


@pytest.mark.parametrize(
    ("share", "interactive", "bar"),
    [
        (1, False, "####"),
        (0.5, False, "##"),
        (1e-9, False, "#"),
        (1, True, "████"),
        (0.5 + 1 / 32, True, "██▏"),
        (1e-9, True, "▏"),
    ],
)
def test_a_bar_is_as_long_as_its_share(share: float, interactive: bool, bar: str) -> None:
    assert bar_text(share, 4, interactive=interactive) == bar


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("use map(f, deterministic=False) here now (step 19.4 -> 4 to 6 ms)",
         ["use", "map(f, deterministic=False)", "here now", "(step 19.4 -> 4 to 6 ms)"]),
        ("one big function (for b in ds.take(10)), and log after",
         ["one big function", "(for b in ds.take(10)), and", "log after"]),
        ("the list of stages: tfperf analyze PATH -s tfdata.",
         ["the list of stages:", "tfperf analyze 'my logs/a' -s tfdata."]),
        ("takes one half of all the steps 1.26 MB each (-s gaps).",
         ["takes one half of all the", "steps 1.26 MB each (-s gaps)."]),
    ],
)  # fmt: skip
def test_code_commands_and_numbers_with_a_unit_are_not_broken(text: str, lines: list[str]) -> None:
    assert wrap_prose(text, 29, "'my logs/a'") == lines
