"""Ways through the HTML page in Chromium: its address, Back, deep links, search over all tables, and single steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest
from builders import known
from msgspec.structs import replace
from report_builders import ops_table

import tfperf
from tfperf.report.model import BarChart, Report, Section, StepChart

if TYPE_CHECKING:
    from playwright.sync_api import Page

Open = Callable[..., Any]

SECTIONS: tuple[Literal["diagnosis", "steps", "timeline"], ...] = ("diagnosis", "steps", "timeline")
STEPS = StepChart(
    "Step time (ms)",
    ("0", "1", "2", "3", "4"),
    {"Input": [4.0, 4.0, 10.0, 4.0, 4.0], "Device compute": [6.0, 5.0, 6.5, 6.0, 70.0]},
    ("", "", "", "", "retrace"),
)


def steps_report() -> Report:
    """Return a report whose last three sections are folded."""
    stages = replace(ops_table(["Range", "Map", "Batch"], [3.0, 2.0, 1.0]), name="stages", title="Stages")
    return Report(
        {"run": "night"},
        {},
        (
            Section("overview", "Overview", notes=("A note.",) * 20),
            Section("ops", "Ops", tables=(ops_table([f"op{at}" for at in range(60)], [1.0] * 60),)),
            Section("tfdata", "tf.data", charts=(BarChart("Types", "%", ("a", "b"), (60.0, 40.0)),), tables=(stages,)),
            Section("gaps", "Gaps", notes=("A note.",) * 60),
            Section("steps", "Steps", charts=(STEPS,)),
        ),
    )


@pytest.fixture(scope="module")
def steps_page(open_shared: Open) -> Any:
    """Return a page for several tests, each of which goes back to where the page was opened."""
    return open_shared(steps_report(), unfold=False, anchor="#section-steps")


def unfolded(page: Page) -> list[str]:
    ids: list[str] = page.locator("details.section[open] .inside").evaluate_all("places => places.map(({id}) => id)")
    return ids


def top(page: Page, selector: str) -> float:
    return float(known(page.locator(selector).bounding_box())["y"])


def click_step(page: Page, number: int) -> None:
    x, y = page.evaluate(
        """number => {
          const { chart, place } = stepCharts.find(({ place }) => place.closest("#section-steps"));
          place.scrollIntoView({ block: "center" });
          const box = place.getBoundingClientRect();
          return [box.x + chart.convertToPixel({ xAxisIndex: 0 }, number), box.y + box.height / 2];
        }""",
        number,
    )
    page.mouse.click(x, y)


def test_a_click_on_a_step_compares_it_with_the_median_step(steps_page: Any) -> None:
    page = steps_page
    click_step(page, 2)
    panel = page.locator("#section-steps .compare")
    assert panel.locator(".gap").inner_text() == (
        "Step 2 takes 16.5 ms, the median step 10.0 ms: +6.50 ms (65.0% more)."
    )
    rows = panel.locator("tbody tr")
    cells = rows.evaluate_all("rows => rows.map((row) => row.innerText.trim().split(/\\s*\\t\\s*/))")
    assert cells == [["Input", "10.0 ms", "4.00 ms", "+6.00 ms"], ["Device compute", "6.50 ms", "6.00 ms", "+0.500 ms"]]
    widths = [known(bar.bounding_box())["width"] for bar in panel.locator(".bar span").all()]
    assert widths[0] + widths[1] == pytest.approx(known(panel.locator(".bar").first.bounding_box())["width"], abs=1)
    assert widths[2] / widths[0] == pytest.approx(0.4, abs=0.01)
    assert page.url.endswith("#section-steps&step=2")
    page.go_back()
    page.wait_for_function("() => location.hash === '#section-steps'")


def test_back_returns_to_the_step_and_the_section_before(steps_page: Any) -> None:
    page = steps_page
    panel = page.locator("#section-steps .compare .gap")
    click_step(page, 2)
    page.get_by_role("button", name="Next").last.click()
    assert panel.inner_text().startswith("Step 3 takes 10.0 ms")
    page.locator("nav").get_by_role("link", name="tf.data").click()
    assert page.url.endswith("#section-tfdata&step=3")
    page.go_back()
    page.wait_for_function("() => location.hash === '#section-steps&step=3'")
    page.go_back()
    page.wait_for_function("() => location.hash === '#section-steps&step=2'")
    assert panel.inner_text().startswith("Step 2 takes 16.5 ms")
    page.go_back()
    page.wait_for_function("() => location.hash === '#section-steps'")
    assert panel.count() == 0
    page.go_forward()
    page.wait_for_function("() => location.hash === '#section-steps&step=2'")
    assert panel.inner_text().startswith("Step 2 takes 16.5 ms")
    page.go_back()
    page.wait_for_function("() => location.hash === '#section-steps'")


@pytest.mark.parametrize("size", [(1400, 900), (420, 800)])
def test_a_deep_link_lands_on_a_folded_section_and_outlines_it(open_page: Open, size: tuple[int, int]) -> None:
    page = open_page(steps_report(), unfold=False, anchor="#section-tfdata&step=2", size=size)
    assert unfolded(page) == ["section-overview", "section-ops", "section-tfdata"]
    page.wait_for_function(
        "() => document.querySelector('#section-tfdata').getBoundingClientRect().top < innerHeight / 2"
    )
    assert 0 <= top(page, "#section-tfdata-title") < size[1] / 2
    assert page.locator(".is-target").evaluate_all(
        "places => places.map((place) => place.innerText.split('\\n')[0])"
    ) == ["tf.data"]
    page.locator("summary", has_text="Steps").click()
    assert page.locator("#section-steps .compare .gap").inner_text().startswith("Step 2 takes")
    # An address that somebody types leads there too.
    page.evaluate("location.hash = '#section-gaps'")
    page.wait_for_function("() => document.querySelector('#section-gaps').closest('section').matches('.is-target')")


def test_the_chart_of_steps_has_the_spread_of_averaged_steps(steps_page: Any) -> None:
    page = steps_page
    words = page.locator("#section-steps .words").first.inner_text()
    assert words == "Line: median, 10.0 ms. Band: p5 to p95, 9.15 to 15.5 ms, of 4 averaged steps."
    option = "stepCharts.find(({ place }) => place.closest('#section-steps')).chart.getOption()"
    shares = page.evaluate(f"{option}.series.find(({{ name }}) => name === 'Histogram').data")
    most = page.evaluate(f"{option}.yAxis[0].max")
    assert {int(time / most * len(shares)): share for time, share in ((9.0, 25), (10.0, 50), (16.5, 25))} == {
        place: share for place, share in enumerate(shares) if share
    }


def test_one_search_finds_rows_in_all_tables(open_page: Open) -> None:
    page = open_page(steps_report(), unfold=False)
    page.keyboard.press("/")
    page.keyboard.type("a")
    page.keyboard.press("Backspace")
    page.keyboard.type("op5")
    results = page.locator(".results")
    results.get_by_text("11 rows in 1 table").wait_for()
    assert results.get_by_role("button").all_inner_texts() == ["Ops\n11 rows"]
    page.get_by_label("Search all tables").fill("map")
    results.get_by_text("1 row in 1 table").wait_for()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert results.is_hidden()
    assert "section-tfdata" in unfolded(page)
    page.wait_for_function("() => document.querySelector('#table-1').getBoundingClientRect().bottom <= innerHeight")
    page.get_by_label("Search all tables").fill("nothing like it")
    results.get_by_text("No match in any table").wait_for()
    page.keyboard.press("Escape")
    assert results.is_hidden()
    page.get_by_label("Search all tables").fill("op5")
    page.keyboard.press("Enter")
    assert page.get_by_label("Search in Ops").input_value() == "op5"
    assert page.locator("#table-0 [role=status]").inner_text() == "Rows 1–11 of 11 matching rows (60 in all)"


def test_sections_of_more_than_two_screens_fold_their_details(open_page: Open) -> None:
    tables = tuple(
        replace(ops_table(["a", "b"], [2.0, 1.0]), name=f"t{number}", title=f"Ops {number}") for number in range(20)
    )
    report = Report({}, {}, (Section("first", "First"), Section("long", "Long", tables=tables)))
    page = open_page(report, unfold=False)
    assert known(page.locator("#section-long").bounding_box())["height"] < 2.7 * 900
    summaries = page.locator("details.more > summary")
    assert 2 < summaries.count() < 20
    assert summaries.last.inner_text().startswith("Ops 19: ")
    linked = open_page(report, unfold=False, anchor="#table-19")
    linked.wait_for_function("() => document.querySelector('#table-19').getBoundingClientRect().bottom <= innerHeight")
    assert linked.locator("#table-19 tbody tr").first.is_visible()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details.more:not([open])").count() == 0


def test_a_requested_step_opens_and_its_zoom_is_in_the_address(open_page: Open, samples: Path) -> None:
    report = tfperf.load(samples / "input_bound", sections=SECTIONS, step="slowest").report(SECTIONS)
    page = open_page(report, unfold=False)
    page.wait_for_function("() => pictures.length === 1")
    number, step = page.evaluate("[pictures[0].place.id, allCharts().find(({ opens }) => opens).step]")
    assert page.url.endswith(f"#{number}&step={step}")
    page.wait_for_function("() => pictures[0].place.closest('figure').getBoundingClientRect().top < 450")
    assert page.locator(".picture-legend").get_by_text("Input wait").count() == 1
    page.locator(".lanes").focus()
    page.keyboard.press("w")
    page.wait_for_function("() => location.hash.includes('&zoom=')")
    zoomed = page.evaluate("[pictures[0].from, pictures[0].to].map(Math.round)")
    again = open_page(report, unfold=False, anchor=page.evaluate("location.hash"))
    again.wait_for_function("() => pictures.length === 1 && !pictures[0].isWhole")
    assert again.evaluate("[pictures[0].from, pictures[0].to]") == zoomed


def test_a_folded_picture_is_drawn_on_paper(open_page: Open, samples: Path) -> None:
    report = tfperf.load(samples / "input_bound", sections=SECTIONS).report(SECTIONS)
    # Only the first two sections are unfolded.
    parts = {section.name: section for section in report.sections}
    page = open_page(
        replace(report, sections=tuple(parts[name] for name in ("diagnosis", "steps", "timeline"))), unfold=False
    )
    page.wait_for_function("() => decoded.size === allCharts().filter(({ kind }) => kind === 'picture').length")
    assert page.evaluate("pictures.length") == 0
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    colours = page.evaluate(
        """() => pictures.map(({ canvas }) => {
          const drawn = canvas.querySelector("canvas");
          const { data } = drawn.getContext("2d").getImageData(0, 0, drawn.width, drawn.height);
          return new Set(new Uint32Array(data.buffer)).size;
        })"""
    )
    assert colours
    assert min(colours) > 10
