"""Stacks of names with values, as a tree: what a flame graph draws, and how wide each of its boxes is.

A tree is its boxes in preorder, the root first: those inside a box follow it. Siblings stand the largest first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import MOST, Int64s
from tfperf.base.units import Unit, without_middle
from tfperf.report.model import FlameChart, Level

MOST_LEVELS = 100
"""Boxes inside each other; what lies deeper is joined in the last one."""
ROOT = "all"
_LONGEST_NAME = 500

Stack = tuple[str, ...]
"""Names from outside to inside, without the root."""


class FlameTree(Struct, frozen=True, kw_only=True):
    """Boxes in preorder: `total` is what a box and all in it add up to, `own` the box alone.

    `before` is what `total` is in the run that this one is compared with.
    """

    stacks: tuple[Stack, ...]
    depth: Int64s
    total: Int64s
    own: Int64s
    before: Int64s | None = None

    def __len__(self) -> int:
        """Return the number of boxes."""
        return len(self.stacks)


class _Growing:
    """A tree while stacks are added: boxes in the order of their appearance, which has parents before children."""

    def __init__(self) -> None:
        self.stacks: list[Stack] = [()]
        self.above = [-1]
        self.inside: list[dict[str, int]] = [{}]
        self.own = [0]
        self.before = [0]

    def box_of(self, stack: Stack) -> int:
        """Return the number of the box of a stack, with those around it."""
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
        """Return what each box and all in it add up to."""
        total = own.copy()
        for box in range(len(total) - 1, 0, -1):
            total[self.above[box]] += total[box]
        return total

    def preorder(self, total: list[int], before: list[int]) -> list[int]:
        """Return the boxes as a tree is drawn: of siblings the largest first, then by name."""
        order, waiting = [], [0]
        while waiting:
            box = waiting.pop()
            order.append(box)
            inside = sorted(self.inside[box].items(), key=lambda each: (-total[each[1]], -before[each[1]], each[0]))
            waiting += (number for _, number in reversed(inside))
        return order


def flame_tree(values: Mapping[Stack, int], before: Mapping[Stack, int] | None = None) -> FlameTree:
    """Return the tree of stacks with values that are not negative; `before` are those of the run compared with."""
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
    """Return where each box begins, and how wide it is, for boxes in preorder with these totals.

    A box begins where that of the sibling before it ends, the first where the one around it begins. None is negative,
    nor narrower than what is in it, whatever was recorded.
    """
    around = _boxes_around(depth)
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


def _boxes_around(depth: Int64s) -> list[int]:
    """Return the box around each one, -1 for the root."""
    around, path = [], list[int]()
    for box, level in enumerate((depth - depth[0]).tolist()):
        del path[level:]
        around.append(path[-1] if path else -1)
        path.append(box)
    return around


def widest(width: Int64s, most: int) -> Int64s:
    """Return the boxes to draw, in order: of more than `most` with any width the widest, none without those around."""
    wide = np.flatnonzero(width > 0)
    # Of equal ones the first, which is the outer one.
    return np.sort(wide[np.argsort(-width[wide], kind="stable")[:most]])


class FlameScale(Struct, frozen=True, kw_only=True):
    """How a tree is read: `divisor` of its numbers are one `unit`.

    The whole name of a box is that of all around it and its own, with `separator` between them; without one, its own.
    """

    unit: Unit
    divisor: int
    separator: str = ""


def flame_chart(tree: FlameTree, title: str, scale: FlameScale, *, most: int, level: Level = "brief") -> FlameChart:
    """Return the widest boxes of a tree as a chart."""
    start, width = placed(tree.depth, tree.total)
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
        omitted=int((width > 0).sum()) - len(boxes),
        level=level,
    )


def _brief(names: Sequence[str]) -> tuple[str, ...]:
    """Return names that a report can hold by the thousand: very long ones without their middle."""
    return tuple(without_middle(name, _LONGEST_NAME, "…") if len(name) > _LONGEST_NAME else name for name in names)


def _values(numbers: Int64s, divisor: int) -> tuple[float, ...]:
    return tuple((numbers / divisor).tolist())
