"""The tables about kernels, as JSON, CSV, SQL and limits have them. Times in microseconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import Event, Plane, event, host, line, plane, ref, results_of, trace_of, u64

from tfperf.analysis.registry import TableSpec
from tfperf.report.model import Data
from tfperf.sections.kernels import (
    ASYNC_COPIES,
    COMPUTE_PRECISION,
    COPIES,
    DEVICE_TIME,
    KERNEL_REGIONS,
    KERNELS,
    KERNELS_BY_NAME,
    LAUNCHES,
    TABLES,
)


def gpu(*events: Event) -> Plane:
    return plane("/device:GPU:0", line("Stream #1", *events))


def data(tmp_path: Path, table: TableSpec, *planes: Plane) -> Data:
    columns = table.data(results_of(trace_of(tmp_path, *planes), sections=["kernels"]))
    assert columns is not None
    return columns


def values(columns: Data, *keys: str) -> list[Any]:
    return [list(columns[key]) for key in keys]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_tables_hold_the_declared_columns(tmp_path: Path, table: TableSpec) -> None:
    events = [event("k", 0, 5, correlation_id=u64(1), tf_op=ref("a:Relu")), event("MemcpyH2D", 10, 5)]
    device = gpu(*events)
    if table is ASYNC_COPIES:
        device = plane("/device:TPU:0", line("XLA Ops", event("copy-start", 0, 1), event("copy-done", 9, 1)))
    if table is KERNEL_REGIONS:
        marks = line("XLA TraceMe", event("ep_wait_in", 2, 5), id=2)
        device = plane("/device:TPU:0", line("XLA Ops", event("%mine = f32[8] custom-call()", 0, 9), id=1), marks)
    columns = data(tmp_path, table, host(event("cuLaunch", 0, 2, correlation_id=u64(1))), device)
    for column in table.columns:
        (value,) = columns[column.key]
        assert value is None or isinstance(value, column.dtype), column.key
    assert table.name_key in columns


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_profile_without_device_has_none_of_them(tmp_path: Path, table: TableSpec) -> None:
    assert table.data(results_of(trace_of(tmp_path, host(event("f", 0, 10))), sections=["kernels"])) is None


def test_what_a_device_did_not_do_has_no_table(tmp_path: Path) -> None:
    copies_only = results_of(trace_of(tmp_path, gpu(event("MemcpyH2D", 0, 10))), sections=["kernels"])
    assert [table.name for table in TABLES if table.data(copies_only) is not None] == ["copies", "device_time"]
    kernels_only = results_of(trace_of(tmp_path, gpu(event("k", 0, 10))), sections=["kernels"])
    assert COPIES.data(kernels_only) is None
    assert KERNELS.data(kernels_only) is not None


def test_kernels_in_microseconds_and_by_name_in_milliseconds(tmp_path: Path) -> None:
    events = [event("void f<int>(int)", 0, 10), event("void f<int>(int)", 20, 30)]
    columns = data(tmp_path, KERNELS, gpu(*events))
    assert values(columns, "kernel", "kernel_name", "total_us", "percent") == [["f"], ["void f<int>(int)"], [40], [100]]
    assert values(data(tmp_path, KERNELS_BY_NAME, gpu(*events)), "kernel", "total_ms") == [["f"], [0.04]]


def test_the_rate_of_copies_has_three_digits(tmp_path: Path) -> None:
    columns = data(tmp_path, COPIES, gpu(event("MemcpyH2D", 0, 30, memcpy_details=ref("size:100000"))))
    assert values(columns, "gb_per_second", "total_ms", "total_bytes") == [[3.33], [0.03], [100_000]]


def test_launches_in_the_units_of_their_keys(tmp_path: Path) -> None:
    """A step with a call of 5 us; its kernel starts 7 us after the end of the call, and takes 8 us."""
    call = event("cuLaunch", 10, 5, correlation_id=u64(1))
    events = gpu(event("k", 22, 8, correlation_id=u64(1)))
    columns = data(tmp_path, LAUNCHES, host(event("train", 0, 100, step_num=0), call), events)
    keys = ("step_calls_ms", "call_median_us", "delay_median_us", "queued_max_us", "unqueued_percent")
    assert values(columns, *keys) == [[0.005], [5], [7], [0], [100]]
    assert values(columns, "kernels_per_step", "tiny_kernel_percent", "tiny_time_percent") == [[1], [100], [100]]


def test_the_time_of_a_device_in_milliseconds(tmp_path: Path) -> None:
    columns = data(tmp_path, DEVICE_TIME, host(event("f", 0, 100)), gpu(event("k", 0, 40), event("MemcpyH2D", 50, 10)))
    keys = ("compute_ms", "copies_alone_ms", "idle_ms", "wall_ms", "kernel_sum_ms", "copies_ms")
    assert values(columns, *keys) == [[0.04], [0.01], [0.05], [0.1], [0.04], [0.01]]


def test_precision_is_of_an_average_step(tmp_path: Path) -> None:
    """Two steps of 100 us; a product in 32 bit takes 30 in the one and 50 in the other."""
    steps = host(*(event("train", 100 * n, 100, step_num=n) for n in range(2)))
    kernels = [event("sgemm", 100 * n, 30 + 20 * n, tf_op="a:MatMul") for n in range(2)]
    columns = data(tmp_path, COMPUTE_PRECISION, steps, gpu(*kernels))
    assert values(columns, "steps", "step_ms", "compute_16_ms", "compute_32_ms") == [[2], [0.1], [0.0], [0.04]]
    assert values(columns, "eligible_ms", "eligible_percent", "most_eligible_percent") == [[0.04], [40], [40]]
    without_steps = data(tmp_path, COMPUTE_PRECISION, gpu(*kernels))
    assert values(without_steps, "steps", "step_ms", "eligible_percent") == [[0], [None], [None]]
