"""Quantities of the average step: steps of 100 us that wait for 30."""

from __future__ import annotations

from pathlib import Path

from builders import event, host, host_of, trace_of

from tfperf.sections.overview.summary import (
    Summary,
    of_steps,
    share_of_step,
    step_after,
    step_time,
    summarize,
    time_in_step,
)


def summary_of(tmp_path: Path) -> Summary:
    marks = [event("train", 100 * n, 100, step_num=n) for n in range(5)]
    fetches = [event("IteratorGetNextOp::DoCompute", 100 * n, 30) for n in range(5)]
    return summarize(host_of(trace_of(tmp_path, host(*marks, *fetches)), "steps")["steps"])


def test_whose_a_quantity_is() -> None:
    assert of_steps("train") == "train step"
    assert of_steps("eval", "a") == "eval step on a"
    assert of_steps("step") == "step"


def test_parts_of_the_step(tmp_path: Path) -> None:
    summary = summary_of(tmp_path)
    assert (str(step_time(summary)), step_time(summary).of) == ("0.100 ms", "train step")
    share, time = share_of_step(summary, "input_wait", "a"), time_in_step(summary, "input_wait", "a")
    assert (share.key, str(share), share.of) == ("input_wait", "30.0%", "train step on a")
    assert (time.key, str(time), time.of) == ("input_wait", "0.030 ms", "train step on a")


def test_what_the_trace_cannot_show_is_unknown_not_0(tmp_path: Path) -> None:
    summary = summary_of(tmp_path)
    for quantity in (share_of_step(summary, "kernel_launch"), time_in_step(summary, "kernel_launch")):
        assert (quantity.value, str(quantity)) == (None, "-")
    empty = Summary(kind="step", step_count=0, averaged_count=0)
    assert {step_time(empty).value, share_of_step(empty, "input").value, time_in_step(empty, "input").value} == {None}


def test_a_change_has_two_quantities() -> None:
    low, high = step_after("input_wait: cache", 1.5, 2.5, "train step")
    assert (low.key, str(low)) == ("input_wait: cache, at best", "1.50 ms")
    assert (high.key, str(high)) == ("input_wait: cache, at worst", "2.50 ms")
