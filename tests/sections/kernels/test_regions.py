"""Regions that kernels of TPU cores mark."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import event, line, plane, results_of, trace_of

from tfperf.analysis.registry import Results
from tfperf.sections.kernels.tpu_cores import Regions, combine_regions

US = 1_000_000


def kernels(folder: Path) -> Results:
    """A kernel of 50 us in each of three steps of 100: it waits for 20 and 10, and computes for 15, 5 of them inside.

    A barrier before it, and what is marked after it, are not in the kernel.
    """
    parts = (("barrier-cores", 5, 5), ("ep_wait_in", 10, 20), ("ep_run_kernel", 30, 15), ("acc", 31, 5))
    marks = [(name, 100 * n + at, takes) for n in range(3) for name, at, takes in (*parts, ("ep_wait_in", 45, 10))]
    steps = line("Steps", *(event(str(n), 100 * n, 100) for n in range(3)), id=1)
    ops = line("XLA Ops", *(event("%mine.1 = f32[8] custom-call()", 100 * n + 10, 50) for n in range(3)), id=2)
    regions = line("XLA TraceMe", *(event(*mark) for mark in (*marks, ("after", 70, 2))), id=3)
    facts = {"%mine.1 = f32[8] custom-call()": {"hlo_category": "custom-call", "program_id": 7}}
    return results_of(
        trace_of(folder, plane("/device:TPU:0", steps, ops, regions, name_stats=facts)), sections=["kernels"]
    )


def test_regions_are_added_up_in_the_kernel_that_holds_them(tmp_path: Path) -> None:
    found: Regions = kernels(tmp_path)["kernels"].regions
    assert [(each.kernel, each.region, each.count, each.total_ps // US) for each in found.regions] == [
        ("mine.1", "ep_wait_in", 6, 90),
        ("mine.1", "ep_run_kernel", 3, 45),
        ("mine.1", "acc", 3, 15),
    ]
    assert {(each.runs, each.kernel_ps // US, each.program_id) for each in found.regions} == {(3, 150, 7)}
    (waits,) = found.waits
    assert (waits.kernel_ps // US).tolist() == [50, 50, 50]
    assert (waits.waited_ps // US).tolist() == [30, 30, 30]


def test_the_table_has_means_over_runs(tmp_path: Path) -> None:
    data = kernels(tmp_path).table("kernel_regions")
    assert data is not None
    assert data["per_run"] == [2, 1, 1]
    assert data["mean_us"] == [15, 15, 5]
    assert data["per_run_us"] == [30, 15, 5]
    assert data["percent"] == pytest.approx([60, 30, 10])


def test_equal_regions_of_several_hosts_are_one_row(tmp_path: Path) -> None:
    one: Regions = kernels(tmp_path)["kernels"].regions
    both = combine_regions([one, one])
    assert [(each.count, each.runs) for each in both.regions] == [(12, 6), (6, 6), (6, 6)]
    assert len(both.waits) == 2
    assert combine_regions([]) == Regions()


def test_marks_outside_of_kernels_are_no_regions(tmp_path: Path) -> None:
    marks = line("XLA TraceMe", event("mark", 0, 5), event("mark", 11, 2), event("dependency-wait", 21, 1))
    ops = line("XLA Ops", event("fusion", 10, 5), event("%mine = f32[8] custom-call()", 20, 5), id=2)
    trace = trace_of(tmp_path, plane("/device:TPU:0", ops, marks))
    assert results_of(trace, sections=["kernels"])["kernels"].regions == Regions()
