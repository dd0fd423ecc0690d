"""Whether waiting for other hosts is worth a word, and whether one of them is to blame."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.arrays import Bools
from tfperf.base.units import PS_PER_MS
from tfperf.sections.hosts.lateness import LEAST_LOSS_MS, LateSteps

LEAST_LOSS_PERCENT = 5.0
_OF_FEW, _OF_MANY, _MANY = 0.75, 0.5, 4
"""One host is to blame if it causes this share of what is lost: of two or three, half of it is chance."""


class Straggler(Struct, frozen=True, kw_only=True):
    """What steps lose because hosts wait for the last one.

    `host` is to blame for most of it; it is empty if now this host is late, and now that. Figures are averages over
    `steps` steps. `gain_ms` is what a step gains if that host is as fast as the second slowest, or if none is late.
    """

    host: str
    worst: str
    """The host in whose steps most is lost, also if it is not to blame for most."""
    cause: str
    loss_percent: float
    """Share of the step time."""
    loss_ms: float
    excess_ms: float
    """How much longer the cause takes on the last host than on the others, in the steps in which it is the cause."""
    last_in: int
    """In how many of the steps the host is last, or any host late."""
    steps: int
    gain_ms: float
    is_outside_averages: bool = False
    """Whether the time is lost in steps that averages omit."""


def find_straggler(late: LateSteps, names: Sequence[str]) -> Straggler | None:
    """Return what is lost in the steps that count, else in the others; None if it is too little to tell from chance.

    Steps that trace or compile take unequally long on healthy hosts, so what is lost to that is no straggler's.
    """
    found = _straggler_in(late, names, late.counted)
    if found is not None:
        return found
    others = ~late.counted & np.array([cause != "compilation" for cause in late.causes], np.bool_)
    lost_ms = float(late.lost_ps[others].sum()) / PS_PER_MS
    whole_ms = float(late.step_ps.sum()) / PS_PER_MS
    if lost_ms < LEAST_LOSS_MS * len(late.numbers) or 100.0 * lost_ms < LEAST_LOSS_PERCENT * whole_ms:
        return None
    found = _straggler_in(late, names, others)
    return None if found is None else replace(found, is_outside_averages=True)


def _straggler(late: LateSteps, names: Sequence[str], which: Bools) -> Straggler | None:
    rows = np.flatnonzero(which)
    lost_ms, step_ms = late.lost_ps[rows] / PS_PER_MS, late.step_ps[rows] / PS_PER_MS
    if not len(rows) or not step_ms.sum():
        return None
    loss_ms, loss_percent = float(lost_ms.mean()), 100.0 * float(lost_ms.sum() / step_ms.sum())
    if loss_ms < LEAST_LOSS_MS or loss_percent < LEAST_LOSS_PERCENT:
        return None
    last = late.last[rows]
    by_host = np.bincount(last, weights=lost_ms, minlength=len(names))
    worst = int(by_host.argmax())
    is_one = by_host[worst] >= (_OF_MANY if len(names) >= _MANY else _OF_FEW) * by_host.sum()
    blamed = last == worst if is_one else np.ones(len(rows), np.bool_)
    cause = late.main_cause(rows[blamed])
    of_cause = [row for row in rows[blamed].tolist() if late.causes[row] == cause]
    is_late = blamed & (is_one | (lost_ms >= LEAST_LOSS_MS))
    gain_ps = (late.gain_ps if is_one else late.lost_ps)[rows]
    return Straggler(
        host=names[worst] if is_one else "",
        worst=names[worst],
        cause=cause,
        loss_percent=loss_percent,
        loss_ms=loss_ms,
        excess_ms=float(late.excess_ps[of_cause].mean()) / PS_PER_MS,
        last_in=int(is_late.sum()),
        steps=len(rows),
        gain_ms=float(gain_ps[blamed].sum()) / PS_PER_MS / len(rows),
    )
