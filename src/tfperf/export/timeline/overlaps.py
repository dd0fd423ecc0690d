"""Events of one line that overlap without nesting go to tracks of their own.

A viewer keeps a stack of open slices for each track, so on one track an event must end before the one around it does.
"""

from __future__ import annotations

import numpy as np

from tfperf.base.arrays import Bools, Int64s
from tfperf.trace.nesting import nest

_ROUNDS = 8
"""Of dealing out events to tracks, before the rest goes to tracks on which nothing nests."""


def assign_tracks(start: Int64s, end: Int64s) -> Int64s:
    """Return the track of each event of a line, 0 where all of them nest.

    Rows are sorted by start, the longer first. An event that starts inside an earlier one and ends after it crosses it.
    Those that cross none nest among each other and stay on track 0. Of the others, the outermost are dealt out to
    tracks on which they do not overlap, and what is inside goes with them; what crosses even then has another round.
    An event without duration crosses nothing.
    """
    track = np.zeros(len(start), np.int64)
    rest = np.flatnonzero(end > start)
    running = np.arange(len(rest)) - np.searchsorted(np.sort(end[rest]), start[rest], side="right")
    if bool((running == nest(start[rest], end[rest]).depth).all()):
        return track
    rest = rest[_crosses(np.zeros(len(rest), np.int64), start[rest], end[rest])]
    used = 1
    for _ in range(_ROUNDS):
        if not len(rest):
            return track
        lane, crosses = _round(start[rest], end[rest])
        track[rest[~crosses]] = used + lane[~crosses]
        used, rest = used + int(lane.max()) + 1, rest[crosses]
    track[rest] = used + _deal(start[rest], end[rest])
    return track


def _round(start: Int64s, end: Int64s) -> tuple[Int64s, Bools]:
    """Return a track for each event, and which events cross another there."""
    outer = nest(start, end).parent
    top = np.flatnonzero(outer < 0)
    lane = np.zeros(len(start), np.int64)
    lane[top] = _deal(start[top], end[top])
    outer[top] = top
    while bool((outer[outer] != outer).any()):
        outer = outer[outer]
    lane = lane[outer]
    order = np.argsort(lane, kind="stable")
    crosses = np.empty(len(start), np.bool_)
    crosses[order] = _crosses(lane[order], start[order], end[order])
    return lane, crosses


def _crosses(lane: Int64s, start: Int64s, end: Int64s) -> Bools:
    """Tell which events end after an earlier one that they started in; rows are sorted by lane, start, longer first.

    Walk through starts and ends in order. After the start of an event, the first end of it or of an earlier row is its
    own, or it crosses that row. Rows from behind and ends from the last make that a search for a parent.
    """
    count = len(start)
    order = start_end_order(lane, start, end)
    place = np.empty(2 * count, np.int64)
    place[order] = np.arange(2 * count)
    row, last = order % count, 2 * count - 1
    parent = nest(np.arange(2 * count), 4 * count - row[::-1]).parent
    return np.asarray(last - parent[last - place[:count]] != place[count:])


def start_end_order(lane: Int64s, start: Int64s, end: Int64s) -> Int64s:
    """Return starts (numbers of rows) and ends (those plus the count) by lane and time.

    At one time, ends come first, the inner before the outer, then starts, the outer before the inner.
    """
    row = np.arange(len(start))
    is_start = np.arange(2 * len(start)) < len(start)
    keys = (np.concatenate((row, -row)), is_start, np.concatenate((start, end)), np.concatenate((lane, lane)))
    return np.lexsort(keys)


def _deal(start: Int64s, end: Int64s) -> Int64s:
    """Return for each event a track that is free when it starts; rows are sorted by start.

    With at most k events at once there are k tracks. They are handed out in the order in which they became free, so an
    event gets the track of the one whose end was the k-th before: a chain, followed by pointers that double.
    """
    count = len(start)
    by_end = np.argsort(end, kind="stable")
    running = np.arange(1, count + 1) - np.searchsorted(end[by_end], start, side="right")
    most = int(running.max(initial=0))
    before = np.concatenate((np.arange(min(most, count)), by_end[: count - most]))
    while bool((before >= most).any()):
        before = before[before]
    return np.asarray(before, np.int64)
