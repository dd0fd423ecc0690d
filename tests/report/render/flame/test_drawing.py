"""The page and the picture: well formed, whatever names there are, and without anything from elsewhere."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from tfperf.report.flame_tree import FlameScale, flame_chart, flame_tree
from tfperf.report.model import FlameChart
from tfperf.report.render.flame.drawing import FlameDocument, flame_markup, flame_page, flame_picture, omitted_text

SVG = "{http://www.w3.org/2000/svg}"
MS = FlameScale(unit="ms", divisor=1000, separator="/")
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "\u202e\x00\x1b[31m &amp; {{ 7 }}",
    "]]>",
    "a\nb",
)


def chart_of(*names: str, most: int = 100, before: int | None = None) -> FlameChart:
    stacks: dict[tuple[str, ...], int] = {("m", name): 1000 for name in names}
    tree = flame_tree(stacks, None if before is None else dict.fromkeys(stacks, before))
    return flame_chart(tree, "a title", MS, most=most)


def document_of(*charts: FlameChart) -> FlameDocument:
    return FlameDocument(title="a run: flame graph", sentences=("What it is.",), charts=charts)


def texts(picture: str, tag: str) -> list[str]:
    return [text.text or "" for text in ElementTree.fromstring(picture).iter(f"{SVG}{tag}")]


def test_a_picture_says_what_it_is_and_shows_all_boxes() -> None:
    picture = flame_picture(document_of(chart_of("MatMul", "Relu"), chart_of("Sum")))
    read = texts(picture, "text")
    assert read[:2] == ["a run: flame graph", "What it is."]
    assert {"a title", "Total: 2.00 ms.", "MatMul", "Relu", "Sum", "all", "m"} <= set(read)
    assert "m/MatMul\ntotal 1.00 ms (50.0%)\nown 1.00 ms (50.0%)" in texts(picture, "title")


def test_a_picture_has_no_script_and_no_name_of_a_colour() -> None:
    picture = flame_picture(document_of(chart_of(*HOSTILE)))
    root = ElementTree.fromstring(picture)
    assert not [each for each in root.iter() if each.tag in (f"{SVG}script", f"{SVG}foreignObject", f"{SVG}image")]
    assert not [name for each in root.iter() for name in each.attrib if name.lower().startswith(("on", "href"))]
    assert "var(" not in picture
    assert "light-dark(" not in picture
    assert "prefers-color-scheme: dark" in picture


def test_boxes_of_a_picture_are_inside_it() -> None:
    root = ElementTree.fromstring(flame_picture(document_of(chart_of("a", "b"))))
    (graph,) = [each for each in root.iter(f"{SVG}svg") if each.get("class") == "flame"]
    places = [
        (float(box.attrib["x"].rstrip("%")), float(box.attrib["width"].rstrip("%")))
        for box in graph.findall(f"{SVG}svg")
    ]
    assert places == [(0, 100), (0, 100), (0, 50), (50, 50)]


def test_names_in_a_picture_are_cut_to_their_boxes() -> None:
    stacks: dict[tuple[str, ...], int] = {("wide",): 10_000, ("a_name_of_a_narrow_box",): 1000, ("tiny",): 1}
    picture = flame_picture(document_of(flame_chart(flame_tree(stacks), "t", MS, most=9)))
    read = texts(picture, "text")
    assert "wide" in read
    assert "a_name_of_a_n…" in read
    assert "tiny" not in read
    assert any(title.startswith("tiny\n") for title in texts(picture, "title"))


def test_names_do_nothing_in_a_page() -> None:
    page = flame_page(document_of(chart_of(*HOSTILE)))
    assert page.count("<script>") == page.count("</script>") == 1
    assert "<img" not in page
    assert "\u202e" not in page
    assert "\x1b" not in page
    assert not re.search(r"(?:src|href|@import|url\()\s*[=(]?\s*[\"']?(?:https?:)?//", page)
    assert "default-src &#39;none&#39;" in page


def test_a_comparison_says_how_it_is_read() -> None:
    page = flame_page(document_of(chart_of("MatMul", before=500)))
    assert "Red boxes have larger values than before" in page
    assert "Total: 1.00 ms, before 0.500 ms." in page
    assert "before 0.500 ms (+100.0%)" in page
    assert "Red boxes" not in flame_page(document_of(chart_of("MatMul")))


def test_boxes_of_the_other_run_only_are_hatched_and_say_that_nothing_is_left() -> None:
    tree = flame_tree({("a",): 10}, {("a",): 10, ("b",): 30})
    chart = flame_chart(tree, "title", FlameScale(unit="count", divisor=1), most=10)
    picture = flame_picture(document_of(chart))
    gone = picture[picture.index('class="box gone"') :]
    assert "total 0 (0.0%)" in gone
    assert "before 30 (-100.0%)" in gone
    assert picture.count('id="gone"') == 1
    assert "Total: 10, before 40." in picture
    assert 'id="gone"' not in flame_picture(document_of(chart_of("a")))


def test_what_is_not_drawn_is_said() -> None:
    chart = chart_of("a", "b", "c", most=3)
    assert omitted_text(chart) == "Not drawn: 2 narrower boxes."
    assert omitted_text(chart) in flame_page(document_of(chart))
    assert omitted_text(chart) in texts(flame_picture(document_of(chart)), "text")


def test_twenty_thousand_scopes_make_a_file_of_bounded_size() -> None:
    tree = flame_tree({(f"scope{n}", "x" * 300): 1000 + n for n in range(20_000)})
    document = document_of(flame_chart(tree, "t", MS, most=5000))
    assert len(flame_page(document)) < 5_000_000
    assert len(flame_picture(document)) < 5_000_000
    assert len(flame_markup(flame_chart(tree, "t", MS, most=1000))) < 1_000_000


@given(st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=5, unique=True))
def test_any_name_is_well_formed(names: list[str]) -> None:
    ElementTree.fromstring(flame_picture(document_of(chart_of(*names))))
    ElementTree.fromstring(str(flame_markup(chart_of(*names))))
