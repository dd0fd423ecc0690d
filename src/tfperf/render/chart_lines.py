"""Any chart as lines of letters, blocks or ASCII, for terminals and Markdown.

A person's terminal shows blocks; files and pipes get ASCII, since the encoding of their reader is unknown.
"""

from __future__ import annotations

import math

from tfperf.render.safe_text import ELLIPSIS, safe
from tfperf.render.step_chart import step_chart_lines
from tfperf.render.text_fitting import PLAIN_ELLIPSIS, Line, cells, line_of, shorten
from tfperf.render.values import cell_text, measure_text
from tfperf.report.model import BarChart, Chart, GroupedBars, Sparkline

BAR_BLOCKS, BAR_ASCII = "▏▎▍▌▋▊▉█", "#"
SPARK_BLOCKS, SPARK_ASCII = "▁▂▃▄▅▆▇█", "_.-~=+*#"
_LABEL_SHARE = 0.5
_SMALLEST_BAR = 8


def chart_lines(chart: Chart, width: int, *, interactive: bool) -> list[Line]:
    """Return the chart as lines of at most `width` cells, without its title."""
    if isinstance(chart, Sparkline):
        return [line_of(sparkline_text(chart, width, interactive=interactive))]
    if isinstance(chart, (BarChart, GroupedBars)):
        return [line_of(text) for text in bar_chart_lines(chart, width, interactive=interactive)]
    return step_chart_lines(chart, width)


def bar_chart_lines(chart: BarChart | GroupedBars, width: int, *, interactive: bool) -> list[str]:
    """Return the bars as lines of at most `width` cells (for widths of 30 and more), without the title."""
    if isinstance(chart, GroupedBars):
        chart = _in_rows(chart)
    if not chart.labels:
        return ["nothing to show"]
    # Units other than % are in the title of the chart.
    value_text = measure_text if chart.unit == "%" else cell_text
    values = [value_text(value, chart.unit) for value in chart.values]
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


def _bar(share: float, room: int, *, interactive: bool) -> str:
    """Return a bar; what is more than nothing shows at least the smallest mark."""
    if not interactive:
        return BAR_ASCII * max(round(share * room), 1)
    eighths = max(round(share * room * 8), 1)
    return BAR_BLOCKS[-1] * (eighths // 8) + (BAR_BLOCKS[eighths % 8 - 1] if eighths % 8 else "")


def sparkline_text(series: Sparkline, width: int, *, interactive: bool) -> str:
    """Return the series as one line of at most `width` cells: of each stretch of time the largest value."""
    marks = SPARK_BLOCKS if interactive else SPARK_ASCII
    span = series.high - series.low
    line = ""
    for value in _largest_by_cell(series, max(width, 1)):
        share = math.nan if value is None else (value - series.low) / span if span > 0 else 0.0
        line += marks[min(max(int(share * len(marks)), 0), len(marks) - 1)] if math.isfinite(share) else " "
    return line.rstrip()


def _largest_by_cell(series: Sparkline, width: int) -> list[float | None]:
    """Return the largest value in each stretch of time, that at its start included; None: unknown."""
    largest: list[float | None] = [None] * width
    start, duration = (series.times[0], series.times[-1] - series.times[0]) if series.times else (0.0, 0.0)
    held, last = None, 0
    for time, value in zip(series.times, series.values, strict=True):
        share = (time - start) / duration if duration > 0 else 0.0
        cell = max(min(int(share * width), width - 1), last)
        largest[last + 1 : cell + 1] = [held] * (cell - last)
        before = largest[cell]
        largest[cell] = value if before is None else max(before, value)
        held, last = value, cell
    return largest[: last + 1] + [held] * (width - last - 1)
