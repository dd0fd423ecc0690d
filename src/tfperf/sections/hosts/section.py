"""The section about hosts: the verdict on who waits for whom, and a line for each host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfperf.analysis.registry import present
from tfperf.base.units import counted, format_ms, listed
from tfperf.report.model import Finding, Quantity, Section
from tfperf.sections.hosts.lateness import CAUSE_TEXTS, LEAST_LOSS_MS
from tfperf.sections.hosts.tables import HOSTS, STRAGGLERS

if TYPE_CHECKING:
    from tfperf.analysis.results import Results
    from tfperf.sections.hosts.analysis import Hosts
    from tfperf.sections.hosts.straggler import Straggler

_CLOCK_MS = 5.0
"""Clocks that differ by less are as good as equal."""


def build(results: Results) -> Section:
    """Build the section; of one host there is nothing to say."""
    hosts: Hosts = results["hosts"]
    if not results.has_several_hosts:
        return Section("hosts", "Hosts", level="full", findings=_missing_chips(hosts), notes=_alone(hosts))
    return Section(
        "hosts",
        "Hosts",
        findings=(*_missing_chips(hosts), *([_verdict(results, hosts)] if hosts.is_known else [])),
        tables=present(HOSTS.build(results), STRAGGLERS.build(results, level="full")),
        notes=_notes(hosts),
    )


def _missing_chips(hosts: Hosts) -> tuple[Finding, ...]:
    """Say that chips of the program are not in the profile, so that nobody knows whether others wait for them."""
    if hosts.chips is None or not hosts.chips.missing:
        return ()
    text = f"{hosts.chips.sentence}, so whether chips wait for them is unknown."
    return (Finding("missing_chips", "hint", text[0].upper() + text[1:], "capture all hosts of the job into one run"),)


def _alone(hosts: Hosts) -> tuple[str, ...]:
    """Say of a profile of one host, if all chips of the program are in it, that nobody waits for another host."""
    return () if hosts.chips is not None and hosts.chips.missing else (f"{hosts.why_unknown.capitalize()}.",)


def who_is_late(found: Straggler, kind: str) -> tuple[str, Quantity]:
    """Return a clause that says which host is late how often, and what the others lose."""
    lost = Quantity(f"{_key(found)}, lost", found.loss_ms, "ms", kind)
    steps = f"{found.last_in} of {counted(found.steps, 'step')}"
    who = f"{found.host} is last in {steps}" if found.host else f"some host is late in {steps}"
    return f"{who}, and the others wait {lost} per step for it", lost


def slower_in(found: Straggler, kind: str) -> tuple[str, Quantity]:
    """Return in what the late host is slower, and by how much, as the end of a clause."""
    longer = Quantity(f"{_key(found)}, longer", found.excess_ms, "ms", kind)
    return f"{longer} per step slower in {CAUSE_TEXTS[found.cause]}", longer


def late_text(found: Straggler, kind: str) -> tuple[str, tuple[Quantity, ...]]:
    """Return both as one clause."""
    who, lost = who_is_late(found, kind)
    slower, longer = slower_in(found, kind)
    return f"{who}: it is {slower}", (lost, longer)


def _key(found: Straggler) -> str:
    return "straggler_outside" if found.is_outside_averages else "straggler"


def _verdict(results: Results, hosts: Hosts) -> Finding:
    if hosts.straggler is None:
        text = f"No host holds the others up: what steps lose by waiting is below {LEAST_LOSS_MS:.0f} ms or 5%."
        return Finding("no_straggler", "info", text)
    text, quantities = late_text(hosts.straggler, results["overview"].kind)
    if hosts.straggler.is_outside_averages:
        text += " (averages omit that)"
    code = "skewed_input" if hosts.straggler.cause == "input" and hosts.straggler.host else "straggler"
    return Finding("late_host", "hint", f"{text[0].upper()}{text[1:]}.", causes=(code,), quantities=quantities)


def _notes(hosts: Hosts) -> tuple[str, ...]:
    is_said = hosts.is_known or (hosts.chips is not None and hosts.chips.missing > 0)
    notes = [] if is_said else [f"Who waits for whom is unknown: {hosts.why_unknown}."]
    helpers = [work.host for work in hosts.hosts if work.task.is_helper]
    if helpers:
        notes.append(f"Without steps of their own: {listed(helpers)}; averages are over the other hosts.")
    clocks = [(work.host, work.clock.ahead_ns / 1e6) for work in hosts.hosts if work.clock is not None]
    wrong = [f"{host} by {format_ms(ahead)} ms" for host, ahead in clocks if abs(ahead) >= _CLOCK_MS]
    if wrong:
        notes.append(f"Clocks are ahead of that of {clocks[0][0]}: {listed(wrong)}. Waiting does not rest on clocks.")
    if hosts.cut:
        notes.append(f"Omitted: {counted(hosts.cut, 'collective')}, the last ones of hosts that have too many.")
    return tuple(notes)


def straggler_summary(results: Results) -> dict[str, Any]:
    """Return the JSON keys about a late host: None where no host is to blame, or nothing is known."""
    found: Straggler | None = results["hosts"].straggler
    return {
        "straggler": found.host or None if found is not None else None,
        "straggler_cause": None if found is None else found.cause,
    }
