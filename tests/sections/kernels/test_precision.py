"""Compute by precision, and what 16 bit could make faster; times in microseconds, steps of 100 us."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import Event, Plane, event, host, host_of, line, plane, programs, ref, trace_of
from hlo_builders import F32, computation, instruction, program, shape
from protobytes import field, message

from tfperf.sections.kernels.analysis import DevicePrecision

US = 1_000_000
TURING = {"compute_cap_major": 7, "compute_cap_minor": 5}
CONV, ADD = "m/conv/Conv2D:Conv2D", "m/Add:Add"
STEP = host(event("train", 0, 100, step_num=0))


def kernel(name: str, start: float, duration: float, op: str = CONV) -> Event:
    return event(name, start, duration, **({"tf_op": op} if op else {}))


def gpu(*streams: tuple[Event, ...], **stats: int) -> Plane:
    lines = (line(f"Stream #{at}", *events, id=at) for at, events in enumerate(streams, 1))
    return plane("/device:GPU:0", *lines, stats=stats or TURING)


def precision(tmp_path: Path, *planes: Plane) -> DevicePrecision:
    (device,) = host_of(trace_of(tmp_path, *planes), "kernels")["kernels"].precision
    assert isinstance(device, DevicePrecision)
    return device


def compute_us(device: DevicePrecision) -> list[float]:
    return [(device.total_ps(part) or 0) / US for part in ("compute_16", "compute_32", "compute_unknown")]


def test_compute_in_steps_by_precision(tmp_path: Path) -> None:
    """16 bit from 0 to 20; 32 bit from 10 to 40 beside it, 20 alone; unknown from 90 on, 10 in the step."""
    streams = (kernel("hgemm", 0, 20), kernel("fusion", 90, 30)), (kernel("sgemm", 10, 30),)
    device = precision(tmp_path, STEP, gpu(*streams))
    assert (device.steps, device.averaged.total_ps) == (1, 100 * US)
    assert compute_us(device) == [20, 20, 10]


def test_products_in_32_bit_are_eligible(tmp_path: Path) -> None:
    """Of the step, 40 us: not what is in 16 bit, on tensor cores (TF32), of another op, a copy, or outside."""
    kernels = (
        kernel("volta_sgemm_128x64_nn", 0, 40),
        kernel("hgemm", 40, 5),
        kernel("cutlass_80_tensorop_s1688gemm", 45, 5),
        kernel("sgemm", 50, 5, ADD),
        kernel("MemcpyH2D", 55, 5),
        kernel("sgemm", 200, 50),
    )
    device = precision(tmp_path, STEP, gpu(kernels))
    assert (device.eligible_percent, device.most_eligible_percent) == (40, 40)


def test_what_may_be_eligible_widens_the_range(tmp_path: Path) -> None:
    """20 us surely; 10 of unknown precision, and 5 of a kernel whose op is unknown."""
    kernels = kernel("sgemm", 0, 20), kernel("fusion", 20, 10), kernel("sgemm", 30, 5, ""), kernel("fusion", 40, 9, ADD)
    device = precision(tmp_path, STEP, gpu(kernels))
    assert (device.eligible_percent, device.most_eligible_percent) == (20, 35)


def test_an_einsum_is_a_product_by_its_equation(tmp_path: Path) -> None:
    kernels = (
        event("sgemm", 0, 20, tf_op="m/a:Einsum", equation="ab,bc->ac"),
        event("sgemm", 20, 10, tf_op="m/b:Einsum", equation="ab->ba"),
    )
    assert precision(tmp_path, STEP, gpu(kernels)).most_eligible_percent == 20


AMPERE = {"compute_cap_major": 8, "compute_cap_minor": 0, "core_count": 108, "clock_rate": 1_410_000}
"""19.5 TFLOP/s in 32 bit."""
BF16 = 16


@pytest.mark.parametrize(
    ("kind", "duration_us", "most_percent"),
    [
        (F32, 50, 50.0),  # 2 * 512^3 operations in 50 us are 5.4 TFLOP/s
        (BF16, 50, 0.0),  # the program says 16 bit
        (F32, 5, 0.0),  # 54 TFLOP/s are more than 32 bit can do
    ],
)
def test_the_program_or_the_rate_shows_what_a_name_does_not(
    tmp_path: Path, kind: int, duration_us: float, most_percent: float
) -> None:
    contracting = field(30, message(field(1, 1), field(2, 0)))
    parameters = [instruction(number, f"p{number}", "parameter", shape(kind, 512, 512)) for number in (1, 2)]
    dot = instruction(3, "dot.1", "dot", shape(kind, 512, 512), [1, 2], extra=contracting)
    made = programs(id_7=program(computation("main", *parameters, dot, root=3)))
    stats = {"hlo_op": ref("dot.1"), "hlo_module": ref("jit_step"), "program_id": 7, "correlation_id": 1}
    kernels = (event("gemm_fusion_dot_1", 10, duration_us, **stats),)
    run = event("dot.1", 1, 5)
    calling = host(event("train", 0, 100, step_num=0), run, event("cuLaunchKernel", 2, 1, correlation_id=1))
    device = precision(tmp_path, calling, gpu(kernels, **AMPERE), made)
    assert (device.eligible_percent, device.most_eligible_percent) == (0.0, most_percent)


def test_a_device_without_tensor_cores_gains_nothing_that_is_known(tmp_path: Path) -> None:
    pascal = gpu((kernel("sgemm", 0, 20),), compute_cap_major=6, compute_cap_minor=1)
    device = precision(tmp_path, STEP, pascal)
    assert (device.eligible_percent, device.most_eligible_percent) == (None, None)
    assert compute_us(device) == [0, 20, 0]


def test_without_steps_there_are_no_shares(tmp_path: Path) -> None:
    device = precision(tmp_path, gpu((kernel("sgemm", 0, 20),)))
    assert (device.steps, device.eligible_percent) == (0, None)


@pytest.mark.parametrize("kernels", [(), (event("MemcpyH2D", 0, 5),)])
def test_a_device_without_kernels_has_no_row(tmp_path: Path, kernels: tuple[Event, ...]) -> None:
    trace = trace_of(tmp_path, STEP, gpu(kernels))
    result = host_of(trace, "kernels")["kernels"]
    assert result is None or result.precision == ()
