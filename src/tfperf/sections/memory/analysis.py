"""Memory by allocator: how full it became, when, and what lay in it then.

Each allocation and each deallocation notes how much its allocator holds. So how much is in use is read, never summed
up; only what an allocation is for comes from matching addresses. Events of all threads are put in the order of time;
those of one moment stay in the order of the file.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tfperf.analysis.tabular import Tabular
from tfperf.base.display import Plotted
from tfperf.base.units import format_bytes
from tfperf.sections.memory.alive import by_op, by_scope
from tfperf.sections.memory.alive import shorten as shorten_alive
from tfperf.sections.memory.allocator import Allocator, describe
from tfperf.sections.memory.events import Place, events_by_allocator
from tfperf.sections.memory.tables import ALLOCATORS

if TYPE_CHECKING:
    from tfperf.analysis.results import Host


class Memory(Plotted, Tabular, frozen=True):
    """The allocators of all hosts, the fullest of those that matter most first (devices, then the others)."""

    home = ("memory", "memory_allocators")

    allocators: tuple[Allocator, ...]
    host_count: int
    silent_hosts: tuple[str, ...]
    """Hosts whose trace holds no event of memory."""
    hosts_without_threads: tuple[str, ...]
    """Those of them whose trace holds no event of any thread either."""
    malformed_events: int
    """Events that are omitted because their sizes are missing or impossible."""
    captures_ps: tuple[tuple[int, int], ...] = ()
    """From when to when the capture of each host goes, on the clock of its trace, as all times."""

    @property
    def alike(self) -> tuple[tuple[Allocator, ...], ...]:
        """Return the allocators in their order; chips of a TPU whose peak and capacity read the same are one group."""
        groups: dict[tuple[str, ...], list[Allocator]] = {}
        for each in self.allocators:
            read = format_bytes(each.peak_bytes), format_bytes(each.capacity_bytes)
            groups.setdefault((each.host, *(read if each.is_tpu else (each.name,))), []).append(each)
        return tuple(map(tuple, groups.values()))

    def columns(self) -> dict[str, list[object]]:
        """Return one row per allocator, sizes in bytes."""
        fields = {column.key: "name" if column.key == "allocator" else column.key for column in ALLOCATORS.columns}
        return {key: [getattr(allocator, name) for allocator in self.allocators] for key, name in fields.items()}

    def alive_columns(self) -> dict[str, list[object]]:
        """Return what was alive at the peak of each allocator."""
        return _stacked((allocator, allocator.alive.columns(allocator.peak_bytes)) for allocator in self.allocators)

    def op_columns(self) -> dict[str, list[object]]:
        """Return what was alive at the peaks by op, those of layers (`dense_1`, `dense_2`: `dense_*`) as one."""
        return _stacked((allocator, by_op(allocator.alive, allocator.peak_bytes)) for allocator in self.allocators)

    def scope_columns(self) -> dict[str, list[object]]:
        """Return what was alive at the peaks by the first three parts of its scope, allocator by allocator."""
        return _stacked((allocator, by_scope(allocator.alive, allocator.peak_bytes)) for allocator in self.allocators)

    def timeline_columns(self) -> dict[str, list[object]]:
        """Return the timelines of all allocators, one row per point."""
        return _stacked((allocator, allocator.timeline.columns()) for allocator in self.allocators)


def _stacked(parts: Iterable[tuple[Allocator, dict[str, list[object]]]]) -> dict[str, list[object]]:
    """Put tables of allocators below each other, with the allocator of each row before them."""
    stacked: dict[str, list[object]] = {"host": [], "allocator": []}
    for allocator, columns in parts:
        rows = len(next(iter(columns.values())))
        stacked["host"] += [allocator.host] * rows
        stacked["allocator"] += [allocator.name] * rows
        for key, values in columns.items():
            stacked.setdefault(key, []).extend(values)
    return stacked


def analyze(host: Host) -> Memory:
    """Find the allocators of one host and what they held."""
    trace = host.trace
    if not len(trace.memory):
        has_threads = any(line.stop > line.start for line in trace.host_lines)
        return Memory((), 1, (trace.host,), () if has_threads else (trace.host,), 0)
    events_of, texts, malformed_events = events_by_allocator(trace)
    steps = host["steps"].steps
    allocators = [describe(name, events, texts, host=trace.host, steps=steps) for name, events in events_of]
    silent = () if allocators else (trace.host,)
    return Memory(_ordered(allocators), 1, silent, (), malformed_events, (trace.extent_ps,))


def combine(parts: list[Memory]) -> Memory:
    """Put the allocators of all hosts side by side."""
    return Memory(
        _ordered([allocator for part in parts for allocator in part.allocators]),
        sum(part.host_count for part in parts),
        tuple(name for part in parts for name in part.silent_hosts),
        tuple(name for part in parts for name in part.hosts_without_threads),
        sum(part.malformed_events for part in parts),
        tuple(capture for part in parts for capture in part.captures_ps),
    )


def shorten(memory: Memory, most: int) -> Memory:
    """Return the allocators, with so many rows of what lay in each at its peak, and one for all others."""
    if all(len(allocator.alive) <= most for allocator in memory.allocators):
        return memory
    allocators = (replace(each, alive=shorten_alive(each.alive, most)) for each in memory.allocators)
    return replace(memory, allocators=tuple(allocators))


def _ordered(allocators: list[Allocator]) -> tuple[Allocator, ...]:
    places: tuple[Place, ...] = ("device", "other", "pinned host", "host")
    by_name = sorted(allocators, key=lambda each: (-(each.peak_percent or 0.0), -each.peak_bytes, each.host, each.name))
    return tuple(sorted(by_name, key=lambda allocator: places.index(allocator.place)))
