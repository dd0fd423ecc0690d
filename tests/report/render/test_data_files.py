"""The JSON document: strict, complete, safe inside a page."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tfperf.report.model import FORMAT_VERSION, Column, Fact, Finding, Quantity, Report, Section, Table
from tfperf.report.render import RenderOptions, render
from tfperf.report.render.data_files import csv_files, table_csv

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
                        "url": "",
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


# --- CSV ---


CSV_COLUMNS = (Column("name", "Name", str), Column("self_ms", "Self", float, "ms", level="data"))


def table(names: list[Any], times: Any, *, name: str = "ops") -> Table:
    """Return a table of names and times."""
    return Table(name, "Operations", CSV_COLUMNS, {"name": names, "self_ms": times}, total_rows=len(names))


def report_with(*tables: Table) -> Report:
    """Return a report with one section per table."""
    return Report({}, {}, tuple(Section(f"s{number}", "S", tables=(each,)) for number, each in enumerate(tables)))


def read(text: str) -> list[list[str]]:
    """Return the fields of CSV text."""
    return list(csv.reader(io.StringIO(text, newline="")))


def test_keys_head_the_columns_and_numbers_keep_all_digits() -> None:
    written = table_csv(table(["a", "b", "c"], [1 / 3, np.float64(1e-7), np.int64(12345678)]))
    assert written == "name,self_ms\r\na,0.3333333333333333\r\nb,1e-07\r\nc,12345678\r\n"


def test_unknown_is_empty_and_truth_is_lower_case() -> None:
    assert table_csv(table([None, True, np.bool_(False)], [None, float("nan"), np.inf])) == (
        "name,self_ms\r\n,\r\ntrue,\r\nfalse,\r\n"
    )


def test_quotes_commas_and_line_ends_are_quoted() -> None:
    names = ['say "hi"', "a,b", "two\r\nlines", "lone\rreturn", "=1+1", "@x", "-3", "\tx"]
    written = table_csv(table(names, [0] * 8))
    assert '"say ""hi""",0\r\n"a,b",0\r\n"two\r\nlines",0\r\n' in written
    assert [row[0] for row in read(written)[1:]] == names


def test_for_spreadsheets_no_name_is_a_formula() -> None:
    names = ["=cmd()", "+1", "-3", "@SUM(A1)", "\t=1", "\r=1", "gemm", "a=b", "'x"]
    written = read(table_csv(table(names, [-1.5] * len(names)), for_spreadsheets=True))[1:]
    assert [name for name, _ in written] == [f"'{name}" for name in names[:6]] + names[6:]
    assert {value for _, value in written} == {"-1.5"}, "numbers stay"


def test_one_table_stands_alone_and_several_are_named() -> None:
    ops, kernels = table(["a"], [1]), table(["b"], [2], name="kernels")
    assert render(report_with(ops), "csv") == "name,self_ms\r\na,1\r\n"
    assert render(report_with(ops, kernels), "csv") == (
        "# ops\r\nname,self_ms\r\na,1\r\n\r\n# kernels\r\nname,self_ms\r\nb,2\r\n"
    )


def test_an_empty_table_keeps_its_header_and_an_empty_report_says_so() -> None:
    assert render(report_with(table([], [])), "csv") == "name,self_ms\r\n"
    assert render(Report({}, {}), "csv") == "# this report has no tables\r\n"


def test_a_terminal_sees_escapes_where_a_file_gets_the_name() -> None:
    report = report_with(table(["\x1b[31m\n"], [1]))
    assert render(report, "csv") == 'name,self_ms\r\n"\x1b[31m\n",1\r\n'
    assert render(report, "csv", RenderOptions(interactive=True)) == 'name,self_ms\n"\\x1b[31m\\n",1\n'


def test_nul_which_readers_refuse_is_shown_as_unknown() -> None:
    assert render(report_with(table(["a\0b"], [1])), "csv") == "name,self_ms\r\na\ufffdb,1\r\n"


def test_every_table_gets_a_file_of_its_own() -> None:
    files = csv_files(report_with(table(["a"], [1]), table(["b"], [2]), table(["c"], [3], name="kernels")))
    assert list(files) == ["ops.csv", "s1_ops.csv", "kernels.csv"]
    assert read(files["s1_ops.csv"])[1] == ["b", "2"]


@given(
    st.lists(
        st.tuples(st.text(st.characters(exclude_characters="\0")), st.floats(allow_nan=False, allow_infinity=False))
    )
)
def test_csv_values_come_back_as_they_were(rows: list[tuple[str, float]]) -> None:
    written = table_csv(table([row[0] for row in rows], [row[1] for row in rows]))
    assert [(name, float(time)) for name, time in read(written)[1:]] == rows
