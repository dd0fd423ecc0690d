"""When steps start, to tell by how much profiling slows them down."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from statistics import median
from threading import get_ident

_MIN_STEPS, _MAX_STEPS, _MAX_SESSIONS = 5, 10_000, 16


class StepTimes:
    """When the latest steps of each thread started, by a clock that counts seconds."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._starts: deque[tuple[int, float]] = deque(maxlen=_MAX_STEPS)
        self._sessions: deque[tuple[float, float]] = deque(maxlen=_MAX_SESSIONS)

    def mark(self) -> None:
        """Note that a step starts now in this thread; the one before it ends."""
        self._starts.append((get_ident(), self._clock()))

    def overhead_percent(self, started_s: float, ended_s: float) -> float | None:
        """Return by how many percent the median step in a session is longer than the median step before it.

        None if there are fewer than five whole steps before or in the session; 0 if steps did not get longer. Steps in
        earlier sessions count as neither. A step lasts until the next one of its thread starts.
        """
        if (started_s, ended_s) not in self._sessions:
            self._sessions.append((started_s, ended_s))
        steps, latest = [], dict[int, float]()
        for thread, start in self._starts.copy():
            if thread in latest:
                steps.append((latest[thread], start))
            latest[thread] = start
        during = [end - start for start, end in steps if started_s <= start and end <= ended_s]
        before = [
            end - start
            for start, end in steps
            if end <= started_s and not any(start < stop and end > begin for begin, stop in self._sessions)
        ]
        if min(len(before), len(during)) < _MIN_STEPS:
            return None
        # As many steps before as during: long ago, the job may have been in another phase.
        usual = median(before[-max(len(during), _MIN_STEPS) :])
        return max(0.0, 100 * (median(during) / usual - 1)) if usual else None
