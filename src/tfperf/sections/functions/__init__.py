"""Functions: calls, traces and compilations of tf.functions and jitted functions, and eager ops."""

from __future__ import annotations

from functools import partial
from typing import Any

from tfperf.analysis.registry import Results, SectionSpec, TableSpec
from tfperf.report.model import Column, Data, Ranked
from tfperf.trace.known_stats import EAGER


def _columns(part: str, results: Results) -> Data | None:
    functions = results["functions"]
    table: Any = functions if part == "functions" else getattr(functions, part)
    rows = table.op_types if part == "eager" else table.functions
    columns: Data = table.columns()
    return columns if rows else None


_WORK = "from the first to the last op of each run, summed; on a TPU, the mean of its chips"
TF_FUNCTIONS = TableSpec(
    name="tf_functions",
    title="tf.functions by self time",
    row="tf.functions: calls and tracings",
    details="One row per tf.function that was called.",
    columns=(
        Column("function", "Function", str, "", "name of the tf.function"),
        Column("calls", "Calls", int, "count", "calls in the capture"),
        Column("traced_calls", "Traced", int, "count", "calls that traced Python code"),
        Column("not_traced_calls", "Not traced", int, "count", "calls that used an existing trace"),
        Column("eager_calls", "Eager", int, "count", "calls run eagerly", level="data"),
        Column("concrete_calls", "Concrete", int, "count", "calls of a concrete function", level="data"),
        Column("tracing_count", "Tracings", int, "count", "tracings since the program started", level="data"),
        Column("compiler", "Compiler", str, "", "XLA, or empty", level="data"),
        Column("compiling_calls", "Compiled", int, "count", "calls in which XLA compiled a program", level="data"),
        Column("self_ms", "Self", float, "ms", "time excluding nested tf.functions"),
        Column("expensive_call_percent", "Expensive", float, "%", "self time of calls that trace or run eagerly"),
    ),
    data=partial(_columns, "functions"),
    name_key="function",
    ranked=Ranked("self_ms"),
    aliases=("functions",),
)


EAGER_OPS = TableSpec(
    name="eager_ops",
    title="Ops run eagerly, in the whole capture",
    row="ops that Python runs eagerly",
    details="One row per type of eager op, outside any tf.function, in the whole capture.",
    columns=(
        Column("op_type", "Op", str, "", "type of the op"),
        Column("calls", "Calls", int, "count", "number of eager runs, outside any tf.function"),
        Column("total_ms", "Total", float, "ms", "time of all calls on the host"),
        Column("mean_ms", "Mean", float, "ms", "average time of a call"),
    ),
    data=partial(_columns, "eager"),
    name_key="op_type",
    ranked=Ranked("total_ms"),
)


JITTED_FUNCTIONS = TableSpec(
    name="jitted_functions",
    title="Jitted functions by time of calls",
    row="jitted functions of JAX: calls and compilations",
    details="One row per jitted JAX function that Python called, with the kind of its program.",
    columns=(
        Column("function", "Function", str, "", "name of the function"),
        Column("computes", "Computes", str, "", "kind of its program: gradients, forward only or neither"),
        Column("calls", "Calls", int, "count", "outermost calls in the capture"),
        Column("compiling_calls", "Compiled", int, "count", "calls in which XLA compiled a program"),
        Column("total_ms", "Calls", float, "ms", "host time of the calls, which may return before the work is done"),
        Column(
            "compiling_ms", "Compiling", float, "ms", "time of the calls that compiled; on a TPU, until XLA is done"
        ),
        Column("work_ms", "Work", float, "ms", _WORK),
    ),
    data=partial(_columns, "jitted"),
    name_key="function",
    ranked=Ranked("total_ms"),
)


TABLES = (TF_FUNCTIONS, EAGER_OPS, JITTED_FUNCTIONS)

SECTION = SectionSpec(
    name="functions",
    title="tf.functions",
    rests_on=("steps", "overview"),
    analyze="tfperf.sections.functions.analysis:analyze",
    combine="tfperf.sections.functions.analysis:combine",
    combines_in_tree=True,
    narrow="tfperf.sections.functions.analysis:narrow",
    stats=EAGER | {"tf_function_call", "tracing_count", "eager_op", "batch_size"},
    shorten="tfperf.sections.functions.analysis:shorten",
    build="tfperf.sections.functions.section:build",
    tables=TABLES,
)
