"""Blocks of a picture at several levels of detail, so that no trace makes it large.

At each level, events that are shorter than one pixel of that level are put together: those of one row that start in the
same cell of some pixels, with nothing longer between them, are one block. So a level has at most so many blocks as its
pixels allow, whatever the trace, and the finest one has every event by itself where there are not too many.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Int32s, Int64s
from tfperf.report.step_picture import Blocks

MOST_BLOCKS = (4_000, 12_000, 36_000)
"""Blocks of the coarse, the middle and the fine level."""
_PIXELS = 1_000
"""Into so many pixels the coarse level divides the step."""
_CELL = 4
"""Pixels in which what is too short is one block."""
_FINEST_NS = 1


class DrawnEvents(Struct, frozen=True, eq=False, kw_only=True):
    """The events of a picture, ordered by row, in a row by start; nanoseconds from the start of the step."""

    row: Int32s
    start_ns: Int64s
    end_ns: Int64s
    name: Int32s
    self_ns: Int64s
    note: Int32s

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.row)


def levels_of(events: DrawnEvents, duration_ns: int) -> tuple[Blocks, ...]:
    """Return the levels, from coarse to fine; one that shows no more than the one before it is left out."""
    if not len(events):
        return (_blocks(events, 0),)
    fine = _resolution(events, duration_ns, 0, MOST_BLOCKS[2])
    coarse = _resolution(events, duration_ns, max(duration_ns // _PIXELS, fine), MOST_BLOCKS[0])
    middle = _resolution(events, duration_ns, max(int((max(fine, _FINEST_NS) * coarse) ** 0.5), fine), MOST_BLOCKS[1])
    levels: list[Blocks] = []
    for finest_ns in (coarse, middle, fine):
        if levels and finest_ns >= levels[-1].finest_ns:
            continue
        blocks = _blocks(events, finest_ns)
        if levels and len(blocks.row) == len(levels[-1].row):
            levels.pop()  # the finer one shows the same, and is right at any zoom
        levels.append(blocks)
    return tuple(levels)


def _resolution(events: DrawnEvents, duration_ns: int, finest_ns: int, most: int) -> int:
    """Return the shortest duration at and above `finest_ns` with which there are at most so many blocks.

    Longer than the step, each row is one block.
    """
    while finest_ns < duration_ns and len(_firsts(events, finest_ns)) > most:
        finest_ns = max(2 * finest_ns, _FINEST_NS)
    return finest_ns


def _firsts(events: DrawnEvents, finest_ns: int) -> Int64s:
    """Return the index of the first event of each block."""
    if finest_ns <= 0:
        return np.arange(len(events))
    is_short = events.end_ns - events.start_ns < finest_ns
    cell = events.start_ns // (_CELL * finest_ns)
    is_first = np.ones(len(events), np.bool_)
    is_first[1:] = ~is_short[1:] | ~is_short[:-1]
    is_first[1:] |= (events.row[1:] != events.row[:-1]) | (cell[1:] != cell[:-1])
    return np.flatnonzero(is_first)


def _blocks(events: DrawnEvents, finest_ns: int) -> Blocks:
    first = _firsts(events, finest_ns)
    if len(first) == len(events):
        return Blocks(
            finest_ns=finest_ns,
            row=events.row,
            start_ns=events.start_ns,
            duration_ns=events.end_ns - events.start_ns,
            name=events.name,
            count=np.ones(len(events), np.int64),
            self_ns=events.self_ns,
            note=events.note,
        )
    count = np.diff(first, append=len(events))
    is_one = count == 1
    duration = events.end_ns - events.start_ns
    most = _largest_name(events, first, duration)
    start = events.start_ns[first]
    return Blocks(
        finest_ns=finest_ns,
        row=events.row[first],
        start_ns=start,
        duration_ns=np.maximum.reduceat(events.end_ns, first) - start,
        name=np.where(is_one, events.name[first], most).astype(np.int32),
        count=count,
        self_ns=np.where(is_one, events.self_ns[first], np.add.reduceat(duration, first)),
        note=np.where(is_one, events.note[first], -1).astype(np.int32),
    )


def _largest_name(events: DrawnEvents, first: Int64s, duration: Int64s) -> Int32s:
    """Return for each block the name whose events last longest in all; of equal ones, that of the smaller index."""
    block = np.cumsum(np.bincount(first, minlength=len(events))) - 1
    order = np.lexsort((events.name, block))
    block, name = block[order], events.name[order]
    is_new = np.ones(len(order), np.bool_)
    is_new[1:] = (block[1:] != block[:-1]) | (name[1:] != name[:-1])
    starts = np.flatnonzero(is_new)
    total, block, name = np.add.reduceat(duration[order], starts), block[starts], name[starts]
    ranked = np.lexsort((name, -total, block))
    leads = np.ones(len(ranked), np.bool_)
    leads[1:] = block[ranked][1:] != block[ranked][:-1]
    return np.asarray(name[ranked[leads]], np.int32)
