"""Boxes: each as wide as its total, inside the one above, beside its siblings."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tfperf.models.tfprof.layout import layout
from tfperf.models.tfprof.options import ATTRIBUTES, PLACE
from tfperf.models.tfprof.views import Shown, Tree, parents

STEPS = st.lists(st.tuples(st.integers(0, 3), st.integers(-5, 30)), max_size=30)


def shown(depths: list[int], totals: list[int]) -> Shown:
    count = len(depths)
    total = np.zeros((len(ATTRIBUTES), count), np.int64)
    total[PLACE["micros"]] = totals
    tree = Tree(
        names=[f"row {row}" for row in range(count)],
        node=np.arange(count),
        depth=np.array(depths, np.int64),
        own=np.zeros_like(total),
        accounted=np.ones(count, np.bool_),
    )
    return Shown(tree=tree, total=total, root_total=total[:, 0], built={})


def test_siblings_are_beside_each_other() -> None:
    boxes = layout(shown([0, 1, 2, 2, 1], [100, 60, 10, 20, 30]), "micros")
    assert boxes.start.tolist() == [0, 0, 0, 10, 60]
    assert boxes.width.tolist() == [100, 60, 10, 20, 30]
    assert boxes.level.tolist() == [0, 1, 2, 2, 1]


def test_totals_that_are_no_number_of_microseconds() -> None:
    boxes = layout(shown([0, 1, 1], [(1 << 63) - 1, (1 << 63) - 1, -7]), "micros")
    assert boxes.start.tolist() == [0, 0, 1 << 62]
    assert boxes.width.tolist() == [1 << 62, 1 << 62, 0]


@given(STEPS)
def test_boxes_never_overlap(steps: list[tuple[int, int]]) -> None:
    depths, totals = [0], [50]
    for back, total in steps:
        depths.append(max(1, depths[-1] + 1 - back))
        totals.append(total)
    of = shown(depths, totals)
    boxes, above = layout(of, "micros"), parents(of.tree.depth).tolist()
    start, end = boxes.start.tolist(), (boxes.start + boxes.width).tolist()
    free: dict[int, int] = {}
    for row in range(1, len(start)):
        assert start[above[row]] <= start[row] <= end[row] <= end[above[row]]
        assert start[row] >= free.get(above[row], 0)
        assert end[row] - start[row] >= max(totals[row], 0)
        free[above[row]] = end[row]
