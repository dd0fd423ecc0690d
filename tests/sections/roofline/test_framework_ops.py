"""Ops of TensorFlow on a GPU: a V100 with two steps of 1 ms, in which kernels carry the shapes of their op's inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import Event, Plane, event, host, line, plane, ref, results_of, trace_of
from msgspec.structs import replace
from places import ROOT

from tfperf.analysis.load import load
from tfperf.formats.hlo.cost_rules import Product
from tfperf.sections.roofline.analysis import Roofline, shorten
from tfperf.sections.roofline.section import build

SHARED = ROOT.parent / "shared" / "traces"
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
    events = [event("train", 1000 * n, 1000, step_num=n) for n in range(2)]
    for each in kernels:
        start = each.start_us
        call = each.stats.get("correlation_id")
        if call:
            events.append(event(str(each.stats["tf_op"]), start - 5, 3))
            events.append(event("cuLaunchKernel", start - 4, 1, correlation_id=call))
    device = plane("/device:GPU:0", line("Stream #1(Compute)", *kernels), stats=V100)
    return host(*sorted(events, key=lambda made: made.start_us)), device


def roofline_of(tmp_path: Path, *kernels: Event) -> Roofline:
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
    roofline = roofline_of(tmp_path, *both)
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
    roofline = roofline_of(
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
    roofline = roofline_of(tmp_path, *(kernel("relu", RELU, 100 * at, 50, "(half[10000000])") for at in (1, 2)))
    assert roofline.ops == ()


def test_ops_of_several_hosts_add_up(tmp_path: Path) -> None:
    traces = []
    for name in ("a", "b"):
        folder = tmp_path / name
        folder.mkdir()
        traces.append(trace_of(folder, *launched(kernel("relu", RELU, 100, 50, "(half[10000000])", 10))))
    results = results_of(*traces, sections=["roofline"])
    (row,) = results["roofline"].ops
    assert (row.op.runs, row.work.time_ps) == (2, 100_000_000)
    facts = {fact.key: fact.note for fact in build(results).facts}
    assert facts["step_bandwidth_percent"] == "of the peak, in 4 steps of 2 hosts"


def test_without_shapes_the_section_says_how_to_get_them(tmp_path: Path) -> None:
    made = launched(kernel("relu", RELU, 100, 50, "", 10))
    section = build(results_of(trace_of(tmp_path, *made), sections=["roofline"]))
    assert "--host-tracer-level 3" in section.notes[0]


@pytest.mark.skipif(not SHARED.is_dir(), reason="the real traces are not here")
def test_casts_of_a_real_trace_come_near_the_bandwidth() -> None:
    """The embeddings of BERT, float32 to float16: 30,522 * 1024 elements of 6 bytes, at 84 % of 900 GB/s."""
    roofline = load(SHARED / "gpu_8xV100_worker", sections=["roofline"])["roofline"]
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
