"""How near devices come to their peaks. A TPU states the work of instructions and its peaks, so a test can, too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders import Event, event, host, line, logdir_of, plane, results_of, trace_of
from places import SHARED
from protobytes import field, message
from tpu_twin import FLOPS, STATED_FLOPS, tpu_twin

from tfperf.analysis.load import load
from tfperf.sections.roofline.analysis import Roofline, Tensor, broadcast, bytes_of, derive, parse_shapes
from tfperf.sections.xla.instructions import HloOp

REFERENCE = SHARED / "traces" / "xla_reference"
OFFLOAD = REFERENCE.parent / "tpu_v6e"
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
    gemm = load(REFERENCE.parent / "jax_mi300x" / "jax08_gemm", sections=["roofline"])["roofline"]
    row = next(row for row in gemm.ops if row.op.program_id == 34)  # 4096 x 4096 x 4096 in bfloat16
    assert row.work.tflops_per_second == pytest.approx(918, abs=0.5)
    assert row.judged.compute_percent == pytest.approx(70, abs=0.5)
    assert (gemm.peaks.model, gemm.peaks.memory_gb_per_second) == ("AMD MI300X", 5300)
    conv = load(REFERENCE.parent / "jax_mi300x" / "jax_conv_minimal_08", sections=["roofline"])["roofline"]
    by_name = {row.op.op: row for row in conv.ops}
    assert by_name["cudnn-conv.1"].work.tflops_per_second == pytest.approx(104.4, abs=0.1)
    assert by_name["cudnn-conv.1"].judged.compute_percent == pytest.approx(8.0, abs=0.05)
    assert by_name["input_transpose_fusion"].judged.memory_percent == pytest.approx(60.2, abs=0.1)


@pytest.mark.skipif(not REFERENCE.is_dir(), reason="the references are not here")
def test_the_made_tpu_has_the_rates_that_xprof_prints() -> None:
    tpu = load(REFERENCE / "tpu_synthetic" / "tpu.xplane.pb", sections=["roofline"])["roofline"]
    fusion = next(row for row in tpu.ops if row.op.op == "fusion.2")
    assert (fusion.op.runs, fusion.work.time_ps) == (24, 60_000_000_000)
    assert fusion.work.tflops_per_second == pytest.approx(26.8468, abs=0.0001)


@pytest.mark.skipif(not OFFLOAD.is_dir(), reason="the real TPU profile is not here")
def test_bandwidth_of_the_real_tpu_profile_is_that_of_the_reference() -> None:
    expected = json.loads((OFFLOAD / "reference" / "expected.json").read_text(encoding="utf-8"))["A"]
    roofline = load(OFFLOAD / "offload", sections=["roofline"])["roofline"]
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
