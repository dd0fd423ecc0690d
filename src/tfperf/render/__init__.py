"""Renderers: `render(report, "table", options)` turns a Report into text; `output.write` is the only writer.

`FORMATS` has a record for each format, read by the command line, by `render` and by the tests. Nothing is imported here
but names, so that `tfperf --help` lists the formats at once; a format is imported when it is chosen.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tfperf.errors import OutputError

if TYPE_CHECKING:
    from tfperf.report.model import Level, Report

PIPE_WIDTH = 80
"""Width of text that no person's window decides: files, pipes, CI logs."""


class RenderOptions(NamedTuple):
    """Width in cells, whether to colour, and who reads."""

    width: int = PIPE_WIDTH
    colour: bool = False
    interactive: bool = False
    """A person's terminal: long names are cut in the middle. Files and pipes lose nothing."""
    is_whole: bool = True
    """A whole report: people see its brief form. False: they asked for these sections, and see them in full."""
    top: int | None = None
    """How many rows of a table people see; None: as many as the table says."""


class Format(NamedTuple):
    """One format: its name, the suffixes of its files (the first is the usual one), and what renders it.

    `level` is how much it shows: "brief" what people read from top to bottom, "full" what they can browse, "data" all
    that programs can use.
    """

    name: str
    suffixes: tuple[str, ...]
    level: Level
    renderer: str
    """`module:function`, imported when the format is chosen; called with the report and RenderOptions."""


FORMATS: Mapping[str, Format] = {
    each.name: each
    for each in (
        Format("table", (".txt",), "brief", "tfperf.render.terminal:render_terminal"),
        Format("json", (".json",), "data", "tfperf.render.json_file:render_json"),
        Format("csv", (".csv",), "data", "tfperf.render.csv_file:render_csv"),
        Format("markdown", (".md", ".markdown"), "brief", "tfperf.render.markdown:render_markdown"),
        Format("html", (".html", ".htm"), "full", "tfperf.render.page.page:render_page"),
    )
}
"""Every format by name, in the order of the help."""


def format_of_file(path: Path) -> str | None:
    """Return the name of the format that a file's suffix asks for, or None where it asks for none."""
    suffix = path.suffix.lower()
    return next((each.name for each in FORMATS.values() if suffix in each.suffixes), None)


def render(report: Report, format_name: str, options: RenderOptions | None = None) -> str:
    """Return the report as text in one of `FORMATS`; without options, as a file or a pipe gets it."""
    from pkgutil import resolve_name

    from tfperf.report.levels import Detail, shown

    if format_name not in FORMATS:
        raise OutputError(f"unknown format {format_name!r}; choose one of {', '.join(FORMATS)}")
    options = options or RenderOptions()
    level = FORMATS[format_name].level
    if level == "brief":
        people: Level = "brief" if options.is_whole else "full"
        detail = Detail(people, people, top=options.top)
    else:
        sections: Level = "brief" if options.is_whole and level == "full" else "data"
        detail = Detail(sections, "data", top=options.top, for_people=False, leads_first=level == "full")
    renderer: Callable[[Report, RenderOptions], str] = resolve_name(FORMATS[format_name].renderer)
    return renderer(shown(report, detail), options)


def options_for_stdout(*, colour: bool | None = None) -> RenderOptions:
    """Return what suits the current stdout; `colour` overrides the guess (a terminal without NO_COLOR)."""
    interactive = sys.stdout is not None and sys.stdout.isatty()
    width = PIPE_WIDTH
    if interactive:
        # Importing shutil takes 4 ms, which a pipe need not wait for.
        from shutil import get_terminal_size

        width = get_terminal_size((PIPE_WIDTH, 24)).columns
    if colour is None:
        # The old Windows console prints escape codes as they are; Windows Terminal announces itself.
        knows_codes = os.environ.get("TERM") != "dumb" and (os.name != "nt" or "WT_SESSION" in os.environ)
        colour = interactive and knows_codes and not os.environ.get("NO_COLOR")
    return RenderOptions(width=width, colour=colour, interactive=interactive)
