"""The section says how long the device waits, and for what; times in microseconds, one step of 100 us."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import Event, Plane, event, gpu, host, host_of, marks, plane, results_of, trace_of
from msgspec.structs import replace

from tfperf.analysis.load import assemble
from tfperf.report.model import Finding, Report, Section, Table
from tfperf.report.shown import Detail, shown
from tfperf.sections.idle import IDLE_CAUSES, IDLE_GAPS, TABLES, idle_findings
from tfperf.sections.idle.analysis import MOST_GAPS
from tfperf.trace.host_trace import HostTrace

BRIEF = Detail("brief", "brief")

FULL = Detail("full", "full")


def job(*calls: Event, kernels: tuple[tuple[float, float], ...], more: tuple[Plane, ...] = ()) -> tuple[Plane, ...]:
    """One marked step of 100 us, and the kernels of a GPU."""
    work = [event("gemm", start, duration) for start, duration in kernels]
    return host(*marks(1), *calls), gpu(*work), *more


def call(start: float = 0, duration: float = 100) -> Event:
    return event("EagerKernelExecute", start, duration)


def report(*traces: HostTrace) -> Report:
    return assemble(results_of(*traces, sections=["idle"]), ["idle"])


def section(tmp_path: Path, *planes: Plane, detail: Detail = FULL) -> Section:
    (only,) = shown(report(trace_of(tmp_path, *planes)), detail).sections
    return only


def table(section: Section, name: str) -> Table:
    return next(table for table in section.tables if table.name == name)


def titles(table: Table) -> list[str]:
    return [column.title for column in table.columns]


def two_causes() -> tuple[Plane, ...]:
    """20 us of Python and 20 us of launching in a step of 100 us."""
    return job(call(30, 70), kernels=((0, 10), (40, 50)))


# --- whole reports, the section by name, programs ---
def test_a_whole_report_has_the_first_finding_and_the_causes(tmp_path: Path) -> None:
    brief = section(tmp_path, *two_causes(), detail=BRIEF)
    assert [finding.code for finding in brief.findings] == ["idle_launch"]
    assert [fact.key for fact in brief.facts] == ["idle_percent", "gap_count", "longest_gap"]
    assert [table.name for table in brief.tables] == ["idle_causes"]
    assert titles(table(brief, "idle_causes"))[1:3] == ["Per step", "Of idle"]
    assert brief.notes == ("More: -s idle.",)


def test_the_section_by_name_has_all_findings_and_the_gaps(tmp_path: Path) -> None:
    full = section(tmp_path, *two_causes())
    assert [finding.code for finding in full.findings] == ["idle_launch", "idle_python"]
    assert [table.name for table in full.tables] == ["idle_causes", "idle_gaps"]
    assert titles(table(full, "idle_gaps")) == ["Step", "Start", "Duration", "Mostly", "Thread", "Event"]
    assert full.notes == ("Idle time is the part of the step in which no stream of the device computes or copies.",)


def test_several_devices_have_a_table_and_their_names_beside_gaps(tmp_path: Path) -> None:
    """Both wait for launches; of the causes that none has there is no column."""
    other = gpu(event("gemm", 50, 50), number=1)
    full = section(tmp_path, *job(call(), kernels=((10, 90),), more=(other,)))
    assert [table.name for table in full.tables] == ["idle_causes", "idle_devices", "idle_gaps"]
    assert titles(table(full, "idle_devices")) == ["Device", "Step", "Idle", "Idle", "Launch"]
    assert list(table(full, "idle_devices").data["device"]) == ["GPU:0", "GPU:1"]
    assert set(table(full, "idle_gaps").data["device"]) == {"GPU:0", "GPU:1"}
    assert titles(table(full, "idle_gaps")) == ["Device", "Step", "Start", "Duration", "Mostly", "Event"]
    assert "Shares are means over devices" in full.notes[1]


def test_several_hosts_are_named(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, *two_causes())
    (full,) = shown(report(trace, trace), FULL).sections
    assert titles(table(full, "idle_devices"))[:2] == ["Host", "Device"]
    assert titles(table(full, "idle_gaps"))[:3] == ["Host", "Device", "Step"]


def test_without_steps_all_is_of_the_capture(tmp_path: Path) -> None:
    full = section(tmp_path, host(call(0, 50)), gpu(event("gemm", 40, 60)))
    assert titles(table(full, "idle_causes"))[1:3] == ["Time", "Of idle"]
    assert titles(table(full, "idle_gaps"))[0] == "Start"
    assert full.facts[0].note == "of the capture"
    assert full.notes[0].startswith("No steps (")


# --- what is missing ---
def test_a_profile_of_the_host_alone_is_one_sentence(tmp_path: Path) -> None:
    whole = report(trace_of(tmp_path, host(*marks(1), call())))
    (only,) = whole.sections
    assert (only.tables, only.findings, only.facts) == ((), (), ())
    (note,) = only.notes
    assert "only host events, so there is no device idle time" in note
    assert shown(whole, BRIEF).sections == ()


def test_a_device_without_work_is_one_sentence(tmp_path: Path) -> None:
    (only,) = report(trace_of(tmp_path, host(call()), gpu(event("marker", 10, 0)), instants=True)).sections
    assert (only.tables, only.findings, only.facts) == ((), (), ())
    assert "recorded no work" in only.notes[0]


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    """GPU 1 works after the step, so it has no gap and no row in the list."""
    gaps = MOST_GAPS + 2
    kernels = tuple((0.09 * at, 0.05) for at in range(gaps))
    outside = gpu(event("gemm", 150, 5), number=1)
    full = section(tmp_path, *job(call(), kernels=kernels, more=(outside,)))
    assert table(full, "idle_gaps").note == "Shorter gaps, not listed here or in JSON and CSV: 2."
    assert full.notes[1:] == (
        "Shares and gaps exclude devices that run kernels only outside of the averaged steps: GPU:1.",
    )


def test_a_device_that_only_copies_is_no_part_of_shares(tmp_path: Path) -> None:
    copies = gpu(event("MemcpyH2D", 50, 5), number=1)
    full = section(tmp_path, *job(call(), kernels=((10, 90),), more=(copies,)))
    assert full.facts[0].value == 10
    assert full.facts[0].note == "of the step time of GPU:0, the only one of 2 devices with kernels in the steps"
    assert "idle_devices" not in {fact.key for fact in full.facts}
    assert full.notes[1].endswith("exclude devices that only copy in the averaged steps: GPU:1.")


def test_devices_that_do_nothing_are_a_fact_of_their_own(tmp_path: Path) -> None:
    """All other facts, and the table of gaps, are of the only device that works in the step."""
    copies = gpu(event("MemcpyH2D", 150, 5), number=1)
    silent = (plane(f"/device:GPU:{number}") for number in (2, 3))
    brief = section(tmp_path, *job(call(), kernels=((10, 90),), more=(copies, *silent)), detail=BRIEF)
    facts = {fact.key: (fact.value, fact.note) for fact in brief.facts}
    of_one = "of the step time of GPU:0, the only one of 4 devices with kernels in the steps"
    assert facts["idle_percent"] == (10, of_one)
    assert facts["longest_gap"] == (0.01, "of GPU:0")
    reasons = "GPU:2, GPU:3 (no recorded work: unused or not traced); GPU:1 (no recorded kernels)"
    assert facts["idle_devices"] == (3, f"of 4: {reasons}")


def test_the_only_device_may_be_idle(tmp_path: Path) -> None:
    """Nothing works in the step: the only device of the trace is idle all the time, and nothing is said of others."""
    brief = section(tmp_path, *job(call(), kernels=((150, 5),)), detail=BRIEF)
    assert [fact.key for fact in brief.facts] == ["idle_percent", "gap_count", "longest_gap"]
    assert (brief.facts[0].value, brief.facts[0].note) == (100, "of the step time")


def test_flagged_steps_are_said_to_be_left_out(tmp_path: Path) -> None:
    """Five steps; the first takes six times as long."""
    steps = [event("train", 0, 600, step_num=0), *(event("train", 500 + 100 * n, 100, step_num=n) for n in range(1, 5))]
    notes = section(tmp_path, host(*steps, call(0, 1000)), gpu(event("gemm", 10, 900))).notes
    assert any("exclude flagged steps and steps of other kinds (1 of 5)" in note for note in notes)


def test_hosts_without_device_are_named(tmp_path: Path) -> None:
    with_device = trace_of(tmp_path, *two_causes())
    without = trace_of(tmp_path, host(call()))
    (full,) = shown(report(with_device, without), FULL).sections
    assert f"1 of 2 hosts recorded no devices: {without.host}." in full.notes
    (full,) = shown(report(with_device, *(replace(without, host=f"w{n}") for n in range(7))), FULL).sections
    assert "7 of 8 hosts recorded no devices: w0, w1, w2, w3, w4 and 2 more." in full.notes


def test_unknown_time_says_that_no_call_is_recorded(tmp_path: Path) -> None:
    full = section(tmp_path, gpu(event("a", 0, 10), event("b", 60, 40)))
    assert full.findings[0].code == "idle_unknown"
    assert "The profile has no calls of the program, so time in Python counts as unknown." in full.notes


def found(tmp_path: Path, *planes: Plane) -> tuple[Finding, ...]:
    return idle_findings(host_of(trace_of(tmp_path, *planes), "idle")["idle"])


def test_the_largest_cause_comes_first_with_its_share(tmp_path: Path) -> None:
    """40 us of input, 10 us of launching, 4 us of Python: the last is too little to be named."""
    fetch = event("IteratorGetNextOp::DoCompute", 0, 40)
    first, second = found(tmp_path, *job(fetch, call(40, 56), kernels=((50, 46),)))
    assert (first.code, first.severity) == ("idle_input", "problem")
    assert first.text == "The device is idle for 54.0% of the step time; 74.1% of that while the step waits for input."
    assert (second.code, second.severity) == ("idle_launch", "hint")
    assert {first.action, second.action} == {""}, "the diagnosis says what to do"
    assert [(quantity.key, quantity.value, quantity.of) for quantity in first.quantities] == [
        ("idle", 54.0, "the step time"),
        ("idle: input", pytest.approx(100 * 40 / 54), "idle time"),
    ]
    assert "input_wait" in first.causes
    assert "launch_bound" in second.causes


def test_several_devices_are_said_to_be_averaged(tmp_path: Path) -> None:
    other = gpu(event("gemm", 50, 50), number=1)
    (one_silent,) = found(tmp_path, *job(call(), kernels=((50, 50),)), other, plane("/device:GPU:2"))
    assert ", average over 2 of 3 devices; " in one_silent.text
    (finding,) = found(tmp_path, *job(call(), kernels=((50, 50),)), other)
    assert finding.text == (
        "The device is idle for 50.0% of the step time, average over 2 devices; 100.0% of that while the host launches "
        "work."
    )


def test_the_only_device_at_work_is_named_beside_idle_ones(tmp_path: Path) -> None:
    """Two of four record no work; one works after the step only."""
    silent = (plane(f"/device:GPU:{number}") for number in (1, 2))
    after = gpu(event("gemm", 150, 5), number=3)
    (finding,) = found(tmp_path, *job(call(), kernels=((50, 50),)), *silent, after)
    assert finding.text == (
        "GPU:0 (1 of 4 devices) is idle for 50.0% of the step time; 100.0% of that while the host launches work."
    )


def test_little_of_each_is_not_named(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, *job(call(), kernels=((0, 97),)))
    assert (finding.code, finding.severity) == ("idle_none", "info")
    assert "idle for 3.0% of the step time" in finding.text


def test_without_steps_it_is_of_the_capture_and_no_problem(tmp_path: Path) -> None:
    """The start of a capture is nobody's fault."""
    finding = found(tmp_path, host(call(0, 50)), gpu(event("gemm", 40, 60)))[0]
    assert finding.text == "The device is idle for 40.0% of the capture; 100.0% of that while the host launches work."
    assert finding.severity == "hint"


def test_unknown_time_is_no_problem_of_the_program(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, *job(kernels=((50, 50),)))
    assert (finding.code, finding.severity) == ("idle_unknown", "hint")
    assert "level 2" in finding.text


@pytest.mark.parametrize("devices", [(), (gpu(event("marker", 10, 0)),)], ids=["host alone", "no work"])
def test_a_profile_without_work_of_a_device_has_no_table(tmp_path: Path, devices: tuple[Plane, ...]) -> None:
    results = results_of(trace_of(tmp_path, host(event("f", 0, 10)), *devices, instants=True), sections=["idle"])
    assert [table.data(results) for table in TABLES] == [None] * len(TABLES)


def test_a_device_that_is_never_idle_has_no_gaps(tmp_path: Path) -> None:
    results = results_of(trace_of(tmp_path, *job(kernels=((0, 100),))), sections=["idle"])
    causes = IDLE_CAUSES.data(results)
    assert IDLE_GAPS.data(results) is None
    assert causes is not None
    assert list(causes["cause"]) == []
