"""Averages over steps, their quantities, and the class of the job at its thresholds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from builders import Event, event, host, host_of, line, plane, results_of, trace_of

from tfperf.sections.overview.summary import (
    Summary,
    by_kind,
    input_class,
    over_hosts,
    share_class,
    share_of_step,
    statistics,
    step_time,
    summarize,
    time_in_step,
)
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.steps.breakdown import Breakdown, attribute
from tfperf.trace.steps.find_steps import find_steps


@pytest.mark.parametrize(
    ("input_percent", "others", "expected"),
    [
        (20.0, 0.0, "high"),
        (19.999, 50.0, "moderate"),
        (5.0, 0.0, "moderate"),
        (4.999, 3.0, "possible"),
        (4.999, 2.999, "none"),
        (0.0, 0.0, "none"),
        (None, 3.0, "possible"),
        (None, 0.0, "unknown"),
        (None, None, "unknown"),
        (4.0, None, "none"),
    ],
)
def test_input_classes_start_at_their_thresholds(
    input_percent: float | None, others: float | None, expected: str
) -> None:
    assert input_class(input_percent, others) == expected


def test_steps_in_which_nothing_is_recorded_allow_no_verdict(tmp_path: Path) -> None:
    markers = host(*(event("train", 100 * n, 90, step_num=n) for n in range(4)))
    assert results_of(trace_of(tmp_path, markers))["overview"].input_class == "unknown"


def test_unexplained_time_hides_no_input_where_steps_show_their_fetches(tmp_path: Path) -> None:
    """TensorFlow's own rule does not ask for fetches."""
    assert input_class(4.0, 50.0, hides_none=True) == "none"
    assert input_class(5.0, 50.0, hides_none=True) == "moderate"
    events = [
        made
        for n in range(5)
        for made in (
            event("train", 100 * n, 100, step_num=n),
            event("IteratorGetNextOp::DoCompute", 100 * n, 1),
            event("A:A", 100 * n + 1, 50),
        )
    ]
    trace = trace_of(tmp_path, host(*events))
    assert summarize(attribute(trace, find_steps(trace))).input_class == "none"
    without = trace_of(tmp_path, host(*(made for made in events if not made.name.startswith("Iterator"))))
    assert summarize(attribute(without, find_steps(without))).input_class == "possible"


def test_idle_cores_of_a_tpu_hide_no_input(tmp_path: Path) -> None:
    """Infeed or transfers would show: with a runtime of TPUs that records none, there is no input."""
    steps = line("Steps", *(event(str(step), 100 * step, 100) for step in range(4)), id=1)
    ops = line("XLA Ops", *(event("fusion", 100 * step, 20, hlo_category="loop fusion") for step in range(4)), id=2)
    core = plane("/device:TPU:0", steps, ops)
    for runtime, expected in (("f", "unknown"), ("tpu::System::Execute", "none")):
        trace = trace_of(tmp_path, core, host(event(runtime, 0, 1)))
        assert summarize(attribute(trace, find_steps(trace))).input_class == expected


@pytest.mark.parametrize(
    ("percent", "expected"), [(15.0, "high"), (14.999, "moderate"), (3.0, "moderate"), (2.999, "none")]
)
def test_shares_are_classed(percent: float, expected: str) -> None:
    assert share_class(percent) == expected


def test_statistics_use_the_sample_deviation() -> None:
    summary = statistics(np.array([1.0, 2.0, 3.0, 6.0]))
    assert summary is not None
    assert (summary.average, summary.minimum, summary.maximum, summary.median) == (3.0, 1.0, 6.0, 2.5)
    assert summary.standard_deviation == pytest.approx((14 / 3) ** 0.5)
    assert summary.p95 == pytest.approx(float(np.percentile([1, 2, 3, 6], 95)))


def test_the_deviation_of_one_value_is_unknown_and_that_of_equal_ones_is_0() -> None:
    one, equal = statistics(np.array([4.0])), statistics(np.array([0.1, 0.1, 0.1]))
    assert one is not None
    assert equal is not None
    assert (one.standard_deviation, equal.standard_deviation) == (None, 0.0)
    assert statistics(np.empty(0)) is None


