"""One allocator: how full it became and when, what lay in it then, and how it was used over time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Bools, Float64s, Int64s
from tfperf.base.units import PS_PER_MS, percent
from tfperf.sections.memory.alive import Alive, tensors_at, total_of, with_unknown
from tfperf.sections.memory.events import AllocatorEvents, EventTexts, Place, place_of
from tfperf.trace.steps.steps import Steps

TIMELINE_POINTS = 1000
FULL_SHARE = 0.7
"""From this share of the capacity on, fragmentation can make an allocation fail."""
_LEAST_STEPS = 5
"""Fewer steps do not tell steady growth from chance."""
_RISING_SHARE = 0.75
_Windows = tuple[Int64s, Int64s]
"""Start and end of the steps that headline figures are about."""


class MemoryTimeline(Struct, frozen=True):
    """Memory in use over time, at most `TIMELINE_POINTS` points: of each stretch of events the one with the most.

    `time_ms` is on the clock of the trace; free memory is -1 and fragmentation NaN where they are unknown.
    """

    time_ms: Float64s
    in_use_bytes: Int64s
    free_bytes: Int64s
    fragmentation_percent: Float64s

    def columns(self) -> dict[str, list[object]]:
        """Return one row per point, None where a value is unknown."""
        return {
            "time_ms": self.time_ms.tolist(),
            "in_use_bytes": self.in_use_bytes.tolist(),
            "free_bytes": _known(self.free_bytes, self.free_bytes >= 0),
            "fragmentation_percent": _known(self.fragmentation_percent, ~np.isnan(self.fragmentation_percent)),
        }


class Allocator(Struct, frozen=True, kw_only=True):
    """One allocator of one host. The peak is the largest number of bytes in use, where it was reached last.

    None is unknown. Fragmentation is the share of what the allocator holds free that is not in its largest piece.
    """

    host: str
    name: str
    place: Place
    capacity_bytes: int | None
    peak_bytes: int
    peak_ms: float
    """On the clock of the trace."""
    peak_step: int | None
    """Number of the step that the peak fell into."""
    lifetime_peak_bytes: int | None
    """Since the program started."""
    stack_bytes: int = 0
    """Of the peak: reserved, on a TPU for temporaries of the loaded programs; the rest is the heap."""
    heap_peak_bytes: int | None = None
    """The most in the heap alone since the program started, which is what profilers of TPUs note."""
    start_bytes: int | None
    """In use before the first event; None: its size is unknown."""
    end_bytes: int
    """In use after the last event."""
    fragmentation_percent: float | None
    """At the peak."""
    max_fragmentation_percent: float | None
    full_fragmentation_percent: float | None
    """The most while `FULL_SHARE` of the capacity or more is in use; None: it never is."""
    allocations: int
    unsized_allocations: int
    """Allocations of unknown size."""
    frees: int
    allocated_bytes: int | None
    """Sum over all allocations; None: the size of any is unknown."""
    allocations_per_step: float | None
    allocated_bytes_per_step: float | None
    growth_bytes_per_step: float | None
    """By how much the least that is in use grows from step to step; 0: not steadily; None: too few steps."""
    growth_steps: int
    """Steps that the growth was looked for in."""
    alive: Alive
    before_bytes: int | None
    """Of the peak: allocated before the capture; None: the events contradict each other, or do not say all sizes."""
    unsized_alive: int
    """Allocations of unknown size that are alive at the peak."""
    contradictions: int
    """Events that do not follow from the one before: some were lost, or several allocators share a name."""
    timeline: MemoryTimeline

    @property
    def peak_percent(self) -> float | None:
        """Return the share of the capacity in use at the peak."""
        return percent(self.peak_bytes, self.capacity_bytes or 0)

    @property
    def is_tpu(self) -> bool:
        """Tell whether it gives out the memory of a TPU chip."""
        return self.name.startswith("TPU:")

    @property
    def before_percent(self) -> float | None:
        """Return the share of the peak that was allocated before the capture."""
        return None if self.before_bytes is None else percent(self.before_bytes, self.peak_bytes)

    @property
    def rounding_bytes(self) -> int:
        """Return what the tensors that are known at the peak got beyond what was asked for."""
        alive = self.alive
        spare = np.where(alive.requested_bytes >= 0, alive.each_bytes - alive.requested_bytes, 0)
        return total_of(np.maximum(spare, 0) * alive.count.astype(np.float64))


def describe(name: str, events: AllocatorEvents, texts: EventTexts, *, host: str, steps: Steps) -> Allocator:
    """Describe an allocator of a host by its events."""
    reserved = np.maximum(events.stack, 0)
    in_use = reserved + events.heap
    # Where the peak is reached several times, most is known at the last about what lies there.
    peak = len(in_use) - 1 - int(in_use[::-1].argmax())
    peak_bytes = int(in_use[peak])
    capacity = peak_bytes + int(events.free[peak]) if events.free[peak] >= 0 else 0
    fragmentation = _fragmentation_percent(events.fragmentation)
    is_nearly_full = in_use >= FULL_SHARE * capacity if capacity else np.zeros(len(in_use), np.bool_)
    tensors, unsized_alive = tensors_at(events, peak, texts)
    rest_bytes = int(events.heap[peak]) - total_of(tensors.total_bytes)
    # Events of other threads lag behind, so it is the largest one noted.
    lifetime_peak = int(events.lifetime_peak.max())
    growth, growth_steps = _growth_per_step(events.start_ps, in_use, _windows(steps))
    kept = _largest_of_boxes(in_use)
    time_ms = events.start_ps[kept] / PS_PER_MS
    return Allocator(
        host=host,
        name=name,
        place=place_of(name),
        capacity_bytes=capacity or None,
        peak_bytes=peak_bytes,
        peak_ms=float(events.start_ps[peak] / PS_PER_MS),
        peak_step=_step_at(int(events.start_ps[peak]), steps),
        lifetime_peak_bytes=max(lifetime_peak, peak_bytes) if lifetime_peak >= 0 else None,
        stack_bytes=int(reserved[peak]),
        heap_peak_bytes=lifetime_peak if lifetime_peak >= 0 else None,
        start_bytes=_before_first(events, int(in_use[0])),
        end_bytes=int(in_use[-1]),
        fragmentation_percent=_or_none(float(fragmentation[peak])),
        max_fragmentation_percent=_largest(fragmentation),
        full_fragmentation_percent=_largest(fragmentation[is_nearly_full]),
        frees=int((~events.allocates).sum()),
        **_allocations(events, _windows(steps)),
        growth_bytes_per_step=growth,
        growth_steps=growth_steps,
        alive=with_unknown(tensors, rest_bytes, int(reserved[peak]), are_all_sized=not unsized_alive),
        before_bytes=rest_bytes if rest_bytes >= 0 and not unsized_alive else None,
        unsized_alive=unsized_alive,
        contradictions=_contradictions(events),
        timeline=MemoryTimeline(time_ms, in_use[kept], events.free[kept], fragmentation[kept]),
    )


def _windows(steps: Steps) -> _Windows:
    return steps.start_ps[steps.headline], steps.end_ps[steps.headline]


def _step_at(time_ps: int, steps: Steps) -> int | None:
    """Return the number of the step that a moment falls into."""
    step = int(np.searchsorted(steps.start_ps, time_ps, side="right")) - 1
    return int(steps.numbers[step]) if step >= 0 and time_ps < steps.end_ps[step] else None


def _before_first(events: AllocatorEvents, in_use: int) -> int | None:
    """Return what was in use before the first event, after which `in_use` bytes are."""
    size = int(events.size[0])
    return None if size < 0 else max(in_use - (size if events.allocates[0] else -size), 0)


def _allocations(events: AllocatorEvents, windows: _Windows) -> dict[str, Any]:
    """Return how many allocations there are and of how many bytes, in all and per step; None is unknown.

    Bytes per step are known if the sizes in these steps are.
    """
    start, size = events.start_ps[events.allocates], events.size[events.allocates]
    is_unsized = size < 0
    per_step, bytes_per_step = _allocations_per_step(start, np.maximum(size, 0), windows)
    unsized_per_step, _ = _allocations_per_step(start[is_unsized], size[is_unsized], windows)
    return {
        "allocations": len(size),
        "unsized_allocations": int(is_unsized.sum()),
        "allocated_bytes": None if is_unsized.any() else total_of(size),
        "allocations_per_step": per_step,
        "allocated_bytes_per_step": None if unsized_per_step else bytes_per_step,
    }


def _fragmentation_percent(share: Float64s) -> Float64s:
    """Return percentages, NaN where unknown. An allocator that does not measure it writes 0 throughout."""
    sound = np.where((share >= 0) & (share <= 1), share, np.nan)
    return 100.0 * sound if (sound > 0).any() else np.full(len(share), np.nan)


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value


def _largest(values: Float64s) -> float | None:
    return _or_none(float(np.fmax.reduce(values, initial=np.nan)))


def _contradictions(events: AllocatorEvents) -> int:
    """Count events whose memory in use is not that of the one before, plus or minus their own size."""
    size = events.size[1:]
    expected = events.heap[:-1] + np.where(events.allocates[1:], size, -size)
    return int(((events.heap[1:] != expected) & (size >= 0)).sum())


def _largest_of_boxes(in_use: Int64s) -> Int64s:
    """Return of each box of events the one with the most memory in use, the first if there are several."""
    count, width = len(in_use), len(in_use) // TIMELINE_POINTS
    if count <= TIMELINE_POINTS:
        return np.arange(count)
    narrow = TIMELINE_POINTS * (width + 1) - count
    parts = []
    for start, stop, size in ((0, narrow * width, width), (narrow * width, count, width + 1)):
        boxes = in_use[start:stop].reshape(-1, size)
        parts.append(start + np.arange(len(boxes)) * size + boxes.argmax(axis=1))
    return np.concatenate(parts)


def _allocations_per_step(start_ps: Int64s, size: Int64s, windows: _Windows) -> tuple[float | None, float | None]:
    """Return how many allocations a step makes on average, and of how many bytes; None without steps."""
    start, end = windows
    if not len(start):
        return None, None
    first, stop = np.searchsorted(start_ps, start), np.searchsorted(start_ps, end)
    running = np.concatenate(([0.0], np.cumsum(size, dtype=np.float64)))
    return float((stop - first).mean()), float((running[stop] - running[first]).mean())


def _growth_per_step(start_ps: Int64s, in_use: Int64s, windows: _Windows) -> tuple[float | None, int]:
    """Return by how many bytes the least in use grows per step, and over how many steps that was looked for.

    0: it does not grow steadily; None: there are too few steps. The least of each step is what stays when its own
    tensors are gone; where that never falls and nearly always rises, something is kept.
    """
    start, end = windows
    first = np.maximum(np.searchsorted(start_ps, start) - 1, 0)
    stop = np.searchsorted(start_ps, end)
    is_reached = stop > first
    first, stop = first[is_reached], stop[is_reached]
    if len(first) < _LEAST_STEPS:
        return None, len(first)
    ends = np.stack((first, stop), axis=1).reshape(-1)
    least = np.minimum.reduceat(np.append(in_use, in_use[-1]), ends)[::2]
    rises = np.diff(least)
    is_steady = bool((rises >= 0).all()) and float((rises > 0).mean()) >= _RISING_SHARE
    return float(least[-1] - least[0]) / len(rises) if is_steady else 0.0, len(first)


def _known(values: Float64s | Int64s, is_known: Bools) -> list[object]:
    """Return values as a list, None where they are unknown: often all of them are, or none."""
    if not is_known.any():
        return [None] * len(values)
    listed: list[object] = values.tolist()
    for row in np.flatnonzero(~is_known).tolist():
        listed[row] = None
    return listed
