"""The page with a flame graph: boxes by their totals, texts that are safe, and nothing from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from tfprof_builders import CPU, model, node, op_log, ran, run_metadata

from tfperf.formats.models.input_file import TfprofInputError
from tfperf.models.tfprof import outputs
from tfperf.models.tfprof.model import Model
from tfperf.models.tfprof.options import options_from
from tfperf.models.tfprof.outputs import view_page
from tfperf.models.tfprof.views import Shown, View, show_tree

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def small(tmp_path: Path) -> Model:
    nodes = [node(name, "Op") for name in ("layer/a", "layer/b", "other", '<script>alert("1")</script>')]
    records = [ran("layer/a", 1, 600, memory=2000), ran("layer/b", 700, 200), ran("other", 900, 200)]
    log = op_log({"layer/a": {"stack": [("src/main.py", 3, "<module>"), ("src/nn.py", 5, "dense")]}})
    return model(tmp_path, nodes, {1: run_metadata({CPU: records})}, log)


def shown(of: Model, view: View = "scope", **given: Any) -> Shown:
    return show_tree(of, view, options_from({"max_depth": 100, **given}))


def boxes(page: str) -> list[tuple[str, int, float, float, list[str]]]:
    """Return label, level, left and width of each box, and what is read when one points at it."""
    (picture,) = re.findall(r"<svg class=.flame.*</svg>", page, re.DOTALL)
    root = ElementTree.fromstring(picture.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1))
    found = []
    for box in root.iter(f"{SVG}svg"):
        if box is not root:
            title, text = box.findtext(f"{SVG}title"), box.findtext(f"{SVG}text")
            assert title
            assert text is not None
            left, width = (float(box.attrib[name].rstrip("%")) for name in ("x", "width"))
            found.append((text, int(box.attrib["data-level"]), left, width, title.split("\n")))
    return found


def test_boxes_are_as_wide_as_their_totals(small: Model) -> None:
    assert boxes(view_page(shown(small), "micros", "a title")) == [
        ("all", 0, 0, 100, ["all", "total 1.00 ms (100.0%)", "own 0.000 ms (0.0%)"]),
        ("layer", 1, 0, 80, ["layer", "total 0.800 ms (80.0%)", "own 0.000 ms (0.0%)"]),
        ("a", 2, 0, 60, ["layer/a", "total 0.600 ms (60.0%)", "own 0.600 ms (60.0%)"]),
        ("b", 2, 60, 20, ["layer/b", "total 0.200 ms (20.0%)", "own 0.200 ms (20.0%)"]),
        ("other", 1, 80, 20, ["other", "total 0.200 ms (20.0%)", "own 0.200 ms (20.0%)"]),
    ]


def test_other_attributes_and_lines_of_code(small: Model) -> None:
    page = view_page(shown(small, "code"), "bytes", "a title")
    assert [(label, width, texts[1]) for label, _, _, width, texts in boxes(page)] == [
        ("all", 100, "total 2.00 kB (100.0%)"),
        ("main.py:3:<module>", 100, "total 2.00 kB (100.0%)"),
        ("nn.py:5:dense", 100, "total 2.00 kB (100.0%)"),
    ]
    assert "The width of a box shows its requested memory." in page
    assert "Total: 2.00 kB" in page


def test_what_is_not_drawn_is_said(small: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    page = view_page(shown(small), "micros", "a title")
    # "<script>alert("1")<" is a scope of its own, for its name has a slash.
    assert "Not drawn: 2 rows without time of accelerator and CPU." in page
    monkeypatch.setattr(outputs, "MOST_BOXES", 3)
    page = view_page(shown(small), "micros", "a title")
    assert [label for label, *_ in boxes(page)] == ["all", "layer", "a"]
    assert "Not drawn: 2 narrower boxes." in page


def test_names_do_nothing(tmp_path: Path) -> None:
    names = ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "\u202e\x00 &amp; {{ 7 }}"]
    records = [ran(name, 1, 10) for name in names]
    of = model(tmp_path, [node(name, "Op") for name in names], {1: run_metadata({CPU: records})})
    page = view_page(shown(of), "micros", names[0])
    assert page.count("<script>") == 1
    assert "<img" not in page
    assert "\u202e" not in page
    read = {texts[0] for *_, texts in boxes(page)}
    assert {names[0], names[1], "\\u202e\\x00 &amp; {{ 7 }}"} <= read


def test_the_page_asks_for_nothing(small: Model) -> None:
    page = view_page(shown(small), "micros", "a title")
    assert not re.search(r"(?:src|href|@import|url\()\s*[=(]?\s*[\"']?(?:https?:)?//", page)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    assert re.fullmatch(
        r"default-src &#39;none&#39;; script-src &#39;sha256-\S{44}&#39;; style-src &#39;sha256-\S{44}&#39;; "
        r"base-uri &#39;none&#39;; form-action &#39;none&#39;",
        policy,
    )
    assert " style=" not in page
    assert " onclick=" not in page


def test_what_has_no_flame_graph(small: Model) -> None:
    with pytest.raises(ValueError, match=r"'device' is not possible: use one of micros, "):
        view_page(shown(small), "device", "a title")
    with pytest.raises(TfprofInputError, match="no params, so nothing can be drawn"):
        view_page(shown(small), "params", "a title")
