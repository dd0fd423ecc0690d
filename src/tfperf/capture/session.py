"""One session of the profiler of TensorFlow or JAX in this process, and the activity of Python meanwhile.

`PythonWatch` records runs of the garbage collector, with a function in `gc.callbacks`, and the CPU time of the main
thread and the thread that started the profile, with a thread that reads the clocks every few milliseconds. It does not
change the job: the function is removed at the end, `threading` does not list the thread, and failures are omitted.
"""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import gc
import os
import shutil
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tfperf.base.errors import CaptureError
from tfperf.capture.framework import Framework, computing, jax_has_started
from tfperf.capture.outcomes import TracerOptions
from tfperf.formats.wire.capture_plane import CpuSample, Pause, PythonRecord
from tfperf.formats.wire.trace_file import SUFFIX


def open_session(options: TracerOptions, scratch: Path, framework: Framework | None = None) -> Session:
    """Start a session of the profiler of `framework`, by default the one that computes.

    `scratch` is a folder for its files, removed at the end. Raises CaptureError `no_framework` without a framework,
    `busy` if another session profiles the process, or `refused` if the profiler fails.
    """
    framework = framework or computing()
    if framework is None:
        shutil.rmtree(scratch, ignore_errors=True)
        problem = "this process has imported neither TensorFlow nor JAX, so there is nothing to profile"
        raise CaptureError("no_framework", f"{problem}; import the one that computes before profiling")
    return (JaxSession if framework == "JAX" else TensorflowSession)(options, scratch)


class Session(ABC):
    """A running session of a profiler, from construction to `export` or `drop`."""

    framework: Framework

    def __init__(self, options: TracerOptions, scratch: Path) -> None:
        self._scratch = scratch
        self.facts: dict[str, Any] = {}
        """Fields of `CaptureFacts`: the start time, and after `export` the measurements."""
        self.record = PythonRecord()
        self.note = ""
        """What the profile does not contain although the caller may expect it; complete after `export`."""
        self._watch: PythonWatch | None = None
        try:
            self._start(options)
            self.facts["start_time_us"] = time.time_ns() // 1000
            self._start_s, self._start_cpu_s = time.perf_counter(), time.process_time()
            self._watch = PythonWatch()
        except BaseException:
            self.drop()
            raise

    @abstractmethod
    def _start(self, options: TracerOptions) -> None:
        """Start the profiler."""

    @abstractmethod
    def _write(self) -> None:
        """Stop the profiler and write its XSpace file anywhere below the scratch folder."""

    @abstractmethod
    def _discard(self) -> None:
        """Stop the profiler if it runs, and discard its data."""

    @abstractmethod
    def leave_to_parent(self) -> None:
        """In a forked child: keep the profiler's own session forever, because its destructor would end it."""

    @contextlib.contextmanager
    def export(self) -> Iterator[Path]:
        """Stop and yield the XSpace file, removed on exit unless moved; raises CaptureError `not_written`."""
        seconds = time.perf_counter() - self._start_s
        if seconds > 0:
            self.facts["busy_cores"] = (time.process_time() - self._start_cpu_s) / seconds
        if self._watch is not None:
            self.record, facts = self._watch.stop()
            self.facts |= facts
            self._watch = None
        try:
            self._write()
            files = list(self._scratch.rglob(f"*{SUFFIX}"))
            if not files:
                raise CaptureError("not_written", f"{self.framework} did not write a trace to {self._scratch}")
            yield files[0]
        finally:
            self.drop()

    def drop(self) -> None:
        """Stop if it still runs, and discard the data."""
        self._discard()
        if self._watch is not None:
            self._watch.stop()
            self._watch = None
        shutil.rmtree(self._scratch, ignore_errors=True)


class _Level(int):
    """A number that TensorFlow 2.21 does not convert to a bool.

    Its binding first tries to read each option as a bool, which succeeds for every int, and then drops the option
    because it needs a number. A value that cannot be converted to a bool works there and in every other version.
    """

    def __bool__(self) -> bool:
        raise TypeError("a level is neither true nor false")


