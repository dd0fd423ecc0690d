"""One metric of one host: its value, what is unknown about it, and the result of a limit on it."""

from __future__ import annotations

import math
from typing import Literal

from msgspec import Struct

from tfperf.gate.limits import Limit, Relation

Status = Literal["pass", "breach", "unknown"]
"""unknown: it could not be judged."""


class Measurement(Struct, frozen=True):
    """The value of a metric. `gap` says what is unknown about it; empty if nothing is.

    With a gap, `value` is the smallest that is possible (for an upper limit) or the largest (for a lower one): if even
    that breaches a limit, the limit is breached. It is None where nothing is known.
    """

    value: float | None
    why: str = ""
    """What the value rests on."""
    gap: str = ""
    host: str = ""
    """The host with this value, where the metric itself is about several."""

    @property
    def reason(self) -> str:
        """Return why a limit on it is unknown, where it is."""
        return self.gap or "the measured value is not a number"

    def status(self, limit: Limit) -> Status:
        """Return the result of a limit: a breach counts in spite of gaps, and unknown is never a pass."""
        if self.value is None or not math.isfinite(self.value):
            return "unknown"
        if not holds(self.value, limit.relation, limit.bound):
            return "breach"
        return "unknown" if self.gap else "pass"


def unknown(gap: str) -> Measurement:
    """Return a measurement without a value, and why it has none."""
    return Measurement(None, gap=gap)


def holds(value: float, relation: Relation, bound: float) -> bool:
    """Tell whether a limit holds, unrounded; NaN holds nothing."""
    if relation == "<":
        return value < bound
    if relation == "<=":
        return value <= bound
    return value > bound if relation == ">" else value >= bound
