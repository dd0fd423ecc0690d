"""Renderers: `render(report, "table", options)` turns a Report into text; `output.write` is the only writer.

Each format is imported when it is asked for, so that choosing one costs nothing for the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from tfperf.errors import OutputError
from tfperf.render.options import RenderOptions, options_for_stdout
from tfperf.report.levels import EVERYTHING, Detail, shown
from tfperf.report.model import Level, Report

__all__ = ["FORMATS", "RenderOptions", "Renderer", "guess_format", "options_for_stdout", "render"]

Renderer = Callable[[Report, RenderOptions], str]


def _table(report: Report, options: RenderOptions) -> str:
    """Render for a terminal."""
    from tfperf.render.terminal import render_terminal

    return render_terminal(report, options)


def _json(report: Report, options: RenderOptions) -> str:
    """Render as one JSON document."""
    from tfperf.render.json_file import render_json

    return render_json(report, options)


def _csv(report: Report, options: RenderOptions) -> str:
    """Render every table as CSV."""
    from tfperf.render.csv_file import render_csv

    return render_csv(report, options)


def _markdown(report: Report, options: RenderOptions) -> str:
    """Render as GitHub Markdown."""
    from tfperf.render.markdown import render_markdown

    return render_markdown(report, options)


def _html(report: Report, options: RenderOptions) -> str:
    """Render as one HTML page that needs no network."""
    from tfperf.render.page.page import render_page

    return render_page(report, options)


FORMATS: Mapping[str, Renderer] = {"table": _table, "json": _json, "csv": _csv, "markdown": _markdown, "html": _html}

_SUFFIXES = {
    ".json": "json", ".csv": "csv", ".md": "markdown", ".markdown": "markdown", ".txt": "table", ".html": "html",
    ".htm": "html",
}  # fmt: skip


def render(report: Report, format_name: str, options: RenderOptions | None = None) -> str:
    """Return the report as text in one of `FORMATS`; without options, as a file or a pipe gets it."""
    renderer = FORMATS.get(format_name)
    if renderer is None:
        raise OutputError(f"unknown format {format_name!r}; choose one of {', '.join(FORMATS)}")
    options = options or RenderOptions()
    return renderer(shown(report, _detail(format_name, options)), options)


def _detail(format_name: str, options: RenderOptions) -> Detail:
    """Return how much of a report a format shows."""
    if format_name in ("json", "csv"):
        return EVERYTHING
    if format_name == "html":
        return Detail("brief" if options.is_whole else "data", "data", for_people=False, leads_first=True)
    level: Level = "brief" if options.is_whole else "full"
    return Detail(level, level, top=options.top)


def guess_format(path: Path) -> str | None:
    """Return the format that a file's suffix asks for, or None where it asks for none."""
    return _SUFFIXES.get(path.suffix.lower())
