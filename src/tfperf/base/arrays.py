"""Array and interval functions in addition to NumPy's; intervals are half-open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Uint8s = npt.NDArray[np.uint8]
Float64s = npt.NDArray[np.float64]
Numbers = npt.NDArray[Any]
Column = npt.NDArray[np.signedinteger[Any]]

NO_NUMBERS: Int64s = np.empty(0, np.int64)

MOST = 1 << 62
"""Cap on sums: impossible times in a damaged file may exceed an int64."""


def capped_sum(values: Int64s) -> int:
    """Return the sum, at most `MOST`."""
    exact = int(values.sum())
    return exact if exact >= 0 and float(values.sum(dtype=np.float64)) < MOST else MOST


def median(values: npt.NDArray[np.generic]) -> float:
    """Return the median, or 0 for no values. Sorting is faster than importing the masked arrays of `numpy.median`."""
    if not len(values):
        return 0.0
    ordered = np.sort(values).astype(np.float64)
    return float((ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2)


def percentile(values: npt.NDArray[np.generic], share: float) -> float:
    """Return the value at or below which `share` of the values are, linearly interpolated; 0 for no values."""
    return float(ordered_percentile(np.sort(values).astype(np.float64), share)) if len(values) else 0.0


def ordered_percentile(ordered: npt.NDArray[np.float64], share: float) -> npt.NDArray[np.float64]:
    """Return that value for each row of sorted, non-empty values."""
    place = share * (ordered.shape[-1] - 1)
    low = int(place)
    below, above = ordered[..., low], ordered[..., min(low + 1, ordered.shape[-1] - 1)]
    return np.asarray(below + (place - low) * (above - below), np.float64)


def distinct(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the distinct values, ascending. `numpy.unique` would import masked arrays."""
    ordered = np.sort(values)
    return ordered[np.concatenate(([True], ordered[1:] != ordered[:-1]))] if len(ordered) else ordered


def is_any(values: Column, wanted: npt.ArrayLike) -> Bools:
    """Return which of the numbers are among the wanted ones. `numpy.isin` would import masked arrays."""
    return lookup(np.sort(np.asarray(wanted, np.int64)), values) >= 0


def lookup(ascending: Column, wanted: Column) -> Int64s:
    """Return the first index of each wanted number in an ascending array, or -1 if it is missing."""
    if not len(ascending):
        return np.full(len(wanted), -1, np.int64)
    low, high = ascending[0], ascending[-1]
    if int(high) - int(low) < 2 * len(wanted):  # a table is faster than a search
        indices = np.zeros(int(high) - int(low) + 1, np.int64)
        indices[ascending[::-1] - low] = np.arange(len(ascending))[::-1]
        place: Int64s = indices[np.clip(wanted, low, high) - low]
    else:
        place = ascending.searchsorted(wanted)
        np.minimum(place, len(ascending) - 1, out=place)
    place[ascending[place] != wanted] = -1
    return place


def ranges(first: Int64s, count: Int64s) -> Int64s:
    """Return the concatenation of `first[i], first[i] + 1, ...` with `count[i]` numbers for each i."""
    stops = np.cumsum(count)
    return np.repeat(first - stops + count, count) + np.arange(int(stops[-1]) if len(stops) else 0)


_LARGEST_TABLE = 1 << 20


def text_index(texts: Sequence[str]) -> tuple[list[str], Int64s]:
    """Return the distinct texts in order of first occurrence, and the index of each text among them."""
    if len(texts) and texts.count(texts[0]) == len(texts):  # much faster for a constant column
        return [texts[0]], np.zeros(len(texts), np.int64)
    places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    return [*places], np.fromiter(map(places.__getitem__, texts), np.int64, len(texts))


def distinct_index(values: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], Int64s]:
    """Return the sorted distinct values, and each value's index; small numbers use a lookup table, which is faster."""
    if values.dtype.kind == "i" and len(values) and values.min() >= 0 and (most := int(values.max())) < _LARGEST_TABLE:
        present = np.zeros(most + 1, np.bool_)
        present[values] = True
        return np.flatnonzero(present), (np.cumsum(present) - 1)[values]
    unique, index = np.unique(values, return_inverse=True)
    return unique, index.reshape(-1).astype(np.int64)


