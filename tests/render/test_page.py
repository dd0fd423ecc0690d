"""The HTML page as text: what is in it, what is escaped, what it may load, how large it is.

tests/browser looks at it as a browser does.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfperf.render import guess_format, render
from tfperf.render.page.chart_data import MOST_BARS, MOST_STEPS, chart_data, chart_words, table_chart
from tfperf.render.page.page import LIMIT_BYTES
from tfperf.render.page.table_data import fit
from tfperf.render.text import brief
from tfperf.report.model import (
    BarChart,
    Chart,
    Column,
    Fact,
    Finding,
    GroupedBars,
    Report,
    Section,
    Sparkline,
    StepChart,
    Table,
)
from tfperf.units import Unit

ECHARTS_SHA256 = "61f13280aba3161f77fc801bf5f9c786f55f10432153a0683fc5cc0700b013d5"
NAMED = (Column("name", "Name"), Column("self_ms", "Self", "ms"), Column("size", "Size", "bytes", compact=False))


def table_of(names: Sequence[Any], times: Sequence[Any], sizes: Sequence[Any] = (), **more: Any) -> Table:
    data: dict[str, Sequence[Any]] = {"name": names, "self_ms": times, "size": sizes or [None] * len(names)}
    return Table("ops", "Ops", NAMED, data, len(names), **more)


def page_of(*parts: Section) -> str:
    return render(Report({"run": "night"}, {}, parts), "html")


def islands(page: str) -> list[dict[str, Any]]:
    found = re.findall(r'class="island">([^<]*)<', page)
    return [json.loads(gzip.decompress(base64.b64decode(data))) for data in found]


class Tags(HTMLParser):
    """Collects what a browser would make of the page, its scripts left out."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(re.sub(r"(<script>).*?(</script>)", r"\1\2", page, flags=re.DOTALL))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "br"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, f"{tag} closes something else"

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts.setdefault(self._open[-1], []).append(data)


def test_the_verdict_is_said_in_words_before_all_else() -> None:
    finding = Finding("input", "problem", "Waits for input.", "prefetch")
    first = Section("overview", "Overview", (finding,), (Fact("step", "Step time", 15.94, "ms", "± 1 ms"),))
    page = page_of(first, Section("gaps", "Gaps", notes=("No device.",)))
    main = page[page.index("<main") :]
    assert main.index('class="verdict problem"') < main.index("Step time")
    assert '<p class="severity">Problem</p><p>Waits for input.</p>' in main
    assert "<b>Try:</b> prefetch" in main
    assert "<dt>Step time</dt><dd>15.9 ms <small>± 1 ms</small></dd>" in main
    assert '<a href="#section-0">Overview <span class="badge">1<span class="unseen"> problem</span></span></a>' in page
    assert "<title>night: tfperf report</title>" in page


def test_the_policy_allows_the_scripts_and_the_style_of_the_page_and_nothing_else() -> None:
    page = page_of(Section("s", "S", tables=(table_of(["a"], [1.0]),)))
    tags = Tags(page)
    scripts = [attributes for tag, attributes in tags.tags if tag == "script"]
    assert [own for own in scripts if own.get("src")] == []
    assert [own.get("type") for own in scripts] == ["text/plain", "application/json", None, None]
    policy = next(own["content"] for tag, own in tags.tags if tag == "meta" and "http-equiv" in own)
    assert policy is not None
    allowed = dict(part.split(" ", 1) for part in policy.split("; "))
    assert {key: allowed[key] for key in ("default-src", "base-uri", "form-action")} == dict.fromkeys(
        ("default-src", "base-uri", "form-action"), "'none'"
    )
    run = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    style = re.findall(r"<style>(.*?)</style>", page, flags=re.DOTALL)
    assert allowed["script-src"].split() == [hash_of(text) for text in run]
    assert allowed["style-src"].split() == [hash_of(text) for text in style]
    assert "unsafe" not in policy


