"""What explains a breach: findings of the report about the metric, on the host that breaches the limit."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import Plane, event, host, line, plane, ref, space
from judge.example_jobs import analysis_of, bare_job, pipeline_job

from tfperf.analysis.registry import section_names
from tfperf.judge.check import evidence_of, evidence_sections
from tfperf.judge.grammar import limit_tables, read_limit
from tfperf.judge.limits import FIGURES, REGRESSION, Metric
from tfperf.judge.measure import judged_hosts
from tfperf.report.model import Finding


def evidence(tmp_path: Path, limit: str, data: bytes) -> tuple[Finding, ...]:
    """What explains a breach of a limit in a run of one host."""
    (judged,) = judged_hosts(analysis_of(tmp_path, a=data), stat="mean", skip_first=0, min_steps=3)
    return evidence_of(read_limit(limit).metric, judged)


# --- which sections explain what ---


@pytest.mark.parametrize(
    ("limit", "sections"),
    [
        ("input_bound <= 1%", ("tfdata", "diagnosis")),
        ("input_cost <= 1%", ("tfdata", "diagnosis")),
        ("cause_cost[eager_ops] <= 1%", ("diagnosis",)),
        ("cause[memory_pressure] <= 0", ("diagnosis",)),
        ("tfdata_stages.p95_ms < 1", ("tfdata", "diagnosis")),
        ("retraces <= 0", ("functions", "diagnosis")),
        ("functions.traced_calls < 1", ("functions", "diagnosis")),
        ("memory < 1kB", ("memory", "diagnosis")),
        ("memory_by_op.total_bytes < 1", ("memory", "diagnosis")),
        ("device_busy >= 99%", ("idle", "diagnosis")),
        ("device_time.idle_ms < 1", ("idle", "diagnosis")),
        ("kernels.total_us < 1", ("diagnosis",)),
        ("step_time < 1us", ("diagnosis",)),
        ("steps.step_time_ms < 1us", ("diagnosis",)),
        ("ops.self_ms < 1us", ()),
        ("device_ops.self_ms < 1us", ()),
        ("op_types.self_ms < 1us", ()),
        ("count(environment.host) < 1", ()),
        ("pauses.duration_ms < 1us", ()),
    ],
)
def test_sections_that_explain_a_breach(limit: str, sections: tuple[str, ...]) -> None:
    assert evidence_sections(read_limit(limit).metric) == sections


def test_every_metric_is_explained_by_sections_that_there_are() -> None:
    metrics = [Metric(name) for name in (*FIGURES, REGRESSION)]
    metrics += [Metric(table.columns[0].key, name) for name, table in limit_tables().items()]
    for metric in metrics:
        assert set(evidence_sections(metric)) <= set(section_names()), metric


# --- input ---


def test_a_breach_of_input_names_the_stage_that_is_waited_for(tmp_path: Path) -> None:
    first, *_ = evidence(tmp_path, "input_bound <= 10%", pipeline_job(wait_us=400))
    assert first.code == "input_wait"
    assert "the stage waited for is Map" in first.text
    assert first.action


def test_a_breach_below_the_threshold_of_advice_says_what_input_takes(tmp_path: Path) -> None:
    """1 % of the step time is no cause, but a limit may be lower."""
    (finding,) = evidence(tmp_path, "input_bound <= 0.5%", pipeline_job(wait_us=10))
    assert finding.code == "input_share"
    # What is copied to a device that is not in the profile is unknown.
    assert finding.text == "Waiting for tf.data takes 1.0% of the step time."
    assert finding.action == "see what each stage takes: tfperf analyze -s tfdata"


# --- functions ---


def traced_calls(*names: str) -> bytes:
    """Calls that all trace their function; the tracing counts run on, as if it was traced before the capture."""
    calls = [
        event(name, 10.0 * number, 5, tf_function_call=ref("traced-nonXla"), tracing_count=number + 1)
        for number, name in enumerate(names)
    ]
    return space(host(*calls))


def test_a_breach_of_retraces_names_the_functions(tmp_path: Path) -> None:
    (finding, *_) = evidence(tmp_path, "retraces <= 0", traced_calls("train_step", "train_step", "train_step"))
    assert finding.text == "Traced again in the capture: train_step (2 times)."
    assert "input_signature" in finding.action


def test_only_the_functions_traced_most_are_named(tmp_path: Path) -> None:
    names = [name for number, name in enumerate("abcde") for _ in range(6 - number)]
    (finding, *_) = evidence(tmp_path, "retraces <= 0", traced_calls(*names))
    assert finding.text == "Traced again in the capture: a (5 times), b (5 times), c (4 times) and 2 more."


def test_names_from_the_trace_are_cut(tmp_path: Path) -> None:
    name = "x" * 100_000 + "\x1b[31m"
    for limit in ("retraces <= 0", "functions.traced_calls < 1"):
        retraced = evidence(tmp_path, limit, traced_calls(name, name, name))[0]
        assert retraced.code == "retraced"
        assert len(retraced.text) < 300


# --- devices and memory ---


def steps() -> list[Plane]:
    return [host(*(event("train", 100 * number, 100, step_num=number) for number in range(5)))]


def test_a_breach_of_device_time_names_what_the_device_waits_for_and_the_cause(tmp_path: Path) -> None:
    """The host launches for 90 us of each step of 100 us."""
    marks = [event("train", 100 * number, 100, step_num=number) for number in range(5)]
    launching = [event("ExecutorState::Process", 100 * number, 90) for number in range(5)]
    stream = line("Stream #1", *(event("gemm", 100 * number + 90, 10) for number in range(5)))
    data = space(
        plane("/host:CPU", line("python", *marks), line("executor", *launching)), plane("/device:GPU:0", stream)
    )
    fact, cause = evidence(tmp_path, "device_busy >= 99%", data)
    assert (fact.code, fact.action, fact.causes) == ("idle_launch", "", ())
    assert cause.code == "small_work_per_step"
    assert cause.action


def test_a_breach_of_memory_names_the_largest_part_of_the_peak(tmp_path: Path) -> None:
    held = event(
        "MemoryAllocation",
        5,
        0,
        allocator_name="mklcpu",
        bytes_allocated=4096,
        bytes_available=1 << 20,
        peak_bytes_in_use=4096,
        requested_bytes=3072,
        allocation_bytes=3072,
        addr=64,
        tf_op="dense/MatMul",
    )
    findings = evidence(tmp_path, "memory < 1kB", space(host(held)))
    largest = next(finding for finding in findings if finding.code == "memory_largest")
    assert largest.text == "The largest part of the peak is dense/MatMul: 3.07 kB, 75.0%."
    assert largest.action


# --- everything else ---


@pytest.mark.parametrize("limit", ["all_others <= 1%", "step_time <= 1us", "steps.step_time_ms < 1us"])
def test_other_breaches_have_the_advice_of_the_report(tmp_path: Path, limit: str) -> None:
    findings = evidence(tmp_path, limit, bare_job(*[100] * 5))
    assert [finding.code for finding in findings] == ["python_between_steps"]


def test_what_nothing_in_the_report_explains_has_no_evidence(tmp_path: Path) -> None:
    assert evidence(tmp_path, "host_ops.self_ms < 1us", pipeline_job(wait_us=400)) == ()
