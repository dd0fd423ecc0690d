"""Profiling from inside the job: `start`, `stop`, `profile` and `step`.

TensorFlow allows one profiling session in a process. Here, a second start is an error that says so, a session ends
when the interpreter does, and the trace is written whole or not at all.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import shutil
import socket
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

from tfperf.capture.options import TracerOptions
from tfperf.capture.step_times import StepTimes
from tfperf.capture.store import RunFolder
from tfperf.capture.verdict import judge
from tfperf.errors import CaptureError, TraceFormatError
from tfperf.outcomes import Captured
from tfperf.wire.trace_file import SUFFIX

step_times = StepTimes()
_lock = threading.RLock()
"""Held while a session begins or ends. A signal handler may call `stop` in the thread that holds it: hence an RLock."""
_open: _Session | None = None
_EXIT_SECONDS = 60.0
"""How long the end of the interpreter waits for another thread that writes a trace."""


class _Level(int):
    """A number that TensorFlow 2.21 does not mistake for a bool.

    Its binding tries to read each option as a bool first, which every int can be, and then drops the option because
    it expects a number. A value whose truth cannot be told gets through, there and in every other version.
    """

    def __bool__(self) -> bool:
        raise TypeError("a level is neither true nor false")


@dataclass(frozen=True, slots=True)
class _Session:
    """The session that runs."""

    profiler: TensorflowSession
    folder: RunFolder
    options: TracerOptions
    began: float


def running() -> bool:
    """Whether this process is being profiled by `start` or `profile`."""
    return _open is not None


class TensorflowSession:
    """One run of TensorFlow's profiler in this process, from construction to `export` or `drop`.

    `scratch` is a folder of its own for TensorFlow to write into; it is removed at the end. Raises CaptureError if
    TensorFlow is not there (`no_tensorflow`), something else profiles the process (`busy`), or it fails (`refused`).
    """

    def __init__(self, options: TracerOptions, scratch: Path) -> None:
        self._scratch = scratch
        try:
            self._session, self._failure = _begin(options, scratch)
        except BaseException:
            self._clear()
            raise

    @contextlib.contextmanager
    def export(self) -> Iterator[Path]:
        """Stop, and lend the file with the XSpace that TensorFlow writes; what is still there afterwards is removed."""
        try:
            try:
                self._session.export_to_tb()
            except self._failure as error:
                raise CaptureError("not_written", f"TensorFlow could not write the trace: {error}") from error
            finally:
                self._session = None  # Its destructor ends the session in TensorFlow; another may begin now.
            files = list(self._scratch.rglob(f"*{SUFFIX}"))
            if not files:
                raise CaptureError("not_written", f"TensorFlow wrote no trace below {self._scratch}")
            yield files[0]
        finally:
            self.drop()

    def drop(self) -> None:
        """Stop if it still runs, and keep nothing."""
        self._session = None  # Its destructor ends the session in TensorFlow.
        self._clear()

    def _clear(self) -> None:
        shutil.rmtree(self._scratch, ignore_errors=True)


def require_tensorflow() -> None:
    """Import TensorFlow; raises CaptureError `no_tensorflow` if it is not there."""
    try:
        import tensorflow  # noqa: F401
    except ImportError as error:
        raise CaptureError(
            "no_tensorflow", f"profiling from inside a job needs TensorFlow ({error}); pip install tensorflow"
        ) from error


def _begin(options: TracerOptions, scratch: Path) -> tuple[Any, type[Exception]]:
    """Start TensorFlow's profiler; return its session, and the error that it raises when it fails."""
    require_tensorflow()
    from tensorflow.python.framework import errors
    from tensorflow.python.profiler.internal import _pywrap_profiler

    session = _pywrap_profiler.ProfilerSession()
    levels = ("host_tracer_level", "device_tracer_level", "python_tracer_level")
    try:
        session.start(str(scratch), {name: _Level(getattr(options, name)) for name in levels})
    except errors.AlreadyExistsError:
        raise CaptureError(
            "busy", "something else profiles this process already (TensorBoard's callback, tf.profiler, or a remote "
            "capture); stop it, or wait until it is done"
        ) from None  # fmt: skip
    except errors.OpError as error:
        raise CaptureError("refused", f"TensorFlow's profiler did not start: {error.message}") from error
    return session, errors.OpError


def start(
    logdir: str | Path = "logs",
    *,
    host_tracer_level: int = 2,
    device_tracer_level: int = 1,
    python_tracer_level: int = 0,
) -> None:
    """Start profiling this process; `stop` writes the trace below `logdir`.

    The levels are those of `TracerOptions`. Raises CaptureError with reason `already_started`, `busy`,
    `no_tensorflow` or `not_written` (`logdir` cannot be written to: said before anything runs).
    """
    global _open
    options = TracerOptions(host_tracer_level, device_tracer_level, python_tracer_level)
    with _lock:
        if running():
            raise CaptureError("already_started", "tfperf already profiles this process; call tfperf.stop() first")
        folder = RunFolder(logdir)
        try:
            profiler = TensorflowSession(options, folder.scratch())
        except BaseException:
            folder.drop_if_empty()
            raise
        _open = _Session(profiler, folder, options, time.perf_counter())
    # Registered last, it is called first at exit: before TensorFlow, imported just now, takes itself down.
    atexit.unregister(_stop_at_exit)
    atexit.register(_stop_at_exit)


