"""Nesting of events on one line."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Bools, Int64s
from tfperf.trace.host_trace import HostTrace, by_line


class Nesting(Struct, frozen=True):
    """`parent` holds row indices (-1: none), `depth` counts the ancestors."""

    parent: Int64s
    depth: Int64s


class Stacked(NamedTuple):
    """Nesting by a stack of open events: `parent` as above; `kept` marks the events that it counts."""

    parent: Int64s
    kept: Bools


_PEELED_LEVELS = 64


def nest(start: Int64s, end: Int64s) -> Nesting:
    """Return the innermost event that includes each event; both ends count as inside.

    Rows are sorted by start, the longer first. An earlier event then includes an event exactly if it ends no earlier,
    so the parent is the nearest earlier row whose end is at least as late. The search goes from the outside in: a row
    that ends later than all rows before it has no parent; of the rest, a row that ends later than all before it *under
    the same parent so far* has that parent; and so on. There is one round per level, over the remaining rows only;
    levels deeper than in any real program are left to `_climb`.
    """
    count = len(start)
    parent, depth = np.full(count, -1, np.int64), np.zeros(count, np.int64)
    rows, above = np.arange(count), np.full(count, -1, np.int64)
    for level in range(_PEELED_LEVELS):
        if not len(rows):
            return Nesting(parent, depth)
        value = _within_segments(start, end, rows, above)
        outer = np.ones(len(rows), np.bool_)
        np.greater(value[1:], np.maximum.accumulate(value)[:-1], out=outer[1:])
        inner = ~outer
        if level:
            parent[rows[outer]], depth[rows[outer]] = above[outer], level
        latest = np.maximum.accumulate(np.where(outer, rows, -1))
        rows, above = rows[inner], latest[inner]
    if len(rows):
        parent[rows] = _climb(end, rows, above)
        _deepen(depth, parent, rows)
    return Nesting(parent, depth)


def parents(trace: HostTrace, rows: Int64s) -> Int64s:
    """Return for each of the rows (ascending) the innermost of them around it on its line, -1 for none."""
    parent = np.full(len(rows), -1, np.int64)
    for _, places in by_line(trace.lines, rows):
        on_line = rows[places]
        above = nest(trace.start_ps[on_line], trace.end_ps[on_line]).parent
        parent[places] = np.where(above >= 0, above + places.start, -1)
    return parent


def innermost_around(trace: HostTrace, rows: Int64s, time: Int64s) -> Int64s:
    """Return for each time (ps) the innermost of `rows` (of one line, ascending) that lasts then, or -1."""
    start, end = trace.start_ps[rows], trace.end_ps[rows]
    nesting = nest(start, end)
    place = np.searchsorted(start, time, side="right") - 1
    for _ in range(int(nesting.depth.max(initial=0)) + 1):
        has_ended = (place >= 0) & (end[np.maximum(place, 0)] <= time)
        if not has_ended.any():
            break
        place[has_ended] = nesting.parent[place[has_ended]]
    return np.where(place >= 0, np.append(rows, -1)[place], -1)


def outermost(trace: HostTrace, rows: Int64s) -> Int64s:
    """Return the rows (ascending) that are not inside another one on their line, in time order."""
    outer = rows[parents(trace, rows) < 0]
    return outer[np.argsort(trace.start_ps[outer], kind="stable")]


def hold(trace: HostTrace, rows: Int64s, inner: Int64s) -> Bools:
    """Return in which of the rows an `inner` row (ascending) starts, on the same line."""
    if not len(inner):
        return np.zeros(len(rows), np.bool_)
    following = inner[np.minimum(np.searchsorted(inner, rows, side="right"), len(inner) - 1)]
    is_after = (following > rows) & (trace.line_of[following] == trace.line_of[rows])
    return np.asarray(is_after & (trace.start_ps[following] < trace.end_ps[rows]), np.bool_)


def last_around(trace: HostTrace, outer: Int64s, rows: Int64s) -> Int64s:
    """Return for each row the index of the last of `outer` (rows, ascending) before it, -1 if it is not inside."""
    place = np.searchsorted(outer, rows) - 1
    before = np.append(outer, -1)[place]
    is_around = (trace.line_of[before] == trace.line_of[rows]) & (trace.end_ps[before] >= trace.end_ps[rows])
    return np.where((place >= 0) & is_around, place, -1)


def _climb(end: Int64s, rows: Int64s, above: Int64s) -> Int64s:
    """Return the parents of rows with a known ancestor (`above`), by following the parents of the row before each."""
    place = np.arange(len(rows)) - 1
    place[:1] = -1
    place[1:][rows[:-1] <= above[1:]] = -1
    waiting = np.arange(len(rows))
    while len(waiting):
        asked = place[waiting]
        waiting = waiting[(asked >= 0) & (end[rows[np.maximum(asked, 0)]] < end[rows[waiting]])]
        place[waiting] = place[place[waiting]]
    return np.where(place >= 0, rows[np.maximum(place, 0)], above)


def _deepen(depth: Int64s, parent: Int64s, rows: Int64s) -> None:
    """Fill the depth of `rows`, whose other ancestors have theirs, by pointer doubling."""
    pending = np.zeros(len(depth) + 1, np.bool_)  # the last entry means "no ancestor" (-1)
    pending[rows] = True
    ancestor, steps = parent.copy(), np.ones(len(depth), np.int64)
    waiting = rows[pending[ancestor[rows]]]
    while len(waiting):
        via = ancestor[waiting]
        hop, further = steps[via], ancestor[via]
        steps[waiting] += hop
        ancestor[waiting] = further
        waiting = waiting[pending[further]]
    depth[rows] = np.where(ancestor[rows] >= 0, depth[ancestor[rows]], -1) + steps[rows]


def _within_segments(start: Int64s, end: Int64s, rows: Int64s, above: Int64s) -> Int64s:
    """Return ends shifted so that rows of a later segment (another `above`) are always larger."""
    if above[0] < 0:
        return np.asarray(end[rows], np.int64)
    is_new = np.ones(len(above), np.bool_)
    np.not_equal(above[1:], above[:-1], out=is_new[1:])
    segments = above[is_new]
    stops = np.cumsum(end[segments] - start[segments] + 1)
    # From the start of a segment to the end of the previous one.
    shift = np.concatenate((start[segments[:1]], start[segments[1:]] - stops[:-1]))
    return np.asarray(end[rows] - shift[np.cumsum(is_new) - 1], np.int64)


def self_time(duration: Int64s, parent: Int64s) -> Int64s:
    """Return each duration without the direct children; never below zero."""
    inside = np.flatnonzero(parent >= 0)
    children = np.zeros(len(duration), np.int64)
    np.add.at(children, parent[inside], duration[inside])
    return np.asarray(np.maximum(duration - children, 0), np.int64)


def own_parts(start: Int64s, end: Int64s, parent: Int64s, wanted: Bools) -> tuple[Int64s, Int64s, Int64s]:
    """Return the parts of the wanted events that no child covers (before, between and after): row, start and end."""
    child = np.flatnonzero((parent >= 0) & wanted[parent])
    child = child[np.argsort(parent[child], kind="stable")]
    above = parent[child]
    is_next = above[1:] == above[:-1]
    before, until = start[above], start[child]
    before[1:][is_next] = end[child[:-1]][is_next]
    some = until > before
    parts = above[some], before[some], until[some]
    is_last = np.append(~is_next, True)[: len(child)]
    behind = start.copy()
    behind[above[is_last]] = end[child[is_last]]
    rest = np.flatnonzero(wanted & (end > behind))
    return (
        np.concatenate((parts[0], rest)),
        np.concatenate((parts[1], behind[rest])),
        np.concatenate((parts[2], end[rest])),
    )


def nest_on_stack(start: Int64s, end: Int64s) -> Stacked:
    """Nest as TensorFlow's profiler does for its op tables, which loses events that end together or overlap.

    It processes starts and ends in time order, at one time in row order, so of two events that end together the outer
    one ends first. An end removes its event and all above it from the stack: those are lost. If the event is already
    lost, the end removes all open events.

    So an event is lost if an earlier one ends inside it, or if a lost one does. The computation uses *places*, the
    numbers of starts and ends in this order.
    """
    count = len(start)
    order = np.argsort(np.stack((start, end), axis=1).reshape(-1), kind="stable")
    place = np.empty(2 * count, np.int64)
    place[order] = np.arange(2 * count)
    opened, closed = place[::2], place[1::2]
    plain = nest(opened, closed)
    open_before = 2 * np.arange(count) - opened  # starts minus ends
    if bool((plain.depth == open_before).all()):
        return Stacked(plain.parent, np.ones(count, np.bool_))
    owner = order // 2
    crossed = _taken(owner, opened) != closed
    first_lost = np.minimum.accumulate(np.where(crossed, closed, 2 * count)[::-1])[::-1]
    kept = closed < first_lost
    owner[closed[~kept]] = -1
    parent = nest(opened, _taken(owner, opened)).parent
    return Stacked(np.where(kept, parent, -1), kept)


def _taken(owner: Int64s, opened: Int64s) -> Int64s:
    """Return the place at which each event leaves the stack: the first after its start that no later row owns.

    That is the search for a parent in reverse, with owners as ends.
    """
    last = len(owner) - 1
    parent = nest(np.arange(len(owner)), 2 * len(owner) - owner[::-1]).parent
    return np.asarray(last - parent[last - opened], np.int64)
