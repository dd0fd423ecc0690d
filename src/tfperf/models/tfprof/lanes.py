"""Lanes in which intervals do not overlap."""

from __future__ import annotations

import numpy as np

from tfperf.base.arrays import Int64s

_ROUNDS = 200
"""Lanes that are filled one after the other, before the rest gets one each."""


def lanes(start: Int64s, end: Int64s) -> Int64s:
    """Return for each interval the first lane that is free when it starts; intervals are sorted by start.

    One without length takes its lane for a moment all the same. A lane is a chain: from an interval to the first that
    starts when it has ended. Pointers that double find it, without a step for each interval.
    """
    lane = np.zeros(len(start), np.int64)
    end = np.maximum(end, start + 1)
    rest = np.arange(len(start))
    for number in range(_ROUNDS):
        if not len(rest):
            return lane
        taken = _chain(np.searchsorted(start[rest], end[rest]))
        lane[rest[taken]] = number
        rest = np.delete(rest, taken)
    lane[rest] = _ROUNDS + np.arange(len(rest))
    return lane


def _chain(following: Int64s) -> Int64s:
    """Return the places that are reached from the first; from the last, one comes to a place behind all."""
    count = len(following)
    jump = np.concatenate((following, [count]))
    taken = np.zeros(1, np.int64)
    while True:
        further = jump[taken]
        further = further[further < count]
        if not len(further):
            return taken
        taken = np.concatenate((taken, further))
        jump = jump[jump]
