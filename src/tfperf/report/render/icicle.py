"""A flame graph in letters: an indented tree with bars, the biggest boxes first, cut where boxes are small."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from tfperf.base.units import counted, format_percent
from tfperf.report.model import FlameChart
from tfperf.report.render.text_table import PLAIN_ELLIPSIS, Line, Part, bar_text, cells, line_of, shorten
from tfperf.report.render.values import ELLIPSIS, cell_text, measure_text, safe

SMALLEST_SHARE = 0.01
"""Of the whole; smaller boxes are not shown."""
_BAR, _NARROW_BAR, _NARROW = 16, 8, 70
_INDENT = "  "
_SMALLEST_NAME = 20
"""Rows are indented no further than leaves names so much room."""


class _Row(Struct, frozen=True, kw_only=True):
    """A box, or several of which each has nothing but the next: then the names of all."""

    name: str
    level: int
    width: float


def icicle_lines(chart: FlameChart, width: int, *, interactive: bool) -> list[Line]:
    """Return the tree as lines of at most `width` cells, and how much of it is not shown."""
    whole = chart.widths[0] if chart.widths else 0.0
    if whole <= 0:
        return [line_of("nothing to show")]
    boxes = [box for box, size in enumerate(chart.widths) if size >= SMALLEST_SHARE * whole]
    rows = _rows(chart, boxes)
    shares = [f"{format_percent(100 * row.width / whole)}%" for row in rows]
    values = [cell_text(row.width, chart.unit) for row in rows]
    right = max(cells(chart.unit), *map(cells, values))
    mark = ELLIPSIS if interactive else PLAIN_ELLIPSIS
    size = _BAR if width >= _NARROW else _NARROW_BAR
    lines: list[Line] = [line_of(f"{'share':>6} {chart.unit:>{right}}", "dim")]
    for row, share, value in zip(rows, shares, values, strict=True):
        bar = bar_text(row.width / whole, size, interactive=interactive).ljust(size)
        start = f"{share:>6} {' ' * (right - cells(value))}{value}  "
        room = width - cells(start) - size - len(_INDENT)
        indent = _INDENT * min(row.level, max(room - _SMALLEST_NAME, 0) // len(_INDENT))
        name = shorten(safe(row.name), max(room - len(indent), 1), mark=mark)
        lines.append((Part(start), Part(bar, "cyan"), Part(f"{_INDENT}{indent}{name}")))
    return [*lines, *_cut_lines(chart, boxes, whole)]


def _rows(chart: FlameChart, boxes: Sequence[int]) -> list[_Row]:
    """Return a row for each box that is shown; a box with all that is in another one is in the row of that."""
    rows: list[_Row] = []
    levels: list[int] = []  # of the rows around, by depth of the boxes
    for box in boxes:
        depth = chart.depths[box]
        del levels[depth:]
        name = chart.labels[box]
        # The root says what all of it is, so it stays alone.
        if depth > 1 and rows and chart.widths[box - 1] == chart.widths[box] and chart.depths[box - 1] == depth - 1:
            rows[-1] = _Row(name=f"{rows[-1].name}/{name}", level=rows[-1].level, width=rows[-1].width)
            levels.append(rows[-1].level)
            continue
        level = levels[-1] + 1 if levels else 0
        rows.append(_Row(name=name, level=level, width=chart.widths[box]))
        levels.append(level)
    return rows


def _cut_lines(chart: FlameChart, boxes: Sequence[int], whole: float) -> list[Line]:
    """Say how much is in boxes that are not shown: what those around them have beyond their own and what is shown."""
    cut = len(chart.widths) + chart.omitted - len(boxes)
    if not cut:
        return []
    own = sum(chart.own[box] for box in boxes)
    value = max(whole - own, 0.0)
    text = f"Cut: {counted(cut, 'row')} below {SMALLEST_SHARE:.0%}, together {measure_text(value, chart.unit)}"
    return [line_of(f"{text} ({format_percent(100 * value / whole)}%).", "dim")]
