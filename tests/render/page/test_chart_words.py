"""Charts in words, for readers who do not see them."""

from __future__ import annotations

import pytest

from tfperf.render.page.chart_data import MOST_STEPS
from tfperf.render.page.chart_words import chart_words
from tfperf.report.model import BarChart, Chart, GroupedBars, Sparkline, StepChart

NAN = float("nan")


def test_steps() -> None:
    series = {"Input": [6.0, 2.0, 90.0], "Device compute": [6.0, 6.0, 10.0]}
    assert chart_words(StepChart("Steps", ("7", "8", "9"), series, ("", "", "retrace"))) == (
        "2 of 3 steps (flagged ones left out): the shortest takes 8.00 ms (step 8), the longest 12.0 ms (step 7). "
        "Of their time: Device compute 60.0%, Input 40.0%. Cut off at 14 ms: 100.0 ms (step 9)."
    )


def test_a_single_step_and_flagged_steps_only() -> None:
    assert chart_words(StepChart("Steps", ("7",), {"Input": [3.0]}, ("",))) == (
        "1 step: it takes 3.00 ms (step 7). Of its time: Input 100.0%."
    )
    assert chart_words(StepChart("Steps", ("7", "8"), {"Input": [3.0, 1.0]}, ("partial", "partial"))) == (
        "2 steps, all flagged: the shortest takes 1.00 ms (step 8), the longest 3.00 ms (step 7). "
        "Of their time: Input 100.0%."
    )


def test_very_many_steps() -> None:
    count = 2 * MOST_STEPS
    chart = StepChart("Steps", tuple(map(str, range(count))), {"Input": [1.0] * count}, ("",) * count)
    assert chart_words(chart).endswith("Of every 2 steps in a row, the longest is drawn.")


def test_bars_name_the_first_five() -> None:
    labels = tuple(f"op{number}" for number in range(7))
    chart = BarChart("Ops", "ms", labels, (40.0, 39.0, 38.0, 37.0, None, 1.0, 1.0))
    assert chart_words(chart) == "op0 40.0 ms, op1 39.0 ms, op2 38.0 ms, op3 37.0 ms, op4 -, and 2 more."


def test_groups() -> None:
    series = {"before": (1.0, None), "after": (3.0, 4.0)}
    assert chart_words(GroupedBars("", "%", ("x", "y"), series)) == "before: x 1.0%, y -; after: x 3.0%, y 4.0%."
    assert chart_words(GroupedBars("", "count", ("x", "y"), series)) == "before: x 1, y -; after: x 3, y 4."


def test_values_over_time() -> None:
    line = Sparkline(title="Memory", times=(0.0, 1.0), values=(1024.0, 2048.0), low=0.0, high=2048.0, unit="bytes")
    assert chart_words(line) == "2 values between 1.00 KiB and 2.00 KiB; each holds until the next."


@pytest.mark.parametrize(
    ("chart", "expected"),
    [
        (StepChart("", (), {}, ()), "No steps."),
        (StepChart("", ("1",), {"Input": [NAN]}, ("",)), "1 step: it takes 0.000 ms (step 1)."),
        (BarChart("", "ms", (), ()), "nothing to show."),
        (GroupedBars("", "ms", (), {"before": ()}), "before: nothing to show."),
        (Sparkline(title="", times=(), values=(), low=0.0, high=0.0), "No values."),
        (Sparkline(title="", times=(NAN,), values=(NAN,), low=NAN, high=NAN), "1 values, all unknown."),
    ],
)
def test_charts_without_any_known_value(chart: Chart, expected: str) -> None:
    assert chart_words(chart) == expected
