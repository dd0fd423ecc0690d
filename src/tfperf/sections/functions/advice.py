"""Conclusions about tf.functions and eager ops: what is traced again and again, what should be in a tf.function."""

from __future__ import annotations

from tfperf.report.model import Finding, Severity
from tfperf.sections.functions.analysis import Functions
from tfperf.sections.functions.calls import FunctionStats
from tfperf.sections.functions.eager import EagerOps
from tfperf.units import format_percent

EXPENSIVE_PERCENT = 20.0
"""Share of expensive calls in the self time of a function from which TensorFlow's overview gives advice."""
EAGER_PERCENT = 10.0
"""Share of eager execution in the step time from which TensorFlow's overview gives advice."""
_MANY_TRACINGS = 5
"""Of a function traced more often than this there is advice even if tracing takes little of its time."""
_NAMED = 3
_KEEP_SHAPES = (
    "pass tensors instead of Python numbers, fix shapes with input_signature or reduce_retracing=True, create "
    "tf.functions once outside the loop"
)
_USE_FUNCTION = "put the step into a tf.function, and what it calls; in Keras, compile() without run_eagerly=True"


def findings_of(functions: Functions) -> tuple[Finding, ...]:
    """Return advice on functions that are traced again and again, and on steps that run ops one by one."""
    return (*_retracing(functions.functions), *_eager(functions.eager))


def _retracing(functions: tuple[FunctionStats, ...]) -> list[Finding]:
    expensive = [function for function in functions if function.expensive_percent >= EXPENSIVE_PERCENT]
    often = [
        function
        for function in functions
        if function.calls.get("traced", 0) > _MANY_TRACINGS and function not in expensive
    ]
    findings = []
    if expensive:
        expensive.sort(key=lambda function: -function.expensive_percent)
        share = f"{EXPENSIVE_PERCENT:.0f}% or more of the self time of {_listed(expensive)}"
        text = f"Calls that trace Python or run eagerly take {share}."
        findings.append(Finding("retracing", "problem", text, _KEEP_SHAPES))
    if often:
        text = f"Traced more than {_MANY_TRACINGS} times in this capture: {_listed(often)}."
        findings.append(Finding("retracing_often", "hint", text, _KEEP_SHAPES))
    return findings


def _listed(functions: list[FunctionStats]) -> str:
    parts = []
    for function in functions[:_NAMED]:
        traced = f"{function.calls.get('traced', 0)} of {function.call_count} calls traced"
        parts.append(f"{function.name} ({traced}, {format_percent(function.expensive_percent)}%)")
    more = f" and {len(functions) - _NAMED} more" if len(functions) > _NAMED else ""
    return ", ".join(parts) + more


def _eager(eager: EagerOps) -> list[Finding]:
    if eager.percent is None or eager.percent < EAGER_PERCENT:
        return []
    severity: Severity = "problem" if eager.percent >= 2 * EAGER_PERCENT else "hint"
    text = (
        f"Ops that Python runs one by one take {format_percent(eager.percent)}% of the step time "
        f"(ops per step: {eager.calls_per_step:.3g}; most time: {', '.join(eager.op_types[:_NAMED])}; threshold "
        f"{EAGER_PERCENT:.0f}%)."
    )
    return [Finding("eager", severity, text, _USE_FUNCTION)]
