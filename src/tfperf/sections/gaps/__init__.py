"""Gaps: data that the profile does not contain, with the reasons."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from tfperf.analysis.registry import Host, Results, SectionSpec
from tfperf.base.arrays import capped_sum
from tfperf.base.units import counted, format_percent, listed, percent
from tfperf.report.model import Section
from tfperf.trace.known_stats import HLO_OPS
from tfperf.trace.steps.breakdown import lacks_devices

if TYPE_CHECKING:
    from tfperf.sections.environment.analysis import HostEnvironment

_MOST_MESSAGES = 10
_CAPTURES = "tfperf.profile, ProfileCallback, tfperf run, tfperf.serve"
_NOT_IN_TRACES: dict[str, Callable[[HostEnvironment], object]] = {
    "host CPU cores": lambda host: host.cores,
    "host memory": lambda host: host.facts.memory_bytes,
    "framework and Python versions": lambda host: host.facts.tensorflow_version or host.jax_version,
}
"""Data that a profile alone never contains."""


def analyze(host: Host) -> tuple[str, ...]:
    """Return the data missing from the trace of a host, as sentences."""
    trace, breakdown = host.trace, host["steps"]
    gaps = [] if len(breakdown.steps) or breakdown.task.is_helper else [f"Steps: {breakdown.steps.explanation}."]
    if not trace.event_count:
        gaps.append("Everything: the file has no events.")
    elif not breakdown.missing and not any(plane.kind == "host" and plane.event_count for plane in trace.planes):
        gaps.append(
            "Host time: the profile has no host thread events (host tracer off?), so input, compilation, launches "
            "and host compute are unknown."
        )
    for flaw in breakdown.missing:
        gaps.append(f"{'Device' if 'device_compute' in flaw.hides else 'Host'} time: {flaw.text}.")
    if trace.empty_devices and not lacks_devices(breakdown):
        names = trace.empty_devices
        devices = f"{counted(len(names), 'device')} ({listed(names)})"
        gaps.append(f"Device time of {devices}: listed in the profile, but without events (unused or not traced).")
    elif not trace.devices and not lacks_devices(breakdown):
        gaps.append("Device time: the profile has no devices (a CPU job, or the device was not traced).")
    graphs = trace.graph_ops
    in_graphs = capped_sum(trace.duration_ps[graphs.rows])
    if unknown := percent(capped_sum(trace.duration_ps[graphs.rows[graphs.run < 0]]), in_graphs):
        gaps.append(
            f"HLO ops of {format_percent(unknown)}% of the time in CUDA graphs: the program is missing, or its "
            "schedule fits the kernels in several ways or none, so the HLO op is command_buffer."
        )
    if trace.malformed_events:
        gaps.append(f"Omitted: {counted(trace.malformed_events, 'event')} with impossible times.")
    if trace.cut_names:
        gaps.append(f"Omitted: the ends of {counted(trace.cut_names, 'name')} longer than 4,096 characters.")
    messages = [f"The profiler reported an error: {message}" for message in trace.errors]
    messages += [f"The profiler warned: {message}" for message in trace.warnings]
    gaps += messages[:_MOST_MESSAGES]
    if len(messages) > _MOST_MESSAGES:
        gaps.append(f"Omitted: {counted(len(messages) - _MOST_MESSAGES, 'more message')} of the profiler.")
    return tuple(gaps)


def build(results: Results) -> Section:
    """List the gaps of all hosts (shared ones once), and the data that no profile contains."""
    hosts_of: dict[tuple[str, int], list[str]] = {}
    for host in results.hosts:
        for number, gap in enumerate(host["gaps"]):
            # A profiler may report an error several times.
            hosts_of.setdefault((gap, host["gaps"][:number].count(gap)), []).append(host.host)
    notes = []
    for (gap, _), hosts in hosts_of.items():
        named = "all" if len(hosts) == len(results.hosts) else listed(hosts)
        notes.append(f"{gap} Hosts: {named}." if results.has_several_hosts else gap)
    return Section("gaps", "Missing from this profile", notes=(*notes, *_of_run(results)))


def topics(results: Results) -> tuple[str, ...]:
    """Return the topics of the gaps: the beginning of each sentence without details, without duplicates."""
    gaps = [*(gap for host in results.hosts for gap in host["gaps"]), *_of_run(results)]
    return tuple(dict.fromkeys(re.split(r"[:(]", gap, maxsplit=1)[0].strip() for gap in gaps))


def _of_run(results: Results) -> list[str]:
    notes = []
    breakdown = results["steps"]
    if len(breakdown.steps) and breakdown.host_visible and not breakdown.input_visible:
        notes.append(
            "Input: the profile has neither tf.data fetches nor copies to a device, so input time is unknown, not 0."
        )
    if results["batch"].reason and len(results["steps"].steps):
        notes.append(f"Batch size: {results['batch'].reason}.")
    hosts = results["environment"]
    unknown = [what for what, is_known in _NOT_IN_TRACES.items() if not all(map(is_known, hosts))]
    if unknown:
        named = unknown[0] if len(unknown) == 1 else f"{', '.join(unknown[:-1])} and {unknown[-1]}"
        notes.append(f"Host hardware and software versions ({named}): recorded only by tfperf captures ({_CAPTURES}).")
    return notes


SECTION = SectionSpec(
    name="gaps",
    title="Missing from this profile",
    stats=HLO_OPS,
    rests_on=("steps", "batch", "environment"),
    analyze=analyze,
    combine=tuple,
    build=build,
)
