"""The tables of tf.functions, and of ops that Python runs eagerly."""

from __future__ import annotations

from tfperf.report.model import Column, Data
from tfperf.sections.results import Results
from tfperf.sections.spec import TableSpec


def _functions(results: Results) -> Data | None:
    functions = results["functions"]
    return functions.columns() if functions.functions else None


def _eager_ops(results: Results) -> Data | None:
    eager = results["functions"].eager
    return eager.columns() if eager.op_types else None


TF_FUNCTIONS = TableSpec(
    name="tf_functions",
    title="tf.functions by self time",
    row="tf.functions: calls and tracings",
    details="One row per tf.function that was called.",
    columns=(
        Column("function", "Function", str, "", "name of the tf.function"),
        Column("calls", "Calls", int, "count", "calls in the capture"),
        Column("traced_calls", "Traced", int, "count", "calls that traced Python again"),
        Column("not_traced_calls", "Not traced", int, "count", "calls of a function traced before"),
        Column("eager_calls", "Eager", int, "count", "calls run eagerly", level="data"),
        Column("concrete_calls", "Concrete", int, "count", "calls of a concrete function", level="data"),
        Column("tracing_count", "Tracings", int, "count", "tracings since the program started", level="data"),
        Column("compiler", "Compiler", str, "", "XLA, or empty", level="data"),
        Column("self_ms", "Self", float, "ms", "time without tf.functions called inside"),
        Column("expensive_call_percent", "Expensive", float, "%", "self time of calls that trace or run eagerly"),
    ),
    data=_functions,
    name_key="function",
    aliases=("functions",),
)
EAGER_OPS = TableSpec(
    name="eager_ops",
    title="Ops run eagerly, in the whole capture",
    row="ops that Python runs one by one",
    details="One row per type of op that Python ran by itself, outside any tf.function, in the whole capture.",
    columns=(
        Column("op_type", "Op", str, "", "type of the op"),
        Column("calls", "Calls", int, "count", "times that Python ran it, outside any tf.function"),
        Column("total_ms", "Total", float, "ms", "time of all calls on the host"),
        Column("mean_ms", "Mean", float, "ms", "average time of a call"),
    ),
    data=_eager_ops,
    name_key="op_type",
)
TABLES = (TF_FUNCTIONS, EAGER_OPS)
