"""What people read about kernels. Times in microseconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders import Event, Line, Plane, event, host, line, plane, ref, results_of, trace_of, u64

from tfperf.analysis.load import assemble
from tfperf.analysis.registry import View
from tfperf.report.model import Report, Section
from tfperf.report.render import render
from tfperf.report.shown import EVERYTHING, Detail, shown
from tfperf.trace.host.activities import Attribution

MS = 1_000_000_000
VOLTA = {"compute_cap_major": 7, "compute_cap_minor": 0}
BRIEF = Detail("brief", "brief")
FULL = Detail("full", "full")


def gpu(*events: Event | Line, number: int = 0) -> Plane:
    lines = [item for item in events if isinstance(item, Line)]
    loose = [item for item in events if isinstance(item, Event)]
    return plane(f"/device:GPU:{number}", *lines, line("Stream #1", *loose, id=99), stats=VOLTA)


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
    streams = [
        line("Stream #1", event("a", 0, 20), id=1),
        line("Stream #2", event("b", 10, 30), id=2),
        line("Stream #3", event("MemcpyH2D", 30, 30), id=3),
    ]
    assert fact(section(tmp_path, host(event("f", 0, 100)), gpu(*streams)), "device_time_GPU:0") == (
        "0.040 ms compute + 0.020 ms copies + 0.040 ms idle = 0.100 ms wall",
        "kernels sum to 0.050 ms, because streams overlap; 0.010 ms of copies overlap compute",
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


def test_people_see_the_longest_kernels_in_80_columns(tmp_path: Path) -> None:
    name = "void tensorflow::functor::" + "VeryLong" * 5
    events = [
        event(f"{name}{at}<float>(float const*)", 20 * at, 10 + at, tf_op=ref("scope/" * 12 + f"b{at}:Relu"))
        for at in range(12)
    ]
    whole = report(tmp_path, gpu(*events, event("MemcpyH2D", 300, 5)))
    assert tables(shown(whole, BRIEF)) == tables(shown(whole, FULL)) == ["kernels_by_name", "copies", "launches"]
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
    names = ["kernels_by_name", "kernels", "copies", "launches", "compute_precision", "device_time"]
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
    assert "1 of 2 kernels started before their launching call returned" in notes
    assert "1 of 2 kernels start before their launching call: the clocks" in notes
    assert "1 of 3 kernels have no known host call" in notes


def test_attribution_tensorflow_says_what_does_not_depend_on_it(tmp_path: Path) -> None:
    kernel = event("k", 0, 5, kernel_details=ref("regs:1 grid:1,1,1 block:1,1,1"))
    assert section(tmp_path, gpu(kernel), attribution="tensorflow").notes[0].startswith("As in TensorFlow's profiler")


def test_a_device_without_tensor_cores_has_no_share_on_them(tmp_path: Path) -> None:
    events = line("Stream #1", event("volta_sgemm_128x64_nt", 0, 9, tf_op=ref("a/b:MatMul")))
    pascal = plane("/device:GPU:0", events, stats={"compute_cap_major": 6, "compute_cap_minor": 1})
    assert "tensor_core_percent" not in [fact.key for fact in section(tmp_path, pascal).facts]
    volta = section(tmp_path, gpu(event("volta_sgemm_128x64_nt", 0, 30), event("matmul_kernel", 30, 10)))
    assert fact(volta, "tensor_core_percent") == (0.0, "of kernel time, by kernel name; unknown for 25.0%")


def test_names_from_the_profile_do_no_harm(tmp_path: Path) -> None:
    names = ["\x1b[2J\0\r\n", "", "<" * 5000, "|`*", "void " + "x" * 60_000]
    events = [event(name, 10 * at, 5, tf_op=ref(name), kernel_details=ref(name)) for at, name in enumerate(names)]
    whole = report(tmp_path, gpu(*events))
    for text in (*(render(shown(whole, FULL), form) for form in ("table", "markdown")), render(whole, "json")):
        assert "\x1b" not in text
        assert "\0" not in text
