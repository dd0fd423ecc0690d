"""A flame graph in a real browser: it fits any window, zooms, and breaks no rule of its own policy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tfprof_builders import CPU, model, node, ran, run_metadata

from tfperf.tfprof.flame import view_page
from tfperf.tfprof.options import options_from
from tfperf.tfprof.views import show_tree

Open = Callable[..., Any]


@pytest.fixture
def page(tmp_path: Path) -> str:
    """Two layers; the first has an op whose name is too long for its box."""
    times = {"first/an_op_with_a_long_name": 100, "first/MatMul": 500, "second/Relu": 400}
    records = [ran(name, 1, time) for name, time in times.items()]
    of = model(tmp_path, [node(name, "Op") for name in times], {1: run_metadata({CPU: records})})
    return view_page(show_tree(of, "scope", options_from({"order_by": "micros"})), "micros", "a title")


@pytest.mark.parametrize("width", [1400, 420])
@pytest.mark.parametrize("colours", ["light", "dark"])
def test_boxes_fit_the_window(open_page: Open, page: str, width: int, colours: str) -> None:
    opened = open_page(page, viewport={"width": width, "height": 700}, color_scheme=colours)
    outer = opened.page.locator(".flame").bounding_box()
    places = [box.bounding_box() for box in opened.page.locator(".box").all()]
    assert outer
    assert len(places) == 6
    assert all(place and place["x"] >= outer["x"] - 1 for place in places)
    assert all(place and place["x"] + place["width"] <= outer["x"] + outer["width"] + 1 for place in places)
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    assert not opened.complaints
    assert len(opened.requests) == 1


def test_a_click_zooms_in_and_escape_out(open_page: Open, page: str) -> None:
    opened = open_page(page)
    box = opened.page.locator(".box")
    labels = [text.text_content() for text in opened.page.locator(".box text").all()]
    assert labels == ["all", "first", "MatMul", "an_op_with_a_lo…", "second", "Relu"]
    box.nth(1).click()
    assert opened.page.locator(".box:not(.hidden)").count() == 4
    assert opened.page.locator(".box text").nth(3).text_content() == "an_op_with_a_long_name"
    assert (
        opened.page.locator(".flame-details").text_content() == "first · total 0.600 ms (60.0%) · own 0.000 ms (0.0%)"
    )
    assert opened.page.locator(".flame-all").is_visible()
    opened.page.keyboard.press("Escape")
    assert opened.page.locator(".box:not(.hidden)").count() == 6
    assert not opened.page.locator(".flame-all").is_visible()
    assert not opened.complaints


def test_arrow_keys_go_from_box_to_box(open_page: Open, page: str) -> None:
    opened = open_page(page)
    for key in ("Tab", "Tab"):  # the search comes first
        opened.page.keyboard.press(key)
    for key in ("ArrowDown", "ArrowRight", "ArrowDown"):
        opened.page.keyboard.press(key)
    assert (opened.page.locator(".flame-details").text_content() or "").startswith(
        "second/Relu · total 0.400 ms (40.0%)"
    )
    for key in ("ArrowUp", "ArrowLeft", "Enter"):
        opened.page.keyboard.press(key)
    assert opened.page.locator(".box:not(.hidden)").count() == 4
    assert not opened.complaints


def test_without_scripts_the_boxes_are_there(open_page: Open, page: str) -> None:
    opened = open_page(page, java_script_enabled=False)
    assert opened.page.locator(".box").count() == 6
    assert not opened.page.locator(".flame-all").is_visible()
    assert not opened.complaints
