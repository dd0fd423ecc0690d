"""Which runs hold different tasks of one cluster: processes that did not agree on a run each made one."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tfperf.base.units import counted
from tfperf.trace.logdir import Run, run_names

_TASK = re.compile(r"_([A-Za-z][A-Za-z0-9]*-\d+)$", re.ASCII)
"""How captures of tfperf end the name of a host that is one of several: `vm_worker-0`."""
_MOST_SECONDS = 60.0
_MOST_NAMED = 4


def runs_of_one_cluster(runs: Sequence[Run]) -> tuple[str, ...]:
    """Say which runs of a list lie seconds apart and name different tasks, so that they can be read as one."""
    names = {id(run): name for run, name in zip(runs, run_names(runs), strict=True)}
    lines = []
    for group in _groups(runs):
        options = " ".join(f"--run {names[id(run)]}" for run in group)
        if len(group) > _MOST_NAMED:
            options = f"--run {names[id(group[0])]} --run ... (each of them)"
        first, last = group[0].time, group[-1].time
        seconds = (last - first).total_seconds() if first and last else 0.0
        what = f"{counted(len(group), 'run')} within {seconds:.0f} s hold different tasks ({_described(group)})"
        lines.append(f"{what}, perhaps of one cluster. To read them as one: {options}.")
    return tuple(lines)


def _groups(runs: Sequence[Run]) -> list[list[Run]]:
    """Return runs in their order, together while no task comes twice; only groups of several."""
    groups: list[list[Run]] = []
    taken: set[str] = set()
    for run in runs:
        tasks = _tasks(run)
        start = groups[-1][0].time if groups else None
        is_near = bool(start and run.time and abs((run.time - start).total_seconds()) <= _MOST_SECONDS)
        if tasks and taken and is_near and not taken & tasks:
            groups[-1].append(run)
            taken |= tasks
        else:
            groups.append([run])
            taken = tasks
    return [group for group in groups if len(group) > 1]


def _tasks(run: Run) -> set[str]:
    """Return the tasks that the hosts of a run are; empty unless each names one."""
    found = [_TASK.search(file.host) for file in run.files]
    return {task[1] for task in found if task} if all(found) else set()


def _described(group: Sequence[Run]) -> str:
    tasks = [task for run in group for task in sorted(_tasks(run))]
    return ", ".join(tasks[:_MOST_NAMED]) + ", ..." * (len(tasks) > _MOST_NAMED)
