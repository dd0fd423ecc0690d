"""What people want to see of ops and kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

if TYPE_CHECKING:
    from tfperf.base.patterns import Pattern

Grouping = Literal["type", "scope", "layer"]
By = Literal["pattern", "op"] | Grouping | Literal["kernel"]
"""How ops and kernels are added up. pattern: ops that differ in the numbers of replicas and layers only, and kernels of
one name; op: ops not at all; kernel: ops as by pattern, and kernels by op and launch shape."""


class View(Struct, frozen=True):
    """What people want to see: ops and kernels added up `by`; of ops only those that one of `filters` is found in."""

    by: By = "pattern"
    filters: tuple[Pattern, ...] = ()

    @property
    def ops_by(self) -> By:
        """Return how ops are added up."""
        return "pattern" if self.by == "kernel" else self.by
