"""The step chart, drawn small enough to count the letters."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfperf.render.charts import apportion, category_letters, shown_steps, step_chart_lines
from tfperf.render.text_table import cells, plain_text
from tfperf.report.model import StepChart

CATEGORIES = (
    "Input",
    "Kernel launch",
    "Host compute",
    "Device compute",
    "Compilation",
    "Output",
    "Collectives",
    "Device to device",
    "All others",
)


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
        "   0 |IIIIIIIIIIDDDDDDDDDD  20.0",
        "   1 |IIIIIDDDDDDDDDD       15.0",
        "I Input   D Device compute",
    ]


def test_a_longer_flagged_step_is_cut_and_marked() -> None:
    drawn = chart_text(
        chart({"Input": [4.0, 8.0, 1.0], "Compilation": [0.0, 92.0, 0.0]}, ["", "retrace", "partial"]), 42
    )
    assert drawn.splitlines()[1:4] == [
        "   0 |IIIIIIIIIIIIIIIIIIII   4.00",
        "   1 |IIIIIIIIIIIIIIIIIII>  100.0  retrace",
        "   2 |IIIII                  1.00  partial",
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


def test_every_category_has_a_letter_of_its_own() -> None:
    assert category_letters(CATEGORIES) == ("I", "L", "h", "D", "C", "O", "A", "d", ".")
    assert category_letters(("Idle", "Input", "Idle", "日本")) == ("l", "I", "e", "a")
    assert len(set(category_letters([f"Category {number}" for number in range(40)]))) == 40


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
