from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import Event, Line, event, line, plane, trace_of, u64

from tfperf.analyzers import memory
from tfperf.analyzers.memory import Allocator, Memory
from tfperf.analyzers.memory_alive import type_name
from tfperf.analyzers.memory_rows import place_of
from tfperf.trace.find_steps import find_steps

CAPACITY = 1000


def alloc(at: float, size: int, in_use: int, addr: int, **stats: Any) -> Event:
    return _event("MemoryAllocation", at, size, in_use, addr, stats)


def free(at: float, size: int, in_use: int, addr: int, **stats: Any) -> Event:
    return _event("MemoryDeallocation", at, size, in_use, addr, stats)


def _event(name: str, at: float, size: int, in_use: int, addr: int, stats: dict[str, Any]) -> Event:
    known = {
        "allocator_name": "GPU_0_bfc", "bytes_reserved": 0, "bytes_allocated": in_use,
        "bytes_available": CAPACITY - in_use, "peak_bytes_in_use": in_use, "requested_bytes": size,
        "allocation_bytes": size, "addr": addr,
    }  # fmt: skip
    return event(name, at, 0, **{**known, **stats})


def analyse(tmp_path: Path, *lines: Line) -> Memory:
    """Add a thread that begins at 0 us, so that times count from there."""
    trace = trace_of(tmp_path, plane("/host:CPU", line("other", event("work", 0, 1)), *lines))
    return memory.analyze(trace, find_steps(trace))


def one(tmp_path: Path, *events: Event) -> Allocator:
    (found,) = analyse(tmp_path, line("python", *events)).allocators
    return found


def test_peak_capacity_and_counts(tmp_path: Path) -> None:
    """200 in use before; 300 and 100 come, 300 goes."""
    found = one(tmp_path, alloc(10, 300, 500, 1), alloc(20, 100, 600, 2), free(30, 300, 300, 1))
    assert (found.capacity_bytes, found.peak_bytes, found.peak_percent) == (1000, 600, 60.0)
    assert found.peak_ms == pytest.approx(0.020)
    assert (found.begin_bytes, found.end_bytes) == (200, 300)
    assert (found.allocations, found.frees, found.allocated_bytes) == (2, 1, 400)
    assert found.contradictions == 0


def test_threads_are_put_in_the_order_of_time(tmp_path: Path) -> None:
    """Thread b frees between the two allocations of thread a."""
    a = line("a", alloc(10, 300, 300, 1), alloc(30, 100, 100, 2, peak_bytes_in_use=300))
    b = line("b", free(20, 300, 0, 1, peak_bytes_in_use=300))
    (found,) = analyse(tmp_path, a, b).allocators
    assert (found.peak_bytes, found.end_bytes, found.contradictions) == (300, 100, 0)
    assert found.timeline.in_use_bytes.tolist() == [300, 0, 100]


def test_lifetime_peak_is_the_largest_one_noted(tmp_path: Path) -> None:
    """The file ends with the thread whose work ended first, and which saw less."""
    late = line("late", alloc(30, 400, 500, 2))
    early = line("early", alloc(10, 100, 100, 1))
    (found,) = analyse(tmp_path, late, early).allocators
    assert found.lifetime_peak_bytes == 500


def test_a_peak_reached_twice_counts_where_it_is_reached_last(tmp_path: Path) -> None:
    found = one(tmp_path, alloc(10, 300, 300, 1), free(20, 300, 0, 1), alloc(30, 300, 300, 1, tf_op="b"))
    assert found.peak_ms == pytest.approx(0.030)
    assert found.alive.op == ("b",)


def test_stack_counts_as_in_use_and_is_a_row(tmp_path: Path) -> None:
    found = one(tmp_path, alloc(10, 100, 100, 1, bytes_reserved=50, bytes_available=850))
    assert (found.peak_bytes, found.capacity_bytes) == (150, 1000)
    assert found.alive.kind == ("tensor", "reserved")
    assert found.alive.total_bytes.tolist() == [100, 50]


# --- alive at the peak ---


def test_what_is_alive_at_the_peak(tmp_path: Path) -> None:
    """Of 700, two equal tensors are 400, another one 100; 200 came before. Address 3 was used twice."""
    conv = {"tf_op": "model/conv/Conv2D", "shape": "[2,25]", "data_type": 1, "region_type": "output"}
    found = one(
        tmp_path, alloc(1, 50, 250, 3, tf_op="freed"), free(2, 50, 200, 3), alloc(3, 200, 400, 1, **conv),
        alloc(4, 200, 600, 2, **conv), alloc(5, 100, 700, 3, tf_op="sum", shape="[]", data_type=14, requested_bytes=90),
        free(6, 200, 500, 1), alloc(7, 10, 510, 4, tf_op="later"),
    )  # fmt: skip
    alive = found.alive
    assert alive.kind == ("tensor", "before the capture", "tensor")
    assert alive.op == ("model/conv/Conv2D", "", "sum")
    assert alive.scope == ("model/conv", "", "")
    assert alive.shape == ("[2,25]", "", "[]")
    assert alive.data_type == ("float32", "", "bfloat16")
    assert alive.region == ("output", "", "")
    assert (alive.count.tolist(), alive.total_bytes.tolist()) == ([2, 1, 1], [400, 200, 100])
    assert found.before_bytes == 200
    assert found.before_percent == pytest.approx(100 * 200 / 700)
    assert alive.rounding_bytes == 10
    rows = alive.columns(found.peak_bytes)
    assert rows["peak_percent"] == pytest.approx([100 * 4 / 7, 100 * 2 / 7, 100 / 7])
    assert rows["count"] == [2, None, 1]


