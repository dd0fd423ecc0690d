"""A chart as data in the page: what static/charts.js draws, JSON-ready, its texts safe to show.

Only what is drawn travels. Of very many steps the longest of every few in a row is drawn, so that outliers stay; a
long series of values over time keeps the largest of each stretch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfperf.render.page.table_data import plain_items
from tfperf.render.page.template_engine import LONGEST_NAME
from tfperf.render.safe_text import brief
from tfperf.render.text_table import main_columns
from tfperf.render.values import cell_text, plain
from tfperf.report.model import BarChart, Chart, Column, GroupedBars, Sparkline, StepChart, Table

MOST_STEPS = 1_500
MOST_BARS = 15
_MOST_POINTS = 2_000
_CUT_FROM = 1.5
_CUT_AT = 1.15

Data = dict[str, Any]


def chart_data(chart: Chart) -> Data:
    """Return what the page draws."""
    if isinstance(chart, StepChart):
        return _step_data(chart)
    if isinstance(chart, Sparkline):
        return _line_data(chart)
    labels = list(map(short_name, chart.labels))
    if isinstance(chart, GroupedBars):
        series = [{"name": short_name(name), "values": numbers(values)} for name, values in chart.series.items()]
        return {"kind": "groups", "unit": chart.unit, "labels": labels, "series": series}
    return {"kind": "bars", "unit": chart.unit, "labels": labels, "values": numbers(chart.values)}


def table_bars(table: Table) -> BarChart | None:
    """Return the first rows of the table as bars; None where it asks for none, or fewer than two are above zero."""
    column = next((column for column in table.columns if column.key == table.bar_key), None)
    if column is None:
        return None
    values = numbers(table.data[column.key][:MOST_BARS])
    rows = [row for row, value in enumerate(values) if value]
    naming = _naming_column(table, rows)
    if naming is None or len(rows) < 2:
        return None
    names = [cell_text(table.data[naming.key][row], naming.unit) for row in rows]
    title = f"Bars: {column.title}"
    if table.total_rows > MOST_BARS:
        title += f", first {MOST_BARS} of {table.total_rows:,} rows"
    return BarChart(title, column.unit, tuple(names), tuple(values[row] for row in rows))


def _naming_column(table: Table, rows: Sequence[int]) -> Column | None:
    """Return the first main column whose texts tell these rows apart; else the first with texts."""
    columns = [column for column in main_columns(table) if not column.unit]
    distinct = (column for column in columns if len({table.data[column.key][row] for row in rows}) == len(rows))
    return next(distinct, columns[0] if columns else None)


def step_totals(chart: StepChart) -> list[float]:
    """Return the milliseconds of each step, unknown values as 0."""
    rows = zip(*map(numbers, chart.series.values()), strict=True)
    return [sum(value or 0.0 for value in row) for row in rows] or [0.0] * len(chart.labels)


def cut_limit(chart: StepChart, totals: Sequence[float]) -> float | None:
    """Return where bars are cut, in ms: one long flagged step (the first, a traced one) must not make others tiny."""
    longest = max((total for step, total in enumerate(totals) if not (chart.flags and chart.flags[step])), default=0.0)
    return float(f"{_CUT_AT * longest:.2g}") if 0 < _CUT_FROM * longest < max(totals) else None


def steps_per_bar(count: int) -> int:
    """Return of how many steps in a row the longest is drawn."""
    return -(-count // MOST_STEPS)


def numbers(values: Sequence[Any]) -> list[float | None]:
    """Return the values as floats, None where they are unknown or no numbers."""
    return [float(item) if isinstance(item, (int, float)) else None for item in plain_items(values)]


def short_name(text: str) -> str:
    """Return a name as the page shows it."""
    return brief(text, LONGEST_NAME)


def _step_data(chart: StepChart) -> Data:
    """Return the steps to draw, and the series that are not empty."""
    count = len(chart.labels)
    totals, size = step_totals(chart), max(steps_per_bar(count), 1)
    steps = [max(range(first, min(first + size, count)), key=totals.__getitem__) for first in range(0, count, size)]
    series = [
        {"name": short_name(name), "values": [_six_digits(values[step]) for step in steps]}
        for name, values in chart.series.items()
    ]
    return {
        "kind": "steps",
        "labels": [short_name(chart.labels[step]) for step in steps],
        "flags": [short_name(chart.flags[step]) for step in steps] if chart.flags else [""] * len(steps),
        "series": [each for each in series if any(each["values"])],
        "limit": cut_limit(chart, totals),
    }


def _line_data(chart: Sparkline) -> Data:
    """Return all values over time; of very many the first and the largest of each few in a row, and the last."""
    count = len(chart.times)
    points: Sequence[int] = range(count)
    if count > _MOST_POINTS:
        size = -(-2 * count // _MOST_POINTS)
        values = [value or 0.0 for value in numbers(chart.values)]
        largest = (max(range(first, min(first + size, count)), key=values.__getitem__) for first in points[::size])
        points = sorted({*points[::size], *largest, count - 1})
    return {
        "kind": "line",
        "times": [_six_digits(chart.times[point]) for point in points],
        "values": [_six_digits(chart.values[point]) for point in points],
        "low": _six_digits(chart.low),
        "high": _six_digits(chart.high),
        "unit": chart.unit,
    }


def _six_digits(value: Any) -> float | None:
    """Return a number with two digits more than are shown, None for what is unknown."""
    item = plain(value)
    return float(f"{item:.6g}") if isinstance(item, (int, float)) else None
