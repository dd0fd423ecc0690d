"""Perfetto's format, read back with Perfetto's own message classes: so also groups of tracks, arguments and arrows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from builders import Event, Line, event, host, known, line, plane, ref, u64
from export.timeline.example_files import host_file, shown, whole_trace
from export.timeline.perfetto_reader import Read, Slice, read_perfetto
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tfperf.export.timeline.export import export
from tfperf.export.timeline.host_timeline import Track
from tfperf.export.timeline.perfetto import END, START, marks_of_tracks
from tfperf.export.timeline.tracks import handovers, launches
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.logdir import HostFile

US = 1000
"""Nanoseconds."""


def outline(read: Read, track: str) -> list[tuple[str, int, int, int]]:
    """Name, start and end in microseconds, and depth of the slices of a track."""
    return [(slice_.name, slice_.start_ns // US, slice_.end_ns // US, slice_.depth) for slice_ in read.on(track)]


def test_what_nests_in_the_profile_nests_in_the_file(tmp_path: Path) -> None:
    read = shown(tmp_path, host(event("outer", 0, 10), event("inner", 2, 3), event("leaf", 3, 1), event("next", 10, 5)))
    assert outline(read, "python") == [("outer", 0, 10, 0), ("inner", 2, 5, 1), ("leaf", 3, 4, 2), ("next", 10, 15, 0)]
    thread, process = read.track("python"), read.track("/host:CPU")
    assert (thread.parent_uuid, thread.thread.pid) == (process.uuid, process.process.pid)
    assert (thread.thread.thread_name, process.process.process_name) == ("python", "/host:CPU")
    assert {slice_.category for slice_ in read.slices} == {"host"}


def test_equal_times_keep_inner_inside_outer(tmp_path: Path) -> None:
    """All start together or end together; two are the same interval; one follows without a gap."""
    slices = [("a", 0, 10, 0), ("b", 0, 10, 1), ("c", 0, 4, 2), ("d", 4, 10, 2), ("e", 10, 11, 0), ("f", 11, 12, 0)]
    read = shown(tmp_path, host(*(event(name, start, end - start) for name, start, end, _ in slices)))
    assert outline(read, "python") == slices


def test_events_shorter_than_a_nanosecond_stay_apart(tmp_path: Path) -> None:
    """Picoseconds 200 to 700 and 700 to 900 of the same nanosecond: both cut to 0, one after the other."""
    read = shown(tmp_path, host(event("a", 0.0002, 0.0005), event("b", 0.0007, 0.0002), event("long", 0.0015, 0.001)))
    found = [(slice_.name, slice_.start_ns, slice_.end_ns, slice_.depth) for slice_ in read.slices]
    assert found == [("a", 0, 0, 0), ("b", 0, 0, 0), ("long", 1, 2, 0)]


def test_events_that_overlap_without_nesting_get_tracks_of_their_own(tmp_path: Path) -> None:
    events = (event("a", 0, 10), event("b", 5, 10), event("c", 6, 1), event("d", 12, 10), event("e", 16, 1))
    read = shown(tmp_path, plane("/device:GPU:0", line("stream", *events)))
    assert outline(read, "stream") == [("a", 0, 10, 0), ("c", 6, 7, 1), ("e", 16, 17, 0)]
    assert outline(read, "stream (2)") == [("b", 5, 15, 0)]
    assert outline(read, "stream (3)") == [("d", 12, 22, 0)]
    assert read.track("stream (2)").parent_uuid == read.track("stream").uuid


def test_events_without_duration_are_instants(tmp_path: Path) -> None:
    """One at the start of a slice is inside it, one at its end is not."""
    read = shown(tmp_path, host(event("a", 0, 4), event("start", 0, 0), event("stop", 4, 0), event("alone", 9, 0)))
    assert outline(read, "python") == [("a", 0, 4, 0), ("start", 0, 0, 1), ("stop", 4, 4, 0), ("alone", 9, 9, 0)]
    assert [slice_.instant for slice_ in read.slices] == [False, True, True, True]


def test_arguments_keep_their_kinds(tmp_path: Path) -> None:
    stats = {"n": -5, "zero": 0, "big": u64(2**64 - 1), "real": 0.25, "text": "x", "same": ref("x"), "group_id": 3}
    hidden = {"_pt": 1, "_p": 2, "_r": 1}
    read = shown(tmp_path, host(event("bare", 0, 1), event("full", 2, 1, **stats, **hidden), event("last", 4, 1, n=7)))
    bare, full, last = read.slices
    assert (bare.args, last.args) == ({}, {"n": 7})
    assert full.args == {**stats, "big": 2**64 - 1}
    assert [type(full.args[key]) for key in ("n", "real", "text")] == [int, float, str]


def test_a_kernel_hangs_on_its_launch(tmp_path: Path) -> None:
    launching = host(event("cudaLaunchKernel", 0, 2, correlation_id=u64(9)), event("other", 3, 1))
    kernels = line("stream", event("gemm", 5, 9, correlation_id=u64(9)), event("lost", 20, 1, correlation_id=u64(8)))
    read = shown(tmp_path, launching, plane("/device:GPU:0", kernels))
    assert [(source.name, target.name) for source, target in read.flows] == [("cudaLaunchKernel", "gemm")]
    assert read.flows[0][1].args == {"correlation_id": 9}


def test_a_consumer_hangs_on_its_producer(tmp_path: Path) -> None:
    """Ids count for each kind alone; an id used again means the last producer before; ids go up to 2^64 - 1."""
    most = u64(2**64 - 1)
    makers = [event(name, at, 1, _pt=kind, _p=most) for name, at, kind in (("p1", 0, 1), ("p2", 2, 2), ("p3", 20, 1))]
    users = [
        event(name, at, 1, _ct=kind, _c=most)
        for name, at, kind in (("c1", 5, 1), ("c2", 6, 2), ("c3", 7, 1), ("c4", 30, 1), ("none", 40, 3))
    ]
    read = shown(tmp_path, plane("/host:CPU", line("maker", *makers), line("user", *users)))
    flows = sorted(f"{source.name} {target.name}" for source, target in read.flows)
    assert flows == ["p1 c1", "p1 c3", "p2 c2", "p3 c4"]


def test_an_arrow_against_time_is_kept_turned(tmp_path: Path) -> None:
    threads = plane(
        "/host:CPU", line("user", event("c", 1, 1, _ct=1, _c=7)), line("maker", event("p", 5, 1, _pt=1, _p=7))
    )
    output = tmp_path / "o.pftrace"
    result = export([host_file(tmp_path, threads)], output)
    assert (result.arrows, result.backward_arrows) == (1, 1)
    assert [(source.name, target.name) for source, target in read_perfetto(output).flows] == [("c", "p")]


def test_memory_is_a_counter_for_each_allocator(tmp_path: Path) -> None:
    def note(name: str, at: float, allocator: str, used: int, reserved: int) -> Event:
        return event(name, at, 0, allocator_name=allocator, bytes_allocated=used, bytes_reserved=reserved)

    notes = [
        note("MemoryAllocation", 1, "GPU_0_bfc", 100, 8),
        note("MemoryAllocation", 2, "cpu", 7, 0),
        note("MemoryDeallocation", 3, "GPU_0_bfc", 0, 8),
    ]
    read = shown(tmp_path, host(event("work", 0, 9), *notes))
    gpu, cpu = read.track("memory of GPU_0_bfc"), read.track("memory of cpu")
    assert read.counters == {gpu.uuid: [(1000, 108), (3000, 8)], cpu.uuid: [(2000, 7)]}
    assert gpu.counter.unit == gpu.counter.UNIT_SIZE_BYTES
    assert gpu.parent_uuid == read.track("/host:CPU").uuid


def test_steps_are_slices_above_all_else(tmp_path: Path) -> None:
    steps = [event("train", 10 * i, 8, step_num=i) for i in range(5)]
    read = shown(tmp_path, host(*steps), plane("/device:GPU:0", line("stream", event("k", 1, 1))))
    assert [slice_.args["number"] for slice_ in read.on("steps")] == [0, 1, 2, 3, 4]
    assert outline(read, "steps")[:2] == [("train 0", 0, 10, 0), ("train 1", 10, 20, 0)]
    order = sorted((t.sibling_order_rank, t.name) for t in read.tracks.values() if t.HasField("process"))
    assert [name for _, name in order] == ["Steps", "/device:GPU:0", "/host:CPU"]
    assert (read.tracks[0].process_ordering, read.tracks[0].thread_ordering) == (1, 1)


def test_each_host_has_processes_and_names_of_its_own(tmp_path: Path) -> None:
    files = [host_file(tmp_path, host(event(name, 0, 1)), host=name) for name in ("w0", "w1")]
    output = tmp_path / "both.pftrace"
    export(files, output)
    read = read_perfetto(output)
    processes = [track for track in read.tracks.values() if track.HasField("process")]
    assert [track.name for track in processes] == ["w0 /host:CPU", "w1 /host:CPU"]
    assert len({track.process.pid for track in processes}) == 2
    assert len({track.thread.tid for track in read.tracks.values() if track.HasField("thread")}) == 2
    assert [slice_.name for slice_ in read.slices] == ["w0", "w1"]


def test_hostile_names_and_ids(tmp_path: Path) -> None:
    names = ["", "a\0b\n\x1b[31m", '"}],', "\N{SNOWMAN}\U0001f600", "x" * 100_000, "bad\udcff"]
    hostile = Line("line \x1b[2J\n", tuple(event(name, i, 0.5, key=name) for i, name in enumerate(names)), id=-(2**63))
    read = shown(tmp_path, plane("/host:CPU", hostile, line("", event("z", 0, 1), id=2**63 - 1)))
    expected = [*names[:-1], "bad\N{REPLACEMENT CHARACTER}", "z"]
    assert Counter(slice_.name for slice_ in read.slices) == Counter(expected)
    assert {slice_.args.get("key") for slice_ in read.slices} == {*expected[:-1], None}


def test_names_too_long_to_show_are_an_argument(tmp_path: Path) -> None:
    long = "%fusion = " + "f32 " * 100
    read = shown(tmp_path, plane("/host:CPU", line("x", event("f", 0, 1)), texts={"f": (long, "fusion")}))
    assert [(slice_.name, slice_.args) for slice_ in read.slices] == [("fusion", {"long_name": long})]


def test_times_before_zero_move_everything(tmp_path: Path) -> None:
    read = shown(tmp_path, host(event("early", -5, 2), event("late", 1, 2)))
    assert outline(read, "python") == [("early", 0, 2, 0), ("late", 6, 8, 0)]


def test_a_profile_without_events_is_a_file_without_slices(tmp_path: Path) -> None:
    read = shown(tmp_path, plane("/host:CPU"))
    assert (read.slices, list(read.tracks)) == ([], [0])


def test_more_events_than_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches end anywhere; arguments and flows stay with their events."""
    monkeypatch.setattr("tfperf.export.timeline.perfetto.BATCH", 3)
    events = [event(f"e{i}", i, 0.5, number=i, _pt=1, _p=i, _ct=1, _c=i - 1) for i in range(1, 20)]
    read = shown(tmp_path, host(event("all", 0, 100), *events))
    assert [slice_.args.get("number") for slice_ in read.slices] == [None, *range(1, 20)]
    assert [(s.name, t.name) for s, t in read.flows] == [(f"e{i}", f"e{i + 1}") for i in range(1, 19)]


