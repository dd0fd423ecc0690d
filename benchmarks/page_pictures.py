"""The pictures of README and docs, drawn from the HTML page in Chromium; gallery.py draws pages to be looked at.

    python benchmarks/page_pictures.py --readme TRACE     writes docs/images/page.png
    python benchmarks/page_pictures.py --step TRACE       writes docs/images/step.png

Needs Debian's `chromium` and the package playwright (extra `dev`).
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import tfperf
from tfperf.analysis.registry import section_names
from tfperf.report.render import render

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

IMAGES = Path(__file__).parent.parent / "docs" / "images"
README_PICTURE, STEP_PICTURE = IMAGES / "page.png", IMAGES / "step.png"
_README_SIZE = (1200, 740)
_FLAGS = ("--headless", "--no-sandbox", "--disable-gpu")


@contextmanager
def browser() -> Iterator[Browser]:
    """Yield Chromium, or end with the reason why there is none."""
    chromium = shutil.which("chromium") or shutil.which("chromium-headless-shell")
    if chromium is None:
        sys.exit("chromium is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=chromium, args=list(_FLAGS))


@contextmanager
def opened(chromium: Browser, trace: Path, width: int, height: int, theme: str, scale: float = 1) -> Iterator[Page]:
    """Yield the page of a trace in a window of its own; width and height in CSS pixels."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "page.html"
        report = tfperf.load(trace, sections=section_names()).report()
        file.write_text(render(report, "html"), encoding="utf-8")
        context = chromium.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if theme == "dark" else "light",
            device_scale_factor=scale,
        )
        page = context.new_page()
        page.goto(file.as_uri())
        page.wait_for_selector("html[data-state=ready]", state="attached")
        yield page
        context.close()


def readme_picture(trace: Path) -> None:
    """Write the picture of README: the top of the page, light, at two pixels for each of CSS, with few colours."""
    README_PICTURE.parent.mkdir(exist_ok=True)
    width, height = _README_SIZE
    with browser() as chromium, opened(chromium, trace, width, height, "light", scale=2) as page:
        page.screenshot(path=README_PICTURE)
    few_colours(README_PICTURE)


def step_picture(trace: Path) -> None:
    """Write the picture of the first drawn step, light, with all lanes open."""
    IMAGES.mkdir(exist_ok=True)
    with browser() as chromium, opened(chromium, trace, 1200, 900, "light", scale=2) as page:
        page.evaluate("unfold(document.getElementById('section-timeline').closest('details'))")
        page.wait_for_function("() => pictures.length > 0")
        page.evaluate("pictures[0].isOpen.forEach((open, group) => open || pictures[0].fold(group))")
        page.wait_for_timeout(300)
        page.locator("#section-timeline figure").first.screenshot(path=STEP_PICTURE)
    few_colours(STEP_PICTURE)


def few_colours(path: Path) -> None:
    """Make a picture smaller."""
    from PIL import Image

    with Image.open(path) as picture:
        picture.convert("RGB").quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"wrote {path}: {path.stat().st_size:,} bytes")


def main() -> None:
    """Write what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--readme", type=Path, metavar="TRACE", help="write the picture of README")
    which.add_argument("--step", type=Path, metavar="TRACE", help="write the picture of a step")
    arguments = parser.parse_args()
    if arguments.readme:
        readme_picture(arguments.readme)
    else:
        step_picture(arguments.step)


if __name__ == "__main__":
    main()
