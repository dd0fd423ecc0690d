"""Text in the cells of a terminal: measuring, cutting, folding, wrapping."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tfperf.render.text_table import (
    Part,
    cells,
    coloured_text,
    fold,
    joined,
    line_of,
    plain_text,
    shorten,
    width_of,
    wrap,
)
from tfperf.render.values import safe

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
        "map_function",
        "_with_a_long",
        "_name here",
    ]


def test_a_long_run_of_combining_marks_is_broken_too() -> None:
    lines = fold("\u0301" * 10_000 + "x" * 100, 20)
    assert max(map(len, lines)) <= 100


def test_what_is_measured_without_rich_has_the_width_that_rich_gives_it() -> None:
    latin = "".join(map(chr, [*range(0x20, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x300)]))
    drawn = "".join(map(chr, [*range(0x2010, 0x2028), *range(0x2500, 0x25A0)]))
    for character in latin + drawn:
        assert cells(character) == cell_len(character) == 1, hex(ord(character))
    assert [cells(text) for text in ("", "a…b", "日本", "e\u0301", "\U0001f3fb")] == [0, 3, 4, 1, 0]


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
