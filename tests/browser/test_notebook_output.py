"""What a notebook shows, in Chromium: a click on a header sorts, and nothing that a profile holds runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tfperf.notebook.values import html_of
from tfperf.report.model import Column, Data, Table, table_of

Open = Callable[..., Any]

COLUMNS = Column("name", "Name", str), Column("time_ms", "Time", float, "ms"), Column("is_slow", "Slow", bool)
HOSTILE = "</td><img src=x onerror=alert(1)><script>alert(2)</script>"


def table() -> Table:
    data: Data = {"name": ["b", HOSTILE, "a"], "time_ms": [9.0, None, 10.5], "is_slow": [True, None, False]}
    return table_of("t", "Times", COLUMNS, data)


def opened_page(open_page: Open) -> Any:
    # Two outputs, as in a notebook: the second must not sort the first twice.
    outputs = html_of(table()) + html_of(table())
    return open_page(f'<!DOCTYPE html><html data-state="ready"><meta charset="utf-8"><body>{outputs}</body></html>')


def names(page: Any) -> list[str]:
    texts: list[str] = page.locator(".tfperf-table").first.locator("td:first-child").all_text_contents()
    return [text[:3] for text in texts]


def test_a_click_on_a_header_sorts_and_unknown_stays_last(open_page: Open) -> None:
    page = opened_page(open_page)
    header = page.locator(".tfperf-table").first.locator("th")
    assert names(page) == ["b", "</t", "a"]
    header.nth(1).click()
    assert names(page) == ["a", "b", "</t"]
    assert header.nth(1).get_attribute("aria-sort") == "descending"
    header.nth(1).click()
    assert names(page) == ["b", "a", "</t"]
    header.nth(0).click()
    assert names(page) == ["</t", "a", "b"]
    assert header.nth(1).get_attribute("aria-sort") is None
    header.nth(2).click()
    assert names(page) == ["b", "a", "</t"]


def test_names_run_nothing_and_ask_for_nothing(open_page: Open) -> None:
    page = opened_page(open_page)
    assert page.locator("img").count() == 0