def _packed(columns: Sequence[Column]) -> tuple[Int64s, int] | None:
    """Return each row as one number, ordered as the rows, and a limit above all of them; None if it exceeds `MOST`."""
    lowest = [int(column.min()) for column in columns]
    sizes = [int(column.max()) - low + 1 for column, low in zip(columns, lowest, strict=True)]
    limit = prod(sizes)
    if limit >= MOST:
        return None
    packed = np.zeros(len(columns[0]), np.int64)
    for column, low, size in zip(columns, lowest, sizes, strict=True):
        if size > 1:
            packed *= size
            packed += column
            packed -= low
    return packed, limit


def group_equal(columns: Sequence[Column]) -> tuple[Int64s, Int64s]:
    """Return a row order that groups equal rows, and the start of each group; packing the columns speeds up sorting."""
    count = len(columns[0])
    if not count:
        return NO_NUMBERS, NO_NUMBERS
    if (found := _packed(columns)) is not None:
        packed, limit = found
        columns = [packed.astype(np.uint16) if limit <= 1 << 16 else packed]  # 16 bits are sorted in linear time
    order = np.lexsort(columns[::-1]) if len(columns) > 1 else np.argsort(columns[0], kind="stable")
    changes = np.zeros(count, np.bool_)
    changes[0] = True
    for column in columns:
        ordered = column[order]
        changes[1:] |= ordered[1:] != ordered[:-1]
    return np.asarray(order, np.int64), np.flatnonzero(changes)


def distinct_rows(columns: Sequence[Column]) -> tuple[Int64s, Int64s]:
    """Return the first of each distinct row of the columns, ordered by their numbers, and the place there of each row.

    A table of all possible rows, if they are not many more than the rows, is faster than sorting.
    """
    count = len(columns[0])
    found = _packed(columns) if count else None
    if found is not None and found[1] <= 4 * count:
        values, index = distinct_index(found[0])
        first = np.empty(len(values), np.int64)
        first[index[::-1]] = np.arange(count)[::-1]
        return first, index
    order, starts = group_equal(columns)
    index = np.empty(count, np.int64)
    index[order] = np.repeat(np.arange(len(starts)), np.diff(starts, append=count))
    return order[starts], index


def capped_sums(ordered: Int64s, starts: Int64s) -> Int64s:
    """Return the sum of each group, at most `MOST`. Groups are contiguous and begin at `starts`."""
    if not len(starts):
        return NO_NUMBERS
    # Near the cap, the rough sum is too inexact; far above it, the exact sum overflows int64.
    rough = np.add.reduceat(ordered.astype(np.float64), starts)
    return np.where(rough < 1.5 * MOST, np.minimum(np.add.reduceat(ordered, starts), MOST), MOST)


def group_sums(duration: Int64s, columns: Sequence[Column]) -> Iterator[tuple[list[int], tuple[int, int, int, int]]]:
    """Yield (values, (count, sum, minimum, maximum of the durations)) for each distinct row of the columns."""
    order, starts = group_equal(columns)
    if not len(order):
        return
    ordered = duration[order]
    total = capped_sums(ordered, starts)
    least, most = np.minimum.reduceat(ordered, starts), np.maximum.reduceat(ordered, starts)
    values = np.stack([column[order[starts]] for column in columns], axis=1)
    numbers = (np.diff(starts, append=len(order)), total, least, most)
    yield from zip(values.tolist(), zip(*(column.tolist() for column in numbers), strict=True), strict=True)


def sorted_in_groups(group: Int64s, values: Int64s) -> tuple[Int64s, Int64s]:
    """Return the values by group, ascending in each, and the start of each group; groups are 0, 1, ..., none is empty.

    Sorting packed numbers is several times faster than sorting by two keys.
    """
    if not len(group):
        return NO_NUMBERS, NO_NUMBERS
    counts = np.bincount(group)
    starts = np.cumsum(counts) - counts
    low = int(values.min())
    size = int(values.max()) - low + 1
    if len(counts) * size >= MOST:
        return values[np.lexsort((values, group))], starts
    packed = np.sort(group * size + (values - low))
    return packed - np.repeat(np.arange(len(counts)) * size - low, counts), starts


