"""The tables about idle devices, as JSON, CSV, SQL and limits have them; times in microseconds."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import Event, Plane, event, host, line, plane, results_of, trace_of

from tfperf.analysis.registry import TableSpec
from tfperf.report.model import Data
from tfperf.sections.idle import IDLE_CAUSES, IDLE_DEVICES, IDLE_GAPS, TABLES
from tfperf.sections.idle.analysis import CAUSE_TEXTS, CAUSES


def job(*calls: Event, kernels: tuple[tuple[float, float], ...]) -> tuple[Plane, ...]:
    """One marked step of 100 us, and the kernels of a GPU."""
    work = [event("gemm", start, duration) for start, duration in kernels]
    return (host(event("train", 0, 100, step_num=0), *calls), plane("/device:GPU:0", line("Stream #1", *work)))


def half_idle() -> tuple[Plane, ...]:
    """The device waits from 10 to 40 (20 us of Python, 10 in the call) and from 90 to 100 (in the call)."""
    return job(event("EagerKernelExecute", 30, 70), kernels=((0, 10), (40, 50)))


def data(tmp_path: Path, table: TableSpec, *planes: Plane) -> Data:
    columns = table.data(results_of(trace_of(tmp_path, *planes), sections=["idle"]))
    assert columns is not None
    return columns


def test_every_cause_has_words_and_a_column() -> None:
    assert tuple(CAUSE_TEXTS) == CAUSES
    assert {f"{cause}_percent" for cause in CAUSES} < {column.key for column in IDLE_DEVICES.columns}


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_tables_hold_the_declared_columns(tmp_path: Path, table: TableSpec) -> None:
    columns = data(tmp_path, table, *half_idle())
    for column in table.columns:
        assert all(value is None or isinstance(value, column.dtype) for value in columns[column.key]), column.key
    assert table.name_key in columns


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_profile_without_work_of_a_device_has_none_of_them(tmp_path: Path, table: TableSpec) -> None:
    assert table.data(results_of(trace_of(tmp_path, host(event("f", 0, 10))), sections=["idle"])) is None
    marker = plane("/device:GPU:0", line("Stream #1", event("marker", 10, 0)))
    trace = trace_of(tmp_path, host(event("f", 0, 10)), marker, instants=True)
    assert table.data(results_of(trace, sections=["idle"])) is None


def test_causes(tmp_path: Path) -> None:
    causes = data(tmp_path, IDLE_CAUSES, *half_idle())
    assert list(causes["cause"]) == ["Launching", "Python between calls"]
    assert list(causes["meaning"]) == ["preparing and launching work", "the program is in no call"]
    assert causes["per_step_ms"] == pytest.approx([0.02, 0.02])
    assert causes["step_percent"] == pytest.approx([20, 20])
    assert causes["idle_percent"] == pytest.approx([50, 50])
    assert list(causes["gaps"]) == [2, 1]


def test_gaps(tmp_path: Path) -> None:
    gaps = data(tmp_path, IDLE_GAPS, *half_idle())
    assert gaps["duration_ms"] == pytest.approx([0.03, 0.01])
    assert list(gaps["cause"]) == ["Python between calls", "Launching"]
    assert gaps["cause_percent"] == pytest.approx([200 / 3, 100])
    assert list(gaps["launched_before_ms"]) == [None, None]  # nothing links kernels to calls here


def test_a_device_that_is_never_idle_has_no_gaps(tmp_path: Path) -> None:
    results = results_of(trace_of(tmp_path, *job(kernels=((0, 100),))), sections=["idle"])
    assert IDLE_GAPS.data(results) is None
    assert list(data(tmp_path, IDLE_CAUSES, *job(kernels=((0, 100),)))["cause"]) == []


def test_devices(tmp_path: Path) -> None:
    devices = data(tmp_path, IDLE_DEVICES, *half_idle())
    assert devices["idle_percent"] == pytest.approx([40])
    assert devices["launch_percent"] == pytest.approx([20])
    assert devices["step_ms"] == pytest.approx([0.1])
    assert devices["idle_ms"] == pytest.approx([0.04])
    assert list(devices["gaps"]) == [2]
