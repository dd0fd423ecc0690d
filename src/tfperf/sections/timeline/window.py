"""The stretch of time that is drawn, and its own clock."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Int64s


class Window(Struct, frozen=True):
    """A step from its start to its end, in picoseconds on the clock of the trace."""

    start_ps: int
    end_ps: int

    @property
    def duration_ns(self) -> int:
        """Return how long it is."""
        return int(self.ns(np.array([self.end_ps]))[0])

    def ns(self, times_ps: Int64s) -> Int64s:
        """Return times in nanoseconds from its start; what lies outside is moved to its edge."""
        return (np.clip(times_ps, self.start_ps, self.end_ps) - self.start_ps + 500) // 1000
