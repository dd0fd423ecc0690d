"""Memory by allocator: how full it became, when, and what lay in it then.

Each allocation and each deallocation notes how much its allocator holds. So how much is in use is read, never summed
up; only what an allocation is for comes from matching addresses. Events of all threads are put in the order of time;
those of one moment stay in the order of the file.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tfperf.analyzers.memory_alive import Alive, by_op, by_scope, tensors_at, total_of, with_unknown
from tfperf.analyzers.memory_rows import AllocatorEvents, EventTexts, Float64s, Place, by_allocator, place_of
from tfperf.arrays import Int64s
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.steps import Steps
from tfperf.units import PS_PER_MS

if TYPE_CHECKING:
    import pandas as pd

TIMELINE_POINTS = 1000
FULL_SHARE = 0.7
"""From this share of the capacity on, fragmentation can make an allocation fail."""
GROWTH_STEPS = 5
"""Fewer steps do not tell steady growth from chance."""
_RISING_SHARE = 0.75


@dataclass(frozen=True)
class Timeline:
    """Memory in use over time, at most `TIMELINE_POINTS` points: of each stretch of events the one with the most.

    `time_ms` counts from the begin of the capture; free memory is -1 and fragmentation NaN where they are unknown.
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
            "free_bytes": [size if size >= 0 else None for size in self.free_bytes.tolist()],
            "fragmentation_percent": [_known(share) for share in self.fragmentation_percent.tolist()],
        }


@dataclass(frozen=True)
class Allocator:
    """One allocator of one host. The peak is the largest number of bytes in use, where it was reached last.

    None is unknown. Fragmentation is the share of what the allocator holds free that is not in its largest piece.
    """

    host: str
    name: str
    place: Place
    capacity_bytes: int | None
    peak_bytes: int
    peak_ms: float
    """From the begin of the capture."""
    peak_step: int | None
    """Number of the step that the peak fell into."""
    lifetime_peak_bytes: int | None
    """Since the program began."""
    begin_bytes: int
    """In use before the first event."""
    end_bytes: int
    fragmentation_percent: float | None
    """At the peak."""
    max_fragmentation_percent: float | None
    full_fragmentation_percent: float | None
    """The most while `FULL_SHARE` of the capacity or more is in use; None: it never is."""
    allocations: int
    frees: int
    allocated_bytes: int
    """Sum over all allocations."""
    allocations_per_step: float | None
    allocated_bytes_per_step: float | None
    growth_bytes_per_step: float | None
    """By how much the least that is in use grows from step to step; 0: not steadily; None: too few steps."""
    growth_steps: int
    """Steps that the growth was looked for in."""
    alive: Alive
    before_bytes: int | None
    """Of the peak: allocated before the capture; None: the events contradict each other."""
    contradictions: int
    """Events that do not follow from the one before: some were lost, or several allocators share a name."""
    timeline: Timeline

    @property
    def peak_percent(self) -> float | None:
        """Return the share of the capacity in use at the peak."""
        return 100.0 * self.peak_bytes / self.capacity_bytes if self.capacity_bytes else None

    @property
    def before_percent(self) -> float | None:
        """Return the share of the peak that was allocated before the capture."""
        return None if self.before_bytes is None or not self.peak_bytes else 100.0 * self.before_bytes / self.peak_bytes


@dataclass(frozen=True)
class Memory:
    """The allocators of all hosts, the fullest of those that matter most first (devices, then the others)."""

    allocators: tuple[Allocator, ...]
    hosts: int
    silent_hosts: tuple[str, ...]
    """Hosts whose trace holds no event of memory."""
    threads_missing: tuple[str, ...]
    """Those of them whose trace holds no event of any thread either."""
    malformed_events: int
    """Events left out because their sizes are missing or impossible."""

    @property
    def table(self) -> pd.DataFrame:
        """Return one row per allocator, sizes in bytes."""
        import pandas as pd

        return pd.DataFrame(self.columns())

    @property
    def alive_table(self) -> pd.DataFrame:
        """Return what was alive at the peak of each allocator."""
        import pandas as pd

        return pd.DataFrame(self.alive_columns())

    def columns(self) -> dict[str, list[object]]:
        """Return the columns of `table` without pandas."""
        return {
            "host": [own.host for own in self.allocators],
            "allocator": [own.name for own in self.allocators],
            **{key: [getattr(own, key) for own in self.allocators] for key in _PLAIN_COLUMNS},
            "rounding_bytes": [own.alive.rounding_bytes for own in self.allocators],
        }

    def alive_columns(self) -> dict[str, list[object]]:
        """Return the columns of `alive_table` without pandas, allocator by allocator."""
        return _joined([(own, own.alive.columns(own.peak_bytes)) for own in self.allocators])

    def op_columns(self) -> dict[str, list[object]]:
        """Return what was alive at the peaks by op, those of layers (`dense_1`, `dense_2`: `dense_*`) as one."""
        return _joined([(own, by_op(own.alive, own.peak_bytes)) for own in self.allocators])

    def scope_columns(self) -> dict[str, list[object]]:
        """Return what was alive at the peaks by the first three parts of its scope, allocator by allocator."""
        return _joined([(own, by_scope(own.alive, own.peak_bytes)) for own in self.allocators])

    def timeline_columns(self) -> dict[str, list[object]]:
        """Return the timelines of all allocators, one row per point."""
        return _joined([(own, own.timeline.columns()) for own in self.allocators])


