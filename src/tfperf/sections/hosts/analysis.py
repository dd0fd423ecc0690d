"""Waiting between hosts: the work of each host, and how long the others wait for it.

A host waits in collectives until the last one takes part (`trace/device/collectives.py`). The last host of a step
is the one that waits least in it; any longer waiting of another host is lost time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.analysis.registry import Tabular
from tfperf.base.arrays import NO_NUMBERS, Bools, Int64s, distinct, lookup, overlap, union
from tfperf.base.units import PS_PER_MS
from tfperf.trace.device.collectives import Collectives, Waits, clock_offsets, find_collectives, match_collectives
from tfperf.trace.device.tpu_runs import TpuChips, find_chips, join_chips
from tfperf.trace.host.tasks import Task
from tfperf.trace.steps.breakdown import Breakdown

if TYPE_CHECKING:
    from tfperf.analysis.registry import Host, Results
    from tfperf.trace.device.collectives import ClockOffset


class HostPart(Struct, frozen=True, eq=False):
    """Data of one host: its collectives and the chips of its TPU, each None if it has none."""

    collectives: Collectives | None
    chips: TpuChips | None = None


def analyze(host: Host) -> HostPart:
    """Find the collectives of a host, and the chips of its TPU."""
    return HostPart(find_collectives(host.trace, host["steps"].steps), find_chips(host.trace))


class HostWork(Struct, frozen=True):
    """Averages of one host over the averaged steps, in picoseconds; None if unknown."""

    host: str
    task: Task
    clock: ClockOffset | None
    step_ps: float | None
    waits_ps: float | None = None
    """Waiting for other hosts per step."""
    waited_for_ps: float | None = None
    """Waiting of other hosts for it per step: time lost in the steps in which it is last, over all steps."""
    last_percent: float | None = None
    cause: str = ""
    """Category in which it is slower than the others in the steps in which it is last; empty if it is never last by
    much."""

    @property
    def own_work_ps(self) -> float | None:
        """Return the step time without waiting for other hosts."""
        return None if self.step_ps is None or self.waits_ps is None else max(self.step_ps - self.waits_ps, 0.0)


class Hosts(Tabular, frozen=True, kw_only=True):
    """The hosts of a run. Without shared collectives, waiting is unknown."""

    home = ("hosts", "hosts")

    hosts: tuple[HostWork, ...]
    sharing: tuple[str, ...] = ()
    """The hosts with collectives and steps, which `late` covers."""
    late: LateSteps | None = None
    """The steps in which hosts could be compared; None if there are none."""
    straggler: Straggler | None = None
    """Time lost to waiting, if it is significant."""
    without_key: int = 0
    """Collectives that cannot be matched with other hosts: without a key, in steps that the program does not number."""
    cut: int = 0
    """Collectives left out because a host has too many."""
    chips: TpuChips | None = None

    @property
    def is_known(self) -> bool:
        """Return whether waiting between hosts is known in any step."""
        return self.late is not None and len(self.late.numbers) > 0

    @property
    def why_unknown(self) -> str:
        """Return why waiting between hosts is unknown; empty if it is known."""
        if self.is_known:
            return ""
        if self.chips is not None and self.chips.missing:
            return self.chips.sentence
        if len(self.hosts) < 2:
            return "single-host profile: there is no other host to wait for"
        if self.without_key:
            return "collectives have no key that hosts share, and the program does not number its steps"
        if len(self.sharing) < 2:
            return "fewer than two hosts have both steps and shared collectives"
        return "the profile has no collective that all its hosts recorded"


def compare(results: Results) -> Hosts:
    """Compare the hosts of a run."""
    parts: list[HostPart] = results.of_hosts("hosts")
    breakdowns: list[Breakdown] = results.of_hosts("steps")
    names = [host.host for host in results.hosts]
    members = [place for place, breakdown in enumerate(breakdowns) if len(breakdown.steps)]
    late: LateSteps | None = None
    clocks: list[ClockOffset | None] = [None] * len(parts)
    sharing = [place for place in members if parts[place].collectives is not None]
    if len(sharing) > 1:
        of_sharing = [breakdowns[place] for place in sharing]
        collectives = [part for place in sharing if (part := parts[place].collectives) is not None]
        waits = match_collectives(collectives)
        grid = step_grid(of_sharing, collectives, waits)
        waited = [waited_in_steps(*each) for each in zip(of_sharing, collectives, waits, strict=True)]
        late = late_steps(of_sharing, grid, grid.of_hosts(waited))
        for place, clock in zip(sharing, clock_offsets(collectives, waits), strict=True):
            clocks[place] = clock
    tasks = _told_together(breakdowns)
    durations_ps = [breakdown.steps.duration_ps[breakdown.steps.headline] for breakdown in breakdowns]
    means_ps = [float(each.mean()) if len(each) else None for each in durations_ps]
    rows = [HostWork(*each) for each in zip(names, tasks, clocks, means_ps, strict=True)]
    if late is not None:
        for row, place in enumerate(sharing):
            rows[place] = _with_waits(rows[place], row, late)
    straggler = None if late is None else find_straggler(late, [names[place] for place in sharing])
    # The verdict on the run decides: a healthy run has no slow host.
    if straggler is None:
        rows = [replace(row, cause="") for row in rows]
    elif straggler.is_outside_averages:
        rows = [replace(row, cause=straggler.cause if row.host == straggler.host else "") for row in rows]
    counted = [part.collectives for part in parts if part.collectives is not None]
    return Hosts(
        hosts=tuple(rows),
        sharing=tuple(names[place] for place in sharing),
        late=late,
        straggler=straggler,
        without_key=sum(each.without_key for each in counted),
        cut=sum(each.cut for each in counted),
        chips=join_chips(part.chips for part in parts),
    )


def _told_together(breakdowns: Sequence[Breakdown]) -> list[Task]:
    """Return the tasks of hosts. Next to tf.data workers, a process without events is their dispatcher."""
    serves_data = any(breakdown.task.role == "tf.data worker" for breakdown in breakdowns)
    told = []
    for breakdown in breakdowns:
        task = breakdown.task
        if not task.role and len(breakdown.steps):
            task = Task("worker", task.name)
        elif not task.role and serves_data and not breakdown.host_visible:
            task = Task("dispatcher", task.name)
        told.append(task)
    return told


def _with_waits(work: HostWork, row: int, late: LateSteps) -> HostWork:
    """Return a host with its waiting: averages over the averaged steps in which it shares collectives."""
    waited_ps = late.waited_ps[row]
    counted = np.flatnonzero(late.counted & (waited_ps >= 0))
    if not len(counted):
        return work
    is_last = (late.last[counted] == row) & (late.lost_ps[counted] > 0)
    return replace(
        work,
        waits_ps=float(waited_ps[counted].mean()),
        waited_for_ps=float(late.lost_ps[counted][is_last].sum() / len(counted)),
        last_percent=100.0 * float(is_last.mean()),
        cause=late.main_cause(late.late_rows(row)),
    )


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
CAUSE_TEXTS = {
    "input": "input",
    "compilation": "tracing and compiling",
    "launching": "launching kernels",
    "compute": "host ops",
    "python": "Python or I/O between calls",
    "device": "device work",
}


class LateSteps(Struct, frozen=True, eq=False, kw_only=True):
    """The steps in which at least two hosts share collectives; times are picoseconds.

    `last` is the index of the last host, `lost_ps` the maximum extra waiting of another host.
    """

    numbers: Int64s
    waited_ps: Int64s
    """[host, step]: waiting of each host for others; -1 if it shares no collective."""
    last: Int64s
    lost_ps: Int64s
    host_lost_ps: Int64s
    """Lost time summed over all hosts."""
    gain_ps: Int64s
    """Extra waiting of the second last host: the gain of the step if the last host is as fast as that one."""
    step_ps: Int64s
    """The longest step time of any host."""
    counted: Bools
    """Whether the step is averaged on all hosts."""
    causes: tuple[str, ...]
    """Category in which the last host is slower than the median of the others: a value of `CAUSES`."""
    excess_ps: Int64s
    """Extra time of the last host in that category."""

    def late_rows(self, host: int) -> Int64s:
        """Return the averaged steps in which a host is last by more than is usual in a healthy job."""
        return np.flatnonzero(self.counted & (self.last == host) & (self.lost_ps >= LEAST_LOSS_MS * PS_PER_MS))

    def main_cause(self, rows: Int64s) -> str:
        """Return the cause of most of the lost time in these steps; empty without steps."""
        lost: dict[str, int] = {}
        for row, lost_ps in zip(rows.tolist(), self.lost_ps[rows].tolist(), strict=True):
            lost[self.causes[row]] = lost.get(self.causes[row], 0) + lost_ps
        return max(lost, key=lambda cause: lost[cause], default="")

    @property
    def waited_percent(self) -> float:
        """Return the share of the averaged steps in which a host waits for others, averaged over hosts."""
        has = (self.waited_ps >= 0) & self.counted
        whole_ps = int((has * self.step_ps).sum())
        return 100.0 * int(np.where(has, self.waited_ps, 0).sum()) / whole_ps if whole_ps else 0.0

    def mean_waited_ps(self, numbers: Int64s) -> Int64s:
        """Return the waiting for other hosts in the steps with these numbers, averaged over hosts; -1 if unknown."""
        has = self.waited_ps >= 0
        mean = np.where(has, self.waited_ps, 0).sum(axis=0) // np.maximum(has.sum(axis=0), 1)
        place = lookup(self.numbers, numbers)
        return np.where(place >= 0, mean[np.maximum(place, 0)], -1) if len(mean) else np.full(len(numbers), -1)


LEAST_LOSS_MS = 3.0
"""Hosts of a healthy job with short steps wait for each other up to this long per step."""


def late_steps(breakdowns: Sequence[Breakdown], grid: StepGrid, waited_ps: Int64s) -> LateSteps:
    """Return the last host of each step; `waited_ps` is a grid, -1 if a host has no shared collective in the step."""
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
    causes, excess_ps = _causes(breakdowns, grid, waited_ps, last)
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
    """Return the category in which the last host of each step most exceeds the median of the others, and the excess."""
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
        # The median of each column without NaNs; no column is all NaN. `numpy.nanmedian` takes 20 ms.
        ordered = np.sort(others, axis=0)
        counts = (~np.isnan(others)).sum(axis=0)
        places = np.arange(others.shape[1])
        low, high = ordered[(counts - 1) // 2, places], ordered[counts // 2, places]
        excess_ps = work_ps[last, np.arange(steps)] - np.asarray((low + high) / 2, np.int64)
        is_more = excess_ps > most_ps
        most_ps, best = np.where(is_more, excess_ps, most_ps), np.where(is_more, place, best)
    return tuple(kinds[place] for place in best.tolist()), most_ps


def _waiting_in(kind: str, breakdowns: Sequence[Breakdown], grid: StepGrid, waited_ps: Int64s) -> Int64s:
    """Return the part of the waiting that is in a kind of work: in collectives of a device first, then in ops."""
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


LEAST_LOSS_PERCENT = 5.0
_OF_FEW, _OF_MANY, _MANY = 0.75, 0.5, 4
"""Minimum share of the lost time for a straggler; with two or three hosts, half of it is chance."""


class Straggler(Struct, frozen=True, kw_only=True):
    """Time that steps lose because hosts wait for the last one.

    `host` causes most of it; empty if the last host varies. Values are averages over `steps` steps. `gain_ms` is the
    gain of a step if that host is as fast as the second slowest, or if no host is late.
    """

    host: str
    worst: str
    """The host in whose steps most is lost, even if it does not cause most of the loss."""
    cause: str
    loss_percent: float
    loss_ms: float
    excess_ms: float
    """Extra time of the last host in the cause, in the steps with this cause."""
    last_in: int
    """Number of steps in which the host (or any host) is last."""
    steps: int
    gain_ms: float
    is_outside_averages: bool = False
    """Whether the time is lost in steps that averages exclude."""


def find_straggler(late: LateSteps, names: Sequence[str]) -> Straggler | None:
    """Return the loss in averaged steps, else in the others; None if it is too small to distinguish from chance.

    Steps that trace or compile vary on healthy hosts, so their loss is not attributed to a straggler.
    """
    found = _straggler_in(late, names, late.counted)
    if found is not None:
        return found
    others = ~late.counted & np.array([cause != "compilation" for cause in late.causes], np.bool_)
    lost_ms = float(late.lost_ps[others].sum()) / PS_PER_MS
    whole_ms = float(late.step_ps.sum()) / PS_PER_MS
    if lost_ms < LEAST_LOSS_MS * len(late.numbers) or 100.0 * lost_ms < LEAST_LOSS_PERCENT * whole_ms:
        return None
    found = _straggler_in(late, names, others)
    return None if found is None else replace(found, is_outside_averages=True)


def _straggler_in(late: LateSteps, names: Sequence[str], which: Bools) -> Straggler | None:
    rows = np.flatnonzero(which)
    lost_ms, step_ms = late.lost_ps[rows] / PS_PER_MS, late.step_ps[rows] / PS_PER_MS
    if not len(rows) or not step_ms.sum():
        return None
    loss_ms, loss_percent = float(lost_ms.mean()), 100.0 * float(lost_ms.sum() / step_ms.sum())
    if loss_ms < LEAST_LOSS_MS or loss_percent < LEAST_LOSS_PERCENT:
        return None
    last = late.last[rows]
    by_host = np.bincount(last, weights=lost_ms, minlength=len(names))
    worst = int(by_host.argmax())
    is_one = by_host[worst] >= (_OF_MANY if len(names) >= _MANY else _OF_FEW) * by_host.sum()
    blamed = last == worst if is_one else np.ones(len(rows), np.bool_)
    cause = late.main_cause(rows[blamed])
    of_cause = [row for row in rows[blamed].tolist() if late.causes[row] == cause]
    is_late = blamed & (is_one | (lost_ms >= LEAST_LOSS_MS))
    gain_ps = (late.gain_ps if is_one else late.lost_ps)[rows]
    return Straggler(
        host=names[worst] if is_one else "",
        worst=names[worst],
        cause=cause,
        loss_percent=loss_percent,
        loss_ms=loss_ms,
        excess_ms=float(late.excess_ps[of_cause].mean()) / PS_PER_MS,
        last_in=int(is_late.sum()),
        steps=len(rows),
        gain_ms=float(gain_ps[blamed].sum()) / PS_PER_MS / len(rows),
    )


_UNKNOWN = -1


class StepGrid(Struct, frozen=True, eq=False, kw_only=True):
    """The steps that at least two hosts have, in order.

    `rows[host, step]` is the row of the step in the breakdown of the host, -1 if the host does not have it.
    """

    numbers: Int64s
    """Number of the step on the first host that has it."""
    rows: Int64s

    def of_hosts(self, values: Sequence[Int64s]) -> Int64s:
        """Return values per step of each host as a grid, -1 if a host does not have the step."""
        grid = np.full(self.rows.shape, _UNKNOWN, np.int64)
        for place, (of_host, rows) in enumerate(zip(values, self.rows, strict=True)):
            has = rows >= 0
            grid[place, has] = of_host[rows[has]]
        return grid


def step_grid(
    breakdowns: Sequence[Breakdown], collectives: Sequence[Collectives | None], waits: Sequence[Waits | None]
) -> StepGrid:
    """Match the steps of hosts: by number if the program numbers them on every host, else by shared collectives.

    Other steps are left out, because their order could match steps of different times.
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
    """Return, for each step of each host, the number on the first host of the step with the same collectives."""
    number_of: dict[int, int] = {}
    keys = []
    for breakdown, own, wait in zip(breakdowns, collectives, waits, strict=True):
        key = np.full(len(breakdown.steps), -1, np.int64)
        if own is not None and wait is not None and len(breakdown.steps):
            row = breakdown.steps.at(own.start_ps)
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
        first = np.unique(key, return_index=True)[1]  # only the first step with a key keeps it
        keys.append(np.where(np.isin(np.arange(len(key)), first), key, -1))
    return keys


def waited_in_steps(breakdown: Breakdown, own: Collectives, wait: Waits) -> Int64s:
    """Return the waiting of a host in each of its steps (a union: collectives may overlap), -1 without a shared one."""
    start_ps, steps = own.start_ps[wait.matched], breakdown.steps
    waited_ps = overlap(union(start_ps, start_ps + wait.wait_ps[wait.matched]), steps.start_ps, steps.end_ps)
    row = steps.at(start_ps)
    waited_ps[np.bincount(row[row >= 0], minlength=len(steps)) == 0] = -1
    return waited_ps
