"""CSV: RFC 4180, raw values, one block per table."""

from __future__ import annotations

import csv
import io
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tfperf.report.model import Column, Report, Section, Table
from tfperf.report.render import RenderOptions, render
from tfperf.report.render.data_files import csv_files, table_csv

COLUMNS = (Column("name", "Name", str), Column("self_ms", "Self", float, "ms", level="data"))


def table(names: list[Any], times: Any, *, name: str = "ops") -> Table:
    """Return a table of names and times."""
    return Table(name, "Operations", COLUMNS, {"name": names, "self_ms": times}, total_rows=len(names))


def report_of(*tables: Table) -> Report:
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
    assert render(report_of(ops), "csv") == "name,self_ms\r\na,1\r\n"
    assert render(report_of(ops, kernels), "csv") == (
        "# ops\r\nname,self_ms\r\na,1\r\n\r\n# kernels\r\nname,self_ms\r\nb,2\r\n"
    )


def test_an_empty_table_keeps_its_header_and_an_empty_report_says_so() -> None:
    assert render(report_of(table([], [])), "csv") == "name,self_ms\r\n"
    assert render(Report({}, {}), "csv") == "# this report has no tables\r\n"


def test_a_terminal_sees_escapes_where_a_file_gets_the_name() -> None:
    report = report_of(table(["\x1b[31m\n"], [1]))
    assert render(report, "csv") == 'name,self_ms\r\n"\x1b[31m\n",1\r\n'
    assert render(report, "csv", RenderOptions(interactive=True)) == 'name,self_ms\n"\\x1b[31m\\n",1\n'


def test_nul_which_readers_refuse_is_shown_as_unknown() -> None:
    assert render(report_of(table(["a\0b"], [1])), "csv") == "name,self_ms\r\na\ufffdb,1\r\n"


def test_every_table_gets_a_file_of_its_own() -> None:
    files = csv_files(report_of(table(["a"], [1]), table(["b"], [2]), table(["c"], [3], name="kernels")))
    assert list(files) == ["ops.csv", "s1_ops.csv", "kernels.csv"]
    assert read(files["s1_ops.csv"])[1] == ["b", "2"]


@given(
    st.lists(
        st.tuples(st.text(st.characters(exclude_characters="\0")), st.floats(allow_nan=False, allow_infinity=False))
    )
)
def test_values_come_back_as_they_were(rows: list[tuple[str, float]]) -> None:
    written = table_csv(table([row[0] for row in rows], [row[1] for row in rows]))
    assert [(name, float(time)) for name, time in read(written)[1:]] == rows
