"""A profiling session that never raises: the program that is profiled goes on as if it were not."""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import asdict, replace

from tfperf.capture import local
from tfperf.capture.outcomes import Captured
from tfperf.capture.tracer_options import TracerOptions
from tfperf.errors import CaptureError, Reason


class SafeProfile:
    """One session from `start` to `stop`; what goes wrong is in `result`.

    It ends with the interpreter at the latest. A forked child leaves it to the parent.
    """

    def __init__(self, logdir: str | Path, options: TracerOptions, at_exit: Callable[[], object] | None = None) -> None:
        self._logdir, self._options = logdir, options
        self._at_exit = at_exit or self.stop
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._is_started = False
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
                local.start(self._logdir, **asdict(self._options))
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
                    captured = local.stop()
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
    """Return the result of a session in this process that gave no trace."""
    return Captured(worker=socket.gethostname(), reason=reason, message=message)


def _wait_for_devices() -> None:
    """Let a GPU finish its work: that of one step must neither be cut off nor count for the next."""
    tensorflow = sys.modules.get("tensorflow")
    with contextlib.suppress(Exception):
        if tensorflow is not None and tensorflow.executing_eagerly():
            tensorflow.test.experimental.sync_devices()
