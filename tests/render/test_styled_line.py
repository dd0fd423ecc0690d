"""Lines with styles: as plain text, with escape codes, measured."""

from __future__ import annotations

from tfperf.render.styled_line import Part, coloured_text, joined, line_of, plain_text, width_of

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
