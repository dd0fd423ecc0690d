"""Memory by allocator: peaks, their time, and the allocations then.

Each allocation and deallocation records the bytes in use, so they are read rather than summed. Only the purpose of an
allocation is found by matching addresses. Events of all threads are sorted by time; equal times keep the file order.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import asdict, replace

from tfperf.analysis.registry import Host, Tabular
from tfperf.base.arrays import MOST, Bools, Float64s, Int64s, covers, distinct, group_equal, union
from tfperf.base.display import Plotted
from tfperf.base.units import PS_PER_MS, format_bytes, percent
from tfperf.trace.event_names import called_program, is_jitted_call, mask, star, starred
from tfperf.trace.host_trace import HostTrace, MemoryEvents
from tfperf.trace.nesting import innermost_around
from tfperf.trace.steps.steps import Steps


class Memory(Plotted, Tabular, frozen=True):
    """The allocators of all hosts: devices first, host memory last, then by peak share."""

    home = ("memory", "memory_allocators")

    allocators: tuple[Allocator, ...]
    host_count: int
    silent_hosts: tuple[str, ...]
    """Hosts whose trace has no memory events."""
    hosts_without_threads: tuple[str, ...]
    """Silent hosts whose trace has no thread events either."""
    malformed_events: int
    """Events omitted because of missing or impossible sizes."""
    captures_ps: tuple[tuple[int, int], ...] = ()
    """Start and end of the capture per host, on the clock of its trace, as all times."""

    @property
    def alike(self) -> tuple[tuple[Allocator, ...], ...]:
        """Return allocators in order, grouping TPU chips with equal displayed peak and capacity."""
        groups: dict[tuple[str, ...], list[Allocator]] = {}
        for each in self.allocators:
            read = format_bytes(each.peak_bytes), format_bytes(each.capacity_bytes)
            groups.setdefault((each.host, *(read if each.is_tpu else (each.name,))), []).append(each)
        return tuple(map(tuple, groups.values()))

    def columns(self) -> dict[str, list[object]]:
        """Return one row per allocator, sizes in bytes."""
        fields = {column.key: "name" if column.key == "allocator" else column.key for column in self._spec().columns}
        return {key: [getattr(allocator, name) for allocator in self.allocators] for key, name in fields.items()}

    def alive_columns(self) -> dict[str, list[object]]:
        """Return the live allocations at the peak of each allocator."""
        return _stacked((allocator, allocator.alive.columns(allocator.peak_bytes)) for allocator in self.allocators)

    def op_columns(self) -> dict[str, list[object]]:
        """Return the live allocations at the peaks by op, with layers (`dense_1`, `dense_2`) merged as `dense_*`."""
        return _stacked((allocator, by_op(allocator.alive, allocator.peak_bytes)) for allocator in self.allocators)

    def scope_columns(self) -> dict[str, list[object]]:
        """Return the live allocations at the peaks by the first three scope parts, per allocator."""
        return _stacked((allocator, by_scope(allocator.alive, allocator.peak_bytes)) for allocator in self.allocators)

    def timeline_columns(self) -> dict[str, list[object]]:
        """Return the timelines of all allocators, one row per point."""
        return _stacked((allocator, allocator.timeline.columns()) for allocator in self.allocators)


def _stacked(parts: Iterable[tuple[Allocator, dict[str, list[object]]]]) -> dict[str, list[object]]:
    stacked: dict[str, list[object]] = {"host": [], "allocator": []}
    for allocator, columns in parts:
        rows = len(next(iter(columns.values())))
        stacked["host"] += [allocator.host] * rows
        stacked["allocator"] += [allocator.name] * rows
        for key, values in columns.items():
            stacked.setdefault(key, []).extend(values)
    return stacked


def analyze(host: Host) -> Memory:
    """Return the allocators of one host and their contents."""
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
    """Merge the allocators of all hosts."""
    return Memory(
        _ordered([allocator for part in parts for allocator in part.allocators]),
        sum(part.host_count for part in parts),
        tuple(name for part in parts for name in part.silent_hosts),
        tuple(name for part in parts for name in part.hosts_without_threads),
        sum(part.malformed_events for part in parts),
        tuple(capture for part in parts for capture in part.captures_ps),
    )


def shorten(memory: Memory, most: int) -> Memory:
    """Return the allocators with the `most` largest rows live at each peak, and one for all others."""
    if all(len(allocator.alive) <= most for allocator in memory.allocators):
        return memory
    allocators = (replace(each, alive=shorten_alive(each.alive, most)) for each in memory.allocators)
    return replace(memory, allocators=tuple(allocators))


def _ordered(allocators: list[Allocator]) -> tuple[Allocator, ...]:
    places: tuple[Place, ...] = ("device", "other", "pinned host", "host")
    by_name = sorted(allocators, key=lambda each: (-(each.peak_percent or 0.0), -each.peak_bytes, each.host, each.name))
    return tuple(sorted(by_name, key=lambda allocator: places.index(allocator.place)))


TIMELINE_POINTS = 1000
FULL_SHARE = 0.7
"""Share of the capacity from which fragmentation can make an allocation fail."""
_LEAST_STEPS = 5
"""Fewer steps cannot separate steady growth from chance."""
_RISING_SHARE = 0.75
_Windows = tuple[Int64s, Int64s]


class MemoryTimeline(Struct, frozen=True):
    """Memory in use over time, at most `TIMELINE_POINTS` points: the largest value of each stretch of events.

    `time_ms` is on the clock of the trace; unknown free memory is -1, unknown fragmentation NaN.
    """

    time_ms: Float64s
    in_use_bytes: Int64s
    free_bytes: Int64s
    fragmentation_percent: Float64s

    def columns(self) -> dict[str, list[object]]:
        """Return one row per point; unknown values are None."""
        return {
            "time_ms": self.time_ms.tolist(),
            "in_use_bytes": self.in_use_bytes.tolist(),
            "free_bytes": _known(self.free_bytes, self.free_bytes >= 0),
            "fragmentation_percent": _known(self.fragmentation_percent, ~np.isnan(self.fragmentation_percent)),
        }


class Allocator(Struct, frozen=True, kw_only=True):
    """One allocator of one host. The peak is the most bytes in use, at the last time it was reached.

    None is unknown. Fragmentation is the share of free memory outside the largest free block.
    """

    host: str
    name: str
    place: Place
    capacity_bytes: int | None
    peak_bytes: int
    peak_ms: float
    """On the clock of the trace."""
    peak_step: int | None
    lifetime_peak_bytes: int | None
    """Since the program started."""
    stack_bytes: int = 0
    """Part of the peak reserved for temporaries of loaded programs (TPU); the rest is the heap."""
    heap_peak_bytes: int | None = None
    """Peak of the heap alone since the program started, which TPU profilers record."""
    start_bytes: int | None
    """In use before the first event; None if its size is unknown."""
    end_bytes: int
    fragmentation_percent: float | None
    """At the peak."""
    max_fragmentation_percent: float | None
    full_fragmentation_percent: float | None
    """Maximum while at least `FULL_SHARE` of the capacity is in use; None if it never is."""
    allocations: int
    unsized_allocations: int
    frees: int
    allocated_bytes: int | None
    """Sum over all allocations; None if the size of any is unknown."""
    allocations_per_step: float | None
    allocated_bytes_per_step: float | None
    growth_bytes_per_step: float | None
    """Growth of the least memory in use per step; 0 if not steady, None with too few steps."""
    growth_steps: int
    """Number of steps searched for growth."""
    alive: Alive
    before_bytes: int | None
    """Part of the peak allocated before the capture; None if events contradict each other or lack sizes."""
    unsized_alive: int
    contradictions: int
    """Events that do not follow from the previous one, because events were lost or allocators share a name."""
    timeline: MemoryTimeline

    @property
    def peak_percent(self) -> float | None:
        """Return the share of the capacity in use at the peak."""
        return percent(self.peak_bytes, self.capacity_bytes or 0)

    @property
    def is_tpu(self) -> bool:
        """Return whether it manages the memory of a TPU chip."""
        return self.name.startswith("TPU:")

    @property
    def before_percent(self) -> float | None:
        """Return the share of the peak allocated before the capture."""
        return None if self.before_bytes is None else percent(self.before_bytes, self.peak_bytes)

    @property
    def rounding_bytes(self) -> int:
        """Return the bytes that the known tensors at the peak occupy beyond their requested size."""
        alive = self.alive
        spare = np.where(alive.requested_bytes >= 0, alive.each_bytes - alive.requested_bytes, 0)
        return total_of(np.maximum(spare, 0) * alive.count.astype(np.float64))


def describe(name: str, events: AllocatorEvents, texts: EventTexts, *, host: str, steps: Steps) -> Allocator:
    """Return an allocator of a host, computed from its events."""
    reserved = np.maximum(events.stack, 0)
    in_use = reserved + events.heap
    # If the peak is reached several times, most is known about the contents of the last one.
    peak = len(in_use) - 1 - int(in_use[::-1].argmax())
    peak_bytes, peak_ps = int(in_use[peak]), int(events.start_ps[peak])
    step = int(np.searchsorted(steps.start_ps, peak_ps, side="right")) - 1
    is_in_step = step >= 0 and peak_ps < steps.end_ps[step]
    first_bytes = int(events.size[0] if events.allocates[0] else -events.size[0])
    capacity = peak_bytes + int(events.free[peak]) if events.free[peak] >= 0 else 0
    sound = np.where((events.fragmentation >= 0) & (events.fragmentation <= 1), events.fragmentation, np.nan)
    fragmentation = 100.0 * sound if (sound > 0).any() else np.full(len(events.fragmentation), np.nan)
    is_nearly_full = in_use >= FULL_SHARE * capacity if capacity else np.zeros(len(in_use), np.bool_)
    tensors, unsized_alive = tensors_at(events, peak, texts)
    rest_bytes = int(events.heap[peak]) - total_of(tensors.total_bytes)
    # Events of other threads lag behind, so the largest recorded value is valid.
    lifetime_peak = int(events.lifetime_peak.max())
    growth, growth_steps = _growth_per_step(events.start_ps, in_use, _windows(steps))
    kept = _largest_of_boxes(in_use)
    time_ms = events.start_ps[kept] / PS_PER_MS
    size = events.size[1:]
    expected = events.heap[:-1] + np.where(events.allocates[1:], size, -size)
    return Allocator(
        host=host,
        name=name,
        place=place_of(name),
        capacity_bytes=capacity or None,
        peak_bytes=peak_bytes,
        peak_ms=float(peak_ps / PS_PER_MS),
        peak_step=int(steps.numbers[step]) if is_in_step else None,
        lifetime_peak_bytes=max(lifetime_peak, peak_bytes) if lifetime_peak >= 0 else None,
        stack_bytes=int(reserved[peak]),
        heap_peak_bytes=lifetime_peak if lifetime_peak >= 0 else None,
        start_bytes=None if events.size[0] < 0 else max(int(in_use[0]) - first_bytes, 0),
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
        contradictions=int(((events.heap[1:] != expected) & (size >= 0)).sum()),
        timeline=MemoryTimeline(time_ms, in_use[kept], events.free[kept], fragmentation[kept]),
    )


def _windows(steps: Steps) -> _Windows:
    return steps.start_ps[steps.headline], steps.end_ps[steps.headline]


def _allocations(events: AllocatorEvents, windows: _Windows) -> dict[str, Any]:
    """Return number and bytes of allocations, total and per step; None if unknown (per step: only of these steps)."""
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


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value


def _largest(values: Float64s) -> float | None:
    return _or_none(float(np.fmax.reduce(values, initial=np.nan)))


def _largest_of_boxes(in_use: Int64s) -> Int64s:
    """Return the event with the most memory in use in each box of events; of equal ones, the first."""
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
    """Return the mean number and bytes of allocations per step; None without steps."""
    start, end = windows
    if not len(start):
        return None, None
    first, stop = np.searchsorted(start_ps, start), np.searchsorted(start_ps, end)
    running = np.concatenate(([0.0], np.cumsum(size, dtype=np.float64)))
    return float((stop - first).mean()), float((running[stop] - running[first]).mean())


def _growth_per_step(start_ps: Int64s, in_use: Int64s, windows: _Windows) -> tuple[float | None, int]:
    """Return the growth in bytes per step of the least memory in use, and the number of steps searched.

    0 if growth is not steady; None with too few steps. The least of each step remains after the step's own tensors are
    freed; if it never falls and nearly always rises, something is kept.
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
    if not is_known.any():
        return [None] * len(values)
    listed: list[object] = values.tolist()
    for row in np.flatnonzero(~is_known).tolist():
        listed[row] = None
    return listed


