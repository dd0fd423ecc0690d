"""The events of allocators as columns, in the order of time."""

from __future__ import annotations

import re
from typing import Any, Literal

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Bools, Float64s, Int64s
from tfperf.trace.host_trace import HostTrace, MemoryEvents

Place = Literal["device", "pinned host", "host", "other"]
"""Whose memory an allocator gives out; pinned is what devices copy from and to."""

_LARGEST_BYTES = 1 << 53
_PINNED = re.compile("host|pinned", re.IGNORECASE)
_ON_DEVICE = re.compile(r"(xla_)?(gpu|tpu|cuda|hbm)|\d+$", re.IGNORECASE)
_ON_HOST = re.compile("(mkl|xla_)?cpu", re.IGNORECASE)


class AllocatorEvents(Struct, frozen=True, kw_only=True):
    """Events of allocators: one entry per event; bytes are -1 and indices of texts -1 where they are missing."""

    start_ps: Int64s
    allocates: Bools
    stack: Int64s
    heap: Int64s
    free: Int64s
    lifetime_peak: Int64s
    fragmentation: Float64s
    size: Int64s
    requested: Int64s
    address: Int64s
    op: Int64s
    shape: Int64s
    region: Int64s
    data_type: Int64s

    def rows(self, chosen: Int64s | slice) -> AllocatorEvents:
        """Return the events at these rows."""
        columns: dict[str, Any] = {name: getattr(self, name)[chosen] for name in self.__struct_fields__}
        return AllocatorEvents(**columns)


class EventTexts(Struct, frozen=True):
    """What the indices of `AllocatorEvents` mean."""

    op: tuple[str, ...]
    shape: tuple[str, ...]
    region: tuple[str, ...]


def events_by_allocator(trace: HostTrace) -> tuple[list[tuple[str, AllocatorEvents]], EventTexts, int]:
    """Return the name of each allocator and its events in the order of time, their texts, and how many are omitted.

    Events are omitted that do not say how much is in use.
    """
    memory = trace.memory
    op, ops = memory.text_index("tf_op")
    shape, shapes = memory.text_index("shape")
    region, regions = memory.text_index("region_type")
    size, requested = _bytes(memory, "allocation_bytes"), _bytes(memory, "requested_bytes")
    events = AllocatorEvents(
        start_ps=memory.start_ps,
        allocates=memory.allocates,
        stack=_bytes(memory, "bytes_reserved"),
        heap=_bytes(memory, "bytes_allocated"),
        free=_bytes(memory, "bytes_available"),
        lifetime_peak=_bytes(memory, "peak_bytes_in_use"),
        fragmentation=memory.real("fragmentation"),
        size=np.where(size >= 0, size, requested),
        requested=requested,
        address=memory.number("addr", 0),
        op=op,
        shape=shape,
        region=region,
        data_type=memory.number("data_type", 0),
    )
    names, allocator = trace.allocators
    names, allocator = (*names, "unnamed"), np.where(allocator >= 0, allocator, len(names))
    is_sound = events.heap >= 0
    # Sorting by allocator too makes each one a slice; lexsort keeps the order of the file where times are equal.
    order = np.lexsort((events.start_ps, allocator))
    order = order[is_sound[order]]
    bounds = np.searchsorted(allocator[order], np.arange(len(names) + 1)).tolist()
    slices = zip(names, bounds, bounds[1:], strict=False)
    by_name = [(name, events.rows(order[start:stop])) for name, start, stop in slices if stop > start]
    return by_name, EventTexts(ops, shapes, regions), int((~is_sound).sum())


def _bytes(memory: MemoryEvents, stat_name: str) -> Int64s:
    """Return sizes in bytes, -1 for those that are missing or impossible (negative, beyond 8 PiB)."""
    sizes = memory.number(stat_name, -1)
    return np.where((sizes >= 0) & (sizes <= _LARGEST_BYTES), sizes, -1)


def place_of(name: str) -> Place:
    """Return whose memory an allocator of this name gives out."""
    if _PINNED.search(name):
        return "pinned host"
    if _ON_HOST.match(name):
        return "host"
    return "device" if _ON_DEVICE.match(name) else "other"
