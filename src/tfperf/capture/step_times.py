"""When steps began, to tell by how much profiling slows them down."""

from __future__ import annotations

import time
from collections import deque
from statistics import median
from threading import get_ident

_ENOUGH = 5
_LATEST_STEPS = 10_000
_LATEST_SESSIONS = 16

Interval = tuple[float, float]


class StepTimes:
    """The begin of the latest steps of each thread, on the clock of `time.perf_counter`."""

    def __init__(self) -> None:
        self._begins: deque[tuple[int, float]] = deque(maxlen=_LATEST_STEPS)
        self._sessions: deque[Interval] = deque(maxlen=_LATEST_SESSIONS)

    def mark(self) -> None:
        """Note that a step begins now in this thread; the one before it ends."""
        self._begins.append((get_ident(), time.perf_counter()))

    def overhead_percent(self, began: float, ended: float) -> float | None:
        """Return by how many percent steps in the session [began, ended] took longer than those before, by medians.

        None if fewer than five whole steps lie on one of the two sides, 0 if they did not get longer. Steps in earlier
        sessions count on neither side.
        """
        if (began, ended) not in self._sessions:
            self._sessions.append((began, ended))
        steps = self._steps()
        during = [end - begin for begin, end in steps if began <= begin and end <= ended]
        before = [end - begin for begin, end in steps if end <= began and not self._profiled(begin, end)]
        if min(len(before), len(during)) < _ENOUGH:
            return None
        # As many steps before as during: the job may have been in another phase long ago.
        usual = median(before[-max(len(during), _ENOUGH) :])
        return max(0.0, 100 * (median(during) / usual - 1)) if usual else None

    def _steps(self) -> list[Interval]:
        """Return begin and end of whole steps, by their end: a step lasts until the next one of its thread."""
        steps, latest = [], dict[int, float]()
        for thread, begin in self._begins.copy():
            if thread in latest:
                steps.append((latest[thread], begin))
            latest[thread] = begin
        return steps

    def _profiled(self, begin: float, end: float) -> bool:
        return any(begin < ended and end > began for began, ended in self._sessions)
