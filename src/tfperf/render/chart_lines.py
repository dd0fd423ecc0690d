"""Any chart as lines of letters, blocks or ASCII, for terminals and Markdown."""

from __future__ import annotations

from tfperf.render.bar_chart import bar_chart_lines
from tfperf.render.sparkline import sparkline_text
from tfperf.render.step_chart import step_chart_lines
from tfperf.render.styled_line import Line, line_of
from tfperf.report.model import BarChart, Chart, GroupedBars, Sparkline


def chart_lines(chart: Chart, width: int, *, interactive: bool) -> list[Line]:
    """Return the chart as lines of at most `width` cells, without its title."""
    if isinstance(chart, Sparkline):
        return [line_of(sparkline_text(chart, width, interactive=interactive))]
    if isinstance(chart, (BarChart, GroupedBars)):
        return [line_of(text) for text in bar_chart_lines(chart, width, interactive=interactive)]
    return step_chart_lines(chart, width)
