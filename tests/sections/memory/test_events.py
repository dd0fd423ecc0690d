from __future__ import annotations

from pathlib import Path

import pytest
from builders import event, line
from sections.memory.made import alloc, allocator_of, free, memory_of, on_chip, tpu_memory

from tfperf.sections.memory.analysis import place_of


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
    assert [(allocator.name, allocator.peak_bytes, allocator.before_bytes) for allocator in allocators] == [
        ("GPU_0_bfc", 500, 0),
        ("GPU_1_bfc", 100, 0),
    ]


def test_an_allocator_may_have_a_number_instead_of_a_name(tmp_path: Path) -> None:
    numbered = event("MemoryAllocation", 1, 0, device_ordinal=3, bytes_allocated=10, allocation_bytes=10, addr=1)
    nameless = event("MemoryAllocation", 2, 0, bytes_allocated=5, allocation_bytes=5, addr=1)
    allocators = memory_of(tmp_path, line("t", numbered, nameless)).allocators
    assert [(allocator.name, allocator.peak_bytes, allocator.capacity_bytes) for allocator in allocators] == [
        ("3", 10, None),
        ("unnamed", 5, None),
    ]


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


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("GPU_0_bfc", "device"),
        ("gpu_async_0", "device"),
        ("3", "device"),
        ("gpu_host_bfc", "pinned host"),
        ("xla_gpu_host_bfc", "pinned host"),
        ("mklcpu", "host"),
        ("cpu", "host"),
        ("mine", "other"),
    ],
)
def test_places(name: str, place: str) -> None:
    assert place_of(name) == place
