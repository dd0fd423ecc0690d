"""Render a report as one self-contained HTML page, without a server, network or other files.

Jinja2 fills `templates/`; the scripts and the style sheet in `static/` are embedded unchanged.

ECharts draws the charts: `static/echarts.common.min.js` is the unmodified `dist/echarts.common.min.js` of the npm
package echarts 6.1.0, next to its license (Apache 2.0), its notice and the license of its parts of d3. To update it,
run `npm pack echarts@VERSION`, copy these four files, and put the new SHA-256 into
tests/report/render/page/test_page.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.resources import files
from itertools import count
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple

from markupsafe import Markup
from msgspec import Struct
from msgspec.structs import replace

from tfperf.report.model import (
    RESULTS,
    BarChart,
    Chart,
    ComparisonChart,
    FlameChart,
    GaugeChart,
    GroupedBars,
    Report,
    Section,
    SegmentBar,
    StepPicture,
    Table,
    at_levels,
)
from tfperf.report.palette import CATEGORY_STYLES, ROLES
from tfperf.report.render import RenderOptions
from tfperf.report.render.flame.drawing import flame_markup
from tfperf.report.render.flame.drawing import script as flame_script
from tfperf.report.render.flame.drawing import style_sheet as flame_style
from tfperf.report.render.html_templates import engine, policy
from tfperf.report.render.page.data import (
    LONGEST_NAME,
    DrawnComparison,
    JsonObject,
    PackedTable,
    chart_data,
    chart_words,
    drawn_comparison,
    fit,
    pack,
    picture_rows,
    table_bars,
)
from tfperf.report.render.page.hero import PageCard, Spark, label_width, page_cards, spark_of
from tfperf.report.render.text_table import LINES, TextTable, cut_note, header, text_table
from tfperf.report.render.values import COMMAND_LINE, COMMAND_MARK, brief, cell_text, source_facts, typeset

if TYPE_CHECKING:
    from jinja2 import Environment
    from jinja2.runtime import Context

LIMIT_BYTES = 4_900_000
"""Less than 5 MB for any report."""
LONGEST_TEXT = 2_000
"""Characters of a sentence; the middle of a longer one is cut."""
OPEN_SECTIONS = 2
"""Sections that are open without a link to another one."""
FIRST_ROWS = 10
"""Table rows that are visible without scripts."""

_LONGEST_CELL = 120
_STATIC = (
    *("page.css", "hero.css", "echarts.common.min.js", "values.js", "table_rows.js", "tables.js", "charts.js"),
    *("picture_data.js", "picture.js", "steps.js", "search.js", "hero.js", "page.js"),
)
_REMARK_BYTES = 400
"""Bytes reserved for the remarks of a cut table."""
_ANCHOR = re.compile(r"[a-z][a-z0-9_]{0,40}")
_HINT = re.compile(r"(?:(?:tfperf )?analyze )?(?:PATH )?-s ([a-z0-9_]+)\b(?! --)")
"""An option that shows a section in a terminal, or the whole command."""
_OMITTED = "Sections omitted because the HTML report is limited to 5 MB: {} ({}). JSON has them."


class PageChart(Struct, frozen=True):
    """A chart's data and description; only bars show numbers. `drawing` is a flame graph, drawn without scripts."""

    id: str
    title: str
    words: str
    has_numbers: bool
    data: JsonObject
    rows: Sequence[tuple[str, str, str]] = ()
    """For a picture: a table for screen readers."""
    remarks: Sequence[str] = ()
    """For a picture: what is not drawn."""
    bar: SegmentBar | None = None
    """A bar, drawn without scripts."""
    spark: Spark | None = None
    """The steps of the bar."""
    drawing: Markup | None = None
    comparison: DrawnComparison | None = None
    gauges: GaugeChart | None = None


class PageTable(NamedTuple):
    """A table of a section in its packed form, and its bars, if any."""

    id: str
    table: Table
    packed: PackedTable
    chart: PageChart | None

    @property
    def data(self) -> Markup:
        """Return the packed table for a script element."""
        return Markup(self.packed.base64)

    @property
    def first_rows(self) -> TextTable:
        """Return the rows that are visible without scripts."""
        return text_table(self.table.head(FIRST_ROWS), LINES)

    @property
    def cut_note(self) -> str:
        """Return a note with the report's number of rows, if the table is cut."""
        return cut_note(self.table)


