"""The tables and columns that a limit may name: those of the report, by their names in `tfperf query`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Literal

from tfperf.query.report_tables import FOUND_OUT
from tfperf.query.tables import RENAMED, SqlColumn, SqlTable
from tfperf.units import Unit

ColumnType = Literal["number", "truth", "text"]

_NOT_HERE = ("host_steps",)
"""Every host is judged by itself, so its steps are in `steps`."""
TABLES: Mapping[str, SqlTable] = {table.name: table for table in FOUND_OUT if table.name not in _NOT_HERE}
OVER_HOSTS = ("steps_by_host", "input_hosts")
"""Tables with a row for each host: measured once, not for each host by itself."""
REPORT_NAMES: Mapping[str, str] = {new: old for old, new in RENAMED.items()}
"""What the report calls a table that has another name here."""

NAME_COLUMNS: Mapping[str, str] = {
    "steps": "step_name", "categories": "category", "kinds": "kind", "steps_by_host": "host", "ops": "op_name",
    "device_ops": "op_name", "host_ops": "op_name", "op_types": "group", "op_scopes": "group", "op_layers": "group",
    "functions": "function", "tf_functions": "function", "eager_ops": "op_type", "kernels": "kernel_name",
    "kernels_by_name": "kernel", "copies": "kind", "launches": "device", "device_time": "device",
    "idle_causes": "cause", "idle_devices": "device", "idle_gaps": "cause", "input_statistics": "statistic",
    "input_steps": "step", "input_hosts": "host", "input_classes": "part", "input_ops": "op_name",
    "iterators": "name", "tfdata_stages": "name", "tfdata_functions": "stage", "tfdata_pipelines": "pipeline",
    "what_if": "what", "memory_allocators": "allocator", "memory_alive": "op", "memory_by_op": "what",
    "memory_by_scope": "what", "memory_timeline": "allocator", "environment": "host", "pauses": "after_step",
}  # fmt: skip
"""The column that tells people which row it is. `name` in a condition means it where no column is called so."""

STEP_TABLES = frozenset({
    "steps", "categories", "kinds", "steps_by_host", "pauses", "idle_causes", "idle_devices", "input_statistics",
    "input_steps", "input_hosts", "what_if",
})  # fmt: skip
"""Tables about steps: without enough of those they tell nothing."""
_STEP_COLUMNS = frozenset({("launches", "step_calls_ms"), ("input_classes", "scaled_ms")})
_ALL_STEPS = frozenset({("idle_causes", "gaps"), ("idle_devices", "gaps")})


def column_of(table: str, name: str) -> SqlColumn | None:
    """Return the column of a table, None if it has none of that name."""
    return next((column for column in TABLES[table].columns if column.name == name), None)


def type_of(column: SqlColumn) -> ColumnType:
    """Return what a column holds."""
    kinds: Mapping[str, ColumnType] = {"VARCHAR": "text", "BOOLEAN": "truth"}
    return kinds.get(column.type, "number")


def unit_of(column: SqlColumn) -> Unit:
    """Return the unit of a column; those of the report are never in picoseconds."""
    return "" if column.unit == "ps" else column.unit


def rests_on_steps(table: str, column: str) -> bool:
    """Tell whether a column is about steps."""
    return table in STEP_TABLES or is_per_step(table, column)


def is_per_step(table: str, column: str) -> bool:
    """Tell whether a column of another table is an average over steps."""
    return column.endswith("_per_step") or (table, column) in _STEP_COLUMNS


def counts_all_steps(table: str, column: str) -> bool:
    """Tell whether a column was counted when the profile was read, over all averaged steps, and cannot be narrowed."""
    return table == "what_if" or is_per_step(table, column) or (table, column) in _ALL_STEPS


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the names that are close to a word as a question; else all of them, if they are few."""
    names = list(known)
    close = difflib.get_close_matches(word.lower()[:100], names, n=3, cutoff=0.5)
    close += [name for name in names if word and word.lower() in name and name not in close][: 3 - len(close)]
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"there are {', '.join(names)}" if len(names) <= 16 else ""
