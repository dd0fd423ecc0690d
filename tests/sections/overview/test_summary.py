"""Averages over steps, their quantities, and the class of the job at its thresholds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from builders import Plane, event, host, known, line, marks, plane, result_of, results_of, trace_of

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
from tfperf.trace.steps.breakdown import Breakdown


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
    assert summary_of(tmp_path, host(*marks(4))).input_class == "unknown"


def test_unexplained_time_hides_no_input_where_steps_show_their_fetches(tmp_path: Path) -> None:
    """TensorFlow's own rule does not ask for fetches."""
    assert input_class(4.0, 50.0, hides_none=True) == "none"
    assert input_class(5.0, 50.0, hides_none=True) == "moderate"
    fetches = [event("IteratorGetNextOp::DoCompute", 100 * n, 1) for n in range(5)]
    ops = [event("A:A", 100 * n + 1, 50) for n in range(5)]
    assert summary_of(tmp_path, host(*marks(5), *fetches, *ops)).input_class == "none"
    assert summary_of(tmp_path, host(*marks(5), *ops)).input_class == "possible"


def test_idle_cores_of_a_tpu_hide_no_input(tmp_path: Path) -> None:
    """Infeed or transfers would show: with a runtime of TPUs that records none, there is no input."""
    steps = line("Steps", *(event(str(step), 100 * step, 100) for step in range(4)), id=1)
    ops = line("XLA Ops", *(event("fusion", 100 * step, 20, hlo_category="loop fusion") for step in range(4)), id=2)
    core = plane("/device:TPU:0", steps, ops)
    for runtime, expected in (("f", "unknown"), ("tpu::System::Execute", "none")):
        assert summary_of(tmp_path, core, host(event(runtime, 0, 1))).input_class == expected


def test_shares_are_classed() -> None:
    classes = {percent: share_class(percent) for percent in (15.0, 14.999, 3.0, 2.999)}
    assert classes == {15.0: "high", 14.999: "moderate", 3.0: "moderate", 2.999: "none"}


def test_statistics_use_the_sample_deviation() -> None:
    summary = known(statistics(np.array([1.0, 2.0, 3.0, 6.0])))
    assert (summary.average, summary.minimum, summary.maximum, summary.median) == (3.0, 1.0, 6.0, 2.5)
    assert summary.standard_deviation == pytest.approx((14 / 3) ** 0.5)
    assert summary.p95 == pytest.approx(float(np.percentile([1, 2, 3, 6], 95)))


def test_the_deviation_of_one_value_is_unknown_and_that_of_equal_ones_is_0() -> None:
    one, equal = known(statistics(np.array([4.0]))), known(statistics(np.array([0.1, 0.1, 0.1])))
    assert (one.standard_deviation, equal.standard_deviation) == (None, 0.0)
    assert statistics(np.empty(0)) is None


def test_the_table_of_averages_leaves_out_what_is_unknown(tmp_path: Path) -> None:
    """A CPU job: nothing is known about a device."""
    table = summary_of(tmp_path, waiting(10, 10, 10)).table.set_index("category")
    assert table.loc["Input", "percent"] == pytest.approx(10)
    assert [bool(table[key].isna()["Device compute"]) for key in table] == [True, True, True, False]
    assert table.loc["Compilation", "average_ms"] == 0.0


def waiting(*waits: float) -> Plane:
    """Steps of 100 us that wait for input for the given times and compute for the rest."""
    fetches = [event("IteratorGetNextOp::DoCompute", 100 * n, wait) for n, wait in enumerate(waits)]
    ops = [event("A:A", 100 * n + wait, 100 - wait) for n, wait in enumerate(waits)]
    return host(*marks(len(waits)), *fetches, *ops)


def summary_of(tmp_path: Path, *planes: Plane) -> Summary:
    breakdown: Breakdown = result_of(tmp_path, "steps", *planes)
    return summarize(breakdown)


def test_the_share_is_sum_over_sum(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, waiting(10, 20, 60))
    assert summary.input_percent == pytest.approx(30.0)
    assert summary.input_class == "high"
    assert known(summary.step_time_ms).average == pytest.approx(0.1)
    assert summary.category_ms["input"].maximum == pytest.approx(0.06)


def test_no_steps_have_no_figures(tmp_path: Path) -> None:
    breakdown = result_of(tmp_path, "steps", host(event("A:A", 0, 5)))
    summary = summarize(breakdown)
    assert (summary.step_time_ms, summary.input_percent, summary.input_class) == (None, None, "unknown")
    assert summary.table.empty
    assert by_kind(breakdown) == ()


def test_the_verdict_on_several_hosts_is_that_of_the_worst(tmp_path: Path) -> None:
    """The others wait for it: an average would hide one starving host among many."""
    hosts = [trace_of(tmp_path, waiting(wait, wait, wait)) for wait in (1, 40, 1)]
    overview = over_hosts(results_of(*hosts, sections=["overview"]))
    assert (overview.worst_host, overview.input_class) == (1, "high")
    assert overview.input_percent == pytest.approx(40.0)
    assert overview.percent["input"] == pytest.approx(14.0)
    assert [summary.input_class for summary in overview.by_host] == ["none", "high", "none"]
    alone = over_hosts(results_of(hosts[1], sections=["overview"]))
    assert (alone.worst_host, alone.input_class) == (None, "high"), "a single host is not the worst"


def test_parts_of_the_step(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, waiting(*[30] * 5))
    assert (str(step_time(summary)), step_time(summary).of) == ("0.100 ms", "training step")
    share, time = share_of_step(summary, "input_wait", "a"), time_in_step(summary, "input_wait", "a")
    assert (share.key, str(share), share.of) == ("input_wait", "30.0%", "training step on a")
    assert (time.key, str(time), time.of) == ("input_wait", "0.030 ms", "training step on a")
    # What the trace cannot show is unknown, not 0.
    for quantity in (share_of_step(summary, "kernel_launch"), time_in_step(summary, "kernel_launch")):
        assert (quantity.value, str(quantity)) == (None, "-")
    empty = Summary(kind="step", step_count=0, averaged_count=0)
    assert {step_time(empty).value, share_of_step(empty, "input").value, time_in_step(empty, "input").value} == {None}
