"""One figure of one host, and what is not known about it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tfperf.gate.model import Relation, Status


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured. `gap` says what is not known, empty if nothing is.

    With a gap, `value` is the least that it can be (for an upper limit) or the most (for a lower one): if even that
    breaks a limit, the limit is broken. It is None where nothing can be said.
    """

    value: float | None
    why: str = ""
    """What the value rests on."""
    gap: str = ""
    host: str = ""
    """The host that it is about, where the figure itself tells."""


def unknown(gap: str) -> Measured:
    """Return that nothing was measured, and why."""
    return Measured(None, gap=gap)


def holds(value: float, relation: Relation, bound: float) -> bool:
    """Tell whether a limit holds, unrounded; NaN holds nothing."""
    if relation == "<":
        return value < bound
    if relation == "<=":
        return value <= bound
    return value > bound if relation == ">" else value >= bound


def status_of(found: Measured, relation: Relation, bound: float) -> Status:
    """Return what becomes of a limit: a breach is one in spite of gaps; what is not known is never a pass."""
    if found.value is None or not math.isfinite(found.value):
        return "unknown"
    if not holds(found.value, relation, bound):
        return "breach"
    return "unknown" if found.gap else "pass"
