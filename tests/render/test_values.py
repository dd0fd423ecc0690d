"""Single values as people read them, and as JSON and CSV hold them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tfperf.render.values import cell_text, cut_note, fact_text, plain, source_facts, text_table
from tfperf.report.model import Column, Fact, Report, Table


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
        (1234.56, "count", "1,234.6"),
        (2**64 - 1, "", "18446744073709551615"),
        (0.123456789, "", "0.123457"),
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
    ("fact", "shown"),
    [
        (Fact("a", "A", 15.94, "ms"), "15.9 ms"),
        (Fact("a", "A", 63.42, "%"), "63.4%"),
        (Fact("a", "A", 21, "count"), "21"),
        (Fact("a", "A", None, "ms"), "-"),
        (Fact("a", "A", "markers"), "markers"),
    ],
)
def test_a_fact_carries_its_unit(fact: Fact, shown: str) -> None:
    assert fact_text(fact) == shown


def test_plain_values_have_plain_types() -> None:
    values = [np.float64(1.5), np.int64(3), np.bool_(True), np.str_("x"), None, float("-inf"), 7, True]
    assert [plain(value) for value in values] == [1.5, 3, True, "x", None, None, 7, True]
    assert [type(plain(value)) for value in values[:4]] == [float, int, bool, str]


def test_a_text_table_leaves_wide_columns_out_and_knows_its_numbers() -> None:
    columns = (
        Column("name", "Name", str),
        Column("id", "Id", str),
        Column("ms", "Self", float, "ms"),
        Column("us", "Us", str, level="data"),
    )
    data: dict[str, list[Any]] = {"name": ["a", None], "id": [7, None], "ms": [None, None], "us": [1, 2]}
    texts = text_table(Table("t", "T", columns, data, total_rows=2))
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
    table = Table("t", "T", (Column("a", title, str, unit),), {"a": [1]}, total_rows=1)
    assert text_table(table).headers == (header,)


def test_truth_values_are_text_and_not_numbers() -> None:
    table = Table("t", "T", (Column("eager", "Eager", str),), {"eager": [True, np.bool_(False)]}, total_rows=2)
    assert text_table(table).rows == (("yes",), ("no",))
    assert text_table(table).numeric == (False,)


def test_a_cut_table_says_how_to_see_all() -> None:
    table = Table("t", "T", (Column("n", "N", str),), {"n": list(range(10))}, total_rows=37)
    assert cut_note(table) == "showing 10 of 37; --top 37 shows all"
    assert cut_note(Table("t", "T", (Column("n", "N", str),), {"n": [1]}, total_rows=1)) == ""


def test_what_was_read_is_shown_in_words() -> None:
    hosts = ["a", "b", "c", "d", "e", "f"]
    facts = source_facts(Report({"run_name": "r1", "hosts": hosts, "files": {"a": 1}, "skipped": []}, {}))
    assert [(fact.title, fact.value) for fact in facts] == [
        ("Run name", "r1"),
        ("Hosts", "a, b, c, d and 2 more"),
        ("Skipped", None),
    ]
