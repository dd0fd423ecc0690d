"""Every kind of chart as lines; the step chart is drawn small enough to count the letters."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfperf.base.units import Unit
from tfperf.report.flame_tree import FlameScale, flame_chart, flame_tree
from tfperf.report.model import BarChart, Chart, FlameChart, GroupedBars, LogChart, Sparkline, StepChart
from tfperf.report.palette import CATEGORY_STYLES, ROLES
from tfperf.report.render.charts import (
    apportion,
    bar_chart_lines,
    category_marks,
    chart_lines,
    icicle_lines,
    shown_steps,
    sparkline_text,
    step_chart_lines,
)
from tfperf.report.render.text_table import Part, cells, plain_text


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
    times, values = tuple(time for time, _ in points), tuple(value for _, value in points)
    return Sparkline(title="Memory", times=times, values=values, low=0.0, high=high)


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


def chart(series: dict[str, Sequence[float]], flags: Sequence[str] = ()) -> StepChart:
    """Return a chart of steps 0, 1, 2, ..."""
    count = len(next(iter(series.values()), ()))
    return StepChart("Steps", tuple(map(str, range(count))), series, tuple(flags) or ("",) * count)


def chart_text(chart: StepChart, width: int) -> str:
    """Return the lines of the chart without their styles."""
    return "\n".join(map(plain_text, step_chart_lines(chart, width)))


def test_the_longest_step_fills_the_width_and_others_are_in_proportion() -> None:
    drawn = chart_text(chart({"Input": [10.0, 5.0], "Device compute": [10.0, 10.0], "Output": [0.0, 0.0]}), 32)
    assert drawn.splitlines() == [
        "step                          ms",
        "   0 |IIIIIIIIIICCCCCCCCCC  20.0",
        "   1 |IIIIICCCCCCCCCC       15.0",
        "I Input   C Device compute",
    ]


def test_a_longer_flagged_step_is_cut_and_marked() -> None:
    series: dict[str, Sequence[float]] = {"Input": [4.0, 8.0, 1.0], "Compilation": [0.0, 92.0, 0.0]}
    drawn = chart_text(chart(series, ["", "retrace", "partial"]), 42)
    assert drawn.splitlines()[1:4] == [
        "   0 |IIIIIIIIIIIIIIIIIIIII  4.00",
        "   1 |IIIIIIIIIIIIIIIIIIII>   100  retrace",
        "   2 |IIIII                  1.00  partial",
    ]


def test_kinds_of_steps_differ_without_colour() -> None:
    chart = StepChart("Steps", ("0", "1", "2"), {"Input": [4.0, 2.0, 4.0]}, ("",) * 3, ("train", "eval", "train"))
    assert list(map(plain_text, step_chart_lines(chart, 30)))[1:4] == [
        "train 0 |IIIIIIIIIIIIIII  4.00",
        " eval 1 :IIIIIIII         2.00",
        "train 2 |IIIIIIIIIIIIIII  4.00",
    ]


def test_where_all_steps_are_flagged_the_longest_sets_the_scale() -> None:
    drawn = chart_text(chart({"Input": [4.0, 2.0]}, ["partial", "partial"]), 43)
    assert drawn.splitlines()[1:3] == [
        "   0 |IIIIIIIIIIIIIIIIIIIIII  4.00  partial",
        "   1 |IIIIIIIIIII             2.00  partial",
    ]


@pytest.mark.parametrize("value", [0.0, None, float("nan"), -1.0])
def test_steps_without_time_have_empty_bars(value: float) -> None:
    lines = chart_text(chart({"Input": [value, value]}), 40).splitlines()
    assert [line.split("|")[1].strip() for line in lines[1:]] == ["0.000" if value in (0.0, -1.0) else "-"] * 2


def test_a_chart_without_steps_says_so() -> None:
    assert chart_text(chart({}), 80) == "no steps"


def test_a_long_run_is_sampled_with_first_last_and_slowest() -> None:
    times = [1.0] * 1234
    times[617] = 9.0
    lines = chart_text(chart({"Input": times}), 80).splitlines()
    labels = [line.split("|")[0].strip() for line in lines if "|" in line]
    assert len(labels) == 40
    assert {"0", "617", "1233"} <= set(labels)
    assert lines[-2] == "40 of 1,234 steps shown"


def test_a_sample_holds_the_slowest_step_and_the_slowest_that_sets_the_scale() -> None:
    totals, flags = [1.0] * 500, [""] * 500
    totals[3], flags[3], totals[4] = 900.0, "retrace", 2.0
    shown = shown_steps(totals, flags)
    assert len(shown) == 40
    assert {0, 3, 4, 499} <= set(shown)


def letters(*titles: str) -> str:
    return "".join(mark.text for mark in category_marks(titles))


def test_every_category_has_a_letter_of_its_own() -> None:
    categories = ("Input", "Kernel launch", "Host compute", "Device compute", "Compilation", "Output")
    others = ("Device collectives", "Device to device", "All others")
    assert letters(*categories, *others) == "ILcCMpOd."
    assert letters("Idle", "Input", "Idle", "日本") == "lIea"
    assert len({*letters(*(f"Category {number}" for number in range(40)))}) == 40


def test_categories_have_the_letters_and_colours_of_causes() -> None:
    for title, style in CATEGORY_STYLES.items():
        if style.letter.isupper() or style.letter == ".":
            assert style.letter == ROLES[style.role].letter, title
    assert category_marks(["Device compute"]) == (Part("C", ROLES["compute"].look),)
    assert category_marks(["Host compute"]) == category_marks(["Device compute"]), "the host does the computing"


def test_the_largest_remainders_get_the_cells_that_rounding_leaves() -> None:
    assert apportion([1.0, 1.6, 5.0], 10) == [1, 2, 7]
    assert apportion([5.0, 1.0, 1.6], 10) == [7, 1, 2]
    assert apportion([0.0, 1.0, 0.0], 3) == [0, 3, 0]


@given(st.lists(st.floats(0, 1e12), min_size=1, max_size=9), st.integers(0, 100))
def test_shares_of_a_bar_add_up_to_its_length(values: list[float], size: int) -> None:
    counts = apportion(values, size)
    assert sum(counts) == (size if sum(values) > 0 else 0)
    assert all(
        abs(count - value / sum(values) * size) <= 1 for count, value in zip(counts, values, strict=True) if value
    )


@given(
    st.lists(st.tuples(st.floats(), st.floats(), st.text(), st.sampled_from(["", "partial"])), max_size=50),
    st.integers(60, 120),
)
def test_no_line_is_wider_than_asked(steps: list[tuple[float, float, str, str]], width: int) -> None:
    labels, flags = tuple(step[2] for step in steps), tuple(step[3] for step in steps)
    series = {"Input": [step[0] % 1e9 for step in steps], "Other things": [step[1] % 1e9 for step in steps]}
    for line in chart_text(StepChart("Steps", labels, series, flags), width).splitlines():
        assert cells(line) <= width
        assert line.isprintable()


def test_huge_and_tiny_times_do_not_overflow() -> None:
    drawn = chart_text(chart({"Input": [5e-324, 1e308], "Output": [0.0, 1e308]}, ["", "odd"]), 400)
    assert len(drawn.splitlines()) == 4


def test_points_are_bars_of_their_height() -> None:
    points = (("dot", 2050.0, 900.0), ("conv", 56.5, 450.0))
    chart = LogChart(title="Roofs", x_title="flop/byte", y_title="TFLOP/s", points=points, lines={})
    first, second = chart_lines(chart, 40, interactive=False)
    assert "dot" in str(first)
    assert str(first).count("#") == pytest.approx(2 * str(second).count("#"), abs=1)


# --- a flame graph in letters ---


MS = FlameScale(unit="ms", divisor=1000, separator="/")


def lines_of(
    stacks: dict[tuple[str, ...], int], *, width: int = 80, interactive: bool = False, most: int = 99
) -> list[str]:
    chart = flame_chart(flame_tree(stacks), "t", MS, most=most)
    return [plain_text(line).rstrip() for line in icicle_lines(chart, width, interactive=interactive)]


def test_the_biggest_stand_first_and_are_indented() -> None:
    assert lines_of({("m", "dense"): 50_000, ("m", "conv"): 25_000, ("loss",): 25_000}) == [
        " share   ms",
        "100.0%  100  ################  all",
        " 75.0% 75.0  ############        m",
        " 50.0% 50.0  ########              dense",
        " 25.0% 25.0  ####                  conv",
        " 25.0% 25.0  ####                loss",
    ]


def test_a_box_with_nothing_but_one_other_shares_its_row() -> None:
    assert lines_of({("m", "dense", "MatMul"): 9000, ("loss",): 1000})[2:] == [
        " 90.0% 9.00  ##############      m/dense/MatMul",
        " 10.0% 1.00  ##                  loss",
    ]


def test_what_is_below_one_percent_is_cut_and_its_sum_is_said() -> None:
    """995 of 1,000 ms are of `large`; 3 and 2 ms are cut, of which the second does not even travel."""
    stacks: dict[tuple[str, ...], int] = {("large",): 995_000, ("small",): 3000, ("smaller",): 2000}
    assert lines_of(stacks)[-1] == "Omitted: 2 rows below 1%, 5.00 ms in total (0.5%)."
    assert lines_of(stacks, most=3)[-1] == "Omitted: 2 rows below 1%, 5.00 ms in total (0.5%)."
    assert "Omitted" not in lines_of({("large",): 1000})[-1]


def test_what_is_cut_inside_a_box_counts_too() -> None:
    stacks = {("m",): 500_000, ("m", "large"): 496_000, ("m", "small"): 4000}
    assert lines_of(stacks)[-1] == "Omitted: 1 row below 1%, 4.00 ms in total (0.4%)."


def test_lines_of_a_flame_graph_are_never_wider_than_the_window() -> None:
    deep = {tuple(f"a_rather_long_scope_{n}{'x' * (n % 2)}" for n in range(depth)): 1000 for depth in range(1, 40)}
    for width in (60, 80, 120):
        for interactive in (False, True):
            assert max(map(cells, lines_of(deep, width=width, interactive=interactive))) <= width


def test_names_are_safe() -> None:
    assert lines_of({("a\x1b[31m\n",): 1000})[-1].endswith(r"a\x1b[31m\n")


def test_nothing_is_said_to_be_nothing() -> None:
    assert lines_of({}) == ["nothing to show"]
    empty = FlameChart(title="t", unit="ms", names=(), labels=(), depths=(), starts=(), widths=(), own=())
    assert [plain_text(line) for line in icicle_lines(empty, 80, interactive=False)] == ["nothing to show"]
