"""Every kind of chart as lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfperf.render.charts import bar_chart_lines, chart_lines, sparkline_text
from tfperf.render.text_table import cells, plain_text
from tfperf.report.model import BarChart, Chart, GroupedBars, Sparkline, StepChart
from tfperf.units import Unit


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


def series(*points: tuple[float, float], high: float = 8.0) -> Sparkline:
    """Return values from 0 to `high`, given as time and value."""
    return Sparkline(
        title="Memory",
        times=tuple(time for time, _ in points),
        values=tuple(value for _, value in points),
        low=0.0,
        high=high,
    )


def test_a_value_holds_until_the_next() -> None:
    rising = series((0.0, 0.0), (2.0, 8.0), (4.0, 8.0))
    assert sparkline_text(rising, 4, interactive=True) == "▁▁██"
    assert sparkline_text(rising, 4, interactive=False) == "__##"


def test_of_each_stretch_of_time_the_largest_value_is_drawn() -> None:
    peak = series((0.0, 1.0), (2.1, 8.0), (2.2, 1.0), (8.0, 1.0))
    assert sparkline_text(peak, 4, interactive=False) == ".#.."


@pytest.mark.parametrize(
    ("line", "expected"), [(series(), ""), (series((5.0, 0.0)), "__"), (series((0.0, 0.0), (1.0, 0.0), high=0.0), "__")]
)
def test_few_values_and_no_scale(line: Sparkline, expected: str) -> None:
    assert sparkline_text(line, 2, interactive=False) == expected


@given(st.lists(st.tuples(st.floats(0, 1e9), st.floats()), max_size=30), st.integers(1, 100))
def test_it_is_never_wider_than_asked(points: list[tuple[float, float]], width: int) -> None:
    assert len(sparkline_text(series(*sorted(points)), width, interactive=True)) <= width
