"""The columns of the tables of a dataset that no profile has as they are: its events, and their stats."""

from __future__ import annotations

from collections.abc import Mapping

from tfperf.export.query.sql_tables import SqlColumn, SqlTable

_RUN = SqlColumn("run", "VARCHAR", "", "name of the run (a folder)")
_HOST = SqlColumn("host", "VARCHAR", "", "name of the trace file (a folder)")
_EVENT = SqlColumn("event", "INTEGER", "", "number of the event in the trace of its host, from 0")
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
"""Columns of whole numbers, and the stats that they hold."""
TEXT_STATS: Mapping[str, str] = {name: name for name in ("hlo_op", "hlo_module", "kernel_type", "tf_op")}
"""Columns of texts, and the stats that they hold."""
STATS = frozenset((*ID_STATS.values(), *TEXT_STATS.values()))

EVENTS = SqlTable(
    "events",
    "every event of every thread and stream, ordered by plane, line and start",
    (
        _RUN,
        _HOST,
        _EVENT,
        SqlColumn("plane", "VARCHAR", "", "name of the plane: /host:CPU, /device:GPU:0, ..."),
        SqlColumn("kind", "VARCHAR", "", "host, gpu, tpu, sparse core or other"),
        SqlColumn("line_id", "BIGINT", "", "id of its thread or stream in the file"),
        SqlColumn("line_name", "VARCHAR", "", "name of its thread or stream"),
        SqlColumn("name", "VARCHAR", "", "name of the event"),
        SqlColumn("op_type", "VARCHAR", "", "type of the op, if the event is one: MatMul, Dataset, ..."),
        SqlColumn("start_ps", "BIGINT", "ps", "start on the clock of the trace of its host; of a TPU: on its own"),
        SqlColumn("duration_ps", "BIGINT", "ps", "duration; 0 for an instant"),
        SqlColumn("self_ps", "BIGINT", "ps", "duration without the events inside it on its line"),
        SqlColumn("depth", "INTEGER", "", "number of events around it on its line"),
        SqlColumn("step", "BIGINT", "", "number of the step in which it starts"),
        *(SqlColumn(name, "BIGINT", "", f"stat {stat} of the event") for name, stat in ID_STATS.items()),
        *(SqlColumn(name, "VARCHAR", "", f"stat {stat} of the event") for name, stat in TEXT_STATS.items()),
    ),
)
STAT_TABLE = SqlTable(
    "stats",
    "stats of events (only with --all-stats): one row for each stat of each event",
    (
        _RUN,
        _HOST,
        _EVENT,
        SqlColumn("name", "VARCHAR", "", "name of the stat"),
        SqlColumn("kind", "VARCHAR", "", "int, unsigned, real, text or bytes: how the file holds it"),
        SqlColumn("int_value", "BIGINT", "", "value, if an integer below 2^63"),
        SqlColumn("unsigned_value", "HUGEINT", "", "value, if an integer from 2^63 on"),
        SqlColumn("real_value", "DOUBLE", "", "value, if a real number"),
        SqlColumn("text_value", "VARCHAR", "", "value, if a text"),
    ),
)
HOST_FILES = SqlTable(
    "host_files",
    "trace files of the run: one row for each host",
    (
        _RUN,
        SqlColumn("host", "VARCHAR", "", "name of the trace file"),
        SqlColumn("role", "VARCHAR", "", "what the host is for, if it is known: worker, parameter server, ..."),
        SqlColumn("path", "VARCHAR", "", "path of the file that was read"),
        SqlColumn("size_bytes", "BIGINT", "bytes", "size of the file"),
        SqlColumn("events", "BIGINT", "count", "rows in events"),
        SqlColumn("clock_start_ns", "BIGINT", "", "time of start_ps 0, in nanoseconds since 1970, if it is known"),
        SqlColumn("clock_ahead_ns", "BIGINT", "", "how far the clock is ahead of that of the first host, if known"),
        SqlColumn("start_ps", "BIGINT", "ps", "the first start of any event"),
        SqlColumn("end_ps", "BIGINT", "ps", "the last end of any event"),
    ),
)
