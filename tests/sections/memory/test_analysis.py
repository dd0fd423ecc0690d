from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from builders import Event, event, gpu, host, line, marks, result_of, results_of, rows_of, trace_of, u64
from msgspec.structs import replace
from sections.memory.made import (
    CAPACITY,
    GIB,
    alloc,
    allocator,
    allocator_of,
    free,
    memory,
    memory_of,
    on_chip,
    tpu_memory,
)

from tfperf.sections.memory import ALLOCATORS, TABLES
from tfperf.sections.memory.analysis import Memory, combine, place_of, shorten_alive, type_name


def test_hosts_stand_side_by_side(tmp_path: Path) -> None:
    first = memory_of(tmp_path, line("t", alloc(1, 100, 100, 1)))
    second = memory_of(tmp_path, line("t", alloc(1, 300, 300, 1)))
    both = combine([first, second])
    assert (both.host_count, [allocator.peak_bytes for allocator in both.allocators]) == (2, [300, 100])
    assert both.columns()["allocator"] == ["GPU_0_bfc", "GPU_0_bfc"]
    assert list(both.table["peak_bytes"]) == [300, 100]
    assert len(both.alive_columns()["op"]) == 2


def test_the_fullest_device_comes_first_and_the_host_last() -> None:
    """The host's allocator is full, but that says nothing; the other device holds more bytes, but a smaller share."""
    full = allocator(name="GPU_1_bfc", peak_bytes=4 * GIB, capacity_bytes=5 * GIB)
    large = allocator(name="GPU_0_bfc", peak_bytes=5 * GIB)
    pinned = allocator(name="gpu_host_bfc", place="pinned host", peak_bytes=10 * GIB)
    other = allocator(name="mine", place="other", capacity_bytes=None)
    of_host = allocator(name="mklcpu", place="host", peak_bytes=10 * GIB)
    both = combine([memory(of_host, pinned, large), memory(other, full)])
    assert [allocator.name for allocator in both.allocators] == [
        "GPU_1_bfc",
        "GPU_0_bfc",
        "mine",
        "gpu_host_bfc",
        "mklcpu",
    ]


def test_no_events(tmp_path: Path) -> None:
    memory = memory_of(tmp_path)
    assert (memory.allocators, len(memory.silent_hosts), memory.hosts_without_threads) == ((), 1, ())
    assert memory.alive_columns() == {"host": [], "allocator": []}


def test_a_trace_without_threads_is_told_apart(tmp_path: Path) -> None:
    memory = result_of(tmp_path, "memory", gpu(event("k", 0, 1)))
    assert memory.silent_hosts == memory.hosts_without_threads == ("host",)


def test_events_that_say_nothing_leave_a_host_silent(tmp_path: Path) -> None:
    memory = memory_of(tmp_path, line("t", event("MemoryAllocation", 1, 0, allocator_name="GPU_0_bfc")))
    assert (memory.allocators, len(memory.silent_hosts), memory.malformed_events) == ((), 1, 1)


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
    known = [alloc(100 * n + 5, 10, 10 * n + 10, n + 1) for n in range(3)]
    per_step = []
    for at in (400, 50):
        (allocator,) = memory_of(tmp_path, line("python", *marks(3), *known, alloc(at, 0, 40, 9, **UNSIZED))).allocators
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


