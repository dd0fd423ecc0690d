"""Hosts: stragglers, the time that other hosts wait for them, and the activity that is slower on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfperf.analysis.registry import SectionSpec, TableSpec, present
from tfperf.base.units import PS_PER_MS, counted, format_ms, listed
from tfperf.report.model import Column, Data, Finding, Quantity, Ranked, Section
from tfperf.sections.hosts.analysis import CAUSE_TEXTS, LEAST_LOSS_MS
from tfperf.trace.known_stats import COLLECTIVES

if TYPE_CHECKING:
    from tfperf.analysis.registry import Results
    from tfperf.sections.hosts.analysis import Hosts, Straggler

_CLOCK_MS = 5.0
"""Clock differences below this are negligible."""


def build(results: Results) -> Section:
    """Build the section; empty for a single host."""
    hosts = results["hosts"]
    if not results.has_several_hosts:
        findings = _missing_chips(hosts)
        notes = () if findings else (f"{hosts.why_unknown.capitalize()}.",)
        return Section("hosts", "Hosts", level="full", findings=findings, notes=notes)
    return Section(
        "hosts",
        "Hosts",
        findings=(*_missing_chips(hosts), *([_verdict(results, hosts)] if hosts.is_known else [])),
        tables=present(HOSTS.build(results), STRAGGLERS.build(results, level="full")),
        notes=_notes(hosts),
    )


def _missing_chips(hosts: Hosts) -> tuple[Finding, ...]:
    """Return a finding if chips of the program are missing from the profile: others may wait for them."""
    if hosts.chips is None or not hosts.chips.missing:
        return ()
    text = f"{hosts.chips.sentence}, so whether chips wait for them is unknown."
    return (Finding("missing_chips", "hint", text[0].upper() + text[1:], "capture all hosts of the job into one run"),)


def who_is_late(found: Straggler, kind: str) -> tuple[str, Quantity]:
    """Return a clause with the straggler, how often it is last, and what the others lose."""
    lost = Quantity(f"{_key(found)}, lost", found.loss_ms, "ms", kind)
    steps = f"{found.last_in} of {counted(found.steps, 'step')}"
    who = f"{found.host} is the last host in {steps}" if found.host else f"some host is late in {steps}"
    return f"{who}; the others wait {lost} per step for it", lost


def slower_in(found: Straggler, kind: str) -> tuple[str, Quantity]:
    """Return the clause end with the category in which the straggler is slower, and by how much."""
    longer = Quantity(f"{_key(found)}, longer", found.excess_ms, "ms", kind)
    return f"{longer} more per step on {CAUSE_TEXTS[found.cause]}", longer


def late_text(found: Straggler, kind: str) -> tuple[str, tuple[Quantity, ...]]:
    """Return `who_is_late` and `slower_in` as one clause."""
    who, lost = who_is_late(found, kind)
    slower, longer = slower_in(found, kind)
    return f"{who}: it spends {slower}", (lost, longer)


def _key(found: Straggler) -> str:
    return "straggler_outside" if found.is_outside_averages else "straggler"


def _verdict(results: Results, hosts: Hosts) -> Finding:
    if hosts.straggler is None:
        text = f"No straggler: steps lose less than {LEAST_LOSS_MS:.0f} ms or 5% waiting for other hosts."
        return Finding("no_straggler", "info", text)
    text, quantities = late_text(hosts.straggler, results["overview"].kind)
    if hosts.straggler.is_outside_averages:
        text += " (not in the averages)"
    code = "skewed_input" if hosts.straggler.cause == "input" and hosts.straggler.host else "straggler"
    sentence = f"Host {text}." if hosts.straggler.host else f"{text[0].upper()}{text[1:]}."
    return Finding("late_host", "hint", sentence, causes=(code,), quantities=quantities)


def _notes(hosts: Hosts) -> tuple[str, ...]:
    is_said = hosts.is_known or (hosts.chips is not None and hosts.chips.missing > 0)
    notes = [] if is_said else [f"Waiting between hosts is unknown: {hosts.why_unknown}."]
    helpers = [work.host for work in hosts.hosts if work.task.is_helper]
    if helpers:
        notes.append(f"Hosts without their own steps: {listed(helpers)}; averages are over the other hosts.")
    clocks = [(work.host, work.clock.ahead_ns / 1e6) for work in hosts.hosts if work.clock is not None]
    wrong = [f"{host} by {format_ms(ahead)} ms" for host, ahead in clocks if abs(ahead) >= _CLOCK_MS]
    if wrong:
        notes.append(f"Clocks ahead of {clocks[0][0]}: {listed(wrong)}. Waiting times do not depend on clocks.")
    if hosts.cut:
        notes.append(f"Omitted: {counted(hosts.cut, 'collective')}, the last ones of hosts with too many collectives.")
    return tuple(notes)


def straggler_summary(results: Results) -> dict[str, Any]:
    """Return the JSON keys about a straggler: None without one, or if hosts were not analyzed."""
    found = results["hosts"].straggler if "hosts" in results.sections else None
    return {
        "straggler": found.host or None if found is not None else None,
        "straggler_cause": None if found is None else found.cause,
    }


_HOST_COLUMNS = (
    Column("host", "Host", str, "", "name of the trace file"),
    Column(
        "role", "Role", str, "", "worker, chief, evaluator, parameter server, coordinator, tf.data worker, dispatcher"
    ),
    Column("task", "Task", str, "", "name of the task in its cluster", level="data"),
    Column("step_time_ms", "Step time", float, "ms", "average step time"),
    Column("own_work_ms", "Own work", float, "ms", "step time without waiting for other hosts"),
    Column("waits_for_others_ms", "Waits", float, "ms", "waiting in collectives for the last host, per step"),
    Column(
        "others_wait_for_it_ms", "Makes wait", float, "ms", "time that others lose per step when it is the last host"
    ),
    Column("last_percent", "Last", float, "%", "share of the steps in which it is the last host"),
    Column("cause", "Slow in", str, "", "activity that is slower when it is the last host: input, compute, ..."),
    Column(
        "clock_ahead_ms", "Clock", float, "ms", "offset of its clock from the clock of the first host", level="data"
    ),
    Column(
        "clock_spread_ms", "Clock spread", float, "ms", "median deviation of single collectives from it", level="data"
    ),
)
_STRAGGLER_COLUMNS = (
    Column("step", "Step", int, "", "number of the step"),
    Column("averaged", "Averaged", bool, "", "whether the step is averaged on all hosts", level="data"),
    Column("host", "Last host", str, "", "the host that waits least in the step: the others wait for it"),
    Column("lost_ms", "Lost", float, "ms", "longest wait of another host, minus the wait of the last host"),
    Column("host_lost_ms", "Lost in all", float, "ms", "the same time, summed over all hosts", level="data"),
    Column("cause", "Slow in", str, "", "activity in which the last host is slower than the median of the others"),
    Column("excess_ms", "Longer by", float, "ms", "extra time of that activity on the last host"),
    Column("step_time_ms", "Step time", float, "ms", "longest step time of any host"),
)


def _hosts(results: Results) -> Data | None:
    hosts = results["hosts"]
    rows = hosts.hosts
    if len(rows) < 2:
        return None
    return {
        "host": [row.host for row in rows],
        "role": [row.task.role or None for row in rows],
        "task": [row.task.name or None for row in rows],
        "step_time_ms": [_ms(row.step_ps) for row in rows],
        "own_work_ms": [_ms(row.own_work_ps) for row in rows],
        "waits_for_others_ms": [_ms(row.waits_ps) for row in rows],
        "others_wait_for_it_ms": [_ms(row.waited_for_ps) for row in rows],
        "last_percent": [row.last_percent for row in rows],
        "cause": [row.cause or None for row in rows],
        "clock_ahead_ms": [None if row.clock is None else row.clock.ahead_ns / 1e6 for row in rows],
        "clock_spread_ms": [None if row.clock is None else row.clock.spread_ns / 1e6 for row in rows],
    }


def _stragglers(results: Results) -> Data | None:
    hosts = results["hosts"]
    late = hosts.late
    if late is None or not len(late.numbers):
        return None
    return {
        "step": late.numbers.tolist(),
        "averaged": late.counted.tolist(),
        "host": [hosts.sharing[place] for place in late.last.tolist()],
        "lost_ms": (late.lost_ps / PS_PER_MS).tolist(),
        "host_lost_ms": (late.host_lost_ps / PS_PER_MS).tolist(),
        "cause": list(late.causes),
        "excess_ms": (late.excess_ps / PS_PER_MS).tolist(),
        "step_time_ms": (late.step_ps / PS_PER_MS).tolist(),
    }


def _ms(ps: float | None) -> float | None:
    return None if ps is None else ps / PS_PER_MS


HOSTS = TableSpec(
    name="hosts",
    title="Hosts",
    row="hosts of a run with several hosts, and waiting between them",
    details=(
        "One row per host. Only with several hosts. A host waits in collectives until the last host joins, and the "
        "last host of a step is the one that waits least. Waiting is unknown if hosts share no collective, and for "
        "hosts without their own steps, such as parameter servers."
    ),
    columns=_HOST_COLUMNS,
    data=_hosts,
    name_key="host",
    ranked=Ranked("others_wait_for_it_ms", each="hosts"),
    about_steps=True,
    over_hosts=True,
)
STRAGGLERS = TableSpec(
    name="stragglers",
    title="Last host of each step",
    row="last host of each step, and the time lost by waiting for it",
    details=(
        "One row per step in which hosts share collectives. Only with several hosts. `lost_ms` is the longest wait "
        "of another host in the step, minus the wait of the last host; healthy hosts lose up to 3 ms."
    ),
    columns=_STRAGGLER_COLUMNS,
    data=_stragglers,
    name_key="host",
    ranked=Ranked("lost_ms"),
    about_steps=True,
    over_hosts=True,
)
TABLES = (HOSTS, STRAGGLERS)


SECTION = SectionSpec(
    name="hosts",
    title="Hosts",
    analyze="tfperf.sections.hosts.analysis:analyze",
    derive="tfperf.sections.hosts.analysis:compare",
    build="tfperf.sections.hosts:build",
    rests_on=("steps", "overview"),
    stats=COLLECTIVES,
    tables=TABLES,
)
