"""By how much profiling slows steps down."""

from __future__ import annotations

import threading
import time

import pytest

from tfperf.capture.step_times import StepTimes

pytestmark = pytest.mark.timing


def steps(times: StepTimes, count: int, seconds: float) -> tuple[float, float]:
    """Mark whole steps of that length; return when they began and ended."""
    began = time.perf_counter()
    for _ in range(count + 1):
        times.mark()
        time.sleep(seconds)
    return began, time.perf_counter()


def test_steps_of_twenty_instead_of_five_ms_are_300_percent_more() -> None:
    times = StepTimes()
    steps(times, 6, 0.005)
    assert times.overhead_percent(*steps(times, 6, 0.020)) == pytest.approx(300, abs=120)


def test_one_long_step_does_not_count() -> None:
    times = StepTimes()
    steps(times, 6, 0.020)
    began, _ = steps(times, 6, 0.020)
    _, ended = steps(times, 1, 0.4)
    overhead = times.overhead_percent(began, ended)
    assert overhead is not None
    assert abs(overhead) < 40


@pytest.mark.parametrize(("before", "during"), [(0, 0), (0, 9), (9, 0), (4, 9), (9, 4)])
def test_fewer_than_five_steps_tell_nothing(before: int, during: int) -> None:
    times = StepTimes()
    steps(times, before, 0.001)
    began, ended = time.perf_counter(), time.perf_counter()
    if during:
        began, ended = steps(times, during, 0.001)
    assert times.overhead_percent(began, ended) is None


def test_steps_of_an_earlier_session_are_not_what_is_usual() -> None:
    times = StepTimes()
    steps(times, 6, 0.005)
    first = steps(times, 20, 0.020)
    assert times.overhead_percent(*first) is not None
    second = steps(times, 6, 0.020)
    assert times.overhead_percent(*second) == pytest.approx(300, abs=120)  # not 0, as against the first session


def test_asking_twice_gives_the_same() -> None:
    times = StepTimes()
    steps(times, 6, 0.002)
    session = steps(times, 6, 0.004)
    assert times.overhead_percent(*session) == times.overhead_percent(*session) is not None


def test_threads_have_steps_of_their_own() -> None:
    """Two threads that mark in turn: each has steps of 20 ms, not the two together steps of 10 ms."""
    times = StepTimes()
    steps(times, 6, 0.020)
    began = time.perf_counter()
    threads = [threading.Thread(target=steps, args=(times, 8, 0.020)) for _ in range(2)]
    for thread in threads:
        thread.start()
        time.sleep(0.010)
    for thread in threads:
        thread.join()
    overhead = times.overhead_percent(began, time.perf_counter())
    assert overhead is not None
    assert abs(overhead) < 35