TIMES = st.integers(0, 12)
EVENTS = st.lists(st.tuples(TIMES, st.integers(0, 6), st.sampled_from("abc")), max_size=25)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(EVENTS, min_size=1, max_size=3))
def test_nothing_is_lost_whatever_overlaps(tmp_path: Path, lines: list[list[tuple[int, int, str]]]) -> None:
    traced = [line(f"line{i}", *(event(n, b, d) for b, d, n in events)) for i, events in enumerate(lines)]
    read = shown(tmp_path, plane("/device:GPU:0", *traced))
    (tmp_path / "made.pftrace").unlink()
    for number, events in enumerate(lines):
        tracks = {u for u, t in read.tracks.items() if t.name.split(" (")[0] == f"line{number}"}
        on_line = [slice_ for slice_ in read.slices if slice_.track in tracks]
        shown_events = [(part.start_ns // US, (part.end_ns - part.start_ns) // US, part.name) for part in on_line]
        assert sorted(shown_events) == sorted(events)
    assert all(slice_.end_ns >= slice_.start_ns for slice_ in read.slices)


@pytest.mark.parametrize("sample", ["input_bound", "custom_loop", "retracing"])
def test_a_sample_comes_back_whole(sample: str, samples: Path, tmp_path: Path) -> None:
    (path,) = (samples / sample).rglob("*.xplane.pb")
    result = export([HostFile("h", path)], tmp_path / "o.pftrace")
    trace, read = whole_trace(path), read_perfetto(tmp_path / "o.pftrace")
    assert (result.shown, result.omitted) == (len(trace.name), {})
    for thread in trace.lines:
        if thread.start == thread.stop:
            continue
        rows = slice(thread.start, thread.stop)
        names = [trace.names[name] for name in trace.name[rows].tolist()]
        starts, ends = ((times[rows] // 1000).tolist() for times in (trace.start_ps, trace.end_ps))
        expected = Counter(zip(names, starts, ends, strict=True))
        tracks = {u for u, t in read.tracks.items() if t.name == thread.name or t.name.startswith(f"{thread.name} (")}
        got = [slice_ for slice_ in read.slices if slice_.track in tracks]
        assert Counter((full_name(slice_), slice_.start_ns, slice_.end_ns) for slice_ in got) == expected
    shown_stats = [key for each in read.slices if each.category != "step" for key in each.args if key != "long_name"]
    every = known(trace.every_stat)
    assert len(shown_stats) == sum(not every.keys[key].startswith("_") for key in every.key.tolist())
    expected_flows = _arrows(trace)
    got_flows = Counter(tuple(sorted((full_name(slice_), slice_.start_ns) for slice_ in pair)) for pair in read.flows)
    assert got_flows == expected_flows
    assert sum(expected_flows.values()) > 0


def full_name(slice_: Slice) -> str:
    return str(slice_.args.get("long_name", slice_.name))


def _arrows(trace: HostTrace) -> Counter[tuple[tuple[str, int], ...]]:
    def end(row: int) -> tuple[str, int]:
        return trace.names[trace.name[row]], int(trace.start_ps[row] // 1000)

    return Counter(
        tuple(sorted((end(source), end(target))))
        for pairs in (launches(trace), handovers(trace))
        for source, target in zip(pairs.source.tolist(), pairs.target.tolist(), strict=True)
    )


def test_tracks_follow_one_another() -> None:
    """Two slices on a thread, then one that crosses them, on the extra track."""
    tracks = [Track("t", 0, 2), Track("t (2)", 2, 3, extra=True)]
    start, end = np.array([0, 2, 5]), np.array([10, 4, 12])
    marks = marks_of_tracks(tracks, start, end)
    assert marks.event.tolist() == [0, 1, 1, 0, 2, 2]
    assert marks.kind.tolist() == [START, START, END, END, START, END]