class TensorflowSession(Session):
    """A session of TensorFlow's profiler."""

    framework = "TensorFlow"
    _session: Any = None

    def _start(self, options: TracerOptions) -> None:
        from tensorflow.python.framework import errors
        from tensorflow.python.profiler.internal import _pywrap_profiler

        if options.advanced:
            self.note = f"TensorFlow's own profiler has no option {', '.join(options.advanced)}"
        self._session = _pywrap_profiler.ProfilerSession()
        self._failure: type[Exception] = errors.OpError
        levels = {name: _Level(level) for name, level in options.levels.items()}
        try:
            self._session.start(str(self._scratch), levels)
        except errors.AlreadyExistsError:
            others = "TensorBoard's callback, tf.profiler, or a remote capture"
            message = f"another profiler is active in this process ({others}); stop it, or wait until it ends"
            raise CaptureError("busy", message) from None
        except errors.OpError as error:
            raise CaptureError("refused", f"TensorFlow's profiler did not start: {error.message}") from error

    def _write(self) -> None:
        if jax_has_started():
            self.note = "the profile is of TensorFlow; JAX computes in this process, too, and is not in it"
        try:
            self._session.export_to_tb()
        except self._failure as error:
            raise CaptureError("not_written", f"TensorFlow could not write the trace: {error}") from error
        finally:
            self._session = None  # Its destructor ends the session in TensorFlow; another may start now.

    def _discard(self) -> None:
        self._session = None  # Its destructor ends the session in TensorFlow.

    def leave_to_parent(self) -> None:
        """Keep TensorFlow's session forever."""
        _keep_forever(self._session)


class JaxSession(Session):
    """A session of `jax.profiler`."""

    framework = "JAX"
    _runs = False

    def _start(self, options: TracerOptions) -> None:
        from jax import profiler

        enabled = getattr(profiler.TraceAnnotation, "is_enabled", None)
        if enabled is not None and enabled():  # JAX itself would report this only at the end of the session.
            raise _jax_is_busy()
        if not hasattr(profiler, "ProfileOptions"):
            raise CaptureError("refused", "this JAX has no jax.profiler.ProfileOptions; pip install -U jax")
        asked = profiler.ProfileOptions()
        ignored = []
        for name, level in options.levels.items():
            if hasattr(asked, name):
                setattr(asked, name, level)
            elif level != getattr(TracerOptions(), name):
                ignored.append(name)
        if options.advanced:
            asked.advanced_configuration = options.advanced
        if ignored:
            self.note = f"this JAX has no {' and '.join(ignored)}, so its default was used"
        try:
            profiler.start_trace(str(self._scratch), profiler_options=asked)
        except RuntimeError as error:
            if "already been started" in str(error):
                raise _jax_is_busy() from None
            raise CaptureError("refused", f"JAX's profiler did not start: {error}") from error
        self._runs = True

    def _write(self) -> None:
        if sys.modules.get("tensorflow") is not None:
            self.note = self.note or "the profile is of JAX; TensorFlow is imported, too, and is not in it"
        self._runs = False
        state = _jax_state()
        try:
            if not hasattr(getattr(state, "profile_session", None), "stop"):
                sys.modules["jax"].profiler.stop_trace()
                return
            # JAX's own function also writes the trace as JSON, which takes four times as long.
            with state.lock:
                data = state.profile_session.stop()
            (self._scratch / f"jax{SUFFIX}").write_bytes(data)
        except Exception as error:
            if "ALREADY_EXISTS" in str(error):
                raise _jax_is_busy() from error
            raise CaptureError("not_written", f"JAX could not write the trace: {error}") from error
        finally:
            with contextlib.suppress(Exception):
                state.reset()  # Otherwise JAX refuses the next session, after an error.

    def _discard(self) -> None:
        if self._runs:
            self._runs = False
            state = _jax_state()
            with contextlib.suppress(Exception):
                # The session's destructor ends it.
                state.reset() if state is not None else sys.modules["jax"].profiler.stop_trace()

    def leave_to_parent(self) -> None:
        """Keep JAX's session forever."""
        _keep_forever(getattr(_jax_state(), "profile_session", None))


def _keep_forever(session: Any) -> None:
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(session))


def _jax_state() -> Any:
    """Return where JAX keeps the session of the process; None if this JAX has no such place."""
    return getattr(sys.modules.get("jax._src.profiler"), "_profile_state", None)


def _jax_is_busy() -> CaptureError:
    others = "jax.profiler.trace, or a remote capture"
    message = f"another profiler is active in this process ({others}); stop it, or wait until it ends"
    return CaptureError("busy", message)


_PAUSE_S = 0.005
"""Interval between samples; a sample takes 10 us."""
_MOST_SAMPLES, _MOST_PAUSES = 1 << 13, 1 << 14
_LEAST_NS = 10_000
"""Shorter collections are counted, but not listed."""
_watching: set[PythonWatch] = set()


