"""Page data: charts, tables and pictures of steps as JSON, and descriptions of charts for screen readers.

Charts. The data contains only drawn values; static/charts.js draws them. With very many steps, the longest of each few
consecutive ones is drawn, so that outliers stay; a long series over time keeps the largest value of each span.

Tables. Columns, each string once, numbers with the displayed digits, compressed.

    {"columns": [{"title", "unit", "main", "tree", "whole", "kind", ...}], "depths": [0, 1, ...] or null}

`whole` is the index of the column with the whole names of a shortened column, or null. A column of kind `number` has
`values`, null for unknown ones. One of kind `text` has distinct `words`, and `places`: each row's word index, or -1. In
a long table, numbers are cut to six digits, two more than displayed.

Pictures of a step. Columns of small numbers, compressed, read by static/picture_data.js.

    {"duration", "ribbons": [...], "groups": [...], "levels": [{"finest", "row", "start", "duration", "name", "count",
    "self", "note"}], "names": [[name, kind, type, op], ...], "notes": [...], "links": {...}, "memory": [...]}

Times are nanoseconds; a block's `start` is the difference to the previous one. A picture takes at most `MOST_BYTES`:
its finest level is omitted if it would take more.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from msgspec.structs import replace

from tfperf.base.units import counted, format_number, listed
from tfperf.report.model import (
    RESULTS,
    BarChart,
    Blocks,
    Chart,
    Column,
    ComparisonChart,
    FlameChart,
    GaugeChart,
    GroupedBars,
    LogChart,
    SegmentBar,
    Sparkline,
    StepChart,
    StepPicture,
    Table,
)
from tfperf.report.palette import ROLES
from tfperf.report.render.charts import change_text, comparison_scale, waterfall
from tfperf.report.render.text_table import header, main_columns
from tfperf.report.render.values import Plain, brief, cell_text, measure_text, plain, typeset

LONGEST_NAME = 500
"""Characters of a name in a table or a chart; CSV files have whole names."""
JsonObject = dict[str, Any]
MOST_STEPS = 1_500
MOST_BARS = 15
_MOST_POINTS = 2_000
_MOST_TIMES = 1_000
"""Step times from which the page draws a histogram."""
_NAMED = 5
"""Names per sentence."""
_CUT_FROM = 1.5
_CUT_AT = 1.15
_MARKS = 7
"""Maximum ticks per axis, as in static/charts.js."""


def chart_data(chart: Chart) -> JsonObject:
    """Return the chart's data for the page."""
    if isinstance(chart, StepChart):
        return _step_data(chart)
    if isinstance(chart, Sparkline):
        return _line_data(chart)
    if isinstance(chart, LogChart):
        return _log_data(chart)
    if isinstance(chart, SegmentBar):
        causes = [[_short_name(each.title), each.categories] for each in chart.segments if each.categories]
        return {"kind": "drawn", "causes": causes}  # in the markup, except for the comparison of steps
    if isinstance(chart, (FlameChart, ComparisonChart, GaugeChart)):
        return {"kind": "drawn"}
    if isinstance(chart, StepPicture):
        return picture_data(chart)
    labels = list(map(_short_name, chart.labels))
    if isinstance(chart, GroupedBars):
        series = [{"name": _short_name(name), "values": _numbers(values)} for name, values in chart.series.items()]
        return {"kind": "groups", "unit": chart.unit, "labels": labels, "series": series}
    return {"kind": "bars", "unit": chart.unit, "labels": labels, "values": _numbers(chart.values)}


def table_bars(table: Table) -> BarChart | None:
    """Return the first rows as bars; None if the table has no bars, or fewer than two are positive."""
    column = next((column for column in table.columns if column.key == table.bar_key), None)
    if column is None:
        return None
    values = _numbers(table.data[column.key][:MOST_BARS])
    rows = [row for row, value in enumerate(values) if value]
    columns = [each for each in main_columns(table) if not each.unit]
    if not columns or len(rows) < 2:
        return None
    # The first of the columns with the most distinct texts for these rows.
    naming = max(columns, key=lambda each: len({table.data[each.key][row] for row in rows}))
    names = [cell_text(table.data[naming.key][row], naming.unit) for row in rows]
    title = f"Bars: {column.title}"
    if table.total_rows > MOST_BARS:
        title += f", first {MOST_BARS} of {table.total_rows:,} rows"
    return BarChart(title, column.unit, tuple(names), tuple(values[row] for row in rows))


