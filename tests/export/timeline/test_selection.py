"""What is shown and what is omitted, and that this is said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from builders import event, host, line, logdir_of, plane, space, trace_of
from export.timeline.example_files import exported, host_file, shown
from hypothesis import given
from hypothesis import strategies as st
from sections.hosts.jobs import host_of_job

from tfperf.base.errors import OutputError, TfperfError
from tfperf.export.timeline.export import clock_shifts, export, shifted
from tfperf.export.timeline.selection import Selection, SelectionCheck
from tfperf.export.timeline.tracks import assign_tracks, lanes
from tfperf.trace.logdir import HostFile, find_runs
from tfperf.trace.steps.find_steps import find_steps

US = 1_000_000
STEPS = [event("train", 10 * i, 8, step_num=i) for i in range(6)]


def test_steps_keep_what_overlaps_them(tmp_path: Path) -> None:
    """Steps 2 and 3 last from 20 to 40 us; an event that ends at 20 or starts at 40 does not overlap."""
    times = {"before": (10, 20), "into": (15, 21), "at": (20, 20), "in": (30, 31), "over": (0, 60), "end": (40, 40)}
    others = line(
        "t", *(event(name, start, end - start) for name, (start, end) in times.items()), event("after", 40, 5)
    )
    read = shown(tmp_path, plane("/host:CPU", line("python", *STEPS), others), selection=Selection(steps=(2, 3)))
    assert sorted(shown_slice.name for shown_slice in read.on("t")) == ["at", "in", "into", "over"]
    assert [step.args["number"] for step in read.on("steps")] == [2, 3]


def test_short_events_are_omitted_and_counted(tmp_path: Path) -> None:
    traced = host(event("long", 0, 10), event("equal", 1, 2), event("short", 4, 1), event("instant", 5, 0))
    result, _ = exported(tmp_path, traced, selection=Selection(min_duration_ps=2 * US))
    assert (result.events, result.shown, result.omitted) == (4, 2, {"shorter than the minimum duration": 2})
    assert "omitted 2 of 4 events: shorter than the minimum duration" in list(result.sentences())


def test_threads_by_name_or_plane(tmp_path: Path) -> None:
    planes = (
        plane("/host:CPU", line("python", event("a", 0, 1)), line("tf_pool/1", event("b", 0, 1))),
        plane("/device:GPU:0", line("stream 1", event("c", 0, 1))),
    )
    for patterns, expected in ((("tf_*",), "b"), (("*GPU*", "python"), "ac"), (("stream [1]",), "c")):
        read = shown(tmp_path, *planes, selection=Selection(threads=patterns))
        assert "".join(sorted(shown_slice.name for shown_slice in read.slices)) == expected
        (tmp_path / "made.pftrace").unlink()


def test_reasons_add_up(tmp_path: Path) -> None:
    """Each omitted event counts once, for the first reason."""
    traced = plane("/host:CPU", line("python", *STEPS, event("tiny", 21, 0.5)), line("other", event("o", 0, 0.1)))
    result, _ = exported(tmp_path, traced, selection=Selection((2, 2), ("python",), US))
    assert result.omitted == {
        "on other threads": 1,
        "outside the selected steps": 5,
        "shorter than the minimum duration": 1,
    }
    assert result.events == result.shown + sum(result.omitted.values())


def test_invalid_times_are_counted(tmp_path: Path) -> None:
    result, _ = exported(tmp_path, host(event("good", 0, 1), event("bad", 1, -5)))
    assert (result.shown, result.omitted) == (1, {"with invalid times": 1})


def test_arrows_that_lose_an_end_are_counted(tmp_path: Path) -> None:
    traced = plane("/host:CPU", line("a", event("p", 0, 1, _pt=1, _p=5)), line("b", event("c", 5, 1, _ct=1, _c=5)))
    result, _ = exported(tmp_path, traced, selection=Selection(threads=("a",)))
    assert (result.arrows, result.cut_arrows) == (0, 1)


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        (Selection(steps=(7, 9)), r"steps 7\.\.9 do not exist; the steps are 0\.\.5"),
        (Selection(steps=(7, 7)), r"step 7 does not exist; the steps are 0\.\.5"),
        (Selection(threads=("nobody",)), "no thread or plane is named nobody; the threads are: python"),
    ],
)
def test_nothing_of_what_was_asked_for_is_an_error(tmp_path: Path, selection: Selection, message: str) -> None:
    with pytest.raises(TfperfError, match=message):
        exported(tmp_path, host(*STEPS), selection=selection)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["h0.xplane.pb"]


def test_threads_that_there_are_are_listed_once(tmp_path: Path) -> None:
    """Five names on each of two hosts."""
    lines = [line(f"t{number}", event("a", 0, 1)) for number in range(5)]
    files = [host_file(tmp_path, plane("/host:CPU", *lines), host=name) for name in ("w0", "w1")]
    with pytest.raises(TfperfError, match=r"the threads are: t0, t1, t2, t3, t4$"):
        export(files, tmp_path / "o.pftrace", Selection(threads=("nobody",)))


def test_steps_of_a_profile_without_steps(tmp_path: Path) -> None:
    with pytest.raises(TfperfError, match="the profile has no steps; omit --steps"):
        exported(tmp_path, host(event("a", 0, 1)), selection=Selection(steps=(1, 1)))


def test_a_file_is_replaced_only_with_force(tmp_path: Path) -> None:
    file, output = host_file(tmp_path, host(event("a", 0, 1))), tmp_path / "o.pftrace"
    output.write_text("mine")
    with pytest.raises(OutputError, match="exists; pass --force"):
        export([file], output)
    assert output.read_text() == "mine"
    assert export([file], output, force=True).size_bytes == output.stat().st_size


def test_counters_keep_to_the_steps(tmp_path: Path) -> None:
    notes = [event("MemoryAllocation", at, 0, allocator_name="cpu", bytes_allocated=at) for at in (5, 15, 25)]
    read = shown(tmp_path, host(*STEPS, *notes), selection=Selection(steps=(1, 1)))
    assert list(read.counters.values()) == [[(15_000, 15)]]


def test_a_step_by_its_duration_is_that_of_the_first_host_with_steps(tmp_path: Path) -> None:
    """Steps of 100, 300 and 110 us: the second is the slowest, also of a host on which another one is."""
    times = ((0, 100), (100, 300), (400, 110))
    marks = [event("train", start, duration, step_num=7 + n) for n, (start, duration) in enumerate(times)]
    first = find_steps(trace_of(tmp_path, host(*marks)))
    other = find_steps(trace_of(tmp_path, host(*(event("train", 500 * n, 500, step_num=7 + n) for n in range(3)))))
    none = find_steps(trace_of(tmp_path, host(event("x", 0, 1))))
    check = SelectionCheck(Selection(step="slowest"))
    assert check.choose(none).steps == (1, 0), "nothing of a host without steps"
    assert check.choose(first).steps == (8, 8)
    assert check.choose(other).steps == (8, 8)
    assert SelectionCheck(Selection(step="median")).choose(first).steps == (9, 9)
    assert SelectionCheck(Selection(step=4)).choose(first).steps == (4, 4)


def test_a_step_of_a_profile_without_steps_is_an_error(tmp_path: Path) -> None:
    check = SelectionCheck(Selection(step="median"))
    check.choose(find_steps(trace_of(tmp_path, host(event("x", 0, 1)))))
    with pytest.raises(TfperfError, match="has no steps; omit --step"):
        check.raise_if_empty()


INTERVALS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=60).map(sorted)


def one_by_one(intervals: list[tuple[int, int]]) -> list[int]:
    """Give each interval the first free lane, as one would by hand."""
    free: list[int] = []
    chosen = []
    for start, length in intervals:
        lane = next((lane for lane, time in enumerate(free) if time <= start), len(free))
        free[lane : lane + 1] = [start + max(length, 1)]
        chosen.append(lane)
    return chosen


def given_lanes(intervals: list[tuple[int, int]]) -> list[int]:
    start, length = np.array(intervals, np.int64).reshape(-1, 2).T
    return list(lanes(start, start + length).tolist())


@given(INTERVALS)
def test_each_interval_gets_the_first_free_lane(intervals: list[tuple[int, int]]) -> None:
    assert given_lanes(intervals) == one_by_one(intervals)


def test_more_intervals_at_once_than_lanes_are_filled() -> None:
    intervals = [(0, 10)] * (250)
    assert given_lanes(intervals) == [*range(len(intervals))]


def tracks_of(*events: tuple[int, int]) -> list[int]:
    """The tracks of events (start, duration), in the order of their starts, the longer first."""
    start, length = np.array(sorted(events, key=lambda row: (row[0], -row[1])), np.int64).T
    return list(assign_tracks(start, start + length).tolist())


@pytest.mark.parametrize(
    ("events", "tracks"),
    [
        pytest.param([(0, 10), (0, 10), (2, 3), (5, 5), (10, 4)], [0, 0, 0, 0, 0], id="nested"),
        pytest.param([(10 * i, 15) for i in range(6)], [0, 1, 2, 1, 2, 1], id="each crosses the one before"),
        pytest.param([(0, 10), (4, 20), (6, 10), (11, 2)], [0, 1, 1, 0], id="inside of one that crosses"),
        pytest.param([(i, 1000) for i in range(1000)], [*range(1000)], id="each crosses all others"),
    ],
)
def test_events_that_cross_get_tracks_of_their_own(events: list[tuple[int, int]], tracks: list[int]) -> None:
    assert tracks_of(*events) == tracks


LATE = [20_000.0] * 4


def files(tmp_path: Path, **hosts: bytes) -> tuple[HostFile, ...]:
    return find_runs(logdir_of(tmp_path, **hosts))[0].files


def test_a_wrong_clock_is_corrected(tmp_path: Path) -> None:
    """The session of b starts at the same moment, though its clock is 138 ms ahead."""
    right, wrong = host_of_job([0] * 4, LATE), host_of_job([20_000] * 4, LATE, clock_us=138_000)
    shifts = clock_shifts(files(tmp_path, a=right, b=wrong))
    assert shifts.shifts_ps == (0, 0)
    assert shifts.sentence == ("hosts are shown on their own clocks, corrected with shared collectives: b by -138 ms")


def test_sessions_that_start_apart_are_moved(tmp_path: Path) -> None:
    """Without a collective, clocks are taken as they are: b starts 3 ms after a."""
    a, b = (
        host_of_job([0] * 4, LATE, clock_us=clock_us, first=first) for clock_us, first in ((7_000, 0), (10_000, 50))
    )
    shifts = clock_shifts(files(tmp_path, a=a, b=b))
    assert (shifts.shifts_ps, shifts.sentence) == ((0, 3_000_000_000), "hosts are shown on their own clocks")


def test_without_a_clock_nothing_is_moved(tmp_path: Path) -> None:
    shifts = clock_shifts(files(tmp_path, a=host_of_job([0] * 4, LATE), b=space(host(event("a", 0, 1)))))
    assert shifts.shifts_ps == (0, 0)
    assert shifts.sentence == "host clocks are unknown, so each host starts at 0"
    assert clock_shifts(files(tmp_path / "one", a=host_of_job([0] * 4, LATE))).sentence == ""


def test_all_times_move(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, host(event("a", 5, 2), event("MemoryAllocation", 6, 0, allocator_name="x")))
    moved = shifted(trace, 1_000_000)
    assert (moved.start_ps - trace.start_ps).tolist() == [1_000_000]
    assert (moved.end_ps - trace.end_ps).tolist() == [1_000_000]
    assert (moved.memory.start_ps - trace.memory.start_ps).tolist() == [1_000_000]
    assert shifted(trace, 0) is trace
