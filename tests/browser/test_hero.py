"""The first screen of a page in Chromium: all of it in sight, cards that combine, code that is copied, paper."""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from builders import known
from places import SAMPLES, TRACES
from real_runs import analysis_of

from tfperf.report.model import Card, Change, Finding, Report, Section, Segment, SegmentBar
from tfperf.report.render import render

Open = Callable[..., Any]

RUNS = [
    *(SAMPLES / name for name in ("input_bound", "custom_loop", "input_fixed", "retracing")),
    *(
        TRACES / name
        for name in (
            "keras_rtx5000/gpu_bs512-20210202-131913",
            "multi_host/mirrored_2cpu/remote",
            "reported/map_fn",
            "tpu_v6e/offload",
        )
    ),
]
SIZES = ({"width": 420, "height": 800}, {"width": 1400, "height": 900})


@cache
def page_of(folder: Path) -> str:
    return render(analysis_of(folder).report(), "html")


def a_card(code: str, before: float, after: tuple[float, float], saved: tuple[float, float], **other: Any) -> Card:
    changes = (
        Change(text=f"change {code}", after=after, condition="it is so", snippet="  ds\n-     .map(f)\n+     .map(g)"),
        Change(text=f"also change {code}"),
    )
    fixed = {"role": "copy", "severity": "hint", "detail": "because", "confidence": "high", "whole": "step"}
    return Card(
        code=code, title=f"Cause {code}", cost="some", before=before, saved=saved, changes=changes, **{**fixed, **other}
    )


def a_report() -> Report:
    """Return a report with two causes in the step, whose first change also makes other time shorter, and another."""
    bar = SegmentBar(
        title="Step by cause",
        short_title="step",
        unit="ms",
        total=10.0,
        segments=(
            Segment(role="compute", title="Computing", value=4.0, share="40.0%"),
            Segment(role="input", title="Waiting", value=6.0, share="60.0%", saved=4.0, code="a"),
        ),
        spread=(9.0, 10.0, 11.0),
        values=(9.0, 10.0, 11.0),
    )
    cards = (
        a_card("a", 10.0, (5.0, 7.0), (3.0, 4.0)),
        a_card("b", 10.0, (8.0, 9.0), (1.0, 2.0)),
        a_card("c", 100.0, (50.0, 60.0), (40.0, 50.0), whole="evaluation step"),
    )
    findings = (Finding("a", "problem", "Cause a takes 60.0% of the step."), Finding("b", "hint", "Cause b."))
    return Report({}, {}, (Section("diagnosis", "Diagnosis", findings=findings, cards=cards, charts=(bar,)),))


@pytest.mark.parametrize("folder", RUNS, ids=lambda folder: folder.name)
def test_the_answer_is_seen_without_scrolling(open_page: Open, folder: Path) -> None:
    if not folder.exists():
        pytest.skip("the shared traces are not here")
    page = open_page(page_of(folder), unfold=False, viewport=SIZES[0])
    for size in SIZES:
        page.set_viewport_size(size)
        places = {
            "headline": page.locator(".hero .verdict > p").nth(1),
            "first fix": page.locator(".hero .verdict .action").first,
            "bar": page.locator(".hero svg.bar").first,
            "step time": page.get_by_text("Step time", exact=True).first,
            "rate": page.get_by_text("steps/s").first,
        }
        for name, place in places.items():
            box = known(place.bounding_box())
            assert box["height"] > 0, name
            assert box["y"] + box["height"] <= size["height"], (name, size)
            assert box["x"] >= 0, name
            assert box["x"] + box["width"] <= size["width"], (name, size)
        assert page.evaluate("scrollY") == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]


@pytest.mark.parametrize("sample", ["custom_loop", "input_bound", "retracing"])
def test_a_real_report(open_page: Open, sample: str) -> None:
    page = open_page(page_of(SAMPLES / sample))
    assert page.locator("canvas").count() >= 4
    assert page.locator("tbody tr").count() > 50
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_causes_are_cards_and_no_tables(open_page: Open) -> None:
    page = open_page(page_of(SAMPLES / "input_bound"), unfold=False)
    place = page.locator("#section-diagnosis")
    cards = place.locator(".card")
    assert cards.first.get_attribute("id") == "cause-input_wait"
    assert cards.count() > 1
    assert place.locator(".finding, .table").count() == 0
    first = cards.first.inner_text()
    for text in ("64.4% of the step", "high confidence", "\u2192", "% less", "If:", "tfperf diff", "alternatives"):
        assert text in first, text
    assert "+     .cache()" in first


