"""The section of tf.functions: tables, and findings on retracing and eager execution."""

from __future__ import annotations

from tfperf.analysis.registry import Results, present
from tfperf.base.units import PS_PER_MS, counted, format_ms, format_number, listed
from tfperf.report.model import Fact, Finding, Quantity, Section, Severity
from tfperf.sections.functions import EAGER_OPS, JITTED_FUNCTIONS, TF_FUNCTIONS
from tfperf.sections.functions.analysis import Functions, FunctionStats, JittedFunctions
from tfperf.sections.overview.summary import of_steps

EXPENSIVE_PERCENT = 20.0
"""Threshold for the share of expensive calls in the self time of a function, as in TensorFlow's overview."""
EAGER_PERCENT = 10.0
"""Threshold for the share of eager execution in step time, as in TensorFlow's overview."""
_MANY_TRACINGS = 5
"""More tracings than this are a finding even if they take little time."""
_NAMED = 3
_LEAST_COMPILING = 0.05
"""Threshold for the share of recompilation in the time of a function's calls."""
_TRACING = ("compilation", "warm_up")


def build(results: Results) -> Section:
    """Return the section: findings, calls per function, and eager ops."""
    functions: Functions = results["functions"]
    of = of_steps(results["overview"].kind)
    if functions.jitted.functions:
        return _of_jax(results)
    notes: tuple[str, ...] = () if functions.functions else ("The profile has no tf.function calls.",)
    if not functions.eager.is_recorded:
        notes += ("The profile has no events of eager execution, so the eager share is unknown, not 0.",)
    facts = []
    if functions.functions:
        calls = sum(function.call_count for function in functions.functions)
        traced = sum(function.calls.get("traced", 0) for function in functions.functions)
        facts.append(Fact("traced_calls", "Calls that traced", traced, "count", f"of {counted(calls, 'call')}"))
    if functions.eager.percent is not None:
        note = f"of the step time; ops per step: {format_number(functions.eager.calls_per_step)}"
        share = Quantity("eager", functions.eager.percent, of=of)
        facts.append(Fact("eager_percent", "Ops run eagerly", share.value, "%", note, quantities=(share,)))
    return Section(
        "functions",
        "tf.functions",
        findings=findings_of(functions, of),
        facts=tuple(facts),
        tables=present(TF_FUNCTIONS.build(results), EAGER_OPS.build(results)),
        notes=notes,
    )


def _of_jax(results: Results) -> Section:
    functions: Functions = results["functions"]
    jitted = functions.jitted
    calls = sum(function.calls for function in jitted.functions)
    compiling = sum(function.compiling_calls for function in jitted.functions)
    facts = [Fact("compiling_calls", "Calls that compiled", compiling, "count", f"of {counted(calls, 'call')}")]
    if jitted.calls_per_step is not None:
        facts.append(Fact("jitted_calls_per_step", "Calls per step", jitted.calls_per_step, "count"))
    for each in jitted.barriers[:1]:
        longest = f"longest {format_ms(each.longest_ps / PS_PER_MS)} ms on {each.longest_on}"
        note = f"in {counted(each.calls, 'call')} of {each.function}, where chips wait for the last chip; {longest}"
        facts.append(Fact("barriers", "At barriers", each.total_ps / PS_PER_MS, "ms", note))
    tables = present(JITTED_FUNCTIONS.build(results), TF_FUNCTIONS.build(results), EAGER_OPS.build(results))
    findings = (*_compiling(jitted), *findings_of(functions, of_steps(results["overview"].kind)))
    return Section("functions", "Jitted functions", findings=findings, facts=tuple(facts), tables=tables)


def _compiling(jitted: JittedFunctions) -> tuple[Finding, ...]:
    often = [row for row in jitted.functions if row.most_compiling > 1]
    again = [row for row in often if row.compiling_ps >= _LEAST_COMPILING * row.total_ps]
    again.sort(key=lambda row: -row.compiling_ps)
    if not again:
        return ()
    shares = tuple(Quantity("compiling", 100.0 * row.compiling_ps / row.total_ps, of=row.name) for row in again)
    parts = [
        f"{row.name} ({row.compiling_calls} of {counted(row.calls, 'call')}, {share} of their time)"
        for row, share in zip(again, shares, strict=True)
    ]
    text = f"Compiled more than once: {listed(parts, _NAMED)}. New shapes, dtypes or static arguments trigger it."
    return (Finding("compiling", "problem", text, causes=_TRACING, quantities=shares[:_NAMED]),)


def findings_of(results: Functions, of: str) -> tuple[Finding, ...]:
    """Return findings on retracing and eager execution; `of` names the host."""
    functions, eager = results.functions, results.eager
    expensive = [function for function in functions if function.expensive_percent >= EXPENSIVE_PERCENT]
    many_tracings = [function for function in functions if function.most_traced > _MANY_TRACINGS]
    often = [function for function in many_tracings if function not in expensive]
    findings = []
    if expensive:
        expensive.sort(key=lambda function: -function.expensive_percent)
        text = f"Calls that trace Python or run eagerly take {EXPENSIVE_PERCENT:.0f}% or more: {_listed(expensive)}."
        findings.append(Finding("retracing", "problem", text, causes=_TRACING, quantities=_shares(expensive)))
    if often:
        text = f"Traced more than {_MANY_TRACINGS} times in this capture: {_listed(often)}."
        findings.append(Finding("retracing_often", "hint", text, causes=_TRACING, quantities=_shares(often)))
    if eager.percent is not None and eager.percent >= EAGER_PERCENT:
        share = Quantity("eager", eager.percent, of=of)
        text = (
            f"Eager ops take {share} of step time ({format_number(eager.calls_per_step)} per step; top: "
            f"{', '.join(eager.op_types[:_NAMED])}; threshold: {EAGER_PERCENT:.0f}%)."
        )
        severity: Severity = "problem" if eager.percent >= 2 * EAGER_PERCENT else "hint"
        findings.append(Finding("eager", severity, text, causes=("eager_ops", "run_eagerly"), quantities=(share,)))
    return tuple(findings)


def _shares(functions: list[FunctionStats]) -> tuple[Quantity, ...]:
    return tuple(map(_share, functions[:_NAMED]))


def _share(function: FunctionStats) -> Quantity:
    return Quantity("expensive", function.expensive_percent, of=function.name)


def _listed(functions: list[FunctionStats]) -> str:
    parts = []
    for function in functions:
        traced = f"{function.calls.get('traced', 0)} of {counted(function.call_count, 'call')} traced"
        parts.append(f"{function.name} ({traced}, {_share(function)} of its self time)")
    return listed(parts, _NAMED)
