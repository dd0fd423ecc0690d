"""Steps of one host: their windows, kinds and flags, and how they were found."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from tfperf.arrays import NO_NUMBERS, Bools, Int64s

Confidence = Literal["high", "medium", "low", "none"]

PARTIAL, RETRACE, SLOW_FIRST, END_ESTIMATED = "partial", "retrace", "slow first step", "end estimated"
LEFT_OUT = "left out"
UNLABELLED = "step"


@dataclass(frozen=True)
class Candidates:
    """What a rule found: one entry per step, in time order; `end_ps` is where the step's own work ends."""

    source: str
    confidence: Confidence
    explanation: str
    start_ps: Int64s
    end_ps: Int64s
    kinds: tuple[str, ...]
    names: tuple[str, ...]
    numbers: Int64s
    flags: tuple[str, ...]
    batches: Int64s
    end_known: bool = False
    """True: the last step's end is recorded, not estimated."""


@dataclass(frozen=True)
class Pause:
    """Time between two steps that belongs to neither (checkpoint, end of an epoch, change of phase)."""

    start_ps: int
    end_ps: int
    after_step: str


@dataclass(frozen=True)
class Steps:
    """The steps of one host: window [start_ps, end_ps) each, in time order.

    `flags` holds, per step, why it is left out of averages (empty: it is not). `batches` counts tf.data elements per
    step (more than 1 with `steps_per_execution`). `source` names the rule, `explanation` says it in words.
    """

    source: str
    confidence: Confidence
    explanation: str
    start_ps: Int64s
    end_ps: Int64s
    numbers: Int64s
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    flags: tuple[str, ...]
    batches: Int64s
    pauses: tuple[Pause, ...] = ()
    notes: tuple[str, ...] = field(default=())

    def __len__(self) -> int:
        """Return the number of steps, flagged ones included."""
        return len(self.start_ps)

    def only(self, rows: Int64s) -> Steps:
        """Return the steps at `rows`; pauses between them are dropped."""
        names, kinds, flags = (tuple(texts[i] for i in rows.tolist()) for texts in (self.names, self.kinds, self.flags))
        return replace(
            self, start_ps=self.start_ps[rows], end_ps=self.end_ps[rows], numbers=self.numbers[rows],
            names=names, kinds=kinds, flags=flags, batches=self.batches[rows], pauses=(),
        )  # fmt: skip

    @property
    def duration_ps(self) -> Int64s:
        """Return the length of each window."""
        return self.end_ps - self.start_ps

    @property
    def averaged(self) -> Bools:
        """Tell which steps count in averages: those without a flag, if at least three are; else all of their kind."""
        return averaged(self.flags, self.kinds)

    @property
    def headline_kind(self) -> str:
        """Return the kind that headline figures are about: train if there is one, else the most time-consuming."""
        return headline(self.kinds, self.duration_ps)


def averaged(flags: tuple[str, ...], kinds: tuple[str, ...]) -> Bools:
    """Tell which steps count in averages, per kind: unflagged ones if there are three, else all."""
    plain = np.array([not flag for flag in flags], np.bool_)
    known = {kind: code for code, kind in enumerate(dict.fromkeys(kinds))}
    code = np.array([known[kind] for kind in kinds], np.int64)
    return np.asarray(plain | (np.bincount(code[plain], minlength=len(known)) < 3)[code], np.bool_)


def headline(kinds: tuple[str, ...], duration_ps: Int64s) -> str:
    """Return the kind that headline figures are about."""
    total: dict[str, int] = {}
    for kind, duration in zip(kinds, duration_ps.tolist(), strict=True):
        total[kind] = total.get(kind, 0) + duration
    training = [kind for kind in total if kind.startswith("train")]
    return max(training or total, key=lambda kind: total[kind], default=UNLABELLED)


def no_steps(reason: str) -> Steps:
    """Return the empty result, with the reason why nothing was found."""
    return Steps("none", "none", reason, NO_NUMBERS, NO_NUMBERS, NO_NUMBERS, (), (), (), NO_NUMBERS)
