"""The tables of XLA: instructions, and programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfperf.report.model import Column, Data, Ranked, at_levels
from tfperf.sections.registry import TableSpec, fields, percent
from tfperf.sections.xla.work_columns import LAYER, PROGRAM_ID, WORK_COLUMNS, program_ids, work_cells
from tfperf.units import PS_PER_MS

if TYPE_CHECKING:
    from tfperf.sections.results import Results
    from tfperf.sections.xla.analysis import Xla

_MODULE = Column("module", "Program", str, "", "name of the program")
_ESTIMATED = Column(
    "runs_are_estimated", "Estimated", bool, "", "whether runs are counted by kernels or without the program", "data"
)
_ONLY_IN_ROOFLINE = ("gb_per_second", "compute_percent", "memory_percent")
"""What people look up in the table of the roofline."""
_OP_COLUMNS = (
    Column("rank", "Rank", int, "", "position in the table", level="data"),
    Column("hlo_op", "Instruction", str, "", "name of the instruction"),
    _MODULE,
    PROGRAM_ID,
    Column("category", "Category", str, "", "kind of instruction"),
    Column("opcode", "Opcode", str, "", "its opcode", level="data"),
    Column("target", "Target", str, "", "what a custom call calls", level="data"),
    Column("framework_op", "Op", str, "", "op of the framework that it was compiled from", level="data"),
    LAYER,
    Column("source", "Source", str, "", "line of the program that made the op", level="data"),
    Column("shape", "Shape", str, "", "shape and layout of its result", level="data"),
    Column("operands", "Operands", str, "", "shapes and layouts of what it works on", level="data"),
    Column("deduplicated_name", "Same as", str, "", "instruction of equal code that stands for it", level="data"),
    Column("runs", "Runs", int, "count", "how often it ran, over all devices"),
    _ESTIMATED,
    Column("events", "Kernels", int, "count", "kernels and copies of a GPU, else events", level="data"),
    Column("devices", "Devices", int, "count", "devices that it ran on; 0 on a host", level="data"),
    Column("total_ms", "Total", float, "ms", "time of all runs; on a host an upper bound"),
    Column("least_ms", "At least", float, "ms", "on a host, time until its work was handed out", level="data"),
    Column("mean_us", "Mean", float, "us", "time of a run; on a host an upper bound", level="data"),
    Column("percent", "Time", float, "%", "share of device time; on a host, of the times of all instructions"),
    Column("flops", "Flops", float, "", "operations of a run; exp, tanh and the like are none", level="data"),
    Column("matrix_flops", "Matrix flops", float, "", "those of matrix products and convolutions", level="data"),
    Column("moved_bytes", "Bytes", float, "bytes", "what a run reads and writes, an upper bound", level="data"),
    Column("counted_by", "Counted by", str, "", "who counted both: the trace, or tfperf by the program", level="data"),
    *at_levels([*WORK_COLUMNS.values()], {"intensity": "data", **dict.fromkeys(_ONLY_IN_ROOFLINE, "data")}),
)
RATES = ("tflops_per_second", "gb_per_second", "bound")


def _ops(results: Results) -> Data | None:
    xla: Xla = results["xla"]
    if not xla.ops:
        return None
    texts = fields([column for column in _OP_COLUMNS if column.dtype is str], xla.ops)
    return {
        **{key: [text or None for text in column] for key, column in texts.items()},
        "rank": list(range(1, len(xla.ops) + 1)),
        "hlo_op": [op.op for op in xla.ops],
        "program_id": program_ids([op.program_id for op in xla.ops]),
        "deduplicated_name": [op.stands_for or None for op in xla.ops],
        "runs": [op.runs for op in xla.ops],
        "runs_are_estimated": [op.is_estimated for op in xla.ops],
        "events": [op.events for op in xla.ops],
        "devices": [op.devices for op in xla.ops],
        "total_ms": [op.time_ps / PS_PER_MS for op in xla.ops],
        "least_ms": [None if op.least_ps is None else op.least_ps / PS_PER_MS for op in xla.ops],
        "mean_us": [1000.0 * op.time_ps / PS_PER_MS / op.runs if op.runs else None for op in xla.ops],
        "percent": [percent(op.time_ps, xla.whole_ps) for op in xla.ops],
        **{key: [getattr(op, key) for op in xla.ops] for key in ("flops", "matrix_flops")},
        "moved_bytes": [op.bytes for op in xla.ops],
        **work_cells([op.work for op in xla.ops], [xla.judged(op) for op in xla.ops]),
    }


def _modules(results: Results) -> Data | None:
    xla: Xla = results["xla"]
    if not xla.modules:
        return None
    return {
        **fields(_MODULE_COLUMNS, xla.modules),
        "module": [module.module or None for module in xla.modules],
        "program_id": program_ids([module.program_id for module in xla.modules]),
        "runs_are_estimated": [module.is_estimated for module in xla.modules],
        "total_ms": [module.time_ps / PS_PER_MS for module in xla.modules],
        "compile_ms": [None if each.compile_ps is None else each.compile_ps / PS_PER_MS for each in xla.modules],
    }


_PLAN = "by the compiler's plan"
_MODULE_COLUMNS = (
    _MODULE,
    PROGRAM_ID,
    Column("runs", "Runs", int, "count", "how often it ran, over all devices"),
    _ESTIMATED,
    Column("total_ms", "Total", float, "ms", "time of its instructions; on a host, that any of them was under way"),
    Column("compile_ms", "Compile", float, "ms", "time in which it was compiled, as far as the capture shows it"),
    Column("instructions", "Instructions", int, "count", "instructions in all its computations", level="data"),
    Column("parameters_bytes", "Parameters", int, "bytes", f"memory of its parameters, {_PLAN}"),
    Column("temporaries_bytes", "Temporaries", int, "bytes", f"memory that it works in, {_PLAN}"),
    Column("outputs_bytes", "Outputs", int, "bytes", f"memory of results beside that of parameters, {_PLAN}"),
    Column("constants_bytes", "Constants", int, "bytes", f"memory of its constants, {_PLAN}", level="data"),
)
HLO_OPS = TableSpec(
    name="hlo_ops",
    title="Instructions of XLA, by time",
    row="instructions of XLA's programs that ran",
    details=(
        "One row per instruction that ran, of each program. On a GPU its time is that of its kernels, on a TPU core "
        "that without instructions inside it; on a host it goes to the end of each run, which is an upper bound, and "
        "instructions overlap. [XLA](xla.md) has the rules."
    ),
    columns=_OP_COLUMNS,
    data=_ops,
    name_key="hlo_op",
    ranked=Ranked("total_ms"),
)
HLO_MODULES = TableSpec(
    name="hlo_modules",
    title="Programs of XLA",
    row="programs of XLA that ran",
    details="One row per program that ran in the capture; those that were only compiled are omitted.",
    columns=_MODULE_COLUMNS,
    data=_modules,
    name_key="module",
    ranked=Ranked("total_ms"),
)
TABLES = (HLO_OPS, HLO_MODULES)
