"""The starts and ends of slices, and instants, in the order in which a file of Perfetto lists them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from tfperf.arrays import Int64s, Uint8s
from tfperf.timeline.host_timeline import Track
from tfperf.timeline.overlaps import start_end_order

START, END, INSTANT = 1, 2, 3
"""What a mark is; the numbers are those of Perfetto's events."""


class Marks(NamedTuple):
    """What happens on tracks, in order: `kind` at the event in row `event`."""

    event: Int64s
    kind: Uint8s


def marks_of_tracks(tracks: Sequence[Track], start: Int64s, end: Int64s) -> Marks:
    """Return the marks of all tracks, one after the other; starts and instants are in order of rows."""
    parts = []
    for block in _blocks(tracks):
        first, stop = block[0].start, block[-1].stop
        if block[0].extra:
            lane = np.repeat(np.arange(len(block)), [track.stop - track.start for track in block])
            marks = lane_marks(lane, start[first:stop], end[first:stop])
        else:
            marks = nested_marks(start[first:stop], end[first:stop])
        parts.append(Marks(marks.event + first, marks.kind))
    if not parts:
        return Marks(np.empty(0, np.int64), np.empty(0, np.uint8))
    return Marks(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _blocks(tracks: Sequence[Track]) -> Iterator[list[Track]]:
    """Iterate over single tracks, and runs of extra ones: of these there may be very many."""
    for extra, block in groupby(tracks, key=lambda track: track.extra):
        if extra:
            yield list(block)
        else:
            yield from ([track] for track in block)


def nested_marks(start: Int64s, end: Int64s) -> Marks:
    """Return the marks of one track whose events nest; rows are sorted by start, the longer first.

    At one time, ends come first (the inner before the outer), then starts (the outer before the inner), then instants.
    So the place of a mark is the number of marks before it: those of rows before, and ends up to then.
    """
    is_slice = end > start
    slices, instants = np.flatnonzero(is_slice), np.flatnonzero(~is_slice)
    starts, own_ends, moments = start[slices], end[slices], start[instants]
    ends = np.sort(own_ends)
    number, count = np.arange(len(slices)), 2 * len(slices) + len(instants)
    depth = number - np.searchsorted(ends, starts, side="right")
    place_of_start = 2 * number - depth + np.searchsorted(moments, starts, side="left")
    started = np.searchsorted(starts, own_ends, side="left")
    place_of_end = 2 * started - depth - 1 + np.searchsorted(moments, own_ends, side="left")
    marks_before = np.searchsorted(starts, moments, side="right") + np.searchsorted(ends, moments, side="right")
    place_of_instant = marks_before + np.arange(len(instants))
    event, kind = np.empty(count, np.int64), np.empty(count, np.uint8)
    event[place_of_start], kind[place_of_start] = slices, START
    event[place_of_end], kind[place_of_end] = slices, END
    event[place_of_instant], kind[place_of_instant] = instants, INSTANT
    return Marks(event, kind)


def lane_marks(lane: Int64s, start: Int64s, end: Int64s) -> Marks:
    """Return the marks of several tracks, on which slices nest; rows are sorted by track, start, the longer first."""
    order = start_end_order(lane, start, end)
    return Marks(order % len(start), np.where(order < len(start), START, END).astype(np.uint8))
