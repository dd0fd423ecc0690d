"""How many threads of the input pipelines work while the step does its own work: its rivals for the host's cores."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Int64s, Intervals, difference, overlap, union
from tfperf.trace.tfdata.stage_work import StageWork

SATURATED = 0.9
"""A process that keeps so much of a number of cores busy may as well keep all of them busy."""


class Rivals(Struct, frozen=True, kw_only=True):
    """Threads of the pipelines at work, on average over the time in which the step does not wait for input."""

    native: float = 0.0
    """Threads that run stages and TensorFlow ops."""
    python: float = 0.0
    """Threads inside Python functions, which compute or wait: at most one computes at a time, and only as far as the
    CPU time of the capture allows it."""
    python_computes: float = 1.0
    """For how much of its time the only Python function computes, at most: as if all of that CPU time were its own. 1:
    unknown, as where there are several, of which one may compute and the others wait."""

    @property
    def threads(self) -> float:
        """Return how many threads work, all together."""
        return self.native + self.python


def find_rivals(
    work: StageWork, steps: Intervals, waits: Intervals, *, python_stages: list[int], busy_cores: float | None
) -> Rivals:
    """Measure the rivals of steps (windows that may touch or overlap) outside the flat set `waits`.

    `work` has no calls that wait for what other threads make.
    `busy_cores` is how many cores the process kept busy in the steps; None: unknown.
    """
    steps = union(steps.start, steps.end)
    own = difference(steps, waits)
    if not own.total():
        return Rivals()
    is_python = np.isin(work.stage, np.array(python_stages, np.int64))
    native = (work.stage >= 0) & ~is_python
    python = threads(own, work.start[is_python], work.end[is_python])
    in_python = threads(steps, work.start[is_python], work.end[is_python])
    computes = 1.0
    # If they computed, they would keep as many cores busy, whatever the step does.
    if in_python and busy_cores is not None and busy_cores < SATURATED * min(in_python, 1.0):
        computes = busy_cores / in_python if len({*python_stages}) == 1 else 1.0
        python *= max(busy_cores - own.total() / steps.total(), 0.0) / in_python
    return Rivals(
        native=threads(own, work.start[native], work.end[native]), python=min(python, 1.0), python_computes=computes
    )


def threads(when: Intervals, start: Int64s, end: Int64s) -> float:
    """Return how many of these events are under way, on average over a flat set of times that is not empty."""
    return float(overlap(when, start, end).sum()) / when.total()
