"""Report -> text for a terminal, a pipe or a log; readable at 80 columns, and without colour.

Every line is laid out here to its width; rich only colours. Trace text reaches rich as `Text` and
never as markup, so that names like `[bold]` or `:smile:` stay what they are.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

from rich.text import Text

from tfperf.render.bar_chart import bar_lines
from tfperf.render.options import RenderOptions
from tfperf.render.sparkline import sparkline_text
from tfperf.render.step_chart import chart_lines
from tfperf.render.table_lines import table_lines
from tfperf.render.text import cells, fold, safe, wrap
from tfperf.render.tree import ASCII, LINES
from tfperf.render.values import TextTable, cut_note, fact_text, source_facts, text_table
from tfperf.report.model import BarChart, Chart, Fact, Finding, GroupedBars, Report, Section, Sparkline, Table

Block = Sequence[Text]
"""What stands together without a blank line."""

SMALLEST_WIDTH = 40
"""Narrower windows get lines of this width: no layout makes sense below."""

_LONGEST_LINE = 100
_LONGEST_TITLE = 34

_MARKS = {"problem": ("!! ", "bold red"), "hint": (" > ", "bold yellow"), "info": (" i ", "bold cyan")}

_UNLIMITED = 1_000_000


def render_terminal(report: Report, options: RenderOptions) -> str:
    """Return the report as text that ends with a newline."""
    lines: list[Text] = []
    for block in _blocks(report, options):
        lines += [Text(), *block] if lines else block
    return _coloured(lines) if options.colour else "".join(f"{line.plain.rstrip(' ')}\n" for line in lines)


def _coloured(lines: Sequence[Text]) -> str:
    """Return lines with the escape codes of their styles; all are laid out, so rich must neither wrap nor cut any."""
    from rich.console import Console

    screen = io.StringIO()
    console = Console(
        file=screen,
        width=_UNLIMITED,
        height=len(lines),
        color_system="standard",
        force_terminal=True,
        no_color=False,
        force_jupyter=False,
        legacy_windows=False,
    )
    for line in lines:
        console.print(line)
    return screen.getvalue()


def _blocks(report: Report, options: RenderOptions) -> Iterator[Block]:
    """Yield what was read, then the parts of each section in the order that the model states."""
    width = max(options.width, SMALLEST_WIDTH)
    source = source_facts(report)
    if source:
        yield _fact_lines(source, width)
    if not report.sections:
        yield [Text("This report has no sections.")]
    for section in report.sections:
        blocks = list(_section_blocks(section, width, interactive=options.interactive)) or [[Text("nothing to show")]]
        yield [*_heading(section.title, width), *blocks[0]]
        yield from blocks[1:]


def _section_blocks(section: Section, width: int, *, interactive: bool) -> Iterator[Block]:
    """Yield findings, facts, charts, tables and notes."""
    if section.findings:
        yield [line for finding in section.findings for line in _finding_lines(finding, width)]
    if section.facts:
        yield _fact_lines(section.facts, width)
    for chart in section.charts:
        yield _chart_block(chart, width, interactive=interactive)
    for table in section.tables:
        yield _table_block(table, width, interactive=interactive)
    if section.notes:
        notes = (_paragraph(note, width, first="note: ", style="dim") for note in section.notes)
        yield [line for lines in notes for line in lines]


def _paragraph(text: str, width: int, *, first: str = "", style: str = "") -> list[Text]:
    """Return running text as lines that hang below the end of `first`."""
    lines = wrap(safe(text), min(width, _LONGEST_LINE) - cells(first))
    starts = [first] + [" " * cells(first)] * (len(lines) - 1)
    return [Text(start + line, style=style) for start, line in zip(starts, lines, strict=True)]


def _heading(title: str, width: int) -> list[Text]:
    """Return a section's title, underlined so that it stands out without colour."""
    lines = _paragraph(title, width, style="bold")
    return [*lines, Text("=" * max(line.cell_len for line in lines), style="bold")]


def _finding_lines(finding: Finding, width: int) -> list[Text]:
    """Return the conclusion behind its mark, and below it what to do."""
    mark, style = _MARKS[finding.severity]
    lines = _paragraph(finding.text, width, first=mark)
    lines[0].stylize(style, 0, len(mark))
    if finding.action:
        lines += _paragraph(finding.action, width, first=" " * len(mark) + "try: ")
    return lines


def _fact_lines(facts: Sequence[Fact], width: int) -> list[Text]:
    """Return aligned lines: title, value with unit, note."""
    values = [fact_text(fact) for fact in facts]
    left = min(max(cells(safe(fact.title)) for fact in facts), _LONGEST_TITLE)
    noted = (value for value, fact in zip(values, facts, strict=True) if fact.note and not isinstance(fact.value, str))
    middle = max(map(cells, noted), default=0)
    lines: list[Text] = []
    for fact, value in zip(facts, values, strict=True):
        space = " " * (2 + max(middle - cells(value), 0))
        text = f"{value}{space}{safe(fact.note)}" if fact.note else value
        parts = [Text(line) for line in wrap(text, min(width, _LONGEST_LINE) - left - 2)]
        parts[0].stylize("bold", 0, len(value))
        lines += _beside(fold(safe(fact.title), left, hang=2), parts, left=left + 2)
    return lines


def _beside(titles: Sequence[str], parts: Sequence[Text], *, left: int) -> list[Text]:
    """Return the parts in a column that begins at `left`, the first of them beside the title's last line."""
    starts = [titles[-1]] + [""] * (len(parts) - 1)
    beside = [Text(start + " " * (left - cells(start))) + part for start, part in zip(starts, parts, strict=True)]
    return [*map(Text, titles[:-1]), *beside]


def _chart_block(chart: Chart, width: int, *, interactive: bool) -> list[Text]:
    """Return the chart below its title."""
    room = min(width, _LONGEST_LINE)
    if isinstance(chart, Sparkline):
        body = [Text(sparkline_text(chart, room, interactive=interactive))]
    elif isinstance(chart, (BarChart, GroupedBars)):
        body = [Text(line) for line in bar_lines(chart, room, interactive=interactive)]
    else:
        body = chart_lines(chart, room)
    return [*_paragraph(chart.title, width, style="bold"), *body]


def _table_block(table: Table, width: int, *, interactive: bool) -> Block:
    """Return title, table, how much of it is shown, and its note."""
    title = _paragraph(table.title, width, style="bold")
    body = (
        table_lines(_texts(table, interactive=interactive), width, interactive=interactive)
        if len(table)
        else [Text("no rows")]
    )
    remarks = [text for text in (cut_note(table), table.note) if text]
    return [*title, *body, *(line for text in remarks for line in _paragraph(text, width, style="dim"))]


def _texts(table: Table, *, interactive: bool) -> TextTable:
    return text_table(table, LINES if interactive else ASCII)
