"""The section of tf.functions: how often they were called and traced, and what runs eagerly beside them."""

from __future__ import annotations

from typing import Any

from tfperf.sections.functions.eager import EAGER_PERCENT, Eager
from tfperf.sections.functions.calls import EXPENSIVE_PERCENT, Functions, FunctionStats

from tfperf.report.model import Fact, Finding, Section, Table
from tfperf.reports import columns
from tfperf.units import format_percent

_OFTEN = 5
"""Of a function traced more often than this there is advice even if tracing takes little of the time captured."""


def functions_section(functions: Functions, eager: Eager, top: int | None) -> Section:
    """Build the section: advice, calls per function, and ops run eagerly."""
    notes: tuple[str, ...] = () if functions.functions else ("No tf.function was called in this trace.",)
    if not eager.recorded:
        notes += ("Eager execution: the trace has no events of it, so the eager share is unknown, not 0.",)
    return Section(
        "functions", "tf.functions", (*function_advice(functions), *eager_advice(eager)), _facts(functions, eager), (),
        tuple(table if top is None else table.head(top) for table in _tables(functions, eager)), notes,
    )  # fmt: skip


def _facts(functions: Functions, eager: Eager) -> tuple[Fact, ...]:
    facts = []
    if functions.functions:
        calls = sum(row.call_count for row in functions.functions)
        traced = sum(row.calls.get("traced", 0) for row in functions.functions)
        facts.append(Fact("traced_calls", "Calls that traced", traced, "count", f"of {calls} calls"))
    if eager.percent is not None:
        note = f"of the step time; {eager.calls_per_step:.3g} ops a step"
        facts.append(Fact("eager_percent", "Ops run eagerly", eager.percent, "%", note))
    return tuple(facts)


def _tables(functions: Functions, eager: Eager) -> list[Table]:
    tables = []
    if functions.functions:
        data: dict[str, Any] = dict(functions.columns())
        title = "tf.functions by self time"
        tables.append(Table("tf_functions", title, columns.FUNCTIONS, data, len(functions.functions)))
    if eager.ops:
        title, data = "Ops run eagerly, in the whole capture", dict(eager.columns())
        tables.append(Table("eager_ops", title, columns.EAGER_OPS, data, len(eager.ops)))
    return tables


def function_advice(functions: Functions) -> tuple[Finding, ...]:
    """Return advice on functions that are traced again and again, or run eagerly."""
    expensive = [row for row in functions.functions if row.expensive_percent >= EXPENSIVE_PERCENT]
    often = [row for row in functions.functions if row.calls.get("traced", 0) > _OFTEN and row not in expensive]
    found = []
    if expensive:
        worst = sorted(expensive, key=lambda row: -row.expensive_percent)
        text = f"Calls that trace Python anew or run eagerly take {EXPENSIVE_PERCENT:.0f}% or more of {_named(worst)}."
        found.append(Finding("retracing", "problem", text, _KEEP_SHAPES))
    if often:
        text = f"Traced more than {_OFTEN} times in this capture: {_named(often)}."
        found.append(Finding("retracing_often", "hint", text, _KEEP_SHAPES))
    return tuple(found)


_KEEP_SHAPES = (
    "pass tensors instead of Python numbers, fix shapes with input_signature or reduce_retracing=True, create "
    "tf.functions once outside the loop"
)


def _named(rows: list[FunctionStats]) -> str:
    return ", ".join(_traced(row) for row in rows[:3]) + (f" and {len(rows) - 3} more" if len(rows) > 3 else "")


def _traced(row: FunctionStats) -> str:
    traced = f"{row.calls.get('traced', 0)} of {row.call_count} calls traced"
    return f"{row.name} ({traced}, {format_percent(row.expensive_percent)}%)"


def eager_advice(eager: Eager) -> tuple[Finding, ...]:
    """Return advice where steps run ops one by one from Python."""
    if eager.percent is None or eager.percent < EAGER_PERCENT:
        return ()
    most = ", ".join(eager.ops[:3])
    text = (
        f"Ops that Python runs one by one take {format_percent(eager.percent)}% of the step time "
        f"({eager.calls_per_step:.3g} ops a step; most time: {most}; advice from {EAGER_PERCENT:.0f}%)."
    )
    action = "put the step into a tf.function, and what it calls; in Keras, compile() without run_eagerly=True"
    return (Finding("eager", "problem" if eager.percent >= 2 * EAGER_PERCENT else "hint", text, action),)
