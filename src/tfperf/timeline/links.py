"""Arrows: from the launch of a kernel to the kernel, and from who makes something to who uses it on another thread."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tfperf.arrays import Bools, Int64s
from tfperf.trace.host_trace import HostTrace

_NARROW_TYPES, _NARROW_IDS = 1 << 6, 1 << 56


class Pairs(NamedTuple):
    """Rows of the trace: where arrows begin and where they end."""

    source: Int64s
    target: Int64s


def launches(trace: HostTrace) -> Pairs:
    """Return from which event of a host thread each event of a device was launched (same `correlation_id`)."""
    stat = trace.stat("correlation_id")
    on_device = np.zeros(len(trace.name), np.bool_)
    for line in trace.lines:
        if trace.planes[line.plane].is_device and not line.derived:
            on_device[line.start : line.stop] = True
    rows = stat.event.astype(np.int64)
    host, device = trace.on_host[rows], on_device[rows]
    none = np.zeros(len(rows), np.int64)
    return _pairs(trace, (none[host], stat.value[host], rows[host]), (none[device], stat.value[device], rows[device]))


def handovers(trace: HostTrace) -> Pairs:
    """Return which event made what each event uses: `_pt` and `_p` are kind and id of what is made, `_ct` and `_c`
    those of what is used.
    """
    return _pairs(trace, _ends(trace, "_pt", "_p"), _ends(trace, "_ct", "_c"))


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


def _pairs(trace: HostTrace, sources: _Ends, targets: _Ends) -> Pairs:
    """Match targets with sources: of several with the same key the last that begins no later, else the first."""
    rows = np.concatenate((sources[2], targets[2]))
    is_source = np.arange(len(rows)) < len(sources[2])
    if not len(sources[2]) or not len(targets[2]):
        return Pairs(rows[:0], rows[:0])
    keys = _keys(np.concatenate((sources[0], targets[0])), np.concatenate((sources[1], targets[1])))
    order = np.lexsort((~is_source, trace.start_ps[rows], *keys))
    new = np.zeros(len(rows), np.bool_)
    for key in keys:
        new[1:] |= np.diff(key[order]) != 0
    found = _nearest_source(is_source[order], new)
    matched = np.flatnonzero(~is_source[order] & (found >= 0))
    source, target = rows[order[found[matched]]], rows[order[matched]]
    apart = source != target
    return Pairs(source[apart], target[apart])


def _keys(kind: Int64s, number: Int64s) -> tuple[Int64s, ...]:
    """Return the keys to sort by; kind and id as one where that is possible, since each takes a round of sorting."""
    narrow = bool(((kind >= 0) & (kind < _NARROW_TYPES) & (number >= 0) & (number < _NARROW_IDS)).all())
    return (number * _NARROW_TYPES + kind,) if narrow else (number, kind)


def _nearest_source(is_source: Bools, new: Bools) -> Int64s:
    """Return for each place the last source up to it in the same run (`new` marks where runs begin), else the next."""
    place, count = np.arange(len(new)), len(new)
    first = np.maximum.accumulate(np.where(new, place, 0))
    ends = np.concatenate((np.flatnonzero(new), [count]))
    until = ends[np.cumsum(new)]
    last = np.maximum.accumulate(np.where(is_source, place, -1))
    following = np.minimum.accumulate(np.where(is_source, place, count)[::-1])[::-1]
    return np.where(last >= first, last, np.where(following < until, following, -1))
