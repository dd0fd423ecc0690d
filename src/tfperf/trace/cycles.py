"""The cycle in a sequence of tokens: which part of it repeats, and where each repetition starts.

Tokens below `fetch_kinds` are fetches from tf.data, the others calls of tf.functions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tfperf.arrays import Bools, Int64s

_AGREEMENT = 0.95
_LONGEST = 4096


class Cycle(NamedTuple):
    """Positions where steps start.

    `period` is the length of the repeated part, 0 if nothing repeats; `whole` that of a complete step, 0 if it varies.
    """

    starts: Int64s
    period: int
    whole: int


def cycle_starts(token: Int64s, *, fetch_kinds: int) -> Cycle:
    """Find where the steps of a program start.

    A step is one repetition, and starts at a fetch. Two shapes need care. If every call has its own fetch and one
    (fetch, call) pair follows itself (a training phase, then an evaluation phase), each pair is a step. If a call
    has no fetch of its own (gradients applied after several micro-batches), it closes the repetition.
    """
    fetch = token < fetch_kinds
    if not fetch.any():
        period = smallest_period(token)
        return Cycle(np.arange(0, len(token), period or 1), period, period or 1)
    runs = _run_starts(fetch)
    period = smallest_period(token[runs[0] :])
    if not period:
        return Cycle(runs, 0, 0)
    pattern = token[runs[0] : runs[0] + period]
    paired = (pattern < fetch_kinds) | np.roll(pattern < fetch_kinds, 1)  # a fetch, or a call right after one
    groups = [tuple(part.tolist()) for part in np.split(pattern, _run_starts(pattern < fetch_kinds)[1:])]
    if paired.all() and any(a == b for a, b in zip(groups, groups[1:] + groups[:1], strict=True)):
        return Cycle(runs, period, 0)
    return Cycle(_aligned(token, int(runs[0]), pattern, ~paired), period, period)


def smallest_period(token: Int64s) -> int:
    """Return the smallest period with which the sequence agrees with itself by 95 %, or 0."""
    for period in range(1, min(len(token) // 3, _LONGEST) + 1):
        if float((token[period:] == token[:-period]).mean()) >= _AGREEMENT:
            return period
    return 0


def _run_starts(fetch: Bools) -> Int64s:
    return np.flatnonzero(fetch & np.concatenate(([True], ~fetch[:-1])))


def _aligned(token: Int64s, first: int, pattern: Int64s, unpaired: Bools) -> Int64s:
    """Return the starts of repetitions, so that a call without its own fetch closes one."""
    closing = np.flatnonzero(unpaired & ~np.roll(unpaired, -1))
    shift = int((closing[0] + 1) % len(pattern)) if len(closing) else 0
    head, tail = pattern[shift], pattern[shift - 1]
    pairs = (pattern == head) & (np.roll(pattern, 1) == tail)
    if pairs.sum() == 1 and len(pattern) > 1:
        at = np.flatnonzero((token[1:] == head) & (token[:-1] == tail)) + 1
        return np.concatenate(([first], at)) if first not in at else at
    regular = np.arange(first + shift, len(token), len(pattern))
    return np.concatenate(([first], regular)) if shift else regular
