"""What people and programs see of an answer."""

from __future__ import annotations

import csv
import datetime
import io
import json
from typing import Any

from tfperf.export.query.answer_report import answer_report
from tfperf.export.query.engine import Answer
from tfperf.report.model import Report
from tfperf.report.render import render

RUN = {"run": "run", "folder": "folder", "hosts": []}


def answer(**columns: list[Any]) -> Answer:
    return Answer(tuple(columns), tuple(columns.values()))


def report_of(answer: Answer, **options: Any) -> Report:
    return answer_report(answer, "select 1", RUN, **options)


def lines_of(answer: Answer, **options: Any) -> list[str]:
    """The lines that the terminal shows below the title."""
    lines = render(report_of(answer, width=80, **options), "table").splitlines()
    return lines[lines.index("Result") + 1 :]


def test_an_answer_is_a_table() -> None:
    assert lines_of(answer(name=["a", "b"], total_us=[1234.5, None], n=[2, 10])) == [
        "name  total (us)   n",
        "----  ----------  --",
        "a           1234   2",
        "b              -  10",
    ]
    assert lines_of(answer(name=[])) == ["no rows"]


def test_large_fractions_are_whole_for_people() -> None:
    assert lines_of(answer(sum_of_ps=[12345678.9]))[2] == "12,345,679"
    assert lines_of(answer(event=[12345678]))[2] == "12345678"


def test_a_row_too_wide_becomes_a_block_with_every_value() -> None:
    wide = {f"column_number_{number}": [number, 1.5] for number in range(8)}
    lines = lines_of(Answer((*wide,), tuple(value[:1] for value in wide.values()), is_cut=True))
    assert lines[0].split() == ["row", "column", "value"]
    assert lines[2].split() == ["1", "column_number_0", "0"]
    assert lines[9].split() == ["column_number_7", "7"]
    assert lines[10:] == ["the first 1 row; --top omits the others"]
    assert max(map(len, lines)) <= 80


def test_a_cut_answer_says_so() -> None:
    cut = Answer(("n",), ([1, 2],), is_cut=True)
    assert lines_of(cut)[-1] == "the first 2 rows; --top omits the others"
    assert report_of(cut).summary["row_count"] is None
    assert report_of(answer(n=[1, 2, 3])).summary["row_count"] == 3


def test_control_characters_are_shown_and_not_sent() -> None:
    lines = lines_of(Answer(("na\x1bme", "list"), (["\x1b[31mred\nline"], [["\x1b", 1]])))
    assert "\x1b" not in "".join(lines)
    assert "\\x1b[31mred\\nline" in lines[2]


def odd_values() -> Answer:
    return answer(
        whole=[2**64 + 1],
        real=[float("nan")],
        none=[None],
        text=['a,"b"\n'],
        yes=[True],
        many=[[1, None]],
        struct=[{"a": 0.5}],
        day=[datetime.date(2026, 1, 2)],
        span=[datetime.timedelta(seconds=90)],
    )


def test_json_has_all_values() -> None:
    document = json.loads(render(report_of(odd_values()), "json"))
    assert document["format"] == 1
    assert document["summary"] == {"sql": "select 1", "row_count": 1}
    (row,) = document["sections"]["query"]["tables"]["result"]["rows"]
    assert row == {
        "whole": 2**64 + 1,
        "real": None,
        "none": None,
        "text": 'a,"b"\n',
        "yes": True,
        "many": [1, None],
        "struct": {"a": 0.5},
        "day": "2026-01-02",
        "span": "0:01:30",
    }


def test_csv_is_the_answer_and_nothing_else() -> None:
    head, row = csv.reader(io.StringIO(render(report_of(odd_values()), "csv")))
    assert head == ["whole", "real", "none", "text", "yes", "many", "struct", "day", "span"]
    assert row[:5] == ["18446744073709551617", "", "", 'a,"b"\n', "true"]
    assert row[5:] == ["[1, None]", "{'a': 0.5}", "2026-01-02", "0:01:30"]


def test_units_are_those_in_which_names_end() -> None:
    (table,) = report_of(answer(a_ms=[1.0], b_us=[2], c_percent=[None], d_ms=["text"], e=[1])).tables()
    units = {column.key: column.unit for column in table.columns}
    assert units == {"a_ms": "ms", "b_us": "us", "c_percent": "%", "d_ms": "", "e": ""}


def test_columns_have_the_type_of_their_values() -> None:
    (table,) = report_of(answer(a=[1, None], b=[1, 2.5], c=[True], d=["x"], e=[None], f=[[1]])).tables()
    types = {column.key: column.dtype for column in table.columns}
    assert types == {"a": int, "b": float, "c": bool, "d": str, "e": str, "f": str}
