"""Values as HTML: complete, cut with a count, with units, and inert whatever names they hold."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from builders import event, host, line, logdir_of, plane, space

import tfperf
from tfperf.analysis.registry import section_names
from tfperf.notebook.values import MOST_ROWS, bars_of, cells_of, html_of
from tfperf.report.model import BarChart, Column, Table, table_of

HOSTILE = "</table><script>alert(1)</script><img src=x onerror=alert(2)>\u202e$x$\" data-x='"


class Reader(HTMLParser):
    """The tags of an output, and its text without style and script."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.cells: list[str] = []
        self.text = ""
        self._hidden = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        self._hidden = tag in ("script", "style")
        if tag == "td":
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        self._hidden = False

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.text += data
            if self.cells and self.tags[-1] != "th":
                self.cells[-1] += data


def numbers(rows: int) -> Table:
    columns = (Column("name", "Name", str), Column("time_ms", "Time", float, "ms"), Column("x", "X", int, level="data"))
    return table_of("t", "Times", columns, {"name": ["a"] * rows, "time_ms": [1.5] * rows, "x": [0] * rows})


def test_an_analysis_shows_headline_categories_and_causes(samples: Path) -> None:
    html = tfperf.load(samples / "input_bound")._repr_html_()
    shown = Reader(html)
    for text in ("19 steps of 19.4 ms", "Waiting for tf.data takes 64.4%", "Try:", "Where the step time goes", "28.5%"):
        assert text in shown.text
    assert len(html) < 20_000
    assert "More: tfperf" not in shown.text


def test_only_the_overview_shows_where_nothing_else_was_analyzed(samples: Path) -> None:
    shown = Reader(tfperf.load(samples / "input_bound", sections=["overview"])._repr_html_())
    assert "64.4%" in shown.text


def test_damage_stands_first(tmp_path: Path) -> None:
    steps = [event("train", 100 * n, 90, step_num=n) for n in range(5)]
    job = space(host(*steps), host(*steps))
    analysis = tfperf.load(logdir_of(tmp_path, a=job))
    assert analysis.flaws
    shown = Reader(analysis._repr_html_())
    assert "damaged" in shown.text.split("Try:")[0]


def test_tables_have_units_and_raw_numbers_to_sort_by() -> None:
    html = html_of(numbers(2))
    shown = Reader(html)
    assert "Time (ms)" in shown.text
    assert shown.cells[1].strip() == "1.50"
    assert 'data-key="1.5"' in html
    assert "X" not in re.sub("<script.*", "", shown.text)


def test_long_tables_are_cut_and_say_so() -> None:
    long = Reader(html_of(numbers(MOST_ROWS + 1_000)))
    assert long.tags.count("td") == 2 * MOST_ROWS
    assert f"The first {MOST_ROWS} of {MOST_ROWS + 1_000:,} rows; .table has all." in long.text
    assert "rows;" not in Reader(html_of(numbers(MOST_ROWS))).text
    assert "no rows" in Reader(html_of(numbers(0))).text


def test_unknown_has_no_key_to_sort_by() -> None:
    columns = Column("a", "A", float, "ms"), Column("b", "B", bool)
    (row,) = cells_of(table_of("t", "T", columns, {"a": [None], "b": [True]}))
    assert [(cell.text, cell.key) for cell in row] == [("-", None), ("yes", 1)]


def test_bars_are_shares_of_the_longest() -> None:
    bars = bars_of(BarChart("B", "%", ("a", "b", "c"), (50.0, 25.0, None)))
    assert [(bar.text, bar.share) for bar in bars] == [("50.0%", 100.0), ("25.0%", 50.0), ("-", 0.0)]


@pytest.mark.parametrize("name", [name for name in section_names() if name != "gaps"])
def test_every_section_has_html(name: str, samples: Path) -> None:
    analysis = tfperf.load(samples / "retracing", sections=[name])
    for value in (analysis[name], analysis.report([name]), analysis.report([name]).sections[0]):
        assert Reader(value._repr_html_()).tags[0] == "div"


def test_what_has_no_table_shows_its_fields() -> None:
    column = Column("time_ms", "Time", float, "ms", "how long")
    shown = Reader(column._repr_html_())
    assert all(text in shown.text for text in ("Column", "time_ms", "how long"))
    captured = tfperf.Captured(worker="w:1", message="refused")
    assert "w:1" in Reader(captured._repr_html_()).text
    assert "refused" in Reader(tfperf.Sampled(Path("logs"), (captured,))._repr_html_()).text


def test_a_gate_shows_its_limits(samples: Path) -> None:
    shown = Reader(tfperf.check(samples / "input_bound", max_input_bound="10%")._repr_html_())
    assert "BREACHED" in shown.text
    assert "max-input-bound 10%" in shown.text


def test_hostile_names_are_inert(tmp_path: Path) -> None:
    """Nothing that a profile holds becomes a tag or an attribute, in any section."""
    steps = [event("train", 100 * n, 90, step_num=n) for n in range(5)]
    ops = [event(f"{HOSTILE}:{HOSTILE}", 100 * n + 5, 50) for n in range(5)]
    kernels = [event(HOSTILE, 100 * n + 10, 40, tf_op=HOSTILE) for n in range(5)]
    gpu = plane("/device:GPU:0", line("Stream #1", *kernels))
    harmless = tfperf.load(logdir_of(tmp_path / "a", a=space(host(*steps))))
    analysis = tfperf.load(logdir_of(tmp_path / "b", a=space(host(*steps, *ops), gpu)))
    report = analysis.report()
    tags, attributes = set(), set()
    for value in (harmless, harmless.report(), harmless["ops"]):
        tags |= {*Reader(value._repr_html_()).tags}
        attributes |= Reader(value._repr_html_()).attributes
    hostile = [analysis, report, *report.sections, *report.tables(), *(analysis[name] for name in ("ops", "kernels"))]
    found = [Reader(value._repr_html_()) for value in hostile]
    assert any("alert(1)" in shown.text for shown in found)
    assert {tag for shown in found for tag in shown.tags} <= tags | {"br", "small", "code", "details", "summary"}
    assert {name for shown in found for name in shown.attributes} <= attributes | {"data-key", "class", "open", "style"}
    assert all(shown.tags.count("script") == 1 and "\u202e" not in shown.text for shown in found)
