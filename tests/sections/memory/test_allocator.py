from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from builders import Event, event, line
from sections.memory.made import CAPACITY, alloc, allocator_of, free, memory, memory_of


def test_peak_capacity_and_counts(tmp_path: Path) -> None:
    """200 in use before; 300 and 100 come, 300 goes."""
    allocator = allocator_of(tmp_path, alloc(10, 300, 500, 1), alloc(20, 100, 600, 2), free(30, 300, 300, 1))
    assert (allocator.capacity_bytes, allocator.peak_bytes, allocator.peak_percent) == (1000, 600, 60.0)
    assert allocator.peak_ms == pytest.approx(0.020)
    assert (allocator.start_bytes, allocator.end_bytes) == (200, 300)
    assert (allocator.allocations, allocator.frees, allocator.allocated_bytes) == (2, 1, 400)
    assert allocator.contradictions == 0


def test_lifetime_peak_is_the_largest_one_noted(tmp_path: Path) -> None:
    """The file ends with the thread whose work ended first, and which saw less."""
    late = line("late", alloc(30, 400, 500, 2))
    early = line("early", alloc(10, 100, 100, 1))
    (allocator,) = memory_of(tmp_path, late, early).allocators
    assert allocator.lifetime_peak_bytes == 500


def test_a_peak_reached_twice_counts_where_it_is_reached_last(tmp_path: Path) -> None:
    allocator = allocator_of(tmp_path, alloc(10, 300, 300, 1), free(20, 300, 0, 1), alloc(30, 300, 300, 1, tf_op="b"))
    assert allocator.peak_ms == pytest.approx(0.030)
    assert allocator.alive.op == ("b",)


def test_lost_events_are_said(tmp_path: Path) -> None:
    """The deallocation of address 1 is missing: 401 seem to be alive where 201 are in use."""
    allocator = allocator_of(
        tmp_path, alloc(1, 200, 200, 1), alloc(2, 100, 100, 2, bytes_allocated=100), alloc(3, 101, 201, 3)
    )
    assert allocator.contradictions == 1
    assert allocator.before_bytes is None
    assert "before the capture" not in allocator.alive.kind


def test_times_are_on_the_clock_of_the_trace(tmp_path: Path) -> None:
    """As those of steps and gaps are; the capture may start long after 0 on it."""
    late = line("python", event("work", 100, 1), alloc(130, 100, 100, 1), timestamp_ns=2_000_000)
    (allocator,) = memory_of(tmp_path, late).allocators
    assert allocator.peak_ms == pytest.approx(2.130)
    assert allocator.timeline.time_ms.tolist() == pytest.approx([2.130])


# --- unknown sizes ---

UNSIZED = {"requested_bytes": -1, "allocation_bytes": -1}


def test_sums_with_an_allocation_of_unknown_size_are_unknown(tmp_path: Path) -> None:
    """Two allocations come, of 300 and of unknown size; what is in use is noted all the same."""
    allocator = allocator_of(tmp_path, alloc(10, 300, 500, 1), alloc(20, 0, 600, 2, **UNSIZED))
    assert (allocator.allocations, allocator.unsized_allocations) == (2, 1)
    assert (allocator.allocated_bytes, allocator.peak_bytes, allocator.start_bytes) == (None, 600, 200)


def test_what_an_allocation_of_unknown_size_holds_was_not_there_before(tmp_path: Path) -> None:
    """Of 600 at the peak, 350 are known; the rest is of the allocation of unknown size too, while it is alive."""
    events = alloc(10, 350, 550, 1), alloc(20, 0, 600, 2, **UNSIZED)
    allocator = allocator_of(tmp_path, *events)
    assert (allocator.before_bytes, allocator.before_percent, allocator.unsized_alive) == (None, None, 1)
    assert allocator.alive.kind == ("tensor", "before the capture or of unknown size")
    assert allocator.alive.total_bytes.tolist() == [350, 250]
    freed = allocator_of(tmp_path, *events, free(30, 0, 550, 2, **UNSIZED), alloc(40, 190, 740, 3))
    assert (freed.before_bytes, freed.alive.kind) == (200, ("tensor", "before the capture", "tensor"))


