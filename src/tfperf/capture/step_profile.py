"""Profiling that never raises, also by steps: the program that is profiled goes on as if it were not."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.errors import CaptureError, Reason, TfperfError
from tfperf.base.units import counted
from tfperf.capture import local
from tfperf.capture.cluster_task import host_name
from tfperf.capture.outcomes import Captured
from tfperf.capture.run_name import RunName, profile_count
from tfperf.capture.tracer_options import TracerOptions

LIMIT_SECONDS = 120.0
FEWEST_STEPS = 10


class Extent(Struct, frozen=True):
    """Which steps to profile: `first` to `last`, both included.

    With `enough_s`, fewer: profiling ends once it has lasted so long and has `FEWEST_STEPS`. It never lasts longer than
    `limit_s`, whatever the steps. Raises TfperfError unless 0 <= first <= last.
    """

    first: int
    last: int
    enough_s: float | None = None
    limit_s: float = LIMIT_SECONDS

    def __post_init__(self) -> None:
        """Check the range."""
        if not 0 <= self.first <= self.last:
            problem = f"{(self.first, self.last)} is not a range of steps"
            raise TfperfError(f"{problem}; write (FIRST, LAST) with 0 <= FIRST <= LAST")


class SafeProfile:
    """One session from `start` to `stop`; what goes wrong is in `result`.

    It ends with the interpreter at the latest. A forked child leaves it to the parent.
    """

    def __init__(
        self,
        logdir: str | Path,
        options: TracerOptions,
        name: Callable[[], RunName],
        at_exit: Callable[[], object] | None = None,
    ) -> None:
        self._logdir, self._options, self._name = logdir, options, name
        self._at_exit = at_exit or self.stop
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._is_started = False
        self.keras_facts: dict[str, int] = {}
        """Fields of `CaptureFacts` that only Keras knows."""
        self.result: Captured | None = None

    @property
    def is_running(self) -> bool:
        """Whether the session runs, and this is the process that started it."""
        return self._is_started and self.result is None and os.getpid() == self._process

    def start(self) -> bool:
        """Start, unless there is a result already; return whether the session runs now."""
        with self._lock:
            if self._is_started or self.result is not None:
                return False
            self._process = os.getpid()
            if "tensorflow" not in sys.modules:  # Importing it here would change the program.
                message = "the program does not use TensorFlow, so there is nothing to profile"
                self.result = no_trace("no_tensorflow", message)
                return False
            _wait_for_devices()
            try:
                local.begin(self._logdir, self._options, self._name)
            except Exception as error:
                self.result = failed_profile(error)
                return False
            self._is_started = True
            # Registered after local's own function, it is called before that one.
            atexit.register(self._at_exit)
            return True

    def stop(self, note: str = "") -> Captured | None:
        """End the session if it runs, and return the result; `note` becomes the message of a trace without problems."""
        if not self.is_running:
            return self.result
        with self._lock:
            if self.is_running:
                atexit.unregister(self._at_exit)
                _wait_for_devices()
                try:
                    captured = local.end(self.keras_facts)
                    self.result = replace(captured, message=captured.message or note)
                except Exception as error:
                    self.result = failed_profile(error)
            return self.result


class StepProfile:
    """Profiles the steps of an extent as it is told about them; never raises once constructed.

    Several steps may run at once (`steps_per_execution` of Keras): then all executions with a step of the range are
    profiled, at least one, but never the first of all, which builds the functions. `tell` gets each result at once.
    """

    def __init__(
        self,
        logdir: str | Path,
        extent: Extent,
        options: TracerOptions,
        tell: Callable[[Captured], object],
        run: str | None = None,
    ) -> None:
        self._extent, self._first, self._stop = extent, extent.first, extent.last + 1
        self._tell = tell
        # Processes of a job take the same steps, so they agree on a run by them.
        name = partial(profile_count.next_name, run, f"step {extent.first}")
        self._session = SafeProfile(logdir, options, name, self.close)
        self._reporting = threading.RLock()
        self._timer: threading.Timer | None = None
        self._started_at = self._next = self._first
        self._started_s = 0.0
        self.result: Captured | None = None

    @property
    def is_done(self) -> bool:
        """Whether the profile was taken, or failed."""
        return self._session.result is not None

    @property
    def is_running(self) -> bool:
        """Whether the profile is being taken."""
        return self._session.is_running

    def step_starts(self, step: int, size: int = 1, facts: Callable[[], dict[str, int]] = dict) -> None:
        """Note that `step`, or `size` steps from there on, are about to run.

        `facts` returns what Keras knows about them; it is called when the profile starts.
        """
        if self.is_done:
            return
        local.step_times.mark()
        if self.is_running:
            self._advance(step)
        elif step >= self._first or (step and step + size > self._first):
            self._session.keras_facts = facts()
            self._start(step)

    def steps_ended(self, next_step: int) -> None:
        """Note that all steps before `next_step` have ended."""
        if self.is_running and self._is_complete(next_step):
            local.step_times.mark()  # The last step ends here.
        self._advance(next_step)

    def close(self) -> None:
        """Stop early if it runs: no more steps come."""
        self._finish("training ended after")

    def fail(self, error: Exception) -> None:
        """Stop, and make an error of profiling the result."""
        if not self.is_done:
            self._session.stop()
            self._session.result = self._session.result or failed_profile(error)
            self._report()

    def too_few_steps(self, count: int, hint: str) -> None:
        """Note that training ended after `count` steps, with none in the range."""
        if not self.is_done and self.result is None:
            message = f"training ended after {counted(count, 'batch', 'batches')}, before batch {self._first}; {hint}"
            self.result = no_trace("no_steps", message)
            self._tell(self.result)

    def _start(self, step: int) -> None:
        self._started_at = self._next = step
        if not self._session.start():
            self._report()
            return
        limit_s = self._extent.limit_s
        early = f"profiling was stopped after {limit_s:g} s, after"
        self._timer = threading.Timer(limit_s, self._finish, (early,))
        self._timer.daemon = True
        self._timer.start()
        self._started_s = time.monotonic()
        local.step_times.mark()  # The time that starting took belongs to no step.

    def _advance(self, next_step: int) -> None:
        if self.is_running:
            self._next = next_step
            if self._is_complete(next_step) and next_step > self._started_at:
                self._finish()

    def _is_complete(self, next_step: int) -> bool:
        """Tell whether the steps before `next_step` are all that is wanted."""
        enough_s = self._extent.enough_s
        if enough_s is None or next_step - self._started_at < FEWEST_STEPS:
            return next_step >= self._stop
        return next_step >= self._stop or time.monotonic() - self._started_s >= enough_s

    def _finish(self, early: str = "") -> None:
        """Stop if it runs; `early` says why that is before the last step."""
        if self.is_running:
            count = self._next - self._started_at
            wanted = max(self._stop - self._started_at, 1)
            if self._extent.enough_s is not None:
                wanted = min(wanted, FEWEST_STEPS)
            batches = f"{count} of the {counted(wanted, 'batch', 'batches')} to profile"
            self._session.stop(f"{early} {batches}" if early and count < wanted else "")
            self._report()

    def _report(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        with self._reporting:
            result = self._session.result
            if result is not None and result is not self.result:
                self.result = result
                self._tell(result)


def failed_profile(error: Exception) -> Captured:
    """Return the result of a session that failed with this error."""
    if isinstance(error, CaptureError):
        return no_trace(error.reason, str(error))
    return no_trace("refused", f"profiling failed: {type(error).__name__}: {error}")


def no_trace(reason: Reason, message: str) -> Captured:
    """Return the result of a session in this process that gave no trace."""
    return Captured(worker=host_name(), reason=reason, message=message)


def _wait_for_devices() -> None:
    """Let a GPU finish its work: that of one step must neither be cut off nor count for the next."""
    tensorflow = sys.modules.get("tensorflow")
    with contextlib.suppress(Exception):
        if tensorflow is not None and tensorflow.executing_eagerly():
            tensorflow.test.experimental.sync_devices()
