"""The formats of a report: one record each, read by the command line, by `render` and by the tests.

Nothing is imported here but names, so that `tfperf --help` can list the formats at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tfperf.report.model import Level


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
