"""The batch size of a host and of several: what shows it, what follows from that, and how many batches a step takes."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import Plane, event, iterator_call, plane, results_of, space, trace_of
from msgspec.structs import replace
from places import SHARED
from real_runs import analysis_of
from sections.batch.jobs import STEPS, allocations, batch_of, fetches, gpu, job, ops, steps

import tfperf
from tfperf.formats.wire.capture_plane import CAPTURE_PLANE
from tfperf.sections.batch.analysis import (
    Batch,
    Conclusion,
    Evidence,
    OpOutputs,
    Replicas,
    StepWindows,
    Weighing,
    leading_dimension,
    usual,
)
from tfperf.trace.read import read_host
from tfperf.trace.steps.find_steps import find_steps

TRACES = SHARED / "traces"
BATCH = "[32,64] [32]"
needs_traces = pytest.mark.skipif(not TRACES.is_dir(), reason="real profiles lie beside the repository, not in it")


def test_several_batches_in_a_step(tmp_path: Path) -> None:
    """`steps_per_execution`, or gradients of several batches that are applied together."""
    batch = batch_of(tmp_path, job(steps(), fetches(BATCH, per_step=4)))
    assert (batch.batch.size, batch.batches_per_step) == (32, 4)


def test_without_steps_nothing_is_concluded(tmp_path: Path) -> None:
    batch = batch_of(tmp_path, job([event("MatMul:MatMul", 0, 10)]))
    assert (batch.has_steps, batch.batch.size) == (False, None)
    assert "has no steps" in batch.batch.reason


def test_input_from_elsewhere_is_one_batch_if_each_layer_runs_once(tmp_path: Path) -> None:
    """`train_on_batch` with arrays."""
    layers = ops("net/conv/Relu:_FusedConv2D", "net/dense/MatMul:MatMul")
    outputs = allocations(("net/conv/Relu", "[32,8,8,4]"), ("net/dense/MatMul", "[32,10]"), allocator="cpu")
    batch = batch_of(tmp_path, job(steps(), layers, outputs))
    assert (batch.batch.size, batch.batch.confidence, batch.batches_per_step) == (32, "low", 1)
    twice = batch_of(tmp_path, job(steps(), layers, outputs, outputs))
    assert twice.batches_per_step is None, "two batches, or a layer that is used twice"


# --- replicas ---
def replica(number: int) -> list[Any]:
    return ops(f"replica_{number}/dense/MatMul:MatMul")


def feeding(id: int) -> list[Any]:
    """The pipeline that moves elements to the device of a replica."""
    return fetches(BATCH, "Root::Prefetch::Generator", id=id)


def test_each_replica_asks_a_pipeline_of_its_own(tmp_path: Path) -> None:
    batch = batch_of(tmp_path, job(steps(), feeding(10), feeding(20), replica(1)), gpu(0), gpu(1))
    assert (batch.batch.size, batch.batch.per_replica, batch.replicas, batch.batches_per_step) == (64, 32, 2, 1)

    hidden = batch_of(tmp_path, job(steps(), feeding(10), feeding(20)), gpu(0), gpu(1))
    assert (hidden.batch.size, hidden.replicas) == (64, 2), "pipelines tell of replicas that names hide"


@pytest.mark.parametrize(
    ("planes", "words"),
    [
        ((job(steps(), feeding(10), replica(3)),), "some replicas have no events (op names include replica_3)"),
        ((job(steps(), fetches(BATCH)), gpu(0), gpu(1)), "2 devices are active"),
        ((job(steps(), feeding(10), feeding(20), feeding(30), replica(1)),), "3 pipelines feed devices"),
        ((job(steps(), feeding(10), feeding(20), replica(1)), gpu(0), gpu(1), gpu(2)), "3 devices are active"),
    ],
)
def test_replicas_that_do_not_add_up_are_unknown(tmp_path: Path, planes: Any, words: str) -> None:
    batch = batch_of(tmp_path, *planes)
    assert (batch.batch.size, batch.batch.per_replica, batch.replicas) == (None, 32, None)
    assert words in batch.batch.reason


def test_two_pipelines_of_different_batches_disagree(tmp_path: Path) -> None:
    """A model that reads two data sets in each step."""
    batch = batch_of(tmp_path, job(steps(), fetches(BATCH), fetches("[8,64] [8]", id=50)))
    assert batch.batch.size is None
    assert "disagrees" in batch.batch.reason


# --- what a capture of tfperf adds ---
def test_a_capture_states_what_keras_was_told_and_replicas_on_all_workers(tmp_path: Path) -> None:
    stated = plane(CAPTURE_PLANE, stats={"batch_size": 40, "steps_per_execution": 1})
    batch = batch_of(tmp_path, job(steps()), stated)
    assert (batch.batch.size, batch.batch.confidence, batch.batches_per_step) == (40, "high", 1)
    stated = plane(CAPTURE_PLANE, stats={"batch_size": 64, "replicas": 4, "local_replicas": 2})
    batch = batch_of(tmp_path, job(steps()), stated)
    assert (batch.batch.size, batch.batch.per_replica, batch.replicas) == (32, 16, 2)


# --- several hosts ---
def run_of(tmp_path: Path, *hosts: Any) -> Batch:
    traces = []
    for number, planes in enumerate(hosts):
        folder = tmp_path / f"host{number}"
        folder.mkdir()
        traces.append(trace_of(folder, *planes))
    batch: Batch = results_of(*traces, sections=["batch"])["batch"]
    return batch


def test_batches_of_hosts_add_up(tmp_path: Path) -> None:
    host = [job(steps(), fetches(BATCH))]
    batch = run_of(tmp_path, host, host)
    assert (batch.size, batch.per_replica, batch.replicas, batch.examples_per_step) == (64, 32, 2, 64)


def test_an_unknown_host_makes_the_sum_unknown(tmp_path: Path) -> None:
    batch = run_of(tmp_path, [job(steps(), fetches(BATCH))], [job(steps())])
    assert (batch.size, batch.examples_per_step, batch.confidence) == (None, None, "none")
    assert batch.reason.startswith("host ")


def test_a_host_without_steps_does_not_count(tmp_path: Path) -> None:
    batch = run_of(tmp_path, [job(steps(), fetches(BATCH))], [job([event("MatMul:MatMul", 0, 10)])])
    assert batch.size == 32


def test_hosts_that_take_other_numbers_of_batches_have_no_rate(tmp_path: Path) -> None:
    batch = run_of(tmp_path, [job(steps(), fetches(BATCH))], [job(steps(), fetches(BATCH, per_step=2))])
    assert (batch.size, batch.batches_per_step, batch.examples_per_step) == (64, None, None)


# --- real profiles ---
@needs_traces
@pytest.mark.parametrize("folder", sorted(TRACES.glob("keras_rtx5000/*")), ids=lambda folder: folder.name)
def test_real_keras_on_a_gpu(folder: Path) -> None:
    batch = analysis_of(folder)["batch"]
    assert (batch.size, batch.confidence) == (int(folder.name.removeprefix("gpu_bs").partition("-")[0]), "high")


@needs_traces
@pytest.mark.parametrize(
    ("name", "size", "batches"),
    [
        ("keras_cpu_tf24/prefetch_bs8_20210203-161416", 8, 1),
        ("keras_cpu_tf24/prefetch_bs4096_20210203-230112", 4096, 1),
        ("steps_tf221/spe4", 32, 4),
        ("steps_tf221/accum", 32, 4),
        ("steps_tf221/val", 32, 1),
        ("steps_tf221/numpybatch", None, 1),
        ("cpu_keras3/slow_map", 32, 1),
        ("keras_t4/2022_11_04_21_26_12", 256, 1),
        ("multi_host/mirrored_2cpu/inside", 64, 1),
        ("multi_host/keras_healthy/inside", 32, 1),
        ("multi_host/loop_random_4/inside", 128, 1),
        ("multi_host/jax_2/inside", None, None),
        ("gpu_8xV100_worker", None, 1),
    ],
)
def test_real_jobs(name: str, size: int | None, batches: int | None) -> None:
    batch = analysis_of(TRACES / name)["batch"]
    assert (batch.size, batch.batches_per_step) == (size, batches)
    if name == "gpu_8xV100_worker":
        assert batch.per_replica == 4, "two of eight replicas were recorded"
        assert "replica_1, replica_4, replica_6" in batch.reason


def test_hostile_shapes_are_no_batch(tmp_path: Path) -> None:
    odd = allocations(("a/MatMul", "[" + "9" * 400 + "]"), ("b/MatMul", "[-3,4]"), ("c/MatMul", "[0,4]"), ("d", "]]["))
    path = tmp_path / "odd.xplane.pb"
    path.write_bytes(space(job(steps(), ops("a/MatMul:MatMul", "b/MatMul:MatMul", "c/MatMul:MatMul"), odd)))
    assert read_host(path).event_count > STEPS
    assert tfperf.load(path)["batch"].size is None


def shown(tmp_path: Path, *planes: Plane) -> list[tuple[str, int, bool]]:
    """Source, examples and clearness of each piece of evidence."""
    return [(each.source, each.examples, each.is_clear) for each in batch_of(tmp_path, *planes).evidence]


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


RECV, RECEIVED = "SameWorkerRecvDone", partial(allocations, region="dynamic")


@pytest.mark.parametrize(
    ("planes", "found"),
    [
        pytest.param((job(steps(), fetches(BATCH)),), [("elements", 32, True)], id="elements with several parts"),
        # It may be one example.
        pytest.param((job(steps(), fetches("[256,16]")),), [("elements", 256, False)], id="an element with one part"),
        pytest.param((job(steps(batch_size=64)),), [("marker", 64, False)], id="what fit was given, in Keras 2"),
        pytest.param((job(steps(batch_size="None")),), [], id="of a dataset, fit is given none"),
        pytest.param(
            (job(steps(), RECEIVED((RECV, "[32,3,8,8]"), (RECV, "[32]"))), gpu()),
            [("copied input", 32, True)],
            id="what a device receives",
        ),
        # Replicas exchange gradients in the same way.
        pytest.param(
            (job(steps(), RECEIVED((RECV, "[32,8]"), (RECV, "[3,3,64,64]"))), gpu()), [], id="received parameters"
        ),
        pytest.param(
            (job(steps(), RECEIVED((RECV, "[32,8]"), allocator="gpu_host_bfc")), gpu()), [], id="the host receives"
        ),
    ],
)
def test_what_shows_it(tmp_path: Path, planes: tuple[Plane, ...], found: list[tuple[str, int, bool]]) -> None:
    assert shown(tmp_path, *planes) == found


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
    starts = [100 * n + 6 + call for n in range(10) for call in range(4)]
    inner = [iterator_call("Root::BatchV2::BatchV2", start, 1, 3, 2, batch_size=8) for start in starts]
    batch = batch_of(tmp_path, job(steps(), [*outer, *inner]))
    assert [(each.source, each.examples) for each in batch.evidence] == [("batch stage", 4), ("batch stage", 8)]
    assert batch.batch.size is None


def test_batches_that_are_taken_apart_again_do_not_count(tmp_path: Path) -> None:
    outer = fetches(path="Root::BatchV2", stage=64)
    path = "Root::BatchV2::Unbatch::BatchV2"
    inner = [iterator_call(path, 100 * n + 6, 1, 4, 3, batch_size=16) for n in range(10)]
    assert shown(tmp_path, job(steps(), [*outer, *inner])) == [("batch stage", 64, True)]


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
    inputs = fetches(BATCH)
    others = [event("IteratorGetNextOp::DoCompute", 1005 + 100 * n, 8) for n in range(4)]
    others += [iterator_call("Root", 1005 + 100 * n, 8, 7, shapes="[128,64] [128]") for n in range(4)]
    assert shown(tmp_path, job([*training, *evaluation], [*inputs, *others])) == [("elements", 32, True)]


def test_input_that_comes_just_before_a_step_belongs_to_it(tmp_path: Path) -> None:
    """Up to a tenth of the step, into the time that no step has."""
    trace = trace_of(tmp_path, job([event("train", 1000, 100, step_num=0)]))
    windows = StepWindows.of(find_steps(trace))
    times = np.array([980, 995, 1050, 1101]) * 1_000_000 - (1000 * 1_000_000 - int(trace.start_ps[0]))
    assert windows.hold(times).tolist() == [False, True, True, False]


ONE = Replicas(1, 1)
SILENT = OpOutputs({}, None, frozenset())
STAGE = Evidence(source="batch stage", examples=32, text="stage BatchV2 of the pipeline", is_clear=True)
BEHIND_MAP = replace(STAGE, may_change=True)
ELEMENTS = Evidence(source="elements", examples=32, text="elements of shape [32,64] [32]", is_clear=True)
SINGLE = Evidence(source="elements", examples=32, text="elements of shape [32,64]")
MARKER = Evidence(source="marker", examples=32, text="batch_size of the step marker", is_of_all=True)
CAPTURE = Evidence(source="capture", examples=32, text="batch size passed to Keras", is_of_all=True)


def layers(*outputs: tuple[int, int]) -> OpOutputs:
    """Layers with these leading dimensions and ranks."""
    return OpOutputs({f"layer{number}": output for number, output in enumerate(outputs)}, 1, frozenset())


def conclude(*evidence: Evidence, ops: OpOutputs = SILENT, replicas: Replicas = ONE) -> Conclusion:
    return Weighing(evidence, ops, replicas).conclusion()


@pytest.mark.parametrize(
    ("evidence", "ops", "confidence"),
    [
        ([STAGE], SILENT, "high"),
        ([BEHIND_MAP], SILENT, "medium"),
        ([BEHIND_MAP], layers((32, 2)), "high"),
        ([BEHIND_MAP, MARKER], SILENT, "high"),
        ([ELEMENTS], SILENT, "medium"),
        ([ELEMENTS, STAGE], SILENT, "high"),
        ([CAPTURE], SILENT, "high"),
        ([MARKER], SILENT, "medium"),
        ([SINGLE], layers((32, 4), (32, 2)), "medium"),
        ([], layers((32, 4), (32, 2)), "low"),
    ],
)
def test_it_is_32_and_so_sure(evidence: list[Evidence], ops: OpOutputs, confidence: str) -> None:
    found = conclude(*evidence, ops=ops)
    assert (found.size, found.per_replica, found.confidence, found.reason) == (32, 32, confidence, "")


@pytest.mark.parametrize(
    ("evidence", "ops", "words"),
    [
        ([], SILENT, "no shape of the step's input"),
        ([SINGLE], SILENT, "elements have one part"),
        ([], layers((32, 4)), "only op outputs"),
        ([], layers((32, 4), (64, 2)), "only op outputs"),
        ([], layers((1536, 2), (1536, 2), (1536, 2)), "only op outputs"),  # batches times words, say
        ([SINGLE], layers((64, 4), (64, 2)), "disagrees"),
        ([STAGE, Evidence(source="elements", examples=16, text="b", is_clear=True)], SILENT, "disagrees"),
        ([STAGE], layers((64, 4), (64, 2), (64, 1)), "disagrees"),
        ([STAGE, Evidence(source="capture", examples=40, text="b", is_of_all=True)], SILENT, "disagrees"),
        ([STAGE, Evidence(source="marker", examples=40, text="b", is_of_all=True)], SILENT, "disagrees"),
        ([MARKER], layers((64, 4), (64, 2), (64, 1)), "disagrees"),
    ],
)
def test_it_is_unknown_and_why(evidence: list[Evidence], ops: OpOutputs, words: str) -> None:
    found = conclude(*evidence, ops=ops)
    assert (found.size, found.per_replica, found.confidence) == (None, None, "none")
    assert words in found.reason


def test_what_a_map_made_counts_and_not_what_it_got() -> None:
    """It joined three versions of each batch."""
    found = conclude(BEHIND_MAP, replace(ELEMENTS, examples=96))
    assert (found.size, found.confidence) == (96, "medium")


def test_candidates_that_disagree_are_all_named() -> None:
    other = Evidence(source="copied input", examples=16, text="a device got [16,8]", is_clear=True)
    assert conclude(STAGE, other).reason == (
        "the evidence disagrees (32: stage BatchV2 of the pipeline; 16: a device got [16,8])"
    )


def test_layers_that_fold_other_dimensions_in_do_not_contradict() -> None:
    """Of a transformer, some work on batches times words."""
    assert conclude(STAGE, ops=layers((32, 3), (1536, 2), (1536, 2), (1536, 2))).size == 32


UNKNOWN = Replicas(None, None, "some left no events")


@pytest.mark.parametrize(
    ("evidence", "replicas", "expected", "reason"),
    [
        pytest.param([ELEMENTS], Replicas(4, 4), (128, 32, "medium"), "", id="replicas add up"),
        pytest.param([CAPTURE], Replicas(2, 8), (8, 4, "high"), "", id="two of eight replicas are here"),
        # Keras 2 on two hosts: each takes half of the batch that fit was given.
        pytest.param(
            [replace(ELEMENTS, examples=16), MARKER], ONE, (16, 16, "medium"), "", id="a marker of all workers"
        ),
        pytest.param(
            *([ELEMENTS], UNKNOWN, (None, 32, "none")),
            "it is 32 per replica, but the number of replicas is unknown: some left no events",
            id="only that of one replica is known",
        ),
        pytest.param([MARKER], UNKNOWN, (32, None, "medium"), "", id="what Keras was told needs no replicas"),
        pytest.param(
            [MARKER], Replicas(3, 3), (None, None, "none"), "not a multiple", id="replicas cannot share evenly"
        ),
    ],
)
def test_replicas_share_the_batch(
    evidence: list[Evidence], replicas: Replicas, expected: tuple[Any, ...], reason: str
) -> None:
    found = conclude(*evidence, replicas=replicas)
    assert (found.size, found.per_replica, found.confidence) == expected
    assert reason in found.reason
    assert bool(reason) == bool(found.reason)
