"""Steps as such; how they are found is in test_find_steps.py."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from tfperf.trace.steps.steps import Pause, Steps, no_steps, plain_steps


def steps(kinds: str, seconds: list[int], flags: str = "") -> Steps:
    """Steps one after the other; `kinds` and `flags` have a letter for each, a dot for no flag."""
    end, count = np.cumsum(np.array(seconds, np.int64)), len(seconds)
    start = end - np.array(seconds, np.int64)
    names = tuple("abcdef"[:count])
    made = plain_steps(("markers", "high", "marked"), (start, end), np.arange(count), names, tuple(kinds))
    return replace(made, flags=tuple(flag.strip(".") for flag in flags or "." * count))


def test_flagged_steps_do_not_count_where_three_others_do() -> None:
    assert steps("ttttt", [1] * 5, "x...x").averaged.tolist() == [False, True, True, True, False]


def test_with_fewer_than_three_all_of_their_kind_count() -> None:
    assert steps("tteee", [1] * 5, "x.x..").averaged.tolist() == [True, True, True, True, True]


def test_headlines_are_about_training_if_there_is_any() -> None:
    training = replace(steps("ab", [1, 9]), kinds=("train", "eval"))
    assert (training.headline_kind, steps("ab", [1, 9]).headline_kind) == ("train", "b")


def test_some_of_the_steps_have_no_pauses_between_them() -> None:
    some = replace(steps("ttt", [1, 2, 3]), pauses=(Pause(0, 1, "a"),)).only(np.array([0, 2]))
    assert (some.names, some.duration_ps.tolist(), some.pauses) == (("a", "c"), [1, 3], ())


def test_no_steps_have_a_reason() -> None:
    nothing = no_steps("nothing repeats")
    assert (len(nothing), nothing.confidence, nothing.explanation) == (0, "none", "nothing repeats")
    assert nothing.averaged.tolist() == []
