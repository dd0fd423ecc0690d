"""Where the boxes of a flame graph are: inside the one above, beside their siblings."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tfperf.report.flame_tree import placed

STEPS = st.lists(st.tuples(st.integers(0, 3), st.integers(-5, 30)), max_size=30)


def boxes(depths: list[int], totals: list[int]) -> tuple[list[int], list[int]]:
    start, width = placed(np.array(depths, np.int64), np.array(totals, np.int64))
    return start.tolist(), width.tolist()


def test_siblings_are_beside_each_other() -> None:
    assert boxes([0, 1, 2, 2, 1], [100, 60, 10, 20, 30]) == ([0, 0, 0, 10, 60], [100, 60, 10, 20, 30])


def test_totals_that_are_no_sum() -> None:
    most = (1 << 63) - 1
    assert boxes([0, 1, 1], [most, most, -7]) == ([0, 0, 1 << 62], [1 << 62, 1 << 62, 0])


@given(STEPS)
def test_boxes_never_overlap(steps: list[tuple[int, int]]) -> None:
    depths, totals = [0], [50]
    for back, total in steps:
        depths.append(max(1, depths[-1] + 1 - back))
        totals.append(total)
    start, width = boxes(depths, totals)
    path: list[int] = []
    free: dict[int, int] = {}
    for row, depth in enumerate(depths):
        del path[depth:]
        end = start[row] + width[row]
        assert width[row] >= max(totals[row], 0)
        if path:
            assert start[path[-1]] <= start[row] <= end <= start[path[-1]] + width[path[-1]]
            assert start[row] >= free.get(path[-1], 0)
            free[path[-1]] = end
        path.append(row)
