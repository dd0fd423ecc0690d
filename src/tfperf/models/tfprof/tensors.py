"""What the two versions of checkpoints share: tensors, and where pieces of them lie."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError
from msgspec import Struct

from tfperf.models.tfprof.dtypes import dtype_name
from tfperf.models.tfprof.input_file import InputFile
from tfperf.models.tfprof.messages import TENSORFLOW

Numbers = npt.NDArray[np.generic]
Place = tuple[slice, ...]
"""Where a piece lies in its tensor."""
LARGE = 1 << 26
"""Bytes of values that are looked at together."""
_MOST_ELEMENTS = 1 << 60
_MOST_DIMS = 254
"""Of a tensor in TensorFlow."""
_END_OF_NAME = b"\0\x01"


class Tensor(Struct, frozen=True):
    """A tensor: its dimensions, and the name of its type."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def elements(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)


def shape_text(shape: tuple[int, ...]) -> str:
    """Return dimensions as people write them: `784x128`."""
    return "x".join(map(str, shape)) or "scalar"


def message(file: InputFile, kind: str, data: bytes) -> Any:
    """Return a decoded message; raises TfprofInputError."""
    try:
        return TENSORFLOW.message_class(kind).FromString(data)
    except DecodeError as error:
        raise file.damaged(0, f"not a valid {kind}") from error


def tensor_of(file: InputFile, name: str, shape: Any, number: int) -> Tensor:
    """Return a tensor of a `Shape` and the number of a type; raises TfprofInputError."""
    dims = tuple(int(dim.size) for dim in shape.dim)
    is_odd = shape.unknown_rank or len(dims) > _MOST_DIMS or any(size < 0 for size in dims)
    if is_odd or math.prod(dims) > _MOST_ELEMENTS:
        raise file.damaged(0, f"{name} has no shape that is known")
    return Tensor(dims, dtype_name(number))


def place_of(file: InputFile, name: str, tensor: Tensor, cut: Any) -> Place:
    """Return where a slice (`TensorSlice`) lies in its tensor; raises TfprofInputError."""
    extents = [(dim.start, dim.length) for dim in cut.extent] or [(0, 0)] * len(tensor.shape)
    if len(extents) != len(tensor.shape):
        raise file.damaged(0, f"a piece of {name} has other dimensions")
    sizes = dict(enumerate(tensor.shape))
    # Without a length it is all of the dimension.
    ends = [(start, start + length if length > 0 else sizes[at]) for at, (start, length) in enumerate(extents)]
    if any(not 0 <= start <= stop <= sizes[at] for at, (start, stop) in enumerate(ends)):
        raise file.damaged(0, f"a piece of {name} lies outside of it")
    return tuple(slice(start, stop) for start, stop in ends)


def elements_of(place: Place) -> int:
    """Return how many elements a piece has."""
    return math.prod(each.stop - each.start for each in place)


def by_name(keys: Iterable[bytes]) -> Mapping[bytes, list[bytes]]:
    """Return the keys of pieces by the name of their tensor, in the order of where the pieces start.

    Such a key is a zero, the name, its end, and numbers that are written so that they are in order as bytes.
    """
    found: dict[bytes, list[bytes]] = {}
    for key in sorted(keys):
        name, _, _ = key[1:].partition(_END_OF_NAME)
        found.setdefault(name.replace(b"\0\xff", b"\0"), []).append(key)
    return found
