"""Charts as data for the page's scripts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tfperf.report.model import BarChart, Chart, Column, FlameChart, GroupedBars, LogChart, Sparkline, StepChart, Table
from tfperf.report.render.page.data import (
    MOST_BARS,
    MOST_STEPS,
    chart_data,
    chart_words,
    cut_limit,
    step_totals,
    table_bars,
)

NAN = float("nan")
OPS = (
    Column("rank", "#", int, "count"),
    Column("type", "Type", str),
    Column("name", "Name", str),
    Column("share", "Share", float, "%"),
)


def ops(names: list[str], shares: list[float | None], *, bar_key: str = "share") -> Table:
    """Return a table of ops of one type."""
    data: dict[str, list[Any]] = {"rank": list(range(len(names))), "type": ["Add"] * len(names)}
    return Table("ops", "Ops", OPS, {**data, "name": names, "share": shares}, len(names), bar_key=bar_key)


def test_bars_of_a_table_are_named_by_the_column_that_tells_rows_apart() -> None:
    table = ops(["a", "b", "c"], [50.0, 30.0, None])
    assert table_bars(table) == BarChart("Bars: Share", "%", ("a", "b"), (50.0, 30.0))
    assert table_bars(table.head(1)) is None
    assert table_bars(ops(["a", "b", "c"], [50.0, 30.0, None], bar_key="")) is None


def test_bars_of_a_long_table_are_its_first_rows() -> None:
    chart = table_bars(ops([f"op{row}" for row in range(40)], [float(40 - row) for row in range(40)]))
    assert chart is not None
    assert chart.labels == tuple(f"op{row}" for row in range(MOST_BARS))
    assert chart.title == "Bars: Share, first 15 of 40 rows"


def test_steps_travel_without_empty_categories() -> None:
    series = {"Input": [6.0, 2.0, 90.0], "Output": [0.0] * 3, "Device compute": [6.0, 6.0, 10.0]}
    assert chart_data(StepChart("Steps", ("7", "8", "9"), series, ("", "", "retrace"))) == {
        "kind": "steps",
        "labels": ["7", "8", "9"],
        "flags": ["", "", "retrace"],
        "kinds": [],
        "series": [
            {"name": "Input", "values": [6.0, 2.0, 90.0]},
            {"name": "Device compute", "values": [6.0, 6.0, 10.0]},
        ],
        "limit": 14.0,
    }


@pytest.mark.parametrize(
    ("times", "flags", "limit"),
    [([10.0, 90.0], ("", "retrace"), 12.0), ([10.0, 14.0], ("", "retrace"), None), ([10.0, 90.0], ("", ""), None)],
)
def test_only_long_flagged_steps_are_cut(times: list[float], flags: tuple[str, ...], limit: float | None) -> None:
    chart = StepChart("Steps", ("0", "1"), {"Input": times}, flags)
    assert cut_limit(chart, step_totals(chart)) == limit


def test_of_very_many_steps_the_longest_of_each_few_is_drawn() -> None:
    count = 2 * MOST_STEPS
    times = [1.0] * count
    times[7] = 50.0
    data = chart_data(StepChart("Steps", tuple(map(str, range(count))), {"Input": times}, ("",) * count))
    assert len(data["labels"]) == MOST_STEPS
    assert data["labels"][3] == "7"
    assert data["series"][0]["values"][3] == 50.0


def test_a_long_line_keeps_its_peak_and_both_ends() -> None:
    values = [1.0] * 50_000
    values[12_345] = 9.0
    data = chart_data(
        Sparkline(title="Memory", times=tuple(map(float, range(50_000))), values=tuple(values), low=1.0, high=9.0)
    )
    assert len(data["times"]) < 5_000
    assert (data["times"][0], data["times"][-1], max(data["values"])) == (0.0, 49_999.0, 9.0)


@pytest.mark.parametrize(
    "chart",
    [
        StepChart("", ("1",), {"Input": [NAN]}, ("",)),
        StepChart("", ("1",), {}, ("",)),
        StepChart("", (), {}, ()),
        BarChart("", "ms", (), ()),
        BarChart("", "ms", ("a",), (NAN,)),
        GroupedBars("", "ms", (), {}),
        GroupedBars("", "ms", ("a",), {}),
        LogChart(
            title="", x_title="", y_title="", points=(("a", NAN, 1.0), ("b", 0.0, 1.0)), lines={"l": ((NAN, 1.0),)}
        ),
        FlameChart(title="", unit="ms", names=(), labels=(), depths=(), starts=(), widths=(), own=()),
        Sparkline(title="", times=(), values=(), low=0.0, high=0.0),
        Sparkline(title="", times=(NAN,), values=(NAN,), low=NAN, high=NAN),
    ],
)
def test_a_chart_without_any_known_value_is_json_all_the_same(chart: Chart) -> None:
    assert json.loads(json.dumps(chart_data(chart), allow_nan=False))["kind"]


def test_steps() -> None:
    series = {"Input": [6.0, 2.0, 90.0], "Device compute": [6.0, 6.0, 10.0]}
    assert chart_words(StepChart("Steps", ("7", "8", "9"), series, ("", "", "retrace"))) == (
        "2 of 3 steps (flagged ones omitted): the shortest takes 8.00 ms (step 8), the longest 12.0 ms (step 7). "
        "Of their time: Device compute 60.0%, Input 40.0%. Cut off at 14 ms: 100 ms (step 9)."
    )


def test_kinds_of_steps_are_said() -> None:
    chart = StepChart("Steps", ("0", "1"), {"Input": [1.0, 2.0]}, ("", ""), ("train", "eval"))
    assert chart_data(chart)["kinds"] == ["train", "eval"]
    assert chart_words(chart).endswith("Filled bars are train steps, striped ones eval steps.")


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
    assert chart_words(line) == "2 values between 1.02 kB and 2.05 kB; each holds until the next."


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


def test_points_on_logarithmic_axes_are_those_above_zero() -> None:
    points = (("dot", 2050.0, 900.0), ("copy", 0.0, 0.0), ("conv", 56.5, 104.0))
    roof = {"peak": ((0.0, 0.0), (1.0, 5.3), (250.0, 1307.4))}
    chart = LogChart(title="Roofs", x_title="flop/byte", y_title="TFLOP/s", points=points, lines=roof)
    data = chart_data(chart)
    assert (data["kind"], data["labels"]) == ("log", ["dot", "conv"])
    assert data["points"] == [[2050.0, 900.0], [56.5, 104.0]]
    assert data["lines"] == [{"name": "peak", "points": [[1.0, 5.3], [250.0, 1307.4]]}]
    assert chart_words(chart) == "TFLOP/s at flop/byte: dot 900 at 2,050, conv 104 at 56.5. Lines: peak."