def hash_of(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_no_markup_has_a_style_a_handler_or_an_address() -> None:
    page = page_of(Section("s", "S", (Finding("f", "hint", "x"),), tables=(table_of(["a"] * 20, [1.0] * 20),)))
    for tag, attributes in Tags(page).tags:
        assert not [name for name in attributes if name == "style" or name.startswith("on")], tag
        assert (attributes.get("href") or "#").startswith("#")
        assert "src" not in attributes
    own = "".join(files("tfperf.render.page").joinpath(name).read_text("utf-8") for name in (
        "page.css", "page.js", "tables.js", "table_rows.js", "values.js", "charts.js"
    ))  # fmt: skip
    assert "http" not in own
    assert "innerHTML" not in own
    assert "url(" not in own


def test_the_chart_library_is_the_published_one_with_its_licences() -> None:
    folder = files("tfperf.render.page")
    assert hashlib.sha256(folder.joinpath("echarts.common.min.js").read_bytes()).hexdigest() == ECHARTS_SHA256
    assert "Apache License" in folder.joinpath("echarts.LICENSE").read_text("utf-8")
    assert "Apache Software Foundation" in folder.joinpath("echarts.NOTICE").read_text("utf-8")
    assert "Mike Bostock" in folder.joinpath("echarts.LICENSE-d3").read_text("utf-8")


HOSTILE = [
    "</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "\"' onclick='alert(1)", "<!--", "&lt;b&gt;",
    "\x1b[31m\x00\r\n", "\u202egnp.exe\u200f", "\udc80\ud800", "x" * 100_000, "日本語" * 50_000, "{policy}",
]  # fmt: skip


def everywhere(name: str) -> Report:
    """Return a report that has one text in every place where a text can be."""
    tree = Column("name", name, depth_key="depth", meaning=name)
    data: dict[str, list[Any]] = {"name": [name, name + "2"], "value": [2.0, 1.0], "depth": [0, 1]}
    table = Table(name, name, (tree, Column("value", name, "ms")), data, 9, name, "value")
    charts: tuple[Chart, ...] = (
        StepChart(name, (name, "2"), {name: [2.0, 1.0]}, (name, "")),
        GroupedBars(name, "ms", (name,), {name: (1.0,)}),
        Sparkline(name, (0.0, 1.0), (1.0, 2.0), 1.0, 2.0),
    )
    findings = (Finding(name, "problem", name, name), Finding(name, "info", name, name))
    section = Section(name, name, findings, (Fact(name, name, name, note=name),), charts, (table,), (name,))
    bars = Section(name, name, charts=(BarChart(name, "%", (name,), (1.0,)),))
    return Report({name: name, "list": [name] * 9}, {name: name}, (section, bars))


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: ascii(name[:12]))
def test_a_hostile_name_adds_no_tag_anywhere(name: str) -> None:
    page = render(everywhere(name), "html")
    tags = [tag for tag, _ in Tags(page).tags]
    assert tags == [tag for tag, _ in Tags(render(everywhere("name"), "html")).tags]
    assert len(page.encode()) < LIMIT_BYTES
    main = page.partition("<main")[2].partition('<script type="application/json"')[0]
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\ud800-\udfff]", main)


@given(st.text(st.characters(), min_size=1))
@settings(max_examples=30)
def test_any_name_keeps_the_tags_of_the_page(name: str) -> None:
    assert tags_of(everywhere(name)) == tags_of(everywhere("name"))


def tags_of(report: Report) -> list[str]:
    return [tag for tag, _ in Tags(render(report, "html")).tags]


def test_tables_travel_as_columns_with_texts_once() -> None:
    page = page_of(
        Section("s", "S", tables=(table_of(["a", "b", "a", None], [1.5, None, float("nan"), np.float32(2)]),))
    )
    (island,) = islands(page)
    assert island["depths"] is None
    assert island["columns"][0] == {
        "title": "Name", "unit": "", "compact": True, "tree": False, "kind": "text", "words": ["a", "b"],
        "at": [0, 1, 0, -1],
    }  # fmt: skip
    assert island["columns"][1]["title"] == "Self (ms)"
    assert island["columns"][1]["values"] == [1.5, None, None, 2.0]


