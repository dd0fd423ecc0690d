"""Copies of TPU cores by instruction, and what goes each way in a step."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders import event, gpu, host, line, plane, read_back, result_of, results_of, rows_of, trace_of
from places import SHARED
from synthetic_tpu import ARRAY_BYTES, F_COPIES, F_OPS, SOURCE, Offload, offload_tpu

from tfperf.analysis.registry import Results
from tfperf.sections.kernels.tpu_cores import AsyncCopies, Regions, combine_copies, combine_regions
from tfperf.trace.read import read_host

US, MS = 10**6, 10**9
REAL = SHARED / "traces" / "tpu_v6e"


def offload(folder: Path) -> Results:
    made = offload_tpu(Offload(own_clock="ops", steps_line=True))
    return results_of(read_back(folder, made), sections=["kernels"])


def test_a_row_has_what_an_instruction_copies_and_how_long_cores_wait(tmp_path: Path) -> None:
    """Five runs on each of two chips, all of them in steps."""
    found: AsyncCopies = offload(tmp_path)["kernels"].async_copies
    waits = {name: length for name, _, length in F_OPS if "done" in name}
    flights = {"copy-done": 200, "copy-done.1": 320, "copy-done.2": 520, "copy-done.3": 240}
    assert [each.copy for each in found.copies] == ["copy-done.2", "copy-done.3", "copy-done", "copy-done.1"]
    for copy in found.copies:
        assert (copy.count, copy.paired, copy.in_steps, copy.bytes) == (10, 10, 10, ARRAY_BYTES)
        assert copy.waited_ps == copy.paired_waited_ps == 10 * waits[copy.copy] * MS
        assert copy.flight_ps == 10 * flights[copy.copy] * MS
        assert (copy.module, copy.shape, copy.source) == ("jit_f", "f32[256,1024,1024]", f"{SOURCE}:29")
    assert sorted(F_COPIES.values()) == sorted([(0, 200), (0, 520), (240, 320), (560, 240)])
    arrays = {each.copy: (each.array, each.way) for each in found.copies}
    assert arrays == {
        "copy-done": ("ws[0]", "to_device"),
        "copy-done.1": ("ws[0]", "to_host"),
        "copy-done.2": ("ws[1]", "to_device"),
        "copy-done.3": ("ws[1]", "to_host"),
    }
    assert (found.kept_bytes, found.are_donated) == (2 * ARRAY_BYTES, True)


def test_rates_are_ranges_unless_a_core_waits_for_all_of_a_copy(tmp_path: Path) -> None:
    copies = offload(tmp_path)["kernels"].async_copies.copies
    gigabytes = ARRAY_BYTES / 1e9
    rates = {copy.copy: (copy.least_gb_per_second, copy.most_gb_per_second) for copy in copies}
    assert rates["copy-done"] == pytest.approx((gigabytes / 0.2, gigabytes / 0.2))
    assert rates["copy-done.2"] == pytest.approx((gigabytes / 0.52, gigabytes / 0.28))
    assert rates["copy-done.1"][0] == pytest.approx(gigabytes / 0.32)
    assert rates["copy-done.1"][1] is None


def test_what_goes_each_way_in_a_step_is_an_average_over_cores(tmp_path: Path) -> None:
    found: AsyncCopies = offload(tmp_path)["kernels"].async_copies
    (there,), (back,) = found.of_way("to_device"), found.of_way("to_host")
    assert (there.mean("bytes"), there.mean("awaited_bytes")) == (2 * ARRAY_BYTES, 2 * ARRAY_BYTES)
    assert (there.mean("link_ps") / MS, there.mean("waited_ps") / MS) == (520, 480)
    assert (back.mean("bytes"), back.mean("awaited_bytes")) == (2 * ARRAY_BYTES, ARRAY_BYTES)
    assert (back.mean("link_ps") / MS, back.mean("waited_ps") / MS) == (240, 240)


def test_equal_instructions_of_several_hosts_are_one_row(tmp_path: Path) -> None:
    one: AsyncCopies = offload(tmp_path)["kernels"].async_copies
    both = combine_copies([one, one])
    assert len(both.copies) == len(one.copies)
    assert both.copies[0].count == 2 * one.copies[0].count
    assert both.copies[0].waited_ps == 2 * one.copies[0].waited_ps
    assert len(both.of_way("to_host")) == 2
    assert (both.kept_bytes, both.are_donated) == (2 * ARRAY_BYTES, True)
    assert combine_copies([]) == AsyncCopies()


def test_a_profile_without_tpus_or_copies_has_none(tmp_path: Path) -> None:
    core = plane("/device:TPU:0", line("XLA Ops", event("fusion", 0, 5)))
    for made in (gpu(event("copy-done.1", 0, 5)), core):
        assert not result_of(tmp_path, "kernels", host(), made).async_copies.copies


def test_without_the_program_a_copy_has_the_names_of_its_ops(tmp_path: Path) -> None:
    ops = line("XLA Ops", event("copy-start.4", 0, 1), event("copy-done.4", 10, 5))
    found = result_of(tmp_path, "kernels", plane("/device:TPU:0", ops)).async_copies
    (copy,) = found.copies
    assert (copy.copy, copy.way, copy.array, copy.bytes, copy.in_steps) == ("copy-done.4", "on_device", "", None, 0)
    assert (copy.flight_ps, copy.waited_ps) == (15_000_000, 5_000_000)
    assert copy.least_gb_per_second is None
    assert found.kept_bytes is None


def test_the_table_has_a_row_for_each(tmp_path: Path) -> None:
    keys = ("direction", "in_flight_ms", "waited_ms", "hidden_ms", "exposed_percent")
    assert rows_of(offload(tmp_path).table("async_copies"), *keys) == [
        ("to device", 520, 280, 240, pytest.approx(100 * 280 / 520)),
        ("to host", 240, 240, 0, 100),
        ("to device", 200, 200, 0, 100),
        ("to host", 320, 0, 320, 0),
    ]


@pytest.mark.skipif(not REAL.is_dir(), reason="the real profiles are no part of the project")
def test_copies_of_a_real_program() -> None:
    expected = json.loads((REAL / "reference/expected.json").read_text(encoding="utf-8"))["A"]["copies"]
    found = results_of(read_host(REAL / "offload/tpu.xplane.pb"), sections=["kernels"])
    data = found.table("async_copies")
    assert data is not None
    rows = {name: place for place, name in enumerate(data["hlo_op"])}
    assert set(data["copy_bytes"]) == {expected["bytes_each"]}
    assert set(data["count"]) == {400}
    assert {name: data["high_gb_per_second"][rows[name]] for name in expected["gb_per_s"]} == expected["gb_per_s"]
    for name, span_ms in expected["spans_ms"].items():
        assert data["in_flight_ms"][rows[name.replace("start", "done")]] == pytest.approx(span_ms, abs=0.02)
    arrays = {name: data["array_name"][place] for name, place in rows.items()}
    assert [arrays[f"copy-done{number}"] for number in ("", ".1", ".2", ".3", ".4", ".5")] == [
        *("ws[0]", "ws[0]", "ws[1]", "ws[1]", "ws[2]", "ws[2]")
    ]


# --- regions that kernels of TPU cores mark ---


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
    core = plane("/device:TPU:0", steps, ops, regions, name_stats=facts)
    return results_of(trace_of(folder, core), sections=["kernels"])


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
    assert rows_of(kernels(tmp_path).table("kernel_regions"), "per_run", "mean_us", "per_run_us", "percent") == [
        (2, 15, 30, pytest.approx(60)),
        (1, 15, 15, pytest.approx(30)),
        (1, 5, 5, pytest.approx(10)),
    ]


def test_equal_regions_of_several_hosts_are_one_row(tmp_path: Path) -> None:
    one: Regions = kernels(tmp_path)["kernels"].regions
    both = combine_regions([one, one])
    assert [(each.count, each.runs) for each in both.regions] == [(12, 6), (6, 6), (6, 6)]
    assert len(both.waits) == 2
    assert combine_regions([]) == Regions()


def test_marks_outside_of_kernels_are_no_regions(tmp_path: Path) -> None:
    marks = line("XLA TraceMe", event("mark", 0, 5), event("mark", 11, 2), event("dependency-wait", 21, 1))
    ops = line("XLA Ops", event("fusion", 10, 5), event("%mine = f32[8] custom-call()", 20, 5), id=2)
    assert result_of(tmp_path, "kernels", plane("/device:TPU:0", ops, marks)).regions == Regions()
