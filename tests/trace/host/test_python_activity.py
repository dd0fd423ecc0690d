"""What a thread did inside some times, from its CPU time piece by piece: between the least and the most."""

from __future__ import annotations

import numpy as np
import pytest

from tfperf.base.arrays import Intervals
from tfperf.trace.host.python_activity import CpuTimes


def at(*times: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(times, np.int64)


@pytest.mark.parametrize(
    ("cpu", "queued", "bounds"),
    [
        ((10, 10), (0, 0), (15, 15)),
        ((0, 0), (0, 0), (0, 0)),
        ((0, 0), (10, 10), (15, 15)),  # ready, without a core
        ((10, 5), (0, 0), (10, 15)),  # of the second piece, 5 of 10 are inside, and it ran for 5
        ((10, 8), (0, 0), (13, 15)),
    ],
)
def test_pieces_that_are_partly_inside_leave_a_range(
    cpu: tuple[int, int], queued: tuple[int, int], bounds: tuple[int, int]
) -> None:
    times = CpuTimes(at(0, 10), at(10, 20), at(*cpu), at(*queued))
    inside = Intervals(at(0), at(15))
    least, most = times.within(inside, at(0), at(20))
    assert (least.tolist(), most.tolist()) == ([bounds[0]], [bounds[1]])


def test_windows_take_their_part_of_a_piece() -> None:
    times = CpuTimes(at(0), at(10), at(10), at(0))
    least, most = times.within(Intervals(at(0, 6), at(4, 10)), at(0, 4, 6, 12), at(4, 6, 8, 20))
    assert least.tolist() == most.tolist() == [4, 0, 2, 0]