def test_odd_columns_travel_as_what_people_see() -> None:
    columns = tuple(Column(key, key) for key in ("flag", "huge", "mixed", "nothing"))
    data: dict[str, list[Any]] = {
        "flag": [True, False],
        "huge": [2**64, 1],
        "mixed": ["a", 1.5],
        "nothing": [None, None],
    }
    (island,) = islands(page_of(Section("s", "S", tables=(Table("t", "T", columns, data, 2),))))
    assert [column.get("words") for column in island["columns"]] == [
        ["yes", "no"], ["18446744073709551616", "1"], ["a", "1.5"], [],
    ]  # fmt: skip


def test_short_tables_keep_all_digits_and_long_ones_six() -> None:
    for rows, expected in ((10, 1.23456789), (3_000, 1.23457)):
        (island,) = islands(page_of(Section("s", "S", tables=(table_of(["a"] * rows, [1.23456789] * rows),))))
        assert island["columns"][1]["values"][0] == expected


def test_the_first_rows_need_no_script() -> None:
    page = page_of(Section("s", "S", tables=(table_of([f"op{n}" for n in range(12)], list(range(12))),)))
    assert re.findall(r"<td>(op\d+)</td>", page) == [f"op{n}" for n in range(10)]
    assert "The first 10 of 12 rows; with JavaScript, the page shows all." in page
    assert "No rows." in page_of(Section("s", "S", tables=(table_of([], []),)))


def test_what_does_not_fit_is_cut_from_the_largest_table_and_said() -> None:
    words = [hashlib.sha512(str(n).encode()).hexdigest() for n in range(60_000)]
    small, large = table_of(words[:50], range(50)), table_of(words, range(60_000), range(60_000))
    page = page_of(Section("s", "S", tables=(small, large)))
    assert len(page.encode()) <= LIMIT_BYTES
    first, second = islands(page)
    kept = len(second["columns"][0]["at"])
    assert len(first["columns"][0]["at"]) == 50
    assert 20_000 < kept < 60_000
    assert f"To stay below 5 MB, this page holds {kept:,} of 60,000 rows; tfperf export-csv writes all." in page
    assert "this page has the main columns only" in page
    assert [column["title"] for column in second["columns"]] == ["Name", "Self (ms)"]


