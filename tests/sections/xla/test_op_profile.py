"""The op profile: sums, rates and wasted time of a tree of HLO ops, by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import event, gpu, ref, results_of, trace_of
from msgspec.structs import replace

from tfperf.sections.xla import OP_PROFILE
from tfperf.sections.xla.analysis import Xla
from tfperf.sections.xla.instructions import HloModule, HloOp
from tfperf.sections.xla.op_profile import OUTSIDE, op_profile
from tfperf.sections.xla.section import build
from tfperf.trace.device.device_peaks import DevicePeaks

US = 1_000_000
PEAKS = DevicePeaks(teraflops={"fp32": 1.0}, memory_gb_per_second=100.0)
"""10^6 operations, or 10^5 bytes, per microsecond."""


def op(name: str, category: str, time_us: int, **facts: Any) -> HloOp:
    usual: dict[str, Any] = {
        "module": "jit_f",
        "program_id": 7,
        "runs": 1,
        "is_estimated": False,
        "events": 1,
        "least_ps": None,
    }
    return HloOp(**{**usual, "op": name, "category": category, "devices": 1, "time_ps": time_us * US, **facts})


PRODUCT = op(
    "dot.1",
    "dot",
    40,
    flops=2e7,
    bytes=1e5,
    precision="fp32",
    framework_op="jit(f)/jit(main)/net/dense/dot_general",
    layer="net",
)
"""Compute-bound: 20 us at the peak, so it reaches 50% and wastes 20 us."""
SUM = op("fusion.2", "loop fusion", 20, flops=0.0, bytes=1.5e6, precision="fp32", framework_op="jit(f)/net/add")
"""Memory-bound: 15 us at the bandwidth, 5 wasted."""
AGAIN = op("fusion.3", "loop fusion", 10, framework_op="jit(f)/rematted_computation/net/add")
"""Without known work."""
OTHER = op("copy.1", "data formatting", 10, module="jit_g", program_id=8)
XLA = Xla(
    place="gpu",
    ops=(PRODUCT, SUM, AGAIN, OTHER),
    modules=tuple(
        HloModule(module=name, program_id=number, runs=1, is_estimated=False, time_ps=time_us * US)
        for name, number, time_us in (("jit_f", 7, 70), ("jit_g", 8, 10))
    ),
    whole_ps=100 * US,
    peaks=PEAKS,
    device_count=1,
)


def test_nodes_add_up_their_ops() -> None:
    """20 of 100 us are outside of programs; the 60 us with known work take 35 at the roofline."""
    nodes = op_profile(XLA, "pattern")
    assert [(node.depth, node.name, node.kind, node.time_ps // US) for node in nodes] == [
        (0, "jit_f", "program", 70),
        (1, "dot", "category", 40),
        (2, "dot.1", "op", 40),
        (1, "loop fusion", "category", 30),
        (2, "fusion.2", "op", 20),
        (2, "fusion.3", "op", 10),
        (0, OUTSIDE, "outside", 20),
        (0, "jit_g", "program", 10),
        (1, "data formatting", "category", 10),
        (2, "copy.1", "op", 10),
    ]
    program, product, _, fusions, *_ = nodes
    assert (program.ops, program.recomputed_ps, program.judged_ps) == (3, 10 * US, 60 * US)
    assert program.wasted_ps == pytest.approx(25 * US)
    assert product.wasted_ps == pytest.approx(20 * US)
    assert fusions.wasted_ps == pytest.approx(5 * US)
    assert (program.flops, program.flops_ps) == (2e7, 60 * US)
    assert (fusions.bytes, fusions.bytes_ps) == (1.5e6, 20 * US)


def test_scopes_and_layers_take_the_place_of_categories() -> None:
    by_scope = [(node.depth, node.name) for node in op_profile(XLA, "scope") if node.path[0] == "jit_f"]
    assert by_scope == [
        (0, "jit_f"),
        (1, "net"),
        (2, "dense"),
        (3, "dot.1"),
        (2, "fusion.2"),
        (1, "rematted_computation"),
        (2, "net"),
        (3, "fusion.3"),
    ]
    assert {node.name for node in op_profile(XLA, "layer") if node.kind == "layer"} >= {"net", "(no scope)"}


def test_scopes_of_both_passes_are_one() -> None:
    names = ("jit(f)/jvp(head)/dot_general", "jit(f)/transpose(jvp(head))/dot_general", "jit(f)/vmap(jvp())/head/mul")
    ops = tuple(op(f"f.{at}", "loop fusion", 10, framework_op=name) for at, name in enumerate(names))
    scopes = [(node.name, node.time_ps // US) for node in op_profile(replace(XLA, ops=ops), "scope") if node.depth == 1]
    assert scopes == [("head", 30)]


def test_programs_of_one_name_and_ops_of_one_name_are_apart() -> None:
    same = [op("a", "dot", 10), op("a", "dot", 5, program_id=8), op("a", "dot", 3, shape="f32[8]")]
    modules = [HloModule(module="jit_f", program_id=number, runs=1, is_estimated=False, time_ps=1) for number in (7, 8)]
    xla = Xla(place="gpu", ops=tuple(same), modules=tuple(modules), whole_ps=18 * US)
    nodes = op_profile(xla, "pattern")
    assert [(node.name, node.time_ps // US) for node in nodes if node.kind == "program"] == [
        ("jit_f (7)", 13),
        ("jit_f (8)", 5),
    ]
    assert [(node.name, node.time_ps // US) for node in nodes if node.kind == "op"] == [("a", 10), ("a", 3), ("a", 5)]


def test_people_get_the_largest_nodes_with_those_around_them(tmp_path: Path) -> None:
    facts = {"hlo_module": ref("f"), "program_id": 7}
    many = [event("k", 200 * at, 100 + at, hlo_op=ref(f"fusion.{at}"), **facts) for at in range(30)]
    tiny = event("k", 9000, 1, hlo_op=ref("tiny"), **facts)
    results = results_of(trace_of(tmp_path, gpu(*many, tiny)), sections=["xla"])
    table = next(table for table in build(results).tables if table.name == "op_profile")
    shown = [table.data["node"][row] for row in table.rows_for_people or ()]
    assert shown == ["f", "(unknown category)", *(f"fusion.{at}" for at in range(29, 7, -1))]
    assert table.note_for_people.startswith("The 24 longest of 33 rows")


def test_the_table_has_rates_only_if_work_is_known(tmp_path: Path) -> None:
    kernel = event("k", 0, 6, hlo_op=ref("a"), hlo_module=ref("f"), program_id=7)
    results = results_of(trace_of(tmp_path, gpu(kernel, event("MemcpyD2H", 10, 4))), sections=["xla"])
    table = next(table for table in build(results).tables if table.name == "op_profile")
    assert [*table.data["node"]] == ["f", "(unknown category)", "a", OUTSIDE]
    assert [*table.data["percent"]] == [60, 60, 60, 40]
    assert [*table.data["wasted_ms"]] == [None] * 4
    brief = {column.key for column in table.columns if column.level == "brief"}
    assert brief == {"node", "total_ms", "percent"}
    whole = OP_PROFILE.build(results)
    assert whole is not None
    assert len(whole) == 4
