"""TensorFlow's own profiler in this process: one session of it."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from tfperf.base.errors import CaptureError
from tfperf.capture.python_watch import PythonWatch
from tfperf.capture.tracer_options import TracerOptions
from tfperf.formats.wire.capture_plane import PythonRecord
from tfperf.formats.wire.trace_file import SUFFIX


class _Level(int):
    """A number that TensorFlow 2.21 does not take for a bool.

    Its binding tries to read each option as a bool first, which succeeds for every int, and then drops the option
    because it needs a number. A value that refuses to become a bool gets through, there and in every other version.
    """

    def __bool__(self) -> bool:
        raise TypeError("a level is neither true nor false")


class TensorflowSession:
    """A session of TensorFlow's profiler, from construction to `export` or `drop`.

    `scratch` is a folder for TensorFlow to write into; it is removed at the end. Raises CaptureError `no_tensorflow`,
    `busy` if something else profiles the process, or `refused` if the profiler fails.
    """

    def __init__(self, options: TracerOptions, scratch: Path) -> None:
        self._scratch = scratch
        self._session: Any = None
        self.facts: dict[str, Any] = {}
        """Fields of `CaptureFacts`: when it started; from `export` on, what it measured since."""
        self.record = PythonRecord()
        """What Python did, from `export` on."""
        self._watch: PythonWatch | None = None
        try:
            require_tensorflow()
            self._start(options)
        except BaseException:
            self.drop()
            raise

    def _start(self, options: TracerOptions) -> None:
        from tensorflow.python.framework import errors
        from tensorflow.python.profiler.internal import _pywrap_profiler

        self._session = _pywrap_profiler.ProfilerSession()
        self._failure: type[Exception] = errors.OpError
        try:
            self._session.start(str(self._scratch), {name: _Level(level) for name, level in asdict(options).items()})
        except errors.AlreadyExistsError:
            others = "TensorBoard's callback, tf.profiler, or a remote capture"
            message = f"something else profiles this process ({others}); stop it, or wait until it ends"
            raise CaptureError("busy", message) from None
        except errors.OpError as error:
            raise CaptureError("refused", f"TensorFlow's profiler did not start: {error.message}") from error
        self.facts["start_time_us"] = time.time_ns() // 1000
        self._start_s, self._start_cpu_s = time.perf_counter(), time.process_time()
        self._watch = PythonWatch()

    @contextlib.contextmanager
    def export(self) -> Iterator[Path]:
        """Stop, and lend the file with the XSpace that TensorFlow writes; it is removed afterwards unless moved.

        Raises CaptureError `not_written`.
        """
        seconds = time.perf_counter() - self._start_s
        if seconds > 0:
            self.facts["busy_cores"] = (time.process_time() - self._start_cpu_s) / seconds
        if self._watch is not None:
            self.record, facts = self._watch.stop()
            self.facts |= facts
            self._watch = None
        try:
            try:
                self._session.export_to_tb()
            except self._failure as error:
                raise CaptureError("not_written", f"TensorFlow could not write the trace: {error}") from error
            finally:
                self._session = None  # Its destructor ends the session in TensorFlow; another may start now.
            files = list(self._scratch.rglob(f"*{SUFFIX}"))
            if not files:
                raise CaptureError("not_written", f"TensorFlow wrote no trace below {self._scratch}")
            yield files[0]
        finally:
            self.drop()

    def drop(self) -> None:
        """Stop if it still runs, and keep nothing."""
        self._session = None  # Its destructor ends the session in TensorFlow.
        if self._watch is not None:
            self._watch.stop()
            self._watch = None
        shutil.rmtree(self._scratch, ignore_errors=True)


def require_tensorflow() -> None:
    """Import TensorFlow; raises CaptureError `no_tensorflow` if it is not installed."""
    try:
        import tensorflow  # noqa: F401
    except ImportError as error:
        message = f"profiling from inside a job needs TensorFlow ({error}); pip install tensorflow"
        raise CaptureError("no_tensorflow", message) from error
