"""What people read about kernels. Times in microseconds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders import Event, Line, Plane, event, host, line, plane, ref, trace_of, u64

from tfperf.analyzers import kernels
from tfperf.render import render
from tfperf.report.model import Report, Section
from tfperf.reports.kernels_section import in_ms, kernels_section
from tfperf.trace.activities import Attribution
from tfperf.trace.find_steps import find_steps

MS = 1_000_000_000
VOLTA = {"compute_cap_major": 7, "compute_cap_minor": 0}


def gpu(*events: Event | Line, number: int = 0) -> Plane:
    lines = [own for own in events if isinstance(own, Line)]
    loose = [own for own in events if isinstance(own, Event)]
    return plane(f"/device:GPU:{number}", *lines, line("Stream #1", *loose, id=99), stats=VOLTA)


def section(tmp_path: Path, *planes: Plane, top: int | None = None, attribution: Attribution = "corrected") -> Section:
    trace = trace_of(tmp_path, *planes, links=attribution == "tensorflow")
    return kernels_section(kernels.analyze(trace, find_steps(trace), attribution), attribution, 1, top)


def text(found: Section, form: str = "table") -> str:
    return render(Report({}, {}, (found,)), form)


def fact(found: Section, key: str) -> tuple[object, str]:
    own = next(own for own in found.facts if own.key == key)
    return own.value, own.note


def codes(found: Section) -> list[str]:
    return [finding.code for finding in found.findings]


# --- lines that add up ---


def test_the_line_of_a_device_adds_up(tmp_path: Path) -> None:
    """Kernels 0-20 and 10-40 on two streams, a copy 30-60, the host until 100."""
    streams = [line("Stream #1", event("a", 0, 20), id=1), line("Stream #2", event("b", 10, 30), id=2),
               line("Stream #3", event("MemcpyH2D", 30, 30), id=3)]  # fmt: skip
    found = section(tmp_path, host(event("f", 0, 100)), gpu(*streams))
    assert fact(found, "device_time_GPU:0") == (
        "0.040 ms compute + 0.020 ms copies + 0.040 ms idle = 0.100 ms wall",
        "kernels sum to 0.050 ms, since streams overlap; 0.010 ms of copies run beside compute",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("parts", "shown", "whole"),
    [((1, 1, 1), ["0.000", "0.000", "0.000"], "0.000"),
     ((MS * 333 + 333_400_000, MS * 333 + 333_300_000, MS * 333 + 333_300_000), ["333.4", "333.3", "333.3"], "1,000.0"),
     ((MS // 3, MS // 3, MS // 3 + 1), ["0.333", "0.333", "0.334"], "1.000"),
     ((15_000 * MS, MS // 2 + 1, 0), ["15,000", "1", "0"], "15,001")],
)  # fmt: skip
def test_rounded_parts_add_up(parts: tuple[int, ...], shown: list[str], whole: str) -> None:
    assert in_ms(parts) == shown
    assert in_ms((sum(parts),)) == [whole]


# --- people and programs ---


def test_people_see_the_longest_kernels_in_80_columns(tmp_path: Path) -> None:
    name = "void tensorflow::functor::" + "VeryLong" * 12 + "<float>(float const*)"
    made = [event(f"{name}{at}", 20 * at, 10 + at, tf_op=ref("scope/" * 12 + f"b{at}:Relu")) for at in range(5)]
    found = section(tmp_path, gpu(*made, event("MemcpyH2D", 200, 5)), top=2)
    assert [table.name for table in found.tables] == ["kernels", "copies", "launches"]
    shown = text(found)
    assert max(map(len, shown.splitlines())) <= 80
    assert "showing 2 of 5" in shown


def test_programs_get_every_row_and_every_column(tmp_path: Path) -> None:
    stats = {"tf_op": ref("a:Relu"), "kernel_details": ref("regs:32 shm:0 grid:1,1,1 block:64,1,1")}
    made = [event(f"k{at}", 20 * at, 10, **stats) for at in range(5)]
    found = section(tmp_path, gpu(*made, event("MemcpyH2D", 200, 5)))
    assert [table.name for table in found.tables] == ["kernels", "kernels_by_name", "copies", "launches", "device_time"]
    tables = json.loads(text(found, "json"))["sections"]["kernels"]["tables"]
    assert len(tables["kernels"]["rows"] if isinstance(tables["kernels"], dict) else tables["kernels"]) == 5
    assert "occupancy_percent" in text(found, "json")
    (row,) = next(own for own in found.tables if own.name == "device_time").rows()
    assert row[1:6] == ("GPU:0", 0.05, 0.005, 0.15, 0.205)


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    assert section(tmp_path, host(event("f", 0, 10))).notes == (
        "No kernels: no device recorded anything in this trace.",
    )  # fmt: skip
    tpu = plane("/device:TPU:0", line("XLA Ops", event("fusion", 0, 10)))
    assert "a TPU runs whole programs" in section(tmp_path, tpu).notes[0]
    copies = section(tmp_path, gpu(event("MemcpyH2D", 0, 10)))
    assert "recorded copies" in copies.notes[0]
    assert [table.name for table in copies.tables] == ["copies", "device_time"]


def test_gaps_are_told(tmp_path: Path) -> None:
    """Half of the time has no op; shared memory is one number; a clock is off, a call had not returned."""
    calls = host(event("cuLaunch", 50, 5, correlation_id=u64(1)), event("cuLaunch", 60, 9, correlation_id=u64(2)))
    made = gpu(
        event("a", 10, 10, correlation_id=u64(1), kernel_details=ref("regs:1 shm:8 grid:1,1,1 block:1,1,1")),
        event("b", 65, 5, correlation_id=u64(2), tf_op=ref("a:Relu")), event("c", 80, 5, tf_op=ref("a:Relu")),
    )  # fmt: skip
    notes = " ".join(section(tmp_path, calls, made).notes)
    assert "names no op for 50.0% of the kernel time" in notes
    assert "static and dynamic together" in notes
    assert "1 of 2 kernels began before the call that launched them had returned" in notes
    assert "1 of 2 kernels begin before the call that launched them: the clocks" in notes
    assert "No call of the host was found for 1 of 3 kernels" in notes


def test_attribution_tensorflow_says_what_is_ours(tmp_path: Path) -> None:
    made = event("k", 0, 5, kernel_details=ref("regs:1 grid:1,1,1 block:1,1,1"))
    assert section(tmp_path, gpu(made), attribution="tensorflow").notes[0].startswith("As TensorFlow has it")


def test_several_hosts_are_named(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, gpu(event("k", 0, 5), event("MemcpyH2D", 5, 5)))
    part = kernels.analyze(trace, find_steps(trace))
    found = kernels_section(kernels.combine([part, part]), "corrected", 2, 10)
    assert [own.title for own in found.facts if own.key.startswith("device_time")] == [f"{trace.host} GPU:0"] * 2
    assert "Host" in text(found)


# --- advice ---


def test_small_kernels_that_find_the_stream_idle(tmp_path: Path) -> None:
    calls = [event("cuLaunch", 20 * at, 5, correlation_id=u64(at + 1)) for at in range(10)]
    small = [event("k", 20 * at + 8, 4, correlation_id=u64(at + 1)) for at in range(10)]
    found = section(tmp_path, host(*calls), gpu(*small))
    assert "small_kernels" in codes(found)
    assert "100.0% of its kernels take less than 10 us, and 100.0% find" in found.findings[0].text
    queued = [event("k", 300 + 4 * at, 4, correlation_id=u64(at + 1)) for at in range(10)]
    assert "small_kernels" not in codes(section(tmp_path, host(*calls), gpu(event("big", 0, 300), *queued)))


def test_products_without_tensor_cores(tmp_path: Path) -> None:
    made = [event("volta_sgemm_128x64_nt", 0, 9, tf_op=ref("a/b:MatMul")), event("relu", 10, 80, tf_op=ref("c:Relu"))]
    assert "no_tensor_cores" in codes(section(tmp_path, gpu(*made, event("relu", 90, 1))))
    assert "no_tensor_cores" not in codes(section(tmp_path, gpu(*made, event("relu", 90, 10))))
    old = plane("/device:GPU:0", line("Stream #1", *made), stats={"compute_cap_major": 6, "compute_cap_minor": 1})
    found = section(tmp_path, old)
    assert "no_tensor_cores" not in codes(found)
    assert "tensor_core_percent" not in [own.key for own in found.facts]


def test_slow_copies_to_the_device(tmp_path: Path) -> None:
    """2 MiB in 1 ms is 2.1 GB/s; the same on a tenth of the time is not slow, and small ones are only overhead."""
    large = ref(f"size:{2 << 20} dest:0 async:1")
    slow = section(tmp_path, gpu(event("MemcpyH2D", 0, 1000, memcpy_details=large), event("k", 1000, 1000)))
    assert codes(slow)[0] == "slow_copies"
    assert "take 50.0% of the capture (2.1 GB/s;" in slow.findings[0].text
    fast = section(tmp_path, gpu(event("MemcpyH2D", 0, 100, memcpy_details=large), event("k", 100, 100)))
    assert "slow_copies" not in codes(fast)
    small = section(tmp_path, gpu(event("MemcpyH2D", 0, 100, memcpy_details=ref("size:4")), event("k", 100, 100)))
    assert "slow_copies" not in codes(small)
    pageable = ref("kind_src:pageable kind_dst:device size:400000 dest:0 async:1")
    found = section(tmp_path, gpu(event("MemcpyH2D", 0, 50, memcpy_details=pageable), event("k", 50, 100)))
    assert "8 GB/s, from pageable memory" in found.findings[0].text


def test_a_kernel_that_stands_out(tmp_path: Path) -> None:
    assert codes(section(tmp_path, gpu(event("a", 0, 50), event("b", 50, 50)))) == ["one_kernel"]
    assert codes(section(tmp_path, gpu(event("a", 0, 40), event("b", 40, 30), event("c", 70, 30)))) == []


def test_names_from_the_profile_do_no_harm(tmp_path: Path) -> None:
    names = ["\x1b[2J\0\r\n", "", "<" * 5000, "|`*", "void " + "x" * 60_000]
    made = [event(name, 10 * at, 5, tf_op=ref(name), kernel_details=ref(name)) for at, name in enumerate(names)]
    for form in ("table", "markdown", "json"):
        shown = text(section(tmp_path, gpu(*made), top=10), form)
        assert "\x1b" not in shown
        assert "\0" not in shown
