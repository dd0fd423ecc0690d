"""Access to the stats of a trace, to allocations, and what happens to those that nobody declared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import event, gpu, host, iterator_call, line, plane, read_back, ref, space, trace_of, u64
from msgspec.structs import replace
from trace_rows import US, memory, rows, texts

from tfperf.formats.wire.capture_plane import CAPTURE_PLANE
from tfperf.trace.device.device_clock import DeviceClock
from tfperf.trace.host_trace import HostTrace, by_line, once


def test_stats_of_several_planes_are_joined_by_name(tmp_path: Path) -> None:
    kernels = gpu(event("k", 0, 1, hlo_op="x.1"), event("l", 1, 1, junk="a", hlo_op=ref("y.1")))
    calls = host(event("a", 0, 1), event("b", 1, 1, hlo_op="x.1", correlation_id=u64(1 << 63)))
    trace = trace_of(tmp_path, calls, kernels)
    assert texts(trace, "hlo_op") == {1: "x.1", 2: "x.1", 3: "y.1"}
    assert trace.stat("hlo_op").texts.count("x.1") == 1
    assert trace.stat("correlation_id").value.view(np.uint64).tolist() == [1 << 63]


@pytest.mark.parametrize(
    ("declared", "read"),
    [
        ("hlo_op", lambda trace: trace.stat("hlo_op")),
        ("hlo_op", lambda trace: trace.number_at("hlo_op", np.zeros(1, np.int64))),
        ("hlo_op", lambda trace: trace.has_stat("hlo_op")),
        ("tf_op", lambda trace: trace.name_stat("tf_op")),
        ("allocator_name", lambda trace: trace.memory),
        ("Hlo Proto", lambda trace: trace.programs),
    ],
)
def test_a_stat_that_nobody_declared_is_a_bug_not_an_empty_column(
    declared: str, read: Callable[[HostTrace], object], tmp_path: Path
) -> None:
    made = space(host(event("a", 0, 1, hlo_op="x.1"), memory(1, allocator_name="GPU_0_bfc")))
    with pytest.raises(KeyError, match=f"the stat '{declared}' was not read"):
        read(read_back(tmp_path, made, stats=frozenset()))
    read(read_back(tmp_path, made, stats=frozenset({declared})))


def test_rows_and_stats_are_the_same_however_they_are_looked_up(tmp_path: Path) -> None:
    """Few are searched for, of many the table is passed over."""
    names = ["rare", *("often" for _ in range(40)), "rare"]
    made = [event(name, 2 * at, 1, group_id=at) for at, name in enumerate(names) if at % 3]
    threads = [line(f"thread {number}", *made, id=number) for number in range(2)]
    trace = trace_of(tmp_path, gpu(event("rare", 0, 1)), plane("/host:CPU", *threads))
    called = [trace.names[name] for name in trace.name[trace.on_host].tolist()]
    by_hand = {name: [row for row, each in enumerate(called) if each == name] for name in ("rare", "often")}
    assert [len(by_hand[name]) for name in ("rare", "often")] == [2, 54]
    for wanted in ({"rare"}, {"often"}, {"rare", "often"}, set()):
        found = trace.host_events(np.array([name in wanted for name in trace.names], np.bool_))
        assert found.tolist() == sorted(row for name in wanted for row in by_hand[name])
        numbers = trace.number_at("group_id", found, -1)
        assert numbers.tolist() == [int(trace.start_ps[row]) // (2 * US) for row in found.tolist()]
    assert trace.number_at("group_id", np.full(1, len(called)), -1).tolist() == [-1]
    assert trace.number_at("group_id", np.full(60, len(called)), -1).tolist() == [-1] * 60


def test_stats_on_event_names_point_to_the_names_of_the_trace(tmp_path: Path) -> None:
    tpu = plane("/device:TPU:0", line("XLA Ops", event("op", 0, 1)), name_stats={"op": {"hlo_category": "infeed"}})
    trace = trace_of(tmp_path, host(event("a", 0, 1)), tpu)
    assert {trace.names[name]: value for name, value in trace.name_stats["hlo_category"].items()} == {"op": "infeed"}


def test_memory_events_are_kept_apart(tmp_path: Path) -> None:
    """They have no duration, so they are no events of the timeline; the clock is the same."""
    first = line("a", event("op:Op", 0, 5), memory(1, addr=u64((1 << 64) - 1), fragmentation=0.5, tf_op="x/Add"), id=1)
    second = line("b", memory(2, allocates=False, addr=3, fragmentation=0), id=2, timestamp_ns=1000)
    trace = trace_of(tmp_path, plane("/host:CPU", first, second))
    assert rows(trace) == [("op:Op", 0.0, 5.0)]
    found = trace.memory
    assert (found.start_ps / US).tolist() == [1.0, 3.0]
    assert found.allocates.tolist() == [True, False]
    assert found.number("addr", 0).tolist() == [-1, 3]
    assert found.real("fragmentation").tolist() == [0.5, 0.0]
    assert np.isnan(found.real("bytes_reserved")).all()
    index, texts = found.text_index("tf_op")
    assert [texts[at] if at >= 0 else None for at in index.tolist()] == ["x/Add", None]


def test_lines_that_note_no_memory_may_have_any_clock(tmp_path: Path) -> None:
    odd = line("odd", id=3, timestamp_ns=(1 << 63) - 1)
    trace = trace_of(tmp_path, plane("/host:CPU", odd, line("a", memory(1), id=1, timestamp_ns=1000)))
    assert (trace.memory.start_ps / US).tolist() == [2.0]


def test_memory_events_stay_among_instants_too(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, host(memory(1), event("op:Op", 2, 1)), instants=True)
    assert [name for name, *_ in rows(trace)] == ["MemoryAllocation", "op:Op"]
    assert len(trace.memory) == 1


def test_a_file_without_groups_has_none(tmp_path: Path) -> None:
    assert not trace_of(tmp_path, host(event("train", 0, 1))).has_groups
    assert trace_of(tmp_path, host(event("train", 0, 1, group_id=0))).has_groups


@pytest.mark.parametrize("others", [0, 100])
def test_ids_may_be_any_number(tmp_path: Path, others: int) -> None:
    """An id whose bits are those of -1 is one, and so is 0; events without one have none."""
    ids = [u64((1 << 64) - 1), 0, 7, 0]
    events = [event("op", at, 1, program_id=number) for at, number in enumerate(ids)]
    trace = trace_of(tmp_path, host(*events, *(event("none", 10 + at, 1) for at in range(1 + others))))
    rows = np.array([0, 1, 4, 3])
    values, known = trace.known_at("program_id", rows)
    assert values.tolist() == [-1, 0, 0, 0]
    assert known.tolist() == [True, True, False, True]
    place, programs = trace.program_at(rows)
    assert [programs[index] if index >= 0 else None for index in place.tolist()] == [-1, 0, None, 0]
    assert trace.known_at("program_id", rows[:0])[0].tolist() == []


def test_on_one_clock_devices_stand_beside_the_host(tmp_path: Path) -> None:
    """The clock of the chip loses 100 ppm from 0 on; events that nest do so still, and those of the host stay."""
    tpu = plane("/device:TPU:0", line("XLA Ops", event("loop", 1000, 2000), event("op", 2000, 1000)))
    trace = trace_of(tmp_path, plane("/host:CPU", line("python", event("a", 5, 5))), tpu)
    assert trace.on_one_clock() is trace
    trace = replace(trace, device_clocks={1: DeviceClock(agrees_ps=0, drift=1e-4)})
    moved = trace.on_one_clock()
    assert (moved.start_ps[1:] - 1000).tolist() == [1_000_100_000, 2_000_200_000]
    assert (moved.end_ps[1:] - 1000).tolist() == [3_000_300_000, 3_000_300_000]
    assert (moved.start_ps[0], moved.end_ps[0], moved.device_clocks) == (5_000_000, 10_000_000, {})


def test_allocators_without_a_name_have_the_number_of_their_device(tmp_path: Path) -> None:
    stats: list[dict[str, Any]] = [{"allocator_name": "GPU_0_bfc"}, {"index_on_host": 3}, {"device_ordinal": 1}, {}]
    events = [memory(at, **each) for at, each in enumerate(stats, 1)]
    cpu = plane("/host:CPU", line("python", *events))
    tpu = plane("/device:TPU:3", line("XLA Ops", event("op", 0, 1)))
    for planes, expected in (((), ["GPU_0_bfc", "3", "1", None]), ((tpu,), ["GPU_0_bfc", "TPU:3", "TPU:1", None])):
        names, index = trace_of(tmp_path, cpu, *planes).allocators
        assert [names[place] if place >= 0 else None for place in index.tolist()] == expected


def test_a_trace_is_searched_once(tmp_path: Path) -> None:
    traces = [trace_of(tmp_path, host(event(name, 0, 1))) for name in "ab"]
    searched: list[HostTrace] = []

    @once
    def first_name(trace: HostTrace) -> str:
        searched.append(trace)
        return trace.names[0]

    assert [first_name(trace) for trace in (*traces, *traces)] == ["a", "b", "a", "b"]
    assert searched == traces


def test_lines_without_any_of_the_rows_are_left_out(tmp_path: Path) -> None:
    threads = (line(name, *(event(str(at), at, 1) for at in range(3))) for name in "abc")
    trace = trace_of(tmp_path, plane("/host:CPU", *threads))
    found = [(line.name, places) for line, places in by_line(trace.lines, np.array([1, 2, 7], np.int64))]
    assert found == [("a", slice(0, 2)), ("c", slice(2, 3))]
    assert [*by_line((), np.zeros(1, np.int64))] == []


def test_usable_cores_are_those_that_the_capture_states_or_tfdata_counts(tmp_path: Path) -> None:
    counted = host(iterator_call("Root", 0, 10, 1, cpu_budget=8))
    stated = plane(CAPTURE_PLANE, stats={"cpu_affinity": 8, "cpu_quota": 1.5})
    assert trace_of(tmp_path, host(event("A:A", 0, 5))).usable_cores is None
    assert trace_of(tmp_path, counted).usable_cores == 8.0
    assert trace_of(tmp_path, counted, stated).usable_cores == 1.5
