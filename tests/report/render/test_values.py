"""Single values as people read them, and as JSON and CSV hold them; names from a trace made safe to show."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfperf.report.model import Report
from tfperf.report.render.values import brief, cell_text, for_people, measure_text, plain, safe, source_facts


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (15.94, "ms", "15.9"),
        (1234.5, "us", "1234"),
        (0.01, "%", "<0.1"),
        (99.99, "%", ">99.9"),
        (1234567, "count", "1,234,567"),
        (np.int64(1234), "count", "1,234"),
        (12.0, "count", "12"),
        (1234.56, "count", "1,235"),
        (2**64 - 1, "", "18446744073709551615"),
        (0.123456789, "", "0.123"),
        (27.6123, "", "27.6"),
        (1234.56, "", "1,235"),
        (12345678.9, "", "1.23e+07"),
        (None, "ms", "-"),
        (float("nan"), "ms", "-"),
        (np.float32("inf"), "", "-"),
        (True, "", "yes"),
        (np.bool_(False), "", "no"),
        ("a\nb", "", r"a\nb"),
        (np.str_("name"), "", "name"),
    ],
)
def test_a_value_is_shown_in_its_unit(value: Any, unit: str, shown: str) -> None:
    assert cell_text(value, unit) == shown


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (15.94, "ms", "15.9 ms"),
        (63.42, "%", "63.4%"),
        (1234, "count", "1,234"),
        (2048, "bytes", "2.05 kB"),
        (None, "ms", "-"),
        (float("nan"), "%", "-"),
        ("markers", "", "markers"),
    ],
)
def test_a_measure_carries_its_unit(value: Any, unit: str, shown: str) -> None:
    assert measure_text(value, unit) == shown


def test_plain_values_have_plain_types() -> None:
    values = [np.float64(1.5), np.int64(3), np.bool_(True), np.str_("x"), None, float("-inf"), 7, True]
    assert [plain(value) for value in values] == [1.5, 3, True, "x", None, None, 7, True]
    assert [type(plain(value)) for value in values[:4]] == [float, int, bool, str]


def test_what_was_read_is_shown_in_words() -> None:
    hosts = ["a", "b", "c", "d", "e", "f"]
    facts = source_facts(Report({"run_name": "r1", "hosts": hosts, "files": {"a": 1}, "skipped": []}, {}))
    assert [(fact.title, fact.value) for fact in facts] == [("Run name", "r1"), ("Hosts", "a, b, c, d and 2 more")], (
        "an empty list says nothing"
    )


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


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("short", "short"),
        ("a\nb", r"a\nb"),
        ("n" * 400, "n" * 400),
        (f"kernel {'k' * 1000} is slow", f"kernel {'k' * 133}…{'k' * 266} is slow"),
    ],
)
def test_text_for_people_loses_the_middle_of_long_names(text: str, shown: str) -> None:
    assert for_people(text) == shown


def test_text_for_people_is_never_long() -> None:
    assert len(for_people("a word " * 100_000)) == 4000