def step_totals(chart: StepChart) -> list[float]:
    """Return the milliseconds of each step, with unknown values as 0."""
    rows = zip(*map(_numbers, chart.series.values()), strict=True)
    return [sum(value or 0.0 for value in row) for row in rows] or [0.0] * len(chart.labels)


def cut_limit(chart: StepChart, totals: Sequence[float]) -> float | None:
    """Return the limit of bars in ms, so that a long flagged step (the first, a traced one) does not shrink others."""
    longest = max((total for total, flag in zip(totals, chart.flags, strict=True) if not flag), default=0.0)
    if not 0 < _CUT_FROM * longest < max(totals):
        return None
    # At the next tick of the axis: a multiple of 1, 2 or 5 and a power of ten.
    value = _CUT_AT * longest
    power = 10.0 ** math.floor(math.log10(value / _MARKS))
    size = next(step * power for step in (1, 2, 5, 10) if step * power * _MARKS >= value)
    return float(f"{size * math.ceil(value / size):.6g}")


def steps_per_bar(count: int) -> int:
    """Return the number of consecutive steps per drawn bar, which shows the longest of them."""
    return -(-count // MOST_STEPS)


def _numbers(values: Sequence[Any]) -> list[float | None]:
    return [float(item) if isinstance(item, (int, float)) else None for item in plain_items(values)]


def _short_name(text: str) -> str:
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
        "usual": _usual_steps(chart, totals),
    }


