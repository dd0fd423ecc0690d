"""Causes on TPU cores that wait for data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from builders import Event, event, host, line, plane, results_of, trace_of
from places import ROOT
from synthetic_tpu import Offload, offload_tpu
from tpu_twin import tpu_twin

import tfperf
from tfperf.sections.diagnosis.cause import Cause, Diagnosis
from tfperf.sections.diagnosis.section import build
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.read import read_host

SHARED = ROOT.parent / "shared" / "traces"

REAL = SHARED / "tpu_v6e" / "offload"


def causes_of(trace: HostTrace) -> dict[str, Cause]:
    found: Diagnosis = results_of(trace)["diagnosis"]
    return {cause.code: cause for cause in found.causes}


def offload(folder: Path) -> HostTrace:
    path = folder / "tpu.xplane.pb"
    path.write_bytes(offload_tpu(Offload(steps_line=True)))
    return read_host(path)


def ranges(cause: Cause) -> dict[str, tuple[float, float] | None]:
    return {
        each.code: None if each.step_ms is None else (each.step_ms.low, each.step_ms.high) for each in cause.actions
    }


def test_waiting_for_arrays_in_host_memory(tmp_path: Path) -> None:
    """Of 800 ms, cores wait for 720, and compute for 80; copies to the device are in flight for 520."""
    found = causes_of(offload(tmp_path))
    cause = found["host_copies"]
    assert cause.cost_ms is not None
    assert (cause.cost_ms.low, cause.cost_ms.high) == pytest.approx((720, 720))
    assert "input_copy" not in found
    assert "output_copy" not in found
    assert "2 arrays f32[256,1024,1024] (ws[0], ws[1], 1.07 GB each) come from the host and go back" in cause.detail
    assert "2.15 GB to the TPU at 4.13 to 4.47 GB/s and 2.15 GB back at 4.47 GB/s" in cause.detail
    assert [each.row for each in cause.rests_on] == ["Host to device", "Output", "copy-done.2"]


def test_arrays_without_a_name_are_counted_and_not_said_to_go_back(tmp_path: Path) -> None:
    """Names of parameters stand in the program, which is not in the profile."""
    path = tmp_path / "tpu.xplane.pb"
    path.write_bytes(offload_tpu(Offload(programs=False)))
    detail = causes_of(read_host(path))["host_copies"].detail
    assert "2 arrays f32[256,1024,1024] (1.07 GB each) come from the host in each step" in detail
    assert "2 arrays f32[256,1024,1024] (1.07 GB each) go to the host in each step" in detail
    assert "go back" not in detail


def test_what_to_do_about_it_has_ranges(tmp_path: Path) -> None:
    """Half of the bytes also may halve the time of computing. At best, the link to the device is always busy."""
    cause = causes_of(offload(tmp_path))["host_copies"]
    after = ranges(cause)
    assert [*after] == ["keep_on_device", "halve_copies", "overlap_copies"]
    assert after["keep_on_device"] == pytest.approx((80, 80))
    assert after["halve_copies"] == pytest.approx((400, 440))
    assert after["overlap_copies"] == pytest.approx((520, 800))
    assert "2.15 GB of 33.6 GB, donated" in cause.actions[0].text


def test_the_first_screen_has_all_choices(tmp_path: Path) -> None:
    section = build(results_of(offload(tmp_path)))
    finding = next(each for each in section.findings if each.code == "host_copies")
    assert finding.level == "brief"
    assert [part.partition(" -> ")[2] for part in finding.action.split("; or ")] == [
        *("step 80.0 ms", "step 400 to 440 ms", "step 520 to 800 ms")
    ]
    assert not any("Also for host_copies" in each.text for each in section.findings)


HBM, VMEM, HOST = "f32[1024,1024]{1,0}", "f32[1024,1024]{1,0:S(1)}", "f32[1024,1024]{1,0:S(5)}"


def job(folder: Path, *ops: tuple[str, str, float, float], more: Sequence[Event] = ()) -> HostTrace:
    """Five steps of 100 us, in which a core runs ops: name, category, start and duration."""
    steps = line("Steps", *(event(str(n), 100 * n, 100) for n in range(5)), id=1)
    events = [event(name, 100 * n + at, takes) for n in range(5) for name, _, at, takes in ops]
    facts = {name: {"hlo_category": category} for name, category, _, _ in ops}
    core = plane("/device:TPU:0", steps, line("XLA Ops", *events, id=2), name_stats=facts)
    return trace_of(folder, core, host(event("tpu::System::Execute", 0, 1), *more))


def copy(to: str, source: str, at: float, takes: float, until: float) -> tuple[tuple[str, str, float, float], ...]:
    """A copy that begins with a short op, and is awaited for some time until it is done."""
    kinds = f"({to}, {source}, u32[]{{:S(2)}})"
    begins = (f"%copy-start = {kinds} copy-start({source} %p)", "copy-start", at, 1)
    return begins, (f"%copy-done = {to} copy-done({kinds} %copy-start)", "copy-done", until - takes, takes)


def test_arrays_that_only_go_to_the_host(tmp_path: Path) -> None:
    trace = job(tmp_path, ("fusion", "loop fusion", 0, 60), *copy(HOST, HBM, 60, 35, 100))
    cause = causes_of(trace)["host_copies"]
    assert cause.cost_percent is not None
    assert cause.cost_percent.high == pytest.approx(35)
    assert "1 array f32[1024,1024]" in cause.detail
    assert "goes to the host in each step: 4.19 MB at 105 to 120 GB/s" in cause.detail
    keep = next(each for each in cause.actions if each.code == "keep_on_device")
    assert keep.text.endswith(", if they fit")  # neither the arrays nor the memory are known
    assert keep.step_ms is None


def test_waiting_for_copies_on_the_chip(tmp_path: Path) -> None:
    trace = job(tmp_path, ("fusion", "loop fusion", 0, 60), *copy(VMEM, HBM, 60, 30, 95))
    found = causes_of(trace)
    assert "host_copies" not in found
    cause = found["chip_copies"]
    assert cause.cost_percent is not None
    assert cause.cost_percent.high == pytest.approx(30)
    assert cause.detail.startswith("1 copy, longest copy-done at 120 to 140 GB/s")
    assert ranges(cause) == {"fewer_bytes": None}


def test_batches_that_pass_through_host_memory_are_input(tmp_path: Path) -> None:
    """The host transfers as many bytes in each step."""
    transfers = [event("tpu::System::TransferToDevice", 100 * n + 2, 5, size=4 << 20) for n in range(5)]
    ops = ("fusion", "loop fusion", 60, 40), *copy(HBM, HOST, 0, 50, 55)
    found = causes_of(job(tmp_path, *ops, more=transfers))
    assert "host_copies" not in found
    assert "input_copy" in found
    assert "host_copies" in causes_of(job(tmp_path, *ops))


def test_copies_that_are_done_before_they_are_awaited_cost_nothing(tmp_path: Path) -> None:
    trace = job(tmp_path, ("fusion", "loop fusion", 2, 95), *copy(HBM, HOST, 0, 1, 98))
    assert not {"host_copies", "chip_copies"} & causes_of(trace).keys()


def test_a_kernel_that_waits_for_its_blocks(tmp_path: Path) -> None:
    """Three runs of 75.75 us; the kernel marks waiting for 57.8 of them. It moves 32 MiB at least, of 54 % of HBM."""
    path = tmp_path / "tpu.xplane.pb"
    path.write_bytes(tpu_twin())
    cause = causes_of(read_host(path))["kernel_waits"]
    assert cause.cost_ms is not None
    assert "matmul_optimized.1 waits 76.3% of its time, mostly in ep_wait_in" in cause.detail
    assert "by its shapes, it reaches 12.4% of the peak and at least 27.0% of the bandwidth" in cause.detail
    (action,) = cause.actions
    assert action.step_ms is not None
    assert action.step_ms.high == pytest.approx(cause.step_ms)
    assert cause.step_ms - action.step_ms.low <= cause.cost_ms.high
    assert [each.row for each in cause.rests_on] == ["Device compute", "ep_wait_in"]


def test_barriers_are_told_from_exchanging(tmp_path: Path) -> None:
    steps = line("Steps", *(event(str(n), 100 * n, 100) for n in range(5)), id=1)
    ops = [("all-reduce", 40, 30), ("fusion", 70, 30)]
    events = [event(name, 100 * n + at, takes) for n in range(5) for name, at, takes in ops]
    marks = line("XLA TraceMe", *(event("barrier-cores", 100 * n, 40) for n in range(5)), id=3)
    facts = {"all-reduce": {"hlo_category": "all-reduce"}, "fusion": {"hlo_category": "loop fusion"}}
    core = plane("/device:TPU:0", steps, line("XLA Ops", *events, id=2), marks, name_stats=facts)
    cause = causes_of(trace_of(tmp_path, core))["collectives"]
    assert cause.cost_percent is not None
    assert cause.cost_percent.high == pytest.approx(70)
    assert cause.detail.endswith("; 40.0% of the step is waiting at a barrier for cores that come later")


@pytest.mark.skipif(not REAL.is_dir(), reason="the real profiles are no part of the project")
def test_the_first_screen_of_a_real_program() -> None:
    diagnosis: Diagnosis = tfperf.load(REAL)["diagnosis"]
    first = diagnosis.causes[0]
    assert first.code == "host_copies"
    assert first.cost_percent is not None
    assert first.cost_percent.high == pytest.approx(96.94, abs=0.1)
    assert "3 arrays f32[5,1024,1024,256] (ws[0], ws[1], ws[2], 5.37 GB each)" in first.detail
    assert "16.1 GB to the TPU at 27.1 to 27." in first.detail
    assert "16.1 GB back at 29.4 GB/s" in first.detail
    after = ranges(first)
    assert after["keep_on_device"] == pytest.approx((24.05, 24.05), abs=0.3)
    assert after["halve_copies"] == pytest.approx((392.1, 404.1), abs=0.3)
    assert after["overlap_copies"] == pytest.approx((593.8, 784.1), abs=1)
    assert "16.1 GB of 33.6 GB, donated" in first.actions[0].text
    assert diagnosis.summary.input_class == "none"
