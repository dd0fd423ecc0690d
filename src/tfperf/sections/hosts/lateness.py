"""Which host is last in each step, what that costs the others, and in what the last host is slower."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Bools, Int64s, lookup
from tfperf.base.units import PS_PER_MS
from tfperf.sections.hosts.step_grid import StepGrid
from tfperf.trace.steps.breakdown import Breakdown

CAUSES = {
    "input": "input",
    "compilation": "compilation",
    "kernel_launch": "launching",
    "host_compute": "compute",
    "all_others": "python",
    "output": "device",
    "host_to_device": "device",
    "device_collectives": "device",
    "device_to_device": "device",
    "device_compute": "device",
}
"""What a host is slow in, by the category of its time."""
CAUSE_TEXTS = {
    "input": "input",
    "compilation": "tracing and compiling",
    "launching": "launching kernels",
    "compute": "ops on the host",
    "python": "Python or I/O between calls",
    "device": "work of its devices",
}
"""The same in words."""


class LateSteps(Struct, frozen=True, eq=False, kw_only=True):
    """The steps in which at least two hosts share collectives; times are picoseconds.

    `last` is the place of the host that is last, `lost_ps` how much longer another one waits than it does, at most.
    """

    numbers: Int64s
    waited_ps: Int64s
    """[host, step]: how long each host waits for others; -1 where it shares no collective."""
    last: Int64s
    lost_ps: Int64s
    host_lost_ps: Int64s
    """The same, summed over all hosts."""
    gain_ps: Int64s
    """How much longer the second last host waits: so much the step gains if the last one is as fast as that."""
    step_ps: Int64s
    """The longest step time of any host."""
    counted: Bools
    """Whether the step counts in averages on all hosts."""
    causes: tuple[str, ...]
    """In what the last host is slower than the median of the others: one of the values of `CAUSES`."""
    excess_ps: Int64s
    """How much longer that takes there."""

    def late_rows(self, host: int) -> Int64s:
        """Return the steps that count in which a host is last by more than a healthy one may be."""
        return np.flatnonzero(self.counted & (self.last == host) & (self.lost_ps >= LEAST_LOSS_MS * PS_PER_MS))

    def main_cause(self, rows: Int64s) -> str:
        """Return the cause by which most time is lost in these steps; empty of none."""
        lost: dict[str, int] = {}
        for row, lost_ps in zip(rows.tolist(), self.lost_ps[rows].tolist(), strict=True):
            lost[self.causes[row]] = lost.get(self.causes[row], 0) + lost_ps
        return max(lost, key=lambda cause: lost[cause], default="")

    @property
    def waited_percent(self) -> float:
        """Return the share of the steps that count in which a host waits for others, on average over hosts."""
        has = (self.waited_ps >= 0) & self.counted
        whole_ps = int((has * self.step_ps).sum())
        return 100.0 * int(np.where(has, self.waited_ps, 0).sum()) / whole_ps if whole_ps else 0.0

    def mean_waited_ps(self, numbers: Int64s) -> Int64s:
        """Return how long hosts wait for others in steps of these numbers, on average; -1 where that is unknown."""
        has = self.waited_ps >= 0
        mean = np.where(has, self.waited_ps, 0).sum(axis=0) // np.maximum(has.sum(axis=0), 1)
        place = lookup(self.numbers, numbers)
        return np.where(place >= 0, mean[np.maximum(place, 0)], -1) if len(mean) else np.full(len(numbers), -1)


LEAST_LOSS_MS = 3.0
"""Hosts of a healthy job with short steps wait for each other up to this long in a step."""


def late_steps(breakdowns: Sequence[Breakdown], grid: StepGrid, waited_ps: Int64s) -> LateSteps:
    """Return who is last in each step; `waited_ps` is a grid, -1 where a host has no shared collective in the step."""
    has = waited_ps >= 0
    shown = np.flatnonzero(has.sum(axis=0) > 1)
    has, waited_ps = has[:, shown], waited_ps[:, shown]
    last = np.where(has, waited_ps, np.iinfo(np.int64).max).argmin(axis=0)
    columns = np.arange(len(shown))
    least_ps = waited_ps[last, columns]
    beyond_ps = np.where(has, waited_ps - least_ps, 0)
    in_order = np.sort(np.where(has, waited_ps, np.iinfo(np.int64).max), axis=0)
    grid = StepGrid(numbers=grid.numbers[shown], rows=grid.rows[:, shown])
    duration_ps = grid.of_hosts([breakdown.steps.duration_ps for breakdown in breakdowns])
    counts = grid.of_hosts([breakdown.steps.headline.astype(np.int64) for breakdown in breakdowns])
    causes, excess_ps = _causes(
        breakdowns, StepGrid(numbers=grid.numbers[shown], rows=grid.rows[:, shown]), waited_ps, last
    )
    return LateSteps(
        numbers=grid.numbers,
        waited_ps=waited_ps,
        last=last,
        lost_ps=beyond_ps.max(axis=0, initial=0),
        host_lost_ps=beyond_ps.sum(axis=0),
        gain_ps=in_order[1] - in_order[0] if len(shown) else least_ps,
        step_ps=duration_ps.max(axis=0, initial=0),
        counted=(counts != 0).all(axis=0),
        causes=causes,
        excess_ps=excess_ps,
    )


def _causes(
    breakdowns: Sequence[Breakdown], grid: StepGrid, waited_ps: Int64s, last: Int64s
) -> tuple[tuple[str, ...], Int64s]:
    """Return in what the last host of each step most exceeds the median of the others, and by how much."""
    steps = len(last)
    kinds = list(dict.fromkeys(CAUSES.values()))
    most_ps, best = np.full(steps, np.iinfo(np.int64).min), np.zeros(steps, np.int64)
    is_last = np.zeros(waited_ps.shape, np.bool_)
    is_last[last, np.arange(steps)] = True
    for place, kind in enumerate(kinds):
        times = [
            np.sum([breakdown.time_ps[key] for key in breakdown.categories if CAUSES[key] == kind], axis=0)
            for breakdown in breakdowns
        ]
        work_ps = grid.of_hosts(times)
        work_ps -= _waiting_in(kind, breakdowns, grid, waited_ps)
        others = np.where(~is_last & (waited_ps >= 0), work_ps.astype(np.float64), np.nan)
        excess_ps = work_ps[last, np.arange(steps)] - _medians(others)
        is_more = excess_ps > most_ps
        most_ps, best = np.where(is_more, excess_ps, most_ps), np.where(is_more, place, best)
    return tuple(kinds[place] for place in best.tolist()), most_ps


def _waiting_in(kind: str, breakdowns: Sequence[Breakdown], grid: StepGrid, waited_ps: Int64s) -> Int64s:
    """Return how much of the waiting for others is in a kind of work: in collectives of a device first, then in ops."""
    if kind not in ("device", "compute"):
        return np.zeros(waited_ps.shape, np.int64)
    waits = np.maximum(waited_ps, 0)
    of_device, of_host = (
        np.maximum(grid.of_hosts([breakdown.time_ps[category] for breakdown in breakdowns]), 0)
        for category in ("device_collectives", "host_compute")
    )
    in_device: Int64s = np.minimum(waits, of_device)
    in_host: Int64s = np.minimum(waits - in_device, of_host)
    return in_device if kind == "device" else in_host


def _medians(columns: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Int64s:
    """Return the median of each column without its NaNs, of which no column is full (`numpy.nanmedian` takes 20 ms)."""
    ordered = np.sort(columns, axis=0)
    counts = (~np.isnan(columns)).sum(axis=0)
    places = np.arange(columns.shape[1])
    low, high = ordered[(counts - 1) // 2, places], ordered[counts // 2, places]
    return np.asarray((low + high) / 2, np.int64)