def test_ticked_causes_have_a_combined_estimate(open_page: Open) -> None:
    page = open_page(a_report())
    ticks = page.get_by_role("checkbox")
    told = page.locator(".combined p")
    assert told.all_inner_texts() == ["Tick causes to see the estimate of their first changes together."]
    ticks.nth(0).check()
    assert told.first.inner_text() == "10.0 \u2192 5.00 to 7.00 ms, 30 to 50% less"
    # 4 and 2 ms of their own, and 1 ms of other time at best; 3 and 1 ms at worst.
    ticks.nth(1).check()
    assert told.first.inner_text() == "2 changes, step: 10.0 \u2192 3.00 to 6.00 ms, 40 to 70% less"
    assert "no time is counted twice" in told.last.inner_text()
    # Other steps have an estimate of their own.
    ticks.nth(2).check()
    assert told.all_inner_texts()[1] == "100 \u2192 50.0 to 60.0 ms, 40 to 50% less"


def test_code_is_copied_as_it_is_after_the_change(open_page: Open) -> None:
    page = open_page(a_report(), permissions=["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy").first.click()
    page.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == "ds\n    .map(g)"


def test_without_scripts_cards_are_whole(open_page: Open) -> None:
    page = open_page(a_report(), java_script_enabled=False)
    for text in ("Cause a takes 60.0% of the step.", "Cause b", "+ .map(g)", "it is so"):
        assert page.get_by_text(text).first.is_visible(), text
    page.get_by_text("1 alternative").first.click()
    assert page.get_by_text("also change a").is_visible()
    assert page.get_by_role("checkbox").count() == 0


COLOURS = """async url => {
    const image = new Image();
    image.src = url;
    await image.decode();
    const canvas = new OffscreenCanvas(image.width, image.height).getContext("2d");
    canvas.drawImage(image, 0, 0);
    return new Set(new Uint32Array(canvas.getImageData(0, 0, image.width, image.height).data.buffer)).size;
}"""


def test_paper_has_the_bar_the_cards_and_every_chart(open_page: Open, browser: Any) -> None:
    page = open_page(page_of(SAMPLES / "input_bound"), color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    page.evaluate("drawn.forEach(({ chart }) => chart.getZr().flush())")
    assert page.locator(".card").first.is_visible()
    assert page.locator(".tick, .combined, .snippet button").filter(visible=True).count() == 0
    assert page.evaluate("getComputedStyle(document.querySelector('.segments')).printColorAdjust") == "exact"
    places = [page.locator(".hero svg.bar"), page.locator(".hero .spark svg"), page.locator(".scale").first]
    places += page.locator("canvas").filter(visible=True).all()
    looker = browser.new_page()
    for place in places:
        picture = place.screenshot()
        url = f"data:image/png;base64,{base64.b64encode(picture).decode()}"
        assert looker.evaluate(COLOURS, url) > 2, place
    looker.close()


ONE_ROW_OF_EACH_KIND = """() => {
    for (const { rows } of document.querySelectorAll("tbody")) {
        const kinds = [...rows].map((row) => [row, ...row.querySelectorAll("*")].map(
            (part) => [part.tagName, part.className, part.getAttributeNames(), part.textContent.trim() === ""]).join());
        [...rows].filter((_, at) => kinds.indexOf(kinds[at]) < at).forEach((row) => row.remove());
    }
}"""


def test_axe_finds_nothing_serious(open_page: Open, axe: str) -> None:
    """It looks at each element for milliseconds, so of rows that differ in their texts only, one is left."""
    page = open_page(page_of(SAMPLES / "input_bound"), color_scheme="light")
    page.evaluate(ONE_ROW_OF_EACH_KIND)
    assert page.locator("tbody tr").count() > 20
    page.evaluate(axe)
    for scheme, offered in (("light", "Dark theme"), ("dark", "Light theme")):
        page.emulate_media(color_scheme=scheme)
        page.get_by_role("button", name=offered).wait_for()
        violations = page.evaluate("axe.run({ resultTypes: ['violations'] }).then(({ violations }) => violations)")
        found = {
            each["id"]: [node["html"][:160] + " | " + str(node["any"][:1])[:200] for node in each["nodes"][:5]]
            for each in violations
            if each["impact"] in ("moderate", "serious", "critical")
        }
        assert found == {}, scheme
