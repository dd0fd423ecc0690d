"""Renderers: `render(report, "table", options)` turns a Report into text; `output.write` is the only writer.

`formats.py` lists the formats. Each is imported when it is chosen, so that choosing one costs nothing for the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tfperf.errors import OutputError
from tfperf.render.formats import FORMATS, Format, format_of_file
from tfperf.render.render_options import RenderOptions, options_for_stdout

if TYPE_CHECKING:
    from tfperf.report.model import Report

__all__ = ["FORMATS", "Format", "RenderOptions", "format_of_file", "options_for_stdout", "render"]


def render(report: Report, format_name: str, options: RenderOptions | None = None) -> str:
    """Return the report as text in one of `FORMATS`; without options, as a file or a pipe gets it."""
    from pkgutil import resolve_name

    if format_name not in FORMATS:
        raise OutputError(f"unknown format {format_name!r}; choose one of {', '.join(FORMATS)}")
    renderer: Callable[[Report, RenderOptions], str] = resolve_name(FORMATS[format_name].renderer)
    return renderer(report, options or RenderOptions())
