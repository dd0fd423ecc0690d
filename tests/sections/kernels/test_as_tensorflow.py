"""Kernels as TensorFlow's own profiler adds them up. Times in microseconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import Event, Plane, event, host_of, line, plane, ref, space, trace_of
from protobytes import field, message

from tfperf.sections.kernels.analysis import Kernels
from tfperf.trace.activities import Attribution
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.read import read_host
from tfperf.trace.stat_names import DEFAULT, LINKS

DETAILS = "regs:32 static_shared:1024 dynamic_shared:0 grid:{},1,1 block:256,1,1 occ_pct:50"
OLD_DETAILS = "regs:32 shm:4096 grid:{},1,1 block:256,1,1"


def launched(name: str, start: float, duration: float, grid: int = 8) -> Event:
    return event(name, start, duration, tf_op=ref("a/MatMul:MatMul"), kernel_details=ref(DETAILS.format(grid)))


def launched_2020(name: str, start: float, duration: float, op: str, grid: int = 8) -> Event:
    stats = {"level 0": ref(op), "kernel_details": ref(OLD_DETAILS.format(grid)), "group_id": 0}
    return event(name, start, duration, **stats)


def gpu(*events: Event) -> Plane:
    return plane("/device:GPU:0", line("Stream #1", *events))


def rows(trace: HostTrace, *keys: str, attribution: Attribution = "tensorflow") -> list[tuple[Any, ...]]:
    kernels: Kernels = host_of(trace, "kernels", attribution=attribution)["kernels"]
    columns = kernels.columns()
    return list(zip(*(columns[key] for key in keys), strict=True))


def test_kernels_with_details_count_in_whole_nanoseconds(tmp_path: Path) -> None:
    """Two of 1.0009 us are 2 us there; without details a kernel does not count."""
    lonely = event("lonely", 20, 5, tf_op=ref("a:Relu"))
    trace = trace_of(tmp_path, gpu(launched("s884", 0, 1.0009), launched("s884", 10, 1.0009), lonely), links=True)
    keys = ("kernel_name", "op_name", "total_us", "is_kernel_using_tensor_core", "is_op_tensor_core_eligible")
    assert rows(trace, *keys, "grid_dim", "registers_per_thread", "shared_bytes") == [
        ("s884", "a/MatMul", 2.0, True, True, "8,1,1", 32, 1024)
    ]


def test_tensorflow_of_2020_cannot_read_launches_and_merges_them(tmp_path: Path) -> None:
    """Its grammar of names knows no `-`; its list of kernels knows no s884 of Turing."""
    op = "a/MaxPool-0-Transpose:Transpose"
    first, second = (launched_2020("turing_fp16_s884gemm", 10 * at, 5, op, grid=8 + at) for at in (0, 1))
    trace = trace_of(tmp_path, gpu(first, second), links=True)
    keys = ("op_name", "occurrences", "grid_dim", "block_dim", "registers_per_thread", "shared_bytes")
    assert rows(trace, *keys, "is_kernel_using_tensor_core") == [(op, 2, "1,1,1", "1,1,1", 0, 0, False)]
    corrected = rows(
        trace, "op_name", "occurrences", "grid_dim", "is_kernel_using_tensor_core", attribution="corrected"
    )
    assert corrected == [("a/MaxPool-0-Transpose", 1, "8,1,1", True), ("a/MaxPool-0-Transpose", 1, "9,1,1", True)]


def test_tensorflow_of_today_reads_neither_shm_nor_level_0(tmp_path: Path) -> None:
    stats = {"level 0": ref("a:MatMul"), "kernel_details": ref(OLD_DETAILS.format(8))}
    trace = trace_of(tmp_path, gpu(event("k", 0, 5, **stats)), links=True)
    assert rows(trace, "op_name", "grid_dim", "shared_bytes") == [(None, "8,1,1", 0)]


def metadata_plane() -> bytes:
    """A program with id 7, whose `dot.1` was made from `model/dense/MatMul`."""
    source = field(7, message(field(1, b"MatMul"), field(2, b"model/dense/MatMul")))
    dot = field(2, message(field(1, b"dot.1"), field(2, b"dot"), source))
    program = field(1, message(field(1, b"jit_f"), field(3, message(field(1, b"main"), dot))))
    stat = field(5, message(field(1, 1), field(6, program)))
    event_name = field(4, message(field(1, 7), field(2, message(field(2, b"jit_f(7)"), stat))))
    stat_name = field(5, message(field(1, 1), field(2, message(field(1, 1), field(2, b"Hlo Proto")))))
    return field(1, message(field(2, b"/host:metadata"), event_name, stat_name))


@pytest.mark.parametrize(
    ("attribution", "expected"),
    [
        ("tensorflow", [("model/dense/MatMul", None, True), (None, None, False)]),
        ("corrected", [("model/dense/MatMul", "dot.1", True), ("loop.9", "loop.9", False)]),
    ],
)
def test_programs_name_the_op_of_an_hlo_op(
    tmp_path: Path, attribution: Attribution, expected: list[tuple[Any, ...]]
) -> None:
    first, second = (
        event("k", 10 * at, 9 - at, hlo_op=ref(f"main::{op}"), program_id=7, kernel_details=ref(DETAILS.format(8)))
        for at, op in enumerate(("dot.1", "loop.9"))
    )
    path = tmp_path / "made.xplane.pb"
    path.write_bytes(space(gpu(first, second)) + metadata_plane())
    keys = ("op_name", "hlo_op", "is_op_tensor_core_eligible")
    assert rows(read_host(path, stats=DEFAULT | LINKS), *keys, attribution=attribution) == expected


def test_kernels_are_ordered_by_total_then_name_then_launch(tmp_path: Path) -> None:
    events = launched("b", 0, 5), launched("a", 10, 5, grid=10), launched("a", 20, 5, grid=9), launched("c", 30, 6)
    trace = trace_of(tmp_path, gpu(*events), links=True)
    assert rows(trace, "kernel", "grid_dim") == [("c", "8,1,1"), ("a", "9,1,1"), ("a", "10,1,1"), ("b", "8,1,1")]