def _joined(parts: list[tuple[Allocator, dict[str, list[object]]]]) -> dict[str, list[object]]:
    """Put tables of allocators below each other, with the allocator of each row before them."""
    found: dict[str, list[object]] = {"host": [], "allocator": []}
    for own, columns in parts:
        rows = len(next(iter(columns.values())))
        found["host"] += [own.host] * rows
        found["allocator"] += [own.name] * rows
        for key, values in columns.items():
            found.setdefault(key, []).extend(values)
    return found


_PLAIN_COLUMNS = (
    "place", "capacity_bytes", "peak_bytes", "peak_percent", "peak_ms", "peak_step", "lifetime_peak_bytes",
    "begin_bytes", "end_bytes", "fragmentation_percent", "max_fragmentation_percent", "allocations", "frees",
    "allocated_bytes", "allocations_per_step", "allocated_bytes_per_step", "growth_bytes_per_step", "before_bytes",
    "before_percent", "contradictions",
)  # fmt: skip


def analyze(trace: HostTrace, steps: Steps) -> Memory:
    """Find the allocators of one host and what they held."""
    memory = trace.memory
    has_threads = any(line.stop > line.start for line in trace.host_lines)
    if not len(memory):
        return Memory((), 1, (trace.host,), () if has_threads else (trace.host,), 0)
    rows, texts, malformed = by_allocator(memory)
    first_ps = min(int(part.min()) for part in (trace.start_ps, memory.start_ps) if len(part))
    found = [_allocator(trace.host, name, events, texts, steps, first_ps) for name, events in rows]
    return Memory(_ordered(found), 1, () if found else (trace.host,), (), malformed)


def combine(found: list[Memory]) -> Memory:
    """Put the allocators of all hosts side by side."""
    return Memory(
        _ordered([own for host in found for own in host.allocators]), sum(host.hosts for host in found),
        tuple(name for host in found for name in host.silent_hosts),
        tuple(name for host in found for name in host.threads_missing), sum(host.malformed_events for host in found),
    )  # fmt: skip


def _ordered(found: list[Allocator]) -> tuple[Allocator, ...]:
    places: tuple[Place, ...] = ("device", "other", "pinned host", "host")
    rank = {place: at for at, place in enumerate(places)}
    return tuple(
        sorted(
            found, key=lambda a: (rank[a.place], -(a.peak_percent or 0.0), -a.peak_bytes, a.host, a.name)
        )
    )  # fmt: skip


# --- one allocator ---


def _allocator(
    host: str, name: str, events: AllocatorEvents, texts: EventTexts, steps: Steps, first_ps: int
) -> Allocator:
    stack = np.maximum(events.stack, 0)
    in_use = stack + events.heap
    # Where the peak is reached several times, most is known at the last about what lies there.
    peak = len(in_use) - 1 - int(in_use[::-1].argmax())
    capacity = int(in_use[peak] + events.free[peak]) if events.free[peak] >= 0 else None
    time_ms, percent = (events.start_ps - first_ps) / PS_PER_MS, _fragmentation(events.fragmentation)
    full = in_use >= FULL_SHARE * capacity if capacity else np.zeros(len(in_use), np.bool_)
    known = tensors_at(events, peak, texts)
    before = int(events.heap[peak]) - total_of(known.total_bytes)
    freed = ~events.allocates
    sizes = np.maximum(events.size, 0)[events.allocates]
    per_step, bytes_per_step = _per_step(events.start_ps[events.allocates], sizes, steps)
    growth, growth_steps = _growth(events.start_ps, in_use, steps)
    return Allocator(
        host=host,
        name=name,
        place=place_of(name),
        capacity_bytes=capacity or None,
        peak_bytes=int(in_use[peak]),
        peak_ms=float(time_ms[peak]),
        peak_step=_step_at(steps, int(events.start_ps[peak])),
        lifetime_peak_bytes=_lifetime_peak(events, int(in_use[peak])),
        begin_bytes=max(int(in_use[0]) + (1 if freed[0] else -1) * max(int(events.size[0]), 0), 0),
        end_bytes=int(in_use[-1]),
        fragmentation_percent=_known(float(percent[peak])),
        max_fragmentation_percent=_most(percent),
        full_fragmentation_percent=_most(percent[full]),
        allocations=len(sizes),
        frees=int(freed.sum()),
        allocated_bytes=total_of(sizes),
        allocations_per_step=per_step,
        allocated_bytes_per_step=bytes_per_step,
        growth_bytes_per_step=growth,
        growth_steps=growth_steps,
        alive=with_unknown(known, before, int(stack[peak])),
        before_bytes=before if before >= 0 else None,
        contradictions=_contradictions(events),
        timeline=_timeline(time_ms, in_use, events.free, percent),
    )


