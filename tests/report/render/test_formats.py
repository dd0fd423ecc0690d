"""Checks that every format must pass: choosing one, empty and hostile reports, widths."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tfperf.base.errors import OutputError
from tfperf.report.flame_tree import FlameScale, flame_chart, flame_tree
from tfperf.report.model import Column, Fact, Finding, Report, Section, StepChart, Table
from tfperf.report.render import FORMATS, RenderOptions, format_of_file, options_for, render
from tfperf.report.render.screen import Screen
from tfperf.report.render.text_table import cells

HOSTILE = [
    "\x1b[31mred\x1b[0m",
    "</script><script>alert(1)</script>",
    "a|b",
    "[bold]",
    "[/]",
    "\u202egnp.exe",
    "two\nlines\r\tand a tab",
    "\udc80\ud800",
    "x" * 10_000,
    "日本語/" * 100,
    "``` * _ ~ #",
    "",
    " ",
]

PEOPLE = ["table", "markdown"]


def report_with(name: str, value: Any = 1.5) -> Report:
    """Return a report that has one text in every place where a text can be."""
    columns = (Column("name", name, str), Column("value", name, float, "ms"), Column("other", "Other", str))
    table = Table(name, name, columns, {"name": [name], "value": [value], "other": [value]}, total_rows=9, note=name)
    chart = StepChart(name, (name, "2"), {name: [2.0, 1.0], "Input": [1.0, 1.0]}, (name, ""))
    flame = flame_chart(flame_tree({(name, name): 3}), name, FlameScale(unit="ms", divisor=1, separator="/"), most=9)
    section = Section(
        name,
        name,
        findings=(Finding(name, "problem", name, name), Finding(name, "hint", name)),
        facts=(Fact(name, name, name, note=name), Fact("value", name, value, "%", name)),
        charts=(chart, flame),
        tables=(table,),
        notes=(name,),
    )
    return Report({name: name, "list": [name] * 9}, {name: name}, (section,))


@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: ascii(name[:12]))
@pytest.mark.parametrize("interactive", [False, True])
def test_hostile_names_reach_every_format(format_name: str, name: str, interactive: bool) -> None:
    assert render(report_with(name), format_name, RenderOptions(interactive=interactive)).endswith("\n")


@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize("value", [None, np.nan, np.float32(1.5), np.int64(2**62), np.bool_(True), -0.0, 1e300, 2**64])
def test_odd_values_reach_every_format(format_name: str, value: Any) -> None:
    text = render(report_with("name", value), format_name).partition("<script")[0]
    assert "nan" not in text
    assert "np." not in text


@pytest.mark.parametrize("format_name", FORMATS)
def test_an_empty_report_is_never_an_empty_text(format_name: str) -> None:
    assert render(Report({}, {}), format_name).strip()
    assert render(Report({}, {}, (Section("s", "S"),)), format_name).strip()


@given(st.text(st.characters()), st.booleans())
def test_no_control_character_reaches_a_person(name: str, interactive: bool) -> None:
    for format_name in PEOPLE:
        text = render(report_with(name), format_name, RenderOptions(interactive=interactive))
        assert text.replace("\n", "").replace("…", "").isprintable()


@example("\U0001f3fb", False, 60)  # A mark that takes no cell by itself.
@given(st.text(st.characters()), st.booleans(), st.integers(60, 130))
def test_no_line_is_wider_than_the_terminal(name: str, interactive: bool, width: int) -> None:
    text = render(report_with(name), "table", RenderOptions(width=width, interactive=interactive))
    assert max(map(cells, text.splitlines())) <= width


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: ascii(name[:12]))
@pytest.mark.parametrize("interactive", [False, True])
def test_hostile_names_keep_to_80_columns_without_colour_codes(name: str, interactive: bool) -> None:
    text = render(report_with(name), "table", RenderOptions(interactive=interactive))
    assert max(map(cells, text.splitlines())) <= 80
    assert "\x1b" not in text


@pytest.mark.parametrize("width", [-1, 0, 1, 20, 40, 1000])
def test_any_width_is_accepted(width: int) -> None:
    for format_name in FORMATS:
        assert render(report_with("some/long/name" * 9), format_name, RenderOptions(width=width))


def test_files_and_pipes_get_ascii_around_the_names() -> None:
    assert render(report_with("name" * 50), "table").isascii()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a.json", "json"),
        ("dir.csv/a.CSV", "csv"),
        ("a.md", "markdown"),
        ("a.markdown", "markdown"),
        ("a.txt", "table"),
        ("a", None),
        ("a.html", "html"),
        ("a.HTM", "html"),
        ("a.xml", None),
        ("-", None),
    ],
)
def test_a_suffix_names_the_format(path: str, expected: str | None) -> None:
    assert format_of_file(Path(path)) == expected


def test_an_unknown_format_is_refused_with_the_known_ones() -> None:
    with pytest.raises(OutputError, match="unknown format 'xml'; choose one of table, json, csv, markdown, html"):
        render(Report({}, {}), "xml")


CHOOSE = """
import sys
from tfperf.report.render import render
from tfperf.report.model import Column, Report, Section, Table
table = Table("ops", "Ops", (Column("name", "Name", str),), {"name": ["größe"]}, total_rows=1)
render(Report({}, {}, (Section("ops", "Ops", tables=(table,)),)), sys.argv[1])
print(*sys.modules)
"""
LIBRARIES = {"table": set(), "json": set(), "csv": set(), "markdown": {"tabulate"}, "html": {"jinja2"}}


@pytest.mark.parametrize("format_name", FORMATS)
def test_choosing_a_format_imports_no_other(format_name: str) -> None:
    done = subprocess.run([sys.executable, "-c", CHOOSE, format_name], capture_output=True, check=True, text=True)
    modules = set(done.stdout.split())
    renderers = {each.name: each.renderer.partition(":")[0] for each in FORMATS.values()}
    assert modules & {*renderers.values()} == {renderers[format_name]}
    assert modules & {"click", "jinja2", "numpy", "pandas", "rich", "tabulate"} == LIBRARIES[format_name]


def test_the_list_of_formats_imports_no_renderer() -> None:
    code = "import sys; from tfperf.report.render import FORMATS; print(*FORMATS, *sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    listed = done.stdout.split()
    assert listed[:5] == ["table", "json", "csv", "markdown", "html"]
    assert {each.renderer.partition(":")[0] for each in FORMATS.values()} & set(listed) == set()
    assert "tfperf.report.model" not in listed


def test_no_suffix_asks_for_two_formats() -> None:
    suffixes = [suffix for each in FORMATS.values() for suffix in each.suffixes]
    assert len(suffixes) == len(set(suffixes))


def test_options_are_those_of_the_screen() -> None:
    screen = Screen(width=132, height=50, colour=True, interactive=True, pages=True)
    assert options_for(screen) == RenderOptions(width=132, colour=True, interactive=True)
    assert options_for(Screen()) == RenderOptions()
