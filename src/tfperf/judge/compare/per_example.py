"""Runs whose steps take different numbers of examples are compared per example.

Times become those of 1,000 examples: milliseconds then, the unit of all tables, are microseconds for one example.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec.structs import asdict, replace

from tfperf.judge.compare.run_summary import (
    RANKING_NAMES,
    HostSummary,
    RankedEntry,
    Ranking,
    RankingName,
    Rankings,
    RunSummary,
)

Per = Literal["step", "example"]
"""What times are of."""
EXAMPLES = 1000
OF_TABLES: dict[Per, str] = {"step": "step", "example": f"{EXAMPLES:,} examples"}
"""What the times of a table are of."""


def choose_per(runs: Sequence[RunSummary]) -> Per:
    """Return what to compare: the time of an example where all runs know their examples, and these differ."""
    examples = {run.examples_per_step for run in runs}
    return "example" if len(examples) > 1 and None not in examples else "step"


def as_compared(run: RunSummary, per: Per) -> RunSummary:
    """Return a run with its times per step, or for 1,000 examples."""
    if per == "step" or not run.examples_per_step:
        return run
    factor = EXAMPLES / run.examples_per_step
    rankings = {name: _ranking(run.ranking(name), name, factor) for name in RANKING_NAMES}
    return replace(run, hosts=tuple(_host(host, factor) for host in run.hosts), rankings=Rankings(**rankings))


def _host(host: HostSummary, factor: float) -> HostSummary:
    category_ms = {name: None if ms is None else factor * ms for name, ms in host.category_ms.items()}
    return replace(host, step_ms=tuple(factor * ms for ms in host.step_ms), category_ms=category_ms)


def _ranking(ranking: Ranking, name: RankingName, factor: float) -> Ranking:
    # Tracings of functions are those of the whole capture.
    keys = ("ms",) if name == "functions" else ("ms", "count")
    return replace(ranking, rows=tuple(_entry(entry, keys, factor) for entry in ranking.rows))


def _entry(entry: RankedEntry, keys: Sequence[str], factor: float) -> RankedEntry:
    values = asdict(entry)
    return replace(entry, **{key: factor * values[key] for key in keys if values[key] is not None})