class PageSection(NamedTuple):
    """A section with its charts and tables."""

    id: str
    section: Section
    charts: Sequence[PageChart] = ()
    tables: Sequence[PageTable] = ()
    cards: Sequence[PageCard] = ()

    @property
    def problems(self) -> int:
        """Return the number of its problems, without those that are evidence for a cause."""
        findings = self.section.findings
        return sum(each.severity == "problem" and (self.section.is_lead or not each.causes) for each in findings)

    @property
    def gist(self) -> str:
        """Return the summary of a folded section: its first finding."""
        return self.section.findings[0].text if self.section.findings else ""

    def all_charts(self) -> Iterator[PageChart]:
        """Yield the charts of the section and of its tables, in page order."""
        yield from self.charts
        yield from (table.chart for table in self.tables if table.chart)


def render_page(report: Report, _options: RenderOptions) -> str:
    """Return the report as one page of at most `LIMIT_BYTES`; cut tables and omitted sections are noted."""
    sections = page_parts(report.sections)
    if sum(len(table.packed.base64) for part in sections for table in part.tables) < LIMIT_BYTES:
        page = _page(report, sections)
        if len(page.encode()) <= LIMIT_BYTES:
            return page
    return _cut_page(report, sections)


def _cut_page(report: Report, sections: Sequence[PageSection]) -> str:
    kept, shown = len(sections), sections
    while True:
        empty = [PackedTable(table.table, "") for part in shown for table in part.tables]
        size = len(_page(report, _with_tables(shown, empty)).encode()) + _REMARK_BYTES * len(empty)
        room = LIMIT_BYTES - size
        if room >= 0 or not kept:
            break
        kept -= 1
        names = [part.section.name for part in sections[kept:]]
        note = Section("omitted", "Omitted", notes=(_OMITTED.format(len(names), ", ".join(names[:20])),))
        shown = [*sections[:kept], PageSection("section-omitted", note)]
    return _page(report, _with_tables(shown, fit([table.packed for part in shown for table in part.tables], room)))


def _with_tables(sections: Sequence[PageSection], packed: Sequence[PackedTable]) -> list[PageSection]:
    rest = iter(packed)
    return [part._replace(tables=[table._replace(packed=next(rest)) for table in part.tables]) for part in sections]


def _page(report: Report, sections: Sequence[PageSection]) -> str:
    style, library, script = _style_and_scripts()
    drawn = [chart.data for part in sections for chart in part.all_charts()]
    # The JSON does not contain the end of a script element.
    charts = json.dumps(drawn, separators=(",", ":"), allow_nan=False)
    # The title starts with the source, to distinguish windows.
    name = next((cell_text(value, "") for value in report.source.values() if isinstance(value, str)), "")
    folder = report.source.get("folder")
    template = environment().get_template("page.html")
    page = template.render(
        policy=policy(style, library, script),
        title=f"{name}: tfperf report" if name else "tfperf report",
        style=Markup(style),
        library=Markup(library),
        script=Markup(script),
        source=source_facts(report),
        sections=sections,
        results=RESULTS,
        label_width=label_width,
        open_sections=OPEN_SECTIONS,
        links={part.section.name: part for part in reversed(sections)},
        places=_places(sections),
        compare=f"tfperf diff {quote(folder) if isinstance(folder, str) and folder else 'BEFORE'} AFTER",
        charts=Markup(COMMAND_MARK.sub(r"\\u0023#", charts.replace("<", r"\u003c"))),
    )
    # Skip the library, which is most of the page; it contains no such text.
    before, _, after = page.partition(library)
    return f"{_without_commands(before)}{library}{_without_commands(after)}"


def _places(sections: Sequence[PageSection]) -> dict[str, tuple[str, int, int, str]]:
    """Return for each cause the picture where its categories take most time, with their longest span and its index."""
    best: dict[str, tuple[int, str, int, int, str]] = {}
    for part in sections:
        for page_chart, chart in zip(part.charts, part.section.charts, strict=True):
            if isinstance(chart, StepPicture):
                for code, (start, end, total) in chart.places.items():
                    place = (total, page_chart.id, start, end, chart.ribbons[0].title_at(start))
                    best[code] = max(best.get(code, (0, "", 0, 0, "")), place)
    return {code: place[1:] for code, place in best.items()}


def _without_commands(page: str) -> str:
    return COMMAND_MARK.sub("&#35;#", COMMAND_LINE.sub(r"\1&#58;:", page))


