"""Which event contains which, on one line."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tfperf.intervals import Int64s


class Nesting(NamedTuple):
    """`parent` holds row indices (-1: none), `depth` counts the ancestors."""

    parent: Int64s
    depth: Int64s


def nest(begin: Int64s, end: Int64s) -> Nesting:
    """Find the innermost event that includes each event; both ends count as inside.

    Rows are sorted by begin, the longer first. Then an event is included by an earlier one exactly if it ends no later,
    so the parent is the nearest earlier row whose end is at least as late. Peeled from outside: a row that ends later
    than all rows before it has no parent; of the rest, a row that ends later than all before it *under the same parent
    so far* has that parent; and so on. One round per level, each only over what is still inside.
    """
    count = len(begin)
    parent, depth = np.full(count, -1, np.int64), np.zeros(count, np.int64)
    rows = np.arange(count)
    above = np.full(count, -1, np.int64)
    level = 0
    while len(rows):
        value = _within_segments(begin, end, rows, above)
        reach = np.maximum.accumulate(value)
        outer = np.concatenate(([True], value[1:] > reach[:-1]))
        parent[rows[outer]], depth[rows[outer]] = above[outer], level
        latest = np.maximum.accumulate(np.where(outer, rows, -1))
        rows, above = rows[~outer], latest[~outer]
        level += 1
    return Nesting(parent, depth)


def _within_segments(begin: Int64s, end: Int64s, rows: Int64s, above: Int64s) -> Int64s:
    """Return ends shifted so that rows of a later segment (another `above`) are always larger."""
    if above[0] < 0:
        return np.asarray(end[rows], np.int64)
    new = np.concatenate(([True], above[1:] != above[:-1]))
    room = end[above[new]] - begin[above[new]] + 1
    base = np.concatenate(([0], np.cumsum(room)[:-1]))
    return np.asarray(end[rows] - begin[above] + base[np.cumsum(new) - 1], np.int64)


def self_time(duration: Int64s, parent: Int64s) -> Int64s:
    """Return each duration less those of the direct children; never below zero."""
    inside = np.flatnonzero(parent >= 0)
    children = np.zeros(len(duration), np.int64)
    np.add.at(children, parent[inside], duration[inside])
    return np.maximum(duration - children, 0)