def medians(ordered: Int64s, starts: Int64s) -> Float64s:
    """Return the median of each group of ascending values (`sorted_in_groups`)."""
    counts = np.diff(starts, append=len(ordered))
    low, high = ordered[starts + (counts - 1) // 2], ordered[starts + counts // 2]
    return np.asarray(low + (high - low) / 2, np.float64)


def extents(group: Int64s, start: Int64s, end: Int64s, count: int) -> tuple[Int64s, Int64s]:
    """Return the first start and the last end in each group, or -1 for a group without events."""
    first, last = np.full(count, np.iinfo(np.int64).max), np.full(count, -1, np.int64)
    np.minimum.at(first, group, start)
    np.maximum.at(last, group, end)
    return np.where(last >= 0, first, -1), last


class Intervals(NamedTuple):
    """A set of intervals; `start` and `end` are int64 arrays of equal length."""

    start: Int64s
    end: Int64s

    def total(self) -> int:
        """Return the summed length, which is the covered time of a flat set."""
        return int((self.end - self.start).sum())


EMPTY = Intervals(np.empty(0, np.int64), np.empty(0, np.int64))
_NEVER, _ALWAYS = np.array([-MOST]), np.array([MOST])
"""Earlier and later than any time."""


def union_sorted(start: Int64s, end: Int64s) -> Intervals:
    """Merge intervals that are sorted by start into a flat set, in linear time."""
    if not len(start):
        return EMPTY
    reach = np.maximum.accumulate(end)
    begins = np.empty(len(start) + 1, np.bool_)  # whether all earlier intervals have ended
    begins[0] = begins[-1] = True
    np.greater(start[1:], reach[:-1], out=begins[1:-1])
    borders = begins.nonzero()[0]
    merged = Intervals(start[borders[:-1]], reach[borders[1:] - 1])
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
    """Return the covered time of the flat set before each time."""
    if not len(flat.start):
        return np.zeros(len(times), np.int64)
    length_until = np.zeros(len(flat.start) + 1, np.int64)
    np.cumsum(flat.end - flat.start, out=length_until[1:])
    index = flat.start.searchsorted(times, side="right")
    # The first interval has no predecessor to overshoot.
    overshoot = np.concatenate((_NEVER, flat.end))[index]
    overshoot -= times
    covered = length_until[index]
    covered -= np.maximum(overshoot, 0, out=overshoot)
    return covered


def overlap(flat: Intervals, start: Int64s, end: Int64s) -> Int64s:
    """Return the covered time of the flat set in each window [start, end)."""
    covered = covered_before(flat, np.maximum(end, start))
    covered -= covered_before(flat, start)
    return covered


def touches(flat: Intervals, start: Int64s, end: Int64s) -> Bools:
    """Return whether the flat set covers part of each window [start, end); twice as fast as `overlap`."""
    if not len(flat.start):
        return np.zeros(len(start), np.bool_)
    index = np.searchsorted(flat.end, start, side="right")
    last = len(flat.start) - 1
    found: Bools = (index <= last) & (flat.start[np.minimum(index, last)] < end) & (start < end)
    return found


def intersection(first: Intervals, second: Intervals) -> Intervals:
    """Return the intersection of flat sets: both cover the time from one start to the end before the next start."""
    if not len(first.start) or not len(second.start):
        return EMPTY
    start = np.sort(np.concatenate((first.start, second.start)), kind="stable")[1:]
    end = np.sort(np.concatenate((first.end, second.end)), kind="stable")[:-1]
    covered = start < end
    return union_sorted(start[covered], end[covered])


def difference(first: Intervals, second: Intervals) -> Intervals:
    """Return the time covered by the first flat set but not by the second, as a flat set."""
    if not len(first.start) or not len(second.start):
        return first
    # The complement of the second set: from each end to the next start.
    rest = Intervals(np.concatenate((_NEVER, second.end)), np.concatenate((second.start, _ALWAYS)))
    return intersection(first, rest)


def span_at(start: Int64s, end: Int64s, times: Int64s) -> Int64s:
    """Return the index of the span that contains each time, or -1. Spans are ascending and disjoint."""
    index = np.searchsorted(start, times, side="right") - 1
    return np.where((index >= 0) & (times < np.append(end, 0)[index]), index, -1)


def covers(flat: Intervals, times: Int64s) -> npt.NDArray[np.bool_]:
    """Return whether the flat set contains each time."""
    if not len(flat.start):
        return np.zeros(len(times), np.bool_)
    index = np.searchsorted(flat.start, times, side="right")
    return (index > 0) & (flat.end[np.maximum(index - 1, 0)] > times)
