"""Flame graphs as trees of stacks with values, and the width of each box.

A tree is its boxes in preorder, the root first. Siblings are ordered from largest to smallest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import MOST, Int64s
from tfperf.base.units import Unit, without_middle
from tfperf.report.model import FlameChart, Level

MOST_LEVELS = 100
"""Maximum depth; deeper boxes are joined into the last one."""
ROOT = "all"
_LONGEST_NAME = 500

Stack = tuple[str, ...]
"""Names from outermost to innermost, without the root."""


class FlameTree(Struct, frozen=True, kw_only=True):
    """Boxes in preorder: `total` includes the boxes inside, `own` does not. `before` is `total` in the compared run."""

    stacks: tuple[Stack, ...]
    depth: Int64s
    total: Int64s
    own: Int64s
    before: Int64s | None = None

    def __len__(self) -> int:
        """Return the number of boxes."""
        return len(self.stacks)


class _Growing:
    """A tree under construction: boxes in order of appearance, parents before children."""

    def __init__(self) -> None:
        self.stacks: list[Stack] = [()]
        self.above = [-1]
        self.inside: list[dict[str, int]] = [{}]
        self.own = [0]
        self.before = [0]

    def box_of(self, stack: Stack) -> int:
        """Return the index of a stack's box, adding it and its parents if missing."""
        box = 0
        for place, name in enumerate(stack):
            known = self.inside[box].get(name)
            if known is None:
                known = self.inside[box][name] = len(self.stacks)
                self.stacks.append(stack[: place + 1])
                self.above.append(box)
                self.inside.append({})
                self.own.append(0)
                self.before.append(0)
            box = known
        return box

    def totals(self, own: list[int]) -> list[int]:
        """Return each box's value including the boxes inside."""
        total = own.copy()
        for box in range(len(total) - 1, 0, -1):
            total[self.above[box]] += total[box]
        return total

    def preorder(self, total: list[int], before: list[int]) -> list[int]:
        """Return the boxes in preorder, siblings by size, then by name."""
        order, waiting = [], [0]
        while waiting:
            box = waiting.pop()
            order.append(box)
            inside = sorted(self.inside[box].items(), key=lambda each: (-total[each[1]], -before[each[1]], each[0]))
            waiting += (number for _, number in reversed(inside))
        return order


def flame_tree(values: Mapping[Stack, int], before: Mapping[Stack, int] | None = None) -> FlameTree:
    """Return the tree of stacks with non-negative values; `before` are the values of the compared run."""
    growing = _Growing()
    for stack, value in values.items():
        growing.own[growing.box_of(_bounded(stack))] += value
    for stack, value in (before or {}).items():
        growing.before[growing.box_of(_bounded(stack))] += value
    total, old = growing.totals(growing.own), growing.totals(growing.before)
    order = growing.preorder(total, old)
    return FlameTree(
        stacks=tuple(growing.stacks[box] for box in order),
        depth=np.array([len(growing.stacks[box]) for box in order], np.int64),
        total=_numbers([total[box] for box in order]),
        own=_numbers([growing.own[box] for box in order]),
        before=None if before is None else _numbers([old[box] for box in order]),
    )


def _bounded(stack: Stack) -> Stack:
    return stack if len(stack) < MOST_LEVELS else (*stack[: MOST_LEVELS - 2], "/".join(stack[MOST_LEVELS - 2 :]))


def _numbers(values: list[int]) -> Int64s:
    return np.array([min(value, MOST) for value in values], np.int64)


def placed(depth: Int64s, total: Int64s) -> tuple[Int64s, Int64s]:
    """Return the start and width of each box in preorder.

    A box begins at the end of its previous sibling, or at the start of its parent. Widths are non-negative and cover
    the boxes inside, whatever was recorded.
    """
    # The parent of each box, -1 for the root.
    around, path = [], list[int]()
    for box, level in enumerate((depth - depth[0]).tolist()):
        del path[level:]
        around.append(path[-1] if path else -1)
        path.append(box)
    width = np.maximum(total, 0).tolist()
    inside = [0] * len(width)
    for box in range(len(width) - 1, 0, -1):
        width[box] = max(width[box], inside[box])
        inside[around[box]] += width[box]
    width[0] = max(width[0], inside[0])
    start, free = [0] * len(width), [0] * len(width)
    for box in range(1, len(width)):
        start[box] = free[box] = free[around[box]]
        free[around[box]] += width[box]
    return _numbers(start), _numbers(width)


def widest(width: Int64s, most: int) -> Int64s:
    """Return the widest `most` boxes with any width, in order; the parents of each are included."""
    wide = np.flatnonzero(width > 0)
    # Of equal ones, the first is the parent.
    return np.sort(wide[np.argsort(-width[wide], kind="stable")[:most]])


class FlameScale(Struct, frozen=True, kw_only=True):
    """A tree's scale: `divisor` is one `unit`. Whole names are paths joined by `separator`, or own names without it."""

    unit: Unit
    divisor: int
    separator: str = ""


def flame_chart(tree: FlameTree, title: str, scale: FlameScale, *, most: int, level: Level = "brief") -> FlameChart:
    """Return the widest boxes of a tree as a chart."""
    drawn = tree.total if tree.before is None else np.where(tree.total > 0, tree.total, tree.before)
    start, width = placed(tree.depth, drawn)
    boxes = widest(width, most)
    stacks = [tree.stacks[box] for box in boxes.tolist()]
    labels = [stack[-1] if stack else ROOT for stack in stacks]
    whole = [scale.separator.join(stack) or ROOT for stack in stacks] if scale.separator else labels
    return FlameChart(
        title=title,
        unit=scale.unit,
        names=_brief(whole),
        labels=_brief(labels),
        depths=tuple(tree.depth[boxes].tolist()),
        starts=_values(start[boxes], scale.divisor),
        widths=_values(width[boxes], scale.divisor),
        own=_values(tree.own[boxes], scale.divisor),
        before=() if tree.before is None else _values(tree.before[boxes], scale.divisor),
        totals=() if tree.before is None else _values(tree.total[boxes], scale.divisor),
        omitted=int((width > 0).sum()) - len(boxes),
        level=level,
    )


def _brief(names: Sequence[str]) -> tuple[str, ...]:
    """Shorten very long names, because a report may have thousands."""
    return tuple(without_middle(name, _LONGEST_NAME, "…") if len(name) > _LONGEST_NAME else name for name in names)


def _values(numbers: Int64s, divisor: int) -> tuple[float, ...]:
    return tuple((numbers / divisor).tolist())
