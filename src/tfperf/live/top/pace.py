"""When a worker is sampled next, and for how long: by what samples cost its job, and by what they gave.

What can be measured of the cost, and what each figure rests on:

- the server's own figure, which `tfperf.serve` sends with each trace: the median step before the profile against the
  median step in it;
- steps that the program numbers (`tfperf.step`, Keras 2): so many steps were made between two samples, in so much time.
  That time has the pauses between steps too, so the steps outside of samples are no slower than that, and what samples
  add is at least the difference;
- the CPU time of the analysis, where the job is on this machine.

Of a job without both, such as one of Keras 3 behind TensorFlow's own server, nothing tells the first; it is unknown.
"""

from __future__ import annotations

import math
from collections import deque
from statistics import median

from msgspec import Struct, field

from tfperf.live.top.measured import Measured, NumberedSteps
from tfperf.live.top.sample import Sample

MOST_COST = 0.02
"""The share of its time that samples may take from a job, where it is measured."""
MOST_ANALYSIS = 0.05
"""The share of one processor that analysis may take on the machine of the job."""
LONGEST_PAUSE_S = 300.0
_LONGEST_RETRY_S = 60.0
_LONGEST_STRETCH = 8
"""A sample without a whole step is followed by one twice as long, up to so many times the duration."""
_MANY_STEPS = 8
"""So many whole steps are enough to shorten a sample that was made longer."""
_LEAST_BETWEEN = 5
"""Fewer steps between two samples say nothing about their time."""
_REMEMBERED = 5
_EARLY = 0.25
"""By what part of an interval a sample may come sooner than it is due."""


class Pace(Struct, kw_only=True):
    """The pace at which one worker is sampled: every `interval_s`, for `duration_s`, and more slowly if that costs."""

    duration_s: float
    interval_s: float
    is_here: bool = False
    """Whether the job is on this machine."""
    _stretch: int = 1
    _failures: int = 0
    _begun_s: float | None = None
    _recorded_s: float = 0.0
    _before: NumberedSteps | None = None
    _analysis_s: deque[float] = field(default_factory=lambda: deque(maxlen=2))
    """CPU time of the last two analyses; of these the shorter counts, since the first one imports its modules."""
    _slowdowns: deque[float] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))

    @property
    def next_duration_s(self) -> float:
        """Return how long the next sample is to record."""
        return self.duration_s * self._stretch

    @property
    def slowdown_percent(self) -> float | None:
        """Return by how much profiling makes steps longer, the median of the latest samples; None: unknown."""
        return median(self._slowdowns) if self._slowdowns else None

    def begin(self, now_s: float) -> None:
        """Note that a sample begins, on the monotonic clock."""
        if self._begun_s is None:
            self._begun_s = now_s

    def profiled_percent(self, due_s: float) -> float:
        """Return the share of the time in which the worker records: from the first sample until the next one begins."""
        return 100.0 * self._recorded_s / max(due_s - (self._begun_s or 0.0), self.interval_s)

    def learn(self, measured: Measured | None, answer_s: float, overhead_percent: float | None) -> None:
        """Take into account what the last request came to; `overhead_percent` is what the server measured."""
        self._recorded_s += min(answer_s, self.next_duration_s)
        if measured is None:
            self._failures, self._before = self._failures + 1, None
            return
        self._failures = 0
        self._analysis_s.append(measured.cpu_s)
        between = slowdown_between(self._before, measured)
        stated = overhead_percent if overhead_percent is not None else between
        if stated is not None:
            self._slowdowns.append(stated)
        self._before = measured.numbered
        if measured.step_ms is None:
            self._stretch = min(2 * self._stretch, _LONGEST_STRETCH)
        elif measured.step_count >= 2 * _MANY_STEPS:
            self._stretch = max(self._stretch // 2, 1)

    def due_s(self, begun_s: float, last: Sample, origin_s: float) -> float:
        """Return when the next sample begins, on the monotonic clock: a multiple of the interval after `origin_s`.

        So all workers are asked at the same moments: workers that train in step all wait for one that is slowed.
        """
        rounds = (begun_s + self.pause_s(last) - origin_s) / self.interval_s
        return origin_s + math.ceil(rounds - _EARLY) * self.interval_s

    def pause_s(self, last: Sample) -> float:
        """Return how long after the begin of the last sample the next one may begin."""
        if last.measured is None and last.reason != "idle":
            # A port is soon tried; a server that refuses, or sends garbage, is left alone for longer.
            tries = 0 if last.is_gone else min(self._failures, 8)
            return max(min(self.interval_s * 2.0**tries, _LONGEST_RETRY_S), self.interval_s)
        pauses = [self.interval_s * self._stretch, 2 * last.answer_s]
        if self.slowdown_percent is not None:
            pauses.append(min(last.answer_s * self.slowdown_percent / 100.0 / MOST_COST, LONGEST_PAUSE_S))
        if self.is_here and len(self._analysis_s) > 1:
            pauses.append(min(min(self._analysis_s) / MOST_ANALYSIS, LONGEST_PAUSE_S))
        return max(pauses)


def slowdown_between(before: NumberedSteps | None, now: Measured) -> float | None:
    """Return by how much longer steps are in a sample than between it and the one before, at least; None: unknown."""
    after = now.numbered
    if before is None or after is None or after.first - before.last < _LEAST_BETWEEN or after.last == after.first:
        return None
    between_ns = (after.first_ns - before.last_ns) / (after.first - before.last)
    within_ns = (after.last_ns - after.first_ns) / (after.last - after.first)
    return max(100.0 * (within_ns / between_ns - 1.0), 0.0) if between_ns > 0 else None
