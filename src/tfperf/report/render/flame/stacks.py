"""Flame graphs for other programs: stacks with whole numbers, bounded in number and safe in every line."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from tfperf.base.units import counted
from tfperf.report.flame_tree import FlameScale, FlameTree, Stack
from tfperf.report.render.values import brief

MOST_STACKS = 50_000
"""Of one graph; what others add up to is a stack of its own, so that sums stay."""
_LONGEST_FRAME = 500


class Flame(Struct, frozen=True, kw_only=True):
    """A flame graph as a tree; `name` is the short one of its two titles."""

    name: str
    title: str
    scale: FlameScale
    tree: FlameTree
    other: FlameTree | None = None
    """Of the run that this one is compared with."""


class StackRow(Struct, frozen=True):
    """A stack from the name of its graph inward, and what its innermost name has itself."""

    frames: tuple[str, ...]
    own: int


def stack_rows(name: str, tree: FlameTree) -> list[StackRow]:
    """Return the stacks with any value of their own, in the order of the tree; frames are safe to show."""
    with_own = np.flatnonzero(tree.own > 0)
    kept = np.sort(with_own[np.argsort(-tree.own[with_own], kind="stable")[:MOST_STACKS]])
    rows = [StackRow((name, *_frames(tree.stacks[box])), int(tree.own[box])) for box in kept.tolist()]
    omitted = len(with_own) - len(kept)
    if omitted:
        rest = sum(tree.own[with_own].tolist()) - sum(tree.own[kept].tolist())
        rows.append(StackRow((name, f"({counted(omitted, 'other stack')})"), rest))
    return rows


def _frames(stack: Stack) -> tuple[str, ...]:
    return tuple(brief(frame, _LONGEST_FRAME) or "(no name)" for frame in stack)


def whole_numbers(values: Sequence[int], divisor: int) -> list[int]:
    """Return values divided, as whole numbers whose running sums are off by half of one at most."""
    rounded, until, before = [], 0, 0
    for value in values:
        until += value
        reached = (until + divisor // 2) // divisor
        rounded.append(reached - before)
        before = reached
    return rounded
