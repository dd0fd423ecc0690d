"""What steps do to an allocator: how often they allocate, and whether they keep something."""

from __future__ import annotations

import numpy as np

from tfperf.arrays import Int64s
from tfperf.trace.steps import Steps

LEAST_STEPS = 5
"""Fewer steps do not tell steady growth from chance."""
_RISING_SHARE = 0.75


def allocations_per_step(start_ps: Int64s, size: Int64s, steps: Steps) -> tuple[float | None, float | None]:
    """Return how many allocations a step makes on average, and of how many bytes; None without steps."""
    start, end = _averaged_windows(steps)
    if not len(start):
        return None, None
    first, stop = np.searchsorted(start_ps, start), np.searchsorted(start_ps, end)
    running = np.concatenate(([0.0], np.cumsum(size, dtype=np.float64)))
    return float((stop - first).mean()), float((running[stop] - running[first]).mean())


def growth_per_step(start_ps: Int64s, in_use: Int64s, steps: Steps) -> tuple[float | None, int]:
    """Return by how many bytes the least in use grows per step, and over how many steps that was looked for.

    0: it does not grow steadily; None: there are too few steps. The least of each step is what stays when its own
    tensors are gone; where that never falls and nearly always rises, something is kept.
    """
    start, end = _averaged_windows(steps)
    first = np.maximum(np.searchsorted(start_ps, start) - 1, 0)
    stop = np.searchsorted(start_ps, end)
    is_reached = stop > first
    first, stop = first[is_reached], stop[is_reached]
    if len(first) < LEAST_STEPS:
        return None, len(first)
    ends = np.stack((first, stop), axis=1).reshape(-1)
    least = np.minimum.reduceat(np.append(in_use, in_use[-1]), ends)[::2]
    rises = np.diff(least)
    is_steady = bool((rises >= 0).all()) and float((rises > 0).mean()) >= _RISING_SHARE
    return float(least[-1] - least[0]) / len(rises) if is_steady else 0.0, len(first)


def _averaged_windows(steps: Steps) -> tuple[Int64s, Int64s]:
    """Return start and end of the steps that averages are about."""
    kind = steps.headline_kind if len(steps) else ""
    chosen = steps.averaged & np.array([other == kind for other in steps.kinds], np.bool_)
    return steps.start_ps[chosen], steps.end_ps[chosen]
