"""The section of tf.functions: how often they were called and traced, and what runs eagerly beside them."""

from __future__ import annotations

from tfperf.report.model import Fact, Section
from tfperf.sections.functions.advice import findings_of
from tfperf.sections.functions.analysis import Functions
from tfperf.sections.functions.tables import EAGER_OPS, TF_FUNCTIONS
from tfperf.sections.results import Results
from tfperf.sections.spec import present


def build(results: Results) -> Section:
    """Build the section: advice, calls per function, and ops run eagerly."""
    functions: Functions = results["functions"]
    notes: tuple[str, ...] = () if functions.functions else ("No tf.function was called in this trace.",)
    if not functions.eager.is_recorded:
        notes += ("Eager execution: the trace has no events of it, so the eager share is unknown, not 0.",)
    return Section(
        "functions",
        "tf.functions",
        findings=findings_of(functions),
        facts=_facts(functions),
        tables=present(TF_FUNCTIONS.build(results), EAGER_OPS.build(results)),
        notes=notes,
    )


def _facts(functions: Functions) -> tuple[Fact, ...]:
    facts = []
    if functions.functions:
        calls = sum(function.call_count for function in functions.functions)
        traced = sum(function.calls.get("traced", 0) for function in functions.functions)
        facts.append(Fact("traced_calls", "Calls that traced", traced, "count", f"of {calls} calls"))
    eager = functions.eager
    if eager.percent is not None:
        note = f"of the step time; ops per step: {eager.calls_per_step:.3g}"
        facts.append(Fact("eager_percent", "Ops run eagerly", eager.percent, "%", note))
    return tuple(facts)
