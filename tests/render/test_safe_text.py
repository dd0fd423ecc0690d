"""Names from a trace made safe to show."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfperf.render.values import brief, safe


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain/name:0", "plain/name:0"),
        ("größe 日本", "größe 日本"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("a\nb\tc\rd", r"a\nb\tc\rd"),
        ("\x00\x7f\x9b", r"\x00\x7f\x9b"),
        ("abc\u202edcba", r"abc\u202edcba"),
        ("\u2066\u200b\ufeff\u2028", r"\u2066\u200b\ufeff\u2028"),
        ("\udc80", r"\udc80"),
        ("\U000e0041", r"\U000e0041"),
    ],
)
def test_unprintable_characters_become_visible_escapes(text: str, shown: str) -> None:
    assert safe(text) == shown


@given(st.text(st.characters()))
def test_safe_text_is_printable_and_stays_as_it_is(text: str) -> None:
    once = safe(text)
    assert once.isprintable()
    assert safe(once) == once
    once.encode("utf-8")


def test_brief_keeps_both_ends() -> None:
    assert brief("abcdefghij", 10) == "abcdefghij"
    assert brief("abcdefghijk", 10) == "abc…fghijk"
    assert brief("\x1b" * 3, 9) == r"\x1…b\x1b"
