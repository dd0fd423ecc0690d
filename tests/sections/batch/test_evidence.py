"""What counts as evidence of a batch size, and what does not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from builders import event, trace_of
from sections.batch.jobs import allocations, batch_of, fetches, gpu, job, ops, steps

from tfperf.sections.batch.analysis import StepWindows, leading_dimension, usual
from tfperf.trace.steps.find_steps import find_steps


def shown(tmp_path: Path, *planes: object) -> list[tuple[str, int, bool]]:
    """Source, examples and clearness of each piece of evidence."""
    found = batch_of(tmp_path, *planes).evidence  # type: ignore[arg-type]
    return [(each.source, each.examples, each.is_clear) for each in found]


@pytest.mark.parametrize(
    ("shapes", "leading"),
    [
        ("[32,28,28,1] [32]", (32, 2)),
        ("[256,16]", (256, 1)),
        ("[32,64] [32] [32,1]", (32, 3)),
        ("[?,28,28,1] [?]", None),
        ("[28,28,1] []", None),  # one image and its label
        ("[32,10] [33]", None),
        ("<unknown>", None),
        ("[32] <unknown>", None),
        ("", None),
        ("nonsense", None),
        ("[99999999999999999999]", None),
    ],
)
def test_parts_of_a_batch_share_their_leading_dimension(shapes: str, leading: tuple[int, int] | None) -> None:
    assert leading_dimension(shapes) == leading


@pytest.mark.parametrize(("counts", "number"), [([1, 1, 1, 0], 1), ([4, 4, 4, 4], 4), ([1, 2, 1, 2], None), ([], None)])
def test_edges_do_not_hide_what_steps_have_in_common(counts: list[int], number: int | None) -> None:
    assert usual(np.array(counts, np.int64)) == number


def test_elements_with_several_parts_are_clear(tmp_path: Path) -> None:
    assert shown(tmp_path, job(steps(), fetches("[32,64] [32]"))) == [("elements", 32, True)]


def test_an_element_with_one_part_may_be_one_example(tmp_path: Path) -> None:
    assert shown(tmp_path, job(steps(), fetches("[256,16]"))) == [("elements", 256, False)]


@pytest.mark.parametrize(
    ("path", "seen"),
    [
        ("Root::Prefetch::BatchV2", True),
        ("Root::Prefetch::ForeverRepeat[0]::MapAndBatch", True),
        ("Root::Prefetch::MemoryCache::MemoryCacheImpl::ParallelBatch", True),
        ("Root::Map::BatchV2", True),
        ("Root::Rebatch::BatchV2", False),
        ("Root::Unbatch::BatchV2", False),
        ("Root::FlatMap[0]::BatchV2", False),
    ],
)
def test_a_batch_stage_counts_if_whole_elements_are_handed_on(tmp_path: Path, path: str, seen: bool) -> None:
    found = shown(tmp_path, job(steps(), fetches(path=path, stage=16)))
    assert found == ([("batch stage", 16, True)] if seen else [])


def test_batches_of_batches_have_two_sizes(tmp_path: Path) -> None:
    """`batch(8).batch(4)`: a loop over four batches of eight, or one batch of 32, or of four."""
    outer = fetches(path="Root::BatchV2", stage=4)
    inner = [
        event("Iterator::Root::BatchV2::BatchV2", 100 * n + 6 + call, 1, id=3, parent_id=2, batch_size=8)
        for n in range(10)
        for call in range(4)
    ]
    batch = batch_of(tmp_path, job(steps(), [*outer, *inner]))
    assert [(each.source, each.examples) for each in batch.evidence] == [("batch stage", 4), ("batch stage", 8)]
    assert batch.batch.size is None


def test_batches_that_are_taken_apart_again_do_not_count(tmp_path: Path) -> None:
    outer = fetches(path="Root::BatchV2", stage=64)
    inner = [
        event("Iterator::Root::BatchV2::Unbatch::BatchV2", 100 * n + 6, 1, id=4, parent_id=3, batch_size=16)
        for n in range(10)
    ]
    assert shown(tmp_path, job(steps(), [*outer, *inner])) == [("batch stage", 64, True)]


def test_a_marker_of_keras_2_says_what_fit_was_given(tmp_path: Path) -> None:
    assert shown(tmp_path, job(steps(batch_size=64))) == [("marker", 64, False)]
    assert shown(tmp_path, job(steps(batch_size="None"))) == [], "of a dataset, fit is given none"


def test_what_a_device_receives_is_input(tmp_path: Path) -> None:
    received = allocations(("SameWorkerRecvDone", "[32,3,8,8]"), ("SameWorkerRecvDone", "[32]"), region="dynamic")
    assert shown(tmp_path, job(steps(), received), gpu()) == [("copied input", 32, True)]


def test_received_parameters_are_no_batch(tmp_path: Path) -> None:
    """Replicas exchange gradients in the same way."""
    received = allocations(("SameWorkerRecvDone", "[32,8]"), ("SameWorkerRecvDone", "[3,3,64,64]"), region="dynamic")
    assert shown(tmp_path, job(steps(), received), gpu()) == []


def test_what_the_host_receives_is_none(tmp_path: Path) -> None:
    received = allocations(("SameWorkerRecvDone", "[32,8]"), region="dynamic", allocator="gpu_host_bfc")
    assert shown(tmp_path, job(steps(), received), gpu()) == []


def test_outputs_of_layers_count_and_gradients_and_scratch_do_not(tmp_path: Path) -> None:
    layers = ops("net/conv/Relu:_FusedConv2D", "net/dense/MatMul:MatMul", "gradient_tape/net/dense/MatMul_1:MatMul")
    outputs = allocations(("net/conv/Relu", "[32,8,8,4]"), ("net/dense/MatMul", "[32,10]"))
    gradient = allocations(("gradient_tape/net/dense/MatMul_1", "[256,10]"))
    scratch = allocations(("net/conv/Relu", "[99999]"), region="temp")
    weights = allocations(("Adam/Mul", "[256,10]"))
    found = shown(tmp_path, job(steps(), layers, outputs, gradient, scratch, weights), gpu())
    assert found == [("op outputs", 32, False)]


def test_another_kind_of_step_says_nothing(tmp_path: Path) -> None:
    """A validation with other batches after the training."""
    training = [*steps(), *(event("gradient_tape/x:MatMul", 100 * n + 50, 1) for n in range(10))]
    evaluation = [event("test", 1000 + 100 * n, 100, step_num=n) for n in range(4)]
    inputs = fetches("[32,64] [32]")
    others = [
        each
        for n in range(4)
        for each in (
            event("IteratorGetNextOp::DoCompute", 1005 + 100 * n, 8),
            event("Iterator::Root", 1005 + 100 * n, 8, id=7, shapes="[128,64] [128]"),
        )
    ]
    assert shown(tmp_path, job([*training, *evaluation], [*inputs, *others])) == [("elements", 32, True)]


def test_input_that_comes_just_before_a_step_belongs_to_it(tmp_path: Path) -> None:
    """Up to a tenth of the step, into the time that no step has."""
    trace = trace_of(tmp_path, job([event("train", 1000, 100, step_num=0)]))
    windows = StepWindows.of(find_steps(trace))
    times = np.array([980, 995, 1050, 1101]) * 1_000_000 - (1000 * 1_000_000 - int(trace.start_ps[0]))
    assert windows.hold(times).tolist() == [False, True, True, False]
