"""What the ops of a profile cost in each step, in whole microseconds, as a model has it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.arrays import MOST, NO_NUMBERS, Int64s, distinct_index
from tfperf.models.tfprof.model import Executions, Intervals

_PS_PER_US, _PS_PER_NS = 1_000_000, 1000


class Costs(Struct, frozen=True, kw_only=True):
    """Executions of nodes, one each, in picoseconds; `device` indexes a list of devices.

    `start` says in which step an execution counts, `begin` and `end` when it ran. `cpu_ps` and `accelerator_ps` are
    without ops inside. `runs` is 1 where the execution is one of the op, and 0 where the op launched it as a kernel.
    """

    node: Int64s
    device: Int64s
    start: Int64s
    begin: Int64s
    end: Int64s
    cpu_ps: Int64s
    accelerator_ps: Int64s
    runs: Int64s

    def only(self, rows: Int64s) -> Costs:
        """Return some of the executions."""
        return Costs(**{name: getattr(self, name)[rows] for name in self.__struct_fields__})


def joined(parts: Sequence[Costs]) -> Costs:
    """Return all executions in one."""
    return Costs(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in Costs.__struct_fields__})


def by_step(costs: Costs, start: Int64s, end: Int64s, order: Int64s) -> tuple[list[Executions], Executions]:
    """Return the executions of each step, and their mean over all steps.

    Steps are half-open windows that do not overlap, ascending. `order` has the place of each node in the tree of name
    scopes: rounding to microseconds is such that the sum over the nodes of any scope is off by one at most.
    """
    step = np.searchsorted(start, costs.start, side="right") - 1
    inside = np.flatnonzero((step >= 0) & (costs.start < end[np.maximum(step, 0)])) if len(start) else NO_NUMBERS
    inside = inside[np.argsort(step[inside], kind="stable")]
    counts = np.bincount(step[inside], minlength=len(start))
    parts = np.split(inside, np.cumsum(counts)[:-1]) if len(start) else []
    steps = [_executions(costs.only(rows), order, 1) for rows in parts]
    none = Intervals(node=NO_NUMBERS, device=NO_NUMBERS, start=NO_NUMBERS, duration=NO_NUMBERS)
    return steps, replace(_executions(costs.only(inside), order, max(len(start), 1)), intervals=none)


def _executions(costs: Costs, order: Int64s, divisor: int) -> Executions:
    """Return the executions of a step, or the mean of several, by node."""
    node, place = distinct_index(costs.node)
    sums = np.zeros((3, len(node)), np.int64)
    for row, values in zip(sums, (costs.cpu_ps, costs.accelerator_ps, costs.runs), strict=True):
        np.add.at(row, place, values)
    by_scope = np.argsort(order[node], kind="stable")
    started, ended = np.full(len(node), MOST, np.int64), np.zeros(len(node), np.int64)
    np.minimum.at(started, place, costs.begin)
    np.maximum.at(ended, place, costs.end)
    return Executions(
        node=node,
        runs=(sums[2] + divisor // 2) // divisor,
        cpu_micros=_whole(sums[0], by_scope, divisor * _PS_PER_US),
        accelerator_micros=_whole(sums[1], by_scope, divisor * _PS_PER_US),
        cpu_nanos=_whole(sums[0], by_scope, divisor * _PS_PER_NS),
        accelerator_nanos=_whole(sums[1], by_scope, divisor * _PS_PER_NS),
        started=started // _PS_PER_US,
        ended=ended // _PS_PER_US,
        memory=np.zeros((4, len(node)), np.int64),
        intervals=Intervals(
            node=costs.node,
            device=costs.device,
            start=costs.begin // _PS_PER_US,
            duration=(costs.end - costs.begin + _PS_PER_US // 2) // _PS_PER_US,
        ),
    )


def _whole(values: Int64s, order: Int64s, unit: int) -> Int64s:
    """Return values in a unit, rounded so that what is lost here is gained at the next one of the order."""
    until = (np.cumsum(values[order]) + unit // 2) // unit
    rounded = np.empty_like(values)
    rounded[order] = np.diff(until, prepend=0)
    return rounded
