"""What is measured around a profile: garbage collection, CPU time, steps before and in it."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest

from tfperf.capture.local import StepTimes
from tfperf.capture.session import PythonWatch


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
    assert longest.place.startswith("test_session.py:")
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
    time.sleep(0.5)  # on a loaded machine, samples are rare
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
    with ThreadPoolExecutor(1) as thread:
        watch = thread.submit(PythonWatch).result(20)
    record, _ = watch.stop()
    assert threading.get_native_id() in record.samples or sys.platform != "linux"


class Job:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.times = StepTimes(lambda: self.now_s)

    def overhead_percent(self, started_s: float, ended_s: float, recording_s: float = 3000.0) -> float | None:
        return self.times.overhead(started_s, ended_s, recording_s).get("overhead_percent")

    def steps(self, *durations_ms: float) -> tuple[float, float]:
        """Mark whole steps of these durations; return when the first started and the last ended."""
        started_s = self.now_s
        self.now_s += 0.0001
        for duration_ms in durations_ms:
            self.times.mark()
            self.now_s += duration_ms / 1000
        self.times.mark()  # The last one ends.
        ended_s = self.now_s
        self.now_s += 1.0
        return started_s, ended_s


@pytest.mark.parametrize(
    ("before", "during", "percent"),
    [
        pytest.param([5] * 6, [20] * 6, 300, id="20 instead of 5 ms"),
        pytest.param([20] * 6, [19] * 6, 0, id="not longer"),
        pytest.param([20] * 6, [20, 20, 20, 400, 20, 20], 0, id="one long step"),
        *(
            pytest.param([1] * before, [1] * during, None, id=f"{before} and {during} steps: fewer than five")
            for before, during in ((0, 0), (0, 9), (9, 0), (4, 9), (9, 4))
        ),
    ],
)
def test_the_overhead(before: list[float], during: list[float], percent: float | None) -> None:
    job = Job()
    job.steps(*before)
    session = job.steps(*during)
    expected = None if percent is None else pytest.approx(percent)
    assert [job.overhead_percent(*session) for _ in range(2)] == [expected] * 2, "whenever it is asked"


def test_steps_of_an_earlier_session_are_not_what_is_usual() -> None:
    job = Job()
    job.steps(*[5] * 6)
    assert job.overhead_percent(*job.steps(*[20] * 20)) == pytest.approx(300)
    assert job.overhead_percent(*job.steps(*[20] * 6)) == pytest.approx(300)  # Not 0, as against the first.


def test_steps_are_longer_for_another_reason_if_recording_takes_less() -> None:
    """A second in which steps take twice as long, which half a second of recording can explain."""
    job = Job()
    job.steps(*[50] * 10)
    started_s, ended_s = job.steps(*[100] * 10)
    assert job.overhead_percent(started_s, started_s + 1.0, 0.5001) == pytest.approx(100)
    measured = job.times.overhead(started_s, started_s + 1.0, 0.4999)
    assert measured == {"usual_step_ms": pytest.approx(50)}
    assert ended_s - started_s == pytest.approx(1.0, abs=0.001)


def test_what_the_noise_of_steps_may_be_is_no_overhead() -> None:
    """Steps of 80 to 120 ms vary too much to show that 5 ms are added; steps of 99 to 101 ms would show it."""
    job = Job()
    usual = [80, 90, 100, 110, 120] * 4
    job.steps(*usual)
    assert job.overhead_percent(*job.steps(*(duration + 5 for duration in usual))) is None
    assert job.overhead_percent(*job.steps(*(duration + 50 for duration in usual))) == pytest.approx(50)
    quiet = Job()
    narrow = [99, 99.5, 100, 100.5, 101] * 4
    quiet.steps(*narrow)
    assert quiet.overhead_percent(*quiet.steps(*(duration + 0.2 for duration in narrow))) == 0
    assert quiet.overhead_percent(*quiet.steps(*(duration + 5 for duration in narrow))) == pytest.approx(5)


def test_threads_have_steps_of_their_own() -> None:
    """Two threads that mark in turn: each has steps of 20 ms, not the two together steps of 10 ms."""
    job = Job()
    job.steps(*[20] * 6)
    started_s = job.now_s
    with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second:
        for thread in [first, second] * 8:
            thread.submit(job.times.mark).result(20)
            job.now_s += 0.010
    assert job.overhead_percent(started_s, job.now_s) == pytest.approx(0)
