"""Reports of `tfperf query`: an answer, or the schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tfperf.base.storage.remote_path import Location
from tfperf.base.units import Unit, counted, without_middle
from tfperf.export.query.apart import ask
from tfperf.export.query.engine import Answer, QueryLimits
from tfperf.report.model import Column, Report, Section, Table, table_of
from tfperf.report.render.text_table import fits, text_table
from tfperf.report.render.values import cell_text

if TYPE_CHECKING:
    from tfperf.export.query.sql_tables import SqlTable

_UNITS: Mapping[str, Unit] = {"_ms": "ms", "_us": "us", "_percent": "%"}
_TITLE = "Result"
_LONGEST_CELL = 200


def answered(path: Location, sql: str, limits: QueryLimits, *, width: int | None = None, **options: Any) -> Report:
    """Query the profile at `path`, and return its `answer_report`; `options` are passed to `source_of`."""
    answer, described = ask(path, sql, limits, **options)
    return answer_report(answer, sql, described, width=width)


def schema_of(path: Location | None, **options: Any) -> Report:
    """Return all tables; with a profile, the tables that it has and their numbers of rows."""
    # Imported here because queries do not need it.
    from tfperf.export.query.sources import source_of
    from tfperf.export.query.sql_tables import every_table

    if path is None:
        return schema_report(list(every_table().values()))
    source = source_of(path, **options)
    declared = source.declared
    # Arrow tables, or datasets.
    tables = source.tables(declared)
    rows = {name: table.count_rows() if hasattr(table, "count_rows") else len(table) for name, table in tables.items()}
    report = schema_report([table for table in declared.values() if table.name in rows], rows, source.described)
    return replace(report, omitted=tuple(dict.fromkeys((*report.omitted, *source.omitted.values()))))


def answer_report(answer: Answer, sql: str, source: Mapping[str, Any], *, width: int | None = None) -> Report:
    """Return the answer as a report with one table.

    If the columns do not fit into `width` terminal cells, each row becomes a block of lines, one per value, so that no
    value is omitted.
    """
    data: dict[str, Sequence[Any]] = dict(zip(answer.names, answer.columns, strict=True))
    whole = data
    if width is not None:
        data = {
            name: [without_middle(value, _LONGEST_CELL) if isinstance(value, str) else value for value in values]
            for name, values in data.items()
        }
    columns = tuple(_column(name, values, for_people=width is not None) for name, values in data.items())
    is_capped = any(cut is not value for name in data for cut, value in zip(data[name], whole[name], strict=True))
    note = f"the first {counted(len(answer), 'row')}; --top omits the others" if answer.is_cut else ""
    if is_capped:
        note = "; ".join(filter(None, (note, "long texts lose their middle; --format csv has them whole")))
    table = Table("result", _TITLE, columns, data, len(answer), note=note)
    if width is not None and len(table) and not fits(text_table(table), width):
        table = _as_blocks(table)
    summary = {"sql": sql, "row_count": None if answer.is_cut else len(answer)}
    return Report(source, summary, (Section("query", "Query", tables=(table,)),))


def _column(name: str, values: Sequence[Any], *, for_people: bool) -> Column:
    """Return the column, with the unit from the suffix of its name."""
    ending = next((ending for ending in _UNITS if name.endswith(ending)), None)
    kinds = set(map(type, values)) - {type(None)}
    if ending is None or not kinds <= {int, float}:
        # As a count, large fractions keep their digits: 12,345,678.9 and not 1.23457e+07.
        return Column(name, name, _dtype(kinds), "count" if for_people and kinds == {float} else "")
    return Column(name, name.removesuffix(ending) or name, _dtype(kinds), _UNITS[ending])


def _dtype(kinds: set[type]) -> type[int] | type[float] | type[bool] | type[str]:
    if kinds <= {bool}:
        return bool if kinds else str
    return int if kinds == {int} else float if kinds <= {int, float} else str


def _as_blocks(table: Table) -> Table:
    heads = ("row", "column", "value")
    lines = [
        (str(number) if not at else "", column.key, cell_text(value, "count" if isinstance(value, float) else ""))
        for number, row in enumerate(table.rows(), start=1)
        for at, (column, value) in enumerate(zip(table.columns, row, strict=True))
    ]
    values: list[Sequence[Any]] = list(zip(*lines, strict=True))
    data = dict(zip(heads, values, strict=True))
    return table_of("result", _TITLE, tuple(Column(head, head, str) for head in heads), data, note=table.note)


_TABLES = (
    Column("table", "Table", str, "", "name of the table"),
    Column("rows", "Rows", int, "count", "rows in this profile"),
    Column("meaning", "Meaning", str, "", "meaning of a row"),
)
_COLUMNS = (
    Column("column", "Column", str, "", "name of the column"),
    Column("type", "Type", str, "", "type in DuckDB"),
    Column("unit", "Unit", str, "", "unit"),
    Column("meaning", "Meaning", str, "", "meaning of the column"),
)


def schema_report(
    tables: Sequence[SqlTable], rows: Mapping[str, int] | None = None, described: Mapping[str, Any] | None = None
) -> Report:
    """Return the tables and their columns; `rows` are the numbers of rows in a profile."""
    from tfperf.analysis.registry import omitted_sections

    names = [table.name for table in tables]
    data: dict[str, Sequence[Any]] = {"table": names, "meaning": [table.meaning for table in tables]}
    if rows is not None:
        data["rows"] = [rows[name] for name in names]
    listed = tuple(column for column in _TABLES if column.key in data)
    source = {key: value for key, value in (described or {}).items() if key != "hosts"}
    columns = []
    for table in tables:
        cells = {head.key: [getattr(column, head.key) for column in table.columns] for head in _COLUMNS[1:]}
        cells["column"] = [column.name for column in table.columns]
        columns.append(table_of(table.name, f"{table.name}: {table.meaning}", _COLUMNS, cells))
    sections = (
        Section("tables", "Tables", tables=(table_of("tables", "All tables", listed, data),)),
        Section("columns", "Columns", tables=tuple(columns)),
    )
    return Report(source, {"table_count": len(tables)}, sections, omitted_sections())