_CALLER = "(in "
"""Begin of the name of an allocation without an op."""
Kind = Literal["tensor", "before the capture", "before the capture or of unknown size", "reserved", "other tensors"]
_SCOPE_PARTS = 3
_NUMBER = re.compile(r"_\d+(?=/|$)")
_NAMES_BY_NUMBER = (
    "float32 float64 int32 uint8 int16 int8 string complex64 int64 bool qint8 quint8 qint32 bfloat16 qint16 quint16 "
    "uint16 complex128 float16 resource variant uint32 uint64 float8_e5m2 float8_e4m3fn float8_e4m3fnuz "
    "float8_e4m3b11fnuz float8_e5m2fnuz int4 uint4 int2 uint2 float4_e2m1fn"
)
"""TensorFlow data types (`DataType` of types.proto), from 1."""
_TYPE_NAMES = ("", *_NAMES_BY_NUMBER.split())
_REFERENCE = 100
"""Offset of reference types in `DataType`."""


class Alive(Struct, frozen=True, kw_only=True):
    """Memory live at the peak of one allocator: one row per op, shape, type, region and size, largest sum first.

    `each_bytes` is the allocated size of one; `requested_bytes` is the size that the op requested (-1 if unknown).
    """

    kind: tuple[Kind, ...]
    op: tuple[str, ...]
    shape: tuple[str, ...]
    data_type: tuple[str, ...]
    region: tuple[str, ...]
    count: Int64s
    each_bytes: Int64s
    requested_bytes: Int64s
    total_bytes: Int64s

    def __len__(self) -> int:
        return len(self.op)

    @property
    def scope(self) -> tuple[str, ...]:
        """Return the name scope of each op: its name without the last part."""
        return tuple("" if op.startswith(_CALLER) else op.rpartition("/")[0] for op in self.op)

    def columns(self, peak_bytes: int) -> dict[str, list[object]]:
        """Return one row per group, None if unknown; percentages are of the peak."""
        texts = ("kind", "op", "scope", "shape", "data_type", "region")
        is_tensor = np.array([kind == "tensor" for kind in self.kind], np.bool_)
        sizes = {key: np.where(is_tensor, getattr(self, key), -1) for key in ("count", "each_bytes", "requested_bytes")}
        share = (self.total_bytes * (100.0 / peak_bytes)).tolist() if peak_bytes else [None] * len(self)
        return {
            **{key: [text or None for text in getattr(self, key)] for key in texts},
            **{key: [size if size >= 0 else None for size in values.tolist()] for key, values in sizes.items()},
            "total_bytes": self.total_bytes.tolist(),
            "peak_percent": share,
        }


