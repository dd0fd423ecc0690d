"""Causes of devices: steps of 100 us, of which a GPU or a TPU core computes or waits for a known part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import (
    Event,
    Plane,
    event,
    gpu,
    host,
    line,
    logdir_of,
    plane,
    programs,
    read_back,
    ref,
    repeat,
    results_of,
    space,
    trace_of,
)
from hlo_builders import (
    ALLOCATE,
    BF16,
    F32,
    F64,
    FP8,
    FREE,
    allocation,
    computation,
    heap_trace,
    instruction,
    named,
    program,
    shape,
    value,
    vector,
)
from places import TRACES
from protobytes import field, message
from real_runs import analysis_of
from sections.diagnosis.made import OP, actions_of, bounds, cause_of, causes_in, causes_of, marks, most, steps
from sections.memory.made import alloc
from synthetic_tpu import Offload, offload_tpu
from tpu_twin import tpu_twin

import tfperf
from tfperf.sections.diagnosis.cause import Cause
from tfperf.sections.diagnosis.section import build
from tfperf.trace.host_trace import HostTrace

STEPS = marks()
PEAKS = {"peak_teraflops_per_second": 100.0, "peak_hbm_bw_gigabytes_per_second": 1000.0}
ON_DEVICE = line("Steps", *(event(str(n), 100 * n, 100) for n in range(5)), id=1)


def kernels(*parts: tuple[str, str, float, float], hlo: bool = False) -> Plane:
    """Kernels (name, op, start, duration) in each step."""
    stats: list[dict[str, Any]] = [
        {"hlo_op": ref(op), "program_id": 7} if hlo else {"tf_op": ref(op)} for _, op, _, _ in parts
    ]
    return gpu(*repeat(5, *(event(name, *at, **facts) for (name, _, *at), facts in zip(parts, stats, strict=True))))


def a_core(ops: Sequence[Event], facts: Mapping[str, Mapping[str, Any]], **stats: float) -> Plane:
    """A TPU core with steps of 100 us, in each of which these ops run."""
    runs = line("XLA Ops", *repeat(5, *sorted(ops, key=lambda each: each.start_us)), id=2)
    return plane("/device:TPU:0", ON_DEVICE, runs, stats=stats, name_stats=facts)


CONVOLUTION = ("implicit_convolve_sgemm", "model/conv/Conv2D:Conv2D", 10, 40)


def test_transposes_around_convolutions_cost_what_they_take(tmp_path: Path) -> None:
    """30 of 100 us; half of that to all of it would be saved."""
    op = "model/conv/Conv2D-0-TransposeNHWCToNCHW-LayoutOptimizer:Transpose"
    swap = ("SwapDimension1And2InTensor3UsingTiles<float>", op, 50, 30)
    cause = causes_of(tmp_path, host(*STEPS), kernels(CONVOLUTION, swap))["layout_conversion"]
    assert bounds(cause.cost_percent) == pytest.approx((30, 30))
    assert "LayoutOptimizer takes 0.150 ms" in cause.detail
    assert "convolutions 0.200 ms" in cause.detail
    (action,) = cause.actions
    assert bounds(action.step_ms) == pytest.approx((0.07, 0.085))
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


def in_type(element: int) -> Plane:
    """The program of the products below: both inputs and the result have this type."""
    square = shape(element, 64, 64)
    made = (
        instruction(1, "a", "parameter", square),
        instruction(2, "custom-call.1", "custom-call", square, operands=[1, 1]),
    )
    return programs(id_7=program(computation("main", *made, root=2)))


def test_products_in_float64_on_a_gpu(tmp_path: Path) -> None:
    """A product takes 60 of 100 us, and 40 to 80 % less in float32."""
    product = ("cutlass_80_tensorop_d884gemm", "custom-call.1", 10, 60)
    found = causes_of(tmp_path, host(*STEPS), kernels(product, hlo=True), in_type(F64))
    cause = found["double_precision"]
    assert bounds(cause.cost_percent) == pytest.approx((24, 48))
    assert cause.detail.startswith("custom-call.1 computes in 64-bit precision for 60.0% of it")
    assert bounds(cause.actions[0].step_ms) == pytest.approx((0.052, 0.076))
    assert "double_precision" not in causes_of(tmp_path, host(*STEPS), kernels(product, hlo=True), in_type(F32))


def fp8(*, both: bool = True, fused: bool = False) -> Plane:
    """A product in bfloat16 of two arrays (of one, unless `both`) that are FP8 before; one is scaled, or transposed.

    The conversions are fused with the product, or with nothing else.
    """
    small, large, other = shape(FP8, 64, 64), shape(BF16, 64, 64), shape(FP8 if both else BF16, 64, 64)
    second, first = "convert" if both else "copy", field(9, 0)
    inputs = (
        instruction(1, "a", "parameter", small, extra=first),
        instruction(2, "b", "parameter", other, extra=field(9, 1)),
    )
    if fused:
        inside = (
            *inputs,
            instruction(3, "c0", "convert", large, operands=[1]),
            instruction(4, "c1", second, large, operands=[2]),
            instruction(5, "scaled", "multiply", large, operands=[4, 4]),
            instruction(6, "dot", "dot", large, operands=[3, 5], extra=DOT),
        )
        fusion = instruction(3, "product.1", "fusion", large, operands=[1, 2], calls=[2])
        main = computation("main", *inputs, fusion, root=3)
        return programs(id_7=program(main, computation("f", *inside, number=2, root=6)))
    converts = (instruction(1, "p", "parameter", other, extra=first), instruction(2, "c", second, large, operands=[1]))
    apart = (
        *inputs,
        instruction(3, "c0", "convert", large, operands=[1]),
        instruction(4, "t", "transpose", large, operands=[3]),
        instruction(5, "convert_fusion", "fusion", large, operands=[2], calls=[2]),
        instruction(6, "product.1", "dot", large, operands=[4, 5], extra=DOT),
    )
    return programs(id_7=program(computation("main", *apart, root=6), computation("f", *converts, number=2, root=2)))


DOT = field(30, message(field(1, 1), field(2, 0)))
HOPPER = {"compute_cap_major": 9, "compute_cap_minor": 0, "core_count": 132, "clock_rate": 1_830_000}
AMPERE = {"compute_cap_major": 8, "compute_cap_minor": 0, "core_count": 108, "clock_rate": 1_410_000}


@pytest.mark.parametrize("fused", [True, False])
def test_products_that_convert_fp8_first(tmp_path: Path, fused: bool) -> None:
    """A product takes 60 of 100 us in bfloat16, for which the peak is half of that of FP8."""
    product = kernels(("gemm", "product.1", 10, 60), hlo=True)
    hopper, ampere = replace(product, stats=HOPPER), replace(product, stats=AMPERE)
    cause = causes_of(tmp_path, host(*STEPS), hopper, fp8(fused=fused))["converted_fp8"]
    assert bounds(cause.cost_percent) == pytest.approx((60, 60))
    assert cause.detail == "product.1 converts both inputs from f8e4m3fn to a wider type"
    # Weights in FP8 save memory: their product with wider numbers is no FP8 product.
    assert "converted_fp8" not in causes_of(tmp_path, host(*STEPS), hopper, fp8(both=False, fused=fused))
    assert "converted_fp8" not in causes_of(tmp_path, host(*STEPS), ampere, fp8(fused=fused))


def callback(op: str) -> Plane:
    """A program whose instruction `custom-call.1` calls Python, and that also multiplies."""
    name = field(7, message(field(2, f"jit(step)/{op}".encode())))
    made = (
        instruction(1, "a", "parameter", shape(F32, 8)),
        instruction(2, "custom-call.1", "custom-call", shape(F32, 8), operands=[1], extra=name),
        instruction(3, "dot.2", "dot", shape(F32, 8), operands=[1]),
    )
    return programs(id_7=program(computation("main", *made, root=3)))


def waiting(*after: tuple[str, str, float, float], runs_until: float = 70) -> tuple[Plane, Plane]:
    """A copy to the host at 20 us whose op is a callback, and the run of the program that launched it."""
    inside = (("dot", "dot.2", 10, 10), ("MemcpyD2H", "custom-call.1", 20, 5), *after)
    work = [
        event(name, start, length, hlo_op=ref(op), program_id=7, correlation_id=at)
        for at, (name, op, start, length) in enumerate(inside, 1)
    ]
    run = event("GpuExecutable::ExecuteThunks", 5, runs_until - 5)
    calls = [event("cuLaunch", 6 + at, 0.5, correlation_id=at) for at in range(1, len(work) + 1)]
    thread = [*STEPS]
    device = []
    for turn in range(5):
        made = [*(replace(each, start_us=each.start_us + 100 * turn) for each in (run, *calls, *work))]
        ids = [{**each.stats, "correlation_id": 10 * turn + each.stats["correlation_id"]} for each in made[1:]]
        linked = [replace(each, stats=stats) for each, stats in zip(made[1:], ids, strict=True)]
        thread += [made[0], *linked[: len(calls)]]
        device += linked[len(calls) :]
    return host(*thread), gpu(*device)


RESULT, MORE = ("MemcpyH2D", "custom-call.1", 58, 2), ("dot", "dot.2", 60, 20)


@pytest.mark.parametrize(
    ("op", "after", "code", "cost"),
    [
        ("pure_callback", (RESULT, MORE), "python_in_graph", 40),  # from 20 to 60 us, the copies included
        ("io_callback", (MORE,), "python_in_graph", 40),
        ("debug_print", (), "print_in_graph", 50),  # to the end of the run at 70 us
        ("debug_callback", (), "print_in_graph", 50),
        ("mul", (RESULT, MORE), "", 0),  # a custom call of a library
    ],
)
def test_a_gpu_waits_for_python(tmp_path: Path, op: str, after: tuple[Any, ...], code: str, cost: float) -> None:
    found = causes_of(tmp_path, *waiting(*after), callback(op))
    assert {*found} & {"python_in_graph", "print_in_graph"} == ({code} if code else set())
    if code:
        assert bounds(found[code].cost_percent) == pytest.approx((cost, cost))
        assert found[code].detail.startswith(f"{op} calls Python")
        assert "once per step, and the device waits" in found[code].detail


def test_other_work_during_a_callback_takes_none_of_it(tmp_path: Path) -> None:
    """Another stream computes from 30 to 45 us: the callback is then seen from 20 to 30 us only, less than it costs."""
    host_plane, device = waiting(RESULT, MORE)
    beside = line("Stream #2", *repeat(5, event("add", 30, 15)), id=9)
    found = causes_of(tmp_path, host_plane, replace(device, lines=(*device.lines, beside)), callback("pure_callback"))
    # From the copy of the result at 58 us it is seen again.
    assert bounds(found["python_in_graph"].cost_percent) == pytest.approx((12, 12))


def test_callbacks_of_several_hosts_are_averaged(tmp_path: Path) -> None:
    """On one host, they take 40 of 100 us; the other one only computes."""
    calling = space(*waiting(RESULT, MORE), callback("pure_callback"))
    computing = space(host(*STEPS), kernels(("gemm", "model/dense/MatMul:MatMul", 0, 100)))
    found = tfperf.load(logdir_of(tmp_path, a=calling, b=computing), sections=["diagnosis"])["diagnosis"].causes
    cause = next(cause for cause in found if cause.code == "python_in_graph")
    assert bounds(cause.cost_percent) == pytest.approx((20, 20))
    assert cause.detail == "pure_callback calls Python once per step, and the device waits"


def test_without_the_run_of_the_program_only_the_copies_of_a_callback_are_certain(tmp_path: Path) -> None:
    _, device = waiting()
    found = causes_of(tmp_path, host(*STEPS), device, callback("debug_print"))
    assert bounds(found["print_in_graph"].cost_percent) == pytest.approx((5, 5))


def test_a_tpu_core_waits_for_python(tmp_path: Path) -> None:
    """30 of 100 us in the receive of a callback; an op of the same category without a callback is something else."""
    parts = (("%recv-done.1 = f32[8] recv-done()", "pure_callback"), ("%recv-done.2 = f32[8] recv-done()", "offload"))
    facts = {
        text: {"program_id": 7, "hlo_category": "host recv-done", "tf_op": f"jit(step)/{op}:"} for text, op in parts
    }
    made = a_core([event(parts[0][0], 10, 30), event(parts[1][0], 50, 20)], facts, **PEAKS)
    cause = causes_of(tmp_path, made)["python_in_graph"]
    assert bounds(cause.cost_percent) == pytest.approx((30, 30))
    assert cause.detail == "pure_callback calls Python, and the device waits"


def holding(*sizes: int) -> Plane:
    """A program with a product and constants of this many float32 numbers."""
    names = [f"constant.{number}" for number in range(len(sizes))]
    made = [
        instruction(number, name, "constant", shape(F32, size))
        for number, (name, size) in enumerate(zip(names, sizes, strict=True), 2)
    ]
    return programs(id_7=program(computation("main", instruction(1, "dot.2", "dot", shape(F32, 8)), *made)))


def test_arrays_that_a_program_contains(tmp_path: Path) -> None:
    """12 and 4 million numbers of 4 bytes; the 1000 of the third are no reason to mention it."""
    product = ("dot", "dot.2", 10, 60)
    found = causes_of(tmp_path, host(*STEPS), kernels(product, hlo=True), holding(12_000_000, 4_000_000, 1000))
    cause = found["captured_constants"]
    assert cause.detail == "jit_step contains 64.0 MB (2 arrays of 1 MiB or more, the largest f32[12000000])"
    assert (cause.cost_percent, cause.gain) == (None, 0.0)
    assert [action.code for action in cause.actions] == ["pass_arrays"]
    small = causes_of(tmp_path, host(*STEPS), kernels(product, hlo=True), holding(8_000_000))
    assert "captured_constants" not in small


def updates(count: int, length: float = 0.5, kind: str = "ResourceApplyAdam") -> Plane:
    """This many kernels in each step, one for each variable, from 10 us on."""
    parts = [(f"adam_{n}", f"Adam/Adam/update_{n}/{kind}:{kind}", 10 + n * length, length) for n in range(count)]
    return kernels(*parts, ("gemm", "model/dense/MatMul:MatMul", 5, 5))


def test_many_short_kernels_of_an_optimizer(tmp_path: Path) -> None:
    """60 kernels of 0.5 us take 30 of 100 us; up to 80 % of that is saved."""
    cause = causes_of(tmp_path, host(*STEPS), updates(60))["unfused_update"]
    assert bounds(cause.cost_percent) == pytest.approx((30, 30))
    assert cause.detail == "60 kernels per step shorter than 10 us update variables (most time: ResourceApplyAdam)"
    assert bounds(cause.actions[0].step_ms) == pytest.approx((0.076, 0.1))


def updates_of_optax(file: bytes) -> tuple[Plane, Plane]:
    """60 fusions of 0.5 us in each step, whose line of code is in this file, and their program."""
    parts = [("loop_fusion", f"loop_fusion.{n}", 10 + n / 2, 0.5) for n in range(60)]
    origin = field(7, message(field(2, b"jit(step)/mul"), field(3, file), field(4, 12)))
    made = [instruction(n + 1, f"loop_fusion.{n}", "multiply", shape(F32, 8), extra=origin) for n in range(60)]
    return kernels(*parts, hlo=True), programs(id_7=program(computation("main", *made)))


def test_an_update_of_jax_is_known_by_its_line_of_code(tmp_path: Path) -> None:
    cause = causes_of(tmp_path, host(*STEPS), *updates_of_optax(b"/lib/optax/_src/transform.py"))["unfused_update"]
    assert bounds(cause.cost_percent) == pytest.approx((30, 30))
    assert cause.detail.startswith("60 kernels per step")
    assert "unfused_update" not in causes_of(tmp_path, host(*STEPS), *updates_of_optax(b"/home/me/train.py"))


@pytest.mark.parametrize(
    "plane",
    [
        updates(40),  # too few
        updates(4, 20),  # long kernels: the bytes take the time
    ],
)
def test_what_is_no_unfused_update(tmp_path: Path, plane: Plane) -> None:
    assert "unfused_update" not in causes_of(tmp_path, host(*STEPS), plane)


def core(
    category: str, flops: int, moved: int, name: str = "work.1", duration: float = 50, asked: str = "net/mul:Mul"
) -> Plane:
    """A core with 100 TFLOP/s and 1000 GB/s that runs an instruction in each step of 100 us."""
    text = f"%{name} = bf16[8] {category}(bf16[8] %p)"
    stats = {"program_id": 7, "hlo_category": category, "flops": flops, "bytes_accessed": moved, "tf_op": asked}
    return a_core([event(text, 10, duration)], {text: stats}, **PEAKS)


def test_elementwise_work_at_half_the_bandwidth_is_bound_by_memory(tmp_path: Path) -> None:
    """In 50 us the bandwidth allows 50 MB."""
    cause = causes_of(tmp_path, core("loop fusion", 1_000_000, 25_000_000))["memory_bound"]
    assert most(cause) == pytest.approx(50)
    assert "work.1 (net)" in cause.detail
    assert cause.rests_on[0].row == "work.1"


def test_a_product_far_from_both_peaks_is_too_small(tmp_path: Path) -> None:
    """In 50 us the peak allows 5e9 operations: 10 % are reached; at 30 %, it takes a third of 50 us."""
    cause = causes_of(tmp_path, core("dot", 500_000_000, 1_000_000))["low_utilisation"]
    assert most(cause) == pytest.approx(50)
    assert (cause.title, cause.confidence) == ("Running small matrix products", "medium")
    (action,) = cause.actions
    assert action.code == "larger_products"
    assert bounds(action.step_ms) == pytest.approx((0.1 - 0.1 / 3, 0.1))
    assert "they take 66.7% less" in action.assumption
    # What a product takes of a fusion is unknown: alone it would take a third of 50 us.
    fused = causes_of(tmp_path, core("convolution fusion", 500_000_000, 1_000_000))["low_utilisation"]
    assert bounds(fused.actions[0].step_ms) == pytest.approx((0.1 - 0.05 * (2 / 3) / 2, 0.1))


def test_a_large_product_far_from_both_peaks_is_slow(tmp_path: Path) -> None:
    """Its 1.29e9 operations take 10.3 us at the 125 TFLOP/s of a V100; at 30 % of that, it takes 34.5 of now 50 us."""
    large = ("volta_h884gemm", "model/a/MatMul:MatMul", "(half[1024,1024];half[1024,616])", 0, 50)
    small = ("volta_h884gemm", "model/b/MatMul:MatMul", "(half[256,1024];half[1024,128])", 60, 25)
    cause = causes_of(tmp_path, *shaped(large))["low_utilisation"]
    assert cause.title == "Running matrix products slowly"
    assert cause.detail.endswith("; a run takes 50 us, at the roofline 10.3 us")
    (action,) = cause.actions
    assert action.code == "other_kernels"
    assert bounds(action.step_ms) == pytest.approx((0.1 - 0.05 * (1 - 10.336 / 15), 0.1), 1e-3)
    cause = causes_of(tmp_path, *shaped(large, small))["low_utilisation"]
    assert most(cause) == pytest.approx(75)
    assert actions_of(cause) == ["larger_products", "other_kernels"], "each for its ops"


@pytest.mark.parametrize(
    ("op", "asked", "what"),
    [
        ("convolution.1", "conv_general_dilated", "convolutions"),
        ("convolution.1", "dot_general", "matrix products"),  # a TPU multiplies matrices by convolutions, too
    ],
)
def test_products_are_named(tmp_path: Path, op: str, asked: str, what: str) -> None:
    plane = core("convolution", 500_000_000, 1_000_000, name=op, asked=f"jit(f)/net/{asked}")
    assert causes_of(tmp_path, plane)["low_utilisation"].title == f"Running small {what}"


@pytest.mark.skipif(not TRACES.is_dir(), reason="the real traces are not here")
def test_attention_is_not_blamed_for_small_products() -> None:
    """Its four calls take 55.6 % of the device time, at 6 to 7 % of the peak; three products are far from it too."""
    found = analysis_of(TRACES / "reported" / "te_attention_mi350")["diagnosis"]
    cause = next(cause for cause in found.causes if cause.code == "low_utilisation")
    assert "3 ops (largest: gemm_fusion_dot" in cause.detail
    # They multiply 4096 x 2048 by 2048 x 6144 numbers: neither a larger batch nor wider layers would help.
    assert cause.title == "Running matrix products slowly"
    assert actions_of(cause) == ["other_kernels"]


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


@pytest.mark.skipif(not TRACES.exists(), reason="test input that is no part of the project is not here")
def test_transposes_of_a_real_trace_take_more_than_its_convolution() -> None:
    found = analysis_of(TRACES / "jax_mi300x" / "jax_conv_minimal_08")["diagnosis"]
    cause = cause_of(found, "layout_conversion")
    assert "15.0 ms of the capture, convolutions 12.5 ms" in cause.detail


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
    threads = line("python", *STEPS, id=1), line("launches", *calls, id=2)
    return plane("/host:CPU", *threads), gpu(*events, **V100)


def test_16_bit_halves_the_bytes_of_ops_on_32_bit_numbers_only(tmp_path: Path) -> None:
    """Both move 900 GB/s x 20 us x 2 / 3; only one of 20 us has float32: 10 of 100 us are saved at most."""
    wide = ("relu", "model/a/Relu:Relu", "(float[1500000])", 10, 20)
    narrow = ("relu", "model/b/Relu:Relu", "(half[3000000])", 40, 20)
    cause = causes_of(tmp_path, *shaped(wide, narrow))["memory_bound"]
    assert most(cause) == pytest.approx(40)
    (action,) = cause.actions
    assert bounds(action.step_ms) == pytest.approx((0.09, 0.1))
    assert "50.0% of that is in ops on 32-bit numbers" in action.assumption
    cause = causes_of(tmp_path, *shaped(narrow))["memory_bound"]
    assert [action.step_ms for action in cause.actions] == [None], "all is of 16 bit"


def test_16_bit_brings_no_more_than_the_roofline_allows(tmp_path: Path) -> None:
    """225,000 numbers in, 5,062,500 out: 10.575 MB in 16 bit, so 11.75 us of 40 at 900 GB/s."""
    shapes = "(float[2250,50];float[50,2250])"
    product = ("volta_sgemm_128x64_nn", "model/a/MatMul:MatMul", shapes, 10, 40)
    cause = causes_of(tmp_path, *shaped(product))["device_compute_32bit"]
    assert most(cause) == pytest.approx(40)
    (action,) = cause.actions
    assert bounds(action.step_ms) == pytest.approx((0.1 - 0.02825, 0.1 - 0.0132))
    assert "100.0% of kernel time; at the 16-bit roofline they still take 29.4%" in action.assumption


def test_small_products_take_as_long_in_16_bit(tmp_path: Path) -> None:
    """Products of 32 x 32 numbers take nothing at any peak, one of 512 x 512 numbers 17 us at 15.7 TFLOP/s."""
    small = ("volta_sgemm_32x32_nn", "model/a/MatMul:MatMul", "(float[32,32];float[32,32])", 10, 40)
    large = ("volta_sgemm_128x64_nn", "model/b/MatMul:MatMul", "(float[512,512];float[512,512])", 60, 20)
    assert "device_compute_32bit" not in causes_of(tmp_path, *shaped(small))
    cause = causes_of(tmp_path, *shaped(small, large))["device_compute_32bit"]
    assert bounds(cause.cost_percent) == pytest.approx((20, 20))
    assert "32-bit products that are not small, 33.3% of kernel time" in cause.actions[0].assumption


def test_without_a_roofline_16_bit_brings_what_a_rule_of_thumb_says(tmp_path: Path) -> None:
    op = ("volta_sgemm_128x64_nn", "model/a/MatMul:MatMul", 10, 40)
    cause = causes_of(tmp_path, host(*STEPS), kernels(op))["device_compute_32bit"]
    (action,) = cause.actions
    assert bounds(action.step_ms) == pytest.approx((0.07, 0.0868))
    assert "100.0% of kernel time; rule of thumb" in action.assumption


ALIGNED = ("volta_h884gemm", "model/a/MatMul:MatMul", "(half[2048,1024];half[1024,512])", 10, 20)

ODD = "(half[1023,1024];half[1024,999])"


def test_products_of_unaligned_sizes_gain_at_most_what_aligned_ones_reach(tmp_path: Path) -> None:
    """At 125 TFLOP/s these take 17.18 and 16.74 us at least: 20 and 40 us are 85.9 and 41.9 % of that."""
    unaligned = ("volta_h884gemm", "model/b/MatMul:MatMul", ODD, 40, 40)
    cause = causes_of(tmp_path, *shaped(ALIGNED, unaligned))["unaligned_shapes"]
    assert most(cause) == pytest.approx(40)
    assert "(b)): M = 1023 (to 1024), N = 999 (to 1000)" in cause.detail
    assert "41.9% of the roofline, compared with 85.9% for aligned sizes" in cause.detail
    (action,) = cause.actions
    assert bounds(action.step_ms) == pytest.approx((0.1 - 0.04 * (1 - 16.74 / 40 / (17.18 / 20)), 0.1), 1e-3)


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


PADS = "void cudnn::ops::nhwcAddPaddingKernel<__half, __half, float, true>(int, int)"


def test_padding_of_channels_costs_what_its_kernels_take(tmp_path: Path) -> None:
    """30 of 100 us; half of that to all of it would be saved. The rest of the convolution is judged without it."""
    parts = ((PADS, "cudnn-conv.1", 10, 20), (PADS, "cudnn-conv.2", 40, 10), ("sm90_xmma", "cudnn-conv.1", 60, 20))
    cause = causes_of(tmp_path, host(*STEPS), kernels(*parts, hlo=True))["unaligned_shapes"]
    assert bounds(cause.cost_percent) == pytest.approx((30, 30))
    assert cause.detail == "nhwcAddPaddingKernel in 2 ops (longest: cudnn-conv.1)"
    assert bounds(cause.actions[0].step_ms) == pytest.approx((0.07, 0.085))
    assert [evidence.row for evidence in cause.rests_on] == ["Device compute", "nhwcAddPaddingKernel"]


def test_sizes_that_are_padded_are_named_and_the_rest_of_the_op_is_no_small_product(tmp_path: Path) -> None:
    """17.2 us at 125 TFLOP/s: 28.6 % of the peak in 60 us, and 85.8 % in the 20 us that are no padding."""
    odd, op = "(half[2048,1023];half[1023,512])", "model/a/MatMul:MatMul"
    found = causes_of(tmp_path, *shaped((PADS, op, odd, 10, 40), ("volta_h884gemm", op, odd, 55, 20)))
    assert found["unaligned_shapes"].detail.endswith("(longest: model/a/MatMul): K = 1023 (to 1024)")
    assert "low_utilisation" not in found


@pytest.mark.parametrize("name", ["paddingKernel<float>", "nhwcAddPaddingKernelOfMine"])
def test_other_kernels_that_pad_are_no_sign_of_odd_channels(tmp_path: Path, name: str) -> None:
    parts = ((name, "pad.1", 10, 30), ("sm90_xmma", "cudnn-conv.1", 60, 20))
    assert "unaligned_shapes" not in causes_of(tmp_path, host(*STEPS), kernels(*parts, hlo=True))


def jax_on_gpu(*waits: Event) -> tuple[Plane, Plane]:
    """Steps of 100 us: a call of 40 us, in which 5 us launch a kernel of 20 us, and what the host does from then on."""
    calls, runs = [], []
    for n in range(5):
        at = 100 * n
        calls += [event("PjitFunction(step)", at, 40), event("GpuExecutable::ExecuteThunks", at + 5, 30)]
        calls += [event("cuLaunchKernel", at + 10, 5, correlation_id=n + 1)]
        runs.append(event("kernel", at + 40, 20, correlation_id=n + 1))
    return host(*STEPS, *calls, *repeat(5, *waits)), gpu(*runs)


def test_what_jax_prepares_while_the_device_waits_is_launching(tmp_path: Path) -> None:
    """The device waits for 40 us until its kernel is launched; frames show 30 us of waiting, and 10 us are Python."""
    found = causes_of(tmp_path, *jax_on_gpu(event("$api.py:2768 try_to_block", 40, 50)))
    assert most(found["launch_bound"]) == pytest.approx(40, abs=0.5)
    assert most(found["waiting_for_results"]) == pytest.approx(30, abs=0.5)
    assert "Launching" in [evidence.row for evidence in found["launch_bound"].rests_on]
    assert "waiting_in_calls" not in found


WAIT = "%copy-done = f32[8] copy-done((f32[8], f32[8], u32[]) %copy-start)"


def products(**sizes: tuple[int, int, int, float]) -> tuple[Plane, Plane]:
    """A core of 100 TFLOP/s in steps of 100 us: products (M, N, K, duration) by name, and waiting from 80 to 100."""
    events, made = [event(WAIT, 80, 20)], list[bytes]()
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
        events.append(event(text, start, takes))
        start += takes
    return a_core(events, facts, **PEAKS), programs(id_7=program(computation("main", *made, root=3 * len(sizes))))


def test_products_whose_sizes_fill_no_tiles_of_a_tpu(tmp_path: Path) -> None:
    """At 100 TFLOP/s these take 21.5 and 20.5 us at least; what a core waits in another op is no part of it."""
    found = causes_of(tmp_path, *products(wide=(1024, 1024, 1024, 25), odd=(1024, 1000, 1000, 45)))
    cause = found["unaligned_shapes"]
    assert most(cause) == pytest.approx(45)
    assert "odd): N = 1000 (to 1024), K = 1000 (to 1024)" in cause.detail
    assert "multiples of 128" in cause.actions[0].text
    even = causes_of(tmp_path, *products(wide=(1024, 1024, 1024, 25), narrow=(1000, 1024, 1024, 45)))
    assert "unaligned_shapes" not in even  # 1000 is a multiple of 8


def test_ops_of_a_tpu_that_only_run_before_the_steps_cost_no_time_of_them(tmp_path: Path) -> None:
    text = "%before = bf16[8] fusion(bf16[8] %p)"
    stats = {"program_id": 7, "hlo_category": "loop fusion", "flops": 1_000_000, "bytes_accessed": 400_000_000}
    steps = line("Steps", *(event(str(n), 1000 + 100 * n, 100) for n in range(5)), id=1)
    ops = line("XLA Ops", event(text, 0, 800), *(event("tiny", 1000 + 100 * n, 100) for n in range(5)), id=2)
    facts = {text: stats, "tiny": {"program_id": 7, "hlo_category": "loop fusion"}}
    assert "memory_bound" not in causes_of(tmp_path, plane("/device:TPU:0", steps, ops, stats=PEAKS, name_stats=facts))


def offload(folder: Path) -> HostTrace:
    return read_back(folder, offload_tpu(Offload(steps_line=True)))


def ranges(cause: Cause) -> dict[str, tuple[float, float] | None]:
    return {each.code: None if each.step_ms is None else bounds(each.step_ms) for each in cause.actions}


def test_waiting_for_arrays_in_host_memory(tmp_path: Path) -> None:
    """Of 800 ms, cores wait for 720, and compute for 80; copies to the device are in flight for 520."""
    found = causes_in(offload(tmp_path))
    cause = found["host_copies"]
    assert bounds(cause.cost_ms) == pytest.approx((720, 720))
    assert "input_copy" not in found
    assert "output_copy" not in found
    assert "2 arrays f32[256,1024,1024] (ws[0], ws[1], 1.07 GB each) come from the host and go back" in cause.detail
    assert "2.15 GB to the TPU at 4.13 to 4.47 GB/s and 2.15 GB back at 4.47 GB/s" in cause.detail
    assert [each.row for each in cause.rests_on] == ["Host to device", "Output", "copy-done.2"]
    # Half of the bytes also may halve the time of computing. At best, the link to the device is always busy.
    after = ranges(cause)
    assert [*after] == ["keep_on_device", "halve_copies", "overlap_copies"]
    assert after["keep_on_device"] == pytest.approx((80, 80))
    assert after["halve_copies"] == pytest.approx((400, 440))
    assert after["overlap_copies"] == pytest.approx((520, 800))
    assert "2.15 GB of 33.6 GB, donated" in cause.actions[0].text


def test_arrays_without_a_name_are_counted_and_not_said_to_go_back(tmp_path: Path) -> None:
    """Names of parameters stand in the program, which is not in the profile."""
    detail = causes_in(read_back(tmp_path, offload_tpu(Offload(programs=False))))["host_copies"].detail
    assert "2 arrays f32[256,1024,1024] (1.07 GB each) come from the host in each step" in detail
    assert "2 arrays f32[256,1024,1024] (1.07 GB each) go to the host in each step" in detail
    assert "go back" not in detail


def test_the_first_screen_has_all_choices(tmp_path: Path) -> None:
    section = build(results_of(offload(tmp_path)))
    finding = next(each for each in section.findings if each.code == "host_copies")
    assert finding.level == "brief"
    after = [part.partition(" -> ")[2] for part in finding.action.split("; or ")]
    assert after == ["80.0 ms)", "400 to 440 ms)", "520 to 800 ms)"]
    assert not any("Also for host_copies" in each.text for each in section.findings)


HBM, VMEM, HOST = "f32[1024,1024]{1,0}", "f32[1024,1024]{1,0:S(1)}", "f32[1024,1024]{1,0:S(5)}"


def job(folder: Path, *ops: tuple[str, str, float, float], more: Sequence[Event] = ()) -> HostTrace:
    """Five steps of 100 us, in which a core runs ops: name, category, start and duration."""
    facts = {name: {"hlo_category": category} for name, category, _, _ in ops}
    core = a_core([event(name, *at) for name, _, *at in ops], facts)
    return trace_of(folder, core, host(event("tpu::System::Execute", 0, 1), *more))


def copy(to: str, source: str, at: float, takes: float, until: float) -> tuple[tuple[str, str, float, float], ...]:
    """A copy that begins with a short op, and is awaited for some time until it is done."""
    kinds = f"({to}, {source}, u32[]{{:S(2)}})"
    begins = (f"%copy-start = {kinds} copy-start({source} %p)", "copy-start", at, 1)
    return begins, (f"%copy-done = {to} copy-done({kinds} %copy-start)", "copy-done", until - takes, takes)


def test_arrays_that_only_go_to_the_host(tmp_path: Path) -> None:
    trace = job(tmp_path, ("fusion", "loop fusion", 0, 60), *copy(HOST, HBM, 60, 35, 100))
    cause = causes_in(trace)["host_copies"]
    assert most(cause) == pytest.approx(35)
    assert "1 array f32[1024,1024]" in cause.detail
    assert "goes to the host in each step: 4.19 MB at 105 to 120 GB/s" in cause.detail
    keep = next(each for each in cause.actions if each.code == "keep_on_device")
    assert keep.text.endswith(", if they fit")  # neither the arrays nor the memory are known
    assert keep.step_ms is None


def test_waiting_for_copies_on_the_chip(tmp_path: Path) -> None:
    trace = job(tmp_path, ("fusion", "loop fusion", 0, 60), *copy(VMEM, HBM, 60, 30, 95))
    found = causes_in(trace)
    assert "host_copies" not in found
    cause = found["chip_copies"]
    assert most(cause) == pytest.approx(30)
    assert cause.detail.startswith("1 copy, longest copy-done at 120 to 140 GB/s")
    assert ranges(cause) == {"fewer_bytes": None}


def test_batches_that_pass_through_host_memory_are_input(tmp_path: Path) -> None:
    """The host transfers as many bytes in each step."""
    transfers = repeat(5, event("tpu::System::TransferToDevice", 2, 5, size=4 << 20))
    ops = ("fusion", "loop fusion", 60, 40), *copy(HBM, HOST, 0, 50, 55)
    found = causes_in(job(tmp_path, *ops, more=transfers))
    assert "host_copies" not in found
    assert "input_copy" in found
    assert "host_copies" in causes_in(job(tmp_path, *ops))


def test_copies_that_are_done_before_they_are_awaited_cost_nothing(tmp_path: Path) -> None:
    trace = job(tmp_path, ("fusion", "loop fusion", 2, 95), *copy(HBM, HOST, 0, 1, 98))
    assert not {"host_copies", "chip_copies"} & causes_in(trace).keys()


def test_a_kernel_that_waits_for_its_blocks(tmp_path: Path) -> None:
    """Three runs of 75.75 us; the kernel marks waiting for 57.8 of them. It moves 32 MiB at least, of 54 % of HBM."""
    cause = causes_in(read_back(tmp_path, tpu_twin()))["kernel_waits"]
    assert "matmul_optimized.1 waits for 76.3% of its time, mostly in ep_wait_in" in cause.detail
    assert "its shapes imply 12.4% of the compute peak and at least 27.0% of the bandwidth" in cause.detail
    (action,) = cause.actions
    low, high = bounds(action.step_ms)
    assert high == pytest.approx(cause.step_ms)
    assert cause.step_ms - low <= bounds(cause.cost_ms)[1]
    assert [each.row for each in cause.rests_on] == ["Device compute", "ep_wait_in"]


def test_barriers_are_told_from_exchanging(tmp_path: Path) -> None:
    barriers = line("XLA TraceMe", *repeat(5, event("barrier-cores", 0, 40)), id=3)
    facts = {"all-reduce": {"hlo_category": "all-reduce"}, "fusion": {"hlo_category": "loop fusion"}}
    core = a_core([event("all-reduce", 40, 30), event("fusion", 70, 30)], facts)
    found = causes_of(tmp_path, replace(core, lines=(*core.lines, barriers)))
    assert {code: most(found[code]) for code in ("barriers", "collectives")} == {"barriers": 40, "collectives": 30}
    assert found["barriers"].detail == "devices wait at barriers, before data is exchanged"
    # Below 10%, it is part of the collectives.
    short = line("XLA TraceMe", *repeat(5, event("barrier-cores", 31, 9)), id=3)
    found = causes_of(tmp_path, replace(core, lines=(*core.lines, short)))
    assert "barriers" not in found
    assert most(found["collectives"]) == pytest.approx(39)
    assert found["collectives"].detail.endswith("; 9.0% of the step is waiting at a barrier for slower cores")


@pytest.mark.parametrize(
    ("around", "action"),
    [("", "fetch_less_often"), ("Where:Where", "omit_waiting_op"), ("while.3", "fixed_trip_count")],
)
def test_a_call_that_waits_costs_the_idle_time_after_it(tmp_path: Path, around: str, action: str) -> None:
    """A kernel runs from 30 to 70 of each step, and the thread waits from 30 to 75 before it launches the next one.

    The device is idle for 60 us between kernels, 45 of them because of the wait: 4 times in 5 steps of 100 us.
    """
    calls, work = [], []
    for n in range(5):
        calls += [event("cuLaunchKernel", 100 * n + 25, 3, correlation_id=n + 1)]
        calls += [event(around, 100 * n + 29, 50)] if around else []
        calls += [event("cuStreamSynchronize", 100 * n + 30, 45)]
        work += [event("gemm", 100 * n + 30, 40, correlation_id=n + 1)]
    found = causes_of(tmp_path, host(*STEPS, *repeat(5, event("EagerExecute", 0, 90)), *calls), gpu(*work))
    cause = found["device_sync"]
    assert bounds(cause.cost_percent) == pytest.approx((36, 36))
    assert cause.detail.startswith(f"cuStreamSynchronize in {around or 'EagerExecute'} waits once per step")
    assert cause.actions[0].code == action
    assert "waiting_for_results" not in found


def test_a_call_that_waits_for_a_busy_device_costs_nothing(tmp_path: Path) -> None:
    """The next kernel was launched before the wait, which ends while it runs."""
    calls = repeat(5, event("cuLaunchKernel", 1, 3), event("cuStreamSynchronize", 10, 80))
    found = causes_of(tmp_path, host(*STEPS, *calls), gpu(*repeat(5, event("gemm", 0, 99))))
    assert "device_sync" not in found


def test_a_program_that_nearly_fills_the_device_gets_advice_by_layer(tmp_path: Path) -> None:
    """1,512 B of the 1,500 B that JAX may use of 2,000 B: a state of 256 B twice, and temporaries of 1,000 B."""
    ops = {
        3: ("jit(step)/jvp(block_0)/mul", 100),
        4: ("jit(step)/jvp(block_1)/mul", 100),
        5: ("jit(step)/transpose(jvp(head))/dot_general", 50),
    }
    main = computation(
        "main",
        instruction(1, "state", "parameter", vector(64)),
        *(
            instruction(at, f"t{at}", "multiply", vector(size), [1, 1], extra=named(op, 1))
            for at, (op, size) in ops.items()
        ),
        instruction(6, "new", "add", vector(64), [1, 1]),
        root=6,
    )
    values = [value(11, 256, 1), *(value(10 + at, 4 * size, at) for at, (_, size) in ops.items()), value(16, 256, 6)]
    plan = (
        *(*values, allocation(256, 11, parameter=1), allocation(256, 16, live_out=1), allocation(1000, 13, 14, 15)),
        heap_trace(*((kind, at) for kind in (ALLOCATE, FREE) for at in (13, 14, 15))),
    )
    kernel = event("fusion", 10, 80, hlo_op=ref("t3"), hlo_module=ref("jit_step"), program_id=7)
    stream = line("Stream #1(Compute)", *repeat(5, kernel))
    calls = repeat(5, event("PjitFunction(step)", 0, 5))
    planes = (
        host(*marks(), *calls),
        plane("/device:GPU:0", stream, stats={"memory_size": 2000}),
        programs(id_7=program(main, buffers=message(*plan))),
    )
    cause = causes_of(tmp_path, *planes)["memory_pressure"]
    assert cause.detail == (
        "jit_step needs 1.51 kB, 100.8% of the 75% of the device's memory that JAX uses by default (threshold: 90%); "
        "activations at the peak: block_* 800 B (52.9%)"
    )
    freed = {action.code: action.text.partition("frees at most ")[2] for action in cause.actions}
    assert freed == {
        "donate_arguments": "256 B, the results with the shapes of arguments",
        "recompute_activations": "800 B, what block_* keeps for the backward pass",
        "accumulate_gradients": "400 B, half of the activations, with half of the batch",
        "halve_activations": "400 B, half of the 32-bit activations",
    }
    larger = (*planes[:1], plane("/device:GPU:0", stream, stats={"memory_size": 4000}), *planes[2:])
    assert "memory_pressure" not in causes_of(tmp_path, *larger)


def test_a_full_allocator_gets_advice_by_the_ops_of_its_tensors(tmp_path: Path) -> None:
    """950 B of 1,000 B: 350 B from before, 500 B of the forward pass in float32, 100 B of the backward pass."""
    tensors = [
        ("net/block_0/MatMul", 200), ("net/block_1/MatMul", 200), ("net/head/MatMul", 100),
        ("gradient_tape/net/head/MatMul", 100),
    ]  # fmt: skip
    in_use, events = 350, []
    for at, (op, size) in enumerate(tensors):
        in_use += size
        events.append(alloc(10 + at, size, in_use, 1000 + at, tf_op=op, data_type=1))
    cause = causes_of(tmp_path, host(*steps((OP, 50)), *events), gpu(*repeat(5, event("volta_sgemm", 50, 50))))[
        "memory_pressure"
    ]
    assert "activations at the peak: block_* 400 B (42.1%), head 100 B (10.5%)" in cause.detail
    assert [action.text.partition("frees at most ")[2].partition(",")[0] for action in cause.actions] == [
        "400 B", "250 B", "250 B", "",
    ]  # fmt: skip
    assert actions_of(cause) == [
        "recompute_activations", "accumulate_gradients", "halve_activations", "share_device_memory",
    ]  # fmt: skip
