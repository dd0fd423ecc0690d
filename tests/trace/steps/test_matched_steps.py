"""Steps of several hosts: which belong together, and how that is known."""

from __future__ import annotations

from pathlib import Path

from builders import Plane, event, host, logdir_of, plane, space

import tfperf

START_NS = 1_795_314_224_000_000_000


def calls(count: int) -> Plane:
    """Steps without markers: calls of one function, of 100 us each."""
    name = "EagerLocalExecute: __inference_f_9"
    return host(*(event(name, 100 * n, 100, tf_function_call="notTraced") for n in range(count)))


def session(start_us: float) -> Plane:
    return plane("Task Environment", stats={"profile_start_time": START_NS + int(1000 * start_us)})


def steps_of(tmp_path: Path, *planes: tuple[Plane, ...]) -> tuple[list[int], str]:
    files = {name: space(*of_host) for name, of_host in zip("ab", planes, strict=True)}
    steps = tfperf.load(logdir_of(tmp_path, **files), sections=("steps",))["steps"].steps
    return steps.numbers.tolist(), " ".join(steps.notes)


def test_steps_that_ran_at_the_same_time_belong_together(tmp_path: Path) -> None:
    """The capture of b starts 210 us later: its first step is the third one of a."""
    numbers, notes = steps_of(tmp_path, (calls(6), session(0)), (calls(6), session(210)))
    assert numbers == [2, 3, 4, 5]
    assert "so steps were matched by time" in notes


def test_without_clocks_they_are_matched_in_order(tmp_path: Path) -> None:
    numbers, notes = steps_of(tmp_path, (calls(6), session(0)), (calls(4),))
    assert numbers == [0, 1, 2, 3]
    assert "only the 4 that all of them have are combined" in notes


def test_clocks_that_never_meet_leave_the_order(tmp_path: Path) -> None:
    numbers, _ = steps_of(tmp_path, (calls(6), session(0)), (calls(6), session(1_000_000)))
    assert numbers == [0, 1, 2, 3, 4, 5]


def test_numbers_come_before_time(tmp_path: Path) -> None:
    marked = [host(*(event("train", 100 * n, 100, step_num=n + first) for n in range(5))) for first in (0, 2)]
    numbers, _ = steps_of(tmp_path, (marked[0], session(0)), (marked[1], session(0)))
    assert numbers == [2, 3, 4]
