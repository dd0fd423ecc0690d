"""From the trace of a host to groups of tracks: the steps, the planes of devices, those of the host, all others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tfperf.arrays import Bools, Int64s
from tfperf.intervals import union
from tfperf.timeline.arguments import TraceArguments, shown_names, trace_arguments
from tfperf.timeline.choose import choose, chosen_steps, within
from tfperf.timeline.links import Pairs, handovers, launches
from tfperf.timeline.model import Arguments, ArrowEnds, Counter, Group, HostTimeline, Selection, Track
from tfperf.timeline.tracks import split
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.steps import Steps
from tfperf.wire.event_columns import STEPS_LINE, Line, StatKind

_PLANE_ORDER = ("tpu", "sparse core", "gpu", "host", "other")
_NONE = np.empty(0, np.int64)
_ABSURD = 1 << 62
"""Bytes that nobody has; two such numbers do not add up."""

NO_ENDS = ArrowEnds(_NONE, _NONE)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of the trace in the order to show them, and the tracks that they are on."""

    rows: Int64s
    tracks: tuple[Track, ...]


def host_timeline(
    trace: HostTrace, steps: Steps, selection: Selection, *, prefix: str = "", first_arrow: int = 1
) -> HostTimeline:
    """Return what to show of a host; `prefix` goes before the titles of groups, arrows are numbered from `first_arrow`.

    The trace must have been read with everything.
    """
    chosen = chosen_steps(steps, selection)
    keep, left_out = choose(trace, chosen, selection)
    origin = min(int(trace.start_ps.min(initial=0)), int(trace.memory.start_ps.min(initial=0)), 0)
    planes = sorted(range(len(trace.planes)), key=lambda i: _PLANE_ORDER.index(trace.planes[i].kind))
    placed = [(plane, _place(trace, plane, keep)) for plane in planes]
    placed = [(plane, found) for plane, found in placed if found.tracks]
    arrows = _Arrows.between(trace, [found.rows for _, found in placed], first_arrow)
    facts, names, counters = trace_arguments(trace), shown_names(trace), _memory(trace, chosen, selection, origin)
    groups = [_steps_group(chosen, prefix, origin)] if len(chosen) else []
    at = 0
    for plane, found in placed:
        ends = arrows.ends(at, at + len(found.rows))
        own = counters if _holds_memory(trace, plane, placed) else ()
        groups.append(_group(trace, plane, found, facts, names, ends, own, prefix, origin))
        at += len(found.rows)
    events = trace.event_count
    return HostTimeline(tuple(groups), events, left_out, len(arrows.source), arrows.cut, arrows.backwards)


def _place(trace: HostTrace, plane: int, keep: Bools) -> _Rows:
    """Put the events of a plane on tracks: one for each line, more where events overlap without nesting."""
    rows: list[Int64s] = []
    tracks: list[Track] = []
    at = 0
    for line in trace.lines:
        if line.plane != plane:
            continue
        mine = np.flatnonzero(keep[line.start : line.stop]) + line.start
        if not len(mine):
            continue
        lane = split(trace.start_ps[mine], trace.end_ps[mine])
        most = int(lane.max())
        rows.append(mine[np.argsort(lane, kind="stable")] if most else mine)
        stops = np.concatenate(([0], np.cumsum(np.bincount(lane)))) + at
        tracks += _tracks(line, stops.tolist())
        at = int(stops[-1])
    return _Rows(np.concatenate(rows) if rows else _NONE, tuple(tracks))


def _tracks(line: Line, stops: Sequence[int]) -> Iterator[Track]:
    for number, (start, stop) in enumerate(pairwise(stops)):
        yield Track(f"{line.name} ({number + 1})" if number else line.name, start, stop, extra=number > 0)


@dataclass(frozen=True, slots=True)
class _Arrows:
    """Arrows between places (numbers of rows in the order of the groups), and how many have lost an end."""

    first: int
    source: Int64s
    target: Int64s
    cut: int
    backwards: int

    @classmethod
    def between(cls, trace: HostTrace, shown: list[Int64s], first: int) -> _Arrows:
        place = np.full(len(trace.name), -1, np.int64)
        rows = np.concatenate(shown) if shown else _NONE
        place[rows] = np.arange(len(rows))
        found = Pairs(*(np.concatenate(ends) for ends in zip(launches(trace), handovers(trace), strict=True)))
        source, target = place[found.source], place[found.target]
        whole = (source >= 0) & (target >= 0)
        source, target = source[whole], target[whole]
        # A viewer meets the ends of an arrow in order of time, and loses it if the end for the target comes first.
        begin = trace.start_ps[rows] // 1000
        early = begin[target] < begin[source]
        turned = early | ((begin[target] == begin[source]) & (target < source))
        source, target = np.where(turned, target, source), np.where(turned, source, target)
        return cls(first, source, target, int(len(whole) - whole.sum()), int(early.sum()))

    def ends(self, start: int, stop: int) -> tuple[ArrowEnds, ArrowEnds]:
        """Return where arrows leave and arrive in the places from `start` to `stop`."""
        return self._within(self.source, start, stop), self._within(self.target, start, stop)

    def _within(self, places: Int64s, start: int, stop: int) -> ArrowEnds:
        mine = np.flatnonzero((places >= start) & (places < stop))
        mine = mine[np.argsort(places[mine], kind="stable")]
        return ArrowEnds(places[mine] - start, mine + self.first)