@lru_cache(maxsize=1)
def _style_and_scripts() -> tuple[str, str, str]:
    folder = files("tfperf.report.render.page") / "static"
    style, hero, library, *scripts = (folder.joinpath(name).read_text("utf-8") for name in _STATIC)
    roles = (
        f".role-{role} {{ fill: {each.colour}; background: {each.colour}; color: {each.ink} }}\n"
        f".role-{role} text {{ stroke: {each.colour} }}\n"
        for role, each in ROLES.items()
    )
    shades = "".join(f"--{each.variable}: {each.colour}; " for each in CATEGORY_STYLES.values())
    return (
        style + hero + f":root {{ {shades}}}\n" + "".join(roles) + flame_style(),
        library,
        '"use strict";\n' + "\n".join((flame_script(), *scripts)),
    )


def page_parts(sections: Sequence[Section]) -> list[PageSection]:
    """Return the parts of the page, numbered from 0; tables of sections with bars have no bars of their own."""
    chart_numbers, table_numbers = count(), count()

    def numbered(chart: Chart) -> PageChart:
        has_numbers = isinstance(chart, (BarChart, GroupedBars))
        name = f"chart-{next(chart_numbers)}"
        drawing = flame_markup(chart) if isinstance(chart, FlameChart) else None
        rows = picture_rows(chart) if isinstance(chart, StepPicture) else ()
        words, data = chart_words(chart), chart_data(chart)
        bar = chart if isinstance(chart, SegmentBar) else None
        compared = drawn_comparison(chart) if isinstance(chart, ComparisonChart) else None
        gauges = chart if isinstance(chart, GaugeChart) else None
        spark = None if bar is None else spark_of(bar)
        remarks = chart.remarks if isinstance(chart, StepPicture) else ()
        return PageChart(
            name, chart.title, words, has_numbers, data, rows, remarks, bar, spark, drawing, compared, gauges
        )

    parts, names = [], [section.name for section in sections]
    for number, section in enumerate(sections):
        has_bars = any(isinstance(chart, BarChart) for chart in section.charts)
        charts = list(map(numbered, section.charts))
        tables = []
        for table in () if section.cards else section.tables:
            if len(set(table.data.get("host", ()))) > 1:
                table = replace(table, columns=at_levels(table.columns, {"host": "brief"}))
            bars = None if has_bars else _bars_of(table)
            name = f"table-{next(table_numbers)}"
            tables.append(PageTable(name, table, pack(table), numbered(bars) if bars else None))
        # Links use names, so that they stay valid; numbers replace unusual names.
        is_good = bool(_ANCHOR.fullmatch(section.name)) and names.count(section.name) == 1
        name = f"section-{section.name if is_good else number}"
        parts.append(PageSection(name, section, charts, tables, page_cards(section.cards)))
    return parts


def _bars_of(table: Table) -> BarChart | None:
    """Return the bars of the rows that people see in other formats, which may be those of one host."""
    shown = table if table.rows_for_people is None else table.only(table.rows_for_people)
    bars = table_bars(shown)
    every, seen = (set(rows.data.get("host", ())) for rows in (table, shown))
    return replace(bars, title=f"{bars.title}, on {seen.pop()}") if bars and len(every) > len(seen) == 1 else bars


def _linked(context: Context, text: str) -> Markup:
    """Return a text in which commands and options that show a section are links to it, by its title."""
    parts, after = Markup(), 0
    text, sections = typeset(brief(text, LONGEST_TEXT)), context.get("links", {})
    for hint in _HINT.finditer(text) if "-s " in text else ():
        if (part := sections.get(hint[1])) is not None:
            title = brief(part.section.title, LONGEST_TEXT)
            parts += Markup('{}<a href="#{}">{}</a>').format(text[after : hint.start()], part.id, title)
            after = hint.end()
    return parts + text[after:]


@lru_cache(maxsize=1)
def environment() -> Environment:
    """Return the engine for pages."""
    from jinja2 import pass_context

    environment = engine(
        "tfperf.report.render.page", longest_text=LONGEST_TEXT, longest_cell=_LONGEST_CELL, keep_trailing_newline=True
    )
    environment.filters |= {
        "name": lambda text: typeset(brief(text, LONGEST_NAME)),
        "header": header,
        "linked": pass_context(_linked),
    }
    return environment
