"""Select the parts of a report to show: levels, rows of ranked tables, and the worst of many hosts or devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from tfperf.report.model import Chart, Column, Fact, Finding, Level, Ranked, Report, Section, Table, table_of

MOST_EACH = 5
"""Maximum hosts or devices with a row each; for more, the worst and percentiles are shown."""

_ORDER: dict[Level, int] = {"brief": 0, "full": 1, "data": 2}

Part = TypeVar("Part", Section, Finding, Fact, Chart, Table, Column)


class Detail(Struct, frozen=True):
    """The extent of a report: `sections` and their `parts` up to a level.

    Ranked tables are cut to `top` rows; None: the table's own number `for_people`, who get main columns only, else all.
    """

    sections: Level
    parts: Level
    top: int | None = None
    for_people: bool = True
    apart: bool = True
    """Whether tables are split by their `split_key`."""
    every_row: bool = False
    """Whether tables with a row per host or device have all rows instead of the worst and percentiles."""
    leads_first: bool = False
    """Whether lead sections come first, for a document."""
    only_leads: bool = False
    """Whether only lead sections are shown, if there are any."""
    sort: str = ""
    """Key of the column that sorts the tables that have it: numbers from the largest, unknown ones last."""
    most_rows: int | None = None
    """Rows of each table; None: no such limit."""


EVERYTHING = Detail("data", "data", for_people=False, apart=False, every_row=True)


def shown(report: Report, detail: Detail) -> Report:
    """Return the selected parts of the report."""
    sections = [_section(section, detail) for section in _up_to(detail.sections, report.sections)]
    leads = [section for section in sections if section.is_lead]
    if detail.only_leads and leads:
        sections = leads
    if detail.leads_first:
        sections.sort(key=lambda section: not section.is_lead)
    return replace(report, sections=tuple(sections))


def _up_to(level: Level, parts: Sequence[Part]) -> tuple[Part, ...]:
    return tuple(part for part in parts if _ORDER[part.level] <= _ORDER[level])


def _section(section: Section, detail: Detail) -> Section:
    is_brief = detail.parts == "brief"
    # The first screen refers to the rest, unless the rest follows.
    has_pointer = is_brief and section.pointer and (detail.only_leads or not section.is_lead)
    notes = section.notes if is_brief else (*section.notes, *section.detail_notes)
    tables = []
    for table in _up_to(detail.parts, section.tables):
        if detail.for_people and table.rows_for_people is not None:
            note = " ".join(filter(None, (table.note, table.note_for_people)))
            table = replace(table.only(table.rows_for_people), note=note)
        table = sorted_by(table, detail.sort)
        if detail.apart and table.split_key:
            for value, rows in _rows_of(table, table.split_key).items():
                columns = tuple(column for column in table.columns if column.key != table.split_key)
                part = replace(table.only(rows), columns=columns, title=f"{table.title}: {value}")
                tables += _rows(part, section.name, detail)
        else:
            tables += _rows(table, section.name, detail)
    if detail.most_rows is not None:
        tables = [table.head(detail.most_rows) for table in tables]
    return replace(
        section,
        findings=_up_to(detail.parts, section.findings),
        facts=_up_to(detail.parts, section.facts),
        charts=_up_to(detail.parts, section.charts),
        tables=tuple(replace(table, columns=_up_to(detail.parts, table.columns)) for table in tables),
        notes=(*notes, section.pointer) if has_pointer else notes,
        detail_notes=(),
        pointer="",
    )


def sorted_by(table: Table, key: str) -> Table:
    """Return the table sorted by a column, which is then shown; unchanged if it lacks the column, or is a tree."""
    column = next((each for each in table.columns if each.key == key), None)
    if column is None or any(each.depth_key for each in table.columns):
        return table
    values = table.data[key]
    known = [row for row, value in enumerate(values) if value is not None and value == value]
    known.sort(key=values.__getitem__, reverse=column.dtype is not str)
    rows = [*known, *sorted({*range(len(table))} - {*known})]
    columns = tuple(replace(each, level="brief") if each is column else each for each in table.columns)
    return replace(table.only(rows), columns=columns, total_rows=table.total_rows)


def _rows(table: Table, section: str, detail: Detail) -> list[Table]:
    ranked = table.ranked
    if ranked is None:
        rows = table.brief_rows if detail.parts == "brief" else None
        return [table if rows is None else replace(table.head(rows), all_rows_in=f"-s {section}")]
    if ranked.each:
        return [table] if detail.every_row else _worst(table, ranked, detail)
    top = detail.top or (ranked.top if detail.for_people else None)
    if top is None or not ranked.apart:
        return [table if top is None else table.head(top)]
    first = [row for part in _rows_of(table, ranked.apart).values() for row in part[:top]]
    return [replace(table.only(first), total_rows=table.total_rows)]


def _rows_of(table: Table, key: str) -> dict[Any, list[int]]:
    rows: dict[Any, list[int]] = {}
    for row, value in enumerate(table.data[key]):
        rows.setdefault(value, []).append(row)
    return rows


def _worst(table: Table, ranked: Ranked, detail: Detail) -> list[Table]:
    """Return the worst rows and percentiles of all, or a short table unchanged. Unknown ranks as 0."""
    groups = _rows_of(table, ranked.apart) if ranked.apart else {"": list(range(len(table)))}
    if max(map(len, groups.values()), default=0) <= MOST_EACH:
        return [table]
    sign, values = 1 if ranked.least_is_worst else -1, table.data[ranked.by]
    order = [row for rows in groups.values() for row in sorted(rows, key=lambda row: sign * (values[row] or 0))]
    worst = table.only(order).head(max(detail.top or 0, MOST_EACH))
    return [worst, _percentiles(replace(table, columns=_up_to(detail.parts, table.columns)), ranked, groups)]


def _percentiles(table: Table, ranked: Ranked, groups: Mapping[Any, Sequence[int]]) -> Table:
    """Return percentiles of each numeric column separately; a percentile is the value of a row (nearest rank).

    They are over rows with a known rank, if any; a column with an unknown value in these rows has none.
    """
    shares = {"p50": 50, "p10": 10, "min": 0} if ranked.least_is_worst else {"p50": 50, "p90": 90, "max": 100}
    numbers = [column for column in table.columns if column.dtype in (int, float)]
    ranks = table.data[ranked.by]
    known = {group: [row for row in rows if ranks[row] is not None] for group, rows in groups.items()}
    if not any(known.values()):
        known = {group: [*rows] for group, rows in groups.items()}
    data: dict[str, list[Any]] = {column.key: [] for column in numbers}
    for rows in known.values():
        for column in numbers:
            values = [table.data[column.key][row] for row in rows]
            ordered = sorted(values) if None not in values else []
            places = [max(-(-percent * len(values) // 100), 1) - 1 for percent in shares.values()]
            data[column.key] += [ordered[place] if ordered else None for place in places]
    data["group"] = [group for group in groups for _ in shares]
    data["percentile"] = [f"{name} of {len(rows):,}" for rows in known.values() for name in shares]
    first = [Column("group", ranked.apart.capitalize(), str)] if ranked.apart else []
    unknown = len(ranks) - sum(map(len, known.values()))
    return table_of(
        f"{table.name}_percentiles",
        f"{table.title}: percentiles of all {ranked.each}",
        [*first, Column("percentile", "Percentile", str), *numbers],
        data,
        note="Each column separately." + f" Omitted because their rank is unknown: {unknown:,}." * bool(unknown),
    )
