"""What people read about kernels, and the tables for programs. Times in microseconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders import Plane, event, gpu, host, line, marks, plane, ref, result_of, results_of, rows_of, trace_of, u64

from tfperf.analysis.load import assemble
from tfperf.analysis.registry import TableSpec, View
from tfperf.report.model import Finding, Report, Section
from tfperf.report.render import render
from tfperf.report.shown import EVERYTHING, Detail, shown
from tfperf.sections.kernels import (
    COMPUTE_PRECISION,
    COPIES,
    DEVICE_TIME,
    KERNEL_FAMILIES,
    KERNELS,
    KERNELS_BY_NAME,
    LAUNCHES,
    TABLES,
)
from tfperf.sections.kernels.section import kernel_findings
from tfperf.trace.host.activities import Attribution

VOLTA = {"compute_cap_major": 7, "compute_cap_minor": 0}
MI300: dict[str, Any] = {"compute_cap_major": 9, "compute_cap_minor": 4, "device_vendor": "AMD"}
PASCAL = {"compute_cap_major": 6, "compute_cap_minor": 1}
BRIEF = Detail("brief", "brief")
FULL = Detail("full", "full")


def report(tmp_path: Path, *planes: Plane, attribution: Attribution = "corrected") -> Report:
    trace = trace_of(tmp_path, *planes, links=attribution == "tensorflow")
    return assemble(results_of(trace, sections=["kernels"], attribution=attribution), ["kernels"])


def section(tmp_path: Path, *planes: Plane, attribution: Attribution = "corrected") -> Section:
    (only,) = report(tmp_path, *planes, attribution=attribution).sections
    return only


def fact(section: Section, key: str) -> tuple[object, str]:
    fact = next(fact for fact in section.facts if fact.key == key)
    return fact.value, fact.note


def tables(report: Report) -> list[str]:
    return [table.name for table in report.tables()]


# --- lines that add up ---


def test_the_line_of_a_device_adds_up(tmp_path: Path) -> None:
    """Kernels 0-20 and 10-40 on two streams, a copy 30-60, the host until 100."""
    work = event("a", 0, 20), event("b", 10, 30), event("MemcpyH2D", 30, 30)
    streams = (line(f"Stream #{number}", each, id=number) for number, each in enumerate(work, 1))
    made = section(tmp_path, host(event("f", 0, 100)), plane("/device:GPU:0", *streams))
    assert fact(made, "device_time_GPU:0") == (
        "0.040 ms compute + 0.020 ms copies and memsets + 0.040 ms idle = 0.100 ms wall",
        "kernels sum to 0.050 ms, because kernels overlap; 0.010 ms of copies and memsets overlap compute",
    )


@pytest.mark.parametrize("detail", [BRIEF, FULL])
def test_five_devices_have_a_line_each_and_more_have_a_table(tmp_path: Path, detail: Detail) -> None:
    """The kernel of device n takes n + 1 of 12 us, so the device idles for the rest."""
    for count in (5, 12):
        devices = [gpu(event("k", 0, number + 1), number=number) for number in range(count)]
        section = shown(report(tmp_path, host(event("f", 0, 12)), *devices), detail).sections[0]
        lines = [fact for fact in section.facts if fact.key.startswith("device_time")]
        times = [table for table in section.tables if table.name.startswith("device_time")]
        if count == 5:
            assert (len(lines), times) == (5, [])
            continue
        worst, percentiles = times
        assert not lines
        assert list(worst.data["device"]) == [f"GPU:{number}" for number in range(5)], "the most idle ones"
        assert list(percentiles.data["idle_ms"]) == pytest.approx([0.005, 0.010, 0.011])


# --- people and programs ---


SHOWN = ["kernels_by_name", "kernel_families", "copies", "launches"]


def test_people_see_the_longest_kernels_in_80_columns(tmp_path: Path) -> None:
    name = "void tensorflow::functor::" + "VeryLong" * 5
    events = [
        event(f"{name}{at}<float>(float const*)", 20 * at, 10 + at, tf_op=ref("scope/" * 12 + f"b{at}:Relu"))
        for at in range(12)
    ]
    whole = report(tmp_path, gpu(*events, event("MemcpyH2D", 300, 5)))
    assert tables(shown(whole, BRIEF)) == tables(shown(whole, FULL)) == SHOWN
    text = render(shown(whole, FULL), "table")
    assert max(map(len, text.splitlines())) <= 80
    assert "showing 10 of 12" in text
    assert text == render(shown(whole, BRIEF), "table")


def test_kernels_of_one_name_are_one_row_unless_each_is_asked_for(tmp_path: Path) -> None:
    name = "void tensorflow::functor::RowReduceKernel<float>(float const*)"
    events = [event(name, 20 * at, 10, tf_op=ref(f"op{at}:Relu")) for at in range(3)]
    results = results_of(trace_of(tmp_path, gpu(*events)), sections=["kernels"])
    together, apart = (
        render(shown(assemble(results.seen(View(by)), ["kernels"]), FULL), "table") for by in ("pattern", "kernel")
    )
    assert "RowReduceKernel      3       0.030      100.0" in together
    assert "op0" not in together
    assert [f"op{at}" in apart for at in range(3)] == [True] * 3
    assert "Full names\nRowReduceKernel\n    void tensorflow::functor::RowReduceKernel<float>(float const*)" in apart


def test_programs_get_every_row_and_every_column(tmp_path: Path) -> None:
    stats = {"tf_op": ref("a:Relu"), "kernel_details": ref("regs:32 shm:0 grid:1,1,1 block:64,1,1")}
    events = [event(f"k{at}", 20 * at, 10, **stats) for at in range(12)]
    whole = shown(report(tmp_path, gpu(*events, event("MemcpyH2D", 300, 5))), EVERYTHING)
    names = ["kernels_by_name", "kernels", "kernel_families", "copies", "launches", "compute_precision", "device_time"]
    assert tables(whole) == names
    document: dict[str, Any] = json.loads(render(whole, "json"))["sections"]["kernels"]["tables"]
    assert len(document["kernels"]["rows"]) == 12
    assert "occupancy_percent" in document["kernels"]["rows"][0]
    assert "host" in document["copies"]["rows"][0]


@pytest.mark.parametrize("detail", [BRIEF, FULL])
def test_people_read_the_host_where_there_are_several(tmp_path: Path, detail: Detail) -> None:
    trace = trace_of(tmp_path, gpu(event("k", 0, 5), event("MemcpyH2D", 5, 5)))
    several = shown(assemble(results_of(trace, trace, sections=["kernels"]), ["kernels"]), detail)
    alone = shown(assemble(results_of(trace, sections=["kernels"]), ["kernels"]), detail)
    titles = [fact.title for fact in several.sections[0].facts if fact.key.startswith("device_time")]
    assert titles == [f"{trace.host} GPU:0"] * 2
    for name in ("copies", "launches"):
        both, single = (next(table for table in part.tables() if table.name == name) for part in (several, alone))
        assert {column.key for column in both.columns} - {column.key for column in single.columns} == {"host"}


# --- notes ---


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    without_device = section(tmp_path, host(event("f", 0, 10)))
    assert without_device.notes == ("No kernels: the profile has no device events.",)
    assert without_device.level == "full"
    tpu = plane("/device:TPU:0", line("XLA Ops", event("fusion", 0, 10)))
    made = section(tmp_path, tpu)
    assert "TPUs run whole programs" in made.notes[0]
    assert made.title == "TPU cores"
    assert [(fact.title, fact.value) for fact in made.facts] == [
        ("TPU:0", "0.010 ms in ops + 0.000 ms idle = 0.010 ms, first to last op")
    ]
    copies = section(tmp_path, gpu(event("MemcpyH2D", 0, 10)))
    assert "recorded only copies" in copies.notes[0]
    assert [table.name for table in copies.tables] == ["copies", "device_time"]


def test_gaps_in_what_is_known_are_said(tmp_path: Path) -> None:
    """Half of the time has no op; shared memory is one number; a clock is off, a call had not returned."""
    calls = host(event("cuLaunch", 50, 5, correlation_id=u64(1)), event("cuLaunch", 60, 9, correlation_id=u64(2)))
    details = ref("regs:1 shm:8 grid:1,1,1 block:1,1,1")
    events = [
        event("a", 10, 10, correlation_id=u64(1), kernel_details=details),
        event("b", 65, 5, correlation_id=u64(2), tf_op=ref("a:Relu")),
        event("c", 80, 5, tf_op=ref("a:Relu")),
    ]
    made = section(tmp_path, calls, gpu(*events))
    notes = " ".join(made.notes)
    assert "has no op for 50.0% of the kernel time" in notes
    assert "sum of static and dynamic" in " ".join(made.detail_notes), "only --by kernel shows shared memory"
    assert "1 of 2 launching calls returned after their first kernel had started" in notes
    assert "1 of 2 launching calls began after their first kernel had started: the clocks" in notes
    assert "1 of 3 kernels have no known host call" in notes


def test_notes_count_launching_calls_not_kernels(tmp_path: Path) -> None:
    call = host(event("cuGraphLaunch", 0, 10, correlation_id=u64(1)))
    kernels = gpu(*(event("k", at, 1, correlation_id=u64(1)) for at in (5, 6, 7)))
    (note,) = (note for note in section(tmp_path, call, kernels).notes if "launching" in note)
    assert note == "Negative delays: 1 of 1 launching calls returned after their first kernel had started."


def test_attribution_tensorflow_says_what_does_not_depend_on_it(tmp_path: Path) -> None:
    kernel = event("k", 0, 5, kernel_details=ref("regs:1 grid:1,1,1 block:1,1,1"))
    assert section(tmp_path, gpu(kernel), attribution="tensorflow").notes[0].startswith("As in TensorFlow's profiler")


def test_a_device_without_tensor_cores_has_no_share_on_them(tmp_path: Path) -> None:
    gemm = event("volta_sgemm_128x64_nt", 0, 30, tf_op=ref("a/b:MatMul"))
    assert "tensor_core_percent" not in [fact.key for fact in section(tmp_path, gpu(gemm, **PASCAL)).facts]
    volta = section(tmp_path, gpu(gemm, event("matmul_kernel", 30, 10), **VOLTA))
    assert fact(volta, "tensor_core_percent") == (0.0, "of kernel time, by kernel name; unknown for 25.0%")


def test_tensor_cores_of_amd_are_matrix_cores(tmp_path: Path) -> None:
    work = gpu(event("volta_sgemm_128x64_nt", 0, 30, tf_op=ref("a/b:MatMul")), **MI300)
    made = section(tmp_path, work)
    assert [fact.title for fact in made.facts if fact.key == "tensor_core_percent"] == ["On matrix cores"]
    assert "could use matrix cores" in advice(tmp_path, work)["no_tensor_cores"].text


# --- advice ---


def advice(tmp_path: Path, *planes: Plane) -> dict[str, Finding]:
    """The advice by its codes."""
    kernels = result_of(tmp_path, "kernels", *planes)
    names, families = KERNELS_BY_NAME.of(kernels.by_name()), KERNEL_FAMILIES.of(kernels.by_family())
    tables = (names, families) if len(kernels) else (None, None)
    return {finding.code: finding for finding in kernel_findings(kernels, *tables)}


def test_small_kernels_that_find_the_stream_idle(tmp_path: Path) -> None:
    calls = host(*(event("cuLaunch", 20 * at, 5, correlation_id=u64(at + 1)) for at in range(10)))
    small = [event("k", 20 * at + 8, 4, correlation_id=u64(at + 1)) for at in range(10)]
    found = advice(tmp_path, calls, gpu(*small))
    assert (
        "100.0% of its kernels take less than 10 us, and 100.0% of its launching calls find"
        in found["small_kernels"].text
    )
    queued = [event("k", 300 + 4 * at, 4, correlation_id=u64(at + 1)) for at in range(10)]
    assert "small_kernels" not in advice(tmp_path, calls, gpu(event("big", 0, 300), *queued))


def test_the_device_with_the_most_kernels_is_judged(tmp_path: Path) -> None:
    """GPU 0 has one small kernel; GPU 1 has two of 50 us."""
    calls = host(*(event("cuLaunch", 100 * at, 5, correlation_id=u64(at + 1)) for at in range(3)))
    small = gpu(event("k", 8, 4, correlation_id=u64(1)))
    large = [event("k", 100 * at + 8, 50, correlation_id=u64(at + 1)) for at in (1, 2)]
    assert "small_kernels" not in advice(tmp_path, calls, small, gpu(*large, number=1))


def test_products_without_tensor_cores(tmp_path: Path) -> None:
    work = event("volta_sgemm_128x64_nt", 0, 9, tf_op=ref("a/b:MatMul")), event("relu", 10, 81, tf_op=ref("c:Relu"))
    found = advice(tmp_path, gpu(*work, **VOLTA))
    assert "10.0% of kernel time is in ops" in found["no_tensor_cores"].text
    for others in (gpu(*work, event("relu", 91, 9), **VOLTA), gpu(*work, **PASCAL), gpu(*work)):
        assert "no_tensor_cores" not in advice(tmp_path, others)


LARGE = ref(f"size:{2 << 20} dest:0 async:1")


def test_slow_copies_to_the_device(tmp_path: Path) -> None:
    """2 MiB in 1 ms is 2.1 GB/s; the same in a tenth of the time is not slow, and small ones are only overhead."""
    slow = advice(tmp_path, gpu(event("MemcpyH2D", 0, 1000, memcpy_details=LARGE), event("k", 1000, 1000)))
    assert next(iter(slow)) == "slow_copies"
    assert "take 50.0% of the capture (2.1 GB/s;" in slow["slow_copies"].text
    alone = advice(tmp_path, gpu(event("MemcpyH2D", 0, 1000, memcpy_details=LARGE)))
    assert list(alone) == ["slow_copies"], "also where no kernel runs"
    for details in (LARGE, ref("size:4")):
        found = advice(tmp_path, gpu(event("MemcpyH2D", 0, 100, memcpy_details=details), event("k", 100, 100)))
        assert "slow_copies" not in found


def test_copies_from_pageable_memory(tmp_path: Path) -> None:
    pageable = ref("kind_src:pageable kind_dst:device size:400000 dest:0 async:1")
    found = advice(tmp_path, gpu(event("MemcpyH2D", 0, 50, memcpy_details=pageable), event("k", 50, 100)))
    assert "8 GB/s, from pageable memory" in found["slow_copies"].text


def test_a_kernel_that_stands_out(tmp_path: Path) -> None:
    assert list(advice(tmp_path, gpu(event("a", 0, 50), event("b", 50, 50)))) == ["one_kernel"]
    assert advice(tmp_path, gpu(event("a", 0, 40), event("b", 40, 30), event("c", 70, 30))) == {}


def test_sorts_gathers_and_scatters_count_together(tmp_path: Path) -> None:
    """20 and 10 of 100 us, from the threshold on."""
    others = event("a", 0, 35), event("b", 35, 35)
    found = advice(tmp_path, gpu(*others, event("radix_sort_kernel", 70, 20), event("scatter_kernel", 90, 10)))
    assert found["data_movement"].text == (
        "Sorts, gathers and scatters take 30.0% of kernel time (largest: radix_sort_kernel; threshold: 30%)."
    )
    assert advice(tmp_path, gpu(*others, event("c", 70, 5), event("radix_sort_kernel", 75, 25))) == {}


# --- tables ---


def rows(tmp_path: Path, table: TableSpec, planes: tuple[Plane, ...], *keys: str) -> list[tuple[Any, ...]]:
    return rows_of(table.data(results_of(trace_of(tmp_path, *planes), sections=["kernels"])), *keys)


NAMES = ["kernels", "kernels_by_name", "kernel_families"]


@pytest.mark.parametrize(
    ("made", "tables"),
    [
        (host(event("f", 0, 10)), []),
        (gpu(event("MemcpyH2D", 0, 10)), ["copies", "device_time"]),
        (gpu(event("k", 0, 10)), [*NAMES, "launches", "compute_precision", "device_time"]),
    ],
    ids=["no device", "copies", "kernels"],
)
def test_what_a_device_did_not_do_has_no_table(tmp_path: Path, made: Plane, tables: list[str]) -> None:
    results = results_of(trace_of(tmp_path, made), sections=["kernels"])
    assert [table.name for table in TABLES if table.data(results) is not None] == tables


def test_kernels_in_microseconds_and_by_name_in_milliseconds(tmp_path: Path) -> None:
    planes = (gpu(event("void f<int>(int)", 0, 10), event("void f<int>(int)", 20, 30)),)
    keys = ("kernel", "kernel_name", "total_us", "percent")
    assert rows(tmp_path, KERNELS, planes, *keys) == [("f", "void f<int>(int)", 40, 100)]
    assert rows(tmp_path, KERNELS_BY_NAME, planes, "kernel", "total_ms") == [("f", 0.04)]


def test_the_rate_of_copies_has_three_digits(tmp_path: Path) -> None:
    planes = (gpu(event("MemcpyH2D", 0, 30, memcpy_details=ref("size:100000"))),)
    assert rows(tmp_path, COPIES, planes, "gb_per_second", "total_ms", "total_bytes") == [(3.33, 0.03, 100_000)]


def test_launches_in_the_units_of_their_keys(tmp_path: Path) -> None:
    """A step with a call of 5 us; its kernel starts 7 us after the end of the call, and takes 8 us."""
    call = event("cuLaunch", 10, 5, correlation_id=u64(1))
    planes = host(*marks(1), call), gpu(event("k", 22, 8, correlation_id=u64(1)))
    keys = ("step_calls_ms", "call_median_us", "delay_median_us", "queued_max_us", "unqueued_percent")
    assert rows(tmp_path, LAUNCHES, planes, *keys) == [(0.005, 5, 7, 0, 100)]
    shares = ("kernels_per_step", "tiny_kernel_percent", "tiny_time_percent")
    assert rows(tmp_path, LAUNCHES, planes, *shares) == [(1, 100, 100)]


def test_the_time_of_a_device_in_milliseconds(tmp_path: Path) -> None:
    planes = host(event("f", 0, 100)), gpu(event("k", 0, 40), event("MemcpyH2D", 50, 10))
    keys = ("compute_ms", "copies_alone_ms", "idle_ms", "wall_ms", "kernel_sum_ms", "copies_ms")
    assert rows(tmp_path, DEVICE_TIME, planes, *keys) == [(0.04, 0.01, 0.05, 0.1, 0.04, 0.01)]


def test_precision_is_of_an_average_step(tmp_path: Path) -> None:
    """Two steps of 100 us; a product in 32 bit takes 30 in the one and 50 in the other."""
    device = gpu(*(event("sgemm", 100 * n, 30 + 20 * n, tf_op="a:MatMul") for n in range(2)))
    keys = ("steps", "step_ms", "compute_16_ms", "compute_32_ms", "eligible_ms", "eligible_percent")
    planes = host(*marks(2)), device
    assert rows(tmp_path, COMPUTE_PRECISION, planes, *keys) == [(2, 0.1, 0.0, 0.04, 0.04, 40)]
    assert rows(tmp_path, COMPUTE_PRECISION, planes, "most_eligible_percent") == [(40,)]
    without_steps = rows(tmp_path, COMPUTE_PRECISION, (device,), "steps", "step_ms", "eligible_percent")
    assert without_steps == [(0, None, None)]
