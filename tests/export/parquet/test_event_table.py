"""Events and stats as Arrow tables: every cell of a small trace by hand, and real ones against what was read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import event, host, line, plane, trace_of, u64
from places import ROOT

from tfperf.export import parquet as event_table
from tfperf.export.parquet import event_parts, stat_tables
from tfperf.export.query.arrow_tables import with_nesting
from tfperf.export.query.sql_tables import COMPUTED, EVENTS, STAT_TABLE
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.read import read_host
from tfperf.trace.steps.find_steps import find_steps
from tfperf.trace.steps.steps import Steps, no_steps

SAMPLES = sorted((ROOT / "sample_traces").rglob("*.xplane.pb"))


def event_tables(trace: HostTrace, steps: Steps) -> list[Any]:
    return [table for part in event_parts(with_nesting(trace), steps) for table in part]


def test_every_cell(tmp_path: Path) -> None:
    """A step of 100 us holds a product of 40 us, which holds a copy of 10 us; a kernel runs beside it."""
    work = (event("MatMul:MatMul", 10, 40, _p=7, _pt=3), event("copy", 20, 10, step_id=-5, kernel_type="_Recv"))
    kernel = event("gemm", 15, 5, correlation_id=9)
    planes = (host(event("train", 0, 100, step_num=4), *work), plane("/device:GPU:0", line("Stream #1", kernel, id=14)))
    trace = trace_of(tmp_path, *planes, links=True)
    on_host, on_device = (table.to_pydict() for table in event_tables(trace, find_steps(trace)))
    assert on_host["event"] == [0, 1, 2]
    assert on_host["name"] == ["train", "MatMul:MatMul", "copy"]
    assert on_host["op_type"] == [None, "MatMul", None]
    assert on_host["plane"] == ["/host:CPU"] * 3
    assert on_host["line_name"] == ["python"] * 3
    assert on_host["start_ps"] == [0, 10_000_000, 20_000_000]
    assert on_host["duration_ps"] == [100_000_000, 40_000_000, 10_000_000]
    assert on_host["self_ps"] == [60_000_000, 30_000_000, 10_000_000]
    assert on_host["depth"] == [0, 1, 2]
    assert on_host["step"] == [4, 4, 4]
    assert (on_host["producer_id"], on_host["producer_type"]) == ([None, 7, None], [None, 3, None])
    assert on_device["event"] == [3]
    assert (on_device["kind"], on_device["line_id"], on_device["correlation_id"]) == (["gpu"], [14], [9])
    assert {*on_host} == {*on_device} == {column.name for column in EVENTS.columns} - {"run", "host", *COMPUTED}
    assert (on_host["derived"], on_device["derived"]) == ([False] * 3, [False])


def test_events_outside_of_steps_have_none(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, host(event("train", 0, 10, step_num=4), event("late", 50, 1)))
    (table,) = event_tables(trace, find_steps(trace))
    assert table["step"].to_pylist() == [4, None]
    (none,) = event_tables(trace, no_steps("there are none"))
    assert none["step"].to_pylist() == [None, None]


def test_stats_keep_their_kind(tmp_path: Path) -> None:
    stats = {"a": -3, "b": 0.5, "c": "text", "d": u64(2**64 - 1), "e": u64(5)}
    made = trace_of(tmp_path, host(event("work", 0, 10, **stats)))
    trace = read_host(made.path, "host", everything=True)
    (table,) = (table.to_pydict() for table in stat_tables(trace))
    assert table["name"] == ["a", "b", "c", "d", "e"]
    assert table["int_value"] == [-3, None, None, None, 5]
    assert table["unsigned_value"] == [None, None, None, 2**64 - 1, None]
    assert table["real_value"] == [None, 0.5, None, None, None]
    assert table["text_value"] == [None, None, "text", None, None]
    assert table["event"] == [0] * 5
    assert {*table} == {column.name for column in STAT_TABLE.columns} - {"run", "host"} | {"unsigned_value"}


@pytest.mark.parametrize("path", SAMPLES[:3], ids=lambda path: path.parent.name)
def test_real_traces_are_as_they_were_read(path: Path) -> None:
    trace = read_host(path, "host", instants=True)
    tables = list(event_tables(trace, find_steps(trace)))
    for name in ("start_ps", "duration_ps"):
        whole = np.concatenate([table[name].to_numpy() for table in tables])
        assert whole.tolist() == getattr(trace, name).tolist()
    names = [text for table in tables for text in table["name"].to_pylist()]
    assert names == [trace.names[name] for name in trace.name.tolist()]
    for table in tables:
        durations, selfs, depths = (table[name].to_numpy() for name in ("duration_ps", "self_ps", "depth"))
        assert (selfs <= durations).all()
        assert depths.max() > 0


def test_parts_hold_about_as_many_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_table, "ROWS", 4)
    busy = line("busy", *(event("a", 10 * n, 5) for n in range(9)), id=1)
    trace = trace_of(tmp_path, plane("/host:CPU", busy), *(plane(f"/device:GPU:{n}", busy) for n in range(1)))
    parts = [[len(table) for table in part] for part in event_parts(with_nesting(trace), no_steps("none"))]
    assert parts == [[4], [4], [1], [4], [4], [1]]
    monkeypatch.setattr(event_table, "ROWS", 100)
    assert [[len(table) for table in part] for part in event_parts(with_nesting(trace), no_steps("none"))] == [[9, 9]]
