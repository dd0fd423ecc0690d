"""The sizes of matrix products, and the multiples that matrix units of GPUs are made for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tfperf.formats.hlo.model import DotDims

ALIGNED_BYTES = 16
"""Tensor cores are fastest at sizes that are multiples of so many bytes, whatever the type (NVIDIA, Deep Learning
Performance: matrix multiplication background)."""
Dims = Sequence[int]
_MATRIX = 2
"""Dimensions of a matrix."""


class Product(NamedTuple):
    """The sizes of a matrix product: M and N of the result, K that is summed over, and how many products there are."""

    m: int
    n: int
    k: int
    times: int = 1

    @property
    def flops(self) -> int:
        """Return its operations, multiplications and additions."""
        return 2 * self.m * self.n * self.k * self.times

    @property
    def sizes(self) -> Mapping[str, int]:
        """Return M, N and K by their letters."""
        return {"M": self.m, "N": self.n, "K": self.k}


def product_of(left: Dims, right: Dims, dims: DotDims) -> Product | None:
    """Return the product of two arrays; None where the dimensions are not those of the operands."""
    of_left, of_right = (*dims.lhs_contracting, *dims.lhs_batch), (*dims.rhs_contracting, *dims.rhs_batch)
    if not dims.lhs_contracting or not has_dims(left, of_left) or not has_dims(right, of_right):
        return None
    m, n = (
        prod(size for place, size in enumerate(sizes) if place not in others)
        for sizes, others in ((left, of_left), (right, of_right))
    )
    return Product(m, n, prod(left[at] for at in dims.lhs_contracting), prod(left[at] for at in dims.lhs_batch))


def product_by_shapes(left: Dims, right: Dims, result: Dims) -> Product | None:
    """Return the product of two matrices (or of their transposes) that has this result; None without one.

    Sizes that leave several ways to multiply, with other operations, leave it unknown.
    """
    if not len(left) == len(right) == len(result) == _MATRIX:
        return None
    ways = [(i, j) for i in (0, 1) for j in (0, 1) if left[i] == right[j]]
    found = {Product(left[1 - i], right[1 - j], left[i]) for i, j in ways if (*result,) == (left[1 - i], right[1 - j])}
    return found.pop() if len(found) == 1 else None


def has_dims(sizes: Dims, places: Iterable[int]) -> bool:
    """Tell whether an array has all of these dimensions; a damaged program may name others, and negative ones."""
    return all(0 <= place < len(sizes) for place in places)


def off_multiple(sizes: Mapping[str, int], multiple: int) -> dict[str, int]:
    """Return those of the sizes that are no multiple; vectors (size 1) have none."""
    return {name: size for name, size in sizes.items() if size > 1 and size % multiple}


def rounded_up(size: int, multiple: int) -> int:
    """Return the next multiple."""
    return -(-size // multiple) * multiple
