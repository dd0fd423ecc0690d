"""Report -> one HTML page.

The page asks for nothing: its policy lets it run the scripts that are in it, by their hashes, and load nothing at all.
Data is no script: charts are JSON whose `<` is escaped, tables are base64.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from tfperf.render.options import RenderOptions
from tfperf.render.page.chart_data import Drawings, drawings
from tfperf.render.page.markup import Numbered, facts_markup, navigation, section_markup
from tfperf.render.page.table_data import Island, fit
from tfperf.render.page.text import LONGEST_NAME, escape
from tfperf.render.values import cell_text, source_facts
from tfperf.report.model import Report, Section, Table

LIMIT_BYTES = 4_900_000
"""Below 5 MB, whatever is in the report."""

_LIBRARY = "echarts.common.min.js"
_SCRIPTS = ("values.js", "table_rows.js", "tables.js", "charts.js", "page.js")
_STYLE = "page.css"
_REMARK_BYTES = 400
"""What the remarks of a table that is cut may take."""
_TOO_LARGE = "{} more sections are not in this page, which stays below 5 MB; JSON has them: {}."


@dataclass(frozen=True, slots=True)
class Part:
    """A section and its charts."""

    section: Section
    charts: Drawings


def render_page(report: Report, _options: RenderOptions) -> str:
    """Return the report as one page of at most `LIMIT_BYTES`; cut tables say so, and so do sections left out."""
    parts = [Part(section, drawings(section)) for section in report.sections]
    kept = len(parts)
    while (room := LIMIT_BYTES - _size_without_tables(report, _first(parts, kept))) < 0 and kept:
        kept -= 1
    shown = _first(parts, kept)
    return _page(report, shown, fit(_tables(shown), room))


def _size_without_tables(report: Report, parts: Sequence[Part]) -> int:
    tables = _tables(parts)
    return len(_page(report, parts, [Island(table, "") for table in tables]).encode()) + _REMARK_BYTES * len(tables)


def _tables(parts: Sequence[Part]) -> list[Table]:
    return [table for part in parts for table in part.section.tables]


def _first(parts: Sequence[Part], kept: int) -> list[Part]:
    """Return the first parts, and a last one that names the others."""
    left = [part.section.name for part in parts[kept:]]
    if not left:
        return list(parts)
    note = Section("left_out", "Left out", notes=(_TOO_LARGE.format(len(left), ", ".join(left[:20])),))
    return [*parts[:kept], Part(note, drawings(note))]


def _page(report: Report, parts: Sequence[Part], islands: Sequence[Island]) -> str:
    scripts = (_file(_LIBRARY), '"use strict";\n' + "\n".join(map(_file, _SCRIPTS)))
    style = _file(_STYLE)
    return _PAGE.format(
        policy=_policy(scripts, style),
        title=_title(report),
        style=style,
        source=facts_markup(source_facts(report), "source"),
        navigation=navigation([part.section for part in parts]),
        sections=_sections(parts, islands) or "<p>This report has no sections.</p>",
        charts=_json([drawing.data for part in parts for drawing in part.charts.in_order()]),
        library=scripts[0],
        script=scripts[1],
    )


def _sections(parts: Sequence[Part], islands: Sequence[Island]) -> str:
    written, tables, charts = [], 0, 0
    for at, part in enumerate(parts):
        own = islands[tables : tables + len(part.section.tables)]
        written.append(section_markup(part.section, part.charts, own, Numbered(at, tables, charts)))
        tables += len(own)
        charts += len(part.charts.in_order())
    return "\n".join(written)


def _title(report: Report) -> str:
    """Return the title of the window: what was read first tells pages apart."""
    first = next((cell_text(value, "") for value in report.source.values() if isinstance(value, str)), "")
    return escape(f"{first}: tfperf report" if first else "tfperf report", LONGEST_NAME)


def _policy(scripts: Sequence[str], style: str) -> str:
    allowed = " ".join(map(_hash, scripts))
    return f"default-src 'none'; script-src {allowed}; style-src {_hash(style)}; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _file(name: str) -> str:
    return files("tfperf.render.page").joinpath(name).read_text("utf-8")


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<a class="skip" href="#report">Skip to the report</a>
<header>
<h1>tfperf report</h1>
{source}
<div class="choices"></div>
</header>
<div class="columns">
{navigation}
<main id="report" tabindex="-1">
{sections}
</main>
</div>
<script type="application/json" id="charts">{charts}</script>
<script>{library}</script>
<script>{script}</script>
</body>
</html>
"""
