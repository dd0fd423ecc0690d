"""Sequences of fetches (lower-case) and calls (upper-case): where do steps start?"""

from __future__ import annotations

import numpy as np
import pytest

from tfperf.trace.steps.turns import cycle_starts, nearly_periodic_turns, smallest_period


def starts(text: str) -> list[int]:
    fetches = sorted({c for c in text if c.islower()})
    calls = sorted({c for c in text if c.isupper()})
    code = {c: i for i, c in enumerate(fetches + calls)}
    cycle = cycle_starts(np.array([code[c] for c in text], np.int64), fetch_kinds=len(fetches))
    return [int(start) for start in cycle.starts]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("aF" * 5, [0, 2, 4, 6, 8]),  # fetch, train function
        ("aFG" * 5, [0, 3, 6, 9, 12]),  # with a helper function
        ("aDDG" * 5, [0, 4, 8, 12, 16]),  # GAN: discriminator twice, generator once
        ("aDbG" * 5, [0, 4, 8, 12, 16]),  # GAN with two pipelines
        ("aFaFaFaFZ" * 4, [0, 9, 18, 27]),  # four micro-batches, then gradients are applied
        (("aT" * 6 + "bE" * 4) * 3, list(range(0, 60, 2))),  # six training steps, four evaluation steps, three times
        ("F" * 6, [0, 1, 2, 3, 4, 5]),  # arrays: no fetch visible
        ("FG" * 6, [0, 2, 4, 6, 8, 10]),
        ("aFaGaF", [0, 2, 4]),  # no cycle: a step is a fetch and what follows
    ],
)
def test_where_steps_start(text: str, expected: list[int]) -> None:
    assert starts(text) == expected


def test_a_capture_that_begins_inside_a_step_is_aligned_at_the_call_that_closes_one() -> None:
    assert starts("aFaFZ" + "aFaFaFaFZ" * 4) == [0, 5, 14, 23, 32]


def test_one_stray_token_does_not_hide_a_long_cycle() -> None:
    sequence = np.array([0, 1] * 40, np.int64)
    sequence[41] = 2
    assert smallest_period(sequence) == 2
    assert smallest_period(np.array([0, 1, 2, 3, 4, 5, 6, 7])) == 0


def turns(text: str) -> tuple[list[int], int] | None:
    codes = {letter: code for code, letter in enumerate(dict.fromkeys(text))}
    found = nearly_periodic_turns(np.array([codes[letter] for letter in text], np.int64))
    return None if found is None else (found.starts.tolist(), found.period)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("abcde" * 4, ([0, 5, 10, 15], 5)),
        ("aabcd" * 4, ([0, 5, 10, 15], 5)),  # the first op comes twice
        ("abcdefgh" * 10 + "xy" + "abcdefgh" * 10, ([*range(0, 80, 8), *range(82, 162, 8)], 8)),  # a check in between
        ("uvwxyz" + "abcde" * 4, ([6, 11, 16, 21], 5)),  # after it was set up
        ("abcde" * 4 + "uvwxyz", ([0, 5, 10, 15], 5)),
        (("ab" * 20 + "cdefghijk") * 4, ([0, 49, 98, 147], 49)),  # an optimizer does the same for each variable
        ("aaaaaaaaa", None),  # one op again and again is no loop over steps
        ("abcdefghij", None),
        ("abcab", None),
        ("abcde" * 3 + "fghijklmnopqrstuvwxyz", None),  # less than half
    ],
)
def test_a_loop_of_ops_may_have_a_few_ops_more(text: str, expected: tuple[list[int], int] | None) -> None:
    assert turns(text) == expected