def test_what_is_alive_at_the_peak(tmp_path: Path) -> None:
    """Of 700, two equal tensors are 400, another one 100; 200 came before. Address 3 was used twice."""
    conv = {"tf_op": "model/conv/Conv2D", "shape": "[2,25]", "data_type": 1, "region_type": "output"}
    allocator = allocator_of(
        tmp_path,
        alloc(1, 50, 250, 3, tf_op="freed"),
        free(2, 50, 200, 3),
        alloc(3, 200, 400, 1, **conv),
        alloc(4, 200, 600, 2, **conv),
        alloc(5, 100, 700, 3, tf_op="sum", shape="[]", data_type=14, requested_bytes=90),
        free(6, 200, 500, 1),
        alloc(7, 10, 510, 4, tf_op="later"),
    )
    alive = allocator.alive
    rows = zip(alive.kind, alive.op, alive.scope, alive.shape, alive.data_type, alive.region, strict=True)
    assert list(rows) == [
        ("tensor", "model/conv/Conv2D", "model/conv", "[2,25]", "float32", "output"),
        ("before the capture", "", "", "", "", ""),
        ("tensor", "sum", "", "[]", "bfloat16", ""),
    ]
    assert (alive.count.tolist(), alive.total_bytes.tolist()) == ([2, 1, 1], [400, 200, 100])
    assert allocator.before_bytes == 200
    assert allocator.before_percent == pytest.approx(100 * 200 / 700)
    assert allocator.rounding_bytes == 10
    columns = alive.columns(allocator.peak_bytes)
    assert columns["peak_percent"] == pytest.approx([100 * 4 / 7, 100 * 2 / 7, 100 / 7])
    assert columns["count"] == [2, None, 1]


def test_stack_counts_as_in_use_and_is_a_row(tmp_path: Path) -> None:
    allocator = allocator_of(tmp_path, alloc(10, 100, 100, 1, bytes_reserved=50, bytes_available=850))
    assert (allocator.peak_bytes, allocator.capacity_bytes) == (150, 1000)
    assert allocator.alive.kind == ("tensor", "reserved")
    assert allocator.alive.total_bytes.tolist() == [100, 50]


def test_what_is_freed_without_an_allocation_came_before(tmp_path: Path) -> None:
    """800 before, of which 300 go; then 400 come: at the peak of 900 there are 500 of old."""
    allocator = allocator_of(tmp_path, free(1, 300, 500, 9), alloc(2, 400, 900, 1))
    assert (allocator.start_bytes, allocator.peak_bytes, allocator.before_bytes) == (800, 900, 500)


def test_addresses_beyond_63_bits_match(tmp_path: Path) -> None:
    high = u64((1 << 64) - 256)
    allocator = allocator_of(tmp_path, alloc(1, 100, 100, high), free(2, 100, 0, high), alloc(3, 200, 200, 5))
    assert allocator.alive.total_bytes.tolist() == [200]


# --- sums ---


def of_ops(tmp_path: Path, *names: str) -> Memory:
    """Each op allocates 100 bytes of one shape."""
    events = [alloc(n, 100, 100 + 100 * n, n + 1, tf_op=name, shape="[5]") for n, name in enumerate(names)]
    return memory_of(tmp_path, line("t", *events))


def test_layers_add_up_and_scopes_too(tmp_path: Path) -> None:
    memory = of_ops(tmp_path, "net/layer_1/dense/Relu", "net/layer_2/dense/Relu", "net/out_3")
    by_op, by_scope = memory.op_columns(), memory.scope_columns()
    assert (by_op["op"], by_op["count"]) == (["net/layer_*/dense/Relu", "net/out_3"], [2, 1])
    assert by_op["total_bytes"] == [200, 100]
    assert by_scope["scope"] == ["net", "net/layer_1/dense", "net/layer_2/dense"]
    assert by_scope["peak_percent"] == pytest.approx([100 / 3] * 3)


def test_only_numbers_that_differ_become_stars(tmp_path: Path) -> None:
    by_op = of_ops(tmp_path, "net_1/layer_1/Relu", "net_1/layer_2/Relu", "net_1/layer/Relu").op_columns()
    assert (by_op["op"], by_op["count"]) == (["net_1/layer_*/Relu", "net_1/layer/Relu"], [2, 1])


def test_types() -> None:
    names = {0: "", 1: "float32", 3: "int32", 14: "bfloat16", 19: "float16", 101: "float32", 77: "type 77"}
    assert {number: type_name(number) for number in names} == names
    assert type_name(-5) == "type -5"