def total_of(values: npt.NDArray[np.int64] | Float64s) -> int:
    """Return the sum, in float64, which is exact up to 8 PiB and does not overflow on hostile files."""
    return int(values.sum(dtype=np.float64))


def tensors_at(events: AllocatorEvents, peak: int, texts: EventTexts) -> tuple[Alive, int]:
    """Return allocations up to the peak (a row of the events) not freed before it, grouped.

    Also return the number of live allocations of unknown size. An address is live if its last event was an allocation,
    because addresses are reused.
    """
    address = events.address[: peak + 1]
    order = np.argsort(address, kind="stable")
    is_last = np.append(address[order[1:]] != address[order[:-1]], True)
    last = order[is_last]
    is_alive, is_sized = events.allocates[last] & (address[last] != 0), events.size[last] >= 0
    alive = events.rows(last[is_alive & is_sized])
    described = (alive.shape << 32) | (alive.op & 0xFFFFFFFF)
    typed = (alive.region << 32) | (alive.data_type & 0xFFFFFFFF)
    order, starts = group_equal((alive.requested, alive.size, typed, described))
    first, count = order[starts], np.diff(np.append(starts, len(order)))
    total = np.minimum(count * alive.size[first].astype(np.float64), MOST).astype(np.int64)
    largest = np.argsort(-total, kind="stable")
    rows = alive.rows(first[largest])
    tensor: tuple[Kind, ...] = ("tensor",)
    tensors = Alive(
        kind=tensor * len(first),
        op=_texts_at(rows.op, texts.op),
        shape=_texts_at(rows.shape, texts.shape),
        data_type=tuple(type_name(number) for number in rows.data_type.tolist()),
        region=_texts_at(rows.region, texts.region),
        count=count[largest],
        each_bytes=rows.size,
        requested_bytes=rows.requested,
        total_bytes=total[largest],
    )
    return tensors, int((is_alive & ~is_sized).sum())


