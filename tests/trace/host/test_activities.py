"""Which activity an event stands for, by name and by stat, in both attributions; when activities happen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from builders import PS_PER_US, Event, event, gpu, host, line, plane, programs, read_back, ref, space, trace_of
from hlo_builders import BF16, F32, S32, computation, instruction, program, shape

from tfperf.base.arrays import Intervals
from tfperf.trace.host.activities import (
    Activity,
    ActivityTimes,
    Attribution,
    busy_times,
    corrected_times,
    device_codes,
    host_codes,
    tpu_activity,
    tpu_codes,
    tpu_times,
    tracing_calls,
    xla_compilations,
)
from tfperf.trace.steps.step_calls import find_calls
from tfperf.trace.steps.steps import label_kinds

US = 1_000_000


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
        ("CopyHostToDevice", {}, Activity.HOST_TO_DEVICE),
        ("CopyDeviceToHost", {}, Activity.DEVICE_TO_HOST),
        ("CopyDeviceToDevice", {"memcpy_details": "kind:Unknown size:8"}, Activity.DEVICE_TO_DEVICE),
    ],
)
def test_events_of_a_gpu(name: str, stats: dict[str, str], activity: Activity, tmp_path: Path) -> None:
    assert device_codes(trace_of(tmp_path, gpu(event(name, 0, 1, **stats))), "corrected").tolist() == [activity]


FUSED = computation(
    "fused", instruction(1, "wide", "parameter", shape(F32, 9)), instruction(2, "x", "convert", shape(BF16, 9), [1]),
    instruction(3, "y", "dot", shape(F32, 9), [2, 2]), number=2, root=3,
)  # fmt: skip
OPS = (
    instruction(1, "f32", "parameter", shape(F32, 64)),
    instruction(2, "bf16", "parameter", shape(BF16, 9)),
    instruction(3, "s32", "parameter", shape(S32, 9)),
    instruction(4, "product", "fusion", shape(F32, 9), [1], [2]),
    instruction(5, "update", "fusion", shape(F32, 64), [1, 2]),
    instruction(6, "norm", "multiply", shape(BF16, 9), [2]),
    instruction(7, "random", "fusion", shape(BF16, 9), [3]),
    instruction(8, "index", "add", shape(S32, 9), [3, 3]),
    instruction(9, "token", "after-all", shape(17)),
)
PROGRAM = programs(id_7=program(computation("main", *OPS), FUSED))


@pytest.mark.parametrize(
    ("kernel", "hlo_op", "activity"),
    [
        ("gemm_fusion_dot", "product", Activity.COMPUTE_16),  # a product of what it converts to bf16
        ("loop_add_fusion", "update", Activity.COMPUTE_32),  # most numbers that it reads
        ("loop_multiply_fusion", "norm", Activity.COMPUTE_16),
        ("wrapped_rng", "random", Activity.COMPUTE_16),
        ("loop_add_fusion", "index", Activity.COMPUTE_32),
        ("loop_add_fusion", "token", Activity.COMPUTE_UNKNOWN),
        ("loop_add_fusion", "other", Activity.COMPUTE_UNKNOWN),
        ("sgemm", "product", Activity.COMPUTE_32),  # the name is that of what ran
    ],
)
def test_the_program_shows_the_numbers_that_a_name_does_not(
    kernel: str, hlo_op: str, activity: Activity, tmp_path: Path
) -> None:
    ran = event(kernel, 0, 1, hlo_op=ref(f"while::{hlo_op}"), program_id=7)
    trace = read_back(tmp_path, space(gpu(ran), PROGRAM), stats=frozenset())  # whatever the sections read
    assert device_codes(trace, "corrected")[trace.device_rows].tolist() == [activity]


@pytest.mark.parametrize(
    ("name", "inputs", "activity"),
    [
        ("Philox<half>", "(int32[3])", Activity.COMPUTE_32),
        ("sgemm", "(half[2,3])", Activity.COMPUTE_16),
        ("fusion_3", "", Activity.COMPUTE_32),
        ("gemm_fp16", "", Activity.COMPUTE_16),
    ],
)
def test_tensorflow_reads_inputs_before_the_name(name: str, inputs: str, activity: Activity, tmp_path: Path) -> None:
    """What it knows nothing of is 32 bit."""
    trace = trace_of(tmp_path, gpu(event(name, 0, 1, shape=inputs)))
    assert device_codes(trace, "tensorflow").tolist() == [activity]


def test_ops_of_a_tpu_by_category() -> None:
    named = [tpu_activity(category) for category in ("Infeed", "all-reduce fusion", "convolution")]
    assert named == [Activity.WAIT_INPUT, Activity.COLLECTIVES, Activity.COMPUTE_32]


def busy(times: ActivityTimes) -> dict[str, list[tuple[int, int]]]:
    """Activity -> start and end of its intervals in microseconds."""
    return {
        kind.name: list(zip((sets.start // US).tolist(), (sets.end // US).tolist(), strict=True))
        for kind, sets in times.busy.items()
    }


def test_activities_in_real_time_are_united_over_threads(tmp_path: Path) -> None:
    threads = line("a", event("x:MatMul", 0, 10), id=1), line("b", event("y:Add", 5, 10), id=2)
    gpu = plane("/device:GPU:0", line("Stream #1", event("k", 8, 4), event("MemcpyH2D", 20, 5)))
    trace = trace_of(tmp_path, plane("/host:CPU", *threads), gpu)
    window = np.array([0]), np.array([30 * US])
    expected = {"HOST_COMPUTE": [(0, 15)], "COMPUTE_UNKNOWN": [(8, 12)], "HOST_TO_DEVICE": [(20, 25)]}
    assert busy(corrected_times(busy_times(trace), *window)) == expected


def test_where_no_op_is_an_infeed_waiting_of_the_host_explains_idle_time(tmp_path: Path) -> None:
    core = plane("/device:TPU:0", line("XLA Ops", event("fusion", 10, 5, hlo_category="loop fusion")))
    trace = trace_of(tmp_path, host(event("IteratorGetNextOp::DoCompute", 0, 9)), core)
    times = tpu_times(trace, 1, tpu_codes(trace), np.array([0]), np.array([30 * US]))
    assert busy(times) == {"COMPUTE_32": [(10, 15)], "WAIT_WHILE_IDLE": [(0, 9)]}


COPY = "%copy-done = {0} copy-done(({0}, {1}, u32[]) %copy-start)"
HBM, HOST = "f32[8]{0}", "f32[8]{0:S(5)}"


def test_a_core_that_awaits_copies_does_not_compute(tmp_path: Path) -> None:
    ops = [(COPY.format(HBM, HOST), "copy-done"), (COPY.format(HOST, HBM), "copy-done"), ("copy-done.9", "copy-done")]
    ops += [("all-gather-done", "all-gather-done"), ("fusion", "loop fusion")]
    events = [event(name, 10 * place, 10) for place, (name, _) in enumerate(ops)]
    core = plane(
        "/device:TPU:0",
        line("XLA Ops", *events),
        name_stats={name: {"hlo_category": category} for name, category in ops},
    )
    trace = trace_of(tmp_path, core)
    times = tpu_times(trace, 0, tpu_codes(trace), np.array([0]), np.array([50 * US]))
    assert busy(times) == {
        "HOST_TO_DEVICE": [(0, 10)],
        "DEVICE_TO_HOST": [(10, 20)],
        "DEVICE_TO_DEVICE": [(20, 30)],
        "COLLECTIVES": [(30, 40)],
        "COMPUTE_32": [(40, 50)],
    }


def test_cores_wait_for_each_other_at_barriers(tmp_path: Path) -> None:
    marks = line("XLA TraceMe", event("barrier-cores", 0, 9), event("dependency-wait", 9, 1), id=2)
    core = plane("/device:TPU:0", line("XLA Ops", event("all-reduce", 10, 5, hlo_category="all-reduce"), id=1), marks)
    trace = trace_of(tmp_path, core)
    times = tpu_times(trace, 0, tpu_codes(trace), np.array([0]), np.array([30 * US]))
    assert busy(times) == {"COLLECTIVES": [(10, 15)], "BARRIER": [(0, 9)]}


# --- compilation ---

LOCAL = "EagerLocalExecute: __inference_work_7"


def microseconds(times: Intervals) -> list[tuple[int, int]]:
    return list(zip((times.start // PS_PER_US).tolist(), (times.end // PS_PER_US).tolist(), strict=True))


def call(mode: str, *inside: Event) -> tuple[Event, ...]:
    return (event("work", 0, 100, tf_function_call=ref(mode), tracing_count=1), *inside)


def test_a_call_that_traces_compiles_but_for_its_run(tmp_path: Path) -> None:
    run = event(LOCAL, 50, 50), event("EagerKernelExecute", 80, 18)
    building = event("tf.function-graph_building", 5, 40)
    trace = trace_of(tmp_path, host(*call("traced-nonXla", building, *run)))
    assert microseconds(tracing_calls(trace)) == [(0, 80), (98, 100)]
    assert microseconds(busy_times(trace)[Activity.COMPILE]) == [(0, 80), (98, 100)]


def test_a_call_that_only_runs_does_not_compile(tmp_path: Path) -> None:
    run = event(LOCAL, 50, 50), event("EagerKernelExecute", 80, 18)
    trace = trace_of(tmp_path, host(*call("notTraced-nonXla", *run)))
    assert microseconds(tracing_calls(trace)) == []


def test_where_the_run_is_not_in_the_trace_only_building_the_graph_counts(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, host(*call("traced-nonXla", event("tf.function-graph_building", 5, 40))))
    assert microseconds(busy_times(trace)[Activity.COMPILE]) == [(5, 45)]


def test_xla_compiles_until_the_program_runs(tmp_path: Path) -> None:
    """What it folds meanwhile is an op with the name of a gradient: that alone does not make a training step."""
    folded = event("ExecutorState::Process", 12, 3), event("gradient_tape/Tile:Tile", 13, 1)
    backend, runs = event("CpuCompiler::RunBackend", 30, 20), event("CpuExecutable::ExecuteAsyncOnStream", 60, 30)
    run = event("__inference_work_7:__inference_work_7", 10, 85), *folded, backend, runs
    trace = trace_of(tmp_path, host(*call("notTraced-xla", *run)))
    assert microseconds(xla_compilations(trace)) == [(10, 60)]
    assert find_calls(trace).traced.tolist() == [True]
    assert label_kinds(trace, np.array([0]), np.array([100 * PS_PER_US]), ["work"]) == ("step",)


def test_on_a_thread_of_an_executor_xla_compiles_from_the_end_of_the_op_before(tmp_path: Path) -> None:
    executor = event("ExecutorState::Process", 0, 100), event("x:MatMul", 5, 5), event("y:Add", 12, 3)
    compiled = event("simplification", 30, 5), event("GpuCompiler::RunBackend", 40, 20)
    runs = event("GpuExecutable::ExecuteAsyncOnStream", 70, 20), event("z:Add", 92, 2)
    trace = trace_of(tmp_path, plane("/host:CPU", line("tf_Compute", *executor, *compiled, *runs)))
    assert microseconds(xla_compilations(trace)) == [(15, 70)]


def test_what_the_trace_does_not_surround_is_only_the_backend(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, host(event("$f.py:1 f", 0, 50), event("CpuCompiler::RunBackend", 10, 20)))
    assert microseconds(xla_compilations(trace)) == [(10, 30)]


def test_the_launching_call_tells_between_what_a_kernel_of_rocm_copies(tmp_path: Path) -> None:
    calls = ("hipMemcpyHtoDAsync", "hipMemcpyDtoHAsync", "hipMemcpyDtoDAsync", "hipGraphLaunch")
    launches = host(*(event(name, 10 * at, 5, correlation_id=at + 1) for at, name in enumerate(calls)))
    copies = [event("__amd_rocclr_copyBuffer.kd", 100 + 10 * at, 5, correlation_id=at + 1) for at in range(5)]
    trace = trace_of(tmp_path, launches, plane("/device:GPU:0", line("Stream #1", *copies)))
    codes = device_codes(trace, "corrected")[trace.device_rows]
    within = Activity.DEVICE_TO_DEVICE
    assert codes.tolist() == [Activity.HOST_TO_DEVICE, Activity.DEVICE_TO_HOST, within, within, within]
