"""Report -> GitHub Markdown, for a comment in a pull request or a page in a wiki."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from tabulate import tabulate

from tfperf.render.bar_chart import bar_lines
from tfperf.render.options import RenderOptions
from tfperf.render.sparkline import sparkline_text
from tfperf.render.step_chart import chart_text
from tfperf.render.text import brief, safe
from tfperf.render.tree import DOTS
from tfperf.render.values import cut_note, fact_text, source_facts, text_table
from tfperf.report.model import BarChart, Chart, Fact, Finding, GroupedBars, Report, Section, Sparkline, Table

Write = Callable[[str], str]
"""How a text is written: escaped, whole or shortened."""

MOST_BYTES = 65_535
"""GitHub refuses a comment of more than 65,536 characters, and there are never less bytes than characters."""

_NOTE = (
    "Note: this report was cut to stay below 65,536 bytes, which is what a comment takes: rows of tables, long names, "
    "and maybe its end. Write it to a file (-o report.html, or --format json) to see all."
)
_ROOM = MOST_BYTES - len(_NOTE) - 4
_LONGEST_WHEN_CUT = 200

_SPECIAL = re.compile(r"[\\`*_~|<>\[\]#$&]")
_SEVERITIES = {"problem": "Problem", "hint": "Hint", "info": "Info"}


def render_markdown(report: Report, options: RenderOptions) -> str:
    """Return the report as Markdown of less than 65,536 bytes; only the step chart knows a width.

    What was read stands last, so that the verdict is on top. Where all is too long, long texts lose their middle, then
    the longest tables rows, then the report its end; a note says so.
    """
    text = _joined(_blocks(report, options, escape))
    return text if _size(text) <= MOST_BYTES else _cut(report, options)


def escape(text: str) -> str:
    """Return text that Markdown shows as it is, on one line."""
    return _SPECIAL.sub(r"\\\g<0>", safe(text))


def _escape_short(text: str) -> str:
    return _SPECIAL.sub(r"\\\g<0>", brief(text, _LONGEST_WHEN_CUT))


def _blocks(report: Report, options: RenderOptions, write: Write) -> Iterator[str]:
    """Yield the parts of the report, each of them whole by itself."""
    for section in report.sections:
        yield f"## {write(section.title)}"
        yield from list(_section_blocks(section, options, write)) or ["Nothing to show."]
    if not report.sections:
        yield "This report has no sections."
    source = source_facts(report)
    if source:
        yield f"## Source\n\n{_facts(source, write)}"


def _joined(blocks: Iterable[str]) -> str:
    return "\n\n".join(blocks) + "\n"


# --- what a comment takes ---


def _size(text: str) -> int:
    return len(text.encode())


def _cut(report: Report, options: RenderOptions) -> str:
    """Return as much of the report as there is room for."""
    rows = max((len(table) for table in report.tables()), default=0)
    while (text := _joined(_blocks(_with_rows(report, rows), options, _escape_short))) and rows > 1:
        if _size(text) <= _ROOM:
            break
        rows //= 2
    return _joined([*_fitting(_blocks(_with_rows(report, rows), options, _escape_short)), _NOTE])


def _with_rows(report: Report, rows: int) -> Report:
    """Return the report with tables of at most so many rows."""
    sections = (
        replace(section, tables=tuple(table.head(rows) if len(table) > rows else table for table in section.tables))
        for section in report.sections
    )
    return replace(report, sections=tuple(sections))


def _fitting(blocks: Iterable[str]) -> Iterator[str]:
    """Yield blocks from the first on, as long as there is room; of the last, the lines that still fit."""
    room = _ROOM
    for block in blocks:
        lines = _first_lines(block, room)
        if lines:
            yield lines
        if lines != block:
            return
        room -= _size(block) + len("\n\n")


def _first_lines(block: str, room: int) -> str:
    """Return the block, or what fits of it: items of a list and rows of a table, but no part of a chart."""
    if _size(block) <= room or "```" in block:
        return block if _size(block) <= room else ""
    return block.encode()[: max(room, 0)].decode(errors="ignore").rpartition("\n")[0]


# --- parts ---


def _section_blocks(section: Section, options: RenderOptions, write: Write) -> Iterator[str]:
    """Yield findings, facts, charts, tables and notes."""
    if section.findings:
        yield "\n".join(_finding(finding, write) for finding in section.findings)
    if section.facts:
        yield _facts(section.facts, write)
    for chart in section.charts:
        yield _chart(chart, options.width, write)
    for table in section.tables:
        yield _table(table, write)
    for note in section.notes:
        yield f"Note: {write(note)}"


def _finding(finding: Finding, write: Write) -> str:
    """Return the conclusion as a list item, and what to do as an item below it."""
    item = f"- **{_SEVERITIES[finding.severity]}:** {write(finding.text)}"
    return f"{item}\n  - Try: {write(finding.action)}" if finding.action else item


def _facts(facts: Sequence[Fact], write: Write) -> str:
    """Return facts as a table of two columns, a note in brackets behind its value."""
    rows = [
        [write(fact.title), write(fact_text(fact)) + (f" ({write(fact.note)})" if fact.note else "")] for fact in facts
    ]
    return _grid(["Fact", "Value"], rows, numeric=[False, False])


def _chart(chart: Chart, width: int, write: Write) -> str:
    """Return the chart as a code block, fenced by more backticks than any of its labels has."""
    # Markdown is UTF-8, so a sparkline has blocks.
    if isinstance(chart, Sparkline):
        text = sparkline_text(chart, width, interactive=True)
    elif isinstance(chart, (BarChart, GroupedBars)):
        text = "\n".join(bar_lines(chart, width, interactive=True))
    else:
        text = chart_text(chart, width)
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"### {write(chart.title)}\n\n{fence}text\n{text}\n{fence}"


def _table(table: Table, write: Write) -> str:
    """Return title, table, how much of it is shown, and its note."""
    texts = text_table(table, DOTS)
    rows = [[write(cell) for cell in row] for row in texts.rows]
    headers = [write(header) for header in texts.headers]
    grid = _grid(headers, rows, numeric=texts.numeric) if rows else "No rows."
    parts = [f"### {write(table.title)}", grid, write(cut_note(table)), write(table.note)]
    return "\n\n".join(part for part in parts if part)


def _grid(headers: Sequence[str], rows: Sequence[Sequence[str]], *, numeric: Sequence[bool]) -> str:
    """Return a table in Markdown."""
    # Of the two styles that GitHub reads, only `pipe` says which columns are right-aligned.
    alignment = ["right" if number else "left" for number in numeric]
    return tabulate(rows, headers, tablefmt="pipe", colalign=alignment, disable_numparse=True)
