"""Profiling from inside the job: `start`, `stop`, `profile` and `step`; `SafeProfile` does the same and never raises.

TensorFlow and JAX allow one session per process each: a second start raises an error. Sessions end at exit; traces are
atomic.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median, quantiles
from threading import get_ident
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from tfperf.base.errors import CaptureError, Reason, TraceFormatError
from tfperf.capture.framework import FRAMEWORKS, Framework, computing, start_marker, wait_for_devices
from tfperf.capture.machine import HOST_VARIABLE, host_name, job_facts
from tfperf.capture.outcomes import Captured, TracerOptions, captured_trace
from tfperf.capture.run_folder import RunFolder, RunName, file_name, profile_count
from tfperf.capture.session import Session, open_session
from tfperf.formats.wire.trace_file import SUFFIX

if TYPE_CHECKING:
    from tfperf.formats.wire.contents import Contents

_MIN_STEPS, _MAX_STEPS, _MAX_SESSIONS = 5, 10_000, 16
_SURELY_SMALL = 0.05
"""The overhead is 0 if noise of at most this share explains a difference of steps, and unknown with more noise."""
_lock = threading.RLock()
"""Held while a session starts or ends; reentrant, because a signal handler in the same thread may call `stop`."""
_running: _RunningSession | None = None
_EXIT_SECONDS = 60.0
"""Maximum wait at interpreter exit for another thread that writes a trace."""


class StepTimes:
    """Start times of the latest steps of each thread, in seconds of a monotonic clock."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._starts: deque[tuple[int, float]] = deque(maxlen=_MAX_STEPS)
        self._sessions: deque[tuple[float, float]] = deque(maxlen=_MAX_SESSIONS)

    def mark(self) -> None:
        """Record that a step starts in this thread, which ends the previous one."""
        self._starts.append((get_ident(), self._clock()))

    def overhead(self, started_s: float, ended_s: float, recording_s: float) -> dict[str, float]:
        """Return `usual_step_ms`, the median step before a session, and `overhead_percent`, the slowdown in it.

        The overhead is 0 if steps are not slower, and missing if it is within the noise or recording cannot take that
        long. Recording took at most `recording_s` of the session. Empty with fewer than five whole steps before or in
        the session; steps of earlier sessions do not count. A step lasts until the next step of its thread starts.
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
            return {}
        # As many steps before as during: long ago, the job may have been in another phase.
        before = before[-max(len(during), _MIN_STEPS) :]
        usual = median(before)
        if not usual:
            return {}
        slower = max(0.0, median(during) / usual - 1)
        noise = math.hypot(_median_error(before), _median_error(during)) / usual
        if slower <= noise:
            return {"usual_step_ms": 1000 * usual} | ({"overhead_percent": 0.0} if noise <= _SURELY_SMALL else {})
        is_explained = slower / (1 + slower) <= min(recording_s / (ended_s - started_s), 1.0)
        return {"usual_step_ms": 1000 * usual} | ({"overhead_percent": 100 * slower} if is_explained else {})


def _median_error(times: Sequence[float]) -> float:
    """Return the error of the median: two standard errors, with the spread of the middle half of the times."""
    first, _, third = quantiles(times, n=4, method="inclusive")
    return 1.86 * (third - first) / math.sqrt(len(times))


step_times = StepTimes()


class _RunningSession(Struct, frozen=True):
    profiler: Session
    folder: RunFolder
    options: TracerOptions
    started_s: float


def is_running() -> bool:
    """Return whether `start` or `profile` is profiling this process."""
    return _running is not None


def start(
    logdir: str | Path = "logs",
    *,
    host_tracer_level: int = 2,
    device_tracer_level: int = 1,
    python_tracer_level: int = 0,
    advanced: Mapping[str, bool | int | str] | None = None,
    run: str | None = None,
) -> None:
    """Start profiling this process; `stop` writes the trace below `logdir`.

    The profile is of TensorFlow or JAX, whichever the program has imported; with both, of JAX if its devices have
    started. The levels and `advanced` are as in `TracerOptions`. Processes with the same `run` or TFPERF_RUN, or in the
    same cluster, write into one run. Raises CaptureError with reason `already_started`, `busy`, `no_framework`, or
    `not_written` if `logdir` cannot be written to, and TfperfError for an invalid run name; then nothing was started.
    """
    options = TracerOptions(host_tracer_level, device_tracer_level, python_tracer_level, dict(advanced or {}))
    _wait_for_jax()
    begin(logdir, options, lambda: profile_count.next_name(run))


def _wait_for_jax() -> None:
    """Wait for the devices of JAX, whose calls return early; waiting for those of TensorFlow would be recorded."""
    if computing() == "JAX":
        wait_for_devices()


def begin(
    logdir: str | Path, options: TracerOptions, name: Callable[[], RunName], framework: Framework | None = None
) -> None:
    """Start as `start` does; `name`, called once a run is certain, returns the name of the run."""
    global _running
    with _lock:
        if is_running():
            raise CaptureError("already_started", "tfperf is already profiling this process; call tfperf.stop() first")
        folder = RunFolder(logdir, name())
        try:
            profiler = open_session(options, folder.scratch(), framework)
        except BaseException:
            folder.drop_if_empty()
            raise
        _running = _RunningSession(profiler, folder, options, time.perf_counter())
    # Functions registered last run first at exit: this one must run before the framework shuts down.
    atexit.unregister(_stop_at_exit)
    atexit.register(_stop_at_exit)


def stop() -> Captured:
    """Stop profiling, write the trace, and return its path and contents. The session ends in any case.

    With JAX, it waits for the devices first. Raises CaptureError with reason `not_started`, `not_written`, or
    `bad_reply` if the trace is damaged.
    """
    if is_running():
        _wait_for_jax()
    return end({})


def end(keras_facts: Mapping[str, int]) -> Captured:
    """Stop as `stop` does; `keras_facts` are additional fields of `CaptureFacts` for the trace."""
    global _running
    with _lock:
        if _running is None:
            raise CaptureError("not_started", "this process is not being profiled; call tfperf.start() first")
        session, _running = _running, None
        ended_s = time.perf_counter()
        worker = host_name()
        overhead: dict[str, float] = {}

        def facts_of(contents: Contents) -> bytes:
            overhead.update(step_times.overhead(session.started_s, ended_s, contents.longest_recording_s))
            facts = replace(job_facts(), **session.profiler.facts, **keras_facts, **overhead)
            return facts.to_bytes(session.profiler.record, contents.start_ns)

        try:
            with session.profiler.export() as file:
                path, contents = session.folder.adopt(worker, file, facts_of)
        except TraceFormatError as error:
            name = session.profiler.framework
            raise CaptureError("bad_reply", f"the trace from the profiler of {name} is damaged: {error}") from error
        finally:
            session.folder.drop_if_empty()
        if path and path.name != file_name(worker):
            problem = f"run {path.parent.name} already has a trace of {worker}, which was kept"
            hint = f"this process wrote {path.name} (to set the name: {HOST_VARIABLE}=NAME)"
            print(f"tfperf: {problem}; {hint}", file=sys.stderr, flush=True)
        captured = captured_trace(
            path.name.removesuffix(SUFFIX) if path else worker, path, contents, session.options, is_here=True
        )
        name = session.profiler.framework
        idle = f"no {name} activity was recorded, so there is no trace; profile code that runs {name} ops"
        message = captured.message or session.profiler.note if path else idle
        return replace(captured, message=message, overhead_percent=overhead.get("overhead_percent"))


class profile:  # noqa: N801 - used like a function
    """Profile the block of `with tfperf.profile("logs") as profiled:`; the trace is written even if the block raises.

    Arguments as in `start`. After the block, `result` is a `Captured`. Problems (no events, no GPU events) are
    reported as RuntimeWarning, and the program continues.
    """

    def __init__(
        self,
        logdir: str | Path = "logs",
        *,
        host_tracer_level: int = 2,
        device_tracer_level: int = 1,
        python_tracer_level: int = 0,
        advanced: Mapping[str, bool | int | str] | None = None,
        run: str | None = None,
    ) -> None:
        self._logdir, self._run = logdir, run
        self._options = TracerOptions(host_tracer_level, device_tracer_level, python_tracer_level, dict(advanced or {}))
        self._session: _RunningSession | None = None
        self.result: Captured | None = None
        """The result, after the end of the block."""

    def __enter__(self) -> profile:
        with _lock:
            start(self._logdir, **asdict(self._options), run=self._run)
            self._session = _running
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if _running is not self._session:
            return  # The block called stop() itself, or this is a child process that it forked.
        try:
            self.result = stop()
        except CaptureError as failure:
            if error is None:
                raise
            # The error of the block matters more than the lost trace.
            warnings.warn(str(failure), RuntimeWarning, stacklevel=2)
            return
        if self.result.reason:
            warnings.warn(self.result.message, RuntimeWarning, stacklevel=2)


class step:  # noqa: N801 - used like a function
    """Mark one training step: `with tfperf.step(number):`. Without a running profile, this takes about 1 µs.

    tfperf, TensorBoard and XProf recognize the root event, of TensorFlow or JAX, as a step.
    """

    __slots__ = ("_end", "_name", "_number")

    def __init__(self, number: int, name: str = "train") -> None:
        self._number, self._name = int(number), name
        self._end: Callable[[], object] | None = None

    def __enter__(self) -> step:
        step_times.mark()
        self._end = start_marker(self._name, self._number)
        return self

    def __exit__(self, *error: object) -> None:
        if self._end is not None:
            self._end()


def _stop_at_exit() -> None:
    """End the session at interpreter exit, so that its trace is kept and the framework can shut down."""
    # The program is over, so a failure is one line, and waits are limited.
    with contextlib.suppress(Exception):
        if not _lock.acquire(timeout=_EXIT_SECONDS):
            return
        try:
            if is_running():
                captured = stop()
                words = f"wrote {captured.path}" if captured.path else captured.message
                print(f"tfperf: the program ended during profiling; {words}", file=sys.stderr)
        except Exception as error:
            print(f"tfperf: the program ended during profiling; no trace was written: {error}", file=sys.stderr)
        finally:
            _lock.release()


def _leave_to_parent() -> None:
    """In a forked child, leave the session to the parent: ending it here could wait for threads that are gone."""
    global _running, _lock
    _lock = threading.RLock()
    if _running is not None:
        _running.profiler.leave_to_parent()
        _running = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)


class SafeProfile:
    """A session from `start` to `stop` or exit, with errors in `result`; a forked child leaves it to the parent."""

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
        """Fields of `CaptureFacts` that only Keras provides."""
        self.keras_backend = ""
        """The library that Keras computes with; empty for a program that may not use Keras."""
        self.result: Captured | None = None

    @property
    def is_running(self) -> bool:
        """Return whether the session runs, and this process started it."""
        return self._is_started and self.result is None and os.getpid() == self._process

    def start(self) -> bool:
        """Start, unless there is a result already; return whether the session runs now."""
        with self._lock:
            if self._is_started or self.result is not None:
                return False
            self._process = os.getpid()
            keras = self.keras_backend
            framework = next((name for name, module in FRAMEWORKS.items() if module == keras), None)
            framework = framework if keras else computing()
            if framework is None:
                problem = f"Keras uses {keras}" if keras else "the program uses neither TensorFlow nor JAX"
                self.result = no_trace("no_framework", f"{problem}, so it cannot be profiled")
                return False
            wait_for_devices()
            try:
                begin(self._logdir, self._options, self._name, framework)
            except Exception as error:
                self.result = failed_profile(error)
                return False
            self._is_started = True
            # Registered after local's own function, so it runs before that one.
            atexit.register(self._at_exit)
            return True

    def stop(self, note: str = "") -> Captured | None:
        """End a running session and return the result; `note` is the message for a trace without problems."""
        if not self.is_running:
            return self.result
        with self._lock:
            if self.is_running:
                atexit.unregister(self._at_exit)
                wait_for_devices()
                try:
                    captured = end(self.keras_facts)
                    self.result = replace(captured, message=captured.message or note)
                except Exception as error:
                    self.result = failed_profile(error)
            return self.result


def failed_profile(error: Exception) -> Captured:
    """Return the result of a session that failed with this error."""
    if isinstance(error, CaptureError):
        return no_trace(error.reason, str(error))
    return no_trace("refused", f"profiling failed: {type(error).__name__}: {error}")


def no_trace(reason: Reason, message: str) -> Captured:
    """Return the result of a session in this process without a trace."""
    return Captured(worker=host_name(), reason=reason, message=message)
