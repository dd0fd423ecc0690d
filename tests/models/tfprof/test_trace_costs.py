"""Times of executions as whole microseconds of steps."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tfperf.base.arrays import Int64s
from tfperf.models.tfprof.from_trace import Costs, by_step, joined


def costs(*executions: tuple[int, int, int, int]) -> Costs:
    """Return executions: node, start, own time on the host, and on a device (ps)."""
    node, start, cpu, accelerator = np.array(executions, np.int64).reshape(-1, 4).T
    return Costs(
        node=node,
        device=np.zeros(len(node), np.int64),
        start=start,
        begin=start,
        end=start + cpu + accelerator,
        cpu_ps=cpu,
        accelerator_ps=accelerator,
        runs=(cpu > 0).astype(np.int64),
    )


def numbers(*values: int) -> Int64s:
    return np.array(values, np.int64)


def test_steps_and_their_mean() -> None:
    made = costs(
        (1, 0, 3_000_000, 0), (1, 5, 2_000_000, 0), (0, 9, 0, 7_000_000), (1, 10, 1_000_000, 0), (2, 25, 9_000_000, 0)
    )
    steps, mean = by_step(made, numbers(0, 10), numbers(10, 20), numbers(0, 1, 2))
    assert [each.node.tolist() for each in steps] == [[0, 1], [1]]
    assert [each.cpu_micros.tolist() for each in steps] == [[0, 5], [1]]
    assert [each.accelerator_micros.tolist() for each in steps] == [[7, 0], [0]]
    assert [each.runs.tolist() for each in steps] == [[0, 2], [1]]
    assert [each.cpu_nanos.tolist() for each in steps] == [[0, 5000], [1000]]
    assert steps[0].intervals.duration.tolist() == [3, 2, 7]
    assert (mean.cpu_nanos.tolist(), mean.accelerator_nanos.tolist()) == ([0, 3000], [3500, 0])
    # The mean is over both steps, also where a node ran in one; the last execution lies in none.
    assert (mean.node.tolist(), mean.cpu_micros.tolist(), mean.accelerator_micros.tolist()) == ([0, 1], [0, 3], [4, 0])
    assert mean.runs.tolist() == [0, 2]


def test_nothing_ran() -> None:
    steps, mean = by_step(costs(), numbers(0), numbers(10), numbers())
    assert [len(each.node) for each in steps] == [0]
    assert len(mean.node) == 0
    assert by_step(costs((0, 0, 1, 0)), numbers(), numbers(), numbers(0))[0] == []


@given(st.lists(st.integers(0, 5_000_000), min_size=1, max_size=40), st.integers(1, 5))
def test_small_times_are_not_lost(times: list[int], count: int) -> None:
    made = costs(*((node, 0, time, 0) for node, time in enumerate(times)))
    start = np.arange(count)
    steps, mean = by_step(made, start, start + 1, np.arange(len(times)))
    for until in range(1, len(times) + 1):
        assert abs(int(steps[0].cpu_micros[:until].sum()) - sum(times[:until]) / 1e6) <= 0.5
        assert abs(int(mean.cpu_micros[:until].sum()) - sum(times[:until]) / count / 1e6) <= 1
    assert all(0 <= micros <= time / 1e6 + 1 for micros, time in zip(steps[0].cpu_micros.tolist(), times, strict=True))


def test_several_parts() -> None:
    both = joined([costs((0, 1, 2, 3)), costs((4, 5, 6, 7))])
    assert (both.node.tolist(), both.accelerator_ps.tolist()) == ([0, 4], [3, 7])
