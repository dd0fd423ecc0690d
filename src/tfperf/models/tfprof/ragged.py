"""Lists of lists of numbers as arrays: the shapes of tensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import MOST, Bools, Int64s, ranges


class Shapes(Struct, frozen=True):
    """Shapes of tensors: `size[ends[i]:ends[i + 1]]` are the dimensions of the i-th, -1 where one is not known.

    `known` says which shapes have a rank. A scalar has one dimension of size 1, as tfprof writes it.
    """

    ends: Int64s
    size: Int64s
    known: Bools

    def __len__(self) -> int:
        return len(self.known)

    def dims(self, shape: int) -> tuple[int, ...]:
        """Return the dimensions of a shape."""
        return tuple(self.size[self.ends[shape] : self.ends[shape + 1]].tolist())

    def elements(self) -> Int64s:
        """Return how many elements each shape has: 0 where that is not known, or is more than an int64 holds."""
        count = np.zeros(len(self), np.int64)
        rows = np.flatnonzero(np.diff(self.ends) > 0)
        if len(rows):
            first = self.ends[rows]
            with np.errstate(over="ignore", invalid="ignore"):
                rough = np.multiply.reduceat(self.size.astype(np.float64), first)
            is_known = (np.minimum.reduceat(self.size, first) >= 0) & ~(rough > MOST)
            count[rows] = np.where(is_known, np.multiply.reduceat(self.size, first), 0)
        return count

    def take(self, rows: Int64s) -> Shapes:
        """Return these shapes, in this order; -1 stands for one that is not known."""
        there = rows >= 0
        at = np.maximum(rows, 0)
        if not len(self):
            return Shapes(np.zeros(len(rows) + 1, np.int64), np.empty(0, np.int64), there)
        length = np.where(there, np.diff(self.ends)[at], 0)
        ends = np.concatenate(([0], np.cumsum(length)))
        return Shapes(ends, self.size[ranges(self.ends[at], length)], there & self.known[at])

    def followed_by(self, more: Shapes) -> Shapes:
        """Return these shapes and more."""
        return Shapes(
            np.concatenate((self.ends, self.ends[-1] + more.ends[1:])),
            np.concatenate((self.size, more.size)),
            np.concatenate((self.known, more.known)),
        )


def shapes(dims: Sequence[Sequence[int] | None]) -> Shapes:
    """Return shapes from their dimensions; None for one that is not known."""
    ends = np.zeros(len(dims) + 1, np.int64)
    np.cumsum([len(shape or ()) for shape in dims], out=ends[1:])
    size = [number for shape in dims for number in shape or ()]
    return Shapes(ends, np.array(size, np.int64), np.array([shape is not None for shape in dims], np.bool_))