def _group(
    trace: HostTrace, plane: int, found: _Rows, facts: TraceArguments, names: Sequence[str],
    ends: tuple[ArrowEnds, ArrowEnds], counters: tuple[Counter, ...], prefix: str, origin: int,
) -> Group:  # fmt: skip
    rows, header = found.rows, trace.planes[plane]
    return Group(
        prefix + header.name, header.kind, found.tracks, trace.start_ps[rows] - origin, trace.end_ps[rows] - origin,
        trace.name[rows], names, facts.of(rows), *ends, counters,
    )  # fmt: skip


def _steps_group(steps: Steps, prefix: str, origin: int) -> Group:
    """Return the steps as events, with their number, kind, and why one is left out of averages."""
    order = np.lexsort((-steps.end_ps, steps.start_ps))
    lane = split(steps.start_ps[order], steps.end_ps[order])
    order = order[np.argsort(lane, kind="stable")]
    stops = np.concatenate(([0], np.cumsum(np.bincount(lane)))).tolist()
    line = Line(0, STEPS_LINE, "steps", 0, len(order))
    kinds, flags = ([texts[i] for i in order.tolist()] for texts in (steps.kinds, steps.flags))
    numbers = steps.numbers[order]
    names = [f"{kind} {number}" for kind, number in zip(kinds, numbers.tolist(), strict=True)]
    flagged = np.array([bool(flag) for flag in flags], np.bool_)
    return Group(
        f"{prefix}Steps", "step", tuple(_tracks(line, stops)), steps.start_ps[order] - origin,
        steps.end_ps[order] - origin, np.arange(len(order), dtype=np.int32), names,
        _step_arguments(numbers, kinds, flags, flagged), NO_ENDS, NO_ENDS,
    )  # fmt: skip


def _step_arguments(numbers: Int64s, kinds: list[str], flags: list[str], flagged: Bools) -> Arguments:
    count = len(numbers)
    there = np.stack((np.ones(count, np.bool_), np.ones(count, np.bool_), flagged), axis=1)
    key = np.tile(np.arange(3, dtype=np.int32), (count, 1))
    value = np.stack((numbers, np.arange(count), np.arange(count) + count), axis=1)
    kind = np.where(key == 0, StatKind.INT, StatKind.TEXT).astype(np.uint8)
    stop = np.concatenate(([0], np.cumsum(there.sum(axis=1))))
    keys, texts = ("number", "kind", "left out of averages"), (*kinds, *flags)
    return Arguments(stop, key[there], kind[there], value[there], keys, texts)


def _holds_memory(trace: HostTrace, plane: int, placed: list[tuple[int, _Rows]]) -> bool:
    """Tell whether the counters go with this plane: the first of the host, else the first of all."""
    hosts = [other for other, _ in placed if trace.planes[other].kind == "host"]
    return plane == next(iter([*hosts, *(other for other, _ in placed)]))


def _memory(trace: HostTrace, steps: Steps, selection: Selection, origin: int) -> tuple[Counter, ...]:
    """Return the bytes that each allocator has in use, wherever it notes them."""
    memory = trace.memory
    allocator, names = memory.text_index("allocator_name")
    allocated, reserved = memory.number("bytes_allocated", -1), memory.number("bytes_reserved", 0)
    shown = (allocator >= 0) & (allocated >= 0) & (allocated < _ABSURD) & (reserved < _ABSURD)
    if selection.steps is not None:
        shown &= within(union(steps.start_ps, steps.end_ps), memory.start_ps, memory.start_ps)
    counters = []
    for number, name in enumerate(names):
        mine = np.flatnonzero(shown & (allocator == number))
        mine = mine[np.argsort(memory.start_ps[mine], kind="stable")]
        if len(mine):
            time, used = memory.start_ps[mine] - origin, allocated[mine] + np.maximum(reserved[mine], 0)
            counters.append(Counter(f"memory of {name}", time, used))
    return tuple(counters)
