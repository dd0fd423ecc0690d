"""A chart as data in the page, and in words: the names and numbers that somebody who does not see it needs.

Only what is drawn travels. Of very many steps the longest of every few in a row is drawn, so that outliers stay; a
long series of values over time keeps the largest of each stretch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tfperf.render.page.table_data import plain_items
from tfperf.render.page.text import LONGEST_NAME
from tfperf.render.text import brief
from tfperf.render.values import cell_text, plain
from tfperf.report.model import BarChart, Chart, Column, GroupedBars, Section, Sparkline, StepChart, Table

MOST_STEPS = 1_500
MOST_BARS = 15
_MOST_POINTS = 2_000
_NAMED = 5
_CUT_FROM = 1.5
_CUT_AT = 1.15

Coded = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Drawing:
    """A chart as it travels: `is_bars` if it writes its numbers beside its bars."""

    title: str
    data: Coded
    words: str
    is_bars: bool


@dataclass(frozen=True, slots=True)
class Drawings:
    """The charts of a section: its own, and that of each table, if it has one."""

    own: tuple[Drawing, ...]
    of_tables: tuple[Drawing | None, ...]

    def in_order(self) -> list[Drawing]:
        """Return all in the order of the page."""
        return [*self.own, *(drawing for drawing in self.of_tables if drawing)]


def drawings(section: Section) -> Drawings:
    """Return the charts of a section; where it has bars of its own, tables get none, which would show the same."""
    has_bars = any(isinstance(chart, BarChart) for chart in section.charts)
    of_tables = (None if has_bars else table_chart(table) for table in section.tables)
    return Drawings(
        tuple(map(_drawing, section.charts)), tuple(None if chart is None else _drawing(chart) for chart in of_tables)
    )


def _drawing(chart: Chart) -> Drawing:
    is_bars = isinstance(chart, (BarChart, GroupedBars))
    return Drawing(chart.title, chart_data(chart), chart_words(chart), is_bars)


def chart_data(chart: Chart) -> Coded:
    """Return what the page draws: JSON-ready, texts safe to show."""
    if isinstance(chart, StepChart):
        return _step_data(chart)
    if isinstance(chart, Sparkline):
        return _line_data(chart)
    if isinstance(chart, GroupedBars):
        series = [{"name": _name(name), "values": _numbers(values)} for name, values in chart.series.items()]
        return {"kind": "groups", "unit": chart.unit, "labels": list(map(_name, chart.labels)), "series": series}
    labels, values = list(map(_name, chart.labels)), _numbers(chart.values)
    return {"kind": "bars", "unit": chart.unit, "labels": labels, "values": values}


def chart_words(chart: Chart) -> str:
    """Return the chart in words."""
    if isinstance(chart, StepChart):
        return _step_words(chart)
    if isinstance(chart, Sparkline):
        return _line_words(chart)
    if isinstance(chart, GroupedBars):
        parts = [f"{_name(name)}: {_listed(chart.labels, values, chart.unit)}" for name, values in chart.series.items()]
        return "; ".join(parts) + "."
    return _listed(chart.labels, chart.values, chart.unit) + "."


def table_chart(table: Table) -> BarChart | None:
    """Return the first rows of the table as bars; None where it asks for none, or fewer than two are above zero."""
    drawn = next((column for column in table.columns if column.key == table.bar_key), None)
    if drawn is None:
        return None
    values = _numbers(table.data[drawn.key][:MOST_BARS])
    rows = [at for at, value in enumerate(values) if value]
    named = _naming_column(table, rows)
    if named is None or len(rows) < 2:
        return None
    names = [cell_text(table.data[named.key][at], named.unit) for at in rows]
    title = f"Bars: {drawn.title}"
    if table.total_rows > MOST_BARS:
        title += f" of the first {MOST_BARS} of {table.total_rows:,} rows"
    return BarChart(title, drawn.unit, tuple(names), tuple(values[at] for at in rows))


def _naming_column(table: Table, rows: Sequence[int]) -> Column | None:
    """Return the first column that people see whose texts tell these rows apart; else the first with texts."""
    texts = [column for column in table.columns if column.compact and not column.unit]
    telling = (column for column in texts if len({table.data[column.key][at] for at in rows}) == len(rows))
    return next(telling, texts[0] if texts else None)


# --- steps ---


def _step_data(chart: StepChart) -> Coded:
    steps = _drawn_steps(chart)
    series = [
        {"name": _name(name), "values": [_digits(values[at]) for at in steps]} for name, values in chart.series.items()
    ]
    return {
        "kind": "steps",
        "labels": [_name(chart.labels[at]) for at in steps],
        "flags": [_name(chart.flags[at]) for at in steps] if chart.flags else [""] * len(steps),
        "series": [own for own in series if any(own["values"])],
        "limit": _limit(chart, _totals(chart)),
    }


def _limit(chart: StepChart, totals: Sequence[float]) -> float | None:
    """Return where bars are cut: one odd step with a flag (the first, a traced one) must not press all others flat."""
    longest = max((total for at, total in enumerate(totals) if not (chart.flags and chart.flags[at])), default=0.0)
    return float(f"{_CUT_AT * longest:.2g}") if 0 < _CUT_FROM * longest < max(totals) else None


def _drawn_steps(chart: StepChart) -> list[int]:
    """Return the places of the steps to draw: all, or the longest of each few in a row."""
    count = len(chart.labels)
    if count <= MOST_STEPS:
        return list(range(count))
    totals, size = _totals(chart), _together(count)
    return [max(range(at, min(at + size, count)), key=totals.__getitem__) for at in range(0, count, size)]


def _together(count: int) -> int:
    return -(-count // MOST_STEPS)


def _totals(chart: StepChart) -> list[float]:
    rows = zip(*map(_numbers, chart.series.values()), strict=True)
    return [sum(value or 0.0 for value in row) for row in rows] or [0.0] * len(chart.labels)


def _step_words(chart: StepChart) -> str:
    count = len(chart.labels)
    if not count:
        return "No steps."
    totals = _totals(chart)
    flagged = [at for at, flag in enumerate(chart.flags) if flag]
    counted = [at for at in range(count) if not (chart.flags and chart.flags[at])] or list(range(count))
    shortest, longest = min(counted, key=totals.__getitem__), max(counted, key=totals.__getitem__)
    words = f"{_which(count, len(flagged))}: the shortest takes {_step(chart, shortest, totals)}"
    words += f", the longest {_step(chart, longest, totals)}"
    if len(counted) == 1:
        words = f"{_which(count, len(flagged))}: it takes {_step(chart, longest, totals)}"
    shares = _shares(chart, counted)
    whose = "its" if len(counted) == 1 else "their"
    words += f". Of {whose} time: {shares}." if shares else "."
    limit = _limit(chart, totals)
    if limit is not None:
        cut = [at for at, total in enumerate(totals) if total > limit]
        words += f" Cut at {limit:g} ms: {_few([_step(chart, at, totals) for at in cut])}."
    if count > MOST_STEPS:
        words += f" Of every {_together(count)} steps in a row, the longest is drawn."
    return words


def _few(texts: Sequence[str]) -> str:
    more = len(texts) - _NAMED
    return ", ".join(texts[:_NAMED]) + (f", and {more:,} more" if more > 0 else "")


def _which(count: int, flagged: int) -> str:
    steps = "1 step" if count == 1 else f"{count:,} steps"
    if not flagged:
        return steps
    return f"{steps}, all with a flag" if flagged == count else f"{count - flagged:,} of {steps} without a flag"


def _step(chart: StepChart, at: int, totals: Sequence[float]) -> str:
    return f"{cell_text(totals[at], 'ms')} ms (step {_name(chart.labels[at])})"


def _shares(chart: StepChart, steps: Sequence[int]) -> str:
    """Return the categories by their share of the time of the steps, the largest first."""
    sums = {}
    for name, values in chart.series.items():
        numbers = _numbers(values)
        sums[name] = sum(numbers[at] or 0.0 for at in steps)
    whole = sum(sums.values())
    ranked = sorted((name for name in sums if sums[name] > 0), key=lambda name: -sums[name])
    return ", ".join(f"{_name(name)} {cell_text(100 * sums[name] / whole, '%')}%" for name in ranked[:_NAMED])


# --- values over time ---


def _line_data(chart: Sparkline) -> Coded:
    points = _points(chart)
    return {
        "kind": "line",
        "times": [_digits(chart.times[at]) for at in points],
        "values": [_digits(chart.values[at]) for at in points],
        "low": _digits(chart.low),
        "high": _digits(chart.high),
        "unit": chart.unit,
    }


def _points(chart: Sparkline) -> list[int]:
    """Return the places of the values to draw: all, or the first and the largest of each few in a row, and the last."""
    count = len(chart.times)
    if count <= _MOST_POINTS:
        return list(range(count))
    size = -(-2 * count // _MOST_POINTS)
    values = [value or 0.0 for value in _numbers(chart.values)]
    largest = (max(range(at, min(at + size, count)), key=values.__getitem__) for at in range(0, count, size))
    return sorted({*range(0, count, size), *largest, count - 1})


def _line_words(chart: Sparkline) -> str:
    count = len(chart.times)
    if not count:
        return "No values."
    values = [value for value in _numbers(chart.values) if value is not None]
    if not values:
        return f"{count:,} values, none of them known."
    low, high = (_amount(value, chart.unit) for value in (min(values), max(values)))
    return f"{count:,} values between {low} and {high}, each holding until the next."


# --- bars ---


def _listed(labels: Sequence[str], values: Sequence[float | None], unit: str) -> str:
    """Return the first labels with their values, and how many more there are."""
    if not labels:
        return "nothing to show"
    texts = [
        f"{_name(label)} {_amount(value, unit)}" for label, value in zip(labels[:_NAMED], values[:_NAMED], strict=True)
    ]
    more = len(labels) - len(texts)
    return ", ".join(texts) + (f", and {more:,} more" if more else "")


def _amount(value: float | None, unit: str) -> str:
    behind = "" if unit in ("", "count", "bytes") or value is None else "%" if unit == "%" else f" {unit}"
    return f"{cell_text(value, unit)}{behind}"


def _name(text: str) -> str:
    return brief(text, LONGEST_NAME)


def _numbers(values: Sequence[Any]) -> list[float | None]:
    return [float(item) if isinstance(item, (int, float)) else None for item in plain_items(values)]


def _digits(value: Any) -> float | None:
    item = plain(value)
    return float(f"{item:.6g}") if isinstance(item, (int, float)) else None
