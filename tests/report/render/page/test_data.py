"""Charts as data for the page's scripts."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import numpy as np
import pytest
from builders import known
from msgspec.structs import replace
from report_builders import ops_table

from tfperf.report.model import (
    BarChart,
    BlockName,
    Blocks,
    Chart,
    Column,
    Finding,
    FlameChart,
    GroupedBars,
    Lane,
    LaneGroup,
    Links,
    LogChart,
    MemoryCurve,
    Report,
    Ribbon,
    Section,
    Sparkline,
    StepChart,
    StepPicture,
    Table,
)
from tfperf.report.render import RenderOptions, render
from tfperf.report.render.page import render_page
from tfperf.report.render.page.data import (
    MOST_BARS,
    MOST_BYTES,
    MOST_STEPS,
    PackedTable,
    chart_data,
    chart_words,
    cut_limit,
    fit,
    pack,
    picture_data,
    picture_rows,
    picture_words,
    plain_items,
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


def test_without_distinct_texts_bars_have_the_column_with_the_most() -> None:
    table = ops(["a", "b", "b"], [50.0, 30.0, 20.0])
    assert table_bars(table) == BarChart("Bars: Share", "%", ("a", "b", "b"), (50.0, 30.0, 20.0))


def test_bars_of_a_long_table_are_its_first_rows() -> None:
    chart = known(table_bars(ops([f"op{row}" for row in range(40)], [float(40 - row) for row in range(40)])))
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
        "usual": {
            "count": 2,
            "p5": 8.2,
            "median": 10.0,
            "p95": 11.8,
            "step": "7",
            "parts": {"Input": 6.0, "Output": 0.0, "Device compute": 6.0},
            "times": [8.0, 12.0],
        },
    }


def test_the_spread_of_steps_is_that_of_averaged_ones() -> None:
    """Steps of another kind have no flag, and are not averaged."""
    times = [1.0, 3.0, 2.0, 4.0, 50.0]
    chart = StepChart("Steps", tuple("abcde"), {"Input": times}, ("",) * 5, averaged=(True,) * 4 + (False,))
    usual = chart_data(chart)["usual"]
    low, middle, high = (float(f"{np.percentile(times[:4], share):.6g}") for share in (5, 50, 95))
    assert (usual["count"], usual["p5"], usual["median"], usual["p95"]) == (4, low, middle, high)
    assert (usual["step"], usual["parts"], usual["times"]) == ("b", {"Input": 3.0}, [1.0, 2.0, 3.0, 4.0])
    assert chart_data(replace(chart, averaged=(True,) + (False,) * 4))["usual"] is None


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


def test_a_line_over_something_else_than_time_names_its_axis() -> None:
    line = Sparkline(title="Memory", times=(0.0, 1.0), values=(1.0, 2.0), low=0.0, high=2.0)
    assert "x" not in chart_data(line)
    assert chart_data(replace(line, x_title="program order"))["x"] == "program order"


def test_steps() -> None:
    series = {"Input": [6.0, 2.0, 90.0], "Device compute": [6.0, 6.0, 10.0]}
    assert chart_words(StepChart("Steps", ("7", "8", "9"), series, ("", "", "retrace"))) == (
        "2 of 3 steps (flagged steps omitted): the shortest takes 8.00 ms (step 8), the longest 12.0 ms (step 7). "
        "Shares of their time: Device compute 60.0%, Input 40.0%. Cut off at 14 ms: 100 ms (step 9)."
    )


def test_kinds_of_steps_are_said() -> None:
    chart = StepChart("Steps", ("0", "1"), {"Input": [1.0, 2.0]}, ("", ""), ("train", "eval"))
    assert chart_data(chart)["kinds"] == ["train", "eval"]
    assert chart_words(chart).endswith("Filled bars are steps of kind train, striped bars of kind eval.")


def test_a_single_step_and_flagged_steps_only() -> None:
    assert chart_words(StepChart("Steps", ("7",), {"Input": [3.0]}, ("",))) == (
        "1 step: it takes 3.00 ms (step 7). Shares of its time: Input 100.0%."
    )
    assert chart_words(StepChart("Steps", ("7", "8"), {"Input": [3.0, 1.0]}, ("partial", "partial"))) == (
        "2 steps, all flagged: the shortest takes 1.00 ms (step 8), the longest 3.00 ms (step 7). "
        "Shares of their time: Input 100.0%."
    )


def test_very_many_steps() -> None:
    count = 2 * MOST_STEPS
    chart = StepChart("Steps", tuple(map(str, range(count))), {"Input": [1.0] * count}, ("",) * count)
    assert chart_words(chart).endswith("Each bar is the longest of 2 consecutive steps.")


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
    assert chart_words(line) == "2 values between 1.02 kB and 2.05 kB; each value applies until the next one."


NAN_POINTS = LogChart(
    title="", x_title="", y_title="", points=(("a", NAN, 1.0), ("b", 0.0, 1.0)), lines={"l": ((NAN, 1.0),)}
)
EMPTY_FLAME = FlameChart(title="", unit="ms", names=(), labels=(), depths=(), starts=(), widths=(), own=())


@pytest.mark.parametrize(
    ("chart", "expected"),
    [
        (StepChart("", (), {}, ()), "No steps."),
        (StepChart("", ("1",), {"Input": [NAN]}, ("",)), "1 step: it takes 0.000 ms (step 1)."),
        (StepChart("", ("1",), {}, ("",)), "1 step: it takes 0.000 ms (step 1)."),
        (BarChart("", "ms", (), ()), "nothing to show."),
        (BarChart("", "ms", ("a",), (NAN,)), "a -."),
        (GroupedBars("", "ms", (), {"before": ()}), "before: nothing to show."),
        (GroupedBars("", "ms", (), {}), None),
        (GroupedBars("", "ms", ("a",), {}), None),
        (NAN_POINTS, "at : nothing to show. Lines: l."),
        (EMPTY_FLAME, "Nothing to show."),
        (Sparkline(title="", times=(), values=(), low=0.0, high=0.0), "No values."),
        (Sparkline(title="", times=(NAN,), values=(NAN,), low=NAN, high=NAN), "1 values, all unknown."),
    ],
)
def test_a_chart_without_any_known_value_has_words_and_is_json_all_the_same(chart: Chart, expected: str | None) -> None:
    assert expected in (None, chart_words(chart))
    assert json.loads(json.dumps(chart_data(chart), allow_nan=False))["kind"]


def test_points_on_logarithmic_axes_are_those_above_zero() -> None:
    points = (("dot", 2050.0, 900.0), ("copy", 0.0, 0.0), ("conv", 56.5, 104.0))
    roof = {"peak": ((0.0, 0.0), (1.0, 5.3), (250.0, 1307.4))}
    chart = LogChart(title="Roofs", x_title="flop/byte", y_title="TFLOP/s", points=points, lines=roof)
    data = chart_data(chart)
    assert (data["kind"], data["labels"]) == ("log", ["dot", "conv"])
    assert data["points"] == [[2050.0, 900.0], [56.5, 104.0]]
    assert data["lines"] == [{"name": "peak", "points": [[1.0, 5.3], [250.0, 1307.4]]}]
    assert chart_words(chart) == "TFLOP/s at flop/byte: dot 900 at 2,050, conv 104 at 56.5. Lines: peak."


# --- tables as they travel in the page ---


def unpacked(table: Table) -> dict[str, Any]:
    """Return what the page's scripts read of the table."""
    data: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(pack(table).base64)))
    return data


