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
    from tfperf.report.levels import Detail
    from tfperf.report.model import Level, Report

__all__ = ["FORMATS", "Format", "RenderOptions", "format_of_file", "options_for_stdout", "render"]


def render(report: Report, format_name: str, options: RenderOptions | None = None) -> str:
    """Return the report as text in one of `FORMATS`; without options, as a file or a pipe gets it."""
    from pkgutil import resolve_name

    from tfperf.report.levels import shown

    if format_name not in FORMATS:
        raise OutputError(f"unknown format {format_name!r}; choose one of {', '.join(FORMATS)}")
    options = options or RenderOptions()
    renderer: Callable[[Report, RenderOptions], str] = resolve_name(FORMATS[format_name].renderer)
    return renderer(shown(report, _detail(FORMATS[format_name].level, options)), options)


def _detail(level: Level, options: RenderOptions) -> Detail:
    """Return how much of a report a format of this level shows."""
    from tfperf.report.levels import Detail

    if level == "data":
        return Detail("data", "data", top=options.top, for_people=False)
    if level == "full":
        sections: Level = "brief" if options.is_whole else "data"
        return Detail(sections, "data", top=options.top, for_people=False, leads_first=True)
    people: Level = "brief" if options.is_whole else "full"
    return Detail(people, people, top=options.top)
