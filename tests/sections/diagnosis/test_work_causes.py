"""Causes in what devices compute: steps of 100 us, of which a GPU or a TPU core computes for a known part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import Event, Plane, event, host, line, plane, programs, ref, results_of, trace_of
from hlo_builders import F32, computation, instruction, program, shape
from protobytes import field, message
from real_runs import SHARED, analysis_of

from tfperf.sections.diagnosis.cause import Cause, Diagnosis

STEPS = [event("train", 100 * n, 100, step_num=n) for n in range(5)]


def causes_of(tmp_path: Path, *planes: Plane) -> dict[str, Cause]:
    found: Diagnosis = results_of(trace_of(tmp_path, *planes))["diagnosis"]
    return {cause.code: cause for cause in found.causes}


def kernels(*parts: tuple[str, str, float, float], hlo: bool = False) -> Plane:
    """Kernels (name, op, start, duration) in each step."""
    events = []
    for n in range(5):
        for name, op, begin, duration in parts:
            stats: dict[str, Any] = {"hlo_op": ref(op), "program_id": 7} if hlo else {"tf_op": ref(op)}
            events.append(event(name, 100 * n + begin, duration, **stats))
    return plane("/device:GPU:0", line("Stream #1(Compute)", *events))


CONVOLUTION = ("implicit_convolve_sgemm", "model/conv/Conv2D:Conv2D", 10, 40)


def test_transposes_around_convolutions_cost_what_they_take(tmp_path: Path) -> None:
    """30 of 100 us; half of that to all of it would be saved."""
    op = "model/conv/Conv2D-0-TransposeNHWCToNCHW-LayoutOptimizer:Transpose"
    swap = ("SwapDimension1And2InTensor3UsingTiles<float>", op, 50, 30)
    cause = causes_of(tmp_path, host(*STEPS), kernels(CONVOLUTION, swap))["layout_conversion"]
    assert cause.cost_percent is not None
    assert (cause.cost_percent.low, cause.cost_percent.high) == pytest.approx((30, 30))
    assert "LayoutOptimizer takes 0.150 ms" in cause.detail
    assert "convolutions 0.200 ms" in cause.detail
    (action,) = cause.actions
    assert action.step_ms is not None
    assert (action.step_ms.low, action.step_ms.high) == pytest.approx((0.07, 0.085))
    assert [evidence.row for evidence in cause.rests_on] == ["Device compute", "SwapDimension1And2InTensor3UsingTiles"]


def test_fusions_that_transpose_around_a_library_call_are_conversions(tmp_path: Path) -> None:
    parts = (("gemm", "cudnn-conv.1", 10, 20), ("input_transpose_fusion", "input_transpose_fusion", 40, 30))
    found = causes_of(tmp_path, host(*STEPS), kernels(*parts, hlo=True))
    assert found["layout_conversion"].detail.startswith("input_transpose_fusion takes 0.150 ms")


@pytest.mark.parametrize(
    "parts",
    [
        # No convolution: a transpose of attention heads is what the model asks for.
        (("transpose_kernel", "model/attention/transpose:Transpose", 10, 40),),
        # The same beside a convolution of another part of the model.
        (CONVOLUTION, ("transpose_kernel", "model/attention/transpose:Transpose", 60, 30)),
        # A convolution and no conversion, though the name of the kernel has a layout.
        (("sm80_xmma_fprop_implicit_gemm_nhwc", "model/conv/Conv2D:Conv2D", 10, 40),),
        # Too little: 1 % of the step.
        (CONVOLUTION, ("transpose", "model/conv/Conv2D-0-TransposeNHWCToNCHW-LayoutOptimizer:Transpose", 60, 1)),
        # The gradient of a transposed convolution is no transpose.
        (("dgrad", "model/conv2d_transpose/conv2d_transpose:Conv2DBackpropInput", 10, 40),),
    ],
)
def test_what_is_no_conversion_of_layouts(tmp_path: Path, parts: tuple[tuple[str, str, float, float], ...]) -> None:
    assert "layout_conversion" not in causes_of(tmp_path, host(*STEPS), kernels(*parts))


def core(category: str, flops: int, moved: int, name: str = "work.1", duration: float = 50) -> Plane:
    """A core with 100 TFLOP/s and 1000 GB/s that runs an instruction in each step of 100 us."""
    text = f"%{name} = bf16[8] {category}(bf16[8] %p)"
    stats = {"program_id": 7, "hlo_category": category, "flops": flops, "bytes_accessed": moved, "tf_op": "net/mul:Mul"}
    runs = [event(text, 100 * n + 10, duration) for n in range(5)]
    steps: list[Event] = [event(str(n), 100 * n, 100) for n in range(5)]
    return plane(
        "/device:TPU:0",
        line("Steps", *steps, id=1),
        line("XLA Ops", *runs, id=2),
        stats={"peak_teraflops_per_second": 100.0, "peak_hbm_bw_gigabytes_per_second": 1000.0},
        name_stats={text: stats},
    )


def test_elementwise_work_at_half_the_bandwidth_is_bound_by_memory(tmp_path: Path) -> None:
    """In 50 us the bandwidth allows 50 MB."""
    cause = causes_of(tmp_path, core("loop fusion", 1_000_000, 25_000_000))["memory_bound"]
    assert cause.cost_percent is not None
    assert cause.cost_percent.high == pytest.approx(50)
    assert "work.1 (net)" in cause.detail
    assert cause.rests_on[0].row == "work.1"


def test_a_product_far_from_both_peaks_is_too_small(tmp_path: Path) -> None:
    """In 50 us the peak allows 5e9 operations: 10 % are reached."""
    cause = causes_of(tmp_path, core("dot", 500_000_000, 1_000_000))["low_utilisation"]
    assert cause.cost_percent is not None
    assert cause.cost_percent.high == pytest.approx(50)
    assert cause.confidence == "medium"


@pytest.mark.parametrize(
    "plane",
    [
        core("dot", 4_000_000_000, 1_000_000),  # 80 % of the peak
        core("loop fusion", 1_000_000, 1_000_000),  # elementwise work that waits: no product, and not bound by memory
        core("custom-call", 0, 0),  # unknown work
        core("infeed", 0, 40_000_000),  # waits for the host
        core("loop fusion", 1_000_000, 900_000, duration=1),  # too little
    ],
)
def test_what_is_neither_bound_by_memory_nor_too_small(tmp_path: Path, plane: Plane) -> None:
    assert not {"memory_bound", "low_utilisation"} & set(causes_of(tmp_path, plane))


@pytest.mark.skipif(not SHARED.exists(), reason="test input that is no part of the project is not here")
def test_transposes_of_a_real_trace_take_more_than_its_convolution() -> None:
    found = analysis_of(SHARED / "jax_mi300x" / "jax_conv_minimal_08")["diagnosis"]
    cause = next(each for each in found.causes if each.code == "layout_conversion")
    assert "15.0 ms of the capture, convolutions 12.5 ms" in cause.detail


def test_products_gain_at_most_until_they_are_not_small(tmp_path: Path) -> None:
    """10 % of what the peak allows: at 30 %, they take a third of 50 us."""
    cause = causes_of(tmp_path, core("dot", 500_000_000, 1_000_000))["low_utilisation"]
    (action,) = cause.actions
    assert action.step_ms is not None
    assert (action.step_ms.low, action.step_ms.high) == pytest.approx((0.1 - 0.1 / 3, 0.1))
    assert "they take 66.7% less" in action.assumption


V100 = {"compute_cap_major": 7, "compute_cap_minor": 0, "core_count": 80, "memory_size": 16 * 2**30}


def shaped(*parts: tuple[str, str, str, float, float]) -> tuple[Plane, Plane]:
    """Kernels (name, op, shapes, start, duration) in each step on a V100, each launched inside an event of its op."""
    events, calls, number = [], [], 1
    for n in range(5):
        for name, op, shapes, begin, duration in parts:
            start, number = 100 * n + begin, number + 1
            stats: dict[str, Any] = {"tf_op": ref(op), "shape": ref(shapes), "correlation_id": number}
            events.append(event(name, start, duration, **stats))
            calls += [event(op, start - 5, 3), event("cuLaunchKernel", start - 4, 1, correlation_id=number)]
    device = plane("/device:GPU:0", line("Stream #1(Compute)", *events), stats=V100)
    made = host(*STEPS)
    return plane("/host:CPU", *made.lines, line("launches", *calls, id=2)), device


def test_16_bit_halves_the_bytes_of_ops_on_32_bit_numbers_only(tmp_path: Path) -> None:
    """Both move 900 GB/s x 20 us x 2 / 3; only one of 20 us has float32: 10 of 100 us are saved at most."""
    wide = ("relu", "model/a/Relu:Relu", "(float[1500000])", 10, 20)
    narrow = ("relu", "model/b/Relu:Relu", "(half[3000000])", 40, 20)
    cause = causes_of(tmp_path, *shaped(wide, narrow))["memory_bound"]
    assert cause.cost_percent is not None
    assert cause.cost_percent.high == pytest.approx(40)
    (action,) = cause.actions
    assert action.step_ms is not None
    assert (action.step_ms.low, action.step_ms.high) == pytest.approx((0.09, 0.1))
    assert "50.0% of that is in ops on 32-bit numbers" in action.assumption


def test_nothing_is_estimated_where_all_is_of_16_bit(tmp_path: Path) -> None:
    cause = causes_of(tmp_path, *shaped(("relu", "model/b/Relu:Relu", "(half[3000000])", 40, 20)))["memory_bound"]
    assert [action.step_ms for action in cause.actions] == [None]


def test_16_bit_brings_no_more_than_the_roofline_allows(tmp_path: Path) -> None:
    """225,000 numbers in, 5,062,500 out: 10.575 MB in 16 bit, so 11.75 us of 40 at 900 GB/s."""
    shapes = "(float[2250,50];float[50,2250])"
    product = ("volta_sgemm_128x64_nn", "model/a/MatMul:MatMul", shapes, 10, 40)
    cause = causes_of(tmp_path, *shaped(product))["device_compute_32bit"]
    assert cause.cost_percent is not None
    assert cause.cost_percent.high == pytest.approx(40)
    (action,) = cause.actions
    assert action.step_ms is not None
    assert (action.step_ms.low, action.step_ms.high) == pytest.approx((0.1 - 0.02825, 0.1 - 0.0132))
    assert "100.0% of kernel time; on the roofline of 16 bit they still take 29.4%" in action.assumption


def test_without_a_roofline_16_bit_brings_what_a_rule_of_thumb_says(tmp_path: Path) -> None:
    op = ("volta_sgemm_128x64_nn", "model/a/MatMul:MatMul", 10, 40)
    cause = causes_of(tmp_path, host(*STEPS), kernels(op))["device_compute_32bit"]
    (action,) = cause.actions
    assert action.step_ms is not None
    assert (action.step_ms.low, action.step_ms.high) == pytest.approx((0.07, 0.0868))
    assert "100.0% of kernel time; a rule of thumb" in action.assumption


ALIGNED = ("volta_h884gemm", "model/a/MatMul:MatMul", "(half[2048,1024];half[1024,512])", 10, 20)
ODD = "(half[1023,1024];half[1024,999])"


def test_products_of_unaligned_sizes_gain_at_most_what_aligned_ones_reach(tmp_path: Path) -> None:
    """At 125 TFLOP/s these take 17.18 and 16.74 us at least: 20 and 40 us are 85.9 and 41.9 % of that."""
    unaligned = ("volta_h884gemm", "model/b/MatMul:MatMul", ODD, 40, 40)
    cause = causes_of(tmp_path, *shaped(ALIGNED, unaligned))["unaligned_shapes"]
    assert cause.cost_percent is not None
    assert cause.cost_percent.high == pytest.approx(40)
    assert "(b): M = 1023 (to 1024), N = 999 (to 1000)" in cause.detail
    assert "41.9% of the roofline, against 85.9% with aligned sizes" in cause.detail
    (action,) = cause.actions
    assert action.step_ms is not None
    assert (action.step_ms.low, action.step_ms.high) == pytest.approx(
        (0.1 - 0.04 * (1 - 16.74 / 40 / (17.18 / 20)), 0.1), 1e-3
    )


@pytest.mark.parametrize(
    ("shapes", "start", "duration", "other"),
    [
        (ODD, 40, 19, ALIGNED),  # as near to the roofline as the aligned one
        (ODD.replace("half", "float"), 40, 40, ALIGNED),  # 16 bit comes first
        ("(half[1,1024];half[1024,1000])", 40, 40, ALIGNED),  # a vector: no tile to fill
        (ODD, 40, 40, ("relu", "model/a/Relu:Relu", "(half[3000000])", 10, 20)),  # nothing to compare with
        (ODD, 40, 1, ALIGNED),  # too little
    ],
)
def test_products_whose_sizes_are_not_at_fault(
    tmp_path: Path, shapes: str, start: float, duration: float, other: tuple[str, str, str, float, float]
) -> None:
    product = ("volta_h884gemm", "model/b/MatMul:MatMul", shapes, start, duration)
    assert "unaligned_shapes" not in causes_of(tmp_path, *shaped(other, product))


@pytest.mark.parametrize(
    ("shapes", "code"),
    [("(half[255,1024];half[1024,129])", "unaligned_shapes"), ("(half[256,1024];half[1024,128])", "low_utilisation")],
)
def test_a_small_product_is_blamed_once(tmp_path: Path, shapes: str, code: str) -> None:
    small = ("volta_h884gemm", "model/b/MatMul:MatMul", shapes, 40, 40)
    assert {"unaligned_shapes", "low_utilisation"} & set(causes_of(tmp_path, *shaped(ALIGNED, small))) == {code}


WAIT = "%copy-done = f32[8] copy-done((f32[8], f32[8], u32[]) %copy-start)"


def products(**sizes: tuple[int, int, int, float]) -> tuple[Plane, Plane]:
    """A core of 100 TFLOP/s in steps of 100 us: products (M, N, K, duration) by name, and waiting from 80 to 100."""
    events, made = [event(WAIT, 100 * step + 80, 20) for step in range(5)], list[bytes]()
    facts: dict[str, Any] = {WAIT: {"program_id": 7, "hlo_category": "copy-done"}}
    start = 10.0
    for place, (name, (m, n, k, takes)) in enumerate(sizes.items()):
        first = 3 * place + 1
        parameters = (
            instruction(first + at, f"{name}{at}", "parameter", shape(F32, *of))
            for at, of in enumerate([(m, k), (k, n)])
        )
        dims = field(30, message(field(1, 1), field(2, 0)))
        made += [*parameters, instruction(first + 2, name, "dot", shape(F32, m, n), [first, first + 1], extra=dims)]
        text, moved = f"%{name} = f32[{m},{n}] dot()", 4 * (m * k + k * n + m * n)
        facts[text] = {"program_id": 7, "hlo_category": "dot", "flops": 2 * m * n * k, "bytes_accessed": moved}
        events += [event(text, 100 * step + start, takes) for step in range(5)]
        start += takes
    core = plane(
        "/device:TPU:0",
        line("Steps", *(event(str(step), 100 * step, 100) for step in range(5)), id=1),
        line("XLA Ops", *sorted(events, key=lambda each: each.start_us), id=2),
        stats={"peak_teraflops_per_second": 100.0, "peak_hbm_bw_gigabytes_per_second": 1000.0},
        name_stats=facts,
    )
    return core, programs(id_7=program(computation("main", *made, root=3 * len(sizes))))


def test_of_a_fusion_of_a_tpu_it_is_unknown_what_its_product_takes(tmp_path: Path) -> None:
    """A product alone would take a third of 50 us."""
    cause = causes_of(tmp_path, core("convolution fusion", 500_000_000, 1_000_000))["low_utilisation"]
    (action,) = cause.actions
    assert action.step_ms is not None
    assert (action.step_ms.low, action.step_ms.high) == pytest.approx((0.1 - 0.05 * (2 / 3) / 2, 0.1))


def test_products_whose_sizes_fill_no_tiles_of_a_tpu(tmp_path: Path) -> None:
    """At 100 TFLOP/s these take 21.5 and 20.5 us at least; what a core waits in another op is no part of it."""
    found = causes_of(tmp_path, *products(wide=(1024, 1024, 1024, 25), odd=(1024, 1000, 1000, 45)))
    cause = found["unaligned_shapes"]
    assert cause.cost_percent is not None
    assert cause.cost_percent.high == pytest.approx(45)
    assert "odd: N = 1000 (to 1024), K = 1000 (to 1024)" in cause.detail
    assert "multiples of 128" in cause.actions[0].text
    even = causes_of(tmp_path, *products(wide=(1024, 1024, 1024, 25), narrow=(1000, 1024, 1024, 45)))
    assert "unaligned_shapes" not in even  # 1000 is a multiple of 8


def test_ops_of_a_tpu_that_only_run_before_the_steps_cost_no_time_of_them(tmp_path: Path) -> None:
    text = "%before = bf16[8] fusion(bf16[8] %p)"
    stats = {"program_id": 7, "hlo_category": "loop fusion", "flops": 1_000_000, "bytes_accessed": 400_000_000}
    steps = line("Steps", *(event(str(n), 1000 + 100 * n, 100) for n in range(5)), id=1)
    ops = line("XLA Ops", event(text, 0, 800), *(event("tiny", 1000 + 100 * n, 100) for n in range(5)), id=2)
    peaks = {"peak_teraflops_per_second": 100.0, "peak_hbm_bw_gigabytes_per_second": 1000.0}
    facts = {text: stats, "tiny": {"program_id": 7, "hlo_category": "loop fusion"}}
    assert "memory_bound" not in causes_of(tmp_path, plane("/device:TPU:0", steps, ops, stats=peaks, name_stats=facts))
