"""When a worker is asked next: at the interval, and more seldom if samples are seen to cost its job something."""

from __future__ import annotations

from typing import Any

import pytest

from tfperf.live.sample import Measured, NumberedSteps, Sample
from tfperf.live.watcher import Pace, slowdown_between

_MS = 1_000_000
GOOD = Measured(step_ms=10.0, step_count=40)


def pace(**options: Any) -> Pace:
    return Pace(**{"duration_s": 0.5, "interval_s": 5.0, **options})


def sample(measured: Measured | None = GOOD, **fields: Any) -> Sample:
    return Sample(**{"number": 1, "time_s": 0.0, "duration_s": 0.5, "answer_s": 0.6, "measured": measured, **fields})


def after(pace: Pace, last: Sample, overhead: float | None = None) -> float:
    """Return how long the pause is after a sample."""
    pace.learn(last.measured, last.answer_s, overhead)
    return pace.pause_s(last)


def test_samples_come_at_the_interval() -> None:
    assert after(pace(), sample()) == 5.0


def test_a_server_that_takes_long_is_profiled_for_half_of_the_time_at_most() -> None:
    assert after(pace(), sample(answer_s=7.0)) == 14.0


def test_a_slowdown_that_the_server_measured_makes_samples_rarer() -> None:
    """Steps that take 40 % longer for 0.6 s cost 0.24 s: 2 % of 12 s."""
    assert after(pace(), sample(), overhead=40.0) == pytest.approx(12.0)
    assert after(pace(), sample(), overhead=5.0) == 5.0
    assert after(pace(), sample(), overhead=1e6) == 300.0, "but it is not forgotten"


def test_the_median_of_the_last_slowdowns_counts() -> None:
    watched = pace()
    for overhead in (0.0, 100.0, 3.0, 2.0, 1.0):
        after(watched, sample(), overhead)
    assert watched.slowdown_percent == 2.0


def test_what_nothing_tells_is_unknown_and_not_zero() -> None:
    watched = pace()
    after(watched, sample())
    assert watched.slowdown_percent is None


def test_numbered_steps_tell_how_fast_the_job_is_between_samples() -> None:
    """Step 109 starts at 1.09 s, step 500 at 5 s: 10 ms each, pauses included. In the sample they take 12 ms."""
    before = NumberedSteps(60, 109, 600 * _MS, 1090 * _MS)
    now = Measured(step_ms=12.0, numbered=NumberedSteps(500, 540, 5000 * _MS, 5480 * _MS))
    assert slowdown_between(before, now) == pytest.approx(20.0)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (None, NumberedSteps(500, 540, 5000, 5480)),
        (NumberedSteps(60, 109, 600, 1090), None),
        (NumberedSteps(600, 640, 600, 1090), NumberedSteps(5, 20, 5000, 5480)),  # counted from 0 again
        (NumberedSteps(60, 109, 600, 1090), NumberedSteps(111, 120, 1110, 1200)),  # nearly nothing between
        (NumberedSteps(60, 109, 600, 1090), NumberedSteps(500, 500, 5000, 5000)),
        (NumberedSteps(60, 109, 600, 9000), NumberedSteps(500, 540, 5000, 5480)),  # a clock that goes back
    ],
)
def test_numbered_steps_that_tell_nothing(before: NumberedSteps | None, now: NumberedSteps | None) -> None:
    assert slowdown_between(before, Measured(step_ms=1.0, numbered=now)) is None


def test_faster_steps_in_a_sample_are_no_gain() -> None:
    before, now = NumberedSteps(0, 10, 0, 100), NumberedSteps(100, 110, 1000, 1050)
    assert slowdown_between(before, Measured(step_ms=1.0, numbered=now)) == 0.0


def test_analysis_on_the_machine_of_the_job_takes_a_twentieth_of_a_processor_at_most() -> None:
    costly = sample(Measured(step_ms=10.0, step_count=40, cpu_s=1.0))
    here, elsewhere = pace(is_here=True), pace()
    assert after(here, costly) == 5.0, "the first analysis imports its modules, too"
    assert after(here, costly) == pytest.approx(20.0)
    assert after(elsewhere, costly) == after(elsewhere, costly) == 5.0


def test_samples_without_a_whole_step_get_longer_and_rarer_and_shorter_again() -> None:
    watched, none = pace(), sample(Measured(why="no step"))
    pauses = []
    for _ in range(5):
        pauses.append(after(watched, none))
    assert watched.next_duration_s == 4.0, "8 times as long at most"
    assert pauses == [10.0, 20.0, 40.0, 40.0, 40.0], "so as much of the time as before is profiled"
    for _ in range(5):
        after(watched, sample())
    assert (watched.next_duration_s, after(watched, sample())) == (0.5, 5.0)


def test_a_port_is_tried_at_the_interval_and_a_server_that_refuses_is_left_alone() -> None:
    gone, refusing, idle = (sample(None, reason=reason) for reason in ("not_listening", "refused", "idle"))
    for last, pauses in ((gone, [5.0] * 5), (refusing, [10.0, 20.0, 40.0, 60.0, 60.0]), (idle, [5.0] * 5)):
        watched = pace()
        assert [after(watched, last) for _ in range(5)] == pauses
        assert after(watched, sample()) == 5.0, "an answer makes it all good"


def test_all_workers_are_due_at_the_same_moments() -> None:
    """Rounds begin 5, 10, 15, ... s after the first one, at 100 s; who is late by less than a round waits for all."""
    watched = pace()
    watched.learn(GOOD, 0.6, None)
    assert [watched.due_s(begun_s, sample(), 100.0) for begun_s in (100.0, 100.3, 101.0, 104.0)] == [105, 105, 105, 110]


def test_the_share_of_time_that_is_profiled() -> None:
    watched = pace()
    watched.begin(100.0)
    watched.learn(GOOD, 0.6, None)
    assert watched.profiled_percent(105.0) == pytest.approx(10.0)
    watched.learn(None, 0.0, None)
    assert watched.profiled_percent(110.0) == pytest.approx(5.0), "a worker that is gone is not profiled"
