"""Pictures of steps in Chromium: what is drawn agrees with the table, and hover, search, keys and links work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders import event, line, marks, plane, space
from msgspec.structs import replace
from places import ROOT
from synthetic_gpu import synthetic_gpu

import tfperf
from tfperf.analysis.registry import section_names
from tfperf.report.model import Report, StepPicture
from tfperf.report.render import render
from tfperf.report.render.page.data import picture_data

Open = Callable[..., Any]

SHARED = ROOT.parent / "shared" / "traces"
"""Traces of other people's jobs, which are no part of the project."""

MOST_BYTES = 1_500_000
"""Three pictures together."""
SAMPLES = sorted((ROOT / "sample_traces").glob("*/plugins/profile/*"))
OTHERS = {path.parent for path in SHARED.rglob("*.xplane.pb") if "corrupt_tpu" not in path.parts}
ALL = [*SAMPLES, *sorted(OTHERS)]
BATCHES = [ALL[first : first + 36] for first in range(0, len(ALL), 36)]


NOT_PAINTED = """for (const paint of ["clearRect", "fill", "fillRect", "fillText", "stroke"]) {
    CanvasRenderingContext2D.prototype[paint] = () => {};
}"""
"""Painting takes most of the time where nobody looks at pixels."""


@pytest.fixture(scope="module")
def gpu_logdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gpu") / "gpu.xplane.pb"
    path.write_bytes(synthetic_gpu())
    return path


@pytest.fixture(scope="module")
def gpu_page(gpu_logdir: Path) -> str:
    return page_of(gpu_logdir)


@pytest.fixture(scope="module")
def gpu_steps(open_shared: Open, gpu_page: str) -> Any:
    """Return a page for several tests; each leaves the pictures as they were."""
    return drawn(open_shared, gpu_page)


def page_of(path: Path) -> str:
    analysis = tfperf.load(path, sections=("diagnosis", "ops", "timeline"))
    return render(analysis.report(("diagnosis", "ops", "timeline")), "html")


def drawn(open_page: Open, html: str, **options: Any) -> Any:
    page = open_page(html, **options)
    page.wait_for_function("() => document.querySelectorAll('.chart[data-state=drawn]').length === pictures.length")
    return page


RIBBONS = """() => pictures.map((picture) => ({
    width: picture.width,
    duration: picture.data.duration,
    totals: picture.data.ribbons.map((ribbon) => {
      const sums = {};
      ribbon.start.forEach((start, at) => {
        const title = ribbon.titles[ribbon.category[at]];
        sums[title] = (sums[title] ?? 0) + picture.x(ribbon.end[at]) - picture.x(start);
      });
      return sums;
    }),
}))"""
"""How wide each category is in all, in pixels."""


def check_ribbons(page: Any, pictures: list[StepPicture]) -> None:
    seen = page.evaluate(RIBBONS)
    assert len(seen) == len(pictures)
    for of_page, picture in zip(seen, pictures, strict=True):
        for title, ns in picture.categories.items():
            of_input = [part for part in ("Input wait", "Host to device") if part not in picture.categories]
            parts = of_input if title == "Input" else [title]
            cores = [sum(totals.get(part, 0.0) for part in parts) for totals in of_page["totals"]]
            assert sum(cores) / len(cores) == pytest.approx(of_page["width"] * ns / picture.duration_ns, abs=1), title


@pytest.mark.parametrize("folders", BATCHES, ids=lambda folders: f"{len(folders)}-from-{folders[0].parts[-2]}")
def test_every_trace_is_drawn_as_its_table_says(open_page: Open, folders: list[Path]) -> None:
    """Many traces on one page, since a page takes a second to open."""
    sections, pictures = [], []
    for number, folder in enumerate(folders):
        analysis = tfperf.load(folder, sections=("timeline",))
        (section,) = (each for each in analysis.report(("timeline",)).sections if each.name == "timeline")
        drawn = [chart for chart in section.charts if isinstance(chart, StepPicture)]
        assert drawn or analysis["timeline"].why_none, folder
        assert sum(len(picture_data(picture)["packed"]) for picture in drawn) <= MOST_BYTES, folder
        sections.append(replace(section, name=f"timeline{number}"))
        pictures += drawn
    page = open_page(Report({}, {}, tuple(sections)), first=NOT_PAINTED)
    page.wait_for_function(f"() => pictures.length === {len(pictures)}")
    check_ribbons(page, pictures)


def test_hover_says_what_a_block_is(gpu_steps: Any) -> None:
    """In the first picture, gemm of device 0 runs from 0.300 to 0.600 ms; above, the ribbon says it computes."""
    gpu_steps.evaluate("""() => {
      const picture = pictures[0];
      const idle = picture.data.groupOfRow.findIndex((group) => picture.data.groups[group].title === "GPU:0");
      picture.hover(picture.x(450000), picture.rowTop[idle + 1] + 5);
    }""")
    text = gpu_steps.locator(".tip").first.inner_text()
    assert text.splitlines()[0] == "ampere_sgemm_128x64_nn"
    assert "0.300 ms from 0.300 ms on, 0.300 ms of it itself" in text
    assert "op model/dense/MatMul (MatMul)" in text
    gpu_steps.evaluate("pictures[0].hover(pictures[0].x(100000), pictures[0].ribbonTops[0] + 5)")
    assert gpu_steps.locator(".tip").first.inner_text().startswith("Input wait\n0.200 ms from 0")


