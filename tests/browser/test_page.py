"""The HTML page in Chromium: what a reader sees, and what they can do with mouse and keyboard."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from builders import known
from msgspec.structs import replace
from report_builders import HOSTILE, section_of

from tfperf.report.model import (
    BarChart,
    Chart,
    Column,
    Fact,
    Finding,
    GroupedBars,
    LogChart,
    Report,
    Section,
    Sparkline,
    StepChart,
    Table,
)
from tfperf.report.render.values import cell_text

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

Open = Callable[..., Any]

OPS = (
    Column("rank", "#", int, "count"),
    Column("name", "Name", str, "", "what the op is called"),
    Column("self_ms", "Self", float, "ms"),
    Column("share", "Share", float, "%"),
    Column("size_bytes", "Size", int, "bytes", level="data"),
)
STAGES = (Column("stage", "Stage", str, depth_key="depth"), Column("calls", "Calls", int, "count"))


def ops(count: int) -> Table:
    """Return ops named op0, op1, ... whose times rise but for the last, which is unknown."""
    data: dict[str, list[Any]] = {
        "rank": list(range(1, count + 1)),
        "name": [f"op{at}" for at in range(count)],
        "self_ms": [*(at + 0.5 for at in range(count - 1)), None],
        "share": [100.0 * at / count for at in range(count)],
        "size_bytes": [1024 * at for at in range(count)],
    }
    return Table("ops", "Ops", OPS, data, count, bar_key="share")


def tree() -> Table:
    names = ["Root", "Batch", "Map", "Zip", "Range"]
    data: dict[str, list[Any]] = {"stage": names, "calls": [1, 2, 3, 4, 5], "depth": [0, 1, 2, 2, 1]}
    return Table("stages", "Stages", STAGES, data, 5)


def whole_report(count: int = 60) -> Report:
    """Return a report with each kind of part."""
    steps = StepChart(
        "Step time (ms)",
        tuple(map(str, range(20))),
        {"Input": [4.0] * 20, "Device compute": [6.0] * 19 + [60.0]},
        ("",) * 19 + ("retrace",),
    )
    charts = (
        steps,
        GroupedBars("Categories", "ms", ("Input", "All others"), {"before": (4.0, 1.0), "after": (2.0, None)}),
        Sparkline(title="Memory in use", times=(0.0, 1.0, 2.0), values=(1e6, 4e9, 2e9), low=1e6, high=4e9),
    )
    finding = Finding("input", "problem", "HIGHLY input-bound: 64.4% of the step time.", "prefetch")
    hint = Finding("other", "hint", "Something else.", "do less")
    facts = (Fact("step", "Average step time", 15.94, "ms", "± 1 ms"), Fact("unknown", "Unknown", None, "ms"))
    return Report(
        {"run": "night", "hosts": ["a", "b"]},
        {},
        (
            Section(
                "overview",
                "Overview",
                findings=(finding, hint, Finding("i", "info", "Fine.")),
                facts=facts,
                charts=charts,
            ),
            Section("ops", "Ops", tables=(ops(count),), notes=("A note.",)),
            Section("tfdata", "tf.data", charts=(BarChart("Types", "%", ("a", "b"), (60.0, 40.0)),), tables=(tree(),)),
            Section("gaps", "Gaps"),
        ),
    )


@pytest.fixture(scope="module")
def whole_page(open_shared: Open) -> Any:
    """Return the page of `whole_report`, for tests that look at it, or leave it as it was."""
    page = open_shared(whole_report())
    # On a busy machine the frame in which charts are painted may be still to come.
    page.evaluate("drawn.forEach(({ chart }) => chart.getZr().flush())")
    return page


ROOFLINE = LogChart(
    title="Roofline",
    x_title="flop/byte",
    y_title="TFLOP/s",
    points=(("gemm", 100.0, 10.0), ("add", 0.1, 0.011)),
    lines={"peak": ((0.05, 0.05), (20.0, 20.0), (200.0, 20.0))},
    weights=(51.0, 0.5),
    weight_title="device time",
    remark="Not drawn (shares of device time): no floating-point operations: copy 51.0%.",
)
TIMES = ((129.0, 1939.0), 0, 500), ((2762.4, 2775.0), 2762, 2), ((2.06, 206.0), 0, 50)
"""Times of a line, where its axis begins, and how far apart its marks are."""


def special_charts() -> Report:
    """Return a report of charts with unusual values; each test has a section of its own."""
    count = 400
    labels = tuple(map(str, range(count)))
    with_peak = [1.0] * count
    with_peak[201] = 5.0
    many = StepChart("Steps", labels, {"Input": with_peak, "All others": [1.0] * count}, ("",) * count)
    kinds = StepChart("Steps", ("0", "1"), {"Input": [1.0, 2.0]}, ("", ""), ("train", "eval"))
    together = tuple(
        Sparkline(title=name, times=times, values=(1e6, 3e6), low=1e6, high=3e6, unit="bytes", span=(0.0, 222.0))
        for name, times in (("a", (2.0, 219.0)), ("b", (40.0, 60.0)))
    )
    lines = (
        Sparkline(title="Memory", times=times, values=(1e6, 2e6), low=1e6, high=2e6, unit="bytes")
        for times, _, _ in TIMES
    )
    charts: dict[str, tuple[Chart, ...]] = {
        "many": (many,),
        "roofline": (ROOFLINE,),
        "together": together,
        "times": tuple(lines),
        "kinds": (kinds,),
    }
    return Report({}, {}, tuple(Section(name, name, charts=of_one) for name, of_one in charts.items()))


@pytest.fixture(scope="module")
def special_page(open_shared: Open) -> Any:
    """Return the page of `special_charts`, for tests that change nothing."""
    return open_shared(special_charts())


def drawn_in(section: str, number: int = 0) -> str:
    """Return the JavaScript expression for a chart of a section: `chart` of ECharts, and its `data`."""
    return f"drawn.filter(({{ chart }}) => chart.getDom().closest('#section-{section}'))[{number}]"


def names(page: Page, table: int = 0, column: int = 1) -> list[str]:
    texts: list[str] = page.locator(f"#table-{table} tbody tr td:nth-child({column + 1})").all_inner_texts()
    return texts


def heading(page: Page, title: str) -> Locator:
    return page.get_by_role("button", name=title, exact=True)


# --- what is seen ---


def test_the_page_loads_alone_and_without_a_complaint(whole_page: Any) -> None:
    assert whole_page.title() == "night: tfperf report"
    assert whole_page.locator(".verdict").inner_text().split("\n")[0].casefold() == "problem"
    assert whole_page.get_by_text("64.4% of the step time").is_visible()


def test_every_chart_is_drawn_and_has_its_words(whole_page: Any) -> None:
    drawn = whole_page.evaluate(
        """[...document.querySelectorAll(".chart")].map(place => {
            const canvas = place.querySelector("canvas");
            const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
            return new Set(new Uint32Array(pixels.buffer)).size;
        })"""
    )
    assert len(drawn) == 5
    assert all(colours > 10 for colours in drawn)
    images = whole_page.get_by_role("img").all()
    assert len(images) == 5
    for image in images:
        words = whole_page.locator(f"#{image.get_attribute('aria-describedby')}").text_content()
        assert words is not None
        assert any(character.isdigit() for character in words)
    whole_page.get_by_role("img", name="Step time (ms)").wait_for()


def test_hovering_over_a_step_shows_its_parts_and_its_flag(whole_page: Any) -> None:
    page = whole_page
    chart = page.locator("#chart-0")
    box = known(chart.bounding_box())
    before = page.evaluate("document.querySelector('#chart-0 canvas').toDataURL()")
    chart.hover(position={"x": box["width"] * 0.5, "y": box["height"] * 0.6})
    page.wait_for_function("before => document.querySelector('#chart-0 canvas').toDataURL() !== before", arg=before)
    tooltip = page.evaluate("stepTooltip(drawn[0].data, totalsOf(drawn[0].data))([{dataIndex: 19}])")
    assert tooltip == "Step 19  (retrace): 64.0 ms\nDevice compute  60.0 ms\nInput  4.00 ms"


def test_one_odd_step_does_not_press_the_others_flat(whole_page: Any) -> None:
    assert whole_page.evaluate("drawn[0].chart.getOption().yAxis[0].max") == pytest.approx(12.0)
    assert whole_page.get_by_text("Cut off at 12 ms: 64.0 ms (step 19).").is_visible()


def test_many_steps_can_be_zoomed(special_page: Any) -> None:
    zooms = special_page.evaluate(f"{drawn_in('many')}.chart.getOption().dataZoom")
    assert [zoom["type"] for zoom in zooms] == ["slider", "inside"]


def test_the_slider_of_many_steps_keeps_each_peak(special_page: Any) -> None:
    """It draws only some points of its first series."""
    first = special_page.evaluate(f"{drawn_in('many')}.chart.getOption().series[0].data")
    assert [max(first[start::3]) for start in range(3)] == [6.0] * 3
    assert special_page.evaluate(f"{drawn_in('many')}.chart.getOption().legend[0].data") == ["Input", "All others"]


def test_every_point_lies_inside_axes_of_whole_powers_of_ten(special_page: Any) -> None:
    page, of_section = special_page, drawn_in("roofline")
    axes = page.evaluate(
        f"['xAxis', 'yAxis'].map(name => {of_section}.chart.getOption()[name][0]).map(({{min, max}}) => [min, max])"
    )
    assert axes == [[pytest.approx(0.01), 1000], [pytest.approx(0.001), 100]]
    room = page.evaluate(
        "const { chart, data } = "
        + of_section
        + """; data.points.map((point, number) => {
            const [x, y] = chart.convertToPixel({ gridIndex: 0 }, point);
            const { x: left, y: top, width, height } = chart.getModel().getComponent("grid").coordinateSystem.getRect();
            const radius = chart.getOption().series.at(-1).symbolSize(null, { dataIndex: number }) / 2;
            return Math.min(x - left, y - top, left + width - x, top + height - y) - radius;
        })"""
    )
    assert min(room) > 0
    legend = page.evaluate(f"{of_section}.chart.getOption().legend[0].data")
    assert legend == ["peak", "ops (area: share of device time)"]
    assert page.evaluate("[0.0001, 0.1, 1, 10000, 1e7].map(powerText)") == ["0.0001", "0.1", "1", "10,000", "1e7"]
    assert page.get_by_text("no floating-point operations: copy 51.0%").is_visible()


def test_charts_over_time_share_a_round_axis(special_page: Any) -> None:
    for number in range(2):
        chart = f"{drawn_in('together', number)}.chart"
        option = special_page.evaluate(
            f"['xAxis', 'yAxis'].map(name => {chart}.getOption()[name][0])"
            ".map(({ min, max, interval }) => [min, max, interval])"
        )
        assert option == [[0, 250, 50], [0, 3e6, 5e5]]
        assert special_page.evaluate(f"{chart}.getOption().series[0].data.at(-1)") == [222.0, 3e6]


# --- tables ---


def test_a_column_sorts_up_and_down_and_back_with_unknown_values_last(whole_page: Any) -> None:
    page = whole_page
    page.get_by_label("Search in Ops").fill("9")  # op59, the last one, has no time
    found = ["op9", "op19", "op29", "op39", "op49", "op59"]
    assert names(page) == found
    head = page.locator("#table-0 th").nth(2)
    heading(page, "Self (ms)").click()
    assert head.get_attribute("aria-sort") == "descending"
    assert names(page) == [*found[4::-1], "op59"]
    heading(page, "Self (ms)").click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert names(page) == found
    heading(page, "Self (ms)").click()
    assert head.get_attribute("aria-sort") is None
    page.get_by_label("Search in Ops").fill("")
    heading(page, "Name").click()
    assert names(page)[:4] == ["op0", "op1", "op10", "op11"]
    heading(page, "Name").click()
    assert names(page)[:4] == ["op9", "op8", "op7", "op6"]
    heading(page, "Name").click()
    assert names(page)[:4] == ["op0", "op1", "op2", "op3"]


def test_search_finds_names_and_says_how_many(whole_page: Any) -> None:
    page = whole_page
    page.get_by_label("Search in Ops").fill("OP5")
    assert names(page) == ["op5", *(f"op{at}" for at in range(50, 60))]
    assert page.locator("#table-0 [role=status]").inner_text() == "Rows 1–11 of 11 matching rows (60 in all)"
    page.get_by_label("Search in Ops").fill("nothing like it")
    assert names(page) == []
    assert page.locator("#table-0 [role=status]").inner_text() == "No match in 60 rows"
    page.get_by_label("Search in Ops").fill("")
    assert page.locator("#table-0 [role=status]").inner_text() == "Rows 1–25 of 60 rows"


def test_long_tables_have_pages(whole_page: Any) -> None:
    page = whole_page
    assert len(names(page)) == 25
    following, before = (page.get_by_label(f"{text} rows of Ops") for text in ("Next", "Previous"))
    assert before.is_disabled()
    following.click()
    following.click()
    assert names(page) == [f"op{at}" for at in range(50, 60)]
    assert page.locator("#table-0 [role=status]").inner_text() == "Rows 51–60 of 60 rows"
    assert following.is_disabled()
    before.click()
    before.click()
    assert names(page) == [f"op{at}" for at in range(25)]


def test_hidden_columns_can_be_shown(whole_page: Any) -> None:
    page = whole_page
    assert not heading(page, "Size").count()
    page.locator("#table-0").get_by_label("All columns").check()
    assert heading(page, "Size").is_visible()
    assert names(page, column=4)[1] == "1.02 kB"
    page.locator("#table-0").get_by_label("All columns").uncheck()
    assert not heading(page, "Size").count()


def test_a_tree_folds_and_a_sorted_one_is_a_list(whole_page: Any) -> None:
    page = whole_page
    whole = ["▾\nRoot", "▾\nBatch", "Map", "Zip", "Range"]
    assert names(page, 1, 0) == whole
    page.get_by_label("Rows below Batch").click()
    assert names(page, 1, 0) == ["▾\nRoot", "▸\nBatch", "Range"]
    assert page.get_by_label("Rows below Batch").get_attribute("aria-expanded") == "false"
    heading(page, "Calls").click()
    assert names(page, 1, 0) == ["Range", "Zip", "Map", "Batch", "Root"]
    heading(page, "Calls").click()
    heading(page, "Calls").click()
    page.get_by_label("Rows below Batch").click()
    assert names(page, 1, 0) == whole


def test_values_read_as_in_the_other_formats(whole_page: Any) -> None:
    numbers = [0.0, 0.5, 2.5, 0.125, 0.375, 1.005, 0.075, 8.345, 10.25, 99.95, 99.96, 0.0004, 0.04, 999.5, 1234567.0]
    numbers += [-0.0, -0.02, -0.0001, -0.5, -99.97, -1234567.0]
    numbers += [-1.5, 2.0**40, 1023.99, 12.25, 0.0625, 1e15, 123.45, 1e-7, *(1.1**power for power in range(-99, 300))]
    for unit in ("", "ms", "us", "%", "count", "bytes"):
        shown = whole_page.evaluate(f"numbers => numbers.map(number => valueText(number, {unit!r}))", numbers)
        expected = [cell_text(number, unit) for number in numbers]
        assert [row for row in zip(numbers, shown, expected, strict=True) if row[1] != row[2]] == [], unit
    assert whole_page.evaluate("valueText(null, 'ms')") == "-"


# --- without a mouse, without scripts, on paper ---


def test_all_can_be_done_with_the_keyboard(open_page: Open) -> None:
    page = open_page(whole_report())
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the report"
    page.keyboard.press("Enter")
    heading(page, "Share (%)").focus()
    page.keyboard.press("Enter")
    assert names(page)[0] == "op59"
    assert page.evaluate("document.activeElement.textContent") == "Share (%)"
    page.get_by_label("Rows below Root").focus()
    page.keyboard.press("Space")
    assert names(page, 1, 0) == ["▸\nRoot"]
    assert page.evaluate("document.activeElement.ariaLabel") == "Rows below Root"
    style = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert style == "solid"


def test_without_scripts_verdict_facts_findings_and_first_rows_are_there(open_page: Open) -> None:
    page = open_page(whole_report(), java_script_enabled=False)
    for summary in page.locator("details.section:not([open]) > summary").all()[::-1]:
        summary.click()
    for text in ("64.4% of the step time", "15.9 ms", "Something else.", "A note.", "The first 10 of 60 rows"):
        assert page.get_by_text(text).first.is_visible(), text
    assert names(page) == [f"op{at}" for at in range(10)]
    assert page.get_by_text("19 of 20 steps (flagged steps omitted)").is_visible()
    assert page.get_by_text("a 60.0%, b 40.0%").is_visible()


# --- folding ---


def unfolded(page: Page) -> list[str]:
    ids: list[str] = page.locator("details.section[open] .inside").evaluate_all("places => places.map(({id}) => id)")
    return ids


def test_the_first_sections_are_unfolded_and_charts_of_others_wait(open_page: Open) -> None:
    page = open_page(whole_report(), unfold=False)
    assert unfolded(page) == ["section-overview", "section-ops"]
    assert page.locator("#section-tfdata").is_hidden()
    before = page.evaluate("drawn.length")
    page.locator("summary", has_text="tf.data").click()
    page.wait_for_function("before => drawn.length === before + 1", arg=before)
    page.locator("#section-tfdata canvas").wait_for(state="visible")
    page.get_by_role("button", name="Unfold all").click()
    page.get_by_role("button", name="Fold all").click()
    assert unfolded(page) == []


def test_a_copied_link_unfolds_what_was_unfolded(open_page: Open) -> None:
    page = open_page(whole_report(), unfold=False)
    for title in ("tf.data", "Gaps"):
        page.locator("summary", has_text=title).click()
    page.wait_for_function("() => location.hash === '#section-gaps,section-tfdata'")
    copied = open_page(whole_report(), unfold=False, anchor="#section-gaps,section-tfdata")
    assert unfolded(copied) == ["section-overview", "section-ops", "section-tfdata", "section-gaps"]
    assert copied.evaluate("scrollY") > 0
    page.locator("summary", has_text="Gaps").click()
    page.wait_for_function("() => location.hash === '#section-tfdata'")


def test_a_link_unfolds_its_section_and_leaves_its_heading_in_sight(open_page: Open) -> None:
    hint = Finding("f", "problem", "Slow input: -s tfdata.")
    report = whole_report()
    first = Section("diagnosis", "Diagnosis", findings=(hint,))
    for size in ((1400, 700), (420, 700)):
        page = open_page(Report({}, {}, (first, *report.sections)), unfold=False, size=size)
        page.locator("main").get_by_role("link", name="tf.data").click()
        page.wait_for_function("() => document.querySelector('#section-tfdata').closest('details').open")
        page.wait_for_function("() => scrollY > 100")
        assert 0 < known(page.get_by_role("heading", name="tf.data").bounding_box())["y"] < 250
        assert 0 <= known(page.locator("nav").get_by_role("link", name="tf.data").bounding_box())["y"] < 700


def test_without_scripts_a_link_unfolds_its_section(open_page: Open) -> None:
    page = open_page(whole_report(), java_script_enabled=False)
    page.locator("nav").get_by_role("link", name="tf.data").click()
    page.get_by_text("a 60.0%, b 40.0%").wait_for()


def test_paper_has_every_section(open_page: Open) -> None:
    page = open_page(whole_report(), unfold=False)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert len(unfolded(page)) == 4
    assert page.evaluate("drawn.length") == 5
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert len(unfolded(page)) == 2


# --- names and axes ---


def test_names_of_bars_keep_what_tells_them_apart(whole_page: Any) -> None:
    names = [f"model/transformer/encoder/layer_{layer}/attention/query/MatMul" for layer in (1, 11, 2)]
    short = whole_page.evaluate("names => shortApart(names, 30)", names)
    assert len(set(short)) == 3
    assert all(len(name) <= 30 for name in short)
    assert all(f"{layer}/" in name for layer, name in zip((1, 11, 2), short, strict=True))
    assert whole_page.evaluate("twoLines('gradient_tape/sequential/conv2d', 20)") == "gradient_tape/\nsequential/conv2d"


def test_axes_start_at_zero_and_have_round_marks(whole_page: Any) -> None:
    for most, end, step in ((11.6, 12, 2), (256e6, 300e6, 50e6), (0.7, 0.7, 0.1), (5119, 6000, 1000)):
        axis = whole_page.evaluate("most => roundAxis(most)", most)
        assert axis["min"] == 0
        assert (axis["max"], axis["interval"]) == pytest.approx((end, step)), most


@pytest.mark.parametrize("number", range(len(TIMES)))
def test_times_begin_at_a_round_mark(special_page: Any, number: int) -> None:
    chart = f"{drawn_in('times', number)}.chart"
    time, size = special_page.evaluate(f"['xAxis', 'yAxis'].map(axis => {chart}.getOption()[axis][0])")
    _, start, step = TIMES[number]
    assert (time["min"], time["interval"]) == (start, step)
    assert (size["min"], size["max"]) == (0, 2e6)


def test_long_names_break_where_words_end_and_show_the_whole(open_page: Open) -> None:
    columns = (Column("short", "Kernel", str, whole_key="name"), Column("name", "Name", str, level="data"))
    data = {"short": ["volta_scudnn_winograd_128x128_ldg1_ldg4_relu"], "name": ["void volta(float)"]}
    cell = open_page(Report({}, {}, (Section("s", "S", tables=(Table("t", "T", columns, data, 1),)),))).locator("td")
    assert cell.get_attribute("title") == "void volta(float)"
    assert cell.inner_html().startswith("volta_<wbr>scudnn_<wbr>")
    assert cell.text_content() == data["short"][0]


def test_words_of_sentences_do_not_break(open_page: Open) -> None:
    text = "Use map(f, num_parallel_calls=tf.data.AUTOTUNE) (TensorFlow 2.4 or later)."
    section = Section("s", "S", findings=(Finding("f", "hint", text),), notes=(text,))
    page = open_page(Report({}, {}, (section, replace(section, name="t"))))
    assert page.locator(".verdict wbr, .finding wbr, .notes wbr").count() == 0


def test_a_page_of_several_hosts_names_them_in_tables(open_page: Open) -> None:
    columns = (Column("host", "Host", str, level="data"), Column("name", "Stage", str), Column("x", "X", float, "%"))
    data: dict[str, list[Any]] = {"host": ["a", "a", "b"], "name": ["Map", "Batch", "Map"], "x": [9.0, 8.0, 7.0]}
    table = Table("t", "T", columns, data, 3, bar_key="x", rows_for_people=(0, 1))
    page = open_page(Report({}, {}, (Section("s", "S", tables=(table,)),)))
    assert page.locator("tbody:visible tr").all_inner_texts() == ["a\tMap\t9.0", "a\tBatch\t8.0", "b\tMap\t7.0"]
    assert "Bars: X, on a" in page.locator(".bars").inner_text()


def test_bars_of_another_kind_of_step_are_striped(special_page: Any) -> None:
    of_section = drawn_in("kinds")
    items = f"{of_section}.chart.getOption().series[0].data"
    assert special_page.evaluate(f"[typeof {items}[0], {items}[1].itemStyle.color.repeat]") == ["number", "repeat"]
    told = special_page.evaluate(f"stepTooltip({of_section}.data, [1, 2])([{{dataIndex: 1}}])")
    assert told.startswith("Step 1 eval: 2.00 ms")


# --- paper ---


def test_it_prints_light_and_without_controls(whole_page: Any) -> None:
    page = whole_page
    page.emulate_media(color_scheme="dark")
    page.get_by_role("button", name="Light theme").wait_for()
    assert luminance(page.evaluate("getComputedStyle(document.body).backgroundColor")) < 0.1
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert page.evaluate("drawn.every(({chart}) => chart.getWidth() <= 700)")
    assert luminance(page.evaluate("colour('surface')")) > 0.9
    assert not page.locator("nav").is_visible()
    assert not page.get_by_label("Search in Ops").is_visible()
    assert page.get_by_text("64.4% of the step time").is_visible()
    page.emulate_media(media="screen")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("drawn[0].chart.getWidth()") > 700
    assert page.pdf(format="A4")[:5] == b"%PDF-"
    page.emulate_media(color_scheme="light")


# --- themes ---


CONTRAST = """() => {
    const parts = text => text.match(/[\\d.]+/g).map(Number);
    const ground = element => {
        for (let place = element; place; place = place.parentElement) {
            const colour = parts(getComputedStyle(place).backgroundColor);
            if (colour.length === 3 || colour[3] > 0) return getComputedStyle(place).backgroundColor;
        }
        return "rgb(255, 255, 255)";
    };
    const texts = [...document.querySelectorAll("body *")].filter(element =>
        element.checkVisibility() && [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim()));
    return texts.map(element => [element.textContent.slice(0, 40), getComputedStyle(element).color, ground(element)]);
}"""


def luminance(colour: str) -> float:
    """Return the relative luminance of `rgb(r, g, b)`, as WCAG 2 defines it."""
    channels = [float(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in channels]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(first: str, second: str) -> float:
    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_text_stands_out_in_both_themes(whole_page: Any) -> None:
    page = whole_page
    for scheme, offered in (("dark", "Light theme"), ("light", "Dark theme")):
        page.emulate_media(color_scheme=scheme)
        page.get_by_role("button", name=offered).wait_for()
        texts = page.evaluate(CONTRAST)
        assert len(texts) > 100
        assert [(text, contrast(ink, ground)) for text, ink, ground in texts if contrast(ink, ground) < 4.5] == []
        for ink, ground in (("text", "surface"), ("muted", "surface"), ("text", "raised")):
            assert contrast(*page.evaluate(f"['{ink}', '{ground}'].map(colour)")) >= 4.5
        # Bars are no text: WCAG wants 3 for what a chart needs to be understood, and every bar has its number in words.
        assert contrast(*page.evaluate("['accent', 'surface'].map(colour)")) >= 3


def test_the_button_changes_the_theme_and_the_charts(open_page: Open) -> None:
    page = open_page(whole_report())
    before = page.evaluate("[colour('ground'), drawn[0].chart.getOption().textStyle.color]")
    page.get_by_role("button", name="Dark theme").click()
    after = page.evaluate("[colour('ground'), drawn[0].chart.getOption().textStyle.color]")
    assert luminance(before[0]) > 0.8 > 0.1 > luminance(after[0])
    assert luminance(after[1]) > 0.5 > luminance(before[1])
    page.get_by_role("button", name="Light theme").click()
    assert page.evaluate("[colour('ground'), drawn[0].chart.getOption().textStyle.color]") == before


def test_nothing_is_wider_than_the_window(whole_page: Any) -> None:
    for width in (400, 1280):
        whole_page.set_viewport_size({"width": width, "height": 900})
        # Charts get another width after the window.
        fits = "({ chart }) => chart.getWidth() === chart.getDom().clientWidth"
        whole_page.wait_for_function(f"() => drawn.every({fits})")
        assert whole_page.evaluate("[innerWidth, document.documentElement.scrollWidth <= innerWidth]") == [width, True]


def test_landmarks_and_headings_are_in_order(whole_page: Any) -> None:
    for role in ("banner", "navigation", "main"):
        assert whole_page.get_by_role(role).count() == 1
    levels = whole_page.evaluate(
        "[...document.querySelectorAll('h1, h2, h3')].map(heading => Number(heading.tagName[1]))"
    )
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert whole_page.evaluate("document.documentElement.lang") == "en"
    assert whole_page.evaluate(
        """[...document.querySelectorAll("button, input")].every(
            control => control.ariaLabel || control.textContent.trim() || control.labels.length
        )"""
    )


# --- names that try to be markup, and very many rows ---


@pytest.mark.parametrize("hostile", [HOSTILE[:10], HOSTILE[-1:]], ids=["markup", "long"])
def test_hostile_names_are_text(open_page: Open, hostile: list[str]) -> None:
    page = open_page(Report(dict(zip(hostile, hostile, strict=True)), {}, tuple(map(section_of, hostile))))
    page.evaluate("drawn.forEach(({chart}) => chart.dispatchAction({type: 'showTip', seriesIndex: 0, dataIndex: 0}))")
    for number, name in enumerate(hostile):
        assert names(page, number, 0)[0].removeprefix("▾\n")[:3] in (name[:3], "\\x1", "\\u2", "\\ud")
        place = page.locator(f"#table-{number}")
        place.get_by_role("searchbox").fill(name[:20].replace("\x00", ""))
        # A search leaves no tree, so there may be nothing to fold.
        for button in place.get_by_role("button", name="Rows below").all()[:1]:
            button.click()
    assert page.locator("img, iframe, object, [onerror], [onfocus]").count() == 0
    assert page.locator("script").count() == 3


def test_100_000_rows_do_not_freeze_the_page(open_page: Open) -> None:
    count = 100_000
    table = replace(ops(count), columns=OPS[1:4])
    page = open_page(Report({}, {}, (Section("ops", "ops", tables=(table,)),)))
    place = page.locator("#table-0")
    place.get_by_role("button", name="Self (ms)").click()
    assert names(page, column=0)[0] == f"op{count - 2}"
    place.get_by_role("button", name="Name").click()
    place.get_by_role("searchbox").fill("op9999")
    assert names(page, column=0) == ["op9999", *(f"op9999{at}" for at in range(10))]
    place.get_by_role("searchbox").fill("")
    # Of 100,000 rows, those of one page are in the document; whatever takes seconds for each click runs out of time.
    assert page.locator("*").count() < 1_000
