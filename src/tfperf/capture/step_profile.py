"""Profile some steps of a training: the first ones, which build and warm up, are left out."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from tfperf.capture import local
from tfperf.capture.outcomes import Captured
from tfperf.capture.safe_profile import SafeProfile, failed_profile, no_trace
from tfperf.capture.tracer_options import TracerOptions
from tfperf.errors import TfperfError

LIMIT_SECONDS = 120.0


class StepProfile:
    """Profiles the steps `first` to `last`, both included, as it is told about them; never raises once constructed.

    Several steps may run at once (`steps_per_execution` of Keras): then all executions with a step of the range are
    profiled, at least one, but never the first of all, which builds the functions. `tell` gets each result at once.
    """

    def __init__(
        self,
        logdir: str | Path,
        steps: tuple[int, int],
        options: TracerOptions,
        limit_s: float,
        tell: Callable[[Captured], object],
    ) -> None:
        self._first, last = steps
        if not 0 <= self._first <= last:
            raise TfperfError(f"{steps} is not a range of steps; write (FIRST, LAST) with 0 <= FIRST <= LAST")
        self._stop = last + 1
        self._limit_s, self._tell = limit_s, tell
        self._session = SafeProfile(logdir, options, self.close)
        self._reporting = threading.RLock()
        self._timer: threading.Timer | None = None
        self._started_at = self._next = self._first
        self.result: Captured | None = None

    @property
    def is_done(self) -> bool:
        """Whether the profile was taken, or failed."""
        return self._session.result is not None

    @property
    def is_running(self) -> bool:
        """Whether the profile is being taken."""
        return self._session.is_running

    def step_starts(self, step: int, size: int = 1) -> None:
        """Note that `step`, or `size` steps from there on, are about to run."""
        if self.is_done:
            return
        local.step_times.mark()
        if self.is_running:
            self._advance(step)
        elif step >= self._first or (step and step + size > self._first):
            self._start(step)

    def steps_ended(self, next_step: int) -> None:
        """Note that all steps before `next_step` have ended."""
        if self.is_running and next_step >= self._stop:
            local.step_times.mark()  # The last step ends here.
        self._advance(next_step)

    def close(self) -> None:
        """Stop early if it runs: no more steps come."""
        self._finish(f"training ended after {self._progress()}")

    def fail(self, error: Exception) -> None:
        """Stop, and make an error of profiling the result."""
        if not self.is_done:
            self._session.stop()
            self._session.result = self._session.result or failed_profile(error)
            self._report()

    def too_few_steps(self, count: int, hint: str) -> None:
        """Note that training ended after `count` steps, with none in the range."""
        if not self.is_done and self.result is None:
            message = f"training ended after {count} batches, before batch {self._first}; {hint}"
            self.result = no_trace("no_steps", message)
            self._tell(self.result)

    def _start(self, step: int) -> None:
        self._started_at = self._next = step
        if not self._session.start():
            self._report()
            return
        self._timer = threading.Timer(self._limit_s, self._reach_limit)
        self._timer.daemon = True
        self._timer.start()
        local.step_times.mark()  # The time that starting took belongs to no step.

    def _advance(self, next_step: int) -> None:
        if self.is_running:
            self._next = next_step
            if next_step >= self._stop and next_step > self._started_at:
                self._finish()

    def _reach_limit(self) -> None:
        self._finish(f"profiling was stopped after {self._limit_s:g} s, after {self._progress()}")

    def _progress(self) -> str:
        return f"{self._next - self._started_at} of the {max(self._stop - self._started_at, 1)} batches to profile"

    def _finish(self, note: str = "") -> None:
        if self.is_running:
            self._session.stop(note)
            self._report()

    def _report(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        with self._reporting:
            result = self._session.result
            if result is not None and result is not self.result:
                self.result = result
                self._tell(result)
