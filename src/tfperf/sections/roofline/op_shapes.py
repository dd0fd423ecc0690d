"""The shapes of an op's inputs as TensorFlow's profiler writes them: `(half[4,384,1024];int32[2];)`.

TensorFlow writes them if it traces at level 3 (`--host-tracer-level 3`), and did always in 2.2. Inputs that are no
tensors (variables, missing ones) have an empty place. What an op puts out, and its attributes, are not in the trace.
"""

from __future__ import annotations

import re
from math import prod
from typing import NamedTuple

from tfperf.base.arrays import MOST
from tfperf.trace.device.device_peaks import Precision

_TENSOR = r"([a-z][a-z0-9_]*)\[([0-9,]*)\]"
_LONGEST = 4096
_SIZES = {"bool": 1, "half": 2, "bfloat16": 2, "float": 4, "double": 8, "complex64": 8, "complex128": 16}
_SIZES |= {f"{sign}int{bits}": bits // 8 for sign in ("", "u", "q", "qu") for bits in (8, 16, 32, 64)}
_PRECISIONS: dict[str, Precision] = {"double": "fp64", "float": "fp32", "half": "fp16", "bfloat16": "bf16"}
_PRECISIONS |= dict.fromkeys(("int8", "uint8", "qint8", "quint8"), "int8")


class Tensor(NamedTuple):
    """The type of a tensor's elements, as TensorFlow calls it, and its dimensions."""

    type: str
    dims: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Return how many elements it has."""
        return prod(self.dims)

    @property
    def bytes(self) -> int | None:
        """Return its size; None for elements without a fixed size (strings)."""
        size = _SIZES.get(self.type)
        return None if size is None else size * self.elements

    @property
    def precision(self) -> Precision | None:
        """Return the peak that products of such numbers are held against; None: devices state none."""
        return _PRECISIONS.get(self.type)


def parse_shapes(text: str) -> tuple[Tensor | None, ...] | None:
    """Return the inputs of an op, None in the place of one that is no tensor; None if the text is anything else."""
    if not text.startswith("(") or not text.endswith(")") or len(text) >= _LONGEST:
        return None
    inputs: list[Tensor | None] = []
    for part in text[1:-1].split(";"):
        match = re.fullmatch(_TENSOR, part)
        dims = [] if match is None or not match[2] else match[2].split(",")
        if (match is None and part) or not all(dim and len(dim) < len(str(MOST)) for dim in dims):
            return None
        inputs.append(None if match is None else Tensor(match[1], tuple(map(int, dims))))
    return tuple(inputs)


def bytes_of(*tensors: Tensor) -> int | None:
    """Return the size of several tensors; None if that of any is unknown."""
    sizes = [tensor.bytes for tensor in tensors]
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the shape of an elementwise op on tensors of these shapes; None if they do not go together."""
    rank = max(map(len, shapes), default=0)
    result = []
    for sizes in zip(*((1,) * (rank - len(shape)) + shape for shape in shapes), strict=True):
        wide = {size for size in sizes if size != 1}
        if len(wide) > 1:
            return None
        result.append(wide.pop() if wide else 1)
    return tuple(result)
