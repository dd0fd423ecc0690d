"""The section of steps: which categories people see, and what unknown cells hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import STEPS_LINE, Plane, event, host, line, plane, results_of, trace_of

from tfperf.report.model import Table
from tfperf.sections.steps import build
from tfperf.trace.host.activities import Attribution
from tfperf.trace.steps.categories import CATEGORIES


def steps_table(tmp_path: Path, *planes: Plane, attribution: Attribution = "corrected") -> Table:
    trace = trace_of(tmp_path, *planes, links=attribution == "tensorflow", instants=attribution == "tensorflow")
    return build(results_of(trace, sections=["steps"], attribution=attribution)).tables[0]


def shown(table: Table) -> list[str]:
    """The categories that people see."""
    keys = [column.key.removesuffix("_ms") for column in table.columns if column.level == "brief"]
    return [key for key in keys if key in CATEGORIES]


def cells(table: Table) -> dict[str, list[Any]]:
    """The cells of each category and part of input."""
    parts = (*CATEGORIES, "input_wait", "host_to_device")
    return {part: list(table.data[f"{part}_ms"]) for part in parts if f"{part}_ms" in table.data}


def test_each_category_of_one_percent_is_shown_in_its_order(tmp_path: Path) -> None:
    """A step of 1000 us: 10 us of tracing are 1.0 %, 9 us of output 0.9 %, launching is 20 %."""
    python = [event("train", 0, 1000, step_num=0), event("tf.function-graph_building", 0, 10)]
    worker = line("worker", event("ExecutorState::Process", 100, 200), event("IteratorGetNextOp::DoCompute", 400, 5))
    copies = line("Stream #2", event("MemcpyD2H", 500, 9, correlation_id=1), id=2)
    kernels = line("Stream #1", event("gemm", 600, 100, correlation_id=2), id=1)
    made = plane("/host:CPU", line("python", *python), worker), plane("/device:GPU:0", kernels, copies)
    expected = ["compilation", "input", "kernel_launch", "host_compute", "device_compute", "all_others"]
    assert shown(steps_table(tmp_path, *made)) == expected


def test_the_share_is_that_of_all_steps_together(tmp_path: Path) -> None:
    """One step of five is traced: 60 of 500 us."""
    steps = [event("train", 100 * n, 100, step_num=n) for n in range(5)]
    made = host(*steps, event("tf.function-graph_building", 0, 60), event("IteratorGetNextOp::DoCompute", 90, 1))
    assert shown(steps_table(tmp_path, made)) == ["compilation", "input", "host_compute", "all_others"]


def test_input_that_is_not_visible_is_no_number(tmp_path: Path) -> None:
    """Steps without any fetch; a device that is not there keeps its 0, so that rows add up."""
    table = steps_table(tmp_path, host(event("train", 0, 100, step_num=0), event("A:A", 10, 60)))
    assert shown(table) == ["host_compute", "all_others"]
    found = cells(table)
    assert {key for key in found if found[key] == [None]} == {"input", "input_wait", "host_to_device"}
    assert (found["host_compute"], found["device_compute"]) == ([pytest.approx(0.06)], [0.0])


def test_of_a_job_without_a_device_rows_add_up(tmp_path: Path) -> None:
    made = host(event("train", 0, 100, step_num=0), event("IteratorGetNextOp::DoCompute", 10, 30))
    found = cells(steps_table(tmp_path, made))
    assert all(values != [None] for values in found.values())
    assert sum(found[key][0] for key in CATEGORIES) == pytest.approx(0.1)


def test_without_host_threads_their_categories_are_no_numbers(tmp_path: Path) -> None:
    modules = line("XLA Modules", event("jit_f", 0, 100), event("jit_f", 100, 100), id=STEPS_LINE + 2)
    kernels = line("Stream #1", event("gemm", 0, 60, correlation_id=1), id=2)
    found = cells(steps_table(tmp_path, plane("/device:GPU:0", modules, kernels)))
    known = {key for key, values in found.items() if values != [None, None]}
    assert known == {"output", "device_collectives", "device_to_device", "device_compute"}
    assert found["device_compute"] == [pytest.approx(0.06), 0.0]


def test_in_attribution_tensorflow_unknown_categories_are_0_as_there(tmp_path: Path) -> None:
    step = event("train", 0, 100, step_num=0, group_id=0, step_name="0"), event("A:A", 10, 60, group_id=0)
    found = cells(steps_table(tmp_path, host(*step), attribution="tensorflow"))
    assert all(isinstance(values[0], float) for values in found.values())
