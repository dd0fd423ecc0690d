"""Instructions and programs: what is known of them, by the program or by the trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import Event, Plane, event, gpu, host, host_of, line, plane, programs, ref, result_of, trace_of
from hlo_builders import F32, computation, instruction, layout, program, shape
from protobytes import field, message

from tfperf.base.arrays import EMPTY, Intervals
from tfperf.formats.hlo.hlo_proto import read_proto
from tfperf.sections.xla.analysis import Xla
from tfperf.sections.xla.instructions import HloModule, HloOp, OpCost, OpTimes, ProgramCosts, op_times, precision_of

MATRIX = shape(F32, 8, 4, layout=layout(1, 0))
SWAPPED = shape(F32, 4, 8, layout=layout(1, 0))
METADATA = message(field(1, b"Transpose"), field(2, b"model/dense/transpose"), field(3, b"train.py"), field(4, 12))
PROGRAM = program(
    computation(
        "main",
        instruction(1, "p", "parameter", MATRIX),
        instruction(2, "t.1", "transpose", SWAPPED, [1], extra=field(7, METADATA)),
        instruction(3, "c.2", "custom-call", MATRIX, [2], extra=field(28, b"__cudnn$convForward")),
        instruction(4, "g.3", "custom-call", MATRIX, [3], extra=field(28, b"__cublas$gemm")),
        instruction(5, "a.4", "custom-call", MATRIX, [3], extra=field(28, b"te_fused_attn_forward_ffi")),
        root=4,
    )
)


def run(name: str, start: float, duration: float, program_id: int = 7) -> Event:
    return event(name, start, duration, hlo_op=ref(name), hlo_module=ref("jit_step"), program_id=program_id)


def xla_of(tmp_path: Path, *events: Event, program_bytes: bytes = PROGRAM) -> Xla:
    xla: Xla = result_of(tmp_path, "xla", gpu(*events), programs(id_7=program_bytes))
    return xla


def of_name(xla: Xla, name: str) -> HloOp:
    return next(op for op in xla.ops if op.op == name)


def test_an_instruction_has_its_shapes_its_op_and_its_line(tmp_path: Path) -> None:
    op = of_name(xla_of(tmp_path, run("t.1", 0, 5)), "t.1")
    assert (op.module, op.opcode, op.category) == ("jit_step", "transpose", "data formatting")
    assert (op.shape, op.operands) == ("f32[4,8]{1,0}", "f32[8,4]{1,0}")
    assert (op.framework_op, op.layer, op.source) == ("model/dense/transpose", "dense", "train.py:12")


def test_calls_into_libraries_have_the_category_of_what_they_do(tmp_path: Path) -> None:
    xla = xla_of(tmp_path, run("c.2", 0, 5), run("g.3", 5, 5), run("a.4", 10, 5))
    assert (of_name(xla, "c.2").category, of_name(xla, "a.4").category) == ("convolution", "attention")
    assert (of_name(xla, "g.3").category, of_name(xla, "g.3").target) == ("dot", "__cublas$gemm")


def test_a_product_has_the_sizes_that_tiles_cover(tmp_path: Path) -> None:
    dims = field(30, message(field(1, b"\x01"), field(2, b"\x00")))  # rows of the left, columns of the right
    left, right = shape(F32, 8, 5), shape(F32, 5, 3)
    parameters = (instruction(1, "a", "parameter", left), instruction(2, "b", "parameter", right))
    dot = instruction(3, "dot.1", "dot", shape(F32, 8, 3), [1, 2], extra=dims)
    xla = xla_of(tmp_path, run("dot.1", 0, 5), program_bytes=program(computation("main", *parameters, dot, root=3)))
    assert of_name(xla, "dot.1").sizes == {"M": 8, "N": 3, "K": 5}


AMPERE = {"compute_cap_major": 8, "compute_cap_minor": 6}
VOLTA = {"compute_cap_major": 7, "compute_cap_minor": 0}
MI300X = {"compute_cap_major": 9, "compute_cap_minor": 4, "device_vendor": "AMD"}
MI350 = MI300X | {"compute_cap_minor": 5}
TRITON, OTHER, HIGHEST = '{"fusion_backend_config":{"kind":"__triton_gemm"}}', "", field(51, field(1, b"\x02\x02"))


@pytest.mark.parametrize(
    ("kernel", "config", "requested", "device", "precision"),
    [
        ("gemm_fusion_dot_1", TRITON, b"", AMPERE, "tf32"),
        ("gemm_fusion_dot_1", TRITON, HIGHEST, AMPERE, "fp32"),
        ("gemm_fusion_dot_1", TRITON, b"", VOLTA, "fp32"),
        ("gemm_fusion_dot_1", TRITON, b"", {}, None),  # it may be older than Ampere
        ("gemm_fusion_dot_1.kd", TRITON, b"", MI300X, "tf32"),
        ("gemm_fusion_dot_1.kd", TRITON, b"", MI350, "fp32"),  # its matrix cores do not have it
        ("loop_add_fusion", OTHER, b"", AMPERE, "fp32"),  # a generated loop
        ("cutlass_80_tensorop_s1688gemm_128x64", OTHER, b"", AMPERE, "tf32"),
        ("ampere_sgemm_128x64_nn", OTHER, b"", AMPERE, "fp32"),
        ("library_gemm", OTHER, b"", AMPERE, None),
        ("Cijk_Ailk_Bljk_SB_MT64x64_MI16x16x4x1", OTHER, b"", MI300X, "fp32"),  # matrix cores multiply float32 too
    ],
)
def test_the_format_in_which_a_gpu_multiplies_float32(
    kernel: str, config: str, requested: bytes, device: dict[str, Any], precision: str | None, tmp_path: Path
) -> None:
    dims = field(30, message(field(1, b"\x01"), field(2, b"\x00")))
    arrays = [instruction(number, f"p{number}", "parameter", shape(F32, 8, 8)) for number in (1, 2)]
    inside = computation(
        "fused",
        *arrays,
        instruction(3, "dot", "dot", shape(F32, 8, 8), [1, 2], extra=dims + requested),
        number=2,
        root=3,
    )
    fusion = instruction(4, "f.1", "fusion", shape(F32, 8, 8), [1, 2], [2], extra=field(43, config.encode()))
    made = programs(id_7=program(computation("main", *arrays, fusion, root=4), inside))
    ran = event(kernel, 0, 5, hlo_op=ref("f.1"), hlo_module=ref("jit_step"), program_id=7)
    (op,) = result_of(tmp_path, "xla", gpu(ran, **device), made).ops
    assert (op.precision, op.matrix_flops) == (precision, 2 * 8**3)


def test_a_program_ran_as_often_as_its_most_frequent_instruction(tmp_path: Path) -> None:
    (module,) = xla_of(tmp_path, run("t.1", 0, 5), run("t.1", 10, 5), run("c.2", 5, 5)).modules
    assert (module.module, module.runs, module.instructions, module.time_ps) == ("jit_step", 2, 5, 15_000_000)
    assert module.memory is None


def test_a_program_that_is_not_there_or_damaged_leaves_only_times(tmp_path: Path) -> None:
    for xla in (
        xla_of(tmp_path, run("t.1", 0, 5, program_id=9)),
        xla_of(tmp_path, run("t.1", 0, 5), program_bytes=b"\x0a\xff damaged"),
    ):
        (op,) = xla.ops
        assert (op.module, op.shape, op.opcode, op.time_ps) == ("jit_step", "", "", 5_000_000)
        assert [module.instructions for module in xla.lost] == [None]


def test_an_instruction_that_its_program_does_not_have_leaves_only_times(tmp_path: Path) -> None:
    op = of_name(xla_of(tmp_path, run("absent", 0, 5)), "absent")
    assert (op.opcode, op.runs) == ("", 1)


def test_a_tpu_writes_what_an_instruction_is_beside_its_name(tmp_path: Path) -> None:
    text = "%fusion.2 = bf16[8] fusion(bf16[8] %p)"
    stats = {
        "program_id": 9,
        "hlo_category": "convolution fusion",
        "tf_op": "jit(f)/net/dot_general:",
        "source": "train.py:3",
        "shape_with_layout": "bf16[8]{0}",
        "deduplicated_name": "fusion.1",
    }
    core = plane("/device:TPU:0", line("XLA Ops", event(text, 0, 5)), name_stats={text: stats})
    (op,) = result_of(tmp_path, "xla", core).ops
    assert (op.op, op.category, op.framework_op) == ("fusion.2", "convolution fusion", "jit(f)/net/dot_general")
    assert (op.source, op.shape, op.stands_for, op.program_id) == ("train.py:3", "bf16[8]{0}", "fusion.1", 9)


def test_rows_of_several_hosts_are_known_by_their_keys() -> None:
    op = HloOp(module="m", program_id=7, op="a", runs=1, is_estimated=False, events=1, devices=1, time_ps=1, least_ps=0)
    assert op.key == ("m", 7, "a", "")
    assert HloModule(module="m", program_id=7, runs=1, is_estimated=False, time_ps=1).key == ("m", 7)


def test_a_host_without_programs_has_nothing(tmp_path: Path) -> None:
    assert result_of(tmp_path, "xla", host(event("a", 0, 1)), programs(id_7=PROGRAM)) == Xla()


# --- when instructions ran, on each kind of device. Times in microseconds ---


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
    device = gpu(
        kernel("im2col", 50, 3, "conv.1", 1),
        kernel("gemm", 55, 7, "conv.1", 2),
        kernel("add", 65, 2, "add.2", 3),
        kernel("im2col", 70, 3, "conv.1", 4),
        kernel("gemm", 75, 7, "conv.1", 5),
        event("copy", 90, 9),
    )
    times = times_of(tmp_path, launches((1, 1), (5, 2), (21, 3), (31, 4), (35, 5)), device)
    assert times.place == "gpu"
    found = {op.key.op: (op.runs, op.events, op.time_ps, op.devices, op.is_estimated) for op in times.ops}
    assert found == {"conv.1": (2, 4, 20 * US, 1, False), "add.2": (1, 1, 2 * US, 1, False)}
    assert times.busy_ps == {7: 22 * US}


def test_without_launches_the_kernel_that_runs_most_often_counts_runs(tmp_path: Path) -> None:
    kernels = [kernel("gemm", 10 * at, 5, "conv.1", 0) for at in range(3)]
    kernels += [kernel("im2col", 100 + 10 * at, 5, "conv.1", 0) for at in range(2)]
    (op,) = times_of(tmp_path, gpu(*kernels)).ops
    assert (op.runs, op.events, op.is_estimated) == (3, 5, True)


def test_instructions_of_one_name_in_two_programs_stay_apart(tmp_path: Path) -> None:
    """Two devices run program 7, one of them also program 8."""
    first = gpu(kernel("k", 0, 5, "dot.1", 1), kernel("k", 9, 5, "dot.1", 2, program=8))
    second = gpu(kernel("k", 0, 7, "dot.1", 3), number=1)
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
    found = {(op.key.program, op.key.op): (op.runs, op.time_ps, op.devices) for op in times.ops}
    assert found == {(7, "while.6"): (2, 8 * US, 2), (7, "fusion.7"): (4, 32 * US, 2)}
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
    assert times_of(tmp_path, gpu(event("k", 0, 5))) == OpTimes(place="gpu")


def test_events_in_the_steps_that_count_are_told(tmp_path: Path) -> None:
    """Of three kernels, and of three ops of a TPU, two start between 10 and 30 us."""
    steps = Intervals(np.array([10 * US]), np.array([30 * US]))
    kernels = [kernel("k", 10 * at, 5, "a", 0) for at in range(3)]
    (op,) = times_of(tmp_path, gpu(*kernels), steps=steps).ops
    assert (op.events, op.in_steps) == (3, 2)
    core = plane("/device:TPU:0", line("XLA Ops", *(event("a", 10 * at, 5) for at in range(3))))
    (op,) = times_of(tmp_path, core, steps=steps).ops
    assert (op.events, op.in_steps) == (3, 2)


def test_the_name_is_that_of_the_longest_kernel(tmp_path: Path) -> None:
    kernels = [kernel("short", 0, 1, "a", 0), kernel("long", 5, 9, "a", 0), kernel("other", 20, 2, "b", 0)]
    trace = trace_of(tmp_path, gpu(*kernels))
    ops = op_times(trace, host_of(trace, "steps").device_work, EMPTY).ops
    assert {op.key.op: trace.names[op.name] for op in ops} == {"a": "long", "b": "other"}


# --- what a run computes and moves, by the program; the formulas are tested in tests/programs ---


BF16 = 16
CONTRACTING = field(30, message(field(1, 1), field(2, 0)))


def cost_of(name: str, *instructions: bytes, root: int, more: tuple[bytes, ...] = ()) -> OpCost:
    module = read_proto(program(*more, computation("main", *instructions, root=root)))
    return ProgramCosts(module).of(*module.by_name[name])


PRODUCT = (
    instruction(1, "a", "parameter", shape(BF16, 4, 8)),
    instruction(2, "b", "parameter", shape(BF16, 8, 2), extra=field(9, 1)),
    instruction(3, "dot", "dot", shape(F32, 4, 2), [1, 2], extra=CONTRACTING),
)


def test_a_product_is_held_against_the_peak_of_what_it_multiplies() -> None:
    """[4,8] x [8,2] in bfloat16 with a float32 result: 2*4*8*2 operations; 64 + 32 + 32 bytes."""
    assert cost_of("dot", *PRODUCT, root=3) == OpCost(128.0, 128.0, 64.0 + 32 + 32, "bf16")


def test_a_fusion_is_held_against_the_product_inside() -> None:
    inner = computation("fused", *PRODUCT, number=2, root=3)
    fusion = instruction(13, "fusion", "fusion", shape(F32, 4, 2), [11, 12], calls=[2])
    left, right = shape(BF16, 4, 8), shape(BF16, 8, 2)
    inputs = instruction(11, "p", "parameter", left), instruction(12, "q", "parameter", right, extra=field(9, 1))
    cost = cost_of("fusion", *inputs, fusion, root=13, more=(inner,))
    assert (cost.flops, cost.matrix_flops, cost.precision) == (128, 128, "bf16")


@pytest.mark.parametrize(("kind", "precision"), [(F32, "fp32"), (BF16, "fp32"), (12, "fp64")])
def test_other_work_is_held_against_the_vector_units(kind: int, precision: str) -> None:
    one = instruction(1, "a", "parameter", shape(kind, 8))
    cost = cost_of("s", one, instruction(2, "s", "add", shape(kind, 8), [1, 1]), root=2)
    assert (cost.flops, cost.matrix_flops, cost.precision) == (8, 0, precision)


def test_calls_that_nobody_knows_stay_unknown_and_loops_have_no_cost_of_their_own() -> None:
    call = instruction(1, "c", "custom-call", shape(F32, 8), extra=field(28, b"mystery"))
    body = computation("body", instruction(11, "p", "parameter", shape(F32, 8)), number=2, root=11)
    both = call, instruction(2, "w", "while", shape(F32, 8), [1], calls=[2, 2])
    assert cost_of("c", *both, root=2, more=(body,)).flops is None
    assert cost_of("w", *both, root=2, more=(body,)) == OpCost()


def test_a_program_that_cannot_be_costed_has_no_costs() -> None:
    assert cost_of("d", instruction(1, "d", "dot", shape(F32, 8)), root=1) == OpCost()


def test_types_have_the_peaks_that_devices_state() -> None:
    precisions = {"f8e4m3fn": "fp8", "f4e2m1fn": "fp4", "s8": "int8", "f16": "fp16", "s32": None, "c64": None}
    assert {name: precision_of(name) for name in precisions} == precisions