def test_the_table_of_averages_leaves_out_what_is_unknown(tmp_path: Path) -> None:
    """A CPU job: nothing is known about a device."""
    trace = waiting(tmp_path, 10, 10, 10)
    table = summarize(attribute(trace, find_steps(trace))).table.set_index("category")
    assert table.loc["Input", "percent"] == pytest.approx(10)
    assert [bool(table[key].isna()["Device compute"]) for key in table] == [True, True, True, False]
    assert table.loc["Compilation", "average_ms"] == 0.0


def waiting(tmp_path: Path, *waits: float) -> HostTrace:
    """Steps of 100 us that wait for input for the given times and compute for the rest."""
    events: list[Event] = []
    for n, wait in enumerate(waits):
        events += [
            event("train", 100 * n, 100, step_num=n),
            event("IteratorGetNextOp::DoCompute", 100 * n, wait),
            event("A:A", 100 * n + wait, 100 - wait),
        ]
    return trace_of(tmp_path, host(*events))


def breakdown(tmp_path: Path, *waits: float) -> Breakdown:
    trace = waiting(tmp_path, *waits)
    return attribute(trace, find_steps(trace))


def test_the_share_is_sum_over_sum(tmp_path: Path) -> None:
    summary = summarize(breakdown(tmp_path, 10, 20, 60))
    assert summary.input_percent == pytest.approx(30.0)
    assert summary.input_class == "high"
    assert summary.step_time_ms is not None
    assert summary.step_time_ms.average == pytest.approx(0.1)
    assert summary.category_ms["input"].maximum == pytest.approx(0.06)


def test_no_steps_have_no_figures(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, host(event("A:A", 0, 5)))
    summary = summarize(attribute(trace, find_steps(trace)))
    assert (summary.step_time_ms, summary.input_percent, summary.input_class) == (None, None, "unknown")
    assert summary.table.empty
    assert by_kind(attribute(trace, find_steps(trace))) == ()


def test_the_verdict_on_several_hosts_is_that_of_the_worst(tmp_path: Path) -> None:
    """The others wait for it: an average would hide one starving host among many."""
    hosts = [waiting(tmp_path, wait, wait, wait) for wait in (1, 40, 1)]
    overview = over_hosts(results_of(*hosts, sections=["overview"]))
    assert (overview.worst_host, overview.input_class) == (1, "high")
    assert overview.input_percent == pytest.approx(40.0)
    assert overview.percent["input"] == pytest.approx(14.0)
    assert [summary.input_class for summary in overview.by_host] == ["none", "high", "none"]


def test_a_single_host_is_not_the_worst(tmp_path: Path) -> None:
    overview = over_hosts(results_of(waiting(tmp_path, 40, 40, 40), sections=["overview"]))
    assert (overview.worst_host, overview.input_class) == (None, "high")


def summary_of(tmp_path: Path) -> Summary:
    marks = [event("train", 100 * n, 100, step_num=n) for n in range(5)]
    fetches = [event("IteratorGetNextOp::DoCompute", 100 * n, 30) for n in range(5)]
    return summarize(host_of(trace_of(tmp_path, host(*marks, *fetches)), "steps")["steps"])


def test_parts_of_the_step(tmp_path: Path) -> None:
    summary = summary_of(tmp_path)
    assert (str(step_time(summary)), step_time(summary).of) == ("0.100 ms", "training step")
    share, time = share_of_step(summary, "input_wait", "a"), time_in_step(summary, "input_wait", "a")
    assert (share.key, str(share), share.of) == ("input_wait", "30.0%", "training step on a")
    assert (time.key, str(time), time.of) == ("input_wait", "0.030 ms", "training step on a")


def test_what_the_trace_cannot_show_is_unknown_not_0(tmp_path: Path) -> None:
    summary = summary_of(tmp_path)
    for quantity in (share_of_step(summary, "kernel_launch"), time_in_step(summary, "kernel_launch")):
        assert (quantity.value, str(quantity)) == (None, "-")
    empty = Summary(kind="step", step_count=0, averaged_count=0)
    assert {step_time(empty).value, share_of_step(empty, "input").value, time_in_step(empty, "input").value} == {None}