def _texts_at(index: Int64s, texts: tuple[str, ...]) -> tuple[str, ...]:
    # The index -1 takes the last entry: an empty text.
    return tuple(np.array([*texts, ""], object)[index].tolist())


def with_unknown(tensors: Alive, rest_bytes: int, reserved_bytes: int, *, are_all_sized: bool) -> Alive:
    """Add rows, ordered by size, for bytes that no tensor of known size explains, and for reserved bytes.

    The unexplained bytes were allocated before the capture, or by live allocations of unknown size.
    """
    alive = tensors
    rest: Kind = "before the capture" if are_all_sized else "before the capture or of unknown size"
    extra: tuple[tuple[Kind, int], ...] = ((rest, rest_bytes), ("reserved", reserved_bytes))
    for kind, size in extra:
        if size > 0:
            alive = _with_row(alive, kind, size, requested_bytes=-1)
    return alive


def shorten_alive(alive: Alive, most: int) -> Alive:
    """Return the first rows, and one row with the total size of all others."""
    is_kept = np.array([row < most or kind != "tensor" for row, kind in enumerate(alive.kind)], np.bool_)
    if is_kept.all():
        return alive
    rest, rows = ~is_kept, np.flatnonzero(is_kept).tolist()
    requested = alive.requested_bytes[rest]
    is_known = bool((requested >= 0).all())
    requested_bytes = total_of(requested * alive.count[rest].astype(np.float64)) if is_known else -1
    kept: dict[str, Any] = {
        key: tuple(values[row] for row in rows) if isinstance(values, tuple) else values[is_kept]
        for key, values in asdict(alive).items()
    }
    return _with_row(Alive(**kept), "other tensors", total_of(alive.total_bytes[rest]), requested_bytes=requested_bytes)


