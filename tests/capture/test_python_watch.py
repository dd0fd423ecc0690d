"""What Python does is watched without a trace in the process: collections, and the CPU time of two threads."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from itertools import pairwise

import pytest

from tfperf.capture.tensorflow_session import PythonWatch


def test_collections_are_noted_with_the_line_that_ran() -> None:
    watch = PythonWatch()
    cycles = [[None] for _ in range(20_000)]
    for cycle in cycles:
        cycle[0] = cycle  # type: ignore[call-overload]
    del cycles, cycle
    begin_ns = time.time_ns()
    gc.collect()
    end_ns = time.time_ns()
    record, facts = watch.stop()
    longest = max(record.pauses, key=lambda pause: pause.duration_ns)
    assert begin_ns <= longest.start_ns <= longest.start_ns + longest.duration_ns <= end_ns
    assert (longest.generation, longest.thread) == (2, threading.get_native_id())
    assert longest.collected >= 20_000
    assert longest.place.startswith("test_python_watch.py:")
    assert longest.place.endswith(" test_collections_are_noted_with_the_line_that_ran")
    assert facts["gc_count"] >= len(record.pauses) > 0
    assert facts["gc_ms"] >= longest.duration_ns / 1e6


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has clocks of other threads")
def test_cpu_time_tells_computing_from_waiting() -> None:
    watch = PythonWatch()
    end_s = time.thread_time() + 0.05
    while time.thread_time() < end_s:
        pass
    between_ns = time.time_ns()
    time.sleep(0.05)
    record, _ = watch.stop()
    samples = record.samples[threading.get_native_id()]
    last = next(sample for sample in samples if sample.time_ns >= between_ns)
    assert samples[-1].cpu_ns - samples[0].cpu_ns >= 50_000_000
    assert samples[-1].cpu_ns - last.cpu_ns < 10_000_000
    assert samples[-1].time_ns - last.time_ns > 20_000_000
    assert all(first.time_ns <= second.time_ns for first, second in pairwise(samples))


def test_the_process_is_as_before() -> None:
    callbacks, threads = [*gc.callbacks], threading.enumerate()
    watch = PythonWatch()
    assert threading.enumerate() == threads, "the thread that looks is not one of the program's"
    watch.stop()
    assert gc.callbacks == callbacks
    watch.forget()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_is_not_watched() -> None:
    watch = PythonWatch()
    callbacks = len(gc.callbacks)
    child = os.fork()
    if not child:
        os._exit(len(gc.callbacks))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == callbacks - 1
    watch.stop()


def test_a_thread_that_has_ended_is_no_error() -> None:
    watches: list[PythonWatch] = []
    thread = threading.Thread(target=lambda: watches.append(PythonWatch()))
    thread.start()
    thread.join()
    record, _ = watches[0].stop()
    assert threading.get_native_id() in record.samples or sys.platform != "linux"
