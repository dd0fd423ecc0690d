"""Half-open intervals as two int64 arrays, `start` and `end`: union, overlap. Pure numpy, no trace words.

A *flat* set is sorted and disjoint, as `union` returns it. All functions keep start < end; empty intervals vanish.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tfperf.arrays import Int64s


class Intervals(NamedTuple):
    """A set of intervals: `start` and `end` are int64 arrays of equal length."""

    start: Int64s
    end: Int64s

    def total(self) -> int:
        """Return the summed length (of a flat set: the covered time)."""
        return int((self.end - self.start).sum())


EMPTY = Intervals(np.empty(0, np.int64), np.empty(0, np.int64))


def union_sorted(start: Int64s, end: Int64s) -> Intervals:
    """Merge intervals that are sorted by start into a flat set, in linear time."""
    if not len(start):
        return EMPTY
    reach = np.maximum.accumulate(end)
    gaps = np.flatnonzero(start[1:] > reach[:-1]) + 1
    first = np.concatenate(([0], gaps))
    last = np.concatenate((gaps, [len(start)])) - 1
    merged = Intervals(start[first], reach[last])
    keep = merged.end > merged.start
    return merged if keep.all() else Intervals(merged.start[keep], merged.end[keep])


def union(start: Int64s, end: Int64s) -> Intervals:
    """Merge intervals in any order into a flat set."""
    if len(start) > 1 and not bool((start[1:] >= start[:-1]).all()):
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    return union_sorted(start, end)


def union_all(sets: list[Intervals]) -> Intervals:
    """Merge several sets into one flat set."""
    sets = [part for part in sets if len(part.start)]
    if not sets:
        return EMPTY
    if len(sets) == 1:
        return union(*sets[0])
    return union(np.concatenate([part.start for part in sets]), np.concatenate([part.end for part in sets]))


def covered_before(flat: Intervals, times: Int64s) -> Int64s:
    """Return, for each time, how much of it and before is covered by the flat set."""
    if not len(flat.start):
        return np.zeros(len(times), np.int64)
    length_until = np.concatenate(([0], np.cumsum(flat.end - flat.start)))
    index = np.searchsorted(flat.start, times, side="right")
    before = np.maximum(index - 1, 0)
    overshoot = np.where(index > 0, np.maximum(flat.end[before] - times, 0), 0)
    return np.asarray(length_until[index] - overshoot, np.int64)


def overlap(flat: Intervals, start: Int64s, end: Int64s) -> Int64s:
    """Return, for each window [start, end), how much of it the flat set covers."""
    return covered_before(flat, np.maximum(end, start)) - covered_before(flat, start)


def intersection(first: Intervals, second: Intervals) -> Intervals:
    """Return what two flat sets both cover, as a flat set."""
    return _sweep(first, second, 3)


def difference(first: Intervals, second: Intervals) -> Intervals:
    """Return what the first flat set covers and the second does not, as a flat set."""
    return _sweep(first, second, 1)


def _sweep(first: Intervals, second: Intervals, wanted: int) -> Intervals:
    """Return where the level is the wanted one: the first set counts 1, the second 2."""
    times = np.concatenate((*first, *second))
    counts = (1, -1, 2, -2)
    change = np.repeat(counts, [len(part) for part in (*first, *second)])
    order = np.argsort(times, kind="stable")
    times, level = times[order], np.cumsum(change[order])
    covered = (level[:-1] == wanted) & (times[1:] > times[:-1]) if len(times) else level == wanted
    return union_sorted(times[:-1][covered], times[1:][covered])


def covers(flat: Intervals, times: Int64s) -> npt.NDArray[np.bool_]:
    """Tell, for each time, whether the flat set holds it."""
    if not len(flat.start):
        return np.zeros(len(times), np.bool_)
    index = np.searchsorted(flat.start, times, side="right")
    return (index > 0) & (flat.end[np.maximum(index - 1, 0)] > times)
