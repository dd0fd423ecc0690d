"""The cost of padding: devices compute on tiles, so dimensions are rounded up to multiples of the tile's sides."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from typing import Literal

from msgspec import Struct

from tfperf.base.units import format_bytes
from tfperf.formats.models.dtypes import Dims, shape_text

Level = Literal["high", "medium", "low", "info"]
LEVELS: tuple[Level, ...] = ("high", "medium", "low", "info")

MIB = 1 << 20  # minimum padded size of a tensor with high severity
SUBLANES, LANES = 8, 128  # sides of a TPU tile: multiples of the second-minor and of the minor dimension
LARGE_BATCH = 64  # batch size from which TPU convolutions put the batch on the lanes
GENERAL_TILING = "general tiling, to 8 and 128 in any order"
_HIGH, _MEDIUM = 2.0, 1.25


class Padding(Struct, frozen=True, dict=True):
    """The dimensions of a tensor, and their padded sizes."""

    dims: Dims
    padded: Dims

    @cached_property
    def elements(self) -> int:
        """Number of elements before padding."""
        return math.prod(self.dims)

    @cached_property
    def padded_elements(self) -> int:
        """Number of elements that are stored and computed on."""
        return math.prod(self.padded)

    @property
    def ratio(self) -> float:
        """Padded elements divided by elements; 1 for an empty tensor."""
        return self.padded_elements / self.elements if self.elements else 1.0

    @property
    def waste(self) -> float:
        """Share of padding in the padded elements, from 0 to 1."""
        return 1.0 - self.elements / self.padded_elements if self.elements else 0.0


class PaddedTensor(Struct, frozen=True, kw_only=True):
    """A tensor of an op with its minimum and maximum padding over the layouts that the compiler may choose."""

    role: str
    least: Padding
    most: Padding
    element_bytes: int

    @property
    def padded_bytes(self) -> int:
        """Minimum number of bytes with padding."""
        return self.least.padded_elements * self.element_bytes

    @property
    def wasted_bytes(self) -> int:
        """Minimum number of bytes of padding."""
        return self.padded_bytes - self.least.elements * self.element_bytes

    @property
    def level(self) -> Level:
        """Severity of the padding in the least wasteful layout."""
        return level_of(self.least.ratio, self.padded_bytes)


def pad(size: int, multiple: int) -> int:
    """Return the smallest multiple that is not less than a size."""
    return -(-size // multiple) * multiple


def padding(dims: Sequence[int], multiples: Sequence[int]) -> Padding:
    """Return the padding of known dimensions to their multiples; a multiple of 1 adds no padding."""
    if len(dims) != len(multiples) or any(size < 0 for size in dims):
        raise ValueError(f"dimensions {dims} are unknown, or not {len(multiples)}")
    return Padding(tuple(dims), tuple(pad(size, multiple) for size, multiple in zip(dims, multiples, strict=True)))


def with_multiples(dims: Sequence[int], of_dim: dict[int, int]) -> Padding:
    """Return the padding of some dimensions; the others stay."""
    return padding(dims, [of_dim.get(dim, 1) for dim in range(len(dims))])


def in_layouts(role: str, layouts: Iterable[Padding], element_bytes: int) -> PaddedTensor:
    """Return the range of paddings of a tensor over its possible layouts."""
    ranked = sorted(layouts, key=lambda layout: layout.padded_elements)
    return PaddedTensor(role=role, least=ranked[0], most=ranked[-1], element_bytes=element_bytes)


@lru_cache(maxsize=1 << 12)  # the layers of a model share a few shapes
def both_orders(role: str, dims: Dims, element_bytes: int, minor: tuple[int, int] | None = None) -> PaddedTensor:
    """Return the padding of a tensor if either of its last (or `minor`) dimensions may be on the lanes."""
    one, other = minor or (len(dims) - 2, len(dims) - 1)
    layouts = (with_multiples(dims, {one: a, other: b}) for a, b in ((SUBLANES, LANES), (LANES, SUBLANES)))
    return in_layouts(role, layouts, element_bytes)


def convolution_multiples(batch: int, *, kernel_gradient: bool = False) -> tuple[int, int]:
    """Return the multiples of batch and features of a convolution for the usual batch size of the program.

    Source: Cloud TPU's notes on the performance of TensorFlow functions.
    """
    batch_on_lanes = (batch >= LARGE_BATCH) != kernel_gradient
    return (LANES, SUBLANES) if batch_on_lanes else (SUBLANES, LANES)


def level_of(ratio: float, padded_bytes: int) -> Level:
    """Return the severity of a padding."""
    if ratio >= _HIGH and padded_bytes >= MIB:
        return "high"
    return "medium" if ratio >= _MEDIUM else "info"


def padding_text(tensor: PaddedTensor, how: str) -> str:
    """Return a description of the padding and its cost."""
    least, most = tensor.least, tensor.most
    ratio = f"{least.ratio:.2f}" if least.padded == most.padded else f"{least.ratio:.2f} to {most.ratio:.2f}"
    shapes = f"{shape_text(least.dims)} becomes {shape_text(least.padded)}"
    return f"{tensor.role} {shapes} ({how}): {ratio} times as large, {format_bytes(tensor.wasted_bytes)} of padding"
