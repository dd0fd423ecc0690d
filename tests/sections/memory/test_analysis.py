from __future__ import annotations

from pathlib import Path

from builders import event, host_of, line, plane, trace_of
from sections.memory.made import GIB, alloc, allocator, memory, memory_of

from tfperf.sections.memory.analysis import combine


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
    names = [allocator.name for allocator in combine([memory(of_host, pinned, large), memory(other, full)]).allocators]
    assert names == ["GPU_1_bfc", "GPU_0_bfc", "mine", "gpu_host_bfc", "mklcpu"]


def test_no_events(tmp_path: Path) -> None:
    memory = memory_of(tmp_path)
    assert (memory.allocators, len(memory.silent_hosts), memory.hosts_without_threads) == ((), 1, ())
    assert memory.alive_columns() == {"host": [], "allocator": []}


def test_a_trace_without_threads_is_told_apart(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, plane("/device:GPU:0", line("Stream #1", event("k", 0, 1))))
    memory = host_of(trace, "memory")["memory"]
    assert memory.silent_hosts == memory.hosts_without_threads == (trace.host,)


def test_events_that_say_nothing_leave_a_host_silent(tmp_path: Path) -> None:
    memory = memory_of(tmp_path, line("t", event("MemoryAllocation", 1, 0, allocator_name="GPU_0_bfc")))
    assert (memory.allocators, len(memory.silent_hosts), memory.malformed_events) == ((), 1, 1)