def test_bytes_per_step_are_known_where_the_sizes_of_the_steps_are(tmp_path: Path) -> None:
    """Three steps of 100 us, each with an allocation of 10 bytes; one of unknown size comes behind them, or in one."""
    steps = [event("train", 100 * n, 100, step_num=n) for n in range(3)]
    known = [alloc(100 * n + 5, 10, 10 * n + 10, n + 1) for n in range(3)]
    per_step = []
    for at in (400, 50):
        (allocator,) = memory_of(tmp_path, line("python", *steps, *known, alloc(at, 0, 40, 9, **UNSIZED))).allocators
        per_step.append((allocator.allocations_per_step, allocator.allocated_bytes_per_step))
    assert per_step == [(1.0, 10.0), (pytest.approx(4 / 3), None)]


def test_before_a_first_event_of_unknown_size_the_use_is_unknown(tmp_path: Path) -> None:
    assert allocator_of(tmp_path, alloc(10, 0, 500, 1, **UNSIZED)).start_bytes is None
    assert allocator_of(tmp_path, free(10, 0, 500, 1, **UNSIZED)).start_bytes is None


def test_absurd_numbers_do_not_crash(tmp_path: Path) -> None:
    largest = 1 << 53
    odd = {"fragmentation": float("nan"), "bytes_available": -1, "tf_op": "\x1b[31m", "data_type": -(1 << 62)}
    allocator = allocator_of(tmp_path, *(alloc(n, largest, largest, n + 1, shape="x" * 5000, **odd) for n in range(3)))
    assert (allocator.capacity_bytes, allocator.fragmentation_percent, allocator.before_bytes) == (None, None, None)
    assert np.all(allocator.alive.total_bytes > 0)
    assert len(memory(allocator).alive_columns()["op"]) == 1


# --- fragmentation ---


def test_fragmentation_at_the_peak_and_at_most(tmp_path: Path) -> None:
    """Writers store 0 as a whole number; beside real numbers it means 0."""
    allocator = allocator_of(
        tmp_path,
        alloc(1, 100, 100, 1, fragmentation=0.5),
        alloc(2, 650, 750, 2, fragmentation=0.25),
        alloc(3, 50, 800, 3, fragmentation=0),
    )
    assert allocator.fragmentation_percent == 0.0
    assert allocator.max_fragmentation_percent == 50.0
    assert allocator.full_fragmentation_percent == 25.0  # from 700 of 1000 on


def test_fragmentation_that_is_never_measured_is_unknown(tmp_path: Path) -> None:
    allocator = allocator_of(tmp_path, alloc(1, 100, 100, 1, fragmentation=0), alloc(2, 100, 200, 2, fragmentation=0))
    assert (allocator.fragmentation_percent, allocator.max_fragmentation_percent) == (None, None)
    assert allocator.timeline.columns()["fragmentation_percent"] == [None, None]


# --- timeline ---


def test_the_timeline_keeps_the_most_of_each_box(tmp_path: Path) -> None:
    """2503 events: 497 boxes of 2, then 503 boxes of 3."""
    in_use = [100 + (n % 7) for n in range(2503)]
    allocator = allocator_of(tmp_path, *(alloc(n, 1, used, n + 1) for n, used in enumerate(in_use)))
    boxes = [in_use[2 * n : 2 * n + 2] for n in range(497)] + [in_use[994 + 3 * n : 997 + 3 * n] for n in range(503)]
    assert allocator.timeline.in_use_bytes.tolist() == [max(box) for box in boxes]
    assert allocator.timeline.columns()["free_bytes"][0] == CAPACITY - max(boxes[0])


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
    allocator = allocator_of(tmp_path, *job(leak=10))
    assert allocator.growth_bytes_per_step == pytest.approx(10)
    assert allocator.growth_steps == 6
    assert allocator.allocations_per_step == pytest.approx(2.0)
    assert allocator.allocated_bytes_per_step == pytest.approx(310.0)
    assert allocator.peak_step == 5


def test_steps_that_give_everything_back_do_not_grow(tmp_path: Path) -> None:
    assert allocator_of(tmp_path, *job(leak=0)).growth_bytes_per_step == 0.0


def test_few_steps_do_not_tell(tmp_path: Path) -> None:
    assert allocator_of(tmp_path, *job(leak=10, steps=3)).growth_bytes_per_step is None


def test_without_steps_nothing_is_known_per_step(tmp_path: Path) -> None:
    allocator = allocator_of(tmp_path, alloc(1, 100, 100, 1))
    assert (allocator.peak_step, allocator.allocations_per_step) == (None, None)
    assert (allocator.allocated_bytes_per_step, allocator.growth_bytes_per_step) == (None, None)
