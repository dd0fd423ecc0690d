"""From a file to a HostTrace: what is read, which stats, what is omitted and counted, and the progress."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import Plane, event, host, known, line, plane, read_back, ref, space, trace_of, u64
from places import ROOT
from protobytes import field, message
from synthetic_gpu import synthetic_gpu
from synthetic_tpu import synthetic_tpu
from trace_rows import lines, memory, numbers, plain, rows, texts

from tfperf.base.errors import TraceFormatError
from tfperf.export.query.sql_tables import STATS
from tfperf.formats.wire import planes
from tfperf.formats.wire.event_columns import StatKind
from tfperf.trace.host_trace import HostTrace, plane_kind
from tfperf.trace.known_stats import DEFAULT
from tfperf.trace.logdir import HostFile
from tfperf.trace.read import AlsoRead, progress_by_file, read_host, read_host_twice

STEPS_LINE = -559038737


@pytest.mark.parametrize("line_id", [STEPS_LINE, STEPS_LINE + (1 << 32)])
def test_derived_lines_are_known_by_the_signed_or_unsigned_form_of_their_id(line_id: int, tmp_path: Path) -> None:
    (row,) = trace_of(tmp_path, plane("/device:GPU:0", line("Steps", event("1", 0, 1), id=line_id))).lines
    assert (row.id, row.derived) == (STEPS_LINE, True)


@pytest.mark.parametrize("line_id", [1, 1 << 31, (1 << 32) - 1, (1 << 63) - 1, -1])
def test_other_line_ids_stay_what_they_are(line_id: int, tmp_path: Path) -> None:
    (row,) = trace_of(tmp_path, plane("/device:GPU:0", line("stream", event("k", 0, 1), id=line_id))).lines
    assert (row.id, row.derived) == (line_id, False)


def test_events_without_metadata_have_an_empty_name(tmp_path: Path) -> None:
    metadata = field(4, message(field(1, 3), field(2, field(2, b"known"))))
    events = [field(4, message(field(1, n), field(2, 9), field(3, 1))) for n in (1, 3, 4, 1 << 40, -1, -2, -3)]
    trace = read_back(tmp_path, field(1, message(field(2, b"/host:CPU"), field(3, b"".join(events)), metadata)))
    assert sorted(name for name, _, _ in rows(trace)) == ["", "", "", "", "", "", "known"]
    assert trace.malformed_events == 0


@pytest.mark.parametrize("ids", [(1, 2), (1, 1 << 40), (-5, 7), (0, (1 << 63) - 1)])
def test_event_metadata_ids_may_be_any_number(ids: tuple[int, int], tmp_path: Path) -> None:
    names = [field(4, message(field(1, key), field(2, field(2, b"op %d" % n)))) for n, key in enumerate(ids)]
    events = [field(4, message(field(1, key), field(2, 5 * n), field(3, 1))) for n, key in enumerate((*ids, 99))]
    trace = read_back(tmp_path, field(1, message(field(2, b"/host:CPU"), field(3, b"".join(events)), *names)))
    assert [trace.names[name] for name in trace.name.tolist()] == ["op 0", "op 1", ""]


def test_of_metadata_with_the_same_id_the_last_counts(tmp_path: Path) -> None:
    names = [field(4, message(field(1, 1), field(2, field(2, name)))) for name in (b"first", b"last")]
    made = field(3, field(4, message(field(1, 1), field(3, 1))))
    assert [row[0] for row in rows(read_back(tmp_path, field(1, message(field(2, b"/host:CPU"), made, *names))))] == [
        "last"
    ]


def test_events_that_stand_for_many_are_counted_but_not_kept(tmp_path: Path) -> None:
    many, one = message(field(5, 1000), field(3, 7)), message(field(2, 1), field(3, 7))
    trace = read_back(tmp_path, field(1, message(field(2, b"/host:CPU"), field(3, field(4, many) + field(4, one)))))
    assert (trace.event_count, len(trace.name), trace.malformed_events) == (2, 1, 0)


def test_instants_are_kept_on_demand(tmp_path: Path) -> None:
    made = host(event("a", 0, 0, step_num=1), event("b", 0, 1, step_num=2))
    assert numbers(trace_of(tmp_path, made), "step_num") == {0: 2}
    assert numbers(trace_of(tmp_path, made, instants=True), "step_num") == {0: 2, 1: 1}


def test_the_capture_goes_from_the_first_event_of_any_kind_to_the_last(tmp_path: Path) -> None:
    """Allocations take no time, and are no rows; they happen during the capture all the same."""
    thread = line("python", event("MemoryAllocation", 20, 0), event("train", 100, 50), timestamp_ns=5000)
    other = line("other", event("MemoryDeallocation", 400, 0), id=2)
    trace = trace_of(tmp_path, plane("/host:CPU", thread, other))
    assert (len(trace.name), trace.extent_ps) == (1, (25_000_000, 400_000_000))
    assert trace_of(tmp_path, plane("/host:CPU", line("python"))).extent_ps == (0, 0)


@pytest.mark.parametrize(
    ("start", "duration"), [(0, -1), (0, 1 << 60), (1 << 60, 1), (-(1 << 60), 1), ((1 << 63) - 1, (1 << 63) - 1)]
)
def test_impossible_times_are_left_out_and_counted(start: int, duration: int, tmp_path: Path) -> None:
    odd, good = message(field(2, start), field(3, duration)), message(field(2, 1), field(3, 7))
    trace = read_back(tmp_path, field(1, message(field(2, b"/host:CPU"), field(3, field(4, odd) + field(4, good)))))
    assert (trace.duration_ps.tolist(), trace.event_count, trace.malformed_events) == ([7], 2, 1)
    assert trace.extent_ps == (1, 8)


LARGE = plane(
    "/host:CPU",
    *[
        line(
            f"thread {n}",
            *[
                event(f"op {k % 7}", 10 * k + n, 5 + k % 3, step_num=k, hlo_op=('direct "text"', ref("shared"))[k % 2])
                for k in range(n * 20)
            ],
        )
        for n in range(5)
    ],
)


def everything(trace: HostTrace) -> tuple[object, ...]:
    stats = numbers(trace, "step_num"), texts(trace, "hlo_op")
    return rows(trace), trace.lines, *stats, trace.event_count, trace.extent_ps


@pytest.mark.parametrize("limit", [1, 64, 200, 1000])
def test_reading_in_small_batches_changes_nothing(limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = trace_of(tmp_path, LARGE)
    monkeypatch.setattr(planes, "BATCH_BYTES", limit)
    assert everything(trace_of(tmp_path, LARGE)) == everything(whole)
    assert len(whole.name) == 200


def test_progress_ends_at_the_size_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planes, "BATCH_BYTES", 200)
    path = tmp_path / "made.xplane.pb"
    path.write_bytes(space(LARGE))
    seen: list[tuple[int, int]] = []
    read_host(path, progress=lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert {total for _, total in seen} == {path.stat().st_size}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("/host:CPU", "host"),
        ("/host:CUPTI", "host"),
        ("/host:metadata", "other"),
        ("/device:GPU:0", "gpu"),
        ("/device:TPU:12", "tpu"),
        ("/device:TPU:0 [2]", "tpu"),
        ("/device:TPU:0 SparseCore 1", "sparse core"),
        ("/device:CUSTOM:x", "other"),
        ("Task Environment", "other"),
        ("", "other"),
    ],
)
def test_plane_names_tell_what_a_plane_is(name: str, kind: str) -> None:
    assert plane_kind(name) == kind


def test_other_planes_are_listed_but_not_read(tmp_path: Path) -> None:
    broken = message(field(2, b"/host:metadata"), field(3, b"\xff"))
    trace = read_back(tmp_path, space(host(event("a", 0, 1))) + field(1, broken))
    assert [(each.name, each.kind) for each in trace.planes] == [("/host:CPU", "host"), ("/host:metadata", "other")]
    assert rows(trace) == [("a", 0, 1)]


def test_a_file_without_any_plane_name_is_no_trace(tmp_path: Path) -> None:
    with pytest.raises(TraceFormatError, match="its planes have no names"):
        trace_of(tmp_path, Plane("", ()), Plane("", ()))


def test_the_host_is_called_as_asked_or_as_the_file_says(tmp_path: Path) -> None:
    path = tmp_path / "made.xplane.pb"
    path.write_bytes(space(host(), hostname="vm", errors=("lost events",)))
    assert (read_host(path).host, read_host(path, "asked").host) == ("vm", "asked")
    assert read_host(path).errors == ("lost events",)
    path.write_bytes(field(1, field(2, b"/host:CPU")))
    assert read_host(path).host == "localhost"


def test_everything_keeps_instants_all_planes_and_all_stats(tmp_path: Path) -> None:
    strange = plane("/device:CUSTOM:thing", line("q", event("tick", 4, 0, **{"what it is": "\udcff", "x": 1.5})))
    made = host(event("late", 3, 1, a=7), event("early", 0, 1, b=u64(1 << 63))), strange
    assert trace_of(tmp_path, *made).every_stat is None
    trace = read_back(tmp_path, space(*made), everything=True)
    assert [name for name, *_ in rows(trace)] == ["early", "late", "tick"]
    every = known(trace.every_stat)
    assert every.event.tolist() == [0, 1, 2, 2]
    assert [every.keys[key] for key in every.key.tolist()] == ["b", "a", "what it is", "x"]
    assert every.kind.tolist() == [StatKind.UNSIGNED, StatKind.INT, StatKind.TEXT, StatKind.REAL]
    assert every.value[:2].tolist() == [-(1 << 63), 7]
    assert every.texts[every.value[2]] == "\ufffd"
    assert every.value[3:].view(np.float64).tolist() == [1.5]


def test_every_stat_follows_its_event_through_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planes, "BATCH_BYTES", 64)
    events = [event(f"e{n}", 100 - n, 1, n=n, text=ref(f"t{n % 3}")) for n in range(50)]
    trace = read_back(tmp_path, space(host(*events)), everything=True)
    every = known(trace.every_stat)
    with_key = {every.keys[key]: every.key == key for key in range(len(every.keys))}
    assert every.value[with_key["n"]].tolist() == list(range(49, -1, -1))
    named = [trace.names[trace.name[row]] for row in every.event[with_key["n"]].tolist()]
    assert named == [f"e{n}" for n in range(49, -1, -1)]
    texts = [every.texts[value] for value in every.value[with_key["text"]].tolist()]
    assert texts == [f"t{n % 3}" for n in range(49, -1, -1)]


DAY_NS = 86_400 * 10**9
NOW_NS = 1_700_000_000 * 10**9


def test_planes_lines_and_names_are_in_order_whatever_the_order_of_the_file(tmp_path: Path) -> None:
    gpus = [plane(f"/device:GPU:{n}", line("stream", event(f"k{n}", n, 1, hlo_op=f"op {n}"), id=14)) for n in (10, 2)]
    threads = line("b", event("z", 0, 1, step_num=7), event("y", 2, 1), id=9), line("a", event("x", 4, 1), id=8)
    trace = trace_of(tmp_path, *gpus, plane("/host:CPU", *threads))
    assert [each.name for each in trace.planes] == ["/host:CPU", "/device:GPU:2", "/device:GPU:10"]
    assert [(each.plane, each.id) for each in trace.lines] == [(0, 8), (0, 9), (1, 14), (2, 14)]
    assert rows(trace) == [("x", 4, 1), ("z", 0, 1), ("y", 2, 1), ("k2", 2, 1), ("k10", 10, 1)]
    assert [name for name in trace.names if name] == ["x", "y", "z", "k2", "k10"]
    assert (numbers(trace, "step_num"), texts(trace, "hlo_op")) == ({1: 7}, {3: "op 2", 4: "op 10"})
    assert trace.stat("hlo_op").texts == ("", "op 10", "op 2")


def test_of_events_with_equal_times_the_first_of_the_file_is_the_parent(tmp_path: Path) -> None:
    assert rows(trace_of(tmp_path, host(event("z", 0, 5), event("a", 0, 5)))) == [("z", 0, 5), ("a", 0, 5)]


def test_an_unsorted_line_is_sorted_with_its_stats_the_longer_first(tmp_path: Path) -> None:
    events = event("late", 9, 1, step_num=9), event("short", 1, 2, step_num=2), event("long", 1, 5, step_num=5)
    trace = trace_of(tmp_path, host(*events))
    assert rows(trace) == [("long", 1, 5), ("short", 1, 2), ("late", 9, 1)]
    assert numbers(trace, "step_num") == {0: 5, 1: 2, 2: 9}


def test_lines_with_the_same_id_are_one_timeline(tmp_path: Path) -> None:
    parts = (
        line("thread", event("a", 0, 1, step_num=1), event("d", 6, 1, step_num=4), id=7),
        line("other", event("b", 2, 1, step_num=2), id=8),
        line("thread again", event("c", 4, 1, step_num=3), id=7),
    )
    trace = trace_of(tmp_path, plane("/host:CPU", *parts))
    assert lines(trace) == [(7, "thread", ["a", "c", "d"]), (8, "other", ["b"])]
    assert numbers(trace, "step_num") == {0: 1, 1: 3, 2: 4, 3: 2}


def test_the_longest_times_allowed_do_not_overflow(tmp_path: Path) -> None:
    most, latest_ns = (1 << 60) - 1, (1 << 60) // 1000 - 1
    events = [field(4, message(field(2, start), field(3, most))) for start in (-most, most)]
    both = [field(3, message(field(1, n), field(3, stamp), *events)) for n, stamp in enumerate((-latest_ns, latest_ns))]
    trace = read_back(tmp_path, field(1, message(field(2, b"/host:CPU"), *both)))
    first, last = -most - 1000 * latest_ns, 2 * most + 1000 * latest_ns
    assert (int(trace.start_ps.min()), int(trace.end_ps.max())) == (first, last)
    assert int(trace.end_ps.max() - trace.start_ps.min()) == last - first


@pytest.mark.parametrize(
    ("stamps_ns", "starts_us"),
    [
        ((0, 3000, 1000), [5, 8, 6]),
        pytest.param((NOW_NS + 3000, NOW_NS, NOW_NS + 1000), [8, 5, 6], id="since 1970, from the earliest"),
        pytest.param((2000, NOW_NS, NOW_NS + 1000, 0), [7, 5, 6, 5], id="two clocks, each from its own earliest"),
        ((-(1 << 62), 0), [5, 5]),
        pytest.param((20 * DAY_NS, 20 * DAY_NS + 4000), [5, 9], id="20 days after boot, from the earliest"),
        pytest.param((10 * DAY_NS, 10 * DAY_NS + 4000), [864e9 + 5, 864e9 + 9], id="10 days after boot, one clock"),
    ],
)
def test_lines_start_at_their_timestamps(tmp_path: Path, stamps_ns: tuple[int, ...], starts_us: list[float]) -> None:
    """One event per line, 5 us after the timestamp of its line."""
    made = [line(f"line {n}", event("a", 5, 1), timestamp_ns=stamp) for n, stamp in enumerate(stamps_ns)]
    starts = [start for _, start, _ in rows(trace_of(tmp_path, plane("/host:CPU", *made)))]
    assert starts == pytest.approx(starts_us, abs=0.1, rel=0)


def test_lines_without_events_do_not_set_the_clock(tmp_path: Path) -> None:
    made = plane("/host:CPU", line("empty", timestamp_ns=1), line("full", event("a", 5, 1), timestamp_ns=NOW_NS))
    assert rows(trace_of(tmp_path, made)) == [("a", 5, 1)]


def test_of_the_stats_those_that_steps_need_are_always_read(tmp_path: Path) -> None:
    made = host(event("a", 0, 1, step_num=3, hlo_op="x.1", program_id=7), memory(1, addr=5))
    trace = read_back(tmp_path, space(made), stats=frozenset({"hlo_op"}))
    assert (numbers(trace, "step_num"), texts(trace, "hlo_op")) == ({0: 3}, {0: "x.1"})
    assert trace.stat("group_id").event.tolist() == []
    assert trace.stats.keys() == {"step_num", "hlo_op", "program_id"}


def test_stats_that_tfperf_does_not_know_are_read_as_the_file_stores_them(tmp_path: Path) -> None:
    events = event("a", 0, 1, worker=3, pool="x"), event("b", 1, 1, load=0.5, pool=ref("y")), event("c", 2, 1, load=1)
    gpu = plane("/device:GPU:0", line("s", event("k", 3, 1, worker=4, mixed=1), event("l", 4, 1, mixed="one")))
    asked = frozenset({"worker", "pool", "load", "mixed", "absent"})
    trace = read_back(tmp_path, space(host(*events), gpu), stats=asked)
    assert numbers(trace, "worker") == {0: 3, 3: 4}
    assert texts(trace, "pool") == {0: "x", 1: "y"}
    assert (trace.stat("load").type, trace.stat("load").value.view(np.float64).tolist()) == ("real", [0.5, 1.0])
    assert texts(trace, "mixed") == {3: "1", 4: "one"}
    assert trace.stat("absent").event.tolist() == []


def test_launches_on_the_host_give_no_kernel_details(tmp_path: Path) -> None:
    """Old writers left uninitialised memory there."""
    details = "regs:16 shm:0 grid:1,1,1 block:64,1,1"
    gpu = plane("/device:GPU:0", line("s", event("k", 2, 1, kernel_details=details)))
    trace = trace_of(tmp_path, host(event("k", 0, 1, kernel_details="regs:99")), gpu)
    assert trace.stat("kernel_details").event.tolist() == [1]


def test_allocations_are_read_only_for_those_who_ask_for_them(tmp_path: Path) -> None:
    made = host(memory(1, allocator_name="GPU_0_bfc", tf_op="x/Add"))
    asked = frozenset({"allocator_name", "tf_op"})
    assert len(read_back(tmp_path, space(made), stats=asked).memory) == 1
    assert read_back(tmp_path, space(made), stats=frozenset({"tf_op"})).stats == {}


def test_an_id_is_read_on_every_event_for_those_who_follow_links(tmp_path: Path) -> None:
    made = host(event("MatMul", 0, 1, id=5), event("FunctionRun", 1, 1, id=6))
    assert numbers(read_back(tmp_path, space(made), stats=frozenset()), "id") == {1: 6}
    assert numbers(read_back(tmp_path, space(made), stats=frozenset({"iter_num"})), "id") == {0: 5, 1: 6}


def test_bytes_are_counted_over_all_files(tmp_path: Path) -> None:
    files = []
    for name, size in (("a", 3), ("b", 5)):
        (tmp_path / name).write_bytes(bytes(size))
        files.append(HostFile(name, tmp_path / name))
    seen: list[tuple[int, int]] = []
    for each in progress_by_file(files, lambda done, total: seen.append((done, total))):
        known(each)(1, 2)  # half of the bytes that are read, of which a compressed file has fewer
    assert seen == [(1, 8), (5, 8)]
    assert progress_by_file([HostFile("a", tmp_path)], None) == [None], "nobody asks"
    assert progress_by_file([], lambda done, total: None) == []


# --- two traces of a file that is decoded once are those of a file that is read twice ---

SAMPLES = sorted((ROOT / "sample_traces").rglob("*.xplane.pb"))
SHARED = {
    path.parent: path
    for path in sorted((ROOT.parent / "shared" / "traces").rglob("*.xplane.pb"))
    if "corrupt" not in str(path) and path.stat().st_size < 2_000_000
}
"""Test input that is not part of the project, a profile of each run."""


def fields(trace: HostTrace, *without: str) -> dict[str, Any]:
    return {key: value for key, value in dict(plain(trace)).items() if key not in without}


def check(path: Path, stats: frozenset[str] = DEFAULT) -> None:
    received: list[HostTrace] = []
    own = read_host_twice(path, stats=stats, also=AlsoRead(STATS, received.append))
    alone = read_host(path, stats=stats)
    assert fields(own) == fields(alone)
    (also,) = received
    whole = read_host(path, stats=STATS, instants=True)
    # It has what the other trace asked for too.
    others = ("allocations", "hlo_protos", "name_stats", "cut_names")
    assert fields(also, *others) == fields(whole, *others)


@pytest.mark.parametrize("path", [*SAMPLES, *SHARED.values()], ids=lambda path: "-".join(path.parts[-5:]))
def test_real_traces(path: Path) -> None:
    check(path)


@pytest.mark.parametrize("data", [synthetic_gpu(), synthetic_tpu()], ids=["gpu", "tpu"])
def test_devices(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(data)
    check(path)


@pytest.mark.parametrize("limit", [1, 100, 1 << 20])
def test_odd_files(limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines on two clocks, out of order and in parts; instants, impossible times, allocations, long texts."""
    monkeypatch.setattr(planes, "BATCH_BYTES", limit)
    long = "x" * 5000
    events = [
        event("late", 50, 10, hlo_op=ref(long), _c=3),
        event("early", 10, 0, _p=3, step_num=1),
        event(long, 0, -5),
        event("train", 0, 90, step_num=1, kernel_type=ref(long)),
        memory(20, addr=1, tf_op=ref("a")),
    ]
    lines = [line("a", *events, id=1, timestamp_ns=5), line("b", event("x", 0, 1), id=2, timestamp_ns=10**18)]
    again = [line("a", event("y", 20, 2), event("PjitFunction(f)", 30, 3), id=1, timestamp_ns=7)]
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(space(plane("/host:CPU", *lines, *again), plane("/device:GPU:0", line("s", event("k", 5, 0)))))
    check(path)
    check(path, frozenset())
