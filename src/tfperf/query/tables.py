"""Every table that a query may name, declared once: its columns with type, unit and meaning.

First the tables of what was recorded, then those of what was found out, which are the tables of the report.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tfperf.units import Unit

Type = Literal["BIGINT", "BOOLEAN", "DOUBLE", "HUGEINT", "INTEGER", "VARCHAR"]


@dataclass(frozen=True, slots=True)
class SqlColumn:
    """A column as SQL sees it; NULL always means "not known" or "has none"."""

    name: str
    type: Type
    unit: Unit
    meaning: str


@dataclass(frozen=True, slots=True)
class SqlTable:
    """A table as SQL sees it."""

    name: str
    meaning: str
    columns: tuple[SqlColumn, ...]

    def ddl(self) -> str:
        """Return the statement that makes an empty table of this shape."""
        columns = ", ".join(f'"{column.name}" {column.type}' for column in self.columns)
        return f'CREATE TABLE "{self.name}" ({columns})'


_HOST = SqlColumn("host", "VARCHAR", "", "name of the trace file")
_PLANE = SqlColumn("plane", "VARCHAR", "", "name of the plane: /host:CPU, /device:GPU:0, ...")
_KIND = SqlColumn("kind", "VARCHAR", "", "host, gpu, tpu, sparse core or other")
_DERIVED = SqlColumn(
    "derived", "BOOLEAN", "", "the profiler computed the line (steps, modules, ops) and did not record it"
)
_EVENT = SqlColumn("event", "INTEGER", "", "number of the event, one count for all hosts")
_VALUES = (
    SqlColumn("int_value", "HUGEINT", "", "its value, if a whole number; up to 2^64-1"),
    SqlColumn("real_value", "DOUBLE", "", "its value, if a real number"),
    SqlColumn("text_value", "VARCHAR", "", "its value, if a text"),
)

RECORDED: tuple[SqlTable, ...] = (
    SqlTable("events", "every event of every thread and stream", (
        _EVENT,
        _HOST,
        _PLANE,
        _KIND,
        SqlColumn("line", "INTEGER", "", "number of its thread or stream, as in lines"),
        SqlColumn("line_name", "VARCHAR", "", "name of its thread or stream"),
        _DERIVED,
        SqlColumn("name", "VARCHAR", "", "name of the event"),
        SqlColumn("display_name", "VARCHAR", "", "short name, where the trace has one; else the name"),
        SqlColumn("start_ps", "BIGINT", "ps", "begin on the clock of the trace of its host"),
        SqlColumn("duration_ps", "BIGINT", "ps", "length; 0 for a moment"),
        SqlColumn("end_ps", "BIGINT", "ps", "begin + length"),
        SqlColumn("start_ms", "DOUBLE", "ms", "the begin again"),
        SqlColumn("duration_us", "DOUBLE", "us", "the length again"),
        SqlColumn("duration_ms", "DOUBLE", "ms", "the length again"),
    )),
    SqlTable("stats", "what events carry: one row for each stat of each event", (
        _EVENT,
        _HOST,
        SqlColumn("name", "VARCHAR", "", "name of the stat"),
        SqlColumn("kind", "VARCHAR", "", "int, unsigned, real, text or bytes: how the file holds it"),
        *_VALUES,
        SqlColumn("size_bytes", "BIGINT", "bytes", "length of the value, if bytes; the bytes are not read"),
    )),
    SqlTable("lines", "threads of hosts, and streams and other lines of devices", (
        SqlColumn("line", "INTEGER", "", "number of the line, one count for all hosts"),
        _HOST,
        _PLANE,
        _KIND,
        SqlColumn("line_name", "VARCHAR", "", "name of the thread or stream"),
        SqlColumn("line_id", "BIGINT", "", "its id in the file: of a thread, that of the system"),
        _DERIVED,
        SqlColumn("events", "BIGINT", "count", "its events"),
    )),
    SqlTable("planes", "planes: a host, each of its devices, and what the profiler notes besides", (
        _HOST,
        _PLANE,
        _KIND,
        SqlColumn("plane_id", "BIGINT", "", "its id in the file"),
        SqlColumn("is_device", "BOOLEAN", "", "it is a device that recorded something"),
        SqlColumn("events", "BIGINT", "count", "events in the file, also those left out"),
    )),
    SqlTable("plane_stats", "what planes carry, as the model of a device", (
        _HOST,
        _PLANE,
        SqlColumn("name", "VARCHAR", "", "name of the stat"),
        *_VALUES,
    )),
    SqlTable("name_stats", "what names of events carry: ids of programs, categories and framework ops of XLA ops", (
        _HOST,
        SqlColumn("event_name", "VARCHAR", "", "name of the events"),
        SqlColumn("name", "VARCHAR", "", "name of the stat"),
        *_VALUES,
    )),
    SqlTable("hosts", "trace files", (
        _HOST,
        SqlColumn("path", "VARCHAR", "", "the file"),
        SqlColumn("size_bytes", "BIGINT", "bytes", "its size"),
        SqlColumn("events", "BIGINT", "count", "rows in events"),
        SqlColumn("malformed_events", "BIGINT", "count", "events left out since their times are impossible"),
        SqlColumn("aggregated_events", "BIGINT", "count", "events left out since they stand for several, without time"),
        SqlColumn("start_ps", "BIGINT", "ps", "the first begin of any event"),
        SqlColumn("end_ps", "BIGINT", "ps", "the last end of any event"),
        SqlColumn("errors", "VARCHAR", "", "what the profiler noted as errors"),
        SqlColumn("warnings", "VARCHAR", "", "what the profiler noted as warnings"),
    )),
)  # fmt: skip
"""What was recorded, as it was recorded."""

BUILT: Mapping[str, tuple[str, ...]] = {
    "ops": ("device_ops", "host_ops"),
    "functions": ("tf_functions",),
    "iterators": ("tfdata_stages",),
}
"""Tables of other tables of the report: a shorter name, or two under one name."""

RENAMED: Mapping[str, str] = {"hosts": "steps_by_host"}
"""Tables of the report that have another name in SQL, since theirs is taken."""


def found_out() -> tuple[SqlTable, ...]:
    """Return the tables of the analysis. Their columns are those of the report, so this imports it."""
    from tfperf.query.report_tables import FOUND_OUT

    return FOUND_OUT


def all_tables() -> dict[str, SqlTable]:
    """Return every table by name, in the order in which they are shown."""
    return {table.name: table for table in (*RECORDED, *found_out())}
