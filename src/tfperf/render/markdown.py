"""Report -> GitHub Markdown, for a comment in a pull request or a page in a wiki."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tabulate import tabulate

from tfperf.render.bar_chart import bar_lines
from tfperf.render.options import RenderOptions
from tfperf.render.sparkline import sparkline_text
from tfperf.render.step_chart import chart_text
from tfperf.render.text import safe
from tfperf.render.tree import DOTS
from tfperf.render.values import cut_note, fact_text, source_facts, text_table
from tfperf.reports.model import BarChart, Chart, Fact, Finding, Report, Section, Sparkline, Table

_SPECIAL = re.compile(r"[\\`*_~|<>\[\]#$&]")
_SEVERITIES = {"problem": "Problem", "hint": "Hint", "info": "Info"}


def render_markdown(report: Report, options: RenderOptions) -> str:
    """Return the report as Markdown; only the step chart knows a width."""
    source = source_facts(report)
    blocks = [_facts(source)] if source else []
    for section in report.sections:
        blocks.append(f"## {escape(section.title)}")
        blocks += list(_section_blocks(section, options)) or ["Nothing to show."]
    if not report.sections:
        blocks.append("This report has no sections.")
    return "\n\n".join(blocks) + "\n"


def escape(text: str) -> str:
    """Return text that Markdown shows as it is, on one line."""
    return _SPECIAL.sub(r"\\\g<0>", safe(text))


def _section_blocks(section: Section, options: RenderOptions) -> Iterator[str]:
    """Yield findings, facts, charts, tables and notes."""
    if section.findings:
        yield "\n".join(map(_finding, section.findings))
    if section.facts:
        yield _facts(section.facts)
    for chart in section.charts:
        yield _chart(chart, options.width)
    for table in section.tables:
        yield _table(table)
    for note in section.notes:
        yield f"Note: {escape(note)}"


def _finding(finding: Finding) -> str:
    """Return the conclusion as a list item, and what to do as an item below it."""
    item = f"- **{_SEVERITIES[finding.severity]}:** {escape(finding.text)}"
    return f"{item}\n  - Try: {escape(finding.action)}" if finding.action else item


def _facts(facts: Sequence[Fact]) -> str:
    """Return facts as a table of two columns, a note in brackets behind its value."""
    rows = [
        [escape(fact.title), escape(fact_text(fact)) + (f" ({escape(fact.note)})" if fact.note else "")]
        for fact in facts
    ]
    return _grid(["Fact", "Value"], rows, numeric=[False, False])


def _chart(chart: Chart, width: int) -> str:
    """Return the chart as a code block, fenced by more backticks than any of its labels has."""
    # Markdown is UTF-8, so a sparkline has blocks.
    if isinstance(chart, Sparkline):
        text = sparkline_text(chart, width, interactive=True)
    elif isinstance(chart, BarChart):
        text = "\n".join(bar_lines(chart, width, interactive=True))
    else:
        text = chart_text(chart, width)
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"### {escape(chart.title)}\n\n{fence}text\n{text}\n{fence}"


def _table(table: Table) -> str:
    """Return title, table, how much of it is shown, and its note."""
    texts = text_table(table, DOTS)
    rows = [[escape(cell) for cell in row] for row in texts.rows]
    headers = [escape(header) for header in texts.headers]
    grid = _grid(headers, rows, numeric=texts.numeric) if rows else "No rows."
    parts = [f"### {escape(table.title)}", grid, escape(cut_note(table)), escape(table.note)]
    return "\n\n".join(part for part in parts if part)


def _grid(headers: Sequence[str], rows: Sequence[Sequence[str]], *, numeric: Sequence[bool]) -> str:
    """Return a table in Markdown."""
    # Of the two styles that GitHub reads, only `pipe` says which columns are right-aligned.
    alignment = ["right" if number else "left" for number in numeric]
    return tabulate(rows, headers, tablefmt="pipe", colalign=alignment, disable_numparse=True)
