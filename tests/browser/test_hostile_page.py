"""The HTML page in Chromium with names that try to be markup, and with very many rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tfperf.report.flame_tree import FlameScale, flame_chart, flame_tree
from tfperf.report.model import Column, Fact, Finding, GroupedBars, Report, Section, StepChart, Table

if TYPE_CHECKING:
    from playwright.sync_api import Page

Open = Callable[..., Any]


def ops(count: int) -> Table:
    """Return ops named op0, op1, ... whose times rise but for the last, which is unknown."""
    columns = (
        Column("name", "Name", str),
        Column("self_ms", "Self", float, "ms"),
        Column("share", "Share", float, "%"),
    )
    data: dict[str, list[Any]] = {
        "name": [f"op{at}" for at in range(count)],
        "self_ms": [*(at + 0.5 for at in range(count - 1)), None],
        "share": [100.0 * at / count for at in range(count)],
    }
    return Table("ops", "Ops", columns, data, count, bar_key="share")


def names(page: Page, table: int) -> list[str]:
    return page.locator(f"#table-{table} tbody tr td:nth-child(1)").all_inner_texts()


HOSTILE = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "\"' onfocus='alert(1)' autofocus='",
    "\u202egnp.exe",
    "\x1b[31m\x00",
    "\udc80",
    "javascript:alert(1)",
    "{{x}} ${x} {x|y}",
    "x" * 100_000,
]


def section_of(name: str) -> Section:
    """Return a section in which all is called so."""
    columns = (Column("name", name, str, depth_key="depth", meaning=name), Column("ms", name, float, "ms"))
    data: dict[str, list[Any]] = {"name": [name + str(at) for at in range(12)], "ms": [1.0] * 12, "depth": [0, 1] * 6}
    charts = (
        StepChart(name, (name, "2"), {name: [2.0, 1.0]}, (name, "")),
        GroupedBars(name, "ms", (name,), {name: (1.0,)}),
        flame_chart(flame_tree({(name, name): 1}), name, FlameScale(unit="ms", divisor=1, separator="/"), most=9),
    )
    return Section(
        name,
        name,
        findings=(Finding(name, "problem", name, name),),
        facts=(Fact(name, name, name, note=name),),
        charts=charts,
        tables=(Table(name, name, columns, data, 12, note=name, bar_key="ms"),),
        notes=(name,),
    )


@pytest.mark.parametrize("hostile", [HOSTILE[:-1], HOSTILE[-1:]], ids=["markup", "long"])
def test_hostile_names_are_text(open_page: Open, hostile: list[str]) -> None:
    opened = open_page(Report(dict(zip(hostile, hostile, strict=True)), {}, tuple(map(section_of, hostile))))
    page = opened.page
    page.evaluate("drawn.forEach(({chart}) => chart.dispatchAction({type: 'showTip', seriesIndex: 0, dataIndex: 0}))")
    for number, name in enumerate(hostile):
        assert names(page, number)[0].removeprefix("▾\n")[:3] in (name[:3], "\\x1", "\\u2", "\\ud")
        place = page.locator(f"#table-{number}")
        place.get_by_role("searchbox").fill(name[:20].replace("\x00", ""))
        # A search leaves no tree, so there may be nothing to fold.
        for button in place.get_by_role("button", name="Rows below").all()[:1]:
            button.click()
    assert opened.complaints == []
    assert len(opened.requests) == 1
    assert page.locator("img, iframe, object, [onerror], [onfocus]").count() == 0
    assert page.locator("script").count() == 3


def test_100_000_rows_do_not_freeze_the_page(open_page: Open) -> None:
    count = 100_000
    report = Report(
        {}, {}, (Section("steps", "Steps", tables=(ops(count),)), Section("ops", "Ops", tables=(ops(count),)))
    )
    opened = open_page(report)
    page = opened.page
    for table in (0, 1):
        place = page.locator(f"#table-{table}")
        place.get_by_role("button", name="Self (ms)").click()
        assert names(page, table)[0] == f"op{count - 2}"
        place.get_by_role("button", name="Name").click()
        place.get_by_role("searchbox").fill("op9999")
        assert names(page, table) == ["op9999", *(f"op9999{at}" for at in range(10))]
        place.get_by_role("searchbox").fill("")
    # Of 200,000 rows, those of two pages are in the document; whatever takes seconds for each click runs out of time.
    assert page.locator("*").count() < 2_000
    assert opened.complaints == []
