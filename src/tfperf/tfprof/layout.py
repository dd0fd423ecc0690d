"""Rows of a view as boxes: each as wide as its total, inside the row above it, siblings beside each other."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from tfperf.arrays import Int64s
from tfperf.tfprof.attributes import PLACE, Attribute
from tfperf.tfprof.tree import Shown, parents

_LARGEST = 1 << 62


class Boxes(Struct, frozen=True, kw_only=True):
    """Where the box of each row begins, how wide it is, and how many rows are above it."""

    start: Int64s
    width: Int64s
    level: Int64s


def layout(shown: Shown, attribute: Attribute) -> Boxes:
    """Return the boxes of all rows of a view, by the totals of an attribute.

    A box begins where that of the sibling before it ends, the first where the one above begins. None is negative, nor
    narrower than what is in it, whatever was recorded.
    """
    above = parents(shown.tree.depth).tolist()
    width = np.maximum(shown.total[PLACE[attribute]], 0).tolist()
    inside = [0] * len(width)
    for row in range(len(width) - 1, 0, -1):
        width[row] = max(width[row], inside[row])
        inside[above[row]] += width[row]
    width[0] = max(width[0], inside[0])
    start, free = [0] * len(width), [0] * len(width)
    for row in range(1, len(width)):
        start[row] = free[row] = free[above[row]]
        free[above[row]] += width[row]
    level = np.asarray(shown.tree.depth - shown.tree.depth[0], np.int64)
    return Boxes(start=_numbers(start), width=_numbers(width), level=level)


def _numbers(values: list[int]) -> Int64s:
    return np.array([min(value, _LARGEST) for value in values], np.int64)
