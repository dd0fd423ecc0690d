from __future__ import annotations

from pathlib import Path

import pytest
from builders import Plane, event, host, line, plane, ref, trace_of

from tfperf.analyzers import ops
from tfperf.analyzers.ops import OpTable

US = 1_000_000


def rows(table: OpTable | None) -> list[tuple[str, str, int, float, float]]:
    """(name, type, occurrences, total us, self us)"""
    assert table is not None
    columns = zip(table.names, table.types, table.occurrences, table.total_ps / US, table.self_ps / US, strict=True)
    return [(name, kind, int(count), float(total), float(own)) for name, kind, count, total, own in columns]


def test_host_ops_nest_and_are_sorted_by_self_time(tmp_path: Path) -> None:
    made = plane(
        "/host:CPU",
        line(
            "a",
            event("wrapper", 0, 100),
            event("Iterator::Root", 0, 50),
            event("Iterator::Root::Map", 10, 30),
            event("d/MatMul:MatMul", 60, 25),
        ),
        line("b", event("d/MatMul:MatMul", 0, 30)),
    )
    assert rows(ops.analyze(trace_of(tmp_path, made)).host) == [
        ("d/MatMul", "MatMul", 2, 55, 55),
        ("Iterator::Root::Map", "Dataset", 1, 30, 30),
        ("Iterator::Root", "Dataset", 1, 50, 20),
    ]


def gpu() -> Plane:
    """Two kernels of one op, spelled as old and as new writers do; a copy without op, a kernel without op."""
    return plane(
        "/device:GPU:0",
        line(
            "Stream #1(Compute)", event("sgemm", 0, 10, **{"level 0": ref("d/MatMul:MatMul")}),
            event("sgemm", 10, 10, tf_op=ref("d/MatMul:MatMul")), event("bias", 20, 4, tf_op="d/MatMul:MatMul"),
            event("lonely", 24, 6), id=1,
        ),
        line("Stream #2(MemcpyH2D)", event("MemcpyH2D", 0, 8), id=2),
        line("TensorFlow Ops", event("MatMul", 0, 24), id=-559038734),
    )  # fmt: skip


def test_kernels_are_summed_by_the_op_that_launched_them(tmp_path: Path) -> None:
    found = ops.analyze(trace_of(tmp_path, gpu())).device
    assert rows(found) == [
        ("d/MatMul", "MatMul", 2, 24, 24),
        ("MemcpyH2D", "MemcpyH2D", 1, 8, 8),
        ("lonely", "kernel without op", 1, 6, 6),
    ]
    assert found is not None
    assert found.columns()["cumulative_self_percent"] == pytest.approx([100 * 24 / 38, 100 * 32 / 38, 100.0])


def test_tensorflow_counts_only_kernels_with_an_op(tmp_path: Path) -> None:
    found = ops.analyze(trace_of(tmp_path, gpu(), links=True, instants=True), "tensorflow")
    assert rows(found.device) == [("d/MatMul", "MatMul", 2, 24, 24)]


def test_tpu_ops_nest(tmp_path: Path) -> None:
    made = plane(
        "/device:TPU:0", line("XLA Ops", event("while.1", 0, 100), event("fusion.2", 10, 60), id=1),
        name_stats={"while.1": {"hlo_category": "while"}, "fusion.2": {"hlo_category": ref("convolution fusion")}},
    )  # fmt: skip
    assert rows(ops.analyze(trace_of(tmp_path, made)).device) == [
        ("fusion.2", "convolution fusion", 1, 60, 60),
        ("while.1", "while", 1, 100, 40),
    ]


def test_hosts_are_added_up(tmp_path: Path) -> None:
    one = ops.analyze(trace_of(tmp_path, host(event("A:A", 0, 10), event("B:B", 10, 15))))
    two = ops.analyze(trace_of(tmp_path, host(event("A:A", 0, 10))))
    assert rows(ops.combine([one, two]).host) == [("A", "A", 2, 20, 20), ("B", "B", 1, 15, 15)]
    assert ops.combine([one, two]).device is None


def test_a_device_with_derived_lines_only_has_no_ops(tmp_path: Path) -> None:
    made = plane("/device:GPU:0", line("TensorFlow Ops", event("MatMul", 0, 24), id=-559038734))
    assert rows(ops.analyze(trace_of(tmp_path, made)).device) == []
