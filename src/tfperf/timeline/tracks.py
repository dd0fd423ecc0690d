"""Tracks: events of one line that overlap without nesting go to tracks of their own; begins and ends in order.

A viewer keeps a stack of open slices for each track, so on one track an event must end before the one around it does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tfperf.arrays import Bools, Int64s
from tfperf.timeline.model import Track
from tfperf.trace.nesting import nest

Uint8s = npt.NDArray[np.uint8]

BEGIN, END, INSTANT = 1, 2, 3
"""What a mark is; the numbers are those of Perfetto's events."""


_ROUNDS = 8
"""Of dealing out events to tracks, before each gets a track on which nothing nests."""


class Marks(NamedTuple):
    """What happens on tracks, in order: `kind` at the event in row `event`."""

    event: Int64s
    kind: Uint8s


def split(begin: Int64s, end: Int64s) -> Int64s:
    """Return the track of each event of a line, 0 where all of them nest.

    Rows are sorted by begin, the longer first. An event that begins inside an earlier one and ends after it crosses it.
    Those that cross none nest among each other and stay on track 0. Of the others, the outermost are dealt out to
    tracks on which they do not overlap, and what is inside goes with them; what crosses even then has another round.
    An event without duration crosses nothing.
    """
    track = np.zeros(len(begin), np.int64)
    rest = np.flatnonzero(end > begin)
    running = np.arange(len(rest)) - np.searchsorted(np.sort(end[rest]), begin[rest], side="right")
    if bool((running == nest(begin[rest], end[rest]).depth).all()):
        return track
    rest = rest[_crosses(np.zeros(len(rest), np.int64), begin[rest], end[rest])]
    used = 1
    for last in [False] * _ROUNDS + [True]:
        if not len(rest):
            break
        lane, crosses = _round(begin[rest], end[rest], flat=last)
        track[rest[~crosses]] = used + lane[~crosses]
        used, rest = used + int(lane.max()) + 1, rest[crosses]
    return track


def _round(begin: Int64s, end: Int64s, *, flat: bool) -> tuple[Int64s, Bools]:
    """Return a track for each event, and which events cross another there: none if the tracks are to be flat."""
    if flat:
        return _deal(begin, end), np.zeros(len(begin), np.bool_)
    outer = nest(begin, end).parent
    top = np.flatnonzero(outer < 0)
    lane = np.zeros(len(begin), np.int64)
    lane[top] = _deal(begin[top], end[top])
    outer[top] = top
    while bool((outer[outer] != outer).any()):
        outer = outer[outer]
    lane = lane[outer]
    order = np.argsort(lane, kind="stable")
    crosses = np.empty(len(begin), np.bool_)
    crosses[order] = _crosses(lane[order], begin[order], end[order])
    return lane, crosses


def _crosses(lane: Int64s, begin: Int64s, end: Int64s) -> Bools:
    """Tell which events end after an earlier one that they began in; rows are sorted by lane, begin, longer first.

    Walk through begins and ends in order. After the begin of an event, the first end of it or of an earlier row is its
    own, or it crosses that row. Rows from behind and ends from the last make that a search for a parent.
    """
    count = len(begin)
    order = _order(lane, begin, end)
    place = np.empty(2 * count, np.int64)
    place[order] = np.arange(2 * count)
    owner, last = order % count, 2 * count - 1
    found = nest(np.arange(2 * count), 4 * count - owner[::-1]).parent
    return np.asarray(last - found[last - place[:count]] != place[count:])


def _order(lane: Int64s, begin: Int64s, end: Int64s) -> Int64s:
    """Return begins (numbers of rows) and ends (those plus the count) by lane and time.

    At one time, ends come first, the inner before the outer, then begins, the outer before the inner.
    """
    row = np.arange(len(begin))
    is_begin = np.arange(2 * len(begin)) < len(begin)
    keys = (np.concatenate((row, -row)), is_begin, np.concatenate((begin, end)), np.concatenate((lane, lane)))
    return np.lexsort(keys)


def _deal(begin: Int64s, end: Int64s) -> Int64s:
    """Return for each event a track that is free when it begins; rows are sorted by begin.

    With at most k events at once there are k tracks. They are handed out in the order in which they became free, so an
    event gets the track of the one whose end was the k-th before: a chain, followed by pointers that double.
    """
    count = len(begin)
    by_end = np.argsort(end, kind="stable")
    running = np.arange(1, count + 1) - np.searchsorted(end[by_end], begin, side="right")
    most = int(running.max())
    before = np.concatenate((np.arange(min(most, count)), by_end[: count - most]))
    while bool((before >= most).any()):
        before = before[before]
    return np.asarray(before, np.int64)


def nested_marks(begin: Int64s, end: Int64s) -> Marks:
    """Return the marks of one track whose events nest; rows are sorted by begin, the longer first.

    At one time, ends come first (the inner before the outer), then begins (the outer before the inner), then instants.
    So the place of a mark is the number of marks before it: those of rows before, and ends up to then.
    """
    is_slice = end > begin
    slices, instants = np.flatnonzero(is_slice), np.flatnonzero(~is_slice)
    opened, closed, moment = begin[slices], end[slices], begin[instants]
    ends = np.sort(closed)
    number, marks = np.arange(len(slices)), 2 * len(slices) + len(instants)
    depth = number - np.searchsorted(ends, opened, side="right")
    place_of_begin = 2 * number - depth + np.searchsorted(moment, opened, side="left")
    begun = np.searchsorted(opened, closed, side="left")
    place_of_end = 2 * begun - depth - 1 + np.searchsorted(moment, closed, side="left")
    past = np.searchsorted(opened, moment, side="right") + np.searchsorted(ends, moment, side="right")
    event, kind = np.empty(marks, np.int64), np.empty(marks, np.uint8)
    place_of_instant = past + np.arange(len(instants))
    for place, rows, what in (
        (place_of_begin, slices, BEGIN), (place_of_end, slices, END), (place_of_instant, instants, INSTANT),
    ):  # fmt: skip
        event[place], kind[place] = rows, what
    return Marks(event, kind)


def lane_marks(lane: Int64s, begin: Int64s, end: Int64s) -> Marks:
    """Return the marks of several tracks, on which slices nest; rows are sorted by track, begin, the longer first."""
    order = _order(lane, begin, end)
    return Marks(order % len(begin), np.where(order < len(begin), BEGIN, END).astype(np.uint8))


def marks_of_tracks(tracks: Sequence[Track], begin: Int64s, end: Int64s) -> Marks:
    """Return the marks of all tracks, one after the other; begins and instants are in order of rows."""
    parts = []
    for some in _blocks(tracks):
        start, stop = some[0].start, some[-1].stop
        opened, closed = begin[start:stop], end[start:stop]
        if some[0].extra:
            lane = np.repeat(np.arange(len(some)), [track.stop - track.start for track in some])
            found = lane_marks(lane, opened, closed)
        else:
            found = nested_marks(opened, closed)
        parts.append(Marks(found.event + start, found.kind))
    if not parts:
        return Marks(np.empty(0, np.int64), np.empty(0, np.uint8))
    return Marks(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _blocks(tracks: Sequence[Track]) -> Iterator[list[Track]]:
    """Iterate over single tracks, and runs of extra ones: of these there may be very many."""
    for extra, some in groupby(tracks, key=lambda track: track.extra):
        if extra:
            yield list(some)
        else:
            yield from ([track] for track in some)
