"""Events of allocators, and allocators, as the tests of memory need them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from builders import Event, Line, event, host, line, plane, result_of
from msgspec.structs import replace

from tfperf.sections.memory.analysis import Alive, Allocator, Memory, MemoryTimeline

CAPACITY = 1000
GIB = 1 << 30


def alloc(at_us: float, size: int, in_use: int, addr: int, **stats: Any) -> Event:
    return _event("MemoryAllocation", at_us, size, in_use, addr, stats)


def free(at_us: float, size: int, in_use: int, addr: int, **stats: Any) -> Event:
    return _event("MemoryDeallocation", at_us, size, in_use, addr, stats)


def _event(name: str, at_us: float, size: int, in_use: int, addr: int, stats: dict[str, Any]) -> Event:
    plain = {
        "allocator_name": "GPU_0_bfc",
        "bytes_reserved": 0,
        "bytes_allocated": in_use,
        "bytes_available": CAPACITY - in_use,
        "peak_bytes_in_use": in_use,
        "requested_bytes": size,
        "allocation_bytes": size,
        "addr": addr,
    }
    return event(name, at_us, 0, **{**plain, **stats})


def memory_of(tmp_path: Path, *lines: Line) -> Memory:
    """Analyze a host with a thread that starts at 0 us, so that times count from there."""
    threads = plane("/host:CPU", line("other", event("work", 0, 1)), *lines)
    memory: Memory = result_of(tmp_path, "memory", threads)
    return memory


def allocator_of(tmp_path: Path, *events: Event) -> Allocator:
    """Return the only allocator of the events."""
    (allocator,) = memory_of(tmp_path, line("python", *events)).allocators
    return allocator


def allocator(**changes: Any) -> Allocator:
    """An allocator of 10 GiB that comes to 2 GiB: half of that in one tensor, half from before."""
    size = np.array([GIB, GIB])
    alive = Alive(
        kind=("tensor", "before the capture"),
        op=("net/dense_1/MatMul", ""),
        shape=("[16384,16384]", ""),
        data_type=("float32", ""),
        region=("output", ""),
        count=np.array([1, 1]),
        each_bytes=size,
        requested_bytes=np.array([GIB, -1]),
        total_bytes=size,
    )
    in_use, free_bytes = np.array([GIB, 2 * GIB, GIB]), np.array([9 * GIB, 8 * GIB, 9 * GIB])
    plain = Allocator(
        host="a",
        name="GPU_0_bfc",
        place="device",
        capacity_bytes=10 * GIB,
        peak_bytes=2 * GIB,
        peak_ms=4.0,
        peak_step=7,
        lifetime_peak_bytes=6 * GIB,
        start_bytes=GIB,
        end_bytes=GIB,
        fragmentation_percent=1.0,
        max_fragmentation_percent=2.0,
        full_fragmentation_percent=None,
        allocations=2,
        unsized_allocations=0,
        frees=1,
        allocated_bytes=2 * GIB,
        allocations_per_step=1.0,
        allocated_bytes_per_step=float(GIB),
        growth_bytes_per_step=0.0,
        growth_steps=10,
        alive=alive,
        before_bytes=GIB,
        unsized_alive=0,
        contradictions=0,
        timeline=MemoryTimeline(np.array([0.0, 4.0, 8.0]), in_use, free_bytes, np.zeros(3)),
    )
    return replace(plain, **changes)


def tpu_memory(tmp_path: Path, *events: Event, chips: int = 2) -> Memory:
    """Analyze a host with chips of a TPU, whose events name no allocator."""
    devices = (plane(f"/device:TPU:{chip}", line("XLA Ops", event("op", 0, 1))) for chip in range(chips))
    found: Memory = result_of(tmp_path, "memory", host(*events), *devices)
    return found


def on_chip(chip: int, at_us: float, stack: int, heap: int, **stats: Any) -> Event:
    """An allocation on a chip of 1,000,000 bytes."""
    plain = {
        "index_on_host": chip,
        "bytes_reserved": stack,
        "bytes_allocated": heap,
        "bytes_available": 1_000_000 - stack - heap,
        "peak_bytes_in_use": heap,
        "requested_bytes": heap,
        "allocation_bytes": heap,
        "addr": 1,
    }
    return event("MemoryAllocation", at_us, 0, **{**plain, **stats})


def memory(*allocators: Allocator, **changes: Any) -> Memory:
    """What was found on one host."""
    return replace(Memory(allocators, 1, (), (), 0), **changes)
