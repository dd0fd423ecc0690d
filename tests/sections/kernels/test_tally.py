"""A kernel by op and launch is one row, also as TensorFlow adds kernels up. Times in microseconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import Event, Plane, event, host_of, line, plane, ref, space, trace_of
from protobytes import field, message

from tfperf.sections.kernels.analysis import Kernels
from tfperf.trace.host.activities import Attribution
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.known_stats import DEFAULT, LINKS
from tfperf.trace.read import read_host

DETAILS = "regs:32 static_shared:1024 dynamic_shared:0 grid:{},1,1 block:256,1,1 occ_pct:50"
OLD_DETAILS = "regs:32 shm:4096 grid:{},1,1 block:256,1,1"


def launched(name: str, start: float, duration: float, op: str = "a/MatMul:MatMul", grid: int = 8) -> Event:
    """A kernel as writers of today note it."""
    return event(name, start, duration, tf_op=ref(op), kernel_details=ref(DETAILS.format(grid)))


def launched_2020(name: str, start: float, duration: float, op: str, grid: int = 8) -> Event:
    stats = {"level 0": ref(op), "kernel_details": ref(OLD_DETAILS.format(grid)), "group_id": 0}
    return event(name, start, duration, **stats)


def gpu(*events: Event, number: int = 0, **stats: Any) -> Plane:
    return plane(f"/device:GPU:{number}", line("Stream #1", *events), stats=stats)


def kernels_of(tmp_path: Path, *planes: Plane) -> Kernels:
    kernels: Kernels = host_of(trace_of(tmp_path, *planes), "kernels")["kernels"]
    return kernels


def rows(kernels: Kernels, *keys: str) -> list[tuple[Any, ...]]:
    columns = kernels.columns()
    return list(zip(*(columns[key] for key in keys), strict=True))


def test_a_row_is_a_kernel_an_op_and_a_launch(tmp_path: Path) -> None:
    kernels = kernels_of(
        tmp_path,
        gpu(
            launched("gemm", 0, 10),
            launched("gemm", 10, 20),
            launched("gemm", 30, 5, grid=4),
            launched("gemm", 40, 4, op="b/MatMul:MatMul"),
            launched("bias", 50, 3),
        ),
    )
    keys = ("rank", "kernel", "op_name", "grid_dim", "occurrences", "total_us", "mean_us", "min_us", "max_us")
    assert rows(kernels, *keys) == [
        (1, "gemm", "a/MatMul", "8,1,1", 2, 30, 15, 10, 20),
        (2, "gemm", "a/MatMul", "4,1,1", 1, 5, 5, 5, 5),
        (3, "gemm", "b/MatMul", "8,1,1", 1, 4, 4, 4, 4),
        (4, "bias", "a/MatMul", "8,1,1", 1, 3, 3, 3, 3),
    ]
    sizes = ("registers_per_thread", "static_shared_bytes", "dynamic_shared_bytes", "shared_bytes", "block_dim")
    assert rows(kernels, *sizes, "occupancy_percent")[0] == (32, 1024, 0, 1024, "256,1,1", 50.0)


def test_kernels_without_details_or_op_count_and_copies_do_not(tmp_path: Path) -> None:
    events = [event("lonely", 0, 10), event("ncclAllReduce", 10, 5), event("MemcpyH2D", 20, 9)]
    kernels = kernels_of(tmp_path, gpu(*events))
    keys = ("kernel_name", "op_name", "grid_dim", "registers_per_thread", "shared_bytes", "occupancy_percent")
    assert rows(kernels, *keys, "is_op_tensor_core_eligible") == [
        ("lonely", None, None, None, None, None, None),
        ("ncclAllReduce", None, None, None, None, None, None),
    ]


def test_xla_shows_both_ops(tmp_path: Path) -> None:
    ops = {"hlo_op": ref("gemm_fusion_dot.1"), "hlo_module": ref("jit_f"), "tf_op": ref("model/dense/MatMul:MatMul")}
    kernels = kernels_of(tmp_path, gpu(event("gemm_fusion_dot_1", 0, 10, **ops)))
    keys = ("op_name", "op_type", "hlo_op", "hlo_module", "is_op_tensor_core_eligible", "is_kernel_using_tensor_core")
    assert rows(kernels, *keys) == [("model/dense/MatMul", "MatMul", "gemm_fusion_dot.1", "jit_f", True, None)]


def test_old_files_hold_shared_memory_as_one_number(tmp_path: Path) -> None:
    """32 registers, 256 threads and 4 KiB on a Volta: eight blocks fit."""
    volta = gpu(launched_2020("k", 0, 10, "a/b:Relu"), compute_cap_major=7, compute_cap_minor=0)
    keys = ("static_shared_bytes", "dynamic_shared_bytes", "shared_bytes", "occupancy_percent", "op_type")
    assert rows(kernels_of(tmp_path, volta), *keys) == [(None, None, 4096, 100.0, "Relu")]


def test_occupancy_is_unknown_where_devices_differ(tmp_path: Path) -> None:
    """Both hold all of 32 registers; of 64, one holds 32 of 64 warps, the other 32 of 48."""
    few_registers, many_registers = (OLD_DETAILS.replace("regs:32", f"regs:{count}").format(8) for count in (32, 64))
    for details, percent in ((few_registers, 100.0), (many_registers, None)):
        devices = [
            gpu(
                event("k", 0, 10, kernel_details=ref(details)),
                number=minor,
                compute_cap_major=8,
                compute_cap_minor=minor,
            )
            for minor in (0, 6)
        ]
        assert rows(kernels_of(tmp_path, *devices), "occurrences", "occupancy_percent") == [(2, percent)]


def test_an_einsum_is_judged_by_its_equation(tmp_path: Path) -> None:
    product = event("k", 0, 5, tf_op=ref("e0:Einsum"), equation=ref("ab,bc->ac"))
    transpose = event("k", 10, 4, tf_op=ref("e1:Einsum"), equation=ref("ab->ba"))
    assert rows(kernels_of(tmp_path, gpu(product, transpose)), "is_op_tensor_core_eligible") == [(True,), (False,)]


# --- as TensorFlow's own profiler adds them up ---


def tensorflow_rows(trace: HostTrace, *keys: str, attribution: Attribution = "tensorflow") -> list[tuple[Any, ...]]:
    kernels: Kernels = host_of(trace, "kernels", attribution=attribution)["kernels"]
    columns = kernels.columns()
    return list(zip(*(columns[key] for key in keys), strict=True))


def test_kernels_with_details_count_in_whole_nanoseconds(tmp_path: Path) -> None:
    """Two of 1.0009 us are 2 us there; without details a kernel does not count."""
    lonely = event("lonely", 20, 5, tf_op=ref("a:Relu"))
    trace = trace_of(tmp_path, gpu(launched("s884", 0, 1.0009), launched("s884", 10, 1.0009), lonely), links=True)
    keys = ("kernel_name", "op_name", "total_us", "is_kernel_using_tensor_core", "is_op_tensor_core_eligible")
    assert tensorflow_rows(trace, *keys, "grid_dim", "registers_per_thread", "shared_bytes") == [
        ("s884", "a/MatMul", 2.0, True, True, "8,1,1", 32, 1024)
    ]


def test_tensorflow_of_2020_cannot_read_launches_and_merges_them(tmp_path: Path) -> None:
    """Its grammar of names knows no `-`; its list of kernels knows no s884 of Turing."""
    op = "a/MaxPool-0-Transpose:Transpose"
    first, second = (launched_2020("turing_fp16_s884gemm", 10 * at, 5, op, grid=8 + at) for at in (0, 1))
    trace = trace_of(tmp_path, gpu(first, second), links=True)
    keys = ("op_name", "occurrences", "grid_dim", "block_dim", "registers_per_thread", "shared_bytes")
    assert tensorflow_rows(trace, *keys, "is_kernel_using_tensor_core") == [(op, 2, "1,1,1", "1,1,1", 0, 0, False)]
    corrected = tensorflow_rows(
        trace, "op_name", "occurrences", "grid_dim", "is_kernel_using_tensor_core", attribution="corrected"
    )
    assert corrected == [("a/MaxPool-0-Transpose", 1, "8,1,1", True), ("a/MaxPool-0-Transpose", 1, "9,1,1", True)]


def test_tensorflow_of_today_reads_neither_shm_nor_level_0(tmp_path: Path) -> None:
    stats = {"level 0": ref("a:MatMul"), "kernel_details": ref(OLD_DETAILS.format(8))}
    trace = trace_of(tmp_path, gpu(event("k", 0, 5, **stats)), links=True)
    assert tensorflow_rows(trace, "op_name", "grid_dim", "shared_bytes") == [(None, "8,1,1", 0)]


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
    assert tensorflow_rows(read_host(path, stats=DEFAULT | LINKS), *keys, attribution=attribution) == expected


def test_kernels_are_ordered_by_total_then_name_then_launch(tmp_path: Path) -> None:
    events = launched("b", 0, 5), launched("a", 10, 5, grid=10), launched("a", 20, 5, grid=9), launched("c", 30, 6)
    trace = trace_of(tmp_path, gpu(*events), links=True)
    assert tensorflow_rows(trace, "kernel", "grid_dim") == [
        ("c", "8,1,1"),
        ("a", "9,1,1"),
        ("a", "10,1,1"),
        ("b", "8,1,1"),
    ]
