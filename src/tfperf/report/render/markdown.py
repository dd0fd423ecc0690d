"""Render GitHub Markdown for pull request comments and wiki pages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec.structs import replace
from tabulate import tabulate

from tfperf.report.model import Fact, Report, Section
from tfperf.report.render import RenderOptions
from tfperf.report.render.charts import chart_lines
from tfperf.report.render.text_table import DOTS, cut_note, plain_text, text_table
from tfperf.report.render.values import brief, for_people, measure_text, source_facts

Write = Callable[[str], str]
"""Writes a text: escaped, whole or shortened."""

MOST_BYTES = 65_535
"""GitHub rejects comments over 65,536 characters; the number of bytes is never smaller."""

_CUT_NOTE = (
    "Note: this report was cut to fit in a GitHub comment (65,536 bytes): table rows, parts of long names and "
    "possibly its end are omitted. For the full report, write a file: -o report.html, or --format json."
)
_ROOM = MOST_BYTES - len(_CUT_NOTE) - 4
_LONGEST_WHEN_CUT = 200

_SPECIAL = re.compile(r"[\\`*_~|<>\[\]#$&]")
_OURS = r"//(?:www\.tensorflow\.org|docs\.jax\.dev|keras\.io|ui\.perfetto\.dev)/"
_ACTIVE = re.compile(rf"@(?=\w)|\b(?:https?|ftp):(?=//)(?!{_OURS})|(?<![\w/])www\.(?=\w)", re.IGNORECASE)
"""Text that GitHub turns into mentions or links; links to tfperf's documentation stay."""
_BREAK = "<!-- -->"
_SEVERITIES = {"problem": "Problem", "hint": "Hint", "info": "Info"}


def render_markdown(report: Report, options: RenderOptions) -> str:
    """Return the report as Markdown of less than 65,536 bytes; only charts depend on the width.

    The source comes last, so that the verdict is on top. If it is too long, first long texts lose their middle, then
    the longest tables lose rows, then the end of the report is cut, with a note.
    """
    text = _joined(_blocks(report, options, escape))
    return text if _size(text) <= MOST_BYTES else _joined([*_cut_blocks(report, options), _CUT_NOTE])


def escape(text: str) -> str:
    """Escape text for Markdown on one line, without mentions or links."""
    return _ACTIVE.sub(rf"\g<0>{_BREAK}", _SPECIAL.sub(r"\\\g<0>", for_people(text)))


def _escape_short(text: str) -> str:
    return escape(brief(text, _LONGEST_WHEN_CUT))


def _blocks(report: Report, options: RenderOptions, write: Write) -> Iterator[str]:
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


def _size(text: str) -> int:
    return len(text.encode())


def _cut_blocks(report: Report, options: RenderOptions) -> Iterator[str]:
    """Yield the part that fits: halve the longest tables, then keep the first blocks and the last one's first lines."""
    rows = max((len(table) for table in report.tables()), default=0)
    blocks = list(_blocks(report, options, _escape_short))
    while rows > 1 and _size(_joined(blocks)) > _ROOM:
        rows //= 2
        cut = (
            replace(section, tables=tuple(table.head(rows) for table in section.tables)) for section in report.sections
        )
        blocks = list(_blocks(replace(report, sections=tuple(cut)), options, _escape_short))
    room = _ROOM
    for block in blocks:
        # Cut lists and tables, but not charts.
        lines = block
        if _size(block) > room:
            fitting = block.encode()[: max(room, 0)].decode(errors="ignore")
            lines = "" if "```" in block else fitting.rpartition("\n")[0]
        if lines:
            yield lines
        if lines != block:
            return
        room -= _size(block) + len("\n\n")


def _section_blocks(section: Section, options: RenderOptions, write: Write) -> Iterator[str]:
    items = []
    for finding in section.findings:
        items.append(f"- **{_SEVERITIES[finding.severity]}:** {write(finding.text)}")
        labelled = (("Try", finding.action), ("See", finding.see))
        items += (f"  - {label}: {write(text)}" for label, text in labelled if text)
    if items:
        yield "\n".join(items)
    if section.facts:
        yield _facts(section.facts, write)
    for chart in section.charts:
        # Markdown is UTF-8, so bars and sparklines use block characters, as in a terminal.
        drawn = "\n".join(map(plain_text, chart_lines(chart, options.width, interactive=True)))
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", drawn)), default=0))
        yield f"### {write(chart.title)}\n\n{fence}text\n{drawn}\n{fence}"
    for table in section.tables:
        texts = text_table(table, DOTS)
        rows = [[write(cell) for cell in row] for row in texts.rows]
        headers = [write(header) for header in texts.headers]
        grid = _grid(headers, rows, numeric=texts.numeric) if rows else "No rows."
        parts = [f"### {write(table.title)}", grid, write(cut_note(table)), write(table.note)]
        yield "\n\n".join(part for part in parts if part)
    for note in section.notes:
        yield f"Note: {write(note)}"


def _facts(facts: Sequence[Fact], write: Write) -> str:
    rows = []
    for fact in facts:
        note = f" ({write(fact.note)})" if fact.note else ""
        rows.append([write(fact.title), write(measure_text(fact.value, fact.unit)) + note])
    return _grid(["Fact", "Value"], rows, numeric=[False, False])


def _grid(headers: Sequence[str], rows: Sequence[Sequence[str]], *, numeric: Sequence[bool]) -> str:
    # Of GitHub's two styles, only `pipe` supports right alignment.
    alignment = ["right" if is_number else "left" for is_number in numeric]
    return tabulate(rows, headers, tablefmt="pipe", colalign=alignment, disable_numparse=True)
