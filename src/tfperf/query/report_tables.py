"""Tables of the analysis as SQL sees them: those of the report, with the columns declared there."""

from __future__ import annotations

from tfperf.query.tables import BUILT, SqlColumn, SqlTable, Type
from tfperf.report.model import Column
from tfperf.reports import columns, idle_columns, kernels_columns, memory_columns, ops_columns

_FRACTIONS = ("allocated_bytes_per_step", "buffered", "gb_per_second", "growth_bytes_per_step")
_FRACTION_ENDS, _FRACTION_STARTS = ("_per_step",), ("mean_",)
_NUMBERS = ("peak_step", "step")
_TRUTHS = ("autotuned", "averaged", "deterministic")


def sql_type(column: Column) -> Type:
    """Return the type of a report's column: by its unit, and where there is none, by its name."""
    key = column.key
    if column.unit in ("ms", "us", "%") or key in _FRACTIONS:
        return "DOUBLE"
    if key.endswith(_FRACTION_ENDS) or key.startswith(_FRACTION_STARTS):
        return "DOUBLE"
    if column.unit in ("count", "bytes") or key in _NUMBERS:
        return "BIGINT"
    return "BOOLEAN" if key in _TRUTHS or key.startswith("is_") else "VARCHAR"


def _table(name: str, meaning: str, declared: tuple[Column, ...], *first: SqlColumn) -> SqlTable:
    own = tuple(SqlColumn(column.key, sql_type(column), column.unit, column.meaning) for column in declared)
    return SqlTable(name, meaning, (*first, *own))


SIDE = SqlColumn("side", "VARCHAR", "", "device or host")
HOST_STEPS = _table(
    "host_steps", "steps of each host on its own, with exact begin and end", columns.STEPS,
    SqlColumn("host", "VARCHAR", "", "name of the trace file"),
    SqlColumn("start_ps", "BIGINT", "ps", "begin on the clock of the trace of its host"),
    SqlColumn("end_ps", "BIGINT", "ps", "end: begin of the next step, but before a pause"),
)  # fmt: skip

_OPS = _table("ops", f"{' and '.join(BUILT['ops'])} in one", ops_columns.OPS, SIDE)

FOUND_OUT: tuple[SqlTable, ...] = (
    _table("steps", "steps, averaged over hosts, and where their time goes", columns.STEPS),
    HOST_STEPS,
    _table("categories", "where an average step's time goes", columns.CATEGORIES),
    _table("kinds", "kinds of steps, if there are several", columns.KINDS),
    _table("steps_by_host", "step times of each host, if there are several", columns.HOSTS),
    _table("pauses", "time outside steps", columns.PAUSES),
    _OPS,
    _table("device_ops", "ops by self time on devices", ops_columns.OPS),
    _table("host_ops", "ops by self time on host threads", ops_columns.OPS),
    _table("op_types", "ops added up by type", ops_columns.GROUPS),
    _table("op_scopes", "ops added up by name scope", ops_columns.GROUPS),
    _table("op_layers", "ops added up by layer", ops_columns.GROUPS),
    _table("functions", "tf.functions; the same as tf_functions", columns.FUNCTIONS),
    _table("tf_functions", "tf.functions: calls and tracings", columns.FUNCTIONS),
    _table("eager_ops", "ops that Python runs one by one", columns.EAGER_OPS),
    _table("kernels", "GPU kernels by op and launch shape", kernels_columns.KERNELS),
    _table("kernels_by_name", "GPU kernels by name", kernels_columns.KERNELS_BY_NAME),
    _table("copies", "copies of each device, by kind", kernels_columns.COPIES),
    _table("launches", "how kernels are launched, for each device", kernels_columns.LAUNCHES),
    _table("device_time", "where the capture goes on each device", kernels_columns.DEVICE_TIME),
    _table("idle_causes", "what the host does while a device is idle", idle_columns.CAUSES),
    _table("idle_devices", "idle time of each device, by cause", idle_columns.DEVICES),
    _table("idle_gaps", "the longest gaps of devices", idle_columns.GAPS),
    _table("input_statistics", "input time over the averaged steps", columns.INPUT_STATISTICS),
    _table("input_steps", "input time of each step", columns.INPUT_STEPS),
    _table("input_hosts", "input time of each host, if there are several", columns.INPUT_HOSTS),
    _table("input_classes", "what hosts do for input", columns.INPUT_CLASSES),
    _table("input_ops", "ops of the input pipeline", columns.INPUT_OPS),
    _table("iterators", "tf.data stages; the same as tfdata_stages", columns.TFDATA_STAGES),
    _table("tfdata_stages", "tf.data stages, outermost first", columns.TFDATA_STAGES),
    _table("tfdata_functions", "users' functions inside the stages", columns.TFDATA_FUNCTIONS),
    _table("tfdata_pipelines", "tf.data pipelines", columns.TFDATA_PIPELINES),
    _table("what_if", "what a change of the input pipeline would buy", columns.WHAT_IF),
    _table("memory_allocators", "allocators: how full they became", memory_columns.ALLOCATORS),
    _table("memory_alive", "what is allocated at the peak of the fullest", memory_columns.ALIVE),
    _table("memory_by_op", "the same by op", memory_columns.BY_OP),
    _table("memory_by_scope", "the same by name scope", memory_columns.BY_SCOPE),
    _table("memory_timeline", "memory in use over time", memory_columns.TIMELINE),
    _table("environment", "hosts and their devices", columns.ENVIRONMENT),
)
