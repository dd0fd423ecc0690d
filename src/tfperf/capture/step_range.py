"""Profile some batches of a training: the first ones, which build and warm up, are left out."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from tfperf.capture import local
from tfperf.capture.options import TracerOptions
from tfperf.capture.quiet import QuietProfile, failed, nothing
from tfperf.errors import TfperfError
from tfperf.outcomes import Captured

LIMIT_SECONDS = 120.0


class StepRange:
    """Profiles batches `first` to `stop` - 1 of those that it is told about; never raises once it is made.

    Several batches may run at once (`steps_per_execution`): then all executions with a batch of the range are
    profiled, at least one, but never the first of all, which builds the functions. `tell` gets each result at once.
    """

    def __init__(
        self,
        logdir: str | Path,
        batches: tuple[int, int],
        options: TracerOptions,
        limit_s: float = LIMIT_SECONDS,
        tell: Callable[[Captured], object] = lambda _: None,
    ) -> None:
        self.first, self.stop = batches
        if not 0 <= self.first < self.stop:
            raise TfperfError(f"batches are {batches}; write (FIRST, STOP) with 0 <= FIRST < STOP, as for range()")
        self.limit_s, self._tell = limit_s, tell
        self._session = QuietProfile(logdir, options, self.close)
        self._settling = threading.RLock()
        self._timer: threading.Timer | None = None
        self._began_at = self._next = self.first
        self.result: Captured | None = None

    @property
    def done(self) -> bool:
        """Whether the profile was taken, or could not be."""
        return self._session.result is not None

    @property
    def running(self) -> bool:
        """Whether it is being taken."""
        return self._session.running

    def begin(self, batch: int, size: int = 1) -> None:
        """Note that `batch`, or `size` of them from there on, is about to run."""
        if self.done:
            return
        local.step_times.mark()
        if self.running:
            self.reach(batch)
        elif batch >= self.first or (batch and batch + size > self.first):
            self._start(batch)

    def end(self, next_batch: int) -> None:
        """Note that all batches before `next_batch` are done."""
        if self.running and next_batch >= self.stop:
            local.step_times.mark()  # The last step ends here.
        self.reach(next_batch)

    def reach(self, next_batch: int) -> None:
        """Stop if the range ends before `next_batch`."""
        if self.running:
            self._next = next_batch
            if next_batch >= self.stop and next_batch > self._began_at:
                self._finish()

    def close(self) -> None:
        """Stop early, if it runs: no batch comes any more."""
        self._finish(f"training ended after {self._progress()}")

    def give_up(self, error: Exception) -> None:
        """Take an error of profiling for the result."""
        if not self.done:
            self._session.stop()
            self._session.result = self._session.result or failed(error)
            self._settle()

    def too_short(self, count: int, hint: str) -> None:
        """Note that training ended after `count` batches, without any in the range."""
        if not self.done and self.result is None:
            self.result = nothing(
                "no_steps", f"training ended after {count} batches, before batch {self.first}; {hint}"
            )
            self._tell(self.result)

    def _start(self, batch: int) -> None:
        self._began_at = self._next = batch
        if not self._session.start():
            self._settle()
            return
        self._timer = threading.Timer(self.limit_s, self._reach_limit)
        self._timer.daemon = True
        self._timer.start()
        local.step_times.mark()  # The time that starting took belongs to no step.

    def _reach_limit(self) -> None:
        self._finish(f"profiling was stopped after {self.limit_s:g} s, after {self._progress()}")

    def _progress(self) -> str:
        return f"{self._next - self._began_at} of the {max(self.stop - self._began_at, 1)} batches to profile"

    def _finish(self, note: str = "") -> None:
        if self.running:
            self._session.stop(note)
            self._settle()

    def _settle(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        with self._settling:
            found = self._session.result
            if found is not None and found is not self.result:
                self.result = found
                self._tell(found)
