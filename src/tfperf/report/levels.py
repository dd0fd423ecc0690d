"""What of a report a reader is shown: parts by their declared levels, and the first rows of long tables.

Programs get everything; a page gets everything but sections that are `full`; people in a terminal get what is `brief`,
or of a section that they ask for by name what is `full` too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from tfperf.report.model import Chart, Column, Fact, Finding, Level, Report, Section, Table

_ORDER: dict[Level, int] = {"brief": 0, "full": 1, "data": 2}


Part = TypeVar("Part", Section, Finding, Fact, Chart, Table, Column)


class Detail(Struct, frozen=True):
    """How much of a report is shown: `sections` and their `parts` up to a level.

    Tables are cut to `top` rows; None is as many as each table says `for_people`, who see their columns only, else all.
    """

    sections: Level
    parts: Level
    top: int | None = None
    for_people: bool = True
    leads_first: bool = False
    """Whether sections that lead stand at the top: for a document that is read from its top."""


EVERYTHING = Detail("data", "data", for_people=False)


def shown(report: Report, detail: Detail) -> Report:
    """Return the report with what is to be shown of it."""
    sections = [_section(section, detail) for section in _up_to(detail.sections, report.sections)]
    if detail.leads_first:
        sections.sort(key=lambda section: not section.is_lead)
    return replace(report, sections=tuple(sections))


def _up_to(level: Level, parts: Sequence[Part]) -> tuple[Part, ...]:
    return tuple(part for part in parts if _ORDER[part.level] <= _ORDER[level])


def _section(section: Section, detail: Detail) -> Section:
    is_brief = detail.parts == "brief"
    notes = section.notes if is_brief else (*section.notes, *section.detail_notes)
    return replace(
        section,
        findings=_up_to(detail.parts, section.findings),
        facts=_up_to(detail.parts, section.facts),
        charts=_up_to(detail.parts, section.charts),
        tables=tuple(part for table in _up_to(detail.parts, section.tables) for part in _tables(table, detail)),
        notes=(*notes, section.pointer) if is_brief and section.pointer else notes,
        detail_notes=(),
        pointer="",
    )


def _tables(table: Table, detail: Detail) -> list[Table]:
    """Return a table as people see it: its columns, the rows for people, and apart what `split_key` tells apart."""
    if not detail.for_people:
        return [table if detail.top is None else table.head(detail.top)]
    if table.rows_for_people is not None:
        table = table.only(table.rows_for_people)
    table = replace(table, columns=_up_to(detail.parts, table.columns))
    tables = _split(table) if table.split_key else [table]
    top = detail.top or table.top
    return [part if top is None else part.head(top) for part in tables]


def _split(table: Table) -> list[Table]:
    """Return a table for each value of the column `split_key`, in the order of their first rows."""
    values = table.data[table.split_key]
    columns = tuple(column for column in table.columns if column.key != table.split_key)
    title = table.title[:1].lower() + table.title[1:]
    return [
        replace(
            table.only([row for row, other in enumerate(values) if other == value]),
            columns=columns,
            title=f"{str(value).capitalize()} {title}",
        )
        for value in dict.fromkeys(values)
    ]
