from __future__ import annotations

import pytest

from tfperf.render.bar_chart import bar_chart_lines
from tfperf.render.text_fitting import cells
from tfperf.report.model import BarChart
from tfperf.units import Unit


def bars(labels: tuple[str, ...], values: tuple[float | None, ...], unit: Unit = "%") -> BarChart:
    return BarChart("", unit, labels, values)


def test_the_largest_value_fills_the_width() -> None:
    assert bar_chart_lines(bars(("MatMul", "Add"), (50.0, 25.0)), 30, interactive=False) == [
        "MatMul ################  50.0%",
        "   Add ########          25.0%",
    ]


def test_a_terminal_gets_blocks_in_eighths() -> None:
    assert bar_chart_lines(bars(("a", "b"), (16.0, 1.0), "count"), 30, interactive=True) == [
        "a ████████████████████████  16",
        "b █▌                         1",
    ]


def test_what_is_small_is_drawn_and_nothing_or_unknown_is_not() -> None:
    lines = bar_chart_lines(bars(("a", "b", "c", "d"), (1e6, 1e-9, 0.0, None), "ms"), 40, interactive=False)
    assert [line.count("#") for line in lines] == [lines[0].count("#"), 1, 0, 0]
    assert lines[3].endswith(" -")


@pytest.mark.parametrize("interactive", [True, False])
@pytest.mark.parametrize("width", [30, 80])
def test_lines_fit_whatever_the_labels_are(width: int, interactive: bool) -> None:
    labels = ("x" * 10_000, "", "\x1b[31mred\n", "日本語" * 50)
    lines = bar_chart_lines(bars(labels, (3.0, float("nan"), float("inf"), -2.0)), width, interactive=interactive)
    assert all(cells(line) <= width for line in lines)
    assert not any("\x1b" in line or "\n" in line for line in lines)


def test_nothing_to_draw() -> None:
    assert bar_chart_lines(bars((), ()), 80, interactive=True) == ["nothing to show"]
    assert bar_chart_lines(bars(("a",), (0.0,)), 80, interactive=True)[0].endswith("0.0%")
