"""What the templates of the page are given: sections, charts and tables, each with the id that it has in the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import NamedTuple

from markupsafe import Markup

from tfperf.render.page.chart_data import Data, chart_data, table_bars
from tfperf.render.page.chart_words import chart_words
from tfperf.render.page.table_data import PackedTable, pack
from tfperf.render.text_table import LINES, TextTable, cut_note, text_table
from tfperf.report.model import BarChart, Chart, GroupedBars, Section, Table

FIRST_ROWS = 10
"""Rows of a table that are there without scripts."""


class PageChart(NamedTuple):
    """A chart: its data for the script, and its words; bars have their numbers beside them, other charts do not."""

    id: str
    title: str
    words: str
    has_numbers: bool
    data: Data


class PageTable(NamedTuple):
    """A table of a section, as it travels, and with the bars that are drawn above it, if any."""

    id: str
    table: Table
    packed: PackedTable
    chart: PageChart | None

    @property
    def data(self) -> Markup:
        """Return the table as it travels, for a script element."""
        return Markup(self.packed.base64)

    @property
    def first_rows(self) -> TextTable:
        """Return the rows that are there without scripts."""
        return text_table(self.table.head(FIRST_ROWS), LINES)

    @property
    def cut_note(self) -> str:
        """Return how many rows the report has, if not all."""
        return cut_note(self.table)


class PageSection(NamedTuple):
    """A section with its charts and tables."""

    id: str
    section: Section
    charts: Sequence[PageChart] = ()
    tables: Sequence[PageTable] = ()

    def all_charts(self) -> Iterator[PageChart]:
        """Yield the charts of the section and of its tables, in the order of the page."""
        yield from self.charts
        yield from (table.chart for table in self.tables if table.chart)


def page_parts(sections: Sequence[Section]) -> list[PageSection]:
    """Return the parts of the page, numbered from 0.

    Where a section has bars, its tables get none: they would show the same.
    """
    chart_numbers, table_numbers = count(), count()

    def numbered(chart: Chart) -> PageChart:
        has_numbers = isinstance(chart, (BarChart, GroupedBars))
        name = f"chart-{next(chart_numbers)}"
        return PageChart(name, chart.title, chart_words(chart), has_numbers, chart_data(chart))

    parts = []
    for number, section in enumerate(sections):
        has_bars = any(isinstance(chart, BarChart) for chart in section.charts)
        charts = list(map(numbered, section.charts))
        tables = []
        for table in section.tables:
            bars = None if has_bars else table_bars(table)
            name = f"table-{next(table_numbers)}"
            tables.append(PageTable(name, table, pack(table), numbered(bars) if bars else None))
        parts.append(PageSection(f"section-{number}", section, charts, tables))
    return parts
