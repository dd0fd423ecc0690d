"""When instructions ran, on each kind of device. Times in microseconds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from builders import Event, Plane, event, host, host_of, line, plane, ref, trace_of

from tfperf.base.arrays import EMPTY, Intervals
from tfperf.sections.xla.instructions import OpTimes, op_times

US = 1_000_000


def times_of(tmp_path: Path, *planes: Plane, steps: Intervals = EMPTY) -> OpTimes:
    trace = trace_of(tmp_path, *planes)
    return op_times(trace, host_of(trace, "steps").device_work, steps)


def kernel(name: str, start: float, duration: float, op: str, call: int, program: int = 7) -> Event:
    stats = {"hlo_op": ref(op), "hlo_module": ref("jit_f"), "program_id": program, "correlation_id": call}
    return event(name, start, duration, **stats)


def launches(*starts_and_ids: tuple[float, int], thread: str = "Host Threads/1") -> Plane:
    calls = [event("launch", start, 1, correlation_id=number) for start, number in starts_and_ids]
    thunks = [event("conv.1", 0, 10), event("add.2", 20, 5), event("conv.1", 30, 10)]
    return plane("/host:CPU", line("python", *thunks, id=1), line(thread, *calls, id=2))


def test_a_run_on_a_gpu_may_launch_several_kernels(tmp_path: Path) -> None:
    """conv.1 runs twice with two kernels each, add.2 once."""
    gpu = plane(
        "/device:GPU:0",
        line(
            "Stream #1",
            kernel("im2col", 50, 3, "conv.1", 1),
            kernel("gemm", 55, 7, "conv.1", 2),
            kernel("add", 65, 2, "add.2", 3),
            kernel("im2col", 70, 3, "conv.1", 4),
            kernel("gemm", 75, 7, "conv.1", 5),
            event("copy", 90, 9),
        ),
    )
    times = times_of(tmp_path, launches((1, 1), (5, 2), (21, 3), (31, 4), (35, 5)), gpu)
    assert times.place == "gpu"
    found = {op.key.op: (op.runs, op.events, op.time_ps, op.devices, op.is_estimated) for op in times.ops}
    assert found == {"conv.1": (2, 4, 20 * US, 1, False), "add.2": (1, 1, 2 * US, 1, False)}
    assert times.busy_ps == {7: 22 * US}


def test_without_launches_the_kernel_that_runs_most_often_counts_runs(tmp_path: Path) -> None:
    kernels = [kernel("gemm", 10 * at, 5, "conv.1", 0) for at in range(3)]
    kernels += [kernel("im2col", 100 + 10 * at, 5, "conv.1", 0) for at in range(2)]
    (op,) = times_of(tmp_path, plane("/device:GPU:0", line("Stream #1", *kernels))).ops
    assert (op.runs, op.events, op.is_estimated) == (3, 5, True)


def test_instructions_of_one_name_in_two_programs_stay_apart(tmp_path: Path) -> None:
    """Two devices run program 7, one of them also program 8."""
    first = plane("/device:GPU:0", line("s", kernel("k", 0, 5, "dot.1", 1), kernel("k", 9, 5, "dot.1", 2, program=8)))
    second = plane("/device:GPU:1", line("s", kernel("k", 0, 7, "dot.1", 3)))
    found = {op.key.program: (op.time_ps, op.devices) for op in times_of(tmp_path, first, second).ops}
    assert found == {7: (12 * US, 2), 8: (5 * US, 1)}


def test_on_a_tpu_a_loop_is_without_its_body(tmp_path: Path) -> None:
    loop, body = "%while.6 = f32[8] while(f32[8] %p)", "%fusion.7 = f32[8] fusion(f32[8] %q)"
    ops = (event(loop, 0, 20), event(body, 1, 8), event(body, 10, 8))
    stats = {"program_id": 7, "hlo_category": "x"}
    cores = [
        plane(f"/device:TPU:{at}", line("XLA Ops", *ops), name_stats={loop: stats, body: stats}) for at in range(2)
    ]
    times = times_of(tmp_path, *cores)
    found = {op.key: (op.runs, op.time_ps, op.devices) for op in times.ops}
    assert {(key.program, key.op): values for key, values in found.items()} == {
        (7, "while.6"): (2, 8 * US, 2),
        (7, "fusion.7"): (4, 32 * US, 2),
    }
    assert (times.place, times.busy_ps) == ("tpu", {7: 40 * US})


def test_on_a_host_an_instruction_goes_to_where_its_end_is_noted(tmp_path: Path) -> None:
    """dot is handed out within 2 us and done after 30; add ends inside its own event, and one dot has no end."""
    first = line(
        "tf_XLAEigen/1",
        event("dot", 0, 2, hlo_op="dot", program_id=7, _p=11),
        event("add", 5, 4, hlo_op="add", program_id=7, _p=12),
        event("end: add", 8, 0.5, _c=12),
        event("dot", 40, 6, hlo_op="dot", program_id=7, _p=13),
        id=1,
    )
    second = line("tf_XLAEigen/2", event("end: dot", 30, 1, _c=11), event("other", 50, 5), id=2)
    times = times_of(tmp_path, plane("/host:CPU", first, second))
    found = {op.key.op: (op.runs, op.time_ps, op.least_ps) for op in times.ops}
    assert found == {"dot": (2, 36 * US, 8 * US), "add": (1, 4 * US, 4 * US)}
    assert (times.place, times.busy_ps) == ("cpu", {7: 36 * US})  # 0-30 and 40-46


def test_without_instructions_there_is_nothing(tmp_path: Path) -> None:
    assert times_of(tmp_path, host(event("train", 0, 5, step_num=1))) == OpTimes(place=None)
    gpu = plane("/device:GPU:0", line("s", event("k", 0, 5)))
    assert times_of(tmp_path, gpu) == OpTimes(place="gpu")


def test_events_in_the_steps_that_count_are_told(tmp_path: Path) -> None:
    """Of three kernels, and of three ops of a TPU, two start between 10 and 30 us."""
    steps = Intervals(np.array([10 * US]), np.array([30 * US]))
    kernels = [kernel("k", 10 * at, 5, "a", 0) for at in range(3)]
    (op,) = times_of(tmp_path, plane("/device:GPU:0", line("s", *kernels)), steps=steps).ops
    assert (op.events, op.in_steps) == (3, 2)
    core = plane("/device:TPU:0", line("XLA Ops", *(event("a", 10 * at, 5) for at in range(3))))
    (op,) = times_of(tmp_path, core, steps=steps).ops
    assert (op.events, op.in_steps) == (3, 2)


def test_the_name_is_that_of_the_longest_kernel(tmp_path: Path) -> None:
    kernels = [kernel("short", 0, 1, "a", 0), kernel("long", 5, 9, "a", 0), kernel("other", 20, 2, "b", 0)]
    trace = trace_of(tmp_path, plane("/device:GPU:0", line("s", *kernels)))
    ops = op_times(trace, host_of(trace, "steps").device_work, EMPTY).ops
    assert {op.key.op: trace.names[op.name] for op in ops} == {"a": "long", "b": "other"}
