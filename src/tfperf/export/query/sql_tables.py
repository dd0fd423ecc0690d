"""Declarations of all SQL tables: the recorded data, and the tables of the sections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from tfperf.analysis.registry import all_tables
from tfperf.base.units import Unit
from tfperf.trace.known_stats import HLO_OPS

Type = Literal["BIGINT", "BOOLEAN", "DOUBLE", "HUGEINT", "INTEGER", "UBIGINT", "VARCHAR"]


class SqlColumn(Struct, frozen=True):
    """A SQL column; NULL always means "unknown" or "has none"."""

    name: str
    type: Type
    unit: Unit
    meaning: str


class SqlTable(Struct, frozen=True):
    """A SQL table."""

    name: str
    meaning: str
    columns: tuple[SqlColumn, ...]

    def ddl(self) -> str:
        """Return the statement that creates an empty table."""
        columns = ", ".join(f'"{column.name}" {column.type}' for column in self.columns)
        return f'CREATE TABLE "{self.name}" ({columns})'


_RUN = SqlColumn("run", "VARCHAR", "", "name of the run")
_HOST = SqlColumn("host", "VARCHAR", "", "name of the trace file")
_PLANE = SqlColumn("plane", "VARCHAR", "", "name of the plane: /host:CPU, /device:GPU:0, ...")
_KIND = SqlColumn("kind", "VARCHAR", "", "host, gpu, tpu, sparse core or other")
_DERIVED = SqlColumn(
    "derived", "BOOLEAN", "", "whether the profiler computed the line (steps, modules, ops) instead of recording it"
)
_EVENT = SqlColumn("event", "INTEGER", "", "number of the event, unique over all hosts")
_VALUES = (
    SqlColumn("int_value", "HUGEINT", "", "value, if an integer; up to 2^64-1"),
    SqlColumn("real_value", "DOUBLE", "", "value, if a real number"),
    SqlColumn("text_value", "VARCHAR", "", "value, if text"),
)
_LINE_NAME = SqlColumn("line_name", "VARCHAR", "", "name of its thread or stream")
_NAME = SqlColumn("name", "VARCHAR", "", "name of the event")
_TIMES = (
    SqlColumn(
        "start_ps", "BIGINT", "ps", "start on the clock of the trace of its host; for a TPU, on the TPU's own clock"
    ),
    SqlColumn("duration_ps", "BIGINT", "ps", "duration; 0 for an instant"),
    SqlColumn("self_ps", "BIGINT", "ps", "duration minus nested events on its line"),
    SqlColumn("depth", "INTEGER", "", "number of enclosing events on its line"),
    SqlColumn("end_ps", "BIGINT", "ps", "start + duration"),
    SqlColumn("start_ms", "DOUBLE", "ms", "start in milliseconds"),
    SqlColumn("duration_us", "DOUBLE", "us", "duration in microseconds"),
    SqlColumn("duration_ms", "DOUBLE", "ms", "duration in milliseconds"),
)
"""Times of events, in profiles and in datasets."""
COMPUTED = {
    "end_ps": "start_ps + duration_ps",
    "start_ms": "start_ps / 1e9",
    "duration_us": "duration_ps / 1e6",
    "duration_ms": "duration_ps / 1e9",
}
"""Columns that views compute and files do not store."""
_STAT = (
    SqlColumn("name", "VARCHAR", "", "name of the stat"),
    SqlColumn("kind", "VARCHAR", "", "type in the file: int, unsigned, real, text or bytes"),
    *_VALUES,
    SqlColumn("size_bytes", "BIGINT", "bytes", "length of the value, if bytes (their content is not read)"),
)


def _recorded(name: str, meaning: str, *columns: SqlColumn) -> SqlTable:
    return SqlTable(name, meaning, (_RUN, *columns))


RECORDED: tuple[SqlTable, ...] = (
    _recorded(
        "events",
        "every event of every thread and stream",
        _EVENT,
        _HOST,
        _PLANE,
        _KIND,
        SqlColumn("line", "INTEGER", "", "number of its thread or stream, as in the table lines"),
        _LINE_NAME,
        _DERIVED,
        _NAME,
        SqlColumn("display_name", "VARCHAR", "", "short name if the trace has one, otherwise the name"),
        *_TIMES,
    ),
    _recorded("stats", "stats of events: one row per stat of each event", _EVENT, _HOST, *_STAT),
    _recorded(
        "lines",
        "threads of hosts, and streams and other lines of devices",
        SqlColumn("line", "INTEGER", "", "number of the line, unique over all hosts"),
        _HOST,
        _PLANE,
        _KIND,
        SqlColumn("line_name", "VARCHAR", "", "name of the thread or stream"),
        SqlColumn("line_id", "BIGINT", "", "id in the file; for a thread, its id in the operating system"),
        _DERIVED,
        SqlColumn("events", "BIGINT", "count", "number of events"),
    ),
    _recorded(
        "planes",
        "planes: the host, each of its devices, and planes of the profiler",
        _HOST,
        _PLANE,
        _KIND,
        SqlColumn("plane_id", "BIGINT", "", "id in the file"),
        SqlColumn("is_device", "BOOLEAN", "", "whether it is a device with recorded events"),
        SqlColumn("events", "BIGINT", "count", "events in the file, including omitted events"),
    ),
    _recorded(
        "plane_stats",
        "stats of planes, for example the model of a device",
        _HOST,
        _PLANE,
        SqlColumn("name", "VARCHAR", "", "name of the stat"),
        *_VALUES,
    ),
    _recorded(
        "name_stats",
        "stats of event names: program ids, categories and framework ops of XLA ops",
        _HOST,
        SqlColumn("event_name", "VARCHAR", "", "name of the event"),
        SqlColumn("name", "VARCHAR", "", "name of the stat"),
        *_VALUES,
    ),
    _recorded(
        "host_files",
        "trace files",
        _HOST,
        SqlColumn("path", "VARCHAR", "", "path of the file"),
        SqlColumn("size_bytes", "BIGINT", "bytes", "size of the file"),
        SqlColumn("events", "BIGINT", "count", "rows in events"),
        SqlColumn("malformed_events", "BIGINT", "count", "events omitted because their times are impossible"),
        SqlColumn("aggregated_events", "BIGINT", "count", "events omitted because they are aggregates without times"),
        SqlColumn("start_ps", "BIGINT", "ps", "start of the first event"),
        SqlColumn("end_ps", "BIGINT", "ps", "end of the last event"),
        SqlColumn("errors", "VARCHAR", "", "errors that the profiler recorded"),
        SqlColumn("warnings", "VARCHAR", "", "warnings that the profiler recorded"),
    ),
)

_TYPES: Mapping[type, Type] = {int: "BIGINT", float: "DOUBLE", bool: "BOOLEAN", str: "VARCHAR"}


def analyzed_tables() -> dict[str, SqlTable]:
    """Return the tables of all sections by name, and by their alternative name."""
    tables: dict[str, SqlTable] = {}
    for spec in all_tables():
        columns = tuple(
            SqlColumn(column.key, "UBIGINT" if column.is_id else _TYPES[column.dtype], column.unit, column.meaning)
            for column in spec.columns
        )
        meanings = {spec.name: spec.row, **dict.fromkeys(spec.aliases, f"the same as {spec.name}")}
        tables |= {name: SqlTable(name, meaning, columns) for name, meaning in meanings.items()}
    return tables


def every_table() -> dict[str, SqlTable]:
    """Return every table by name, in display order."""
    return {table.name: table for table in RECORDED} | analyzed_tables()


_RUN_FOLDER = SqlColumn("run", "VARCHAR", "", "name of the run (a folder)")
_HOST_FOLDER = SqlColumn("host", "VARCHAR", "", "name of the trace file (a folder)")
_EVENT_OF_HOST = SqlColumn("event", "INTEGER", "", "number of the event in the trace of its host, counted from 0")
ID_STATS: Mapping[str, str] = {
    "producer_type": "_pt",
    "producer_id": "_p",
    "consumer_type": "_ct",
    "consumer_id": "_c",
    "step_num": "step_num",
    "step_id": "step_id",
    "run_id": "run_id",
    "group_id": "group_id",
    "correlation_id": "correlation_id",
    "group_key": "group_key",
    "instance_key": "instance_key",
}
"""Integer columns, with their stats."""
TEXT_STATS: Mapping[str, str] = {name: name for name in ("hlo_op", "hlo_module", "kernel_type", "tf_op")}
"""Text columns, with their stats."""
_DERIVED_IN_GRAPHS = {"hlo_op": "; in a CUDA graph derived from the program"}
STATS = frozenset((*ID_STATS.values(), *TEXT_STATS.values())) | HLO_OPS

EVENTS = SqlTable(
    "events",
    "every event of every thread and stream, ordered by plane, line and start",
    (
        _RUN_FOLDER,
        _HOST_FOLDER,
        _EVENT_OF_HOST,
        _PLANE,
        _KIND,
        SqlColumn("line_id", "BIGINT", "", "id of its thread or stream in the file"),
        _LINE_NAME,
        _DERIVED,
        _NAME,
        SqlColumn("op_type", "VARCHAR", "", "op type, if the event is an op: MatMul, Dataset, ..."),
        *_TIMES,
        SqlColumn("step", "BIGINT", "", "number of the step in which it starts"),
        *(SqlColumn(name, "BIGINT", "", f"stat {stat} of the event") for name, stat in ID_STATS.items()),
        *(
            SqlColumn(name, "VARCHAR", "", f"stat {stat} of the event{_DERIVED_IN_GRAPHS.get(name, '')}")
            for name, stat in TEXT_STATS.items()
        ),
    ),
)
STAT_TABLE = SqlTable(
    "stats",
    "stats of events (only with --all-stats): one row per stat of each event",
    (_RUN_FOLDER, _HOST_FOLDER, _EVENT_OF_HOST, *_STAT),
)
HOST_FILES = SqlTable(
    "host_files",
    "trace files of the run: one row per host",
    (
        _RUN_FOLDER,
        SqlColumn("host", "VARCHAR", "", "name of the trace file"),
        SqlColumn("role", "VARCHAR", "", "role of the host, if known: worker, parameter server, ..."),
        SqlColumn("path", "VARCHAR", "", "path of the file that was read"),
        SqlColumn("size_bytes", "BIGINT", "bytes", "size of the file"),
        SqlColumn("events", "BIGINT", "count", "rows in events"),
        SqlColumn("clock_start_ns", "BIGINT", "", "time of start_ps 0, in nanoseconds since 1970, if known"),
        SqlColumn("clock_ahead_ns", "BIGINT", "", "offset of the clock ahead of the clock of the first host, if known"),
        SqlColumn("start_ps", "BIGINT", "ps", "start of the first event"),
        SqlColumn("end_ps", "BIGINT", "ps", "end of the last event"),
    ),
)


def dataset_tables() -> dict[str, SqlTable]:
    """Return the tables of a dataset by name, as SQL sees them."""
    return analyzed_tables() | {table.name: table for table in (EVENTS, STAT_TABLE, HOST_FILES)}
