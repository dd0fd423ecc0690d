"""`tfperf.diff`: runs to compare in any of the forms that people have them, profiles and baselines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from tfperf.analysis import Analysis, load
from tfperf.compare.baseline_file import read_baseline
from tfperf.compare.bootstrap import StepStatistic
from tfperf.compare.diff_report import diff_report
from tfperf.compare.run_summary import RunSummary
from tfperf.compare.summarize import summarize_run

if TYPE_CHECKING:
    from tfperf.report.model import Report

Run = Analysis | RunSummary | str | Path
"""A profile, loaded or as a path; or a baseline, read or as the path of its .json file."""


def diff(*runs: Run, stat: StepStatistic = "mean", skip_first: int = 0) -> Report:
    """Compare the first run with the last, and name what explains the change: the report of `tfperf diff`.

    Each run is a loaded profile, the path of one, or a baseline (`tfperf analyze --save-baseline`). `stat` is the
    statistic of the step times that are compared; the first `skip_first` steps of each profile are omitted. `summary`
    of the report holds the ratio of the step times with its interval. Raises TfperfError for fewer than two runs, and
    what `load` raises.
    """
    return diff_report(run_summaries(runs, skip_first=skip_first), stat=stat)


def run_summaries(
    runs: Sequence[Run], *, skip_first: int = 0, read: Callable[[Path], Analysis] = load
) -> list[RunSummary]:
    """Return the summary of each run, under labels that tell them apart; `read` loads a profile."""
    summaries = [_run_summary(run, skip_first, read) for run in runs]
    if len({run.label for run in summaries}) == len(summaries):
        return summaries
    return [structs.replace(run, label=f"{number}: {run.label}") for number, run in enumerate(summaries, start=1)]


def _run_summary(run: Run, skip_first: int, read: Callable[[Path], Analysis]) -> RunSummary:
    if isinstance(run, RunSummary):
        return run
    if isinstance(run, Analysis):
        return summarize_run(run, run.run.name, skip_first=skip_first)
    path = Path(run)
    if path.suffix.lower() == ".json":
        return structs.replace(read_baseline(path), label=path.name)
    analysis = read(path)
    # The name of a trace file is that of its host, which says nothing about the run.
    label = analysis.run.name if path.is_file() else path.absolute().name
    return summarize_run(analysis, label, skip_first=skip_first)
