"""The steps of all hosts side by side: one row for each host, one column for each step of the run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import NO_NUMBERS, Int64s, distinct, overlap, union
from tfperf.trace.device.collective_waits import Waits
from tfperf.trace.device.collectives import Collectives, step_of
from tfperf.trace.steps.breakdown import Breakdown

_UNKNOWN = -1


class StepGrid(Struct, frozen=True, eq=False, kw_only=True):
    """The steps that at least two hosts have, in order.

    `rows[host, step]` is the row of the step in the breakdown of the host, -1 where it has no such step.
    """

    numbers: Int64s
    """How the first host that has the step numbers it."""
    rows: Int64s

    def of_hosts(self, values: Sequence[Int64s]) -> Int64s:
        """Return a value of each host for each of its steps as a grid, -1 where a host has no such step."""
        grid = np.full(self.rows.shape, _UNKNOWN, np.int64)
        for place, (of_host, rows) in enumerate(zip(values, self.rows, strict=True)):
            has = rows >= 0
            grid[place, has] = of_host[rows[has]]
        return grid


def step_grid(
    breakdowns: Sequence[Breakdown], collectives: Sequence[Collectives | None], waits: Sequence[Waits | None]
) -> StepGrid:
    """Match the steps of hosts: by number if the program numbered them on every host, else by shared collectives.

    Steps that are matched in neither way are left out: in order, they would be those of other moments.
    """
    steps = [breakdown.steps for breakdown in breakdowns]
    is_numbered = all(each.source == "markers" and len(distinct(each.numbers)) == len(each) for each in steps)
    keys = [each.numbers for each in steps] if is_numbered else _by_collectives(breakdowns, collectives, waits)
    every = np.concatenate([NO_NUMBERS, *(key[key >= 0] for key in keys)])
    shared = distinct(every)
    counts = np.bincount(np.searchsorted(shared, every), minlength=len(shared)) if len(shared) else NO_NUMBERS
    shared = shared[counts > 1]
    rows = np.full((len(keys), len(shared)), -1, np.int64)
    for place, key in enumerate(keys):
        column = np.searchsorted(shared, key)
        has = (column < len(shared)) & (key >= 0)
        has[has] = shared[column[has]] == key[has]
        rows[place, column[has]] = np.flatnonzero(has)
    return StepGrid(numbers=shared, rows=rows)


def _by_collectives(
    breakdowns: Sequence[Breakdown], collectives: Sequence[Collectives | None], waits: Sequence[Waits | None]
) -> list[Int64s]:
    """Return, for each step of each host, the number that the first host gives to the step of the same collectives."""
    number_of: dict[int, int] = {}
    keys = []
    for breakdown, own, wait in zip(breakdowns, collectives, waits, strict=True):
        key = np.full(len(breakdown.steps), -1, np.int64)
        if own is not None and wait is not None and len(breakdown.steps):
            row = step_of(breakdown.steps, own.start_ps)
            inside = np.flatnonzero((row >= 0) & wait.matched)
            pairs = list(zip(wait.run[inside].tolist(), row[inside].tolist(), strict=True))
            votes: dict[int, list[int]] = {}
            for run, step in pairs:
                if run in number_of:
                    votes.setdefault(step, []).append(number_of[run])
            for step, numbers in votes.items():
                key[step] = max(set(numbers), key=numbers.count)
            if not number_of:
                key = breakdown.steps.numbers
            number_of.update((run, int(key[step])) for run, step in pairs if run not in number_of and key[step] >= 0)
        keys.append(_once(key))
    return keys


def _once(key: Int64s) -> Int64s:
    """Return keys of which each occurs once: the first step that has it keeps it."""
    _, first = np.unique(key, return_index=True)
    kept = np.full(len(key), -1, np.int64)
    kept[first] = key[first]
    return kept


def waited_in_steps(breakdown: Breakdown, own: Collectives, wait: Waits) -> Int64s:
    """Return how long a host waits for others in each of its steps, -1 in one without a shared collective.

    It is the union, since collectives may overlap.
    """
    start_ps, steps = own.start_ps[wait.matched], breakdown.steps
    waited_ps = overlap(union(start_ps, start_ps + wait.wait_ps[wait.matched]), steps.start_ps, steps.end_ps)
    row = step_of(steps, start_ps)
    waited_ps[np.bincount(row[row >= 0], minlength=len(steps)) == 0] = -1
    return waited_ps
