"""Where the turns of a loop start in the sequence of what a program calls.

A sequence is an array of tokens, one number for each kind of call. Nothing here knows what the calls are.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from tfperf.arrays import Bools, Int64s, distinct

AGREEMENT = 0.95
"""A sequence repeats if so much of it agrees with itself one period later."""
_LONGEST = 4096
_SAMPLE = 1 << 16
"""A period is looked for in so many tokens, so that long sequences cost no more."""


class Cycle(Struct, frozen=True):
    """Positions where steps start.

    `period` is the length of the repeated part, 0 if nothing repeats; `whole` that of a complete step, 0 if it varies.
    `has_phases`: only the order says that a period holds several steps, first of one function, then of another.
    """

    starts: Int64s
    period: int
    whole: int
    has_phases: bool = False


def cycle_starts(token: Int64s, *, fetch_kinds: int, has_phases: bool = True) -> Cycle:
    """Find where the steps of a program start; tokens below `fetch_kinds` are fetches, all others calls.

    A step is one repetition, and starts at a fetch. Three shapes need care. If every call has its own fetch and one
    (fetch, call) pair follows itself (a training phase, then an evaluation phase), each pair is a step. If nothing is
    fetched and two calls follow themselves (`has_phases`: unless they are known to be parts of one step), each call is
    a step. If a call has no fetch of its own (gradients applied after several micro-batches), it closes the repetition.
    """
    fetch = token < fetch_kinds
    if not fetch.any():
        period = smallest_period(token)
        if has_phases and _runs_of_several(token[:period]):
            return Cycle(np.arange(len(token)), period, 1, has_phases=True)
        return Cycle(np.arange(0, len(token), period or 1), period, period or 1)
    runs = run_starts(fetch)
    period = smallest_period(token[runs[0] :])
    if not period:
        return Cycle(runs, 0, 0)
    pattern = token[runs[0] : runs[0] + period]
    paired = (pattern < fetch_kinds) | np.roll(pattern < fetch_kinds, 1)  # a fetch, or a call right after one
    groups = [tuple(part.tolist()) for part in np.split(pattern, run_starts(pattern < fetch_kinds)[1:])]
    if paired.all() and any(a == b for a, b in zip(groups, groups[1:] + groups[:1], strict=True)):
        return Cycle(runs, period, 0, has_phases=len(distinct(pattern[pattern >= fetch_kinds])) > 1)
    closing = np.flatnonzero(~paired & np.roll(paired, -1))
    shift = int((closing[0] + 1) % period) if len(closing) else 0  # so that a call without its own fetch closes one
    return Cycle(aligned_turns(token, int(runs[0]), pattern, shift), period, period)


def _runs_of_several(pattern: Int64s) -> bool:
    """Tell whether two tokens or more follow themselves in a pattern that repeats."""
    return len(distinct(pattern[pattern == np.roll(pattern, 1)])) > 1


def smallest_period(token: Int64s) -> int:
    """Return the smallest period with which the sequence agrees with itself by 95 %, or 0."""
    token = token[:_SAMPLE]
    for period in range(1, min(len(token) // 3, _LONGEST) + 1):
        if float((token[period:] == token[:-period]).mean()) >= AGREEMENT:
            return period
    return 0


def run_starts(wanted: Bools) -> Int64s:
    """Return where runs of wanted tokens start."""
    return np.flatnonzero(wanted & np.concatenate(([True], ~wanted[:-1])))


def aligned_turns(token: Int64s, first: int, pattern: Int64s, shift: int = 0) -> Int64s:
    """Return where turns of the pattern start from `first` on; one begins with the token at `shift` in the pattern."""
    head, tail = pattern[shift], pattern[shift - 1]
    pairs = (pattern == head) & (np.roll(pattern, 1) == tail)
    if pairs.sum() == 1 and len(pattern) > 1:
        at = np.flatnonzero((token[1:] == head) & (token[:-1] == tail)) + 1
        return np.concatenate(([first], at)) if first not in at else at
    regular = np.arange(first + shift, len(token), len(pattern))
    return np.concatenate(([first], regular)) if shift else regular


def in_most_turns(turn: Int64s, count: int) -> bool:
    """Tell whether what occurs in these of `count` turns occurs in nearly every one of them."""
    return len(distinct(turn)) >= AGREEMENT * count
