"""One figure of one host, what is unknown about it, and what becomes of a limit on it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from tfperf.gate.limits import Limit, Relation

Status = Literal["pass", "breach", "unknown"]
"""unknown: it could not be judged."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """What was measured. `gap` says what is unknown, empty if nothing is.

    With a gap, `value` is the least that it can be (for an upper limit) or the most (for a lower one): if even that
    breaches a limit, the limit is breached. It is None where nothing can be said.
    """

    value: float | None
    why: str = ""
    """What the value rests on."""
    gap: str = ""
    host: str = ""
    """The host that it is about, where the figure itself tells."""

    @property
    def reason(self) -> str:
        """Return why a limit on it is unknown, where it is."""
        return self.gap or "the measured value is not a number"

    def status(self, limit: Limit) -> Status:
        """Return what becomes of a limit: a breach is one in spite of gaps; what is unknown is never a pass."""
        if self.value is None or not math.isfinite(self.value):
            return "unknown"
        if not holds(self.value, limit.relation, limit.bound):
            return "breach"
        return "unknown" if self.gap else "pass"


def unknown(gap: str) -> Measurement:
    """Return that nothing was measured, and why."""
    return Measurement(None, gap=gap)


def holds(value: float, relation: Relation, bound: float) -> bool:
    """Tell whether a limit holds, unrounded; NaN holds nothing."""
    if relation == "<":
        return value < bound
    if relation == "<=":
        return value <= bound
    return value > bound if relation == ">" else value >= bound
