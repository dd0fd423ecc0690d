"""Which steps count: for results that hold a time for each step, so that others can count afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.arrays import Bools, Int64s
from tfperf.base.units import percent

if TYPE_CHECKING:
    from tfperf.trace.steps.breakdown import Breakdown
    from tfperf.trace.steps.steps import Steps


class CountedSteps(Struct, frozen=True, eq=False):
    """The steps that a result has times for, and which of them it counts: at first the headline steps."""

    start_ps: Int64s
    duration_ps: Int64s
    counted: Bools

    @classmethod
    def of(cls, steps: Steps) -> CountedSteps:
        """Return the steps of a host."""
        return cls(steps.start_ps, steps.duration_ps, steps.headline)

    @classmethod
    def joined(cls, parts: Sequence[CountedSteps]) -> CountedSteps:
        """Return the steps of several hosts."""
        columns = zip(*((part.start_ps, part.duration_ps, part.counted) for part in parts), strict=True)
        return cls(*map(np.concatenate, columns))

    def counting(self, after: Breakdown) -> CountedSteps:
        """Return the same steps, of which the headline steps of `after` count."""
        return replace(self, counted=np.isin(self.start_ps, after.steps.start_ps[after.steps.headline]))

    @property
    def count(self) -> int:
        """Return how many steps count."""
        return int(self.counted.sum())

    @property
    def total_ps(self) -> int:
        """Return the duration of the steps that count."""
        return self.sum(self.duration_ps)

    def sum(self, values: Int64s) -> int:
        """Return the sum of values of each step over the steps that count."""
        return int(values[self.counted].sum())

    def percent(self, times_ps: Int64s) -> float | None:
        """Return the share of times of each step in the steps that count; None if none counts."""
        return percent(self.sum(times_ps), self.total_ps)
