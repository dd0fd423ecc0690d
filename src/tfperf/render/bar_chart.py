"""A bar chart: one bar per row, its label before it and its value behind it; the largest value fills the width.

Bars in groups are rows below each other: the first has the label of the group, each the name of its series.

A person's terminal shows blocks in eighths of a cell; files and pipes get ASCII, since the encoding of their reader is
unknown.
"""

from __future__ import annotations

import math

from tfperf.render.safe_text import ELLIPSIS, safe
from tfperf.render.text_fitting import PLAIN_ELLIPSIS, cells, shorten
from tfperf.render.values import UNKNOWN, cell_text
from tfperf.report.model import BarChart, GroupedBars

BLOCKS = "▏▎▍▌▋▊▉█"
ASCII = "#"
_LABEL_SHARE = 0.5
_SMALLEST_BAR = 8


def bar_chart_lines(chart: BarChart | GroupedBars, width: int, *, interactive: bool) -> list[str]:
    """Return the bars as lines of at most `width` cells (for widths of 30 and more), without the title."""
    if isinstance(chart, GroupedBars):
        chart = _in_rows(chart)
    if not chart.labels:
        return ["nothing to show"]
    values = [_value_text(value, chart.unit) for value in chart.values]
    right = max(map(cells, values))
    longest = max(min(int(width * _LABEL_SHARE), width - right - _SMALLEST_BAR - 3), 1)
    mark = ELLIPSIS if interactive else PLAIN_ELLIPSIS
    labels = [shorten(safe(label), longest, mark=mark) for label in chart.labels]
    left = max(map(cells, labels))
    room = max(width - left - right - 3, 1)
    lengths = [max(value, 0.0) if value is not None and math.isfinite(value) else 0.0 for value in chart.values]
    scale = max(lengths)
    lines = []
    for label, length, text in zip(labels, lengths, values, strict=True):
        bar = _bar(length / scale, room, interactive=interactive) if length else ""
        start = " " * (left - cells(label)) + label
        lines.append(f"{start} {bar}{' ' * (room - len(bar))}  {' ' * (right - cells(text))}{text}".rstrip())
    return lines


def _in_rows(chart: GroupedBars) -> BarChart:
    """Return each bar of each group as a row of its own."""
    labels, values = [], []
    for group, label in enumerate(chart.labels):
        for number, (name, of_groups) in enumerate(chart.series.items()):
            labels.append(name if number else f"{label}, {name}")
            values.append(of_groups[group])
    return BarChart(chart.title, chart.unit, tuple(labels), tuple(values))


def _value_text(value: float | None, unit: str) -> str:
    """Return the value, with a sign where it is a percentage; other units are in the title of the chart."""
    text = cell_text(value, unit)
    return f"{text}%" if unit == "%" and text != UNKNOWN else text


def _bar(share: float, room: int, *, interactive: bool) -> str:
    """Return a bar; what is more than nothing shows at least the smallest mark."""
    if not interactive:
        return ASCII * max(round(share * room), 1)
    eighths = max(round(share * room * 8), 1)
    return BLOCKS[-1] * (eighths // 8) + (BLOCKS[eighths % 8 - 1] if eighths % 8 else "")
