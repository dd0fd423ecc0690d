"""Hosts on one axis of time: by their clocks, corrected by what they exchange."""

from __future__ import annotations

from pathlib import Path

from builders import event, host, logdir_of, space, trace_of
from sections.hosts.jobs import host_of_job

from tfperf.export.timeline.export import ExportResult, clock_shifts, shifted, write_timeline
from tfperf.trace.logdir import HostFile, find_runs

LATE = [20_000.0] * 4


def files(tmp_path: Path, **hosts: bytes) -> tuple[HostFile, ...]:
    return find_runs(logdir_of(tmp_path, **hosts))[0].files


def test_a_wrong_clock_is_corrected(tmp_path: Path) -> None:
    """The session of b starts at the same moment, though its clock is 138 ms ahead."""
    right, wrong = host_of_job([0] * 4, LATE), host_of_job([20_000] * 4, LATE, clock_us=138_000)
    shifts = clock_shifts(files(tmp_path, a=right, b=wrong))
    assert shifts.shifts_ps == (0, 0)
    assert shifts.sentence == (
        "hosts are shown by their own clocks, corrected by the collectives that they share: b by -138 ms"
    )


def test_sessions_that_start_apart_are_moved(tmp_path: Path) -> None:
    """Without a collective, clocks are taken as they are: b starts 3 ms after a."""
    a, b = (
        host_of_job([0] * 4, LATE, clock_us=clock_us, first=first) for clock_us, first in ((7_000, 0), (10_000, 50))
    )
    shifts = clock_shifts(files(tmp_path, a=a, b=b))
    assert (shifts.shifts_ps, shifts.sentence) == ((0, 3_000_000_000), "hosts are shown by their own clocks")


def test_without_a_clock_nothing_is_moved(tmp_path: Path) -> None:
    shifts = clock_shifts(files(tmp_path, a=host_of_job([0] * 4, LATE), b=space(host(event("a", 0, 1)))))
    assert shifts.shifts_ps == (0, 0)
    assert shifts.sentence == "clocks of hosts are unknown, so each host starts at 0"
    assert clock_shifts(files(tmp_path / "one", a=host_of_job([0] * 4, LATE))).sentence == ""


def test_all_times_move(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, host(event("a", 5, 2), event("MemoryAllocation", 6, 0, allocator_name="x")))
    moved = shifted(trace, 1_000_000)
    assert (moved.start_ps - trace.start_ps).tolist() == [1_000_000]
    assert (moved.end_ps - trace.end_ps).tolist() == [1_000_000]
    assert (moved.memory.start_ps - trace.memory.start_ps).tolist() == [1_000_000]
    assert shifted(trace, 0) is trace


def test_the_timeline_says_how_clocks_were_brought_together(tmp_path: Path) -> None:
    logdir = logdir_of(tmp_path, a=host_of_job([0] * 4, LATE), b=host_of_job(LATE, LATE, clock_us=138_000))
    result: ExportResult = write_timeline(logdir, tmp_path / "t.json")
    assert any(sentence.endswith("b by -138 ms") for sentence in result.sentences())
