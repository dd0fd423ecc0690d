"""Tensor element types with TensorFlow's numbers (`DataType`), and tensor shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from tfperf.base.arrays import MOST, Bools, Int64s, ranges

Dims = tuple[int, ...]

_NUMBERS: Mapping[int, str] = {
    1: "float32",
    2: "float64",
    3: "int32",
    4: "uint8",
    5: "int16",
    6: "int8",
    7: "string",
    8: "complex64",
    9: "int64",
    10: "bool",
    11: "qint8",
    12: "quint8",
    13: "qint32",
    14: "bfloat16",
    15: "qint16",
    16: "quint16",
    17: "uint16",
    18: "complex128",
    19: "float16",
    20: "resource",
    21: "variant",
    22: "uint32",
    23: "uint64",
    24: "float8_e5m2",
    25: "float8_e4m3fn",
    26: "float8_e4m3fnuz",
    27: "float8_e4m3b11fnuz",
    28: "float8_e5m2fnuz",
    29: "int4",
    30: "uint4",
    31: "int2",
    32: "uint2",
    33: "float4_e2m1fn",
}
_SMALL_FLOATS = frozenset(
    ("float8_e5m2", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e4m3b11fnuz", "float8_e5m2fnuz", "float4_e2m1fn")
)
_SMALL_INTEGERS = frozenset(("int4", "uint4", "int2", "uint2"))  # stored with one byte each, in files and in memory
_NO_SIZE = frozenset(("string", "resource", "variant"))
_WRITTEN = {"float": "float32", "double": "float64", "half": "float16"}
_REFERENCE = 100  # offset of the type numbers of references
RESOURCE = 20


def dtype_name(number: int) -> str:
    """Return the name of a type number, such as `float32`; empty for an unknown number."""
    return _NUMBERS.get(number - _REFERENCE if number > _REFERENCE else number, "")


def dtype_number(written: str) -> int:
    """Return the number of a type in protobuf text format, without `DT_`; 0 for an unknown type."""
    name = written.removesuffix("_REF").lower()
    name = _WRITTEN.get(name, name)
    number = next((number for number, known in _NUMBERS.items() if known == name), 0)
    return number + _REFERENCE if number and written.endswith("_REF") else number


def bytes_of_element(name: str) -> int | None:
    """Return the bytes per element; None if they vary or the type is unknown."""
    if not name or name in _NO_SIZE:
        return None
    if name in _SMALL_FLOATS or name in _SMALL_INTEGERS:
        return 1
    if name == "bfloat16":
        return 2
    try:
        return np.dtype(name.removeprefix("q")).itemsize
    except TypeError:
        return None


def holds_parameters(name: str) -> bool:
    """Return whether variables of a type may be parameters.

    Integers of 16 bits or more are counters or seeds; smaller ones are quantized weights.
    """
    is_real = not name or "float" in name or "complex" in name
    return is_real or name in ("int8", "uint8") or name.startswith("q") or name in _SMALL_INTEGERS


def has_numbers(name: str) -> bool:
    """Return whether elements of a type can be read as numbers."""
    return bytes_of_element(name) is not None and name not in _SMALL_FLOATS and name not in _SMALL_INTEGERS


def as_numbers(data: bytes, name: str) -> npt.NDArray[np.generic]:
    """Return stored elements of a type that `has_numbers`; bfloat16 becomes float32."""
    if name == "bfloat16":
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
    dtype = np.dtype(name.removeprefix("q")).newbyteorder("<")
    return np.frombuffer(data, dtype)


class Shapes(Struct, frozen=True):
    """Shapes of tensors: `size[ends[i]:ends[i + 1]]` are the dimensions of the i-th, -1 if unknown.

    `known` marks the shapes with a rank. A scalar has one dimension of size 1, as in tfprof.
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
        """Return the number of elements of each shape: 0 if it is unknown or exceeds an int64."""
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
        """Return these shapes in this order; -1 gives an unknown shape."""
        there = rows >= 0
        at = np.maximum(rows, 0)
        if not len(self):
            return Shapes(np.zeros(len(rows) + 1, np.int64), np.empty(0, np.int64), there)
        length = np.where(there, np.diff(self.ends)[at], 0)
        ends = np.concatenate(([0], np.cumsum(length)))
        return Shapes(ends, self.size[ranges(self.ends[at], length)], there & self.known[at])

    def followed_by(self, more: Shapes) -> Shapes:
        """Return these shapes followed by `more`."""
        return Shapes(
            np.concatenate((self.ends, self.ends[-1] + more.ends[1:])),
            np.concatenate((self.size, more.size)),
            np.concatenate((self.known, more.known)),
        )


def shapes(dims: Sequence[Sequence[int] | None]) -> Shapes:
    """Return shapes from their dimensions; None is an unknown shape."""
    ends = np.zeros(len(dims) + 1, np.int64)
    np.cumsum([len(shape or ()) for shape in dims], out=ends[1:])
    size = [number for shape in dims for number in shape or ()]
    return Shapes(ends, np.array(size, np.int64), np.array([shape is not None for shape in dims], np.bool_))


def shape_text(dims: Sequence[int]) -> str:
    """Format dimensions, for example `784x128`."""
    return "x".join(map(str, dims)) or "scalar"