def test_what_is_freed_without_an_allocation_came_before(tmp_path: Path) -> None:
    """800 before, of which 300 go; then 400 come: at the peak of 900 there are 500 of old."""
    found = one(tmp_path, free(1, 300, 500, 9), alloc(2, 400, 900, 1))
    assert (found.begin_bytes, found.peak_bytes, found.before_bytes) == (800, 900, 500)


def test_addresses_beyond_63_bits_match(tmp_path: Path) -> None:
    high = u64((1 << 64) - 256)
    found = one(tmp_path, alloc(1, 100, 100, high), free(2, 100, 0, high), alloc(3, 200, 200, 5))
    assert found.alive.total_bytes.tolist() == [200]


def test_allocators_have_addresses_of_their_own(tmp_path: Path) -> None:
    other = {"allocator_name": "GPU_1_bfc"}
    found = analyse(
        tmp_path, line("t", alloc(1, 500, 500, 1), alloc(2, 100, 100, 1, **other), free(3, 100, 0, 1, **other))
    )
    assert [(own.name, own.peak_bytes, own.before_bytes) for own in found.allocators] == [
        ("GPU_0_bfc", 500, 0), ("GPU_1_bfc", 100, 0),
    ]  # fmt: skip


def test_lost_events_are_said(tmp_path: Path) -> None:
    """The deallocation of address 1 is missing: 401 seem to be alive where 201 are in use."""
    found = one(tmp_path, alloc(1, 200, 200, 1), alloc(2, 100, 100, 2, bytes_allocated=100), alloc(3, 101, 201, 3))
    assert found.contradictions == 1
    assert found.before_bytes is None
    assert "before the capture" not in found.alive.kind


def test_layers_add_up_and_scopes_too(tmp_path: Path) -> None:
    names = ["net/layer_1/dense/Relu", "net/layer_2/dense/Relu", "net/out_3"]
    events = [alloc(n, 100, 100 + 100 * n, n + 1, tf_op=name, shape="[5]") for n, name in enumerate(names)]
    found = analyse(tmp_path, line("t", *events))
    by_op, by_scope = found.op_columns(), found.scope_columns()
    assert (by_op["op"], by_op["count"]) == (["net/layer_*/dense/Relu", "net/out_3"], [2, 1])
    assert by_op["total_bytes"] == [200, 100]
    assert by_scope["scope"] == ["net", "net/layer_1/dense", "net/layer_2/dense"]
    assert by_scope["peak_percent"] == pytest.approx([100 / 3] * 3)


# --- fragmentation ---


def test_fragmentation_at_the_peak_and_at_most(tmp_path: Path) -> None:
    """Writers store 0 as a whole number; beside real numbers it means 0."""
    found = one(
        tmp_path, alloc(1, 100, 100, 1, fragmentation=0.5), alloc(2, 650, 750, 2, fragmentation=0.25),
        alloc(3, 50, 800, 3, fragmentation=0),
    )  # fmt: skip
    assert found.fragmentation_percent == 0.0
    assert found.max_fragmentation_percent == 50.0
    assert found.full_fragmentation_percent == 25.0  # from 700 of 1000 on


def test_fragmentation_that_is_never_measured_is_unknown(tmp_path: Path) -> None:
    found = one(tmp_path, alloc(1, 100, 100, 1, fragmentation=0), alloc(2, 100, 200, 2, fragmentation=0))
    assert (found.fragmentation_percent, found.max_fragmentation_percent) == (None, None)


# --- steps ---


def job(leak: int, steps: int = 6) -> list[Event]:
    """Steps of 100 us that take 300 and give back all but `leak`."""
    events: list[Event] = []
    for n in range(steps):
        kept = n * leak
        events.append(event("train", 100 * n, 100, step_num=n))
        events.append(alloc(100 * n + 10, 300, kept + 300, 1))
        events.append(free(100 * n + 50, 300, kept, 1))
        events += [alloc(100 * n + 60, leak, kept + leak, 100 + n)] * bool(leak)
    return events


def test_growth_per_step(tmp_path: Path) -> None:
    """The least of each step: 0, 10, 20, ... where it has given back its 300."""
    found = one(tmp_path, *job(leak=10))
    assert found.growth_bytes_per_step == pytest.approx(10)
    assert found.allocations_per_step == pytest.approx(2.0)
    assert found.allocated_bytes_per_step == pytest.approx(310.0)
    assert found.peak_step == 5