def _with_row(alive: Alive, kind: Kind, size: int, *, requested_bytes: int) -> Alive:
    row = int(np.searchsorted(-alive.total_bytes, -size))
    added = {"kind": kind, "count": 1, "each_bytes": size, "requested_bytes": requested_bytes, "total_bytes": size}
    columns: dict[str, Any] = {}
    for key, values in asdict(alive).items():
        value = added.get(key, "")
        is_text = isinstance(values, tuple)
        columns[key] = (*values[:row], value, *values[row:]) if is_text else np.insert(values, row, value)
    return Alive(**columns)


def type_name(number: int) -> str:
    """Return the name of a TensorFlow data type; empty for 0."""
    plain = number - _REFERENCE if number > _REFERENCE else number
    return _TYPE_NAMES[plain] if 0 <= plain < len(_TYPE_NAMES) else f"type {number}"


def by_op(alive: Alive, peak_bytes: int) -> dict[str, list[object]]:
    """Add up tensors of equal shape and type whose ops differ only in trailing numbers of a part, as layers do."""
    rows = op_keys(alive)
    ops: defaultdict[tuple[str, ...], set[str]] = defaultdict(set)
    for row, op in zip(rows, alive.op, strict=True):
        ops[row].add(op)
    names = {key: starred(members, _NUMBER) for key, members in ops.items()}
    keys = [(row[0], names[row], *row[2:]) for row in rows]
    return _sums(alive, peak_bytes, ("kind", "op", "shape", "data_type"), keys)


