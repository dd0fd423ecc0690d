"""A flame graph in a real browser: it fits any window, zooms, and breaks no rule of its own policy."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tfprof_builders import CPU, model, node, ran, run_metadata

import tfperf
from tfperf.models.tfprof.options import options_from
from tfperf.models.tfprof.outputs import view_page
from tfperf.models.tfprof.views import show_tree
from tfperf.report.flame_tree import FlameScale, flame_chart, flame_tree
from tfperf.report.render.flame import drawing
from tfperf.report.render.flame.drawing import FlameDocument

Open = Callable[..., Any]


@pytest.fixture(scope="module")
def flame(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two layers; the first has an op whose name is too long for its box."""
    times = {"first/an_op_with_a_long_name": 100, "first/MatMul": 500, "second/Relu": 400}
    records = [ran(name, 1, time) for name, time in times.items()]
    folder = tmp_path_factory.mktemp("flame")
    of = model(folder, [node(name, "Op") for name in times], {1: run_metadata({CPU: records})})
    return view_page(show_tree(of, "scope", options_from({"order_by": "micros"})), "micros", "a title")


@pytest.fixture(scope="module")
def flame_shown(open_shared: Open, flame: str) -> Any:
    """Return a page for several tests; each leaves it without a zoom and a search."""
    return open_shared(flame)


@pytest.mark.parametrize("width", [1400, 420])
def test_boxes_fit_the_window(open_page: Open, flame: str, width: int) -> None:
    page = open_page(flame, size=(width, 700))
    for colours in ("light", "dark"):
        page.emulate_media(color_scheme=colours)
        outer = page.locator(".flame").bounding_box()
        places = [box.bounding_box() for box in page.locator(".box").all()]
        assert outer
        assert len(places) == 6
        assert all(place and place["x"] >= outer["x"] - 1 for place in places)
        assert all(place and place["x"] + place["width"] <= outer["x"] + outer["width"] + 1 for place in places)
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_click_zooms_in_and_escape_out(flame_shown: Any) -> None:
    page = flame_shown
    box = page.locator(".box")
    labels = [text.text_content() for text in page.locator(".box text").all()]
    assert labels == ["all", "first", "MatMul", "an_op_with_a_lo…", "second", "Relu"]
    box.nth(1).click()
    assert page.locator(".box:not(.hidden)").count() == 4
    assert page.locator(".box text").nth(3).text_content() == "an_op_with_a_long_name"
    assert page.locator(".flame-details").text_content() == "first · total 0.600 ms (60.0%) · own 0.000 ms (0.0%)"
    assert page.locator(".flame-all").is_visible()
    page.keyboard.press("Escape")
    assert page.locator(".box:not(.hidden)").count() == 6
    assert not page.locator(".flame-all").is_visible()


