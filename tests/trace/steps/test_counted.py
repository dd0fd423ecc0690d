"""Times of each step, of which other steps count afterwards."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from builders import event, host, host_of, trace_of

from tfperf.trace.steps.breakdown import CountedSteps


def four_steps() -> CountedSteps:
    """Steps of 10, 20, 30 and 40 ps, of which the first does not count."""
    starts, counted = np.array([0, 10, 30, 60]), np.array([False, True, True, True])
    return CountedSteps(starts, np.array([10, 20, 30, 40]), counted)


def test_shares_are_of_the_steps_that_count() -> None:
    steps = four_steps()
    assert (steps.count, steps.total_ps) == (3, 90)
    assert (steps.sum(np.array([9, 1, 2, 6])), steps.percent(np.array([9, 1, 2, 6]))) == (9, 10.0)


def test_there_is_no_share_of_no_step() -> None:
    nothing = CountedSteps(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.bool_))
    assert (nothing.count, nothing.percent(np.zeros(0, np.int64))) == (0, None)


def test_steps_of_hosts_are_joined() -> None:
    both = CountedSteps.joined([four_steps(), four_steps()])
    assert (both.count, both.total_ps) == (6, 180)


def test_other_steps_count_afterwards(tmp_path: Path) -> None:
    """Steps 2 and 3 of four, of 100 us each."""
    marks = (event("train", 100 * number, 100, step_num=number) for number in range(4))
    breakdown = host_of(trace_of(tmp_path, host(*marks)), "steps")["steps"]
    steps = CountedSteps.of(breakdown.steps)
    assert steps.counted.tolist() == [True] * 4
    after = breakdown.only(np.array([2, 3]))
    assert steps.counting(after).counted.tolist() == [False, False, True, True]
    assert steps.counting(after).counting(breakdown).counted.tolist() == [True] * 4
