from __future__ import annotations

from typing import Any

import pytest
from judge.example_runs import STEADY, host_of, ranking_of, run_of

from tfperf.judge.changes import category_changes, compare_runs, differences, ranking_changes
from tfperf.judge.run_summary import RankedEntry, Ranking, RankingName, RunSummary

Change = tuple[str, str, str]
Row = tuple[str, str, float | None, float | None, float | None]


def changes(before: Ranking, after: Ranking, name: RankingName = "kernels") -> list[Row]:
    """(name, state, before, after, change)"""
    rows = ranking_changes(run_of(rankings={name: before}), run_of(rankings={name: after}), name)
    return [(row.entry.name, row.state, row.before_ms, row.after_ms, row.change_ms) for row in rows]


def test_the_largest_change_comes_first() -> None:
    before = ranking_of(("a", 5.0), ("b", 3.0), ("c", 1.0))
    after = ranking_of(("a", 5.5), ("b", 1.0), ("c", 1.0))
    assert changes(before, after) == [("b", "", 3.0, 1.0, -2.0), ("a", "", 5.0, 5.5, 0.5), ("c", "", 1.0, 1.0, 0.0)]


def test_what_is_new_or_gone_is_marked() -> None:
    before, after = ranking_of(("same", 1.0), ("old", 4.0)), ranking_of(("same", 1.0), ("fresh", 3.0))
    assert changes(before, after) == [
        ("old", "gone", 4.0, 0.0, -4.0),
        ("fresh", "new", 0.0, 3.0, 3.0),
        ("same", "", 1.0, 1.0, 0.0),
    ]


def test_what_is_unknown_in_one_run_is_neither_new_nor_gone() -> None:
    before, after = ranking_of(("same", 1.0), ("b", 4.0)), ranking_of(("same", 1.0), cut=7)
    assert changes(before, after) == [("b", "", 4.0, None, None), ("same", "", 1.0, 1.0, 0.0)]
    assert changes(after, before) == [("b", "", None, 4.0, None), ("same", "", 1.0, 1.0, 0.0)]
    assert changes(ranking_of(("a", None)), ranking_of(("a", 2.0))) == [("a", "", None, 2.0, None)]
    assert changes(ranking_of(), ranking_of(("a", 2.0))) == [], "the first run shows nothing of the kind"


def test_numbers_of_layers_do_not_matter_where_only_one_layer_fits() -> None:
    before, after = ranking_of(("model_1/dense_3/MatMul", 1.0)), ranking_of(("model_2/dense/MatMul", 2.0))
    runs = run_of(rankings={"host_ops": before}), run_of(rankings={"host_ops": after})
    assert [(row.entry.name, row.after_name, row.change_ms) for row in ranking_changes(*runs, "host_ops")] == [
        ("model_1/dense_3/MatMul", "model_2/dense/MatMul", 1.0)
    ]


def test_numbers_do_matter_where_several_are_alike() -> None:
    rows = changes(ranking_of(("dense_1", 1.0), ("dense_2", 2.0)), ranking_of(("dense_3", 4.0)))
    assert [row[:2] for row in rows] == [("dense_3", "new"), ("dense_2", "gone"), ("dense_1", "gone")]


def test_ops_of_another_type_are_not_the_same() -> None:
    before, after = ranking_of(RankedEntry("a", "Add", 1.0)), ranking_of(RankedEntry("a", "Mul", 1.0))
    assert [row[1] for row in changes(before, after)] == ["gone", "new"]


def test_a_stage_is_found_again_below_another_stage() -> None:
    """A prefetch at the end changes the paths of all stages."""
    before = ranking_of(RankedEntry("Root::Batch", "Batch", 2.0), RankedEntry("Root::Batch::Map", "Map", 9.0))
    after = ranking_of(
        RankedEntry("Root::Prefetch", "Prefetch", 0.0),
        RankedEntry("Root::Prefetch::Batch", "Batch", 0.5),
        RankedEntry("Root::Prefetch::Batch::Map", "Map", 1.0),
    )
    assert changes(before, after, "stages") == [
        ("Root::Batch::Map", "", 9.0, 1.0, -8.0),
        ("Root::Batch", "", 2.0, 0.5, -1.5),
        ("Root::Prefetch", "new", 0.0, 0.0, 0.0),
    ]


