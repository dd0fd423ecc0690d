"""A chart in the page: as data that static/charts.js draws, and in words for readers who do not see it.

Only what is drawn travels. Of very many steps the longest of every few in a row is drawn, so that outliers stay; a
long series of values over time keeps the largest of each stretch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tfperf.base.units import counted, format_number, listed
from tfperf.report.model import BarChart, Chart, FlameChart, GroupedBars, LogChart, Sparkline, StepChart, Table
from tfperf.report.render.page.picture_data import picture_data, picture_words
from tfperf.report.render.page.table_data import LONGEST_NAME, JsonObject, plain_items
from tfperf.report.render.text_table import main_columns
from tfperf.report.render.values import brief, cell_text, measure_text, plain
from tfperf.report.step_picture import StepPicture

MOST_STEPS = 1_500
MOST_BARS = 15
_MOST_POINTS = 2_000
_NAMED = 5
"""How many names a sentence lists."""
_CUT_FROM = 1.5
_CUT_AT = 1.15
_MARKS = 7
"""At most so many marks has an axis, as in static/charts.js."""


def chart_data(chart: Chart) -> JsonObject:
    """Return what the page draws."""
    if isinstance(chart, StepChart):
        return _step_data(chart)
    if isinstance(chart, Sparkline):
        return _line_data(chart)
    if isinstance(chart, LogChart):
        return _log_data(chart)
    if isinstance(chart, FlameChart):
        return {"kind": "flame"}  # its boxes are in the markup
    if isinstance(chart, StepPicture):
        return picture_data(chart)
    labels = list(map(_short_name, chart.labels))
    if isinstance(chart, GroupedBars):
        series = [{"name": _short_name(name), "values": _numbers(values)} for name, values in chart.series.items()]
        return {"kind": "groups", "unit": chart.unit, "labels": labels, "series": series}
    return {"kind": "bars", "unit": chart.unit, "labels": labels, "values": _numbers(chart.values)}


def table_bars(table: Table) -> BarChart | None:
    """Return the first rows of the table as bars; None where it asks for none, or fewer than two are above zero."""
    column = next((column for column in table.columns if column.key == table.bar_key), None)
    if column is None:
        return None
    values = _numbers(table.data[column.key][:MOST_BARS])
    rows = [row for row, value in enumerate(values) if value]
    columns = [each for each in main_columns(table) if not each.unit]
    if not columns or len(rows) < 2:
        return None
    # The first whose texts tell these rows apart; else the first with texts.
    distinct = (each for each in columns if len({table.data[each.key][row] for row in rows}) == len(rows))
    naming = next(distinct, columns[0])
    names = [cell_text(table.data[naming.key][row], naming.unit) for row in rows]
    title = f"Bars: {column.title}"
    if table.total_rows > MOST_BARS:
        title += f", first {MOST_BARS} of {table.total_rows:,} rows"
    return BarChart(title, column.unit, tuple(names), tuple(values[row] for row in rows))


def step_totals(chart: StepChart) -> list[float]:
    """Return the milliseconds of each step, unknown values as 0."""
    rows = zip(*map(_numbers, chart.series.values()), strict=True)
    return [sum(value or 0.0 for value in row) for row in rows] or [0.0] * len(chart.labels)


def cut_limit(chart: StepChart, totals: Sequence[float]) -> float | None:
    """Return where bars are cut, in ms: one long flagged step (the first, a traced one) must not make others tiny."""
    longest = max((total for total, flag in zip(totals, chart.flags, strict=True) if not flag), default=0.0)
    return _round_above(_CUT_AT * longest) if 0 < _CUT_FROM * longest < max(totals) else None


def _round_above(value: float) -> float:
    """Return the next number above at which an axis has a mark: a multiple of 1, 2 or 5 and a power of ten."""
    power = 10.0 ** math.floor(math.log10(value / _MARKS))
    size = next(step * power for step in (1, 2, 5, 10) if step * power * _MARKS >= value)
    return float(f"{size * math.ceil(value / size):.6g}")


def steps_per_bar(count: int) -> int:
    """Return of how many steps in a row the longest is drawn."""
    return -(-count // MOST_STEPS)


def _numbers(values: Sequence[Any]) -> list[float | None]:
    """Return the values as floats, None where they are unknown or no numbers."""
    return [float(item) if isinstance(item, (int, float)) else None for item in plain_items(values)]


def _short_name(text: str) -> str:
    """Return a name as the page shows it."""
    return brief(text, LONGEST_NAME)


def _step_data(chart: StepChart) -> JsonObject:
    count = len(chart.labels)
    totals, size = step_totals(chart), max(steps_per_bar(count), 1)
    steps = [max(range(first, min(first + size, count)), key=totals.__getitem__) for first in range(0, count, size)]
    shown = {name: [_six_digits(values[step]) for step in steps] for name, values in chart.series.items()}
    return {
        "kind": "steps",
        "labels": [_short_name(chart.labels[step]) for step in steps],
        "flags": [_short_name(chart.flags[step]) for step in steps],
        "kinds": [_short_name(chart.kinds[step]) for step in steps] if chart.kinds else [],
        "series": [{"name": _short_name(name), "values": values} for name, values in shown.items() if any(values)],
        "limit": cut_limit(chart, totals),
    }


def _line_data(chart: Sparkline) -> JsonObject:
    """Return all values over time; of very many the first and the largest of each few in a row, and the last."""
    count = len(chart.times)
    points: Sequence[int] = range(count)
    if count > _MOST_POINTS:
        size = -(-2 * count // _MOST_POINTS)
        values = [value or 0.0 for value in _numbers(chart.values)]
        largest = (max(range(first, min(first + size, count)), key=values.__getitem__) for first in points[::size])
        points = sorted({*points[::size], *largest, count - 1})
    return {
        "kind": "line",
        "times": [_six_digits(chart.times[point]) for point in points],
        "values": [_six_digits(chart.values[point]) for point in points],
        "unit": chart.unit,
    }


def _six_digits(value: Any) -> float | None:
    """Return a number with two digits more than are shown, None for what is unknown."""
    item = plain(value)
    return float(f"{item:.6g}") if isinstance(item, (int, float)) else None


def _log_data(chart: LogChart) -> JsonObject:
    points = _drawn_points(chart)
    lines = [
        {"name": _short_name(name), "points": [[x, y] for x, y in line if x > 0 < y]}
        for name, line in chart.lines.items()
    ]
    return {
        "kind": "log",
        "x": chart.x_title,
        "y": chart.y_title,
        "labels": [_short_name(name) for name, _, _ in points],
        "points": [[x, y] for _, x, y in points],
        "lines": lines,
    }


def _drawn_points(chart: LogChart) -> list[tuple[str, float, float]]:
    """Return the first points that have a place on logarithmic axes."""
    rows = ((name, _six_digits(x), _six_digits(y)) for name, x, y in chart.points)
    return [(name, x, y) for name, x, y in rows if x and y and x > 0 < y][:_MOST_POINTS]


def _log_words(chart: LogChart) -> str:
    points = _drawn_points(chart)
    texts = [f"{_short_name(name)} {format_number(y)} at {format_number(x)}" for name, x, y in points[:_NAMED]]
    drawn = _listed(texts, len(points)) or "nothing to show"
    return (
        f"{chart.y_title} at {chart.x_title}: {drawn}. Lines: {listed(list(map(_short_name, chart.lines))) or 'none'}."
    )


def _flame_words(chart: FlameChart) -> str:
    """Return what is in the outermost boxes, the largest first, and how many boxes there are."""
    if not chart.widths:
        return "Nothing to show."
    outer = [box for box, depth in enumerate(chart.depths) if depth == 1]
    texts = [f"{_short_name(chart.names[box])} {measure_text(chart.widths[box], chart.unit)}" for box in outer[:_NAMED]]
    inside = _listed(texts, len(outer)) or "nothing"
    omitted = f" Not drawn: {counted(chart.omitted, 'narrower box', 'narrower boxes')}." if chart.omitted else ""
    drawn = counted(len(chart.widths), "box", "boxes")
    return f"{drawn}. In all {measure_text(chart.widths[0], chart.unit)}: {inside}.{omitted}"


def chart_words(chart: Chart) -> str:
    """Return the chart in words."""
    if isinstance(chart, StepChart):
        return _step_words(chart)
    if isinstance(chart, Sparkline):
        return _line_words(chart)
    if isinstance(chart, LogChart):
        return _log_words(chart)
    if isinstance(chart, FlameChart):
        return _flame_words(chart)
    if isinstance(chart, StepPicture):
        return picture_words(chart)
    if isinstance(chart, GroupedBars):
        groups = chart.series.items()
        words = (f"{_short_name(name)}: {_bar_words(chart.labels, values, chart.unit)}" for name, values in groups)
        return "; ".join(words) + "."
    return _bar_words(chart.labels, chart.values, chart.unit) + "."


def _bar_words(labels: Sequence[str], values: Sequence[float | None], unit: str) -> str:
    bars = zip(labels[:_NAMED], values[:_NAMED], strict=True)
    texts = [f"{_short_name(label)} {measure_text(value, unit)}" for label, value in bars]
    return _listed(texts, len(labels)) or "nothing to show"


def _listed(texts: Sequence[str], count: int) -> str:
    """Return the first texts of `count`, and how many more there are."""
    more = count - len(texts[:_NAMED])
    return ", ".join(texts[:_NAMED]) + (f", and {more:,} more" if more > 0 else "")


def _line_words(chart: Sparkline) -> str:
    count = len(chart.times)
    if not count:
        return "No values."
    values = [value for value in _numbers(chart.values) if value is not None]
    if not values:
        return f"{count:,} values, all unknown."
    low, high = (measure_text(value, chart.unit) for value in (min(values), max(values)))
    return f"{count:,} values between {low} and {high}; each holds until the next."


def _step_words(chart: StepChart) -> str:
    count = len(chart.labels)
    if not count:
        return "No steps."
    totals = step_totals(chart)
    unflagged = [step for step in range(count) if not chart.flags[step]]
    counted = unflagged or list(range(count))

    def time_of(step: int) -> str:
        return f"{cell_text(totals[step], 'ms')} ms (step {_short_name(chart.labels[step])})"

    sentences = [_which_steps(count, len(unflagged))]
    shortest, longest = min(counted, key=totals.__getitem__), max(counted, key=totals.__getitem__)
    if len(counted) == 1:
        sentences[0] += f": it takes {time_of(longest)}."
    else:
        sentences[0] += f": the shortest takes {time_of(shortest)}, the longest {time_of(longest)}."
    if shares := _shares(chart, counted):
        sentences.append(f"Of {'its' if len(counted) == 1 else 'their'} time: {shares}.")
    if (limit := cut_limit(chart, totals)) is not None:
        cut = [time_of(step) for step, total in enumerate(totals) if total > limit]
        sentences.append(f"Cut off at {limit:g} ms: {_listed(cut, len(cut))}.")
    if chart.kinds:
        first, *others = dict.fromkeys(map(_short_name, chart.kinds))
        sentences.append(f"Filled bars are {first} steps, striped ones {listed(others)} steps.")
    if count > MOST_STEPS:
        sentences.append(f"Of every {steps_per_bar(count)} steps in a row, the longest is drawn.")
    return " ".join(sentences)


def _which_steps(count: int, unflagged: int) -> str:
    steps = counted(count, "step")
    if unflagged == count:
        return steps
    return f"{unflagged:,} of {steps} (flagged ones omitted)" if unflagged else f"{steps}, all flagged"


def _shares(chart: StepChart, steps: Sequence[int]) -> str:
    """Return the categories by their share of the time of the steps, the largest first."""
    sums = {}
    for name, values in chart.series.items():
        known = _numbers(values)
        sums[name] = sum(known[step] or 0.0 for step in steps)
    whole = sum(sums.values())
    ranked = sorted((name for name in sums if sums[name] > 0), key=lambda name: -sums[name])
    return ", ".join(f"{_short_name(name)} {cell_text(100 * sums[name] / whole, '%')}%" for name in ranked[:_NAMED])