def op_keys(alive: Alive) -> list[tuple[str, ...]]:
    """Return the key by which `by_op` groups each row."""
    return list(zip(alive.kind, map(_with_stars, alive.op), alive.shape, alive.data_type, strict=True))


_with_stars = lru_cache(maxsize=100_000)(partial(_NUMBER.sub, star))
"""Returns an op with stars for numbers; cached, because hosts of a run have the same ops."""


def by_scope(alive: Alive, peak_bytes: int) -> dict[str, list[object]]:
    """Add up tensors by the first parts of their scope."""
    return _sums(alive, peak_bytes, ("kind", "scope"), scope_keys(alive))


def scope_keys(alive: Alive) -> list[tuple[str, ...]]:
    """Return the key by which `by_scope` groups each row."""
    scopes = ("/".join(scope.split("/", _SCOPE_PARTS)[:_SCOPE_PARTS]) for scope in alive.scope)
    return list(zip(alive.kind, scopes, strict=True))


def _sums(
    alive: Alive, peak_bytes: int, names: tuple[str, ...], keys: Sequence[tuple[str, ...]]
) -> dict[str, list[object]]:
    counts, totals = Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()
    for key, count, total in zip(keys, alive.count.tolist(), alive.total_bytes.tolist(), strict=True):
        counts[key] += count
        totals[key] += total
    ordered = sorted(totals, key=lambda key: (-totals[key], key))
    return {
        **{name: [key[at] or None for key in ordered] for at, name in enumerate(names)},
        "count": [counts[key] if key[0] == "tensor" else None for key in ordered],
        "total_bytes": [totals[key] for key in ordered],
        "peak_percent": [percent(totals[key], peak_bytes) for key in ordered],
    }


Place = Literal["device", "pinned host", "host", "other"]
"""The memory that an allocator manages; devices copy from and to pinned memory."""

_LARGEST_BYTES = 1 << 53
_PINNED = re.compile("host|pinned", re.IGNORECASE)
_ON_DEVICE = re.compile(r"(xla_)?(gpu|tpu|cuda|hbm)|\d+$", re.IGNORECASE)
_ON_HOST = re.compile("(mkl|xla_)?cpu", re.IGNORECASE)


class AllocatorEvents(Struct, frozen=True, kw_only=True):
    """Events of allocators, one entry per event; missing bytes and text indices are -1."""

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
    """The texts that the indices of `AllocatorEvents` refer to."""

    op: tuple[str, ...]
    shape: tuple[str, ...]
    region: tuple[str, ...]


