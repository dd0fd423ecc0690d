"""The parts of a report as HTML that is whole without scripts: verdict, facts, findings, the first rows of tables.

Every text goes through `text.escape`; nothing else may put a string into markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count

from tfperf.render.page.chart_data import Drawing, Drawings
from tfperf.render.page.table_data import Island
from tfperf.render.page.text import LONGEST_NAME, escape
from tfperf.render.tree import LINES
from tfperf.render.values import cut_note, fact_text, text_table
from tfperf.report.model import Fact, Finding, Section, Table

FIRST_ROWS = 10
SEVERITIES = {"problem": "Problem", "hint": "Hint", "info": "Info"}
_SHORT = 120
_UNSEEN = ' class="unseen"'
_NUMBER = ' class="number"'
_MOST_ITEMS = 200


@dataclass(frozen=True, slots=True)
class Numbered:
    """What the ids in the page count: sections, and the first table and chart of each."""

    section: int
    first_table: int
    first_chart: int


def section_markup(section: Section, charts: Drawings, islands: Sequence[Island], at: Numbered) -> str:
    """Return one section; the first finding of the first one is the verdict."""
    leads = at.section == 0 and bool(section.findings)
    kind = _UNSEEN if leads else ""
    parts = [f'<h2 id="section-{at.section}-title"{kind}>{escape(section.title)}</h2>']
    if leads:
        parts.append(_finding(section.findings[0], "div", "verdict"))
    parts.append(_listed([_finding(own, "li", "finding") for own in section.findings[leads:]], "findings"))
    parts.append(facts_markup(section.facts))
    numbers = count(at.first_chart)
    parts += [_figure(chart, next(numbers)) for chart in charts.own]
    for index, (table, bars) in enumerate(zip(section.tables, charts.of_tables, strict=True)):
        drawn = _bars(bars, next(numbers), at.first_table + index) if bars else ""
        parts.append(_table(table, islands[index], at.first_table + index, drawn))
    parts.append(_listed([f"<li>{escape(note)}</li>" for note in section.notes], "notes"))
    body = "\n".join(part for part in parts if part)
    if not (section.findings or section.facts or section.charts or section.tables or section.notes):
        body += "\n<p>Nothing to show.</p>"
    return f'<section id="section-{at.section}" aria-labelledby="section-{at.section}-title">\n{body}\n</section>'


def facts_markup(facts: Sequence[Fact], kind: str = "facts") -> str:
    """Return facts as a list of terms, each with its value and its note."""
    if not facts:
        return ""
    items = "".join(
        f"<div><dt>{escape(fact.title)}</dt><dd>{escape(fact_text(fact), LONGEST_NAME)}"
        + (f" <small>{escape(fact.note)}</small>" if fact.note else "")
        + "</dd></div>"
        for fact in facts[:_MOST_ITEMS]
    )
    return f'<dl class="{kind}">{items}</dl>{_left_out(facts)}'


def navigation(sections: Iterable[Section]) -> str:
    """Return links to the sections, each with the number of problems in it."""
    items = []
    for at, section in enumerate(sections):
        problems = sum(finding.severity == "problem" for finding in section.findings)
        word = "problem" if problems == 1 else "problems"
        badge = f' <span class="badge">{problems}<span class="unseen"> {word}</span></span>' if problems else ""
        items.append(f'<li><a href="#section-{at}">{escape(section.title)}{badge}</a></li>')
    return f'<nav aria-label="Sections"><ol>{"".join(items)}</ol></nav>'


def _finding(finding: Finding, element: str, kind: str) -> str:
    tried = f'<p class="action"><b>Try:</b> {escape(finding.action)}</p>' if finding.action else ""
    return (
        f'<{element} class="{kind} {finding.severity}"><p class="severity">{SEVERITIES[finding.severity]}</p>'
        f"<p>{escape(finding.text)}</p>{tried}</{element}>"
    )


def _listed(items: Sequence[str], kind: str) -> str:
    return f'<ul class="{kind}">{"".join(items[:_MOST_ITEMS])}</ul>{_left_out(items)}' if items else ""


def _left_out(items: Sequence[object]) -> str:
    more = len(items) - _MOST_ITEMS
    return f'<p class="remark">{more:,} more are not in this page; JSON has them.</p>' if more > 0 else ""


def _figure(chart: Drawing, number: int) -> str:
    """Return the place of a chart with its title and its text; a script draws it."""
    name = f"chart-{number}"
    kind = "words told" if chart.is_bars else "words"
    return (
        f'<figure><figcaption id="{name}-title">{escape(chart.title)}</figcaption>'
        f'<div class="chart" id="{name}" role="img" aria-labelledby="{name}-title" aria-describedby="{name}-words">'
        f'</div><p class="{kind}" id="{name}-words">{escape(chart.words)}</p></figure>'
    )


def _bars(chart: Drawing, number: int, table: int) -> str:
    """Return the place of a chart that stands above its table, which says the same to who cannot see it."""
    name = f"chart-{number}"
    return (
        f'<div class="chart" id="{name}" role="img" aria-labelledby="table-{table}-title" '
        f'aria-describedby="{name}-words"></div><p class="words bars" id="{name}-words">'
        f'{escape(chart.title)}<span class="unseen">: {escape(chart.words)}</span></p>'
    )


# --- tables ---


def _table(table: Table, island: Island, number: int, bars: str) -> str:
    name = f"table-{number}"
    parts = [f'<h3 id="{name}-title">{escape(table.title)}</h3>', bars, '<div class="tools"></div>', _grid(table, name)]
    parts += [f'<p class="remark{kind}">{escape(text)}</p>' for kind, text in _remarks(table, island) if text]
    parts.append(_meanings(table))
    parts.append(f'<script type="text/plain" class="island">{island.data}</script>')
    return f'<div class="table" id="{name}">{"".join(parts)}</div>'


def _grid(table: Table, name: str) -> str:
    """Return the first rows as a table."""
    texts = text_table(table.head(FIRST_ROWS), LINES)
    classes = [_NUMBER if number else "" for number in texts.numeric]
    head = "".join(
        f'<th scope="col"{kind}>{escape(title, LONGEST_NAME)}</th>'
        for kind, title in zip(classes, texts.headers, strict=True)
    )
    rows = "".join(
        "<tr>" + "".join(f"<td{kind}>{escape(cell, _SHORT)}</td>" for kind, cell in zip(classes, row, strict=True))
        + "</tr>"
        for row in texts.rows
    )  # fmt: skip
    return (
        f'<div class="scroll" role="region" aria-labelledby="{name}-title" tabindex="0">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _remarks(table: Table, island: Island) -> list[tuple[str, str]]:
    """Return what is said below the table; what is true only without a script is `static`."""
    held, kept = len(table), len(island.table)
    first = f"The first {FIRST_ROWS} of {held:,} rows; with JavaScript, the page shows all."
    rows = f"To stay below 5 MB, this page holds {kept:,} of {held:,} rows; tfperf export-csv writes all."
    columns = "To stay below 5 MB, this page has the main columns only; tfperf export-csv writes all."
    return [
        (" static", first if held > FIRST_ROWS else ""),
        (" cut", rows if kept < held else ""),
        (" cut", "" if island.all_columns else columns),
        ("", "" if held else "No rows."),
        ("", cut_note(table)),
        ("", table.note),
    ]


def _meanings(table: Table) -> str:
    """Return what the columns mean, as far as it is declared."""
    told = [column for column in table.columns if column.meaning]
    if not told:
        return ""
    items = "".join(f"<div><dt>{escape(own.title)}</dt><dd>{escape(own.meaning)}</dd></div>" for own in told)
    return f"<details><summary>What the columns mean</summary><dl>{items}</dl></details>"