def stop() -> Captured:
    """Stop profiling, write the trace and return where it is and what it holds.

    Raises CaptureError with reason `not_started`, or `not_written`. The session is over in any case.
    """
    global _open
    with _lock:
        if _open is None:
            raise CaptureError("not_started", "nothing is being profiled; call tfperf.start() first")
        session, _open = _open, None
        ended = time.perf_counter()
        try:
            with session.profiler.export() as file:
                found = _keep(file, session.folder, session.options)
        finally:
            session.folder.drop_if_empty()
        return replace(found, overhead_percent=step_times.overhead_percent(session.began, ended))


def _keep(file: Path, folder: RunFolder, options: TracerOptions) -> Captured:
    """Store the trace of this process, and judge what it holds."""
    worker = socket.gethostname()
    try:
        path, contents = folder.adopt(worker, file)
    except TraceFormatError as error:
        raise CaptureError("bad_reply", f"TensorFlow's profiler gave no whole trace: {error}") from error
    reason, message = judge(contents, options, here=True)
    if path is None:
        message = "TensorFlow did nothing while it was profiled, so there is no trace; profile where it works"
    return Captured(worker, path, contents.size_bytes if path else None, contents.event_count, reason, message)


class profile:  # noqa: N801 - used like a function
    """Profile what runs inside `with tfperf.profile("logs") as captured:`; the trace is written also if that raises.

    Arguments are those of `start`. Afterwards `result` is a `Captured`. A problem (nothing ran, the part of the GPU is
    missing) is a RuntimeWarning: the program goes on.
    """

    def __init__(
        self,
        logdir: str | Path = "logs",
        *,
        host_tracer_level: int = 2,
        device_tracer_level: int = 1,
        python_tracer_level: int = 0,
    ) -> None:
        self._logdir = logdir
        self._levels = {
            "host_tracer_level": host_tracer_level,
            "device_tracer_level": device_tracer_level,
            "python_tracer_level": python_tracer_level,
        }
        self._session: _Session | None = None
        self.result: Captured | None = None
        """What came of it, once the block is left."""

    def __enter__(self) -> profile:
        with _lock:
            start(self._logdir, **self._levels)
            self._session = _open
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if _open is not self._session:
            return  # The block called stop() itself, or this is a child process that it forked.
        try:
            self.result = stop()
        except CaptureError as failure:
            if error is None:
                raise
            # The error of the block matters more than the trace that it cost.
            warnings.warn(str(failure), RuntimeWarning, stacklevel=2)
            return
        if self.result.reason:
            warnings.warn(self.result.message, RuntimeWarning, stacklevel=2)


class step:  # noqa: N801 - used like a function
    """Mark one training step: `with tfperf.step(number):`, also while nothing is being profiled (about 1 µs then).

    The step becomes a root event, which tfperf, TensorBoard and XProf all take for a step. Needs TensorFlow: raises
    CaptureError `no_tensorflow` without.
    """

    __slots__ = ("_marker", "_name", "_number")

    def __init__(self, number: int, name: str = "train") -> None:
        self._number, self._name = int(number), name
        self._marker: Any = None

    def __enter__(self) -> step:
        step_times.mark()
        if _tracing().traceme_enabled():
            self._marker = step_marker(self._name, self._number)
        return self

    def __exit__(self, *error: object) -> None:
        if self._marker is not None:
            self._marker.Stop()


def step_marker(name: str, number: int) -> Any:
    """Begin the event of a step; `Stop()` of what is returned ends it."""
    # TensorFlow takes what follows a "#" for statistics.
    return _tracing().TraceMe(name.replace("#", "_"), step_num=number, _r=1)


@cache
def _tracing() -> Any:
    require_tensorflow()
    from tensorflow.python.profiler.internal import _pywrap_traceme

    return _pywrap_traceme


def _stop_at_exit() -> None:
    """End the session with the interpreter, so that what was recorded is kept and TensorFlow can shut down."""
    # The program is over: whatever fails here is told in one line, and nothing is waited for without end.
    with contextlib.suppress(Exception):
        if not _lock.acquire(timeout=_EXIT_SECONDS):
            return
        try:
            if running():
                found = stop()
                words = f"the trace is in {found.path}" if found.path else found.message
                print(f"tfperf: the program ended while it was profiled; {words}", file=sys.stderr)
        except Exception as error:
            print(f"tfperf: the program ended while it was profiled; there is no trace: {error}", file=sys.stderr)
        finally:
            _lock.release()


def _leave_to_parent() -> None:
    """In a forked child: the session goes on in the parent. To end it here could wait for threads that are gone."""
    global _open, _lock
    _lock = threading.RLock()
    if _open is not None:
        # One reference too many keeps TensorFlow's session from being destructed, and thereby ended.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(_open))
        _open = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)
