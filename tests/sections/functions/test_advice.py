from __future__ import annotations

import numpy as np

from tfperf.report.model import Finding
from tfperf.sections.functions.advice import findings_of
from tfperf.sections.functions.analysis import Functions
from tfperf.sections.functions.calls import FunctionStats
from tfperf.sections.functions.eager import EagerOps

MS = 1_000_000_000


def function(name: str, *, traced: int, traced_ms: int, called: int = 10, called_ms: int = 100) -> FunctionStats:
    calls, self_ps = {"traced": traced, "notTraced": called}, {"traced": traced_ms * MS, "notTraced": called_ms * MS}
    return FunctionStats(name, calls, self_ps, tracing_count=traced, is_compiled=False)


def eager(percent: int) -> EagerOps:
    """Ten steps of 100 ms with one MatMul each, which takes this much of the step."""
    return EagerOps(
        op_types=("MatMul",),
        calls=np.array([10]),
        total_ps=np.array([percent * 10 * MS]),
        eager_ps=percent * 10 * MS,
        step_time_ps=1000 * MS,
        step_count=10,
        step_calls=10,
    )


def findings(*functions: FunctionStats, eager_percent: int = 0) -> tuple[Finding, ...]:
    return findings_of(Functions(functions, eager(eager_percent)))


def test_a_function_that_was_traced_once_is_fine() -> None:
    assert findings(function("train", traced=1, traced_ms=10)) == ()


def test_tracing_from_20_percent_of_the_self_time_on_is_a_problem() -> None:
    (finding,) = findings(
        function("train", traced=1, traced_ms=25),
        function("loss", traced=2, traced_ms=100),
        function("ok", traced=0, traced_ms=0),
    )
    assert (finding.code, finding.severity) == ("retracing", "problem")
    assert finding.text == (
        "Calls that trace Python or run eagerly take 20% or more of the self time of loss (2 of 12 calls traced, "
        "50.0%), train (1 of 11 calls traced, 20.0%)."
    )
    assert "reduce_retracing=True" in finding.action


def test_tracing_more_than_five_times_is_a_hint() -> None:
    assert findings(function("train", traced=5, traced_ms=10)) == ()
    (finding,) = findings(function("train", traced=6, traced_ms=10))
    assert (finding.code, finding.severity) == ("retracing_often", "hint")
    assert finding.text == "Traced more than 5 times in this capture: train (6 of 16 calls traced, 9.1%)."


def test_three_functions_are_named() -> None:
    (finding,) = findings(*(function(f"f{n}", traced=1, traced_ms=100) for n in range(5)))
    assert finding.text.endswith("f2 (1 of 11 calls traced, 50.0%) and 2 more.")


def test_eager_ops_from_10_percent_of_the_step_time_on() -> None:
    assert findings(eager_percent=9) == ()
    (finding,) = findings(eager_percent=10)
    assert (finding.code, finding.severity) == ("eager", "hint")
    assert finding.text == (
        "Ops that Python runs one by one take 10.0% of the step time (ops per step: 1; most time: MatMul; threshold "
        "10%)."
    )
    assert findings(eager_percent=20)[0].severity == "problem"
