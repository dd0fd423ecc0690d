"""Report -> one HTML page.

The page asks for nothing: its policy lets it run the scripts that are in it, by their hashes, and load nothing at all.
Data is no script: charts are JSON whose `<` is escaped, tables are base64.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files

from markupsafe import Markup

from tfperf.render import RenderOptions
from tfperf.render.page.page_parts import PageSection, page_parts
from tfperf.render.page.table_data import PackedTable, fit
from tfperf.render.page.template_engine import fill
from tfperf.render.values import cell_text, source_facts
from tfperf.report.model import Report, Section

LIMIT_BYTES = 4_900_000
"""Below 5 MB, whatever is in the report."""

_LIBRARY = "echarts.common.min.js"
_SCRIPTS = ("values.js", "table_rows.js", "tables.js", "charts.js", "page.js")
_STYLE = "page.css"
_REMARK_BYTES = 400
"""What the remarks of a table that is cut may take."""
_OMITTED = "{} more sections are omitted from this page, which is limited to 5 MB; JSON has them: {}."


def render_page(report: Report, _options: RenderOptions) -> str:
    """Return the report as one page of at most `LIMIT_BYTES`; cut tables say so, and so do omitted sections."""
    sections = page_parts(report.sections)
    if sum(len(table.packed.base64) for part in sections for table in part.tables) < LIMIT_BYTES:
        page = _page(report, sections)
        if len(page.encode()) <= LIMIT_BYTES:
            return page
    return _cut_page(report, sections)


def _cut_page(report: Report, sections: Sequence[PageSection]) -> str:
    """Return the page with as many sections as there is room for, and as much of their tables."""
    kept, shown = len(sections), sections
    while (room := LIMIT_BYTES - _size_without_tables(report, shown)) < 0 and kept:
        kept -= 1
        names = [part.section.name for part in sections[kept:]]
        note = Section("omitted", "Omitted", notes=(_OMITTED.format(len(names), ", ".join(names[:20])),))
        shown = [*sections[:kept], PageSection(f"section-{kept}", note)]
    return _page(report, _with_tables(shown, fit([table.packed for part in shown for table in part.tables], room)))


def _size_without_tables(report: Report, sections: Sequence[PageSection]) -> int:
    """Return what the page takes with tables that have no data, in bytes."""
    empty = [PackedTable(table.table, "") for part in sections for table in part.tables]
    return len(_page(report, _with_tables(sections, empty)).encode()) + _REMARK_BYTES * len(empty)


def _with_tables(sections: Sequence[PageSection], packed: Sequence[PackedTable]) -> list[PageSection]:
    """Return the sections with other data of their tables, in the same order."""
    rest = iter(packed)
    return [part._replace(tables=[table._replace(packed=next(rest)) for table in part.tables]) for part in sections]


def _page(report: Report, sections: Sequence[PageSection]) -> str:
    """Return the whole page."""
    style, library, script = _style_and_scripts()
    allowed = f"script-src {_hash(library)} {_hash(script)}; style-src {_hash(style)}"
    # What was read first tells windows apart.
    name = next((cell_text(value, "") for value in report.source.values() if isinstance(value, str)), "")
    return fill(
        "page.html",
        policy=f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'",
        title=f"{name}: tfperf report" if name else "tfperf report",
        style=Markup(style),
        library=Markup(library),
        script=Markup(script),
        source=source_facts(report),
        sections=sections,
        charts=Markup(_json([chart.data for part in sections for chart in part.all_charts()])),
    )


@lru_cache(maxsize=1)
def _style_and_scripts() -> tuple[str, str, str]:
    """Return the style sheet, the chart library, and the page's own scripts as one."""
    folder = files("tfperf.render.page") / "static"
    scripts = [folder.joinpath(name).read_text("utf-8") for name in _SCRIPTS]
    style, library = (folder.joinpath(name).read_text("utf-8") for name in (_STYLE, _LIBRARY))
    return style, library, '"use strict";\n' + "\n".join(scripts)


def _hash(text: str) -> str:
    """Return the hash by which the policy allows a script or a style sheet."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _json(value: object) -> str:
    """Return JSON that can stand in a script element."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
