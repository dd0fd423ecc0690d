"""Runs to compare, in any of the forms that people have them: profiles, and what was kept of earlier ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tfperf.compare.model import Snapshot, Stat
from tfperf.compare.report import diff_report
from tfperf.compare.snapshot import read_snapshot, take
from tfperf.session import Trace, load

if TYPE_CHECKING:
    from tfperf.report.model import Report

Run = Trace | Snapshot | str | Path
"""A profile, read or as a path; or a baseline, read or as the path of its .json file."""


def diff(*runs: Run, stat: Stat = "mean", skip_first: int = 0) -> Report:
    """Compare the first run with the last, and say what explains the change: the report of `tfperf diff`.

    Each run is a trace, the path of one, or a baseline (`tfperf analyze --save-baseline`). `stat` stands for the step
    times of a run; `skip_first` steps of each profile are left out. `summary` of the report holds the ratio of the step
    times with its interval. Raises TfperfError for fewer than two runs, and what `load` raises.
    """
    return diff_report(snapshots(runs, skip_first=skip_first), stat=stat)


def snapshots(runs: Sequence[Run], *, skip_first: int = 0, read: Callable[[Path], Trace] = load) -> list[Snapshot]:
    """Return what each run came to, under labels that tell them apart; `read` loads a profile."""
    found = [_snapshot(run, skip_first, read) for run in runs]
    if len({run.label for run in found}) < len(found):
        found = [replace(run, label=f"{number}: {run.label}") for number, run in enumerate(found, start=1)]
    return found


def _snapshot(run: Run, skip_first: int, read: Callable[[Path], Trace]) -> Snapshot:
    if isinstance(run, Snapshot):
        return run
    if isinstance(run, Trace):
        return take(run, run.run.name, skip_first=skip_first)
    path = Path(run)
    if path.suffix.lower() == ".json":
        return replace(read_snapshot(path), label=path.name)
    trace = read(path)
    # The name of a trace file is that of its host, which says nothing about the run.
    return take(trace, trace.run.name if path.is_file() else path.absolute().name, skip_first=skip_first)
