"""Arrows: from what launches a kernel, or enqueues a run of a TPU, to it; from a producer to its consumer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import NO_NUMBERS, Bools, Int64s
from tfperf.export.timeline.host_timeline import PS_PER_NS, ArrowEnds
from tfperf.trace.host_trace import HostTrace

_NARROW_TYPES, _NARROW_IDS = 1 << 6, 1 << 56


class EventPairs(NamedTuple):
    """Rows of the trace: the source and the target of each arrow."""

    source: Int64s
    target: Int64s


def launches(trace: HostTrace) -> EventPairs:
    """Return from which event of a host thread each event of a device was launched (same `correlation_id`)."""
    stat = trace.stat("correlation_id")
    on_device = np.zeros(len(trace.name), np.bool_)
    for line in trace.lines:
        if trace.planes[line.plane].is_device and not line.derived:
            on_device[line.start : line.stop] = True
    rows = stat.event.astype(np.int64)
    host, device = trace.on_host[rows], on_device[rows]
    none = np.zeros(len(rows), np.int64)
    return _match(trace, (none[host], stat.value[host], rows[host]), (none[device], stat.value[device], rows[device]))


def handovers(trace: HostTrace) -> EventPairs:
    """Return which event produced what each event consumes.

    `_pt` and `_p` are kind and id of what is produced, `_ct` and `_c` those of what is consumed.
    """
    return _match(trace, _ends(trace, "_pt", "_p"), _ends(trace, "_ct", "_c"))


def enqueued_runs(trace: HostTrace) -> EventPairs:
    """Return from which event of the host each run of a program on a TPU chip was enqueued."""
    if trace.device_kind != "tpu":
        return EventPairs(NO_NUMBERS, NO_NUMBERS)
    from tfperf.trace.device.tpu_runs import find_runs  # few traces are of TPUs

    runs = find_runs(trace)
    is_known = runs.enqueue >= 0
    return EventPairs(runs.enqueue[is_known], runs.row[is_known])


_Ends = tuple[Int64s, Int64s, Int64s]
"""Kinds, ids and rows."""


def _ends(trace: HostTrace, kind_stat: str, id_stat: str) -> _Ends:
    kinds, ids = trace.stat(kind_stat), trace.stat(id_stat)
    rows = ids.event.astype(np.int64)
    if len(kinds.event) == len(rows) and bool((kinds.event == rows).all()):
        return kinds.value, ids.value, rows
    has_kind = trace.has_stat(kind_stat)[rows]
    rows = rows[has_kind]
    return trace.number_at(kind_stat, rows), ids.value[has_kind], rows


def _match(trace: HostTrace, sources: _Ends, targets: _Ends) -> EventPairs:
    """Match targets with sources: of several with the same key the last that starts no later, else the first."""
    rows = np.concatenate((sources[2], targets[2]))
    is_source = np.arange(len(rows)) < len(sources[2])
    if not len(sources[2]) or not len(targets[2]):
        return EventPairs(rows[:0], rows[:0])
    kind, number = (np.concatenate((sources[i], targets[i])) for i in (0, 1))
    # Kind and id as one key where that is possible, since each takes a round of sorting.
    narrow = bool(((kind >= 0) & (kind < _NARROW_TYPES) & (number >= 0) & (number < _NARROW_IDS)).all())
    keys = (number * _NARROW_TYPES + kind,) if narrow else (number, kind)
    order = np.lexsort((~is_source, trace.start_ps[rows], *keys))
    new_key = np.zeros(len(rows), np.bool_)
    for key in keys:
        new_key[1:] |= np.diff(key[order]) != 0
    nearest = _nearest_source(is_source[order], new_key)
    matched = np.flatnonzero(~is_source[order] & (nearest >= 0))
    source, target = rows[order[nearest[matched]]], rows[order[matched]]
    apart = source != target
    return EventPairs(source[apart], target[apart])


def _nearest_source(is_source: Bools, new_key: Bools) -> Int64s:
    """Return for each place the last source up to it with the same key, else the next one, else -1."""
    place, count = np.arange(len(new_key)), len(new_key)
    first = np.maximum.accumulate(np.where(new_key, place, 0))
    ends = np.concatenate((np.flatnonzero(new_key), [count]))
    until = ends[np.cumsum(new_key)]
    last = np.maximum.accumulate(np.where(is_source, place, -1))
    following = np.minimum.accumulate(np.where(is_source, place, count)[::-1])[::-1]
    return np.where(last >= first, last, np.where(following < until, following, -1))


class PlacedArrows(Struct, frozen=True):
    """Arrows between places: numbers of rows in the order in which the groups show them.

    `cut` counts the arrows that lost an end, `backward` those that are turned around.
    """

    first_number: int
    source: Int64s
    target: Int64s
    cut: int
    backward: int

    @classmethod
    def between(cls, trace: HostTrace, shown: Sequence[Int64s], first_number: int) -> PlacedArrows:
        """Return the arrows between shown rows; `shown` are the rows of each group."""
        place = np.full(len(trace.name), -1, np.int64)
        rows = np.concatenate(shown) if shown else NO_NUMBERS
        place[rows] = np.arange(len(rows))
        kinds = (launches(trace), handovers(trace), enqueued_runs(trace))
        source, target = (np.concatenate(ends) for ends in zip(*kinds, strict=True))
        if len(kinds[2].source):  # a flow may lead from the one to the other, too
            first = np.unique(source * len(place) + target, return_index=True)[1]
            source, target = source[np.sort(first)], target[np.sort(first)]
        source, target = place[source], place[target]
        whole = (source >= 0) & (target >= 0)
        cut = int(len(whole) - whole.sum())
        source, target = source[whole], target[whole]
        # A viewer meets the ends of an arrow in order of time, and loses it if the end for the target comes first.
        start_ns = trace.start_ps[rows] // PS_PER_NS
        early = start_ns[target] < start_ns[source]
        turned = early | ((start_ns[target] == start_ns[source]) & (target < source))
        source, target = np.where(turned, target, source), np.where(turned, source, target)
        return cls(first_number, source, target, cut, int(early.sum()))

    def ends(self, start: int, stop: int) -> tuple[ArrowEnds, ArrowEnds]:
        """Return where arrows leave and arrive in the places from `start` to `stop`."""
        ends = []
        for places in (self.source, self.target):
            inside = np.flatnonzero((places >= start) & (places < stop))
            inside = inside[np.argsort(places[inside], kind="stable")]
            ends.append(ArrowEnds(places[inside] - start, inside + self.first_number))
        return ends[0], ends[1]
