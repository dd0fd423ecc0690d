"""The profile that a gate judges: whole steps only, after those that the user skips, each host by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from tfperf.analyzers.idle import Idle
from tfperf.analyzers.step_breakdown import Breakdown
from tfperf.analyzers.summary import Summary, summarize
from tfperf.compare.bootstrap import StepStatistic
from tfperf.compare.summarize import whole_steps
from tfperf.gate.catalogue import REPORT_NAMES, TABLES
from tfperf.query.tables import BUILT
from tfperf.report.model import Finding, Report
from tfperf.session import HostAnalysis, Trace


@dataclass(frozen=True)
class View:
    """One host as the gate sees it (or all of them, for tables over hosts). Its report is built once, if at all."""

    trace: Trace
    """Of this host alone, without the steps that do not count."""
    name: str
    """How messages name the host: empty where there is only one."""
    stat: StepStatistic
    min_steps: int
    found_steps: int
    """Steps that the profile holds, also those that do not count."""
    is_narrowed: bool
    """Whether other steps are averaged than when the profile was read."""

    @property
    def host(self) -> HostAnalysis:
        """Return the analysis of the host."""
        return self.trace.hosts[0]

    @cached_property
    def summary(self) -> Summary:
        """Return the averages over the headline steps."""
        return summarize(self.host.breakdown)

    @property
    def too_few_steps(self) -> str:
        """Say that the host has too few averaged steps, and what to try; empty if it has enough."""
        count, steps = self.summary.averaged_count, self.host.breakdown.steps
        if count >= self.min_steps:
            return ""
        has = "is 1 whole step" if count == 1 else f"are {count} whole steps"
        why = f" ({steps.explanation})" if steps.source == "none" else f" of {self.found_steps:,} found"
        advice = ", or choose the hosts that count with --host" if self.name else ""
        return f"there {has} that count{why}, and --min-steps asks for {self.min_steps}: profile longer{advice}"

    @cached_property
    def report(self) -> Report:
        """Return the whole report."""
        return self.trace.report()

    @cached_property
    def tables(self) -> Mapping[str, Mapping[str, Sequence[Any]]]:
        """Return the columns of the tables of the report by the names that limits use."""
        found = {table.name: dict(table.data) for table in self.report.tables()}
        return {name: data for name in TABLES if (data := _table(name, found)) is not None}

    def findings(self, section: str) -> tuple[Finding, ...]:
        """Return what a section of the report concludes."""
        return next((own.findings for own in self.report.sections if own.name == section), ())


def views_of(trace: Trace, *, stat: StepStatistic, skip_first: int, min_steps: int) -> tuple[View, ...]:
    """Return one view for each host, then, if there are several, one of all of them."""
    narrow = whole_steps(trace, skip_first)
    pairs = list(zip(trace.hosts, narrow.hosts, strict=True))
    hosts = [_narrowed(old, new) for old, new in pairs]
    changed = [_averaged(old.breakdown) != _averaged(new.breakdown) for old, new in pairs]
    several, min_steps = len(hosts) > 1, max(min_steps, 1)
    alone = [
        View(replace(trace, hosts=(new,)), new.host if several else "", stat, min_steps, len(old.breakdown.steps), own)
        for old, new, own in zip(trace.hosts, hosts, changed, strict=True)
    ]
    whole = View(replace(trace, hosts=tuple(hosts)), "", stat, min_steps, len(trace.steps.steps), any(changed))
    return (*alone, whole) if several else tuple(alone)


def _averaged(found: Breakdown) -> list[int]:
    return [int(begin) for begin in found.steps.start_ps[found.headline]]


def _narrowed(old: HostAnalysis, new: HostAnalysis) -> HostAnalysis:
    """Return the host with fewer steps also where idle time is averaged; pauses stay."""
    steps = replace(new.breakdown.steps, pauses=old.breakdown.steps.pauses)
    breakdown = replace(new.breakdown, steps=steps)
    return replace(new, breakdown=breakdown, idle=_narrowed_idle(new.idle, old.breakdown, breakdown))


def _narrowed_idle(idle: Idle, old: Breakdown, new: Breakdown) -> Idle:
    """Average idle time over the same steps; windows of attribution `tensorflow` are other ones than its steps."""
    if old.attribution == "tensorflow":
        return idle
    counted = np.isin(old.steps.start_ps, new.steps.start_ps[new.headline])
    devices = tuple(
        replace(own, counted=counted) if len(own.window_ps) == len(counted) else own for own in idle.devices
    )
    return replace(idle, devices=devices)


def _table(name: str, found: Mapping[str, Mapping[str, Sequence[Any]]]) -> Mapping[str, Sequence[Any]] | None:
    """Return a table of the report by its name in limits; None if this profile has none of that name."""
    sources = [own for own in BUILT.get(name, (REPORT_NAMES.get(name, name),)) if own in found]
    if not sources:
        return None
    parts = [_with_side(own, found[own]) for own in sources]
    keys = [column.name for column in TABLES[name].columns]
    return {key: [value for part in parts for value in part[key]] for key in keys}


def _with_side(name: str, data: Mapping[str, Sequence[Any]]) -> Mapping[str, Sequence[Any]]:
    """Return the columns with the one that tells ops of devices from those of hosts."""
    rows = len(next(iter(data.values())))
    return {"side": [name.removesuffix("_ops")] * rows, **data}
