"""The section says how long the device waits, for what, and what would help; times in microseconds."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import Event, Plane, event, host, line, plane, trace_of

from tfperf.analyzers import idle
from tfperf.analyzers.idle import Idle
from tfperf.analyzers.idle_pieces import CAUSES
from tfperf.render.markdown import render_markdown
from tfperf.render.options import RenderOptions
from tfperf.render.terminal import render_terminal
from tfperf.report.model import Report, Section, Table
from tfperf.reports import idle_columns
from tfperf.reports.idle_section import brief_idle_section, idle_findings, idle_section
from tfperf.trace.find_steps import find_steps


def analyzed(tmp_path: Path, *planes: Plane) -> Idle:
    trace = trace_of(tmp_path, *planes)
    return idle.analyze(trace, find_steps(trace))


def job(*calls: Event, kernels: tuple[tuple[float, float], ...], more: tuple[Plane, ...] = ()) -> tuple[Plane, ...]:
    """One marked step of 100 us, and the kernels of a GPU."""
    work = [event("gemm", begin, duration) for begin, duration in kernels]
    return (host(event("train", 0, 100, step_num=0), *calls), plane("/device:GPU:0", line("Stream #1", *work)), *more)


def call(begin: float = 0, duration: float = 100) -> Event:
    return event("EagerKernelExecute", begin, duration)


def table(found: Section, name: str) -> Table:
    return next(table for table in found.tables if table.name == name)


def shown(section: Section) -> str:
    return render_terminal(Report({}, {}, (section,)), RenderOptions(width=80))


def test_every_cause_has_words() -> None:
    assert set(CAUSES) == set(idle_columns.CAUSE_TITLES) == set(idle_columns.CAUSE_MEANINGS)
    keys = {column.key for column in idle_columns.DEVICES}
    assert {f"{cause}_percent" for cause in CAUSES} < keys


def test_the_largest_cause_comes_first_with_its_share_and_what_to_do(tmp_path: Path) -> None:
    """40 us of input, 10 us of launching, 4 us of Python: the last is too little for advice."""
    fetch = event("IteratorGetNextOp::DoCompute", 0, 40)
    found = analyzed(tmp_path, *job(fetch, call(40, 56), kernels=((50, 46),)))
    first, second = idle_findings(found)
    assert (first.code, first.severity) == ("idle_input", "problem")
    assert first.text == "The device waits for input: 40.0% of the step time (advice from 5%)."
    assert "-s tfdata" in first.action
    assert (second.code, second.severity) == ("idle_launch", "hint")
    assert "jit_compile=True" in second.action


def test_little_of_each_needs_no_advice(tmp_path: Path) -> None:
    found = analyzed(tmp_path, *job(call(), kernels=((0, 97),)))
    (finding,) = idle_findings(found)
    assert (finding.code, finding.severity) == ("idle_none", "info")
    assert "idle for 3.0% of the step time" in finding.text


def test_tables_hold_causes_and_gaps(tmp_path: Path) -> None:
    found = idle_section(analyzed(tmp_path, *job(call(30, 70), kernels=((0, 10), (40, 50)))), None)
    causes = table(found, "idle_causes").data
    assert list(causes["cause"]) == ["Launching", "Python between calls"]
    assert causes["step_percent"] == pytest.approx([20, 20])
    assert causes["idle_percent"] == pytest.approx([50, 50])
    gaps = table(found, "idle_gaps").data
    assert gaps["length_ms"] == pytest.approx([0.03, 0.01])
    assert list(gaps["cause"]) == ["Python between calls", "Launching"]
    assert gaps["cause_percent"] == pytest.approx([200 / 3, 100])
    assert list(gaps["launched_before_ms"]) == [None, None]  # nothing links kernels to calls here
    devices = table(found, "idle_devices").data
    assert devices["idle_percent"] == pytest.approx([40])
    assert devices["launch_percent"] == pytest.approx([20])


def test_a_profile_of_the_host_alone_is_one_sentence(tmp_path: Path) -> None:
    found = analyzed(tmp_path, host(event("train", 0, 100, step_num=0), call()))
    for section in (idle_section(found, 10), idle_section(found, None), brief_idle_section(found)):
        assert (section.tables, section.findings, section.facts) == ((), (), ())
        (note,) = section.notes
        assert "nothing to attribute" in note
    assert idle_findings(found) == ()


def test_without_steps_it_says_of_the_capture(tmp_path: Path) -> None:
    found = analyzed(tmp_path, host(call(0, 50)), plane("/device:GPU:0", line("Stream #1", event("gemm", 40, 60))))
    section = idle_section(found, 10)
    assert section.findings[0].text.startswith("The device waits for launches: 40.0% of the capture")
    assert section.findings[0].severity == "hint"  # the begin of a capture is nobody's fault
    assert [column.title for column in table(section, "idle_causes").columns][2:4] == ["Time", "Of capture"]
    assert any(note.startswith("No steps (") for note in section.notes)


def test_it_says_what_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle, "MOST_GAPS", 1)
    idle_gpu = plane("/device:GPU:1", line("Stream #1", event("gemm", 150, 5)))
    found = analyzed(tmp_path, *job(call(), kernels=((0, 10), (20, 10), (60, 40)), more=(idle_gpu,)))
    section = idle_section(found, 10)
    assert table(section, "idle_gaps").note == "2 shorter gaps are not listed, here and in JSON and CSV."
    assert any("1 of 2 devices did nothing" in note and "/device:GPU:1" in note for note in section.notes)
    both = idle.combine([found, analyzed(tmp_path, host(call()))])
    assert any("1 of 2 hosts recorded no device: host." in note for note in idle_section(both, 10).notes)


def test_unknown_time_says_that_no_call_is_recorded(tmp_path: Path) -> None:
    found = analyzed(tmp_path, plane("/device:GPU:0", line("Stream #1", event("a", 0, 10), event("b", 60, 40))))
    section = idle_section(found, 10)
    assert section.findings[0].code == "idle_unknown"
    assert "No call of the program is recorded, so time in Python is among the unknown." in section.notes


@pytest.mark.parametrize("name", ["x" * 5000, "\x1b[31mred\n\t|<b>", "\x00\u202e"])
def test_hostile_names_fit_the_terminal(tmp_path: Path, name: str) -> None:
    """A name of 5000 letters, and one with control characters, on the host, a thread and the device."""
    op = plane("/host:CPU", line(name, event("train", 0, 100, step_num=0), call(0, 5), event(name, 5, 45)))
    device = plane(f"/device:GPU:{name}", line(name, event(name, 50, 50)))
    text = shown(idle_section(analyzed(tmp_path, op, device), 10))
    assert all(len(row) <= 80 for row in text.splitlines())
    assert "\x1b" not in text
    render_markdown(Report({}, {}, (idle_section(analyzed(tmp_path, op, device), 10),)), RenderOptions())


def test_the_brief_section_has_the_first_finding_and_the_causes(tmp_path: Path) -> None:
    found = analyzed(tmp_path, *job(call(30, 70), kernels=((0, 10), (40, 50))))
    section = brief_idle_section(found)
    assert len(section.findings) == 1
    assert [table.name for table in section.tables] == ["idle_causes"]
    assert section.notes == ("More: -s idle.",)
