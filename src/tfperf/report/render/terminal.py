"""Render a report for a terminal, a pipe or a log, readable at 80 columns and without color."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from itertools import compress

from msgspec.structs import replace

from tfperf.report.model import Fact, Finding, GaugeChart, Report, Section, SegmentBar, Table
from tfperf.report.render import RenderOptions
from tfperf.report.render.charts import chart_lines, segment_bar_lines
from tfperf.report.render.screen import NARROWEST, PIPE_HEIGHT
from tfperf.report.render.text_table import (
    ASCII,
    LINES,
    PLAIN_ELLIPSIS,
    Line,
    Part,
    TextTable,
    cells,
    column_widths,
    cut_note,
    fits,
    fold,
    joined,
    line_of,
    main_columns,
    plain_text,
    shorten,
    table_lines,
    text_table,
    width_of,
    wrap,
    wrap_prose,
)
from tfperf.report.render.values import brief, for_people, measure_text, safe, source_facts

Block = Sequence[Line]
"""Lines without blank lines between them."""

_LONGEST_LINE = 120
_LONGEST_TITLE = 34
_LONGEST_WHOLE_NAME = 400

_NAMES_THE_RUN = ("run", "hosts")
"""Keys of the source on the first screen; folders are too long."""

_MARKS = {"problem": Part("!! ", "bold red"), "hint": Part(" > ", "bold yellow"), "info": Part(" i ", "bold cyan")}


def render_terminal(report: Report, options: RenderOptions) -> str:
    """Return the report as text that ends with a newline."""
    folder = report.source.get("folder")
    if not options.target and isinstance(folder, str) and folder:
        options = replace(options, target=shlex.quote(safe(folder)))
    gauges = [chart for section in report.sections for chart in section.charts if isinstance(chart, GaugeChart)]
    width = max(options.width, NARROWEST)
    lines = [line for chart in gauges for line in chart_lines(chart, width, interactive=options.interactive)]
    is_answer = options.view == "answer" and report.sections and all(section.is_lead for section in report.sections)
    blocks = _answer_blocks if is_answer else _blocks
    for block in blocks(report, options):
        lines += [line_of(""), *block] if lines else block
    # A long first screen has no blank lines, from its top, so that it fits into a window.
    blank = [number for number, line in enumerate(lines) if not plain_text(line)] if is_answer else []
    for number in reversed(blank[: max(len(lines) - PIPE_HEIGHT, 0)]):
        del lines[number]
    return joined(lines, colour=options.colour, colours=options.colours, links=options.links)


def _answer_blocks(report: Report, options: RenderOptions) -> Iterator[Block]:
    """Yield the lead sections sized for a screen: without headings; a bar of the step comes before its causes."""
    width = max(options.width, NARROWEST)
    read = [measure_text(fact.value, fact.unit) for fact in source_facts(report) if fact.key in _NAMES_THE_RUN]
    if read:
        yield [line_of(shorten(safe("  ".join(read)), width, mark=PLAIN_ELLIPSIS), "dim")]
    for section in report.sections:
        lines = _fact_lines(section.facts, width) if section.facts else []
        bars = [chart for chart in section.charts if isinstance(chart, SegmentBar)]
        lines += segment_bar_lines(bars, width) if bars else []
        for chart in section.charts:
            if not isinstance(chart, SegmentBar):
                lines += chart_lines(chart, min(width, _LONGEST_LINE), interactive=options.interactive)
        findings = [line for finding in section.findings for line in _finding_lines(finding, options)]
        notes = [line for note in section.notes for line in _paragraph(note, options, style="dim")]
        tables = [_table_block(table, width, interactive=options.interactive) for table in section.tables]
        blocks = [lines, *tables, [*findings, *notes]] if bars else [findings, *tables, [*lines, *notes]]
        yield from (block for block in blocks if block)


def _blocks(report: Report, options: RenderOptions) -> Iterator[Block]:
    """Yield the source, then the parts of each section in the order of `Section`."""
    width = max(options.width, NARROWEST)
    source = source_facts(report)
    if source:
        yield _fact_lines(source, width)
    if not report.sections:
        yield [line_of("This report has no sections.")]
    for section in report.sections:
        title = _paragraph(section.title, options, style="bold")
        underline = line_of("=" * max(map(width_of, title)), "bold")
        blocks = list(_section_blocks(section, options))
        yield [*title, underline, *(blocks[0] if blocks else [line_of("nothing to show")])]
        yield from blocks[1:]


def _section_blocks(section: Section, options: RenderOptions) -> Iterator[Block]:
    width, interactive = max(options.width, NARROWEST), options.interactive
    if any(isinstance(chart, GaugeChart) for chart in section.charts):
        # Its charts are the first lines of the report, and contain the finding and the table.
        section = replace(section, findings=(), charts=(), tables=())
    findings = [line for finding in section.findings for line in _finding_lines(finding, options)]
    bar_comes_first = any(isinstance(chart, SegmentBar) for chart in section.charts)
    if findings and not bar_comes_first:
        yield findings
    if section.facts:
        yield _fact_lines(section.facts, width)
    for chart in section.charts:
        drawn = chart_lines(chart, min(width, _LONGEST_LINE), interactive=interactive)
        yield [*_paragraph(chart.title, options, style="bold"), *drawn]
    if findings and bar_comes_first:
        yield findings
    for table in section.tables:
        yield _table_block(table, width, interactive=interactive)
    if section.notes:
        notes = (_paragraph(note, options, first="note: ", style="dim") for note in section.notes)
        yield [line for lines in notes for line in lines]


def _paragraph(text: str, options: RenderOptions, *, first: str = "", style: str = "") -> list[Line]:
    """Return text as lines with a hanging indent after `first`."""
    lines = _wrapped(text, options, cells(first))
    return [line_of((" " * cells(first) if number else first) + line, style) for number, line in enumerate(lines)]


def _wrapped(text: str, options: RenderOptions, indent: int) -> list[str]:
    width = min(max(options.width, NARROWEST), _LONGEST_LINE) - indent
    return wrap_prose(for_people(text), width, options.target)


def _finding_lines(finding: Finding, options: RenderOptions) -> list[Line]:
    mark = _MARKS[finding.severity]
    space = Part(" " * len(mark.text))
    texts = _wrapped(finding.text, options, len(mark.text))
    lines: list[Line] = [(space if number else mark, Part(text)) for number, text in enumerate(texts)]
    for label, text, url in (("try", finding.action, finding.url), ("see", finding.see, "")):
        for number, line in enumerate(_wrapped(text, options, len(mark.text) + len("try: ")) if text else []):
            start = " " * len("try: ") if number else label
            lines.append((space, Part(start, link="" if number else url), Part(line if number else f": {line}")))
    if finding.url and options.view != "answer" and not options.links:
        lines.append((space, Part(f"docs: {safe(finding.url)}", "dim")))
    return lines


def _fact_lines(facts: Sequence[Fact], width: int) -> list[Line]:
    values = [measure_text(fact.value, fact.unit) for fact in facts]
    titles = [for_people(fact.title) for fact in facts]
    left = min(max(map(cells, titles)), _LONGEST_TITLE)
    has_note = [bool(fact.note) and not isinstance(fact.value, str) for fact in facts]
    middle = max(map(cells, compress(values, has_note)), default=0)
    lines: list[Line] = []
    for fact, title, value in zip(facts, titles, values, strict=True):
        space = " " * (2 + max(middle - cells(value), 0))
        text = f"{value}{space}{for_people(fact.note)}" if fact.note else value
        *above, beside = fold(title, left, hang=2)
        lines += map(line_of, above)
        for number, line in enumerate(wrap(text, min(width, _LONGEST_LINE) - left - 2)):
            start = "" if number else beside
            # Only the first line of a long value is bold.
            bold = "" if number else line[: len(value)]
            lines.append((Part(start + " " * (left + 2 - cells(start))), Part(bold, "bold"), Part(line[len(bold) :])))
    return lines


def _table_block(table: Table, width: int, *, interactive: bool) -> Block:
    lines = _text_lines(table.title, width, "bold")
    if len(table):
        texts = text_table(table, LINES if interactive else ASCII)
        for number, part in enumerate(parts_that_fit(texts, width)):
            lines += [line_of("")] if number else []
            lines += table_lines(part, width, interactive=interactive)
    else:
        lines.append(line_of("no rows"))
    lines += _whole_names(table, width)
    for remark in (cut_note(table), table.note):
        lines += _text_lines(remark, width, "dim") if remark else []
    return lines


def _text_lines(text: str, width: int, style: str) -> list[Line]:
    return [line_of(line, style) for line in wrap_prose(for_people(text), min(width, _LONGEST_LINE))]


def _whole_names(table: Table, width: int) -> Block:
    """Return the whole names of shortened names in the table, once each."""
    lines: list[Line] = []
    for column in main_columns(table):
        if not column.whole_key:
            continue
        pairs = zip(table.data[column.key], table.data[column.whole_key], strict=True)
        for short, whole in dict.fromkeys((str(short), str(whole)) for short, whole in pairs if short != whole):
            lines.append(line_of(shorten(safe(short), width), "dim"))
            text = brief(whole, _LONGEST_WHOLE_NAME)
            lines += (line_of(f"    {part}", "dim") for part in fold(text, min(width, _LONGEST_LINE) - 4))
    return [line_of("Full names", "bold"), *lines] if lines else []


def parts_that_fit(table: TextTable, width: int) -> list[TextTable]:
    """Split a wide table by column, repeating the names, so that the window does not break lines within numbers."""
    if fits(table, width):
        return [table]
    name = next((number for number, is_number in enumerate(table.numeric) if not is_number), 0)
    parts: list[list[int]] = []
    for column in range(len(table.headers)):
        if column == name:
            continue
        if parts and _is_roomy(_columns(table, sorted([name, *parts[-1], column])), width):
            parts[-1].append(column)
        else:
            parts.append([column])
    return [_columns(table, sorted([name, *part])) for part in parts] or [table]


_ROOMY_NAME = 20


def _is_roomy(table: TextTable, width: int) -> bool:
    """Return whether the table fits, with room for a part of each name that a reader recognizes."""
    longest = [max(map(cells, column), default=0) for column in zip(*table.rows, strict=True)]
    columns = zip(column_widths(table, width), longest, table.numeric, strict=True)
    return fits(table, width) and all(is_number or size >= min(most, _ROOMY_NAME) for size, most, is_number in columns)


def _columns(table: TextTable, columns: Sequence[int]) -> TextTable:
    return TextTable(
        headers=tuple(table.headers[column] for column in columns),
        rows=tuple(tuple(row[column] for column in columns) for row in table.rows),
        numeric=tuple(table.numeric[column] for column in columns),
    )