def test_rows_beyond_the_first_are_one_as_large_as_they_are_together(tmp_path: Path) -> None:
    """300 came before; of four tensors the largest stays, and 30 of the other 240 bytes are rounding."""
    allocator = allocator_of(
        tmp_path,
        alloc(1, 120, 420, 1, tf_op="large"),
        *(alloc(n, 80, 420 + 80 * (n - 1), n, tf_op=f"op{n}", requested_bytes=70) for n in (2, 3, 4)),
    )
    short = shorten_alive(allocator.alive, 2)
    of_one = ("op", "scope", "shape", "data_type", "region", "count", "each_bytes", "requested_bytes")
    columns = short.columns(660)
    assert rows_of(columns, "kind", *of_one) == [
        ("before the capture", *[None] * 8),
        ("other tensors", *[None] * 8),
        ("tensor", "large", None, None, None, None, 1, 120, 120),
    ]
    assert columns["total_bytes"] == [300, 240, 120]
    assert columns["peak_percent"] == pytest.approx([100 * size / 660 for size in (300, 240, 120)])
    assert replace(allocator, alive=short).rounding_bytes == allocator.rounding_bytes == 30
    assert shorten_alive(short, 3) is short


def test_threads_are_put_in_the_order_of_time(tmp_path: Path) -> None:
    """Thread b frees between the two allocations of thread a."""
    a = line("a", alloc(10, 300, 300, 1), alloc(30, 100, 100, 2, peak_bytes_in_use=300))
    b = line("b", free(20, 300, 0, 1, peak_bytes_in_use=300))
    (allocator,) = memory_of(tmp_path, a, b).allocators
    assert (allocator.peak_bytes, allocator.end_bytes, allocator.contradictions) == (300, 100, 0)
    assert allocator.timeline.in_use_bytes.tolist() == [300, 0, 100]


def test_allocators_have_addresses_of_their_own(tmp_path: Path) -> None:
    other = {"allocator_name": "GPU_1_bfc"}
    thread = line("t", alloc(1, 500, 500, 1), alloc(2, 100, 100, 1, **other), free(3, 100, 0, 1, **other))
    allocators = memory_of(tmp_path, thread).allocators
    found = [(allocator.name, allocator.peak_bytes, allocator.before_bytes) for allocator in allocators]
    assert found == [("GPU_0_bfc", 500, 0), ("GPU_1_bfc", 100, 0)]


def test_an_allocator_may_have_a_number_instead_of_a_name(tmp_path: Path) -> None:
    numbered = event("MemoryAllocation", 1, 0, device_ordinal=3, bytes_allocated=10, allocation_bytes=10, addr=1)
    nameless = event("MemoryAllocation", 2, 0, bytes_allocated=5, allocation_bytes=5, addr=1)
    allocators = memory_of(tmp_path, line("t", numbered, nameless)).allocators
    found = [(allocator.name, allocator.peak_bytes, allocator.capacity_bytes) for allocator in allocators]
    assert found == [("3", 10, None), ("unnamed", 5, None)]


def test_memory_of_a_tpu_is_that_of_its_chips(tmp_path: Path) -> None:
    """What programs reserve for their temporaries is the stack; the profiler notes the most of the heap alone."""
    events = on_chip(1, 1, 0, 900), on_chip(0, 2, 600_000, 100, peak_bytes_in_use=500), on_chip(1, 3, 500_000, 100)
    found = [
        (each.name, each.place, each.peak_bytes, each.stack_bytes, each.heap_peak_bytes, each.capacity_bytes)
        for each in tpu_memory(tmp_path, *events).allocators
    ]
    assert found == [
        ("TPU:0", "device", 600_100, 600_000, 500, 1_000_000),
        ("TPU:1", "device", 500_100, 500_000, 900, 1_000_000),
    ]


