"""Opens a file or an address in the browser, where there is one in front of the user."""

from __future__ import annotations

from pathlib import Path

from tfperf.cli.options import say
from tfperf.export.timeline.viewer_server import has_browser


def new_page(name: str) -> Path:
    """Return a path for a page that stays: the browser reads it after tfperf has ended."""
    import tempfile

    return Path(tempfile.mkdtemp(prefix="tfperf-"), f"{name}.html")


def show_page(page: Path) -> None:
    """Open a page in the browser, or say what to do where none can be opened."""
    import webbrowser

    address = page.resolve().as_uri()
    if has_browser() and webbrowser.open(address):
        say(f"opened {address}")
    else:
        say(f"no browser can be opened from here (over ssh, or without a screen): copy {page} to your machine")
