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
    # One process draws all pages of a context: it starts once and compiles their scripts once.
    "--process-per-site",
    "--renderer-process-limit=1",
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


@pytest.fixture(scope="session")
def context_of(browser: Browser) -> ContextOf:
    """Return a function that returns the context of some options, the same for all pages; a page stores nothing."""
    contexts: dict[str, BrowserContext] = {}

    def context(**options: Any) -> BrowserContext:
        if repr(options) not in contexts:
            made = contexts[repr(options)] = browser.new_context(**options)
            made.set_default_timeout(20_000)
            made.new_page()  # an empty page, with which the process of all pages stays
        return contexts[repr(options)]

    return context


ContextOf = Callable[..., "BrowserContext"]
Open = Callable[..., "Page"]

_ALL_DRAWN = """() => [...document.querySelectorAll('.chart:empty')].every(
    place => isEmpty(chartData[place.id.slice('chart-'.length)]))"""


def unfold_all(page: Page) -> None:
    """Unfold every section and what is folded in it, and wait for their charts."""
    if page.locator("details.section:not([open])").count():
        page.evaluate("allSections().forEach(section => (section.open = true))")
        page.wait_for_function(_ALL_DRAWN)
    page.evaluate("document.querySelectorAll('details.more').forEach(details => (details.open = true))")


@pytest.fixture(scope="session")
def unfold() -> Callable[[Page], None]:
    """Return `unfold_all`, for pages that were opened without."""
    return unfold_all


@contextmanager
def opener(context_of: ContextOf, folder: Path) -> Iterator[Open]:
    """Yield a function that opens a report as a page; further options are those of a context (as without scripts).

    Every section is unfolded, unless the test says otherwise. A page must not complain (errors on the console, those
    of its policy among them, exceptions, dialogs), nor ask for anything but itself and what the test allows.
    """
    pages: list[Page] = []
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
        size: tuple[int, int] = (1280, 900),
        **options: Any,
    ) -> Page:
        """Open a light page; `first` is a script that runs before those of the page."""
        file = folder / f"page{len(pages)}.html"
        file.write_text(report if isinstance(report, str) else render(report, "html"), encoding="utf-8")
        expected.extend((file.as_uri(), *also))
        page = context_of(**options).new_page()
        pages.append(page)
        page.set_viewport_size({"width": size[0], "height": size[1]})
        if first:
            page.add_init_script(first)
        page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", refuse)
        page.on("request", lambda request: requests.append(request.url.partition("#")[0]))
        page.goto(file.as_uri() + anchor)
        if options.get("java_script_enabled", True):
            page.wait_for_selector("html[data-state=ready]", state="attached")
            if unfold:
                unfold_all(page)
        return page

    yield open_report
    for page in pages:
        page.close()
    assert (complaints, requests) == ([], expected)


@pytest.fixture
def open_page(context_of: ContextOf, tmp_path: Path) -> Iterator[Open]:
    """Return the function of `opener`; the pages are those of one test."""
    with opener(context_of, tmp_path) as open_report:
        yield open_report


@pytest.fixture(scope="module")
def open_shared(context_of: ContextOf, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Open]:
    """Return the function of `opener`, for pages that several tests of a file look at."""
    with opener(context_of, tmp_path_factory.mktemp("shared")) as open_report:
        yield open_report