def test_tables_travel_as_columns_with_texts_once() -> None:
    data = unpacked(ops_table(["a", "b", "a", None], [1.5, None, float("nan"), np.float32(2)]))
    assert data["depths"] is None
    assert data["columns"][0] == {
        "title": "Name",
        "unit": "",
        "main": True,
        "tree": False,
        "whole": None,
        "kind": "text",
        "words": ["a", "b"],
        "places": [0, 1, 0, -1],
    }
    assert data["columns"][1]["title"] == "Self (ms)"
    assert data["columns"][1]["values"] == [1.5, None, None, 2.0]
    assert [column["main"] for column in data["columns"]] == [True, True, False]


def test_a_short_name_knows_the_column_of_the_whole() -> None:
    columns = (Column("short", "Short", str, whole_key="name"), Column("name", "Name", str, level="data"))
    data = unpacked(Table("t", "T", columns, {"short": ["k"], "name": ["void k()"]}, 1))
    assert [column["whole"] for column in data["columns"]] == [1, None]


def test_a_tree_travels_with_its_depths() -> None:
    columns = (Column("stage", "Stage", str, depth_key="depth"), Column("calls", "Calls", int, "count"))
    values: dict[str, Any] = {"stage": ["Root", "Map"], "calls": [1, 2], "depth": np.array([0, 1])}
    data = unpacked(Table("t", "T", columns, values, 2))
    assert data["depths"] == [0, 1]
    assert [column["tree"] for column in data["columns"]] == [True, False]