def events_by_allocator(trace: HostTrace) -> tuple[list[tuple[str, AllocatorEvents]], EventTexts, int]:
    """Return names and sorted events of allocators, their texts, and the number of events without bytes in use."""
    memory = trace.memory
    op, ops = _with_callers(trace, *_with_programs(trace, *memory.text_index("tf_op")))
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
    # Sorting by allocator too makes each one a slice; lexsort keeps the file order of equal times.
    order = np.lexsort((events.start_ps, allocator))
    order = order[is_sound[order]]
    bounds = np.searchsorted(allocator[order], np.arange(len(names) + 1)).tolist()
    slices = zip(names, bounds, bounds[1:], strict=False)
    by_name = [(name, events.rows(order[start:stop])) for name, start, stop in slices if stop > start]
    return by_name, EventTexts(ops, shapes, regions), int((~is_sound).sum())


_ENQUEUES = "::EnqueueExecution"
"""End of the name of the event in which the runtime of JAX allocates memory for one run of a program."""


def _with_programs(trace: HostTrace, op: Int64s, ops: tuple[str, ...]) -> tuple[Int64s, tuple[str, ...]]:
    """Name allocations without an op by the XLA program that is put on a device at that time.

    Only if one jitted function is being called then: threads may call several.
    """
    memory, unnamed = trace.memory, _unnamed(trace.memory, op, ops)
    calls = trace.host_events(mask(trace.names, is_jitted_call)) if len(unnamed) else unnamed
    if not len(calls):
        return op, ops
    time_ps = memory.start_ps[unnamed]
    enqueues = trace.host_events(mask(trace.names, lambda name: name.endswith(_ENQUEUES)))
    is_enqueued = covers(union(trace.start_ps[enqueues], trace.end_ps[enqueues]), time_ps)
    running, found = np.zeros(len(unnamed), np.int64), np.full(len(unnamed), -1, np.int64)
    programs: list[str] = []
    for name in distinct(trace.name[calls]).tolist():
        rows = calls[trace.name[calls] == name]
        is_inside = covers(union(trace.start_ps[rows], trace.end_ps[rows]), time_ps)
        running += is_inside
        found[is_inside] = len(ops) + len(programs)
        programs.append(called_program(trace.names[name]))
    is_sure = is_enqueued & (running == 1)
    named = op.copy()
    named[unnamed[is_sure]] = found[is_sure]
    return named, (*ops, *programs)


def _unnamed(memory: MemoryEvents, op: Int64s, ops: tuple[str, ...]) -> Int64s:
    return np.flatnonzero(memory.allocates & ((op < 0) | ~np.array([*map(bool, ops), False])[op]))


def _with_callers(trace: HostTrace, op: Int64s, ops: tuple[str, ...]) -> tuple[Int64s, tuple[str, ...]]:
    """Name allocations that still have no op by the innermost event on their thread: `(in tf.constant)`."""
    memory, unnamed = trace.memory, _unnamed(trace.memory, op, ops)
    named, callers = op.copy(), dict[str, int]()
    for line in distinct(memory.line[unnamed]).tolist():
        places = unnamed[memory.line[unnamed] == line]
        rows = np.arange(trace.lines[line].start, trace.lines[line].stop)
        if not len(rows):
            continue
        around = innermost_around(trace, rows, memory.start_ps[places])
        for name in distinct(trace.name[around[around >= 0]]).tolist():
            is_inside = (around >= 0) & (trace.name[around] == name)
            caller = f"{_CALLER}{trace.names[name]})"
            named[places[is_inside]] = callers.setdefault(caller, len(ops) + len(callers))
    return named, (*ops, *callers)


def _bytes(memory: MemoryEvents, stat_name: str) -> Int64s:
    """Return sizes, -1 if missing or impossible (negative, beyond 8 PiB)."""
    sizes = memory.number(stat_name, -1)
    return np.where((sizes >= 0) & (sizes <= _LARGEST_BYTES), sizes, -1)


def place_of(name: str) -> Place:
    """Return the memory that an allocator of this name manages."""
    if _PINNED.search(name):
        return "pinned host"
    if _ON_HOST.match(name):
        return "host"
    return "device" if _ON_DEVICE.match(name) else "other"