def test_steps_that_give_everything_back_do_not_grow(tmp_path: Path) -> None:
    assert one(tmp_path, *job(leak=0)).growth_bytes_per_step == 0.0


def test_few_steps_do_not_tell(tmp_path: Path) -> None:
    assert one(tmp_path, *job(leak=10, steps=3)).growth_bytes_per_step is None


def test_a_peak_outside_steps_has_no_step(tmp_path: Path) -> None:
    found = one(tmp_path, alloc(1, 100, 100, 1))
    assert (found.peak_step, found.allocations_per_step, found.growth_bytes_per_step) == (None, None, None)


# --- timeline ---


def test_the_timeline_keeps_the_most_of_each_box(tmp_path: Path) -> None:
    """2503 events: 497 boxes of 2, then 503 boxes of 3."""
    in_use = [100 + (n % 7) for n in range(2503)]
    found = one(tmp_path, *(alloc(n, 1, used, n + 1) for n, used in enumerate(in_use)))
    boxes = [in_use[2 * n : 2 * n + 2] for n in range(497)] + [in_use[994 + 3 * n : 997 + 3 * n] for n in range(503)]
    assert found.timeline.in_use_bytes.tolist() == [max(box) for box in boxes]
    assert found.timeline.columns()["free_bytes"][0] == CAPACITY - max(boxes[0])


# --- names ---


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("GPU_0_bfc", "device"), ("gpu_async_0", "device"), ("3", "device"), ("gpu_host_bfc", "pinned host"),
        ("xla_gpu_host_bfc", "pinned host"), ("mklcpu", "host"), ("cpu", "host"), ("mine", "other"),
    ],
)  # fmt: skip
def test_places(name: str, place: str) -> None:
    assert place_of(name) == place


def test_types() -> None:
    assert [type_name(number) for number in (0, 1, 3, 19, 101, 77, -5)] == [
        "", "float32", "int32", "float16", "float32", "type 77", "type -5",
    ]  # fmt: skip


def test_an_allocator_may_have_a_number_instead_of_a_name(tmp_path: Path) -> None:
    numbered = event("MemoryAllocation", 1, 0, device_ordinal=3, bytes_allocated=10, allocation_bytes=10, addr=1)
    nameless = event("MemoryAllocation", 2, 0, bytes_allocated=5, allocation_bytes=5, addr=1)
    found = analyse(tmp_path, line("t", numbered, nameless))
    assert [(own.name, own.peak_bytes, own.capacity_bytes) for own in found.allocators] == [
        ("3", 10, None), ("unnamed", 5, None),
    ]  # fmt: skip


# --- hosts, and what is missing ---


def test_hosts_stand_side_by_side(tmp_path: Path) -> None:
    first = analyse(tmp_path, line("t", alloc(1, 100, 100, 1)))
    second = analyse(tmp_path, line("t", alloc(1, 300, 300, 1)))
    both = memory.combine([first, second])
    assert (both.hosts, [own.peak_bytes for own in both.allocators]) == (2, [300, 100])
    assert both.columns()["allocator"] == ["GPU_0_bfc", "GPU_0_bfc"]
    assert list(both.table["peak_bytes"]) == [300, 100]
    assert len(both.alive_table) == 2


def test_no_events(tmp_path: Path) -> None:
    found = analyse(tmp_path)
    assert (found.allocators, len(found.silent_hosts), found.threads_missing) == ((), 1, ())
    assert found.alive_columns() == {"host": [], "allocator": []}


def test_events_without_sizes_are_left_out(tmp_path: Path) -> None:
    odd = [
        event("MemoryAllocation", 1, 0, allocator_name="GPU_0_bfc"),
        alloc(2, 1, -5, 1), alloc(3, 1, (1 << 63) - 1, 1), alloc(4, 10, 10, 2),
    ]  # fmt: skip
    found = analyse(tmp_path, line("t", *odd))
    assert found.malformed_events == 3
    assert [own.peak_bytes for own in found.allocators] == [10]


def test_absurd_numbers_do_not_crash(tmp_path: Path) -> None:
    largest = 1 << 53
    odd = {"fragmentation": float("nan"), "bytes_available": -1, "tf_op": "\x1b[31m", "data_type": -(1 << 62)}
    found = one(tmp_path, *(alloc(n, largest, largest, n + 1, shape="x" * 5000, **odd) for n in range(3)))
    assert (found.capacity_bytes, found.fragmentation_percent, found.before_bytes) == (None, None, None)
    assert np.all(found.alive.total_bytes > 0)
    assert len(memory.combine([Memory((found,), 1, (), (), 0)]).alive_columns()["op"]) == 1


def test_only_numbers_that_differ_become_stars(tmp_path: Path) -> None:
    names = ["net_1/layer_1/Relu", "net_1/layer_2/Relu", "net_1/layer/Relu"]
    events = [alloc(n, 100, 100 + 100 * n, n + 1, tf_op=name) for n, name in enumerate(names)]
    found = analyse(tmp_path, line("t", *events)).op_columns()
    assert (found["op"], found["count"]) == (["net_1/layer_*/Relu", "net_1/layer/Relu"], [2, 1])