def test_categories_add_up_to_the_change_of_the_step() -> None:
    """Half of 10 and of 12 ms is input."""
    rows = category_changes(host_of(), host_of(tuple(1.2 * ms for ms in STEADY)))
    assert [row.entry.name for row in rows] == ["Host compute", "Input"]
    assert sum(row.change_ms or 0.0 for row in rows) == pytest.approx(2.0)


def test_a_category_that_is_unknown_in_one_run_has_no_change() -> None:
    changed = category_changes(host_of(), host_of(category_ms={"input": None, "output": 3.0}))
    rows = {row.entry.detail: (row.before_ms, row.after_ms, row.change_ms) for row in changed}
    assert rows["input"] == (5.0, None, None)
    assert rows["output"] == (None, 3.0, None)
    assert "compilation" not in rows


def test_copies_to_a_device_that_are_no_part_of_input_have_a_change_of_their_own() -> None:
    before, after = (host_of(category_ms={"input": 0.0, "host_to_device": ms, "output": 1.0}) for ms in (4.0, 3.0))
    changed = category_changes(before, after)
    assert next((row.entry.name, row.change_ms) for row in changed) == ("Host to device", -1.0)
    usual = host_of(category_ms={"input": 5.0, "host_to_device": 4.0})
    assert [row.entry.detail for row in category_changes(usual, usual)] == ["input"]


@pytest.mark.parametrize(
    ("factor", "direction", "change_ms"),
    [(1.2, "slower", 2.0), (0.8, "faster", -2.0), (1.001, "no clear change", None)],
)
def test_a_change_is_clear_where_the_interval_excludes_1(factor: float, direction: str, change_ms: object) -> None:
    comparison = compare_runs([run_of(), run_of(tuple(factor * ms for ms in STEADY))], "mean")
    assert comparison.direction == direction
    assert comparison.mean_change_ms == pytest.approx(change_ms)


def test_without_steps_the_direction_is_unknown() -> None:
    comparison = compare_runs([run_of(), run_of(())], "mean")
    assert (comparison.direction, comparison.mean_change_ms, comparison.categories) == ("unknown", None, ())


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
        (run_of(), run_of(step_source="tf.function calls"), ("Step detection", "markers", "tf.function calls")),
        (run_of(), run_of(batches_per_step=4), ("Batches per step", "1", "4")),
        (run_of(), run_of(skip_first=3), ("First steps skipped", "0", "3")),
        (run_of(steps="2..9"), run_of(), ("Selected steps", "2..9", "all")),
        (run_of(steps="2..9"), run_of(steps="2.."), ("Selected steps", "2..9", "2..")),
        (run_of(batch_size=1024), run_of(batch_size=2048), ("Batch size", "1,024", "2,048")),
        (with_host(cpu_model="EPYC"), with_host(cpu_model="Xeon"), ("Host CPU", "EPYC", "Xeon")),
        (with_host(cores=8.0), with_host(cores=1.5), ("Host cores", "8", "1.5")),
        (run_of([2e6] * 50), run_of([0.5] * 50), ("Step time", "2000000 ms", "0.500 ms")),
        (run_of(doubt="clocks may disagree"), run_of(), ("Soundness", "clocks may disagree", "sound")),
    ],
)
def test_what_makes_the_ratio_misleading_is_unfair(before: RunSummary, after: RunSummary, expected: Change) -> None:
    assert shown(before, after) == [(*expected, True)]


HALF_PRECISION = [with_host(half_precision_percent=percent) for percent in (0.0, 80.0)]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (*HALF_PRECISION, ("16-bit compute", "0.0%", "80.0%")),
        (run_of(STEADY), run_of(STEADY[:25]), ("Whole steps", "50", "25")),
        (run_of(STEADY[:12]), run_of(STEADY[:9]), ("Whole steps", "12", "9")),
        (run_of(), run_of(step_confidence="low"), ("Confidence of step detection", "high", "low")),
        (run_of(tfperf_version="0.1"), run_of(tfperf_version="0.2"), ("tfperf", "0.1", "0.2")),
        (run_of(step_kind="step"), run_of(), ("Kind of step", "step", "train")),
        (run_of(tensorflow_version="2.20"), run_of(tensorflow_version="2.21"), ("TensorFlow", "2.20", "2.21")),
    ],
)
def test_what_one_should_know_is_not_unfair(before: RunSummary, after: RunSummary, expected: Change) -> None:
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
    assert [(row[0], row[3]) for row in rows] == [("Device model", True), ("Confidence of step detection", False)]
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