def test_arrow_keys_go_from_box_to_box(open_page: Open, flame: str) -> None:
    page = open_page(flame)
    for key in ("Tab", "Tab"):  # the search comes first
        page.keyboard.press(key)
    for key in ("ArrowDown", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    assert (page.locator(".flame-details").text_content() or "").startswith("second/Relu · total 0.400 ms (40.0%)")
    for key in ("ArrowUp", "ArrowLeft", "Enter"):
        page.keyboard.press(key)
    assert page.locator(".box:not(.hidden)").count() == 4


def test_without_scripts_the_boxes_are_there(open_page: Open, flame: str) -> None:
    page = open_page(flame, java_script_enabled=False)
    assert page.locator(".box").count() == 6
    assert not page.locator(".flame-all").is_visible()


def test_a_search_marks_boxes_and_says_their_share(flame_shown: Any) -> None:
    """`first` is around two boxes, of which one has it in its whole name as well: what is inside counts once."""
    page = flame_shown
    page.keyboard.press("/")
    page.keyboard.type("FIRST")
    found = page.locator(".flame-found")
    assert found.text_content() == "3 boxes, 60.0% of all"
    assert page.locator(".box.found").count() == 3
    page.locator(".flame-search").fill("relu")
    assert found.text_content() == "1 box, 40.0% of all"
    page.locator(".flame-search").fill("nothing of that name")
    assert found.text_content() == "0 boxes, 0.0% of all"
    page.keyboard.press("Escape")
    assert found.text_content() == ""
    assert page.locator(".searching").count() == 0


def test_pointing_at_a_box_moves_nothing(open_page: Open, flame: str) -> None:
    for width in (1280, 420):
        page = open_page(flame, size=(width, 700))
        before = page.locator(".flame").bounding_box()
        page.locator(".box").nth(3).hover()
        assert "an_op_with_a_long_name" in (page.locator(".flame-details").text_content() or "")
        assert page.locator(".flame").bounding_box() == before


def two_graphs(*, hostile: str = "") -> str:
    stacks: dict[tuple[str, ...], int] = {("m", f"op{number}{hostile}"): 1000 * (number + 1) for number in range(5)}
    before = dict.fromkeys(stacks, 3000)
    scale = FlameScale(unit="ms", divisor=1000, separator="/")
    charts = (
        flame_chart(flame_tree(stacks), "Device op time", scale, most=100),
        flame_chart(flame_tree(stacks, before), "Host op time", scale, most=100),
    )
    return drawing.flame_page(FlameDocument(title="a run", sentences=("The whole capture.",), charts=charts))


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_each_of_several_graphs_has_its_own_tools(open_page: Open, colours: str) -> None:
    page = open_page(two_graphs(), color_scheme=colours)
    first, second = page.locator(".flame-graph").all()
    first.locator(".box").nth(2).click()
    assert first.locator(".box:not(.hidden)").count() == 3
    assert second.locator(".box:not(.hidden)").count() == 7
    fills = {
        name: page.evaluate(f"getComputedStyle(document.querySelector('.{name} rect')).fill")
        for name in ("more3", "less3", "same")
    }
    red, blue = ([int(part) for part in re.findall(r"\d+", fills[name])] for name in ("more3", "less3"))
    assert red[0] > red[2]
    assert blue[2] > blue[0]
    assert len(set(fills.values())) == 3
    second.locator(".flame-search").fill("op3")
    assert (first.locator(".found").count(), second.locator(".found").count()) == (0, 1)


def test_hostile_names_do_nothing(open_page: Open) -> None:
    page = open_page(two_graphs(hostile='</script><script>alert("1")</script><img src=x onerror=alert(2)>\x00\u202e'))
    assert page.locator(".box").count() == 14
    assert page.locator("img").count() == 0


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_a_picture_is_drawn_by_a_browser(open_page: Open, colours: str, tmp_path: Path) -> None:
    tree = flame_tree({("m", "MatMul"): 3000, ("loss",): 1000})
    chart = flame_chart(tree, "Host op time", FlameScale(unit="ms", divisor=1000, separator="/"), most=100)
    picture = drawing.flame_picture(FlameDocument(title="a run", sentences=("What it is.",), charts=(chart,)))
    (tmp_path / "picture.svg").write_text(picture)
    uri = (tmp_path / "picture.svg").as_uri()
    markup = f"<html data-state=ready><img id=picture src='{uri}'></html>"
    page = open_page(markup, color_scheme=colours, also=(uri,))
    size = "document.getElementById('picture').naturalWidth"
    assert page.evaluate(size) == 1200


def test_a_report_has_the_same_drawing(open_page: Open, samples: Path) -> None:
    report = tfperf.load(samples / "input_bound", sections=("ops",)).report(("ops",))
    page = open_page(report)
    graph = page.locator("figure:has(.flame-graph)")
    assert graph.count() == 1
    boxes = graph.locator(".box")
    assert boxes.count() > 20
    graph.locator(".flame-search").fill("Conv2DBackprop")
    assert re.fullmatch(r"\d+ boxes, \d+\.\d% of all", graph.locator(".flame-found").text_content() or "")
    boxes.nth(1).click()
    assert graph.locator(".flame-all").is_visible()
    page.keyboard.press("Escape")
    assert not graph.locator(".flame-all").is_visible()
    assert "boxes. Total " in (graph.locator(".words").text_content() or "")
