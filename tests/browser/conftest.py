"""A real browser for pages: Debian's Chromium, driven by Playwright.

The package `chromium-headless-shell` is the same browser without windows, which takes a third of the processor time.
Without either, or without Playwright, these tests are skipped; where TFPERF_NEEDS_BROWSER is set, as in CI, they fail.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from tfperf.report.model import Report
from tfperf.report.render import render

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Dialog, Page

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-software-rasterizer",
)


def _missing(what: str) -> NoReturn:
    reason = f"{what}, so nothing looks at the page"
    if os.environ.get("TFPERF_NEEDS_BROWSER"):
        pytest.fail(f"{reason}; TFPERF_NEEDS_BROWSER is set")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Return Chromium with an empty profile."""
    chromium = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if chromium is None:
        _missing("no chromium is installed")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _missing("the package playwright is not installed")
    with sync_playwright() as playwright:
        # Without a folder of its own, Playwright gives each launch a new, empty one.
        started = playwright.chromium.launch(executable_path=chromium, args=list(_FLAGS))
        yield started
        started.close()


@pytest.fixture(scope="session")
def axe() -> str:
    """Return the script of axe-core, which checks a page for accessibility."""
    try:
        package = files("axe_playwright_python")
    except ImportError:
        _missing("the package axe-playwright-python is not installed")
    return package.joinpath("axe.min.js").read_text("utf-8")


Open = Callable[..., "Page"]

_ALL_DRAWN = """() => [...document.querySelectorAll('.chart:empty')].every(
    place => isEmpty(chartData[place.id.slice('chart-'.length)]))"""


@contextmanager
def opener(browser: Browser, folder: Path) -> Iterator[Open]:
    """Yield a function that opens a report as a page; options are those of a context (colours, size, no scripts).

    Every section is unfolded, unless the test says otherwise. A page must not complain (errors on the console, those
    of its policy among them, exceptions, dialogs), nor ask for anything but itself and what the test allows.
    """
    contexts: list[BrowserContext] = []
    complaints: list[str] = []
    requests: list[str] = []
    expected: list[str] = []

    def refuse(dialog: Dialog) -> None:
        complaints.append(dialog.message)
        dialog.dismiss()

    def open_report(
        report: Report | str,
        *,
        anchor: str = "",
        unfold: bool = True,
        also: tuple[str, ...] = (),
        first: str = "",
        **options: Any,
    ) -> Page:
        """Open a page; `first` is a script that runs before those of the page."""
        file = folder / f"page{len(contexts)}.html"
        file.write_text(report if isinstance(report, str) else render(report, "html"), encoding="utf-8")
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        context.set_default_timeout(20_000)
        contexts.append(context)
        expected.extend((file.as_uri(), *also))
        page = context.new_page()
        if first:
            page.add_init_script(first)
        page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", refuse)
        page.on("request", lambda request: requests.append(request.url.partition("#")[0]))
        page.goto(file.as_uri() + anchor)
        if options.get("java_script_enabled", True):
            page.wait_for_selector("html[data-state=ready]", state="attached")
            if unfold and page.locator("details.section:not([open])").count():
                page.evaluate("allSections().forEach(section => (section.open = true))")
                page.wait_for_function(_ALL_DRAWN)
            if unfold:
                page.evaluate("document.querySelectorAll('details.more').forEach(details => (details.open = true))")
        return page

    yield open_report
    for context in contexts:
        context.close()
    assert (complaints, requests) == ([], expected)


@pytest.fixture
def open_page(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """Return the function of `opener`; the pages are those of one test."""
    with opener(browser, tmp_path) as open_report:
        yield open_report


@pytest.fixture(scope="module")
def open_shared(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Open]:
    """Return the function of `opener`, for pages that several tests of a file look at."""
    with opener(browser, tmp_path_factory.mktemp("shared")) as open_report:
        yield open_report
