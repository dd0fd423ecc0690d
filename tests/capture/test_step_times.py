"""By how much profiling slows steps down, by a clock that the tests set."""

from __future__ import annotations

import threading

import pytest

from tfperf.capture.local import StepTimes


class Job:
    """Steps on a clock that counts their durations."""

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


def test_steps_of_twenty_instead_of_five_ms_are_300_percent_more() -> None:
    job = Job()
    job.steps(*[5] * 6)
    assert job.overhead_percent(*job.steps(*[20] * 6)) == pytest.approx(300)


def test_steps_that_do_not_get_longer_are_no_overhead() -> None:
    job = Job()
    job.steps(*[20] * 6)
    assert job.overhead_percent(*job.steps(*[19] * 6)) == 0


def test_one_long_step_does_not_count() -> None:
    job = Job()
    job.steps(*[20] * 6)
    assert job.overhead_percent(*job.steps(20, 20, 20, 400, 20, 20)) == pytest.approx(0)


@pytest.mark.parametrize(("before", "during"), [(0, 0), (0, 9), (9, 0), (4, 9), (9, 4)])
def test_fewer_than_five_steps_tell_nothing(before: int, during: int) -> None:
    job = Job()
    job.steps(*[1] * before)
    assert job.overhead_percent(*job.steps(*[1] * during)) is None


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


def test_asking_twice_gives_the_same() -> None:
    job = Job()
    job.steps(*[2] * 6)
    session = job.steps(*[4] * 6)
    assert [job.overhead_percent(*session) for _ in range(2)] == [pytest.approx(100)] * 2


def test_threads_have_steps_of_their_own() -> None:
    """Two threads that mark in turn: each has steps of 20 ms, not the two together steps of 10 ms."""
    job = Job()
    job.steps(*[20] * 6)
    started_s = job.now_s
    turns = [threading.Barrier(2), threading.Barrier(2)]

    def mark(wait_first: bool) -> None:
        for _ in range(8):
            if wait_first:
                turns[0].wait(20)
            job.times.mark()
            job.now_s += 0.010
            turns[0 if not wait_first else 1].wait(20)
            if not wait_first:
                turns[1].wait(20)

    threads = [threading.Thread(target=mark, args=(wait_first,)) for wait_first in (False, True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert job.overhead_percent(started_s, job.now_s) == pytest.approx(0)
