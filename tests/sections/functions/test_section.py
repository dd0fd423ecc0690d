from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from builders import Event, event, host, marks, read_back, ref, results_of, trace_of
from synthetic_tpu import Offload, offload_tpu

from tfperf.analysis.load import assemble
from tfperf.report.model import Finding, Section
from tfperf.report.shown import EVERYTHING, Detail, shown
from tfperf.sections.functions import EAGER_OPS, TF_FUNCTIONS
from tfperf.sections.functions.analysis import Functions, FunctionStats, sum_calls
from tfperf.sections.functions.eager import EagerOps
from tfperf.sections.functions.section import build, findings_of
from tfperf.trace.steps.breakdown import CountedSteps

IN_WHOLE_REPORT = Detail("brief", "brief")
ALONE = Detail("full", "full")


def section_of(tmp_path: Path, *events: Event, detail: Detail = EVERYTHING) -> Section:
    report = assemble(results_of(trace_of(tmp_path, host(*events)), sections=["functions"]), ["functions"])
    return shown(report, detail).sections[0]


def steps_with_eager_ops(duration_us: float) -> list[Event]:
    """Four steps of 100 us, with a MatMul that Python runs."""
    eager = {"is_func": 0, "eager_op": ref("MatMul")}
    return [*marks(4), *(event("EagerExecute", 100 * n + 10, duration_us, **eager) for n in range(4))]


def call(mode: str, start_us: float) -> Event:
    return event("step", start_us, 10, tf_function_call=ref(f"{mode}-nonXla"))


def test_eager_ops_are_a_finding_a_fact_and_a_table(tmp_path: Path) -> None:
    section = section_of(tmp_path, *steps_with_eager_ops(60))
    assert [finding.code for finding in section.findings] == ["eager"]
    assert "60.0% of step time (1 per step; top: MatMul" in section.findings[0].text
    assert [(fact.key, fact.value, fact.note) for fact in section.facts] == [
        ("eager_percent", 60.0, "of the step time; ops per step: 1")
    ]
    assert [table.name for table in section.tables] == ["eager_ops"]
    assert section.notes == ("The profile has no tf.function calls.",)


def test_calls_are_a_fact_and_a_table(tmp_path: Path) -> None:
    section = section_of(tmp_path, call("traced", 0), call("notTraced", 20), call("notTraced", 40))
    assert [(fact.key, fact.value, fact.note) for fact in section.facts] == [("traced_calls", 1, "of 3 calls")]
    assert [table.name for table in section.tables] == ["tf_functions"]
    assert section.notes == ("The profile has no events of eager execution, so the eager share is unknown, not 0.",)


def test_a_whole_report_and_the_section_alone_show_the_same(tmp_path: Path) -> None:
    events = (*steps_with_eager_ops(60), call("traced", 450))
    brief, alone = (section_of(tmp_path, *events, detail=detail) for detail in (IN_WHOLE_REPORT, ALONE))
    assert brief == alone
    functions, eager = brief.tables
    keys = ["function", "calls", "traced_calls", "not_traced_calls", "self_ms", "expensive_call_percent"]
    assert [column.key for column in functions.columns] == keys
    assert [column.key for column in eager.columns] == ["op_type", "calls", "total_ms", "mean_ms"]


def test_without_calls_there_are_no_tables(tmp_path: Path) -> None:
    results = results_of(trace_of(tmp_path, host(event("A:A", 0, 1))), sections=["functions"])
    assert (TF_FUNCTIONS.data(results), EAGER_OPS.data(results)) == (None, None)


MS = 1_000_000_000


def function(name: str, *, traced: int, traced_ms: int, called: int = 10, called_ms: int = 100) -> FunctionStats:
    calls, self_ps = {"traced": traced, "notTraced": called}, {"traced": traced_ms * MS, "notTraced": called_ms * MS}
    return FunctionStats(name, calls, self_ps, tracing_count=traced, is_compiled=False, most_traced=traced)


def eager(percent: int) -> EagerOps:
    """Ten steps of 100 ms with one MatMul each, which takes this much of the step."""
    none, once, took = np.zeros(10, np.int64), np.ones(10, np.int64), np.full(10, percent * MS)
    return EagerOps(
        op_types=("MatMul",),
        calls=np.array([10]),
        total_ps=np.array([percent * 10 * MS]),
        steps=CountedSteps(np.arange(10) * 100 * MS, np.full(10, 100 * MS), np.ones(10, np.bool_)),
        fetch_ps=np.zeros((5, 10), np.int64),
        eager_ps=took,
        stretch_ps=took,
        stretch_calls=once,
        step_calls=once,
        variables=none,
        kernel_ps=none,
        held_ps=none,
        callback_ps=none,
    )


def findings(*functions: FunctionStats, eager_percent: int = 0) -> tuple[Finding, ...]:
    return findings_of(Functions(functions, eager(eager_percent)), "step")


def test_tracing_from_20_percent_of_the_self_time_on_is_a_problem() -> None:
    (finding,) = findings(
        function("train", traced=1, traced_ms=25),
        function("loss", traced=2, traced_ms=100),
        function("ok", traced=0, traced_ms=0),
    )
    assert (finding.code, finding.severity) == ("retracing", "problem")
    assert finding.text == (
        "Calls that trace Python or run eagerly take 20% or more: loss (2 of 12 calls traced, 50.0% of its self time), "
        "train (1 of 11 calls traced, 20.0% of its self time)."
    )
    assert (finding.action, finding.causes) == ("", ("compilation", "warm_up"))


def test_tracing_more_than_five_times_is_a_hint() -> None:
    assert findings(function("train", traced=5, traced_ms=10)) == ()
    (finding,) = findings(function("train", traced=6, traced_ms=10))
    assert (finding.code, finding.severity) == ("retracing_often", "hint")
    assert (
        finding.text == "Traced more than 5 times in this capture: train (6 of 16 calls traced, 9.1% of its self time)."
    )


def test_tracings_of_several_hosts_do_not_add_up() -> None:
    hosts = [function("train", traced=5, traced_ms=10) for _ in range(3)]
    assert findings(*sum_calls(hosts, of_hosts=True)) == ()
    (finding,) = findings(*sum_calls([*hosts, function("train", traced=6, traced_ms=10)], of_hosts=True))
    assert finding.text.startswith("Traced more than 5 times in this capture: train (21 of 61 calls traced")


def test_three_functions_are_named() -> None:
    (finding,) = findings(*(function(f"f{n}", traced=1, traced_ms=100) for n in range(5)))
    assert finding.text.endswith("f2 (1 of 11 calls traced, 50.0% of its self time) and 2 more.")


def test_eager_ops_from_10_percent_of_the_step_time_on() -> None:
    assert findings(eager_percent=9) == ()
    (finding,) = findings(eager_percent=10)
    assert (finding.code, finding.severity) == ("eager", "hint")
    assert finding.text == "Eager ops take 10.0% of step time (1 per step; top: MatMul; threshold: 10%)."
    assert findings(eager_percent=20)[0].severity == "problem"


def test_waits_of_chips_for_each_other_are_said(tmp_path: Path) -> None:
    """Chip 0 comes 20 ms before the last of three chips, chip 1 10 ms; only the longest wait of a call counts."""
    results = results_of(read_back(tmp_path, offload_tpu(Offload(chips=3))))
    (fact,) = (fact for fact in build(results).facts if fact.key == "barriers")
    assert fact.value == pytest.approx(20)
    assert fact.note == "in 1 call of _psum, where chips wait for the last chip; longest 20.0 ms on TPU:0"
