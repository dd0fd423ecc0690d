from __future__ import annotations

from pathlib import Path

from builders import event, host, line, plane, results_of, trace_of

from tfperf.analysis.registry import Results, View
from tfperf.base.patterns import Pattern
from tfperf.sections.ops import DEVICE_OP_PATTERNS, DEVICE_OPS, HOST_OP_PATTERNS, HOST_OPS, OP_LAYERS, OPS, TABLES


def example(tmp_path: Path) -> Results:
    gpu = plane("/device:GPU:0", line("Stream #1", event("k", 0, 30, tf_op="m/a/MatMul:MatMul"), id=1))
    thread = host(event("d/Cast:Cast", 0, 10), event("d/Mul:Mul", 80, 30))
    return results_of(trace_of(tmp_path, gpu, thread), sections=["ops"])


def repeating(tmp_path: Path) -> Results:
    """Two layers, on the device and on the host."""
    kernels = [event("k", 40 * n, 30, tf_op=f"m/layer_{n}/MatMul:MatMul") for n in range(2)]
    calls = [event(f"m/layer_{n}/MatMul:MatMul", 40 * n, 20) for n in range(2)]
    gpu = plane("/device:GPU:0", line("Stream #1", *kernels, id=1))
    return results_of(trace_of(tmp_path, gpu, host(*calls)), sections=["ops"])


def test_ops_are_those_of_both_sides(tmp_path: Path) -> None:
    data = OPS.data(example(tmp_path))
    assert data is not None
    assert list(zip(data["side"], data["rank"], data["op_name"], strict=True)) == [
        ("device", 1, "m/a/MatMul"),
        ("host", 1, "d/Mul"),
        ("host", 2, "d/Cast"),
    ]
    assert not OPS.in_report


def test_a_side_without_ops_has_no_table(tmp_path: Path) -> None:
    results = results_of(trace_of(tmp_path, host(event("d/Cast:Cast", 0, 10))), sections=["ops"])
    assert DEVICE_OPS.data(results) is None
    assert HOST_OPS.data(results) is not None


def test_without_ops_there_are_no_tables(tmp_path: Path) -> None:
    results = results_of(trace_of(tmp_path, host(event("no op", 0, 9))), sections=["ops"])
    assert [table.data(results) for table in TABLES] == [None] * len(TABLES)


def test_filters_hold_in_every_table(tmp_path: Path) -> None:
    results = example(tmp_path).seen(View(filters=(Pattern("Cast"),)))
    for table, rows in ((DEVICE_OPS, 0), (HOST_OPS, 1), (OPS, 1), (OP_LAYERS, 1)):
        data = table.data(results)
        assert data is not None
        assert len(data["rank"]) == rows


def test_patterns_are_there_only_if_ops_repeat(tmp_path: Path) -> None:
    for spec in (DEVICE_OP_PATTERNS, HOST_OP_PATTERNS):
        assert spec.data(example(tmp_path)) is None
        data = spec.data(repeating(tmp_path))
        assert data is not None
        assert (data["op_name"], data["ops"]) == (["m/layer_*/MatMul"], [2])


def test_every_column_that_is_declared_is_there(tmp_path: Path) -> None:
    results = repeating(tmp_path)
    for table in TABLES:
        data = table.data(results)
        assert data is not None
        for column in table.columns:
            values = [value for value in data[column.key] if value is not None]
            assert all(
                isinstance(value, (int, float) if column.dtype is float else column.dtype) for value in values
            ), column.key