def _fragmentation(share: Float64s) -> Float64s:
    """Return percentages, NaN where unknown. An allocator that does not measure it writes 0 throughout."""
    sound = np.where((share >= 0) & (share <= 1), share, np.nan)
    return 100.0 * sound if (sound > 0).any() else np.full(len(share), np.nan)


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def _most(values: Float64s) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.max()) if len(known) else None


def _lifetime_peak(events: AllocatorEvents, peak_bytes: int) -> int | None:
    """Return the most ever in use. It lags behind in events of other threads, so it is the largest one noted."""
    noted = int(events.lifetime_peak.max())
    return max(noted, peak_bytes) if noted >= 0 else None


def _step_at(steps: Steps, time_ps: int) -> int | None:
    at = int(np.searchsorted(steps.start_ps, time_ps, side="right")) - 1
    return int(steps.numbers[at]) if at >= 0 and time_ps < steps.end_ps[at] else None


def _contradictions(events: AllocatorEvents) -> int:
    """Count events whose memory in use is not that of the one before, plus or minus their own size."""
    size = events.size[1:]
    expected = events.heap[:-1] + np.where(events.allocates[1:], size, -size)
    return int(((events.heap[1:] != expected) & (size >= 0)).sum())


def _timeline(time_ms: Float64s, in_use: Int64s, free: Int64s, fragmentation: Float64s) -> Timeline:
    """Keep of each box of events the one with the most memory in use, the first if there are several."""
    count, width = len(in_use), len(in_use) // TIMELINE_POINTS
    if count <= TIMELINE_POINTS:
        return Timeline(time_ms, in_use, free, fragmentation)
    narrow = TIMELINE_POINTS * (width + 1) - count
    parts = []
    for start, stop, size in ((0, narrow * width, width), (narrow * width, count, width + 1)):
        boxes = in_use[start:stop].reshape(-1, size)
        parts.append(start + np.arange(len(boxes)) * size + boxes.argmax(axis=1))
    kept = np.concatenate(parts)
    return Timeline(time_ms[kept], in_use[kept], free[kept], fragmentation[kept])


# --- steps ---


def _counted(steps: Steps) -> tuple[Int64s, Int64s]:
    """Return begin and end of the steps that averages are about."""
    kind = steps.headline_kind if len(steps) else ""
    chosen = steps.averaged & np.array([own == kind for own in steps.kinds], np.bool_)
    return steps.start_ps[chosen], steps.end_ps[chosen]


def _per_step(start_ps: Int64s, size: Int64s, steps: Steps) -> tuple[float | None, float | None]:
    """Return how many allocations a step makes on average, and of how many bytes."""
    begin, end = _counted(steps)
    if not len(begin):
        return None, None
    start, stop = np.searchsorted(start_ps, begin), np.searchsorted(start_ps, end)
    running = np.concatenate(([0.0], np.cumsum(size, dtype=np.float64)))
    return float((stop - start).mean()), float((running[stop] - running[start]).mean())


def _growth(start_ps: Int64s, in_use: Int64s, steps: Steps) -> tuple[float | None, int]:
    """Return by how much the least in use grows per step if it grows steadily (else 0), and over how many steps.

    The least of each step is what stays when its own tensors are gone; where that never falls and nearly always
    rises, something is kept.
    """
    begin, end = _counted(steps)
    first = np.maximum(np.searchsorted(start_ps, begin) - 1, 0)
    stop = np.searchsorted(start_ps, end)
    reached = stop > first
    first, stop = first[reached], stop[reached]
    if len(first) < GROWTH_STEPS:
        return None, len(first)
    ends = np.stack((first, stop), axis=1).reshape(-1)
    least = np.minimum.reduceat(np.append(in_use, in_use[-1]), ends)[::2]
    rises = np.diff(least)
    steady = bool((rises >= 0).all()) and float((rises > 0).mean()) >= _RISING_SHARE
    return float(least[-1] - least[0]) / len(rises) if steady else 0.0, len(first)