def test_hidden_columns_go_before_rows() -> None:
    noise = [float(value) for value in np.random.default_rng(1).random(1_000)]
    table = table_of(["a"] * 1_000, [1.0] * 1_000, noise)
    (whole,) = fit([table], 10**6)
    (fitted,) = fit([table], len(whole.data) // 2)
    assert whole.all_columns
    assert not fitted.all_columns
    assert len(fitted.table) == 1_000
    assert not len(fit([table], 0)[0].table)


def test_sections_that_leave_no_room_are_named() -> None:
    sections = [Section(f"s{n}", "S", notes=("x" * 2_000,) * 200) for n in range(15)]
    page = page_of(*sections)
    assert len(page.encode()) <= LIMIT_BYTES
    found = re.search(r"(\d+) more sections are not in this page, which stays below 5 MB; JSON has them: s(\d+),", page)
    assert found is not None
    assert int(found[1]) + int(found[2]) == 15


def test_a_long_text_keeps_both_ends() -> None:
    assert brief("a" * 20 + "b" * 20, 10) == "aaa…bbbbbb"
    assert brief("a" * 10, 10) == "a" * 10


# --- charts ---


def test_bars_of_a_table_are_named_by_the_column_that_tells_rows_apart() -> None:
    columns = (
        Column("rank", "#", "count"),
        Column("type", "Type"),
        Column("name", "Name"),
        Column("share", "Share", "%"),
    )
    data: dict[str, list[Any]] = {
        "rank": [1, 2, 3],
        "type": ["Add", "Add", "Mul"],
        "name": ["a", "b", "c"],
        "share": [50.0, 30.0, None],
    }
    table = Table("ops", "Ops", columns, data, 3, bar_key="share")
    assert table_chart(table) == BarChart("Bars: Share", "%", ("a", "b"), (50.0, 30.0))
    assert table_chart(Table("ops", "Ops", columns, data, 3)) is None
    assert table_chart(table.head(1)) is None


def test_bars_of_a_long_table_are_its_first_rows() -> None:
    chart = table_chart(table_of([f"op{n}" for n in range(40)], [float(40 - n) for n in range(40)], bar_key="self_ms"))
    assert chart is not None
    assert len(chart.labels) == MOST_BARS
    assert chart.title == "Bars: Self of the first 15 of 40 rows"
    assert chart_words(chart) == "op0 40.0 ms, op1 39.0 ms, op2 38.0 ms, op3 37.0 ms, op4 36.0 ms, and 10 more."


def test_steps_in_words() -> None:
    series = {"Input": [6.0, 2.0, 90.0], "Device compute": [6.0, 6.0, 10.0]}
    assert chart_words(StepChart("Steps", ("7", "8", "9"), series, ("", "", "retrace"))) == (
        "2 of 3 steps without a flag: the shortest takes 8.00 ms (step 8), the longest 12.0 ms (step 7). "
        "Of their time: Device compute 60.0%, Input 40.0%. Cut at 14 ms: 100.0 ms (step 9)."
    )
    assert chart_words(StepChart("Steps", ("7",), {"Input": [3.0]}, ("",))) == (
        "1 step: it takes 3.00 ms (step 7). Of its time: Input 100.0%."
    )
    assert chart_words(StepChart("Steps", (), {}, ())) == "No steps."


def test_of_very_many_steps_the_longest_of_each_few_is_drawn() -> None:
    count = 2 * MOST_STEPS
    times = [1.0] * count
    times[7] = 50.0
    chart = StepChart("Steps", tuple(map(str, range(count))), {"Input": times}, ("",) * count)
    data = chart_data(chart)
    assert len(data["labels"]) == MOST_STEPS
    assert data["labels"][3] == "7"
    assert data["series"][0]["values"][3] == 50.0
    assert chart_words(chart).endswith("Of every 2 steps in a row, the longest is drawn.")


def test_a_long_line_keeps_its_peak_and_both_ends() -> None:
    values = [1.0] * 50_000
    values[12_345] = 9.0
    data = chart_data(Sparkline("Memory", tuple(map(float, range(50_000))), tuple(values), 1.0, 9.0))
    assert len(data["times"]) < 5_000
    assert (data["times"][0], data["times"][-1], max(data["values"])) == (0.0, 49_999.0, 9.0)


@pytest.mark.parametrize(("unit", "expected"), [("%", "a: x 1.0%, y -; b: x 3.0%, y 4.0%."),
                                                ("count", "a: x 1, y -; b: x 3, y 4.")])  # fmt: skip
def test_groups_in_words(unit: Unit, expected: str) -> None:
    assert chart_words(GroupedBars("", unit, ("x", "y"), {"a": (1.0, None), "b": (3.0, 4.0)})) == expected


def test_charts_without_anything_known() -> None:
    nan = float("nan")
    for chart in (
        StepChart("", ("1",), {"Input": [nan]}, ("",)), StepChart("", ("1",), {}, ()), BarChart("", "ms", (), ()),
        GroupedBars("", "ms", (), {}), GroupedBars("", "ms", ("a",), {}), Sparkline("", (), (), 0.0, 0.0),
        Sparkline("", (nan,), (nan,), nan, nan),
    ):  # fmt: skip
        assert chart_words(chart)
        json.dumps(chart_data(chart), allow_nan=False)


def test_the_suffix_asks_for_a_page() -> None:
    assert guess_format(Path("report.html")) == guess_format(Path("R.HTM")) == "html"