def test_what_is_neither_number_nor_text_travels_as_what_people_see() -> None:
    columns = tuple(Column(key, key, str) for key in ("flag", "huge", "mixed", "nothing"))
    values: dict[str, list[Any]] = {"flag": [True, False], "huge": [2**64, 1], "mixed": ["a", 1.5]}
    values["nothing"] = [None, None]
    words = [column.get("words") for column in unpacked(Table("t", "T", columns, values, 2))["columns"]]
    assert words == [["yes", "no"], ["18446744073709551616", "1"], ["a", "1.5"], []]


def test_short_tables_keep_all_digits_and_long_ones_six() -> None:
    for rows, expected in ((10, 1.23456789), (3_000, 1.23457)):
        assert unpacked(ops_table(["a"] * rows, [1.23456789] * rows))["columns"][1]["values"][0] == expected


def test_values_become_plain() -> None:
    column: Any = np.array([1.5, np.nan])
    assert plain_items(column) == [1.5, None]
    assert plain_items([np.int64(3), np.str_("a"), None]) == [3, "a", None]


def test_two_pages_of_one_report_are_the_same() -> None:
    assert pack(ops_table(["a"], [1.0])) == pack(ops_table(["a"], [1.0]))


def test_other_columns_go_before_rows() -> None:
    noise = [float(value) for value in np.random.default_rng(1).random(1_000)]
    whole = pack(ops_table(["a"] * 1_000, [1.0] * 1_000, noise))
    assert whole.has_all_columns
    assert fit([whole], 10**6) == [whole]
    (fitted,) = fit([whole], len(whole.base64) // 2)
    assert not fitted.has_all_columns
    assert len(fitted.table) == 1_000
    assert len(fit([whole], 0)[0].table) == 0


def test_the_largest_table_gives_way_first() -> None:
    texts = list(map(str, np.random.default_rng(1).integers(0, 10**12, 2_000)))
    small, large = pack(ops_table(["a"] * 10, [1.0] * 10)), pack(ops_table(texts, [1.0] * 2_000))
    fitted = fit([small, large], 5_000)
    assert fitted[0] == small
    assert 0 < len(fitted[1].table) < 2_000
    assert sum(len(table.base64) for table in fitted) <= 5_000


def test_a_table_that_could_never_fit_is_packed_without_other_columns() -> None:
    count = 700_000
    packed: PackedTable = pack(ops_table(["a"] * count, [1] * count, range(count)))
    assert not packed.has_all_columns
    assert len(packed.table) == count


# --- pictures of steps as data in the page ---


LANE = Lane(title="python", rows=1, busy_percent=75.0)


def blocks(count: int, finest_ns: int = 0, names: int = 1) -> Blocks:
    """Blocks of a microsecond each, one after the other."""
    return Blocks(
        finest_ns=finest_ns,
        row=np.zeros(count, np.int32),
        start_ns=1000 * np.arange(count),
        duration_ns=np.full(count, 1000) + np.arange(count) % 97,
        name=(np.arange(count) % names).astype(np.int32),
        count=np.ones(count, np.int64),
        self_ns=np.full(count, 1000) - np.arange(count) % 89,
        note=np.full(count, -1, np.int32),
    )


def picture(*levels: Blocks, names: tuple[str, ...] = ("op",), **more: Any) -> StepPicture:
    none, rows = np.zeros(0, np.int64), np.zeros(0, np.int32)
    fields: dict[str, Any] = {
        "title": "Train step 3",
        "host": "vm",
        "step": 3,
        "duration_ns": 10_000_000,
        "categories": {"Input": 2_500_000, "Host compute": 7_500_000, "Output": 0},
        "ribbons": (
            Ribbon(
                title="Step by category",
                titles=("Input", "Host compute"),
                category=np.array([0, 1]),
                start_ns=np.array([0, 2_500_000]),
                end_ns=np.array([2_500_000, 10_000_000]),
            ),
        ),
        "groups": (LaneGroup(title="Program", lanes=(LANE,), is_open=True, load=(75, 0)),),
        "levels": levels,
        "names": tuple(BlockName(name, "Host compute", "MatMul", name) for name in names),
        "notes": (),
        "links": Links(kinds=("launches",), kind=none, from_row=rows, from_ns=none, to_row=rows, to_ns=none),
        "memory": (MemoryCurve("cpu", np.array([0, 5]), np.array([10, 20])),),
        "places": {"input_wait": (0, 2_500_000, 2_500_000)},
        **more,
    }
    return StepPicture(**fields)


def unpacked_picture(data: Any) -> Any:
    assert data["kind"] == "picture"
    return json.loads(gzip.decompress(base64.b64decode(data["packed"])))


def test_what_travels() -> None:
    data = unpacked_picture(picture_data(picture(blocks(3))))
    assert data["duration"] == 10_000_000
    assert data["levels"] == [
        {
            "finest": 0,
            "row": [0, 0, 0],
            "start": [0, 1000, 1000],
            "duration": [1000, 1001, 1002],
            "name": [0, 0, 0],
            "count": [1, 1, 1],
            "self": [1000, 999, 998],
            "note": [-1, -1, -1],
        }
    ]
    assert data["names"] == [["op", "Host compute", "MatMul", "op"]]
    assert data["ribbons"][0]["end"] == [2_500_000, 10_000_000]
    assert data["memory"] == [{"title": "cpu", "times": [0, 5], "values": [10, 20]}]


def test_a_picture_that_is_too_large_loses_its_finest_level() -> None:
    rng = np.random.default_rng(1)
    large = replace(blocks(200_000), self_ns=rng.integers(0, 1 << 40, 200_000))
    small = blocks(100, finest_ns=1000)
    data = picture_data(picture(small, large))
    assert len(data["packed"]) <= MOST_BYTES
    assert [level["finest"] for level in unpacked_picture(data)["levels"]] == [1000]
    assert len(unpacked_picture(picture_data(picture(small, blocks(20_000))))["levels"]) == 2


def test_names_that_no_level_shows_do_not_travel() -> None:
    shown = replace(blocks(4, names=2), name=np.array([3, 3, 1, 1], np.int32))
    data = unpacked_picture(picture_data(picture(shown, names=("a", "b", "c", "d"))))
    assert [name for name, *_ in data["names"]] == ["b", "d"]
    assert data["levels"][0]["name"] == [1, 1, 0, 0]


def test_words_and_rows_for_those_who_do_not_see_it() -> None:
    made = picture(blocks(3), remarks=("9 lanes are not drawn.",))
    assert picture_words(made) == "Lanes: Program (1 lane). Memory in use: cpu."
    assert picture_rows(made) == [("Host compute", "7.50 ms", "75.0%"), ("Input", "2.50 ms", "25.0%")]


def report(*pictures: StepPicture) -> Report:
    lead = Section("diagnosis", "Diagnosis", findings=(Finding("input_wait", "problem", "Waits."),), is_lead=True)
    return Report({}, {}, (lead, Section("timeline", "Timeline", charts=pictures)))


def test_a_cause_leads_to_the_picture_in_which_it_costs_most() -> None:
    cheap = picture(blocks(3), places={"input_wait": (0, 2, 3), "compilation": (0, 9, 9)})
    dear = picture(blocks(3), places={"input_wait": (0, 2_500_000, 2_500_000)})
    page = render_page(report(cheap, dear), RenderOptions())
    assert 'data-picture="chart-1" data-from="0" data-to="2500000"' in page
    assert "Show it in a step: the longest stretch of Input</a>" in page
    assert page.count('class="place"') == 1, "no finding has the other code"


def test_pages_are_the_same_each_time_and_other_formats_say_where_it_is() -> None:
    made = report(picture(blocks(50)))
    assert render_page(made, RenderOptions()) == render_page(made, RenderOptions())
    for form in ("table", "markdown"):
        assert "Shown only in the HTML report: -o report.html." in render(made, form, RenderOptions(view="whole"))


def test_hostile_names_stay_in_the_data() -> None:
    evil = "</script><img src=x onerror=alert(1)>\x1b[31m"
    made = picture(blocks(3), names=(evil,), title=evil)
    page = render_page(report(made), RenderOptions())
    assert "<img" not in page.partition("<script>")[0]
    assert "\x1b" not in json.dumps(unpacked_picture(picture_data(made)), ensure_ascii=False)
