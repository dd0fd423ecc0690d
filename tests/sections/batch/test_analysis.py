"""The batch size of a host and of several, and how many batches a step takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import event, plane, results_of, space, trace_of
from places import SHARED
from sections.batch.jobs import STEPS, allocations, batch_of, fetches, gpu, job, ops, steps

import tfperf
from tfperf.formats.wire.capture_plane import CAPTURE_PLANE
from tfperf.sections.batch.analysis import Batch
from tfperf.trace.read import read_host

TRACES = SHARED / "traces"
needs_traces = pytest.mark.skipif(not TRACES.is_dir(), reason="real profiles lie beside the repository, not in it")


def test_a_step_of_one_batch(tmp_path: Path) -> None:
    batch = batch_of(tmp_path, job(steps(), fetches("[32,64] [32]")))
    assert (batch.batch.size, batch.replicas, batch.batches_per_step) == (32, 1, 1)


def test_several_batches_in_a_step(tmp_path: Path) -> None:
    """`steps_per_execution`, or gradients of several batches that are applied together."""
    batch = batch_of(tmp_path, job(steps(), fetches("[32,64] [32]", per_step=4)))
    assert (batch.batch.size, batch.batches_per_step) == (32, 4)


def test_without_steps_nothing_is_concluded(tmp_path: Path) -> None:
    batch = batch_of(tmp_path, job([event("MatMul:MatMul", 0, 10)]))
    assert (batch.has_steps, batch.batch.size) == (False, None)
    assert "without steps" in batch.batch.reason


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
    return fetches("[32,64] [32]", "Root::Prefetch::Generator", id=id)


def test_each_replica_asks_a_pipeline_of_its_own(tmp_path: Path) -> None:
    batch = batch_of(tmp_path, job(steps(), feeding(10), feeding(20), replica(1)), gpu(0), gpu(1))
    assert (batch.batch.size, batch.batch.per_replica, batch.replicas, batch.batches_per_step) == (64, 32, 2, 1)


def test_pipelines_tell_of_replicas_that_names_hide(tmp_path: Path) -> None:
    batch = batch_of(tmp_path, job(steps(), feeding(10), feeding(20)), gpu(0), gpu(1))
    assert (batch.batch.size, batch.replicas) == (64, 2)


@pytest.mark.parametrize(
    ("planes", "words"),
    [
        ((job(steps(), feeding(10), replica(3)),), "some left no events (names of ops tell of replica_3)"),
        ((job(steps(), fetches("[32,64] [32]")), gpu(0), gpu(1)), "2 devices took part"),
        ((job(steps(), feeding(10), feeding(20), feeding(30), replica(1)),), "3 pipelines feed devices"),
        ((job(steps(), feeding(10), feeding(20), replica(1)), gpu(0), gpu(1), gpu(2)), "3 devices took part"),
    ],
)
def test_replicas_that_do_not_add_up_are_unknown(tmp_path: Path, planes: Any, words: str) -> None:
    batch = batch_of(tmp_path, *planes)
    assert (batch.batch.size, batch.batch.per_replica, batch.replicas) == (None, 32, None)
    assert words in batch.batch.reason


def test_two_pipelines_of_different_batches_disagree(tmp_path: Path) -> None:
    """A model that reads two data sets in each step."""
    batch = batch_of(tmp_path, job(steps(), fetches("[32,64] [32]"), fetches("[8,64] [8]", id=50)))
    assert batch.batch.size is None
    assert "disagrees" in batch.batch.reason


# --- what a capture of tfperf adds ---


def stated(**facts: int) -> Any:
    return plane(CAPTURE_PLANE, stats=facts)


def test_a_capture_states_what_keras_was_told(tmp_path: Path) -> None:
    batch = batch_of(tmp_path, job(steps()), stated(batch_size=40, steps_per_execution=1))
    assert (batch.batch.size, batch.batch.confidence, batch.batches_per_step) == (40, "high", 1)


def test_a_capture_states_replicas_on_all_workers(tmp_path: Path) -> None:
    batch = batch_of(tmp_path, job(steps()), stated(batch_size=64, replicas=4, local_replicas=2))
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
    host = [job(steps(), fetches("[32,64] [32]"))]
    batch = run_of(tmp_path, host, host)
    assert (batch.size, batch.per_replica, batch.replicas, batch.examples_per_step) == (64, 32, 2, 64)


def test_an_unknown_host_makes_the_sum_unknown(tmp_path: Path) -> None:
    batch = run_of(tmp_path, [job(steps(), fetches("[32,64] [32]"))], [job(steps())])
    assert (batch.size, batch.examples_per_step, batch.confidence) == (None, None, "none")
    assert batch.reason.startswith("host ")


def test_a_host_without_steps_does_not_count(tmp_path: Path) -> None:
    batch = run_of(tmp_path, [job(steps(), fetches("[32,64] [32]"))], [job([event("MatMul:MatMul", 0, 10)])])
    assert batch.size == 32


def test_hosts_that_take_other_numbers_of_batches_have_no_rate(tmp_path: Path) -> None:
    batch = run_of(
        tmp_path, [job(steps(), fetches("[32,64] [32]"))], [job(steps(), fetches("[32,64] [32]", per_step=2))]
    )
    assert (batch.size, batch.batches_per_step, batch.examples_per_step) == (64, None, None)


# --- real profiles ---


@needs_traces
@pytest.mark.parametrize("folder", sorted(TRACES.glob("keras_rtx5000/*")), ids=lambda folder: folder.name)
def test_real_keras_on_a_gpu(folder: Path) -> None:
    batch = tfperf.load(folder, sections=["batch"])["batch"]
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
    batch = tfperf.load(TRACES / name, sections=["batch"])["batch"]
    assert (batch.size, batch.batches_per_step) == (size, batches)


@needs_traces
def test_of_eight_replicas_of_which_two_were_recorded_only_one_is_known() -> None:
    batch = tfperf.load(TRACES / "gpu_8xV100_worker", sections=["batch"])["batch"]
    assert batch.per_replica == 4
    assert "replica_1, replica_4, replica_6" in batch.reason


def test_hostile_shapes_are_no_batch(tmp_path: Path) -> None:
    odd = allocations(("a/MatMul", "[" + "9" * 400 + "]"), ("b/MatMul", "[-3,4]"), ("c/MatMul", "[0,4]"), ("d", "]]["))
    path = tmp_path / "odd.xplane.pb"
    path.write_bytes(space(job(steps(), ops("a/MatMul:MatMul", "b/MatMul:MatMul", "c/MatMul:MatMul"), odd)))
    assert read_host(path).event_count > STEPS
    assert tfperf.load(path)["batch"].size is None
