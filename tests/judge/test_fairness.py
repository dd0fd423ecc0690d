from __future__ import annotations

from typing import Any

import pytest
from judge.example_runs import STEADY, host_of, run_of

from tfperf.judge.changes import differences
from tfperf.judge.run_summary import RunSummary


def shown(before: RunSummary, after: RunSummary) -> list[tuple[str, str, str, bool]]:
    """(what, before, after, unfair)"""
    return [(row.what, row.before, row.after, row.unfair) for row in differences(before, after)]


def with_host(**changes: Any) -> RunSummary:
    return run_of(hosts=[host_of(**changes)])


def test_like_runs_differ_in_nothing() -> None:
    assert differences(run_of(), run_of(label="other", run="2027")) == ()


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (with_host(), with_host(device_type="GPU"), ("Device type", "CPU", "GPU")),
        (with_host(device_model="T4"), with_host(device_model="V100"), ("Device model", "T4", "V100")),
        (with_host(device_count=8), with_host(device_count=4), ("Devices", "8", "4")),
        (run_of(hosts=[host_of()] * 2), run_of(), ("Hosts", "2", "1")),
        (run_of(), run_of(attribution="tensorflow"), ("Attribution", "corrected", "tensorflow")),
        (run_of(), run_of(step_kind="eval"), ("Kind of step", "train", "eval")),
        (run_of(), run_of(step_source="tf.function calls"), ("Steps found by", "markers", "tf.function calls")),
        (run_of(), run_of(batches_per_step=4), ("Batches per step", "1", "4")),
        (run_of(), run_of(skip_first=3), ("First steps skipped", "0", "3")),
        (run_of(batch_size=1024), run_of(batch_size=2048), ("Batch size", "1,024", "2,048")),
        (with_host(cpu_model="EPYC"), with_host(cpu_model="Xeon"), ("Host CPU", "EPYC", "Xeon")),
        (with_host(cores=8.0), with_host(cores=1.5), ("Host cores", "8", "1.5")),
        (run_of([2e6] * 50), run_of([0.5] * 50), ("Step time", "2000000 ms", "0.500 ms")),
        (run_of(doubt="clocks may disagree"), run_of(), ("Soundness", "clocks may disagree", "sound")),
    ],
)
def test_what_makes_the_ratio_misleading_is_unfair(
    before: RunSummary, after: RunSummary, expected: tuple[str, str, str]
) -> None:
    assert shown(before, after) == [(*expected, True)]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (
            with_host(half_precision_percent=0.0),
            with_host(half_precision_percent=80.0),
            ("16-bit compute", "0.0%", "80.0%"),
        ),
        (run_of(STEADY), run_of(STEADY[:25]), ("Whole steps", "50", "25")),
        (run_of(STEADY[:12]), run_of(STEADY[:9]), ("Whole steps", "12", "9")),
        (run_of(), run_of(step_confidence="low"), ("Confidence in steps", "high", "low")),
        (run_of(tfperf_version="0.1"), run_of(tfperf_version="0.2"), ("tfperf", "0.1", "0.2")),
        (run_of(step_kind="step"), run_of(), ("Kind of step", "step", "train")),
        (run_of(tensorflow_version="2.20"), run_of(tensorflow_version="2.21"), ("TensorFlow", "2.20", "2.21")),
    ],
)
def test_what_one_should_know_is_not_unfair(
    before: RunSummary, after: RunSummary, expected: tuple[str, str, str]
) -> None:
    assert shown(before, after) == [(*expected, False)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (run_of(batch_size=None), run_of(batch_size=8)),
        (run_of(batches_per_step=None), run_of(batches_per_step=4)),
        (with_host(device_model=""), with_host(device_model="T4")),
        (with_host(cpu_model=""), with_host(cpu_model="EPYC")),
        (with_host(cores=None), with_host(cores=8.0)),
        (run_of(), run_of(tensorflow_version="2.21")),
        (with_host(half_precision_percent=None), with_host(half_precision_percent=80.0)),
        (with_host(half_precision_percent=50.0), with_host(half_precision_percent=54.0)),
        (run_of(STEADY), run_of(STEADY[:26])),
    ],
)
def test_what_is_unknown_or_hardly_differs_is_not_a_difference(before: RunSummary, after: RunSummary) -> None:
    assert shown(before, after) == []


def test_without_steps_there_is_nothing_to_say_about_them() -> None:
    before = run_of((), step_source="none", step_confidence="none", step_kind="step", batches_per_step=None)
    assert shown(before, run_of()) == [("Whole steps", "0", "50", False)]


def test_unfair_things_come_first_and_long_lists_are_cut() -> None:
    models = [host_of(name=str(n), device_model=f"model {n}") for n in range(5)]
    rows = shown(run_of(hosts=models, step_confidence="low"), run_of(hosts=[host_of(device_model="T4")] * 5))
    assert [(what, unfair) for what, *_, unfair in rows] == [("Device model", True), ("Confidence in steps", False)]
    assert rows[0][1] == "model 0, model 1, model 2 and 2 more"


def test_devices_are_not_counted_where_hosts_were_cut() -> None:
    before, after = (run_of(hosts=[host_of(device_count=8)] * n, host_count=300) for n in (1, 2))
    assert shown(before, after) == []


def test_as_many_examples_in_other_batches_are_fair() -> None:
    """Four batches of 32 in a step, or one of 128."""
    before = run_of(batch_size=32, batches_per_step=4, examples_per_step=128)
    after = run_of(batch_size=128, batches_per_step=1, examples_per_step=128)
    assert shown(before, after) == [("Batches per step", "4", "1", False), ("Batch size", "32", "128", False)]


def test_another_batch_size_is_fair_where_examples_are_compared() -> None:
    before, after = run_of(batch_size=8, examples_per_step=8), run_of(batch_size=16, examples_per_step=16)
    assert [row.unfair for row in differences(before, after)] == [True]
    assert [row.unfair for row in differences(before, after, "example")] == [False]
