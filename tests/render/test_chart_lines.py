"""Every kind of chart as lines."""

from __future__ import annotations

import pytest

from tfperf.render.chart_lines import chart_lines
from tfperf.render.styled_line import plain_text
from tfperf.report.model import BarChart, Chart, GroupedBars, Sparkline, StepChart


@pytest.mark.parametrize(
    ("chart", "expected"),
    [
        (
            StepChart("Steps", ("7",), {"Input": [10.0]}, ("",)),
            ["step                        ms", "   7 |IIIIIIIIIIIIIIIIII  10.0", "I Input"],
        ),
        (BarChart("Bars", "%", ("a",), (50.0,)), ["a #####################  50.0%"]),
        (
            GroupedBars("Groups", "ms", ("a",), {"x": (5.0,), "y": (10.0,)}),
            ["a, x ##########           5.00", "   y ###################  10.0"],
        ),
        (Sparkline(title="Memory", times=(0.0, 1.0), values=(0.0, 8.0), low=0.0, high=8.0), ["_" * 29 + "#"]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_kind_is_drawn(chart: Chart, expected: list[str]) -> None:
    assert list(map(plain_text, chart_lines(chart, 30, interactive=False))) == expected
