"""How near devices come to their peaks. A TPU states the work of instructions and its peaks, so a test can, too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders import Event, Plane, event, host, known, line, logdir_of, marks, plane, ref, results_of, trace_of
from msgspec.structs import replace
from places import TRACES
from protobytes import field, message
from real_runs import analysis_of
from tpu_twin import FLOPS, STATED_FLOPS, tpu_twin

from tfperf.analysis.load import load
from tfperf.formats.hlo.cost_rules import Product
from tfperf.sections.roofline.analysis import (
    Layers,
    OpShapes,
    OpWork,
    Roofline,
    Tensor,
    broadcast,
    bytes_of,
    derive,
    parse_shapes,
    shorten,
    work_of,
)
from tfperf.sections.roofline.section import build
from tfperf.sections.xla.instructions import HloOp

REFERENCE, OFFLOAD = TRACES / "xla_reference", TRACES / "tpu_v6e"
PEAKS = {"peak_teraflops_per_second": 100.0, "peak_hbm_bw_gigabytes_per_second": 1000.0}


class Op:
    """An instruction that runs for 1 ms at these times (in ms): work per run as the profiler of a TPU states it."""

    def __init__(self, name: str, *starts: int, category: str = "dot", tf_op: str = "", **work: Any) -> None:
        self.text = f"%{name} = bf16[8] {category}(bf16[8] %p)"
        self.stats: dict[str, Any] = {"program_id": 7, "hlo_category": category, **work}
        if tf_op:
            self.stats["tf_op"] = tf_op
        self.events = [event(self.text, 1000 * start, 1000) for start in starts]


def roofline_of(tmp_path: Path, *ops: Op, steps: tuple[Event, ...] = (), peaks: dict[str, float] = PEAKS) -> Roofline:
    core = plane(
        "/device:TPU:0",
        line("XLA Ops", *(each for op in ops for each in op.events)),
        *([line("Steps", *steps, id=9)] if steps else []),
        stats=peaks,
        name_stats={op.text: op.stats for op in ops},
    )
    return derive(results_of(trace_of(tmp_path, core), sections=["roofline"]))


def test_time_is_split_by_what_bounds_it(tmp_path: Path) -> None:
    """The ridge point is 100 flop/byte. In 1 ms the peaks are 1e11 operations and 1e9 bytes."""
    roofline = roofline_of(
        tmp_path,
        Op("big", 0, 1, flops=60_000_000_000, bytes_accessed=100_000_000),
        Op("copy", 2, category="copy", flops=0, bytes_accessed=500_000_000),
        Op("tiny", 3, flops=1_000_000, bytes_accessed=1_000_000),
        Op("call", 4, 5, category="custom-call", flops=0, bytes_accessed=0),
        Op("wait", 6, 7, 8, 9, category="infeed", flops=0, bytes_accessed=900_000_000),
    )
    assert [(row.op.op, row.judged.bound) for row in roofline.ops] == [
        ("big", "compute"),
        ("copy", "memory"),
        ("tiny", "latency"),
    ]
    assert roofline.bound_percent == {"compute": 20, "memory": 10, "latency": 10, "unknown": 60}
    assert roofline.judged_percent == 40
    assert roofline.ops[0].judged.compute_percent == pytest.approx(60)
    assert roofline.precision == "bf16"


def test_steps_count_what_runs_in_them(tmp_path: Path) -> None:
    """Two steps of 10 ms, each with 2e11 operations of 1e12 that the peak allows, and a run outside of them."""
    product: dict[str, Any] = {"flops": 100_000_000_000, "bytes_accessed": 1_000_000_000}
    roofline = roofline_of(
        tmp_path,
        Op("forward", 1, 11, 41, tf_op="jit(f)/dot_general:", **product),
        Op("backward", 2, 12, tf_op="jit(f)/transpose(jvp(g))/dot_general:", **product),
        steps=(event("1", 0, 10_000), event("2", 10_000, 10_000)),
    )
    assert roofline.step_count == 2
    assert roofline.steps.hardware == pytest.approx(20)
    assert roofline.steps.bandwidth == pytest.approx(20)
    assert roofline.steps.model == pytest.approx(20)  # three times the forward pass is more than what ran
    assert roofline.busy.hardware == pytest.approx(100)


def test_what_is_worked_out_again_is_no_work_of_the_model(tmp_path: Path) -> None:
    product: dict[str, Any] = {"flops": 10_000_000_000, "bytes_accessed": 1}
    again = Op("again", 3, tf_op="jit(f)/rematted_computation/dot_general:", **product)
    grads = [Op(f"g{at}", 4 + at, tf_op="jit(f)/transpose(jvp(g))/dot_general:", **product) for at in range(2)]
    forward = Op("forward", 2, tf_op="jit(f)/dot_general:", **product)
    roofline = roofline_of(tmp_path, forward, again, *grads, steps=(event("1", 0, 10_000),))
    assert roofline.steps.hardware == pytest.approx(4.0)  # 4e10 of 1e12
    assert roofline.steps.model == pytest.approx(3.0)


def test_without_gradients_the_model_needs_what_runs(tmp_path: Path) -> None:
    op = Op("dot", 1, flops=10_000_000_000, bytes_accessed=1)
    roofline = roofline_of(tmp_path, op, steps=(event("1", 0, 10_000),))
    assert roofline.steps.model == roofline.steps.hardware == pytest.approx(1.0)


def test_without_peaks_nothing_is_judged(tmp_path: Path) -> None:
    roofline = roofline_of(tmp_path, Op("dot", 1, flops=10, bytes_accessed=1), peaks={})
    assert roofline.bound_percent == {"unknown": 100}
    assert (roofline.busy.hardware, roofline.busy.bandwidth) == (None, None)


def test_a_host_has_no_roofline(tmp_path: Path) -> None:
    made = host(event("dot", 0, 5, hlo_op="dot", program_id=7))
    assert derive(results_of(trace_of(tmp_path, made), sections=["roofline"])) == Roofline()


def test_the_operations_of_a_kernel_that_is_a_product_are_those_of_its_shapes(tmp_path: Path) -> None:
    """The profile states those of one pass; bytes are a lower bound, so nothing tells what bounds the kernel."""
    roofline = load(logdir_of(tmp_path, tpu=tpu_twin()), sections=["roofline"])["roofline"]
    (row,) = roofline.ops
    assert isinstance(row.op, HloOp)
    assert (row.op.flops, row.op.pass_flops, row.op.bytes) == (FLOPS, STATED_FLOPS, 32 << 20)
    assert (row.op.counted_by, row.op.is_least, row.judged.bound) == ("program", True, None)
    assert row.work.tflops_per_second == pytest.approx(113.4, abs=0.05)
    assert row.judged.compute_percent == pytest.approx(12.4, abs=0.05)
    assert row.judged.memory_percent == pytest.approx(27.0, abs=0.1)
    assert (roofline.peaks.teraflops["bf16"], roofline.peaks.stated_teraflops) == (918, 946.7)
    assert roofline.bound_percent == {"unknown": 100}


def test_a_kernel_of_which_only_one_pass_is_stated_has_no_utilisation(tmp_path: Path) -> None:
    op = Op("call", 4, 5, category="custom-call", flops=1_000_000_000, bytes_accessed=0)
    roofline = roofline_of(tmp_path, op)
    assert roofline.ops == ()
    assert [(kernel.op, kernel.flops, kernel.pass_flops) for kernel in roofline.kernels] == [("call", None, 1e9)]
    assert roofline.busy.hardware is None


def test_bytes_of_hbm_are_those_of_the_breakdown_and_steps_count_copies(tmp_path: Path) -> None:
    """A copy from the host writes 4e8 bytes of HBM in 1 ms of a step of 10 ms, in which HBM could move 1e10."""
    written = message(field(1, message(field(1, 2), field(2, 1), field(3, 400_000_000)))).decode("latin-1")
    facts: dict[str, Any] = {"flops": 0, "bytes_accessed": 999_000_000}
    fusion = Op("fusion", 1, category="loop fusion", memory_access_breakdown=written.encode("latin-1"), **facts)
    copy = Op("copy-done", 3, category="copy-done", memory_access_breakdown=written.encode("latin-1"), **facts)
    roofline = roofline_of(tmp_path, fusion, copy, steps=(event("1", 0, 10_000),))
    (row,) = roofline.ops
    assert row.op.op == "fusion"
    assert row.judged.memory_percent == pytest.approx(40)
    assert roofline.busy.bandwidth == pytest.approx(40)
    assert roofline.steps.bandwidth == pytest.approx(8)


@pytest.mark.skipif(not REFERENCE.is_dir(), reason="the references are not here")
def test_the_known_answers_of_real_traces() -> None:
    gemm = analysis_of(TRACES / "jax_mi300x" / "jax08_gemm")["roofline"]
    row = next(row for row in gemm.ops if row.op.program_id == 34)  # 4096 x 4096 x 4096 in bfloat16
    assert row.work.tflops_per_second == pytest.approx(918, abs=0.5)
    assert row.judged.compute_percent == pytest.approx(70, abs=0.5)
    assert (gemm.peaks.model, gemm.peaks.memory_gb_per_second) == ("AMD MI300X", 5300)
    conv = analysis_of(TRACES / "jax_mi300x" / "jax_conv_minimal_08")["roofline"]
    by_name = {row.op.op: row for row in conv.ops}
    assert by_name["cudnn-conv.1"].work.tflops_per_second == pytest.approx(104.4, abs=0.1)
    assert by_name["cudnn-conv.1"].judged.compute_percent == pytest.approx(8.0, abs=0.05)
    assert by_name["input_transpose_fusion"].judged.memory_percent == pytest.approx(60.2, abs=0.1)


@pytest.mark.skipif(not TRACES.is_dir(), reason="the real traces are not here")
def test_attention_of_transformer_engine_on_a_real_trace() -> None:
    """2 examples, 16 heads, 2048 queries and keys, causal, width 128; backward 2.5 times forward."""
    roofline = analysis_of(TRACES / "reported" / "te_attention_mi350")["roofline"]
    calls = [row for row in roofline.ops if row.op.op.startswith("te_")]
    forward = 4 * 128 * 2 * 16 * 2048 * 2049 // 2
    flops = {row.op.op: (row.op.flops, row.op.runs, row.op.precision) for row in calls}
    assert flops == {
        **dict.fromkeys(("te_fused_attn_forward_ffi.10", "te_fused_attn_forward_ffi.15"), (forward, 5, "bf16")),
        **dict.fromkeys(("te_fused_attn_backward_ffi.12", "te_fused_attn_backward_ffi.18"), (2.5 * forward, 5, "bf16")),
    }
    assert roofline.judged_percent == pytest.approx(100)


@pytest.mark.skipif(not REFERENCE.is_dir(), reason="the references are not here")
def test_the_made_tpu_has_the_rates_that_xprof_prints() -> None:
    tpu = load(REFERENCE / "tpu_synthetic" / "tpu.xplane.pb", sections=["roofline"])["roofline"]
    fusion = next(row for row in tpu.ops if row.op.op == "fusion.2")
    assert (fusion.op.runs, fusion.work.time_ps) == (24, 60_000_000_000)
    assert fusion.work.tflops_per_second == pytest.approx(26.8468, abs=0.0001)


@pytest.mark.skipif(not OFFLOAD.is_dir(), reason="the real TPU profile is not here")
def test_bandwidth_of_the_real_tpu_profile_is_that_of_the_reference() -> None:
    expected = json.loads((OFFLOAD / "reference" / "expected.json").read_text(encoding="utf-8"))["A"]
    roofline = analysis_of(OFFLOAD / "offload")["roofline"]
    fusions = [row for row in roofline.ops if "fusion" in row.op.op]
    fusions.sort(key=lambda row: row.work.gb_per_second or 0.0)
    reference = expected["hbm_bandwidth_of_fusions"]
    assert [row.work.gb_per_second for row in fusions] == pytest.approx(reference["gb_per_s"], abs=0.01)
    assert [row.judged.memory_percent for row in fusions] == pytest.approx(reference["percent_of_peak"], abs=0.01)
    assert not [row for row in roofline.ops if row.op.op.startswith("copy")], "copies go over the link"
    assert roofline.peaks.teraflops == {"bf16": 918, "int8": 1836}
    assert roofline.peaks.stated_teraflops == expected["device"]["peak_tflops_stated"]
    assert roofline.steps.bandwidth == pytest.approx(5.0, abs=0.05)


# --- texts as TensorFlow 2.2 and 2.21 write them ---


def test_shapes_are_read_as_tensorflow_writes_them() -> None:
    assert parse_shapes("(half[4,384,1024];int32[2];;float[])") == (
        Tensor("half", (4, 384, 1024)),
        Tensor("int32", (2,)),
        None,
        Tensor("float", ()),
    )


@pytest.mark.parametrize(
    "text", ["", "half[4]", "(half[4]", "(half)", "(half[4,])", "(half[-1])", "(HALF[4])", "(f[x])"]
)
def test_anything_else_is_no_shape(text: str) -> None:
    assert parse_shapes(text) is None


def test_a_number_that_is_no_size_and_a_text_that_was_cut_are_no_shapes() -> None:
    assert parse_shapes(f"(half[{10**30}])") is None
    assert parse_shapes("(" + ";".join(["half[1]"] * 2000) + ")") is None


def test_sizes() -> None:
    assert Tensor("half", (4, 384)).bytes == 3072
    assert Tensor("float", ()).bytes == 4
    assert Tensor("string", (2,)).bytes is None
    assert bytes_of(Tensor("float", (3,)), Tensor("bool", (3,))) == 15
    assert bytes_of(Tensor("float", (3,)), Tensor("string", ())) is None


def test_shapes_of_elementwise_ops() -> None:
    assert broadcast((4, 1, 3), (5, 1), ()) == (4, 5, 3)
    assert broadcast((4,), (5,)) is None
    assert broadcast((0,), (1,)) == (0,)


# --- ops of TensorFlow on a GPU: a V100 with two steps of 1 ms; kernels carry the shapes of their op's inputs ---


V100 = {
    "compute_cap_major": 7,
    "compute_cap_minor": 0,
    "core_count": 80,
    "memory_size": 16 * 2**30,
    "memory_bandwidth": 898_000_000_000,
}
MATMUL, RELU = "model/dense/MatMul:MatMul", "model/dense/Relu:Relu"
GEMM = "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn"


def kernel(name: str, op: str, start: float, duration: float, shape: str = "", call: int = 0) -> Event:
    stats: dict[str, Any] = {"tf_op": ref(op)} if op else {}
    stats |= {"shape": ref(shape)} if shape else {}
    return event(name, start, duration, **stats, **({"correlation_id": call} if call else {}))


def launched(*kernels: Event) -> tuple[Plane, Plane]:
    """Return a host that launches each kernel inside an event of its op 5 us before it starts, and the device."""
    events = marks(2, 1000)
    for each in kernels:
        start = each.start_us
        call = each.stats.get("correlation_id")
        if call:
            events.append(event(str(each.stats["tf_op"]), start - 5, 3))
            events.append(event("cuLaunchKernel", start - 4, 1, correlation_id=call))
    device = plane("/device:GPU:0", line("Stream #1(Compute)", *kernels), stats=V100)
    return host(*sorted(events, key=lambda made: made.start_us)), device


def of_kernels(tmp_path: Path, *kernels: Event) -> Roofline:
    found: Roofline = results_of(trace_of(tmp_path, *launched(*kernels)), sections=["roofline"])["roofline"]
    return found


def test_ops_are_held_against_the_peaks(tmp_path: Path) -> None:
    """2 * 1000 * 1000 * 5000 = 1e10 operations in 100 us are 100 TFLOP/s, 80 % of 125.

    Relu: 1e7 elements of 2 bytes, in and out, in 50 us: 800 GB/s of 900. A copy takes 20, an op without shapes 30.
    """
    both = [
        kernel(name, op, start + begin, duration, shape, call and call + at)
        for at, begin in enumerate((0, 1000))
        for name, op, start, duration, shape, call in (
            (GEMM, MATMUL, 100, 100, "(half[1000,5000];half[5000,1000])", 10),
            ("relu", RELU, 300, 50, "(half[10000000])", 20),
            ("Memcpy", "", 400, 20, "", 0),
            ("other", "model/other:Other", 500, 30, "", 40),
        )
    ]
    roofline = of_kernels(tmp_path, *both)
    gemm, relu = roofline.ops
    assert (gemm.op.op, gemm.op.layer, gemm.op.runs, gemm.judged.bound) == ("model/dense/MatMul", "dense", 2, "compute")
    assert gemm.judged.compute_percent == pytest.approx(80)
    assert getattr(gemm.op, "product", None) == Product(1000, 1000, 5000)
    assert relu.judged.bound == "memory"
    assert relu.judged.memory_percent == pytest.approx(100 * 800 / 900)
    assert roofline.bound_percent == pytest.approx({"compute": 50, "memory": 25, "unknown": 25})
    assert roofline.steps.hardware == pytest.approx(100 * 2e10 / (2e-3 * 125e12))
    assert roofline.untold_percent == {}


def test_an_op_that_launches_two_kernels_ran_once(tmp_path: Path) -> None:
    shape = "(half[1000,5000];half[5000,1000])"
    host_plane, device = launched(kernel(GEMM, MATMUL, 100, 60, shape, 10), kernel("splitK", MATMUL, 160, 40, shape))
    device.lines[0].events[1].stats["correlation_id"] = 11
    found = host(*host_plane.lines[0].events, event("cuLaunchKernel", 97, 0.5, correlation_id=11))
    roofline: Roofline = results_of(trace_of(tmp_path, found, device), sections=["roofline"])["roofline"]
    (row,) = roofline.ops
    assert (row.op.runs, row.work.time_ps) == (1, 100_000_000)
    assert row.judged.compute_percent == pytest.approx(80)


def test_shapes_of_one_op_are_judged_each(tmp_path: Path) -> None:
    roofline = of_kernels(
        tmp_path,
        kernel("relu", RELU, 100, 50, "(half[10000000])", 10),
        kernel("relu", RELU, 1100, 25, "(half[1000000])", 11),
        kernel("relu", RELU, 1200, 25, "(half[1000000])", 12),
    )
    assert [(row.op.runs, row.work.bytes) for row in roofline.ops] == [(1, 4e7), (2, 8e6)]


def test_what_shapes_do_not_tell_is_counted(tmp_path: Path) -> None:
    random = "model/dropout/RandomUniform:RandomUniform"
    made = launched(
        kernel("relu", RELU, 100, 50, "(half[10000000])", 10), kernel("k", random, 200, 150, "(int32[4])", 11)
    )
    results = results_of(trace_of(tmp_path, *made), sections=["roofline"])
    assert results["roofline"].untold_percent == {"RandomUniform": pytest.approx(75)}
    assert results["roofline"].judged_percent == pytest.approx(25)
    section = build(results)
    assert section.notes == ("Input shapes do not determine the work of RandomUniform 75.0% (shares of device time).",)
    assert section.tables[0].data["shapes"] == ["(half[10000000])"]


def test_where_runs_are_not_known_nothing_is_said(tmp_path: Path) -> None:
    """Without calls of the host, nobody knows whether two kernels are one run."""
    roofline = of_kernels(tmp_path, *(kernel("relu", RELU, 100 * at, 50, "(half[10000000])") for at in (1, 2)))
    assert roofline.ops == ()


def test_ops_of_several_hosts_add_up(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, *launched(kernel("relu", RELU, 100, 50, "(half[10000000])", 10)))
    results = results_of(trace, trace, sections=["roofline"])
    (row,) = results["roofline"].ops
    assert (row.op.runs, row.work.time_ps) == (2, 100_000_000)
    facts = {fact.key: fact.note for fact in build(results).facts}
    assert facts["step_bandwidth_percent"] == "of the peak, in 4 steps of 2 hosts"


def test_without_shapes_the_section_says_how_to_get_them(tmp_path: Path) -> None:
    made = launched(kernel("relu", RELU, 100, 50, "", 10))
    section = build(results_of(trace_of(tmp_path, *made), sections=["roofline"]))
    assert section.tables == ()
    assert section.notes[0].startswith("The work of ops is unknown")
    assert "--host-tracer-level 3" in section.notes[0]


@pytest.mark.skipif(not TRACES.is_dir(), reason="the real traces are not here")
def test_casts_of_a_real_trace_come_near_the_bandwidth() -> None:
    """The embeddings of BERT, float32 to float16: 30,522 * 1024 elements of 6 bytes, at 84 % of 900 GB/s."""
    roofline = analysis_of(TRACES / "gpu_8xV100_worker")["roofline"]
    row = next(row for row in roofline.ops if row.op.op.endswith("GatherV2/Cast"))
    assert row.op.bytes == 30_522 * 1024 * 6
    assert row.judged.memory_percent == pytest.approx(84.4, abs=0.1)
    assert 70 < (roofline.judged_percent or 0.0) < 75
    assert set(roofline.untold_percent) >= {"RandomUniform"}
    assert all(row.judged.memory_percent is None or row.judged.memory_percent < 100 for row in roofline.ops)


def test_of_ops_beyond_the_first_the_bound_is_unknown(tmp_path: Path) -> None:
    ops = [kernel("relu", RELU, 100 * at, 50 - at, f"(half[{at}0000000])", at) for at in (1, 2)]
    results = results_of(trace_of(tmp_path, *launched(*ops)), sections=["roofline"])
    (host,) = results.hosts
    short = shorten(host.results["roofline"], 1)
    assert [op.shapes for op in short.ops] == ["(half[10000000])"]
    assert shorten(short, 1) is short
    cut = replace(results, hosts=(replace(host, results={**host.results, "roofline": short}),))["roofline"]
    assert cut.bound_percent == pytest.approx({"memory": 100 * 49 / 97, "unknown": 100 * 48 / 97})


# --- each formula worked by hand; the shapes are small enough for a pencil ---


def op(kind: str, shapes: str, *kernels: str, name: str = "model/layer/op", equation: str = "") -> OpShapes:
    return OpShapes(name, kind, known(parse_shapes(shapes)), equation, kernels)


def work(kind: str, shapes: str, *kernels: str, equation: str = "") -> OpWork | None:
    made = op(kind, shapes, *kernels, equation=equation)
    return work_of(made, Layers([made]))


def numbers(found: OpWork | None) -> tuple[int, int | None] | None:
    return None if found is None else (found.flops, found.bytes)


# --- products ---


def test_a_product_has_two_operations_for_each_pair() -> None:
    """64 x 128 by 128 x 32: 2 * 64 * 32 * 128 operations; 4 bytes for 8192 + 4096 + 2048 elements."""
    found = work("MatMul", "(float[64,128];float[128,32])")
    assert found == OpWork(
        flops=524_288, matrix_flops=524_288, bytes=57_344, precision="fp32", product=Product(64, 32, 128)
    )


def test_the_only_dimension_that_both_have_is_summed_over() -> None:
    """The gradient of the kernel of a dense layer: x [64,128] and dy [64,32] give 128 x 32, summed over 64."""
    found = known(work("MatMul", "(half[64,128];half[64,32])"))
    assert (found.product, found.precision, found.bytes) == (Product(128, 32, 64), "fp16", 2 * (8192 + 2048 + 4096))


def test_a_square_matrix_leaves_no_doubt_where_every_way_gives_the_same() -> None:
    assert known(work("MatMul", "(half[64,128];half[128,128])")).product == Product(64, 128, 128)


@pytest.mark.parametrize(
    ("kernel", "product"),
    [
        ("volta_fp16_s884gemm_fp16_256x128_ldg8_f2f_nt", Product(128, 128, 64)),
        ("ampere_sgemm_64x64_tn", Product(64, 64, 128)),
        ("ampere_sgemm_64x64_nn", None),  # 128 and 64 cannot be summed over
        ("gemm_kernel", None),
    ],
)
def test_two_ways_are_told_apart_by_the_kernel(kernel: str, product: Product | None) -> None:
    """Both operands are 64 x 128: a transposed gives 128 x 128, b transposed 64 x 64."""
    found = work("MatMul", "(half[64,128];half[64,128])", kernel)
    assert (found and found.product) == product


def test_products_of_a_batch_count_each() -> None:
    """4 * 16 products of 384 x 64 by 64 x 384; the batch of one operand may be 1."""
    found = known(work("BatchMatMulV2", "(half[4,16,384,64];half[1,16,64,384])", "turing_h1688gemm_128x128_nn"))
    assert found.product == Product(384, 384, 64, 64)
    assert found.flops == 2 * 384 * 384 * 64 * 64
    assert found.bytes == 2 * (4 * 16 * 384 * 64 + 16 * 64 * 384 + 64 * 384 * 384)


def test_a_bias_that_is_fused_is_read() -> None:
    assert numbers(work("_FusedMatMul", "(float[2,3];float[3,4];float[4])")) == (48, 4 * (6 + 12 + 4 + 8))


def test_the_peak_of_tf32_counts_where_the_kernel_says_so() -> None:
    kernel = "sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n"
    assert known(work("MatMul", "(float[2,3];float[3,4])", kernel)).precision == "tf32"


def test_einsum_says_what_is_summed_over() -> None:
    """abc,acd->abd: 2 products of 3 x 5 by 5 x 7."""
    found = known(work("Einsum", "(float[2,3,5];float[2,5,7])", equation="abc,acd->abd"))
    assert found.product == Product(3, 7, 5, 2)
    assert numbers(found) == (420, 4 * (30 + 70 + 42))


@pytest.mark.parametrize("equation", ["", "ab,bc", "aab,bc->ac", "...ab,bc->...ac", "ab,bc->a", "ab,bc->acd", "ab->ba"])
def test_other_equations_are_unknown(equation: str) -> None:
    assert work("Einsum", "(float[3,5];float[5,7])", equation=equation) is None


@pytest.mark.parametrize(
    "shapes", ["(float[2,3];float[4,5])", "(float[3];float[3,2])", "(float[2,3])", "(;float[2,3])"]
)
def test_products_that_do_not_fit_are_unknown(shapes: str) -> None:
    assert work("MatMul", shapes) is None


# --- convolutions: an image of 8 x 16 x 16 x 3, a kernel of 3 x 3 x 3 x 5, stride 2, so a result of 8 x 8 x 8 x 5 ---

FORWARD = op("Conv2D", "(float[8,16,16,3];float[3,3,3,5])", name="model/conv/Conv2D")
OF_INPUT = op(
    "Conv2DBackpropInput",
    "(int32[4];float[3,3,3,5];float[8,8,8,5])",
    name="gradient_tape/model/conv/Conv2D/Conv2DBackpropInput",
)
OF_KERNEL = op(
    "Conv2DBackpropFilter",
    "(float[8,16,16,3];int32[4];float[8,8,8,5])",
    name="gradient_tape/model/conv/Conv2D/Conv2DBackpropFilter",
)
CONV_FLOPS = 2 * 2560 * 27  # 8 * 8 * 8 * 5 elements, each from 3 * 3 * 3
CONV_BYTES = 4 * (6144 + 135 + 2560)


def test_a_layer_tells_what_each_of_its_convolutions_does() -> None:
    layers = Layers([FORWARD, OF_INPUT, OF_KERNEL])
    for each in (FORWARD, OF_INPUT, OF_KERNEL):
        found = known(work_of(each, layers))
        assert (found.flops, found.bytes, found.matrix_flops) == (CONV_FLOPS, CONV_BYTES, CONV_FLOPS)


def test_one_convolution_alone_does_not_tell_its_stride_but_for_the_gradient_of_the_input() -> None:
    assert work_of(FORWARD, Layers([FORWARD])) is None
    assert work_of(OF_KERNEL, Layers([OF_KERNEL])) is None
    assert numbers(work_of(OF_INPUT, Layers([OF_INPUT]))) == (CONV_FLOPS, None)


def test_convolutions_of_the_first_layer_and_of_graphs_go_together_too() -> None:
    assert numbers(work_of(FORWARD, Layers([FORWARD, OF_KERNEL]))) == (CONV_FLOPS, CONV_BYTES)
    old = OF_KERNEL._replace(name="gradients/model/conv/Conv2D_grad/Conv2DBackpropFilter")
    assert numbers(work_of(FORWARD, Layers([FORWARD, old]))) == (CONV_FLOPS, CONV_BYTES)


def test_layers_that_ran_with_two_sizes_of_result_are_not_mixed() -> None:
    """Of two gradients for one image, nothing says which the forward op has; those of other images do not count."""
    inputs = known(parse_shapes("(float[8,16,16,3];int32[4];float[8,16,16,5])"))
    assert work_of(FORWARD, Layers([FORWARD, OF_KERNEL, OF_KERNEL._replace(inputs=inputs)])) is None
    smaller = known(parse_shapes("(float[2,16,16,3];int32[4];float[2,8,8,5])"))
    layers = Layers([FORWARD, OF_KERNEL, OF_KERNEL._replace(inputs=smaller)])
    assert numbers(work_of(FORWARD, layers)) == (CONV_FLOPS, CONV_BYTES)


def test_another_layer_does_not_tell() -> None:
    assert work_of(FORWARD._replace(name="model/conv_2/Conv2D"), Layers([FORWARD, OF_KERNEL])) is None


def test_groups_read_some_of_the_channels_only() -> None:
    """4 groups: each of 8 results of 2 x 2 is from 3 x 3 x 1 elements."""
    made = op("Conv2DBackpropInput", "(int32[4];float[3,3,1,8];float[1,2,2,8])")
    assert numbers(work_of(made, Layers([made]))) == (2 * 32 * 9, None)


def test_depthwise_convolutions_read_one_channel() -> None:
    """A kernel of 3 x 3, 4 channels, 2 for each: 8 channels of 5 x 5 in the result."""
    made = op("DepthwiseConv2dNativeBackpropInput", "(int32[4];float[3,3,4,2];float[1,5,5,8])")
    assert numbers(work_of(made, Layers([made]))) == (2 * 200 * 9, None)
    forward = op("DepthwiseConv2dNative", "(float[1,5,5,4];float[3,3,4,2])", name="m/d/depthwise")
    of_kernel = op(
        "DepthwiseConv2dNativeBackpropFilter",
        "(float[1,5,5,4];int32[4];float[1,5,5,8])",
        name="gradient_tape/m/d/depthwise/DepthwiseConv2dNativeBackpropFilter",
    )
    assert numbers(work_of(forward, Layers([forward, of_kernel]))) == (3600, 4 * (100 + 72 + 200))


def test_a_gradient_without_the_channels_of_the_kernel_is_unknown() -> None:
    assert work("Conv2DBackpropInput", "(int32[4];float[3,3,3,5];float[8,8,8,6])") is None


# --- other ops ---

HALF_TO_FLOAT = "EigenMetaKernel<TensorAssignOp<TensorMap<Tensor<float>>, Eigen::TensorConversionOp<float, half const>>"
FLOAT_TO_HALF = "void EigenMetaKernel<Eigen::TensorConversionOp<Eigen::half, Eigen::TensorMap<Eigen::Tensor<float const"


@pytest.mark.parametrize(
    ("kind", "shapes", "kernel", "expected"),
    [
        ("Relu", "(float[2,3])", "", (6, 48)),
        ("Tanh", "(float[2,3])", "", (0, 48)),
        ("AddV2", "(half[4,1];half[3])", "", (12, 2 * (4 + 3 + 12))),
        ("Mul", "(half[4,16,384,384];half[])", "", (9_437_184, 2 * (2 * 9_437_184 + 1))),
        ("GreaterEqual", "(half[10];half[])", "", (10, 20 + 2 + 10)),
        ("SelectV2", "(bool[10];float[10];float[])", "", (10, 10 + 40 + 4 + 40)),
        ("Cast", "(half[10])", HALF_TO_FLOAT, (10, 20 + 40)),
        ("Cast", "(float[30522,1024])", FLOAT_TO_HALF, (31_254_528, 6 * 31_254_528)),
        ("Cast", "(float[10])", "Cast_GPU_DT_FLOAT_DT_HALF_kernel", (10, 40 + 20)),
        ("Cast", "(float[10])", "some_kernel", None),
        ("BiasAdd", "(float[8,4,4,3];float[3])", "", (384, 4 * (384 + 3 + 384))),
        ("BiasAdd", "(float[8,4];float[3])", "", None),
        ("SquaredDifference", "(float[5];float[5])", "", (10, 60)),
        ("TanhGrad", "(float[5];float[5])", "", (15, 60)),
        ("AddN", "(float[5];float[5];float[5])", "", (10, 80)),
        ("AddN", "(float[5];float[6])", "", None),
        ("Softmax", "(float[2,5])", "", (40, 80)),
        ("Transpose", "(half[2,5];int32[2])", "", (0, 20 + 8 + 20)),
        # x and y of 40 elements, scale, offset, and two empty ones for what runs along
        ("FusedBatchNormV3", "(float[2,2,2,5];float[5];float[5];float[0];float[0])", "", (240, 4 * (40 + 10 + 40))),
        ("FusedBatchNormV3", "(float[2,2,2,5];float[5];float[5];float[5];float[5])", "", None),
        (
            "FusedBatchNormGradV3",
            "(float[2,2,2,5];float[2,2,2,5];float[5];float[5];float[5];float[])",
            "",
            (360, 4 * (40 + 40 + 15 + 1 + 40)),
        ),
        ("RandomUniform", "(int32[4])", "", None),
        ("Sum", "(float[4,5];int32[1])", "", None),
        ("ResourceApplyAdam", "(;;;float[];float[4])", "", None),
        ("GatherV2", "(float[4,5];int32[3];int32[])", "", None),
    ],
)
def test_other_ops(kind: str, shapes: str, kernel: str, expected: tuple[int, int] | None) -> None:
    assert numbers(work(kind, shapes, kernel)) == expected


def test_float64_has_a_peak_of_its_own() -> None:
    assert known(work("Mul", "(double[4];double[4])")).precision == "fp64"
