"""Serialize millions of small protobuf messages from columns with NumPy, without Python code per message.

Each message is a row of *cells*: bytes and a mask of used ones, because varints have different lengths. Fields are
joined horizontally, messages and their repeated items vertically; the used bytes, row by row, are the result.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Bools, Int64s, Numbers, Uint8s, ranges

_LARGER = np.array([1 << 7 * size for size in range(1, 10)], np.uint64)
"""At each of these numbers, a varint becomes one byte longer."""


class Cells(Struct, frozen=True):
    """Messages, one row each: adjacent `parts` (bytes, used mask), joined late; `size` is used bytes per row."""

    parts: tuple[tuple[Uint8s, Bools], ...]
    size: Int64s

    @staticmethod
    def of(data: Uint8s, used: Bools, size: Int64s) -> Cells:
        """Return cells of one part."""
        return Cells(((data, used),), size)

    @property
    def width(self) -> int:
        """Return the maximum bytes per row."""
        return sum(data.shape[1] for data, _ in self.parts)

    def only(self, where: Bools) -> Cells:
        """Return the cells, empty in rows outside `where`."""
        column = where[:, None]
        return Cells(tuple((data, used & column) for data, used in self.parts), self.size * where)

    def laid_out(self, width: int) -> tuple[Uint8s, Bools]:
        """Return all parts as one of the given width, with the mask of used bytes."""
        data, used = np.empty((len(self.size), width), np.uint8), np.zeros((len(self.size), width), np.bool_)
        np.concatenate([part for part, _ in self.parts], axis=1, out=data[:, : self.width])
        np.concatenate([mask for _, mask in self.parts], axis=1, out=used[:, : self.width])
        return data, used

    def to_bytes(self) -> bytes:
        """Return the used bytes, row by row."""
        data, used = self.laid_out(self.width)
        return data[used].tobytes()


def constant(data: bytes, count: int) -> Cells:
    """Return the same bytes in every row."""
    row = np.frombuffer(data, np.uint8)
    shape = (count, len(data))
    return Cells.of(np.broadcast_to(row, shape), np.broadcast_to(np.True_, shape), np.full(count, len(data), np.int64))


def varint(values: Numbers) -> Cells:
    """Encode numbers as varints; negative ones take ten bytes, as in protobuf."""
    rest: Numbers = values.astype(np.int64).view(np.uint64) if values.dtype.kind == "i" else values.astype(np.uint64)
    most = int(rest.max(initial=0))
    if most < _LARGER[0]:
        single = rest.astype(np.uint8)[:, None]
        return Cells.of(single, np.broadcast_to(np.True_, single.shape), np.ones(len(rest), np.int64))
    size = 1 + np.searchsorted(_LARGER, rest, side="right")
    if most < 1 << 32:
        rest = rest.astype(np.uint32)
    width = int(size.max())
    data = np.empty((len(rest), width), np.uint8)
    for place in range(width):
        data[:, place] = rest & 0x7F
        rest = rest >> 7
        data[:, place] |= (rest != 0).view(np.uint8) << 7
    return Cells.of(data, np.arange(width) < size[:, None], size)


def one_varint(number: int) -> bytes:
    """Encode one non-negative number as a varint."""
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


def fixed64(values: Numbers) -> Cells:
    """Encode numbers as eight bytes each."""
    data = np.ascontiguousarray(values).astype(values.dtype.newbyteorder("<"), copy=False).view(np.uint8).reshape(-1, 8)
    return Cells.of(data, np.broadcast_to(np.True_, data.shape), np.full(len(values), 8, np.int64))


def beside(first: Cells, *others: Cells) -> Cells:
    """Join cells horizontally."""
    size = first.size
    for cells in others:
        size = size + cells.size
    return Cells(tuple(part for cells in (first, *others) for part in cells.parts), size)


def prefixed(tag: bytes, body: Cells, extra: Numbers | int = 0) -> Cells:
    """Return a nested message with its tag and length, which includes `extra` bytes that `below` adds."""
    return beside(constant(tag, len(body.size)), varint(body.size + extra), body)


def sums(counts: Numbers, items: Cells) -> Int64s:
    """Return the bytes of each row's items, given their counts."""
    stops = np.concatenate(([0], np.cumsum(items.size)))
    ends = np.cumsum(counts)
    return np.asarray(stops[ends] - stops[ends - counts], np.int64)


def below(heads: Cells, *repeated: tuple[Numbers, Cells]) -> bytes:
    """Return each head's bytes followed by its items; `repeated` has items per head, and all items in order."""
    everything = [heads, *(items for _, items in repeated)]
    width = max(cells.width for cells in everything)
    count = sum(len(cells.size) for cells in everything)
    data, used = np.empty((count, width), np.uint8), np.empty((count, width), np.bool_)
    each: Numbers = np.ones(len(heads.size), np.int64)
    for counts, _ in repeated:
        each = each + counts
    place = np.cumsum(each) - each
    _put(data, used, place, heads)
    place = place + 1
    for counts, items in repeated:
        _put(data, used, ranges(place, counts), items)
        place = place + counts
    return data[used].tobytes()


def _put(data: Numbers, used: Bools, rows: Numbers, cells: Cells) -> None:
    width = data.shape[1]
    for target, source in zip((data, used), cells.laid_out(width), strict=True):
        target.view(f"V{width}")[rows, 0] = source.view(f"V{width}")[:, 0]
