from __future__ import annotations

from pathlib import Path

from builders import Event, event, host, ref, results_of, trace_of

from tfperf.report.levels import EVERYTHING, Detail, shown
from tfperf.report.model import Section
from tfperf.sections.assembly import assemble

IN_WHOLE_REPORT = Detail("brief", "brief")
ALONE = Detail("full", "full")


def section_of(tmp_path: Path, *events: Event, detail: Detail = EVERYTHING) -> Section:
    report = assemble(results_of(trace_of(tmp_path, host(*events)), sections=["functions"]), ["functions"])
    return shown(report, detail).sections[0]


def steps_with_eager_ops(duration_us: float) -> list[Event]:
    """Four steps of 100 us, with a MatMul that Python runs."""
    steps = [event("train", 100 * n, 100, step_num=n) for n in range(4)]
    eager = {"is_func": 0, "eager_op": ref("MatMul")}
    return [*steps, *(event("EagerExecute", 100 * n + 10, duration_us, **eager) for n in range(4))]


def call(mode: str, start_us: float) -> Event:
    return event("step", start_us, 10, tf_function_call=ref(f"{mode}-nonXla"))


def test_eager_ops_are_a_finding_a_fact_and_a_table(tmp_path: Path) -> None:
    section = section_of(tmp_path, *steps_with_eager_ops(60))
    assert [finding.code for finding in section.findings] == ["eager"]
    assert "60.0% of the step time (ops per step: 1; most time: MatMul" in section.findings[0].text
    assert [(fact.key, fact.value, fact.note) for fact in section.facts] == [
        ("eager_percent", 60.0, "of the step time; ops per step: 1")
    ]
    assert [table.name for table in section.tables] == ["eager_ops"]
    assert section.notes == ("No tf.function was called in this trace.",)


def test_calls_are_a_fact_and_a_table(tmp_path: Path) -> None:
    section = section_of(tmp_path, call("traced", 0), call("notTraced", 20), call("notTraced", 40))
    assert [(fact.key, fact.value, fact.note) for fact in section.facts] == [("traced_calls", 1, "of 3 calls")]
    assert [table.name for table in section.tables] == ["tf_functions"]
    assert section.notes == ("Eager execution: the trace has no events of it, so the eager share is unknown, not 0.",)


def test_a_whole_report_and_the_section_alone_show_the_same(tmp_path: Path) -> None:
    events = (*steps_with_eager_ops(60), call("traced", 450))
    brief, alone = (section_of(tmp_path, *events, detail=detail) for detail in (IN_WHOLE_REPORT, ALONE))
    assert brief == alone
    functions, eager = brief.tables
    assert [column.key for column in functions.columns] == [
        "function",
        "calls",
        "traced_calls",
        "not_traced_calls",
        "self_ms",
        "expensive_call_percent",
    ]
    assert [column.key for column in eager.columns] == ["op_type", "calls", "total_ms", "mean_ms"]


def test_programs_get_every_column(tmp_path: Path) -> None:
    (table,) = section_of(tmp_path, call("traced", 0)).tables
    assert [column.key for column in table.columns] == list(table.data)
    assert {"eager_calls", "concrete_calls", "tracing_count", "compiler"} <= set(table.data)