def _usual_steps(chart: StepChart, totals: Sequence[float]) -> JsonObject | None:
    """Return the distribution of averaged steps, and the one nearest to their median; None for fewer than two steps."""
    averaged = chart.averaged or [not flag for flag in chart.flags]
    rows = sorted((step for step, counts in enumerate(averaged) if counts), key=totals.__getitem__)
    if len(rows) < 2:
        return None
    low, middle, high = (_between(totals, rows, share) for share in (0.05, 0.5, 0.95))
    nearest = min(sorted(rows), key=lambda step: abs(totals[step] - middle))
    size = -(-len(rows) // _MOST_TIMES)
    return {
        "count": len(rows),
        "p5": _six_digits(low),
        "median": _six_digits(middle),
        "p95": _six_digits(high),
        "step": _short_name(chart.labels[nearest]),
        "parts": {_short_name(name): _six_digits(values[nearest]) for name, values in chart.series.items()},
        "times": [_six_digits(totals[step]) for step in rows[size // 2 :: size]],
    }


def _between(totals: Sequence[float], rows: Sequence[int], share: float) -> float:
    """Return the quantile of the steps at ascending `rows`, interpolated as NumPy does."""
    place = share * (len(rows) - 1)
    before = totals[rows[int(place)]]
    return before + (totals[rows[math.ceil(place)]] - before) * (place % 1)


def _line_data(chart: Sparkline) -> JsonObject:
    """Return all values over time, or the first and the largest of each span of a long series, and the last."""
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
        "span": list(chart.span) if chart.span else None,
        **({"x": chart.x_title} if chart.x_title else {}),
    }


def _six_digits(value: Any) -> float | None:
    """Return a number with two more digits than displayed, None for unknown."""
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
        "labels": [_short_name(name) for name, _, _, _ in points],
        "points": [[x, y] for _, x, y, _ in points],
        "weights": [weight for _, _, _, weight in points] if chart.weights else [],
        "weight": chart.weight_title,
        "lines": lines,
    }


def _drawn_points(chart: LogChart) -> list[tuple[str, float, float, float]]:
    weights = [_six_digits(weight) or 0.0 for weight in chart.weights] or [0.0] * len(chart.points)
    pairs = zip(chart.points, weights, strict=True)
    rows = ((name, _six_digits(x), _six_digits(y), weight) for (name, x, y), weight in pairs)
    return [(name, x, y, weight) for name, x, y, weight in rows if x and y and x > 0 < y][:_MOST_POINTS]


def _flame_words(chart: FlameChart) -> str:
    if not chart.widths:
        return "Nothing to show."
    outer = [box for box, depth in enumerate(chart.depths) if depth == 1]
    texts = [f"{_short_name(chart.names[box])} {measure_text(chart.widths[box], chart.unit)}" for box in outer[:_NAMED]]
    inside = _listed(texts, len(outer)) or "nothing"
    omitted = f" Not drawn: {counted(chart.omitted, 'narrower box', 'narrower boxes')}." if chart.omitted else ""
    drawn = counted(len(chart.widths), "box", "boxes")
    return f"{drawn}. Total {measure_text(chart.widths[0], chart.unit)}: {inside}.{omitted}"


def chart_words(chart: Chart) -> str:
    """Describe the chart."""
    if isinstance(chart, StepChart):
        return _step_words(chart)
    if isinstance(chart, Sparkline):
        return _line_words(chart)
    if isinstance(chart, LogChart):
        points = _drawn_points(chart)
        texts = [f"{_short_name(name)} {format_number(y)} at {format_number(x)}" for name, x, y, _ in points[:_NAMED]]
        drawn = _listed(texts, len(points)) or "nothing to show"
        lines = listed(list(map(_short_name, chart.lines))) or "none"
        return f"{chart.y_title} at {chart.x_title}: {drawn}. Lines: {lines}. {chart.remark}".strip()
    if isinstance(chart, FlameChart):
        return _flame_words(chart)
    if isinstance(chart, SegmentBar):
        texts = [f"{_short_name(each.title)} {each.share}" for each in chart.segments]
        return f"{measure_text(chart.total, chart.unit)}: {listed(texts) or 'nothing'}."
    if isinstance(chart, GaugeChart):
        texts = [f"{_short_name(each.limit)}: {each.measured}, {RESULTS[each.status]}" for each in chart.gauges]
        return f"{chart.headline} {'; '.join(texts)}"
    if isinstance(chart, ComparisonChart):
        largest = [part for part, _, _ in waterfall(chart, _NAMED)]
        changes = [f"{_short_name(part.title)} {change_text(part.change, chart.unit)}" for part in largest]
        runs = [f"{_short_name(run.label)} {measure_text(run.value, chart.unit)}" for run in chart.runs]
        return f"{', '.join(runs)}. {f'Changes: {listed(changes)}.' if changes else ''}".strip()
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
    return f"{count:,} values between {low} and {high}; each value applies until the next one."


def _step_words(chart: StepChart) -> str:
    count = len(chart.labels)
    if not count:
        return "No steps."
    totals = step_totals(chart)
    unflagged = [step for step in range(count) if not chart.flags[step]]
    counted = unflagged or list(range(count))

    def time_of(step: int) -> str:
        return f"{cell_text(totals[step], 'ms')} ms (step {_short_name(chart.labels[step])})"

    sentences = [f"{count:,} {'step' if count == 1 else 'steps'}"]
    if not unflagged:
        sentences[0] += ", all flagged"
    elif len(unflagged) < count:
        sentences[0] = f"{len(unflagged):,} of {sentences[0]} (flagged steps omitted)"
    shortest, longest = min(counted, key=totals.__getitem__), max(counted, key=totals.__getitem__)
    if len(counted) == 1:
        sentences[0] += f": it takes {time_of(longest)}."
    else:
        sentences[0] += f": the shortest takes {time_of(shortest)}, the longest {time_of(longest)}."
    if shares := _shares(chart, counted):
        sentences.append(f"Shares of {'its' if len(counted) == 1 else 'their'} time: {shares}.")
    if (limit := cut_limit(chart, totals)) is not None:
        cut = [time_of(step) for step, total in enumerate(totals) if total > limit]
        sentences.append(f"Cut off at {limit:g} ms: {_listed(cut, len(cut))}.")
    if chart.kinds:
        first, *others = dict.fromkeys(map(_short_name, chart.kinds))
        sentences.append(f"Filled bars are steps of kind {first}, striped bars of kind {listed(others)}.")
    if count > MOST_STEPS:
        sentences.append(f"Each bar is the longest of {steps_per_bar(count)} consecutive steps.")
    return " ".join(sentences)


def _shares(chart: StepChart, steps: Sequence[int]) -> str:
    sums = {}
    for name, values in chart.series.items():
        known = _numbers(values)
        sums[name] = sum(known[step] or 0.0 for step in steps)
    whole = sum(sums.values())
    ranked = sorted((name for name in sums if sums[name] > 0), key=lambda name: -sums[name])
    return ", ".join(f"{_short_name(name)} {cell_text(100 * sums[name] / whole, '%')}%" for name in ranked[:_NAMED])


_EXACT = 10**15
"""Larger integers are sent as text, because JavaScript's floats cannot represent them all."""
_LONG = 2_000
_MANY_CELLS = 2_000_000
_SMALLEST_SHARE = 0.5
_SPARE = 0.95


class PackedTable(NamedTuple):
    """A table in packed form; `table` may have fewer rows and columns than the report's."""

    table: Table
    base64: str
    """Base64 of gzip of JSON."""
    has_all_columns: bool = True


def pack(table: Table) -> PackedTable:
    """Return the whole table, or only its main columns if the whole could never fit into a page."""
    # Encoding an oversized table would take seconds.
    if len(table) * len(table.columns) > _MANY_CELLS:
        return _without_other_columns(table)
    return PackedTable(table, _encoded(_table_data(table)))


def fit(tables: Sequence[PackedTable], room: int) -> list[PackedTable]:
    """Reduce tables to about `room` bytes: the largest first lose secondary columns, then rows, but not headers."""
    packed = list(tables)
    while (excess := sum(len(each.base64) for each in packed) - room) > 0:
        largest = max(range(len(packed)), key=lambda number: len(packed[number].base64))
        if not len(packed[largest].table):
            break
        each = packed[largest]
        if len(main_columns(each.table)) < len(each.table.columns):
            packed[largest] = _without_other_columns(each.table)
            continue
        # Keep at least half of its rows.
        size = len(each.base64)
        share = max((size - excess) / size * _SPARE, _SMALLEST_SHARE)
        shorter = each.table.head(int(len(each.table) * share))
        packed[largest] = each._replace(table=shorter, base64=_encoded(_table_data(shorter)))
    return packed


def plain_items(values: Sequence[Any]) -> list[Any]:
    """Return `plain` of each value; columns of plain values, which are most, are returned unchanged."""
    items = values.tolist() if hasattr(values, "tolist") else list(values)
    if set(map(type, items)) <= {int, str, type(None)}:
        return items
    return [(item if math.isfinite(item) else None) if type(item) is float else plain(item) for item in items]


def _without_other_columns(table: Table) -> PackedTable:
    main = replace(table, columns=main_columns(table))
    return PackedTable(main, _encoded(_table_data(main)), has_all_columns=len(main.columns) == len(table.columns))


def _encoded(data: JsonObject) -> str:
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    # No timestamp, so that pages of the same report are equal.
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


def _table_data(table: Table) -> JsonObject:
    depth_keys = [column.depth_key for column in table.columns if column.depth_key]
    main = {column.key for column in main_columns(table)}
    columns = [
        {
            "title": typeset(brief(header(column), LONGEST_NAME)),
            "unit": column.unit,
            "main": column.key in main,
            "tree": bool(column.depth_key),
            "whole": next((at for at, other in enumerate(table.columns) if other.key == column.whole_key), None),
            **_column_data(table.data[column.key], column, is_long=len(table) > _LONG),
        }
        for column in table.columns
    ]
    depths = [int(plain(depth) or 0) for depth in table.data[depth_keys[0]]] if depth_keys else None
    return {"columns": columns, "depths": depths}


def _column_data(values: Sequence[Any], column: Column, *, is_long: bool) -> JsonObject:
    items = plain_items(values)
    kinds = set(map(type, items))
    is_exact = all(-_EXACT < item < _EXACT for item in items if type(item) is int)
    if kinds <= {int, float, type(None)} and kinds & {int, float} and is_exact:
        if is_long:
            items = [float(f"{item:.6g}") if type(item) is float else item for item in items]
        return {"kind": "number", "values": items}
    return _words(items, column)


def _words(items: Sequence[Plain], column: Column) -> JsonObject:
    """Return distinct texts and row indices; texts that differ only in a cut part become one."""

    @lru_cache(maxsize=None, typed=True)
    def text(item: Plain) -> str:
        return brief(cell_text(item, column.unit), LONGEST_NAME)

    words: dict[str, int] = {}
    places = [-1 if item is None else words.setdefault(text(item), len(words)) for item in items]
    return {"kind": "text", "words": list(words), "places": places}


MOST_BYTES = 490_000
"""Three of them take less than 1.5 MB."""


def picture_data(picture: StepPicture) -> JsonObject:
    """Return the picture's data for the page."""
    levels = picture.levels
    packed = _packed(picture, levels)
    while len(packed) > MOST_BYTES and len(levels) > 1:
        levels = levels[:-1]
        packed = _packed(picture, levels)
    return {"kind": "picture", "step": str(picture.step), "opens": picture.is_requested, "packed": packed}


def picture_words(picture: StepPicture) -> str:
    """Describe the picture; its table of categories is separate."""
    groups = [f"{group.title} ({counted(len(group.lanes) + group.omitted, 'lane')})" for group in picture.groups]
    more = f", and {len(groups) - _NAMED} more" if len(groups) > _NAMED else ""
    lanes = f"Lanes: {', '.join(groups[:_NAMED])}{more}." if groups else "No events."
    memory = f" Memory in use: {listed([curve.title for curve in picture.memory])}." if picture.memory else ""
    return f"{lanes}{memory}"


def picture_rows(picture: StepPicture) -> list[tuple[str, str, str]]:
    """Return a row per category of the step: its title, time and share."""
    whole = max(picture.duration_ns, 1)
    rows = sorted(picture.categories.items(), key=lambda row: -row[1])
    return [
        (brief(title, LONGEST_NAME), f"{cell_text(ns / 1e6, 'ms')} ms", measure_text(100.0 * ns / whole, "%"))
        for title, ns in rows
        if ns
    ]


def _packed(picture: StepPicture, levels: Sequence[Blocks]) -> str:
    names, name_places = _used([level.name for level in levels])
    notes, note_places = _used([level.note for level in levels])
    links = picture.links
    data = {
        "duration": picture.duration_ns,
        "ribbons": [
            {
                "title": ribbon.title,
                "titles": [brief(title, LONGEST_NAME) for title in ribbon.titles],
                "category": ribbon.category.tolist(),
                "start": ribbon.start_ns.tolist(),
                "end": ribbon.end_ns.tolist(),
            }
            for ribbon in picture.ribbons
        ],
        "groups": [
            {
                "title": brief(group.title, LONGEST_NAME),
                "isOpen": group.is_open,
                "load": list(group.load),
                "omitted": group.omitted,
                "lanes": [
                    {"title": brief(lane.title, LONGEST_NAME), "rows": lane.rows, "busy": round(lane.busy_percent, 3)}
                    for lane in group.lanes
                ],
            }
            for group in picture.groups
        ],
        "levels": [_level(level, name_places, note_places) for level in levels],
        "names": [
            [brief(text, LONGEST_NAME) for text in (each.name, each.kind, each.type, each.op)]
            for each in (picture.names[number] for number in names)
        ],
        "notes": [brief(picture.notes[number], LONGEST_NAME) for number in notes],
        "links": {
            "kinds": list(links.kinds),
            "kind": links.kind.tolist(),
            "fromRow": links.from_row.tolist(),
            "from": links.from_ns.tolist(),
            "toRow": links.to_row.tolist(),
            "to": links.to_ns.tolist(),
        },
        "memory": [
            {
                "title": brief(curve.title, LONGEST_NAME),
                "times": curve.times_ns.tolist(),
                "values": curve.used_bytes.tolist(),
            }
            for curve in picture.memory
        ],
    }
    return _encoded(data)


def _used(columns: Sequence[Any]) -> tuple[list[int], Any]:
    """Return the distinct numbers, ascending, and each number's index; -1 stays -1."""
    import numpy as np  # not imported for pages without pictures

    every = np.concatenate([*columns, np.zeros(0, np.int32)])
    occurs = np.bincount(every[every >= 0], minlength=1) > 0
    return np.flatnonzero(occurs).tolist(), np.append(np.cumsum(occurs) - 1, -1)


def _level(level: Blocks, name_places: Any, note_places: Any) -> JsonObject:
    import numpy as np

    columns = {
        "row": level.row,
        "start": np.diff(level.start_ns, prepend=0),
        "duration": level.duration_ns,
        "name": name_places[level.name],
        "count": level.count,
        "self": level.self_ns,
        "note": note_places[level.note],
    }
    return {"finest": level.finest_ns, **{key: column.tolist() for key, column in columns.items()}}


_MOST_CHANGES, _BINS = 7, 120


class DrawnBar(NamedTuple):
    """A row of a comparison: rectangles (role, start, width) in thousandths of the axis, and the value as text."""

    title: str
    text: str
    rectangles: Sequence[tuple[str, float, float]]
    detail: str = ""


class DrawnSteps(NamedTuple):
    """The steps of a run: columns (start, width, height) in thousandths of the axis and hundredths of the height."""

    title: str
    text: str
    change: str
    columns: Sequence[tuple[float, float, float]]


class DrawnComparison(NamedTuple):
    """A comparison in numbers of its drawing; the axis goes from 0 to `end`."""

    headline: str
    times: str
    direction: str
    detail: str
    remark: str
    is_fair: bool
    bars: Sequence[DrawnBar]
    steps: Sequence[DrawnSteps]
    end: str


def drawn_comparison(chart: ComparisonChart) -> DrawnComparison:
    """Return the change by part, between the parts before and after it, and the steps of every run."""
    scale, changes = comparison_scale(chart, _MOST_CHANGES), waterfall(chart, _MOST_CHANGES)
    bars = []
    if changes and scale > 0:
        ends = []
        for side in ("before", "after"):
            rectangles, at = [], 0.0
            for part in sorted(chart.parts, key=lambda part: [*ROLES].index(part.role)):
                width = 1000 * getattr(part, side) / scale
                rectangles.append((part.role, round(at, 2), round(width, 2)))
                at += width
            total = sum(getattr(part, side) for part in chart.parts)
            ends.append(DrawnBar(side.capitalize(), measure_text(total, chart.unit), rectangles))
        for part, start, end in changes:
            first, width = 1000 * min(start, end) / scale, 1000 * abs(end - start) / scale
            sides = f"{measure_text(part.before, chart.unit)} → {measure_text(part.after, chart.unit)}"
            text = change_text(part.change, chart.unit).replace("-", "−")
            bars.append(DrawnBar(part.title, text, [(part.role, round(first, 2), round(max(width, 1), 2))], sides))
        bars = [ends[0], *bars, ends[1]]
    steps = []
    for run in chart.runs:
        counts = [0] * _BINS
        for value in run.values if scale > 0 else ():
            counts[min(int(value / scale * _BINS), _BINS - 1)] += 1
        size, most = 1000 / _BINS, max(counts)
        heights = ((place * size, round(100 * each / most)) for place, each in enumerate(counts) if each)
        columns = [(round(start, 2), round(size, 2), height) for start, height in heights]
        steps.append(DrawnSteps(run.label, measure_text(run.value, chart.unit), _for_page(run.change), columns))
    headline, times, detail, remark = map(_for_page, (chart.headline, chart.times, chart.detail, chart.remark))
    return DrawnComparison(
        *(headline, times, chart.direction, detail, remark, chart.is_fair, bars, steps, measure_text(scale, chart.unit))
    )


def _for_page(text: str) -> str:
    """Return text with an arrow and a multiplication sign."""
    return text.replace(" -> ", " → ").replace("x faster", "× faster").replace("x slower", "× slower")
