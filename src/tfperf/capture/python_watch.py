"""What Python does while a job is profiled: runs of its garbage collector, and the CPU time of the main threads.

A function in `gc.callbacks` notes each collection. A thread of low cost looks at the clocks of two threads every few
milliseconds: of the main thread, and of the one that started the profile. Nothing of the job changes: the function
is taken out at the end, the thread is not one of `threading`, and what fails is left out.
"""

from __future__ import annotations

import _thread
import contextlib
import gc
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping

from tfperf.formats.wire.capture_plane import CpuSample, Pause, PythonRecord

_PAUSE_S = 0.005
"""How often to look: one look takes 10 us."""
_MOST_SAMPLES, _MOST_PAUSES = 1 << 13, 1 << 14
_LEAST_NS = 10_000
"""Shorter collections are counted, and not listed."""
_watching: set[PythonWatch] = set()


class PythonWatch:
    """Watches from construction to `stop`; neither raises."""

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
            for thread in {threading.get_native_id(), threading.main_thread().native_id or 0}:
                self._threads[thread] = _Clock(thread)
                self._samples[thread] = []
            self._look()
            _thread.start_new_thread(self._keep_looking, ())

    def stop(self) -> tuple[PythonRecord, Mapping[str, int | float]]:
        """End, and return what was seen, and fields of `CaptureFacts`."""
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
        """Leave no trace in the process; in a forked child, which has no thread that looks, this is all."""
        _watching.discard(self)
        with contextlib.suppress(ValueError):
            gc.callbacks.remove(self._note_collection)
        with contextlib.suppress(RuntimeError):  # It was released before.
            self._ended.release()

    def _note_collection(self, phase: str, info: Mapping[str, int]) -> None:
        """Note when a collection starts and ends; Python calls this on the thread that collects, never two at once.

        Those of the youngest objects are left out: there are thousands in a second, of some microseconds.
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
                        if len(seen) >= _MOST_SAMPLES:  # They add up, so every second one says the same, less finely.
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
    """The clocks of a thread of this process; raises OSError where there are none."""

    def __init__(self, thread: int) -> None:
        # As pthread_getcpuclockid makes it, which must not be asked about a thread that has ended.
        self._clock = (~thread << 3) | 6
        time.clock_gettime_ns(self._clock)
        self._queue: int | None = None
        with contextlib.suppress(OSError):
            self._queue = os.open(f"/proc/self/task/{thread}/schedstat", os.O_RDONLY | os.O_CLOEXEC)

    def sample(self) -> CpuSample:
        """Return the times of the thread now."""
        queued_ns = 0 if self._queue is None else int(os.pread(self._queue, 80, 0).split()[1])
        return CpuSample(time.time_ns(), time.clock_gettime_ns(self._clock), queued_ns)

    def close(self) -> None:
        """Close the file that it reads."""
        if self._queue is not None:
            os.close(self._queue)
            self._queue = None


def _forget_all() -> None:
    """In a forked child: the parent goes on watching."""
    for watch in [*_watching]:
        watch.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