class PythonWatch:
    """Records from construction to `stop`; neither raises."""

    def __init__(self) -> None:
        self._ended = _thread.allocate_lock()
        self._ended.acquire()
        self._pauses: deque[Pause] = deque(maxlen=_MOST_PAUSES)
        self._count, self._total_ns, self._started_ns = 0, 0, 0
        self._threads: dict[int, _Clock] = {}
        self._samples: dict[int, list[CpuSample]] = {}
        self._looking = threading.Lock()
        _watching.add(self)
        gc.callbacks.append(self._note_collection)
        with contextlib.suppress(Exception):  # Only Linux has these clocks.
            # The main thread has the ID of its process. Python may not know it in a forked child.
            for thread in {threading.get_native_id(), os.getpid()}:
                self._threads[thread] = _Clock(thread)
                self._samples[thread] = []
            self._look()
            _thread.start_new_thread(self._keep_looking, ())

    def stop(self) -> tuple[PythonRecord, Mapping[str, int | float]]:
        """Stop, and return the record and fields of `CaptureFacts`."""
        self.forget()
        with self._looking:
            self._look()
            for clock in self._threads.values():
                clock.close()
            self._threads = {}
        samples = {thread: seen for thread, seen in self._samples.items() if len(seen) > 1}
        facts = {"gc_count": self._count, "gc_ms": self._total_ns / 1e6}
        return PythonRecord(pauses=tuple(self._pauses), samples=samples), facts

    def forget(self) -> None:
        """Remove the watch from the process; sufficient in a forked child, which has no sampling thread."""
        _watching.discard(self)
        with contextlib.suppress(ValueError):
            gc.callbacks.remove(self._note_collection)
        with contextlib.suppress(RuntimeError):  # It was released before.
            self._ended.release()

    def _note_collection(self, phase: str, info: Mapping[str, int]) -> None:
        """Record the start and the end of a collection; Python calls this on the collecting thread, never concurrently.

        Collections of the youngest generation are omitted: there are thousands per second, of a few microseconds each.
        """
        if not info["generation"]:
            return
        if phase == "start":
            self._started_ns = time.time_ns()
            return
        duration_ns = time.time_ns() - self._started_ns
        if not self._started_ns or duration_ns < 0:
            return
        self._count += 1
        self._total_ns += duration_ns
        if duration_ns >= _LEAST_NS:
            frame, place = sys._getframe().f_back, ""
            if frame is not None:
                code = frame.f_code
                file = code.co_filename.rpartition(os.sep)[2]
                place = f"{file}:{frame.f_lineno} {code.co_name}"
            thread, generation, collected = threading.get_native_id(), info["generation"], info["collected"]
            self._pauses.append(Pause(self._started_ns, duration_ns, thread, generation, collected, place))
        self._started_ns = 0

    def _keep_looking(self) -> None:
        pause_s = _PAUSE_S
        with contextlib.suppress(Exception):
            while not self._ended.acquire(timeout=pause_s):
                with self._looking:
                    self._look()
                    for seen in self._samples.values():
                        if len(seen) >= _MOST_SAMPLES:  # Samples are cumulative: halve the resolution.
                            del seen[1:-1:2]
                            pause_s = 2 * pause_s

    def _look(self) -> None:
        for thread, clock in [*self._threads.items()]:
            try:
                self._samples[thread].append(clock.sample())
            except OSError:  # The thread has ended.
                clock.close()
                del self._threads[thread]


class _Clock:
    """The clocks of a thread of this process; raises OSError if it has none."""

    def __init__(self, thread: int) -> None:
        # The result of pthread_getcpuclockid, which must not be called for a thread that has ended.
        self._clock = (~thread << 3) | 6
        time.clock_gettime_ns(self._clock)
        self._queue: int | None = None
        with contextlib.suppress(OSError):
            self._queue = os.open(f"/proc/self/task/{thread}/schedstat", os.O_RDONLY | os.O_CLOEXEC)

    def sample(self) -> CpuSample:
        queued_ns = 0 if self._queue is None else int(os.pread(self._queue, 80, 0).split()[1])
        return CpuSample(time.time_ns(), time.clock_gettime_ns(self._clock), queued_ns)

    def close(self) -> None:
        if self._queue is not None:
            os.close(self._queue)
            self._queue = None


def _forget_all() -> None:
    """In a forked child: the parent continues to watch."""
    for watch in [*_watching]:
        watch.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
