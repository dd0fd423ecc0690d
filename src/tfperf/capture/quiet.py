"""One profiling session that never raises: the program that is profiled must go on as if nobody looked."""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tfperf.capture import local
from tfperf.capture.options import TracerOptions
from tfperf.errors import CaptureError, Reason
from tfperf.outcomes import Captured

Say = Callable[[str], object]


class QuietProfile:
    """A session from `start` to `stop`, once; what goes wrong is told by `result`.

    It ends with the interpreter at the latest. A forked child leaves it to the parent.
    """

    def __init__(self, logdir: str | Path, options: TracerOptions, at_exit: Callable[[], object] | None = None) -> None:
        self._logdir, self._options = logdir, options
        self._at_exit = at_exit or self.stop
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._began = False
        self.result: Captured | None = None

    @property
    def running(self) -> bool:
        """Whether the session is open, and this is the process that opened it."""
        return self._began and self.result is None and os.getpid() == self._process

    def start(self) -> bool:
        """Begin, unless there is a result already; return whether the session runs now."""
        with self._lock:
            if self._began or self.result is not None:
                return False
            self._process = os.getpid()
            if "tensorflow" not in sys.modules:  # Not to be imported for this: the program does without.
                self.result = nothing(
                    "no_tensorflow", "the program does not use TensorFlow, so there is nothing to profile"
                )
                return False
            _wait_for_devices()
            try:
                local.start(
                    self._logdir,
                    host_tracer_level=self._options.host_tracer_level,
                    device_tracer_level=self._options.device_tracer_level,
                    python_tracer_level=self._options.python_tracer_level,
                )
            except Exception as error:
                self.result = failed(error)
                return False
            self._began = True
            # Registered after local's own, it is called before that one.
            atexit.register(self._at_exit)
            return True

    def stop(self, note: str = "") -> Captured | None:
        """End the session if it is open, and return the result; `note` is worth knowing of a trace that is sound."""
        if not self.running:
            return self.result
        with self._lock:
            if self.running:
                atexit.unregister(self._at_exit)
                _wait_for_devices()
                self.result = self._stopped(note)
            return self.result

    def _stopped(self, note: str) -> Captured:
        try:
            found = local.stop()
        except Exception as error:
            return failed(error)
        return replace(found, message=note) if note and not found.message else found


def failed(error: Exception) -> Captured:
    """Return the result of a session that an error kept from being."""
    if isinstance(error, CaptureError):
        return nothing(error.reason, str(error))
    return nothing("refused", f"profiling failed: {type(error).__name__}: {error}")


def nothing(reason: Reason, message: str) -> Captured:
    """Return the result of a session without a trace."""
    return Captured(socket.gethostname(), reason=reason, message=message)


def say_on_stderr(line: str) -> None:
    """Tell the user, if anybody can hear it."""
    with contextlib.suppress(Exception):
        if sys.stderr is not None:
            # A progress bar may stand in the line.
            print(f"{chr(10) if sys.stderr.isatty() else ''}tfperf: {line}", file=sys.stderr, flush=True)


def describe(captured: Captured) -> str:
    """Say in one line where the trace is, how large it is, and what taking it cost."""
    if captured.path is None:
        return f"nothing was captured: {captured.message}"
    facts = [f"{(captured.size_bytes or 0) / 1e6:.1f} MB", f"{captured.event_count} events"]
    if captured.overhead_percent is not None:
        slower = captured.overhead_percent
        facts.append(f"steps took {slower:.0f} % longer" if slower >= 1 else "steps took no longer")
    return f"the trace is in {captured.path} ({', '.join(facts)})" + (captured.message and f"; {captured.message}")


def _wait_for_devices() -> None:
    """Let a GPU finish what it was given: work of one step must not be cut off, nor be counted to the next."""
    tensorflow = sys.modules.get("tensorflow")
    with contextlib.suppress(Exception):
        if tensorflow is not None and tensorflow.executing_eagerly():
            tensorflow.test.experimental.sync_devices()
