from __future__ import annotations

import numpy as np
import pytest

from tfperf.base.arrays import Intervals
from tfperf.sections.tfdata.whatif import Rivals, find_rivals
from tfperf.trace.tfdata import FUNCTION, StageWork

STEPS = Intervals(np.array([0, 100]), np.array([100, 200]))
"""Two steps of 100; each waits for the first 40."""
WAITS = Intervals(np.array([0, 100]), np.array([40, 140]))


def work(*stretches: tuple[int, int, int]) -> StageWork:
    """Stretches of work: stage, start and end."""
    stage, start, end = (np.array(column, np.int64) for column in zip(*stretches, strict=True))
    rows, places = np.arange(len(stage), dtype=np.int32), np.full(len(stage), FUNCTION, np.uint8)
    return StageWork(stage.astype(np.int32), places, rows, start, end)


def rivals(found: StageWork, python: tuple[int, ...] = (), busy_cores: float | None = None) -> Rivals:
    return find_rivals(found, STEPS, WAITS, python_stages=list(python), busy_cores=busy_cores)


def test_threads_beside_the_work_of_the_step_are_rivals() -> None:
    # Of the 120 outside the waits: one thread for 60, another one for 30 of these, and work that belongs to no stage.
    found = work((-1, 40, 100), (1, 0, 100), (2, 70, 130))
    assert rivals(found) == Rivals(native=(60 + 30) / 120)
    assert rivals(found).threads == 0.75


def test_python_counts_apart() -> None:
    found = work((1, 40, 100), (2, 40, 70))
    assert rivals(found, python=(2,)) == Rivals(native=0.5, python=0.25)


def test_python_that_waits_is_no_rival() -> None:
    # It runs all the time, and so does the step for 60 % of it.
    found = work((1, 0, 200))
    assert rivals(found, python=(1,), busy_cores=1.2) == Rivals(python=1.0), "that may be both of them"
    step_alone = rivals(found, python=(1,), busy_cores=0.6)
    assert step_alone == Rivals(python=0.0, python_computes=0.6), "the step alone keeps so many cores busy"
    some = rivals(found, python=(1,), busy_cores=0.8)
    assert (some.python, some.python_computes) == pytest.approx((0.2, 0.8))


def test_how_much_python_computes_is_certain_or_unknown() -> None:
    # Both run in the waits alone, which are 40 % of the step: what it does itself may need no core at all.
    inline = work((1, 0, 40), (1, 100, 140))
    for busy_cores, expected in ((1.0, 1.0), (0.4, 1.0), (0.3, 0.75), (0.1, 0.25)):
        found = rivals(inline, python=(1,), busy_cores=busy_cores)
        assert found.python == 0
        assert found.python_computes == pytest.approx(expected)
    two = work((1, 0, 200), (2, 0, 200))
    assert rivals(two, python=(1, 2), busy_cores=0.5).python_computes == 1.0, "one of them may do all the work"
    assert rivals(two, python=(1, 1), busy_cores=0.5).python_computes == 0.5, "one function with two ops"


def test_steps_that_only_wait_have_none() -> None:
    waits = Intervals(np.array([0]), np.array([200]))
    assert find_rivals(work((1, 0, 200)), STEPS, waits, python_stages=[], busy_cores=None) == Rivals()
