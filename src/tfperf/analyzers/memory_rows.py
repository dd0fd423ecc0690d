"""The events of allocators as columns, put in the order of time."""

from __future__ import annotations

import re
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tfperf.arrays import Bools, Int64s
from tfperf.trace.host_trace import MemoryEvents

Float64s = npt.NDArray[np.float64]
Place = Literal["device", "pinned host", "host", "other"]
"""Whose memory an allocator gives out; pinned is what devices copy from and to."""

_LARGEST_BYTES = 1 << 53
_PINNED = re.compile("host|pinned", re.IGNORECASE)
_ON_DEVICE = re.compile(r"(xla_)?(gpu|tpu|cuda|hbm)|\d+$", re.IGNORECASE)
_ON_HOST = re.compile("(mkl|xla_)?cpu", re.IGNORECASE)


class AllocatorEvents(NamedTuple):
    """Events of one allocator in the order of time; bytes are -1 and texts -1 where they are missing."""

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
        columns: dict[str, Any] = {name: column[chosen] for name, column in self._asdict().items()}
        return AllocatorEvents(**columns)


class EventTexts(NamedTuple):
    """What the indices of `AllocatorEvents` mean."""

    op: tuple[str, ...]
    shape: tuple[str, ...]
    region: tuple[str, ...]


def by_allocator(memory: MemoryEvents) -> tuple[list[tuple[str, AllocatorEvents]], EventTexts, int]:
    """Return the events of each allocator, what their texts are, and how many events were left out.

    Left out are those that do not say how much is in use.
    """
    events, texts = _events(memory)
    names, index = _allocators(memory)
    sound = events.heap >= 0
    # Sorting by allocator too makes each one a slice; lexsort keeps the order of the file where times are equal.
    order = np.lexsort((events.start_ps, index))
    order = order[sound[order]]
    bounds = np.searchsorted(index[order], np.arange(len(names) + 1)).tolist()
    found = [
        (name, events.rows(order[start:stop]))
        for name, start, stop in zip(names, bounds, bounds[1:], strict=False)
        if stop > start
    ]
    return found, texts, int((~sound).sum())


def _events(memory: MemoryEvents) -> tuple[AllocatorEvents, EventTexts]:
    op, ops = memory.text_index("tf_op")
    shape, shapes = memory.text_index("shape")
    region, regions = memory.text_index("region_type")
    size, requested = _bytes(memory, "allocation_bytes"), _bytes(memory, "requested_bytes")
    events = AllocatorEvents(
        memory.start_ps, memory.allocates, _bytes(memory, "bytes_reserved"), _bytes(memory, "bytes_allocated"),
        _bytes(memory, "bytes_available"), _bytes(memory, "peak_bytes_in_use"), memory.real("fragmentation"),
        np.where(size >= 0, size, requested), requested, memory.number("addr", 0), op, shape, region,
        memory.number("data_type", 0),
    )  # fmt: skip
    return events, EventTexts(ops, shapes, regions)


def _bytes(memory: MemoryEvents, stat_name: str) -> Int64s:
    """Return sizes in bytes, -1 for those that are missing or impossible (negative, beyond 8 PiB)."""
    found = memory.number(stat_name, -1)
    return np.where((found >= 0) & (found <= _LARGEST_BYTES), found, -1)


def _allocators(memory: MemoryEvents) -> tuple[list[str], Int64s]:
    """Return the names of allocators and the index of each event's; some writers give a number instead of a name."""
    index, texts = memory.text_index("allocator_name")
    names = [*texts]
    for stat_name in ("index_on_host", "device_ordinal"):
        nameless = np.flatnonzero(index < 0)
        numbers = memory.number(stat_name, -1)[nameless]
        known = nameless[numbers >= 0]
        distinct, place = np.unique(numbers[numbers >= 0], return_inverse=True)
        index[known] = place.reshape(-1) + len(names)
        names += [str(number) for number in distinct.tolist()]
    index[index < 0] = len(names)
    return [*names, "unnamed"], index


def place_of(name: str) -> Place:
    """Return whose memory an allocator of this name gives out."""
    if _PINNED.search(name):
        return "pinned host"
    if _ON_HOST.match(name):
        return "host"
    return "device" if _ON_DEVICE.match(name) else "other"