def test_events_without_sizes_are_omitted(tmp_path: Path) -> None:
    odd = [
        event("MemoryAllocation", 1, 0, allocator_name="GPU_0_bfc"),
        alloc(2, 1, -5, 1),
        alloc(3, 1, (1 << 63) - 1, 1),
        alloc(4, 10, 10, 2),
    ]
    memory = memory_of(tmp_path, line("t", *odd))
    assert memory.malformed_events == 3
    assert [allocator.peak_bytes for allocator in memory.allocators] == [10]


def test_what_was_asked_for_stands_in_for_an_unknown_size(tmp_path: Path) -> None:
    allocator = allocator_of(tmp_path, alloc(1, 90, 100, 1, allocation_bytes=-1))
    assert allocator.alive.each_bytes.tolist() == [90, 10]


def test_places() -> None:
    places = dict.fromkeys(("GPU_0_bfc", "gpu_async_0", "3"), "device") | {"mine": "other"}
    places |= dict.fromkeys(("gpu_host_bfc", "xla_gpu_host_bfc"), "pinned host")
    places |= dict.fromkeys(("mklcpu", "cpu"), "host")
    assert {name: place_of(name) for name in places} == places


def test_averages_over_steps_are_marked() -> None:
    assert [column.key for column in ALLOCATORS.columns if column.over_steps] == [
        "allocations_per_step",
        "allocated_bytes_per_step",
        "growth_bytes_per_step",
    ]


def test_without_events_there_are_no_tables(tmp_path: Path) -> None:
    results = results_of(trace_of(tmp_path, host(event("work", 0, 1))), sections=["memory"])
    assert [table.data(results) for table in TABLES] == [None] * len(TABLES)


def test_memory_of_a_jax_program_has_the_name_of_the_program_that_is_put_on_the_device(tmp_path: Path) -> None:
    """Not outside of that, and not while two functions are called."""
    python = line(
        "python",
        event("PjitFunction(step fn)", 10, 20),
        event("PjRtStreamExecutorLoadedExecutable::EnqueueExecution", 12, 4),
        alloc(13, 100, 100, 1),
        alloc(20, 10, 110, 2),
        event("PjitFunction(step fn)", 40, 20),
        event("PjRtStreamExecutorLoadedExecutable::EnqueueExecution", 42, 4),
        alloc(43, 20, 130, 3),
        alloc(44, 30, 160, 4, tf_op="dense/MatMul:MatMul"),
    )
    other = line("other", event("PjitFunction(load)", 41, 2.5))
    (found,) = memory_of(tmp_path, python, other).allocators
    by_size = dict(zip(found.alive.each_bytes.tolist(), found.alive.op, strict=True))
    assert by_size == {
        100: "jit_step_fn",
        10: "(in PjitFunction(step fn))",
        20: "(in PjRtStreamExecutorLoadedExecutable::EnqueueExecution)",
        30: "dense/MatMul:MatMul",
    }


def test_an_allocation_without_an_op_has_the_name_of_what_runs_on_its_thread(tmp_path: Path) -> None:
    """Innermost; none if nothing runs there. What runs on other threads does not matter."""
    first = line("a", event("train/step", 0, 100), event("tf.constant", 10, 20), alloc(15, 100, 100, 1, tf_op=""))
    second = line("b", event("late", 90, 5), alloc(20, 50, 150, 2), alloc(25, 10, 160, 3, tf_op="net/MatMul"), id=7)
    third = line("c", alloc(30, 5, 165, 4), id=8)
    (found,) = memory_of(tmp_path, first, second, third).allocators
    sizes = found.alive.each_bytes.tolist()
    assert dict(zip(sizes, found.alive.op, strict=True)) == {100: "(in tf.constant)", 50: "", 10: "net/MatMul", 5: ""}
    assert dict(zip(sizes, found.alive.scope, strict=True)) == {100: "", 50: "", 10: "net", 5: ""}
