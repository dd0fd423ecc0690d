"""Which activity an event stands for, by name and by stat, in both attributions."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import event, host, line, plane, trace_of

from tfperf.trace.activities import Activity, Attribution, device_codes, host_codes, tpu_activity


@pytest.mark.parametrize(
    ("name", "corrected", "tensorflow"),
    [
        ("IteratorGetNextOp::DoCompute", Activity.WAIT_INPUT, Activity.WAIT_INPUT),
        ("IteratorGetNext:_Send", Activity.STAGING, Activity.WAIT_INPUT),
        ("x/MatMul:MatMul", Activity.HOST_COMPUTE, Activity.HOST_COMPUTE),
        ("tf.function-graph_building", Activity.COMPILE, Activity.HOST_COMPUTE),
        ("ExecutorState::Process", Activity.KERNEL_LAUNCH, Activity.KERNEL_LAUNCH),
        ("$model.py:7 call", Activity.NONE, Activity.HOST_COMPUTE),
        ("EagerExecute: Add", Activity.NONE, Activity.NONE),
        ("MemcpyHToD", Activity.HOST_TO_DEVICE, Activity.HOST_TO_DEVICE),
    ],
)
def test_names_of_host_events(name: str, corrected: Activity, tensorflow: Activity, tmp_path: Path) -> None:
    trace = trace_of(tmp_path, host(event(name, 0, 1)))
    both: tuple[Attribution, ...] = ("corrected", "tensorflow")
    assert [host_codes(trace, how, has_device=True)[0] for how in both] == [corrected, tensorflow]


def test_without_a_device_nothing_is_launched(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, host(event("ExecutorState::Process", 0, 1)))
    assert host_codes(trace, "corrected", has_device=False)[0] == Activity.HOST_COMPUTE


@pytest.mark.parametrize(
    ("name", "stats", "activity"),
    [
        ("sgemm_128x64", {}, Activity.COMPUTE_32),
        ("hgemm_half", {}, Activity.COMPUTE_16),
        ("sgemm", {"shape": "(half[2,3])"}, Activity.COMPUTE_32),
        ("fusion_3", {"shape": "(half[2,3];int32[])"}, Activity.COMPUTE_16),
        ("fusion_3", {"shape": "(int32[])"}, Activity.COMPUTE_32),
        ("void Copy<int>(int*)", {}, Activity.COMPUTE_32),
        ("void Copy<int>(int*)", {"shape": "(half[2])"}, Activity.COMPUTE_16),
        ("fusion_3", {"shape": ""}, Activity.COMPUTE_UNKNOWN),
        ("fusion_3", {}, Activity.COMPUTE_UNKNOWN),
        ("ncclKernel_AllReduce", {}, Activity.COLLECTIVES),
        ("MemcpyD2H", {}, Activity.DEVICE_TO_HOST),
        ("copy", {"memcpy_details": "kind:Unknown size:8"}, Activity.COMPUTE_UNKNOWN),
        ("copy", {"memcpy_details": "kind:HtoD size:8"}, Activity.HOST_TO_DEVICE),
    ],
)
def test_events_of_a_gpu(name: str, stats: dict[str, str], activity: Activity, tmp_path: Path) -> None:
    gpu = plane("/device:GPU:0", line("Stream #1", event(name, 0, 1, **stats)))
    assert device_codes(trace_of(tmp_path, gpu), "corrected").tolist() == [activity]


@pytest.mark.parametrize(
    ("name", "shape", "activity"),
    [
        ("Philox<half>", "(int32[3])", Activity.COMPUTE_32),
        ("sgemm", "(half[2,3])", Activity.COMPUTE_16),
        ("fusion_3", "", Activity.COMPUTE_32),
        ("gemm_fp16", "", Activity.COMPUTE_16),
    ],
)
def test_to_tensorflow_inputs_decide_before_the_name(name: str, shape: str, activity: Activity, tmp_path: Path) -> None:
    """What it knows nothing of is 32 bit."""
    gpu = plane("/device:GPU:0", line("Stream #1", event(name, 0, 1, shape=shape)))
    assert device_codes(trace_of(tmp_path, gpu), "tensorflow").tolist() == [activity]


def test_ops_of_a_tpu_by_category() -> None:
    named = [tpu_activity(category) for category in ("Infeed", "all-reduce fusion", "convolution")]
    assert named == [Activity.WAIT_INPUT, Activity.COLLECTIVES, Activity.COMPUTE_32]
