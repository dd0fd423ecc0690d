"""Who waits for whom: what each host of a run does itself, and how long the others wait for it.

A host waits in collectives until the last one takes part (`trace/collective_waits.py`). The last host of a step is the
one that waits least in it; what any host waits longer than that is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.analysis.tabular import Tabular
from tfperf.trace.device.collectives import Collectives, find_collectives
from tfperf.trace.device.tpu_chips import TpuChips, find_chips, join_chips
from tfperf.trace.host.tasks import Task

if TYPE_CHECKING:
    from tfperf.analysis.results import Host, Results
    from tfperf.sections.hosts.lateness import LateSteps
    from tfperf.sections.hosts.straggler import Straggler
    from tfperf.trace.device.collective_waits import ClockOffset
    from tfperf.trace.steps.breakdown import Breakdown


class HostPart(Struct, frozen=True, eq=False):
    """What one host tells: its collectives (None: it has none), and the chips of its TPU (None: it has none)."""

    collectives: Collectives | None
    chips: TpuChips | None = None


def analyze(host: Host) -> HostPart:
    """Find the collectives of a host, and the chips of its TPU."""
    return HostPart(find_collectives(host.trace, host["steps"].steps), find_chips(host.trace))


class HostWork(Struct, frozen=True, kw_only=True):
    """One host: averages over the steps that count, in picoseconds; None where the trace does not tell."""

    host: str
    task: Task
    step_ps: float | None
    waits_ps: float | None
    """How long it waits for others in a step."""
    waited_for_ps: float | None
    """How long others wait for it in a step: what is lost in the steps in which it is last, over all steps."""
    last_percent: float | None
    """Share of the steps in which it is last."""
    cause: str
    """In what it is slower than the others in the steps in which it is last; empty: it is never last by much."""
    clock: ClockOffset | None

    @property
    def own_work_ps(self) -> float | None:
        """Return how long a step takes without waiting for others."""
        return None if self.step_ps is None or self.waits_ps is None else max(self.step_ps - self.waits_ps, 0.0)


class Hosts(Tabular, frozen=True, kw_only=True):
    """The hosts of a run. Without collectives that hosts share, nothing is known about waiting."""

    home = ("hosts", "hosts")

    hosts: tuple[HostWork, ...]
    sharing: tuple[str, ...] = ()
    """The hosts that have collectives and steps: those that `late` is about."""
    late: LateSteps | None = None
    """The steps in which hosts could be compared; None: in none."""
    straggler: Straggler | None = None
    """What is lost to waiting, if it is worth a word."""
    without_key: int = 0
    """Collectives that no other host can know: without a key, in steps that the program does not number."""
    cut: int = 0
    """Collectives that are left out because a host has too many."""
    chips: TpuChips | None = None
    """The chips of the TPU that the hosts share; None without one."""

    @property
    def is_known(self) -> bool:
        """Tell whether it is known in any step who waits for whom."""
        return self.late is not None and len(self.late.numbers) > 0

    @property
    def why_unknown(self) -> str:
        """Say why it is unknown who waits for whom; empty if it is known."""
        if self.is_known:
            return ""
        if self.chips is not None and self.chips.missing:
            return self.chips.sentence
        if len(self.hosts) < 2:
            return "there is only one host, and nobody waits for another one"
        if self.without_key:
            return "collectives carry no key that hosts share, and the program does not number its steps"
        if len(self.sharing) < 2:
            return "fewer than two hosts show steps and collectives in which they could wait for each other"
        return "no collective is in the traces of all hosts that take part in it"


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
        late, offsets = _late(of_sharing, [part for place in sharing if (part := parts[place].collectives) is not None])
        for place, clock in zip(sharing, offsets, strict=True):
            clocks[place] = clock
    tasks = _told_together(breakdowns)
    rows = [_work(*each) for each in zip(names, tasks, breakdowns, clocks, strict=True)]
    if late is not None:
        for row, place in enumerate(sharing):
            rows[place] = _with_waits(rows[place], row, late)
    straggler = None if late is None else find_straggler(late, [names[place] for place in sharing])
    counted = [part.collectives for part in parts if part.collectives is not None]
    return Hosts(
        hosts=tuple(_accused_by(straggler, row) for row in rows),
        sharing=tuple(names[place] for place in sharing),
        late=late,
        straggler=straggler,
        without_key=sum(each.without_key for each in counted),
        cut=sum(each.cut for each in counted),
        chips=join_chips(part.chips for part in parts),
    )


def _late(
    breakdowns: Sequence[Breakdown], collectives: Sequence[Collectives]
) -> tuple[LateSteps | None, list[ClockOffset | None]]:
    """Return the steps of hosts that share collectives, with who is late in them, and how far each clock is ahead."""
    # Imported here, for most runs have one host.
    from tfperf.sections.hosts.lateness import late_steps
    from tfperf.sections.hosts.step_grid import step_grid, waited_in_steps
    from tfperf.trace.device.collective_waits import clock_offsets, match_collectives

    waits = match_collectives(collectives)
    grid = step_grid(breakdowns, collectives, waits)
    waited = [waited_in_steps(*each) for each in zip(breakdowns, collectives, waits, strict=True)]
    return late_steps(breakdowns, grid, grid.of_hosts(waited)), [*clock_offsets(collectives, waits)]


def _told_together(breakdowns: Sequence[Breakdown]) -> list[Task]:
    """Return the tasks of hosts, with the roles that only a look at all of them tells.

    Beside workers of tf.data, a process that records nothing is their dispatcher.
    """
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


def _accused_by(straggler: Straggler | None, work: HostWork) -> HostWork:
    """Return a host whose cause is what the verdict on the run says: a healthy run has no slow host."""
    if straggler is None:
        return replace(work, cause="")
    if straggler.is_outside_averages:
        return replace(work, cause=straggler.cause if work.host == straggler.host else "")
    return work


def _work(host: str, task: Task, breakdown: Breakdown, clock: ClockOffset | None) -> HostWork:
    """Return a host of which no waiting is known."""
    durations_ps = breakdown.steps.duration_ps[breakdown.steps.headline]
    return HostWork(
        host=host,
        task=task,
        step_ps=float(durations_ps.mean()) if len(durations_ps) else None,
        waits_ps=None,
        waited_for_ps=None,
        last_percent=None,
        cause="",
        clock=clock,
    )


def _with_waits(work: HostWork, row: int, late: LateSteps) -> HostWork:
    """Return a host with its waiting: averages over the steps that count and in which it shares collectives."""
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
