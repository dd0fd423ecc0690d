"""Flame graphs for other programs: a limited number of stacks with whole numbers, safe in every line."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from tfperf.base.units import counted
from tfperf.report.flame_tree import FlameScale, FlameTree
from tfperf.report.render.values import brief

MOST_STACKS = 50_000
"""Maximum stacks per graph; a further one holds the rest, so that sums stay equal."""
_LONGEST_FRAME = 500


class Flame(Struct, frozen=True, kw_only=True):
    """A flame graph as a tree; `name` is its short title."""

    name: str
    title: str
    scale: FlameScale
    tree: FlameTree
    other: FlameTree | None = None
    """The tree of the compared run."""


class StackRow(Struct, frozen=True):
    """A stack that starts with the graph's name, and the self value of its innermost frame."""

    frames: tuple[str, ...]
    own: int


def stack_rows(name: str, tree: FlameTree) -> list[StackRow]:
    """Return the stacks with a self value, in tree order; frames are safe to display."""
    with_own = np.flatnonzero(tree.own > 0)
    kept = np.sort(with_own[np.argsort(-tree.own[with_own], kind="stable")[:MOST_STACKS]])
    rows = [
        StackRow(
            (name, *(brief(frame, _LONGEST_FRAME) or "(no name)" for frame in tree.stacks[box])), int(tree.own[box])
        )
        for box in kept.tolist()
    ]
    omitted = len(with_own) - len(kept)
    if omitted:
        rest = sum(tree.own[with_own].tolist()) - sum(tree.own[kept].tolist())
        rows.append(StackRow((name, f"({counted(omitted, 'other stack')})"), rest))
    return rows


def whole_numbers(values: Sequence[int], divisor: int) -> list[int]:
    """Return the values divided and rounded, so that each running sum is off by at most 0.5."""
    rounded, until, before = [], 0, 0
    for value in values:
        until += value
        reached = (until + divisor // 2) // divisor
        rounded.append(reached - before)
        before = reached
    return rounded