def test_the_pointer_itself_opens_groups_and_selects(gpu_steps: Any) -> None:
    page = gpu_steps
    lanes = page.locator(".lanes").first
    before = lanes.bounding_box()["height"]
    head = page.evaluate("pictures[0].heads.find(({ number }) => !pictures[0].isOpen[number]).y")
    lanes.click(position={"x": 30, "y": head + 8})
    assert lanes.bounding_box()["height"] > before
    x, y = page.evaluate("[pictures[0].x(450000), pictures[0].rowTop[0] + 5]")
    lanes.click(position={"x": x, "y": y})
    assert page.evaluate("pictures[0].selected.row") == 0
    assert "train" in page.locator(".block-details").first.inner_text()
    page.keyboard.press("Escape")
    lanes.click(position={"x": 30, "y": head + 8})
    assert lanes.bounding_box()["height"] == before


def test_search_highlights_and_counts(gpu_steps: Any) -> None:
    gpu_steps.locator(".lanes").first.focus()
    gpu_steps.keyboard.press("/")
    gpu_steps.keyboard.type("RELU")
    assert gpu_steps.locator(".found").first.inner_text() == "2 matches"
    assert gpu_steps.evaluate("pictures[0].matches.size") == 1
    gpu_steps.keyboard.press("Escape")
    assert gpu_steps.locator(".found").first.inner_text() == ""


def test_keys_zoom_move_and_go_back(gpu_steps: Any) -> None:
    gpu_steps.locator(".lanes").first.focus()
    whole = gpu_steps.evaluate("[pictures[0].from, pictures[0].to]")
    gpu_steps.keyboard.press("w")
    zoomed = gpu_steps.evaluate("[pictures[0].from, pictures[0].to]")
    assert zoomed[1] - zoomed[0] < whole[1] - whole[0]
    gpu_steps.keyboard.press("d")
    assert gpu_steps.evaluate("pictures[0].from") > zoomed[0]
    gpu_steps.keyboard.press("a")
    gpu_steps.keyboard.press("s")
    gpu_steps.keyboard.press("Escape")
    assert gpu_steps.evaluate("[pictures[0].from, pictures[0].to]") == whole
    gpu_steps.keyboard.press("ArrowRight")
    first = gpu_steps.evaluate("pictures[0].selected.row")
    gpu_steps.keyboard.press("ArrowDown")
    assert gpu_steps.evaluate("pictures[0].selected.row") > first
    gpu_steps.keyboard.press("Escape")
    assert gpu_steps.evaluate("pictures[0].selected") is None


def test_a_launch_leads_to_its_kernel_and_that_to_the_table(gpu_steps: Any) -> None:
    page = gpu_steps
    page.locator("details.section:has(#section-ops) > summary").click()
    page.evaluate("""() => {
      const { data } = pictures[0];
      const at = data.links.kind.findIndex((kind) => data.links.kinds[kind] === "launches");
      pictures[0].reveal(blockAt(data, finestLevel(data), data.links.fromRow[at], data.links.from[at], 0));
    }""")
    page.get_by_role("button", name="launches ampere_sgemm_128x64_nn").first.click()
    assert "ampere_sgemm_128x64_nn" in page.locator(".block-details").first.inner_text()
    page.get_by_role("button", name="Show model/dense/MatMul in the table of ops").first.click()
    page.locator("details.section[open]:has(#section-ops)").wait_for()
    page.evaluate("() => { pictures[0].select(null); pictures[0].escape(); }")


def test_a_cause_leads_to_its_place(open_page: Open) -> None:
    page = drawn(open_page, page_of(ROOT / "sample_traces" / "input_bound"), unfold=False)
    page.get_by_role("link", name="Show it in a step: the longest stretch of Input wait").first.click()
    page.wait_for_function("() => pictures.some((picture) => picture.to - picture.from < picture.data.duration)")
    shown = page.evaluate("pictures.filter((p) => p.to - p.from < p.data.duration).map((p) => [p.from, p.to])")
    assert len(shown) == 1


def test_hostile_names_are_shown_as_they_are(open_page: Open, tmp_path: Path) -> None:
    evil = "</script><img src=x onerror=alert(1)>"
    ops = [event(evil, 1000 * n + 100, 500) for n in range(4)]
    path = tmp_path / "evil.xplane.pb"
    path.write_bytes(space(plane("/host:CPU", line(evil, *marks(4, 1000), *ops))))
    page = drawn(open_page, page_of(path))
    page.evaluate("() => { pictures[0].fold(0); pictures[0].hover(pictures[0].x(200000), pictures[0].rowTop[1] + 5); }")
    assert page.locator(".tip").first.inner_text().splitlines()[0] == evil
    page.evaluate("() => pictures[0].select(blockAt(pictures[0].data, pictures[0].level, 1, 200000, 0))")
    assert evil in page.locator(".block-details").first.inner_text()
    assert page.locator("img").count() == 0


def test_readers_who_do_not_see_it_get_a_table(gpu_steps: Any) -> None:
    cells = gpu_steps.locator("figure table.visually-hidden").first.locator("td").all_inner_texts()
    assert cells[:3] == ["Device compute", "0.420 ms", "42.0%"]


def test_narrow_windows_and_both_themes(open_page: Open, gpu_page: str) -> None:
    page = drawn(open_page, gpu_page)
    for width, colours in ((1280, "dark"), (420, "dark"), (420, "light")):
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(media="screen", color_scheme=colours)
        page.wait_for_function("width => pictures[0].width <= width", arg=width)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.emulate_media(media="print")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert 0 < page.evaluate("pictures[0].width") <= 700
        page.evaluate("dispatchEvent(new Event('afterprint'))")


def test_a_whole_page_has_the_pictures(gpu_logdir: Path) -> None:
    page = render(tfperf.load(gpu_logdir, sections=section_names()).report(), "html")
    assert page.count('id="section-timeline"') == 1
    assert len(page.encode()) < 3_000_000
