"""The JSON document: strict, complete, safe inside a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tfperf.report.model import FORMAT_VERSION, Column, Fact, Finding, Quantity, Report, Section, Table
from tfperf.report.render import render

COLUMNS = (Column("name", "Name", str), Column("self_us", "Self", float, "us", "time in the op itself", level="data"))


def parsed(report: Report) -> Any:
    """Return the document, read the strict way: NaN and Infinity are refused."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    return json.loads(render(report, "json"), parse_constant=refuse)


def report_of(data: dict[str, Any]) -> Report:
    """Return a report with one table `ops` in one section `ops`."""
    table = Table("ops", "Operations", COLUMNS, data, total_rows=37, note="cut")
    return Report({}, {}, (Section("ops", "Ops", tables=(table,)),))


def test_the_whole_document() -> None:
    section = Section(
        "ops",
        "Ops",
        findings=(
            Finding(
                "slow",
                "hint",
                "MatMul is slow.",
                "use float16",
                causes=("a_cause",),
                quantities=(Quantity("share", 5.0, of="step"),),
            ),
        ),
        facts=(Fact("step_ms", "Average step", 15.9, "ms", "over 2 steps"),),
        tables=(Table("ops", "Operations", COLUMNS, {"name": ["a"], "self_us": [1.25]}, total_rows=37),),
        notes=("no device",),
    )
    document = parsed(Report({"hosts": ["h0"], "run": None}, {"input_percent": 63.4}, (section,)))
    assert isinstance(document.pop("tfperf_version"), str)
    assert document == {
        "format": FORMAT_VERSION,
        "source": {"hosts": ["h0"], "run": None},
        "summary": {"input_percent": 63.4},
        "sections": {
            "ops": {
                "title": "Ops",
                "findings": [
                    {
                        "code": "slow",
                        "severity": "hint",
                        "text": "MatMul is slow.",
                        "action": "use float16",
                        "causes": ["a_cause"],
                        "quantities": [{"key": "share", "of": "step", "value": 5.0, "unit": "%"}],
                    }
                ],
                "facts": {"step_ms": {"value": 15.9, "unit": "ms", "title": "Average step", "note": "over 2 steps"}},
                "tables": {
                    "ops": {
                        "title": "Operations",
                        "total_rows": 37,
                        "note": "",
                        "columns": [
                            {"key": "name", "title": "Name", "unit": "", "meaning": ""},
                            {"key": "self_us", "title": "Self", "unit": "us", "meaning": "time in the op itself"},
                        ],
                        "rows": [{"name": "a", "self_us": 1.25}],
                    }
                },
                "notes": ["no device"],
            }
        },
    }


def test_an_empty_report_is_a_document_too() -> None:
    assert parsed(Report({}, {}))["sections"] == {}


def test_numpy_values_become_plain_and_what_is_not_a_number_null() -> None:
    summary = {
        "i": np.int64(3),
        "f": np.float32(0.5),
        "b": np.bool_(True),
        "a": np.arange(3),
        "n": np.nan,
        "p": Path("x"),
    }
    assert parsed(Report({}, summary))["summary"] == {"i": 3, "f": 0.5, "b": True, "a": [0, 1, 2], "n": None, "p": "x"}
    rows = parsed(report_of({"name": ["a", "b"], "self_us": np.array([np.inf, 2.5])}))["sections"]["ops"]["tables"][
        "ops"
    ]["rows"]
    assert rows == [{"name": "a", "self_us": None}, {"name": "b", "self_us": 2.5}]


def test_the_text_can_stand_inside_a_script_element() -> None:
    names = ["</script><script>alert(1)</script>", "<!--", "\u2028\u2029", "\x9b31m\x7f", "\u202e"]
    text = render(report_of({"name": names, "self_us": [0] * 5}), "json")
    assert not any(part in text for part in ["</", "<!--", "\u2028", "\u2029", "\x9b", "\x7f", "\u202e"])
    rows = json.loads(text)["sections"]["ops"]["tables"]["ops"]["rows"]
    assert [row["name"] for row in rows] == names


def test_lone_surrogates_do_not_break_the_file() -> None:
    text = render(Report({"\ud800": "\udfff"}, {}), "json")
    text.encode("utf-8")
    assert json.loads(text)["source"] == {"\ufffd": "\ufffd"}


@given(st.lists(st.tuples(st.text(), st.none() | st.integers() | st.floats(allow_nan=False, allow_infinity=False))))
def test_values_come_back_as_they_were(rows: list[tuple[str, float | None]]) -> None:
    report = report_of({"name": [row[0] for row in rows], "self_us": [row[1] for row in rows]})
    written = parsed(report)["sections"]["ops"]["tables"]["ops"]["rows"]
    assert [(row["name"], row["self_us"]) for row in written] == rows


@given(st.text(st.characters()))
def test_the_document_is_printable_but_for_its_newlines(name: str) -> None:
    text = render(report_of({"name": [name], "self_us": [0]}), "json")
    assert not any(char in text for char in map(chr, [*range(10), *range(11, 32), *range(127, 160)]))
    text.encode("utf-8")
