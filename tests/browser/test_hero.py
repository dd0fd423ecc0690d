"""The first screen of a page in Chromium: all of it in sight, cards that combine, code that is copied, paper."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from builders import known
from places import SAMPLES, TRACES
from real_runs import analysis_of

from tfperf.report.model import Card, Change, Finding, Report, Section, Segment, SegmentBar
from tfperf.report.render import render

Open = Callable[..., Any]
Unfold = Callable[[Any], None]

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


@pytest.fixture(scope="module")
def real_page(request: pytest.FixtureRequest, open_shared: Open) -> Iterator[Any]:
    """Return the page of a run, folded as it opens; tests that unfold it come after those of its first screen."""
    folder = request.param
    if not folder.exists():
        pytest.skip("the shared traces are not here")
    page = open_shared(render(analysis_of(folder).report(), "html"), unfold=False)
    yield page
    page.close()


def of_runs(*folders: Path) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("real_page", folders, indirect=True, ids=lambda folder: folder.name)


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


@of_runs(*RUNS)
def test_the_answer_is_seen_without_scrolling(real_page: Any) -> None:
    page = real_page
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


@of_runs(SAMPLES / "input_bound")
def test_causes_are_cards_and_no_tables(real_page: Any) -> None:
    place = real_page.locator("#section-diagnosis")
    cards = place.locator(".card")
    assert cards.first.get_attribute("id") == "cause-input_wait"
    assert cards.count() > 1
    assert place.locator(".finding, .table").count() == 0
    first = cards.first.inner_text()
    marks = ("64.4% of the step", "high confidence", "\u2192", "% less", "Assumptions:", "tfperf diff", "alternatives")
    for text in marks:
        assert text in first, text
    assert "+     .cache()" in first


@of_runs(*(SAMPLES / name for name in ("custom_loop", "input_bound", "retracing")))
def test_a_real_report(real_page: Any, unfold: Unfold) -> None:
    page = real_page
    page.set_viewport_size({"width": 1280, "height": 900})
    unfold(page)
    assert page.locator("canvas").count() >= 4
    assert page.locator("tbody tr").count() > 50
    # Charts get another width after the window.
    page.wait_for_function("() => document.documentElement.scrollWidth <= innerWidth")


def test_ticked_causes_have_a_combined_estimate(open_page: Open) -> None:
    page = open_page(a_report())
    ticks = page.get_by_role("checkbox")
    told = page.locator(".combined p")
    assert told.all_inner_texts() == [
        "Tick \u201ccombine\u201d on several causes to see what their first changes save together."
    ]
    ticks.nth(0).check()
    assert told.first.inner_text() == "10.0 \u2192 5.00 to 7.00 ms, 30 to 50% less"
    # 4 and 2 ms of their own, and at best the rest takes 5 ms of 6; 3 and 1 ms at worst.
    ticks.nth(1).check()
    assert told.first.inner_text() == "2 changes, step: 10.0 \u2192 3.33 to 6.00 ms, 40 to 67% less"
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


@of_runs(SAMPLES / "input_bound")
def test_paper_has_the_bar_the_cards_and_every_chart(real_page: Any, unfold: Unfold, open_page: Open) -> None:
    page = real_page
    unfold(page)
    page.emulate_media(color_scheme="dark")
    page.get_by_role("button", name="Light theme").wait_for()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    page.evaluate("drawn.forEach(({ chart }) => chart.getZr().flush())")
    assert page.locator(".card").first.is_visible()
    assert page.locator(".tick, .combined, .snippet button").filter(visible=True).count() == 0
    assert page.evaluate("getComputedStyle(document.querySelector('.segments')).printColorAdjust") == "exact"
    places = [page.locator(".hero svg.bar"), page.locator(".hero .spark svg"), page.locator(".scale").first]
    places += page.locator("canvas").filter(visible=True).all()
    looker = open_page("<html data-state=ready></html>", unfold=False)
    for place in places:
        picture = place.screenshot()
        url = f"data:image/png;base64,{base64.b64encode(picture).decode()}"
        assert looker.evaluate(COLOURS, url) > 2, place
    page.emulate_media(media="screen", color_scheme="light")
    page.evaluate("dispatchEvent(new Event('afterprint'))")


ONE_OF_EACH_KIND = """() => {
    for (const { children } of document.querySelectorAll("tbody, dl, svg.flame")) {
        const kinds = [...children].map((child) => [child, ...child.querySelectorAll("*")].map((part) =>
            [part.tagName, part.getAttribute("class"), part.getAttributeNames(), !part.textContent.trim()]).join());
        [...children].filter((_, at) => kinds.indexOf(kinds[at]) < at).forEach((child) => child.remove());
    }
}"""


@of_runs(SAMPLES / "input_bound")
def test_axe_finds_nothing_serious(real_page: Any, unfold: Unfold, axe: str) -> None:
    """It looks at each element for milliseconds, so of rows, facts and boxes that differ in their texts, one is left.

    A theme is a set of colours, so in the dark one, it looks at the contrast of colours.
    """
    page = real_page
    page.set_viewport_size({"width": 1280, "height": 900})
    unfold(page)
    page.evaluate(ONE_OF_EACH_KIND)
    assert page.locator("tbody tr").count() > 20
    page.evaluate(axe)
    for scheme, offered, rules in (
        ("light", "Dark theme", {}),
        ("dark", "Light theme", {"runOnly": ["color-contrast", "link-in-text-block"]}),
    ):
        page.emulate_media(color_scheme=scheme)
        page.get_by_role("button", name=offered).wait_for()
        options = {"resultTypes": ["violations"], "selectors": False, **rules}
        violations = page.evaluate("options => axe.run(options).then(({ violations }) => violations)", options)
        found = {
            each["id"]: [node["html"][:160] + " | " + str(node["any"][:1])[:200] for node in each["nodes"][:5]]
            for each in violations
            if each["impact"] in ("moderate", "serious", "critical")
        }
        assert found == {}, scheme
