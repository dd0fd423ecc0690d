from __future__ import annotations

from pathlib import Path

from builders import event, host, results_of, trace_of
from sections.memory.made import alloc

from tfperf.sections.memory import ALLOCATORS, TABLES


def test_every_column_that_is_declared_is_there(tmp_path: Path) -> None:
    """Where a cell is not unknown, it is of the type declared."""
    tensor = {"tf_op": "a/MatMul", "shape": "[2]", "data_type": 1, "region_type": "output", "fragmentation": 0.5}
    steps = (event("train", 100 * n, 100, step_num=n) for n in range(6))
    thread = host(*steps, *(alloc(100 * n + 10, 10, 100 + 10 * n, n + 1, **tensor) for n in range(6)))
    results = results_of(trace_of(tmp_path, thread), sections=["memory"])
    for table in TABLES:
        data = table.data(results)
        assert data is not None
        for column in table.columns:
            values = [value for value in data[column.key] if value is not None]
            assert values, column.key
            assert all(type(value) is column.dtype for value in values), column.key


def test_averages_over_steps_are_marked() -> None:
    assert [column.key for column in ALLOCATORS.columns if column.over_steps] == [
        "allocations_per_step",
        "allocated_bytes_per_step",
        "growth_bytes_per_step",
    ]


def test_without_events_there_are_no_tables(tmp_path: Path) -> None:
    results = results_of(trace_of(tmp_path, host(event("work", 0, 1))), sections=["memory"])
    assert [table.data(results) for table in TABLES] == [None] * len(TABLES)
