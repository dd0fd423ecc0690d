"""Values as HTML for a notebook: complete without scripts, and inert whatever names a profile holds.

Every text is made safe, cut and escaped by the template engine, without the template asking for it. The script that
sorts tables is in the output beside them; where a notebook runs none, tables stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, singledispatch
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup
from msgspec.structs import replace

from tfperf.analysis.registry import LEADS
from tfperf.analysis.results import Results
from tfperf.analysis.tabular import HasTable
from tfperf.base.display import Shown
from tfperf.judge.gate.outcome import Outcome
from tfperf.judge.gate.outcome_report import check_report
from tfperf.live.sampling.result import Sampled
from tfperf.report.model import BarChart, Chart, Level, Report, Section, Table
from tfperf.report.render.html_templates import engine
from tfperf.report.render.text_table import LINES, text_table
from tfperf.report.render.values import brief, measure_text, plain
from tfperf.report.shown import Detail, shown

if TYPE_CHECKING:
    from jinja2 import Environment
    from jinja2.environment import TemplateModule

    from tfperf.analysis.load import Analysis

MOST_ROWS = 100
"""Rows of a table that an output holds; the DataFrame has all."""
_LONGEST_TEXT = 2_000
_LONGEST_CELL = 120


class Cell(NamedTuple):
    """What a table shows, and by what it is sorted: a number, a text, or nothing where the value is unknown."""

    text: str
    key: float | int | str | None
    is_number: bool


class Bar(NamedTuple):
    """A bar of a chart, `share` percent of the longest."""

    label: str
    text: str
    share: float


def html_of(value: Shown) -> str:
    """Return a value as HTML, with the style and the script of its tables."""
    style, script = _style_and_script()
    return _macros().page(_html(value), style, script)  # type: ignore[no-any-return,attr-defined]


@singledispatch
def _html(value: Any) -> Markup:
    """Return the fields of a value, those that hold something."""
    names: Sequence[str] = getattr(value, "__struct_fields__", ())
    fields = [(name, getattr(value, name)) for name in names]
    texts = [(name, _field(each)) for name, each in fields if each is not None and each != "" and each != ()]
    return _macro("fields", type(value).__name__, texts)


def _field(value: Any) -> str:
    if isinstance(value, (str, bool, int, float)):
        return str(value)
    return repr(value) if isinstance(value, Shown) else brief(str(value), _LONGEST_CELL)


@_html.register
def _(value: Results) -> Markup:
    analysis: Analysis = value  # type: ignore[assignment]  # the results that people get are those of load
    leads = [name for name in LEADS if name in analysis.sections]
    report = shown(_without_pointers(analysis.report(leads or ["overview"])), Detail("brief", "brief", MOST_ROWS))
    return _macro("analysis", repr(analysis)[1:-1], report.sections)


@_html.register
def _(value: Report) -> Markup:
    level: Level = "full" if len(value.sections) == 1 else "brief"
    return _macro("report", shown(_without_pointers(value), Detail("full", level, MOST_ROWS)).sections)


@_html.register
def _(value: Section) -> Markup:
    return _html(Report({}, {}, (value,)))


@_html.register
def _(value: Table) -> Markup:
    return _macro("table", value)


@_html.register
def _(value: HasTable) -> Markup:
    return _macro("table", value.as_table())


@_html.register
def _(value: Outcome) -> Markup:
    return _html(check_report(value))


@_html.register
def _(value: Sampled) -> Markup:
    return _html(value.report())


def _without_pointers(report: Report) -> Report:
    """Return the report without what to type in a terminal for more."""
    return replace(report, sections=tuple(replace(section, pointer="") for section in report.sections))


def cells_of(table: Table) -> list[list[Cell]]:
    """Return the first rows of a table by row."""
    table = table.head(MOST_ROWS)
    texts = text_table(table, LINES)
    columns = [column for column in table.columns if column.level != "data"]
    keys = [[_key(value) for value in table.data[column.key]] for column in columns]
    return [
        [Cell(text, keys[column][row], texts.numeric[column]) for column, text in enumerate(line)]
        for row, line in enumerate(texts.rows)
    ]


def _key(value: Any) -> float | int | str | None:
    item = plain(value)
    return brief(item, _LONGEST_CELL) if isinstance(item, str) else int(item) if isinstance(item, bool) else item


def bars_of(chart: Chart) -> list[Bar]:
    """Return the bars of a chart that has one for each label; none of any other chart, which `.plot()` draws."""
    if not isinstance(chart, BarChart):
        return []
    longest = max((value for value in chart.values if value is not None), default=0.0) or 1.0
    pairs = zip(chart.labels, chart.values, strict=True)
    return [
        Bar(label, measure_text(value, chart.unit), max(0.0, 100.0 * (value or 0.0) / longest))
        for label, value in pairs
    ]


def _macro(name: str, *arguments: Any) -> Markup:
    html: Markup = getattr(_macros(), name)(*arguments)
    return html


@lru_cache(maxsize=1)
def _style_and_script() -> tuple[Markup, Markup]:
    folder = files("tfperf.notebook") / "static"
    style, script = (folder.joinpath(name).read_text("utf-8").strip() for name in ("output.css", "sort.js"))
    return Markup(style), Markup(script)


@lru_cache(maxsize=1)
def _macros() -> TemplateModule:
    return environment().get_template("output.html").module


@lru_cache(maxsize=1)
def environment() -> Environment:
    """Return the engine for outputs of cells."""
    environment = engine("tfperf.notebook", longest_text=_LONGEST_TEXT, longest_cell=_LONGEST_CELL)
    environment.globals |= {"text_table": text_table, "cells_of": cells_of, "bars_of": bars_of}
    return environment
