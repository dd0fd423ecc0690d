"""What a limit measures on a host: named figures, and columns of tables.

A gate counts whole steps only, after those that the user skips, each host by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from tfperf.arrays import median
from tfperf.compare.summarize import whole_steps
from tfperf.errors import TfperfError
from tfperf.gate.grammar import limit_tables
from tfperf.gate.limits import FIGURES, Limit, Measurement, Metric, unknown
from tfperf.gate.table_rows import measure_rows, numbers
from tfperf.report.model import Finding
from tfperf.sections.overview.summary import Statistics, Summary, summarize
from tfperf.sections.registry import call, find_section
from tfperf.sections.steps.why_unknown import NO_DEVICE, why_unknown
from tfperf.units import counted

if TYPE_CHECKING:
    from tfperf.compare.bootstrap import StepStatistic
    from tfperf.sections.functions.analysis import FunctionStats
    from tfperf.sections.memory.allocator import Allocator
    from tfperf.sections.results import HostResults, Results
    from tfperf.sections.steps.breakdown import Breakdown

_STATISTICS = {"mean": "average", "median": "median", "p95": "p95", "max": "maximum", "min": "minimum"}


class JudgedHost(Struct, frozen=True, kw_only=True, dict=True):
    """One host, over the steps that count; or all hosts together, for tables over hosts."""

    results: Results
    """Of this host alone, over the steps that count."""
    name: str
    """How messages name the host: empty where there is only one."""
    stat: StepStatistic
    min_steps: int
    recorded_steps: int
    """Steps in the profile, also those that do not count."""
    other_kinds: Mapping[str, int]
    """How many whole steps of each other kind there are; these are not judged."""

    @property
    def host(self) -> HostResults:
        """Return the results of the host."""
        return self.results.hosts[0]

    @property
    def breakdown(self) -> Breakdown:
        """Return the breakdown of the steps that count."""
        breakdown: Breakdown = self.host["steps"]
        return breakdown

    @cached_property
    def summary(self) -> Summary:
        """Return the averages over the headline steps."""
        return summarize(self.breakdown)

    @property
    def too_few_steps(self) -> str:
        """Say that the host has too few averaged steps, and what to try; empty if it has enough."""
        count, steps = self.summary.averaged_count, self.breakdown.steps
        if count >= self.min_steps:
            return ""
        kind = f"{self.summary.kind} " if self.other_kinds else ""
        whole = f"{counted(count, f'whole {kind}step')} {'counts' if count == 1 else 'count'}"
        why = steps.explanation if steps.source == "none" else f"of {self.recorded_steps:,} recorded"
        advice = ", or choose the hosts that count with --host" if self.name else ""
        return f"{whole} ({why}), but --min-steps asks for {self.min_steps}: profile longer{advice}"

    def named(self, reason: str) -> str:
        """Return a reason with the name of the host before it, if there are several."""
        return f"host {self.name}: {reason}" if self.name else reason

    def findings(self, section: str) -> tuple[Finding, ...]:
        """Return the findings of a section; none of a section about devices where no device recorded anything."""
        spec = find_section(section)
        if spec.without_device and not self.results.has_device:
            return ()
        findings: tuple[Finding, ...] = call(spec.build, self.results).findings
        return findings


def judged_hosts(
    results: Results, *, stat: StepStatistic, skip_first: int, min_steps: int, kind: str = ""
) -> tuple[JudgedHost, ...]:
    """Return each host alone, then, if there are several, all of them together.

    With a `kind`, only steps of that kind count; without, figures are over those of the main kind.
    """
    judged, whole = whole_steps(results, skip_first, kind), whole_steps(results)
    several = results.has_several_hosts
    pairs = list(zip(results.hosts, judged.hosts, strict=True))
    others = [_other_kinds(of_all, of_host) for of_all, of_host in zip(whole.hosts, judged.hosts, strict=True)]
    together = JudgedHost(
        results=judged,
        name="",
        stat=stat,
        min_steps=max(min_steps, 1),
        recorded_steps=len(results["steps"].steps),
        other_kinds={kind: max(kinds.get(kind, 0) for kinds in others) for kinds in others for kind in kinds},
    )
    alone = [
        replace(
            together,
            results=judged.only([after]),
            name=after.host if several else "",
            recorded_steps=len(before["steps"].steps),
            other_kinds=kinds,
        )
        for (before, after), kinds in zip(pairs, others, strict=True)
    ]
    return (*alone, together) if several else tuple(alone)


def _other_kinds(whole: HostResults, judged: HostResults) -> dict[str, int]:
    """Return how many whole steps of a host are of other kinds than the one that is judged."""
    counts = Counter(whole["steps"].steps.kinds)
    counts.pop(judged["steps"].steps.headline_kind, None)
    return dict(counts)


def measure(limit: Limit, host: JudgedHost) -> Measurement:
    """Return what a limit measures on a host."""
    metric = limit.metric
    if metric.table:
        return _measure_column(limit, host)
    if rests_on_steps(metric) and host.too_few_steps:
        return unknown(host.too_few_steps)
    if metric.name == "step_time":
        return _step_time(host, metric.function)
    measurement = _FIGURES[metric.name](host)
    # A part of the value is the smallest that is possible, which says nothing about a lower limit.
    return unknown(measurement.gap) if measurement.gap and limit.relation.startswith(">") else measurement


def rests_on_steps(metric: Metric) -> bool:
    """Tell whether a metric is a figure over steps."""
    return metric.name in FIGURES and not metric.table and "steps" in FIGURES[metric.name].sections


def measure_skew(hosts: Sequence[JudgedHost]) -> Measurement:
    """Return by how much the slowest host's step time is above the median of the hosts, in %."""
    if len(hosts) < 2:
        return unknown("there is only one host, and skew compares hosts")
    thin = next((host for host in hosts if host.too_few_steps), None)
    if thin is not None:
        return unknown(thin.named(thin.too_few_steps))
    times = [_step_time(host, "").value or 0.0 for host in hosts]
    slowest, middle = max(times), median(numbers(times))
    if not middle:
        return unknown("the median step time of the hosts is 0")
    why = f"its steps take {slowest:.6g} ms, the median of {len(hosts)} hosts is {middle:.6g} ms"
    return Measurement(100.0 * (slowest / middle - 1.0), why, host=hosts[times.index(slowest)].name)


def _measure_column(limit: Limit, host: JudgedHost) -> Measurement:
    name, key = limit.metric.table, limit.metric.name
    table = limit_tables()[name]
    columns = {column.key: column for column in table.columns}
    if table.over_hosts:
        if not host.results.has_several_hosts:
            return unknown(f"there is only one host, and {name} compares hosts")
    elif (table.about_steps or columns[key].over_steps) and host.too_few_steps:
        return unknown(host.too_few_steps)
    used = {key, *(condition.column for condition in limit.metric.conditions)}
    try:
        data = host.results.table(name)
    except TfperfError as error:
        return unknown(str(error))
    if data is None:
        if table.empty_means_none:
            return measure_rows(limit, {column: [] for column in used})
        return unknown(f"this profile has no table {name} (tfperf query --schema PATH lists those that it has)")
    if host.results.is_narrowed:
        stale = sorted(column for column in used if table.counts_all_steps or columns[column].over_steps)
        if stale:
            return unknown(f"{name}.{stale[0]} also counts steps that are not judged")
    hidden = [category for category in sorted(host.breakdown.unknown) if f"{category}_ms" in used]
    if table.about_steps and hidden:
        # In a job without a device, rows hold 0 for the categories of one.
        return unknown(f"{name}.{hidden[0]}_ms is unknown: {why_unknown(host.breakdown, hidden[0])}")
    return measure_rows(limit, data)


def _over_steps(host: JudgedHost) -> str:
    summary = host.summary
    kind = "" if summary.kind == "step" else f"{summary.kind} "
    others = f"; {unjudged_steps(host.other_kinds)}" if host.other_kinds else ""
    return f"over {counted(summary.averaged_count, kind + 'step')}{others}"


def unjudged_steps(kinds: Mapping[str, int]) -> str:
    """Say how many steps of other kinds are not judged, and how they are."""
    steps = " and ".join(counted(count, f"{kind} step") for kind, count in kinds.items())
    options = " or ".join(f"--by-kind {kind}" for kind in kinds)
    return f"{steps} {'is' if [*kinds.values()] == [1] else 'are'} not judged: {options}"


def _step_time(host: JudgedHost, function: str) -> Measurement:
    times: Statistics | None = host.summary.step_time_ms
    if times is None:
        return unknown("no step has a duration")
    return Measurement(float(getattr(times, _STATISTICS[function or host.stat])), _over_steps(host))


def _input_bound(host: JudgedHost) -> Measurement:
    if host.summary.input_percent is None:
        return unknown(why_unknown(host.breakdown, "input"))
    return Measurement(host.summary.input_percent, _over_steps(host))


def _share(host: JudgedHost, category: str) -> Measurement:
    """Return the share of a category in the step time."""
    if category in host.breakdown.unknown:
        return unknown(why_unknown(host.breakdown, category))
    return Measurement(host.summary.percent[category], _over_steps(host))


def _device_busy(host: JudgedHost) -> Measurement:
    idle = host.host["idle"]
    if idle is None or not idle.devices:
        return unknown(NO_DEVICE)
    if host.breakdown.attribution == "tensorflow":
        return unknown(
            "steps of attribution tensorflow are not windows in time, which device time needs: use corrected"
        )
    if any(not device.counted_window_ps for device in idle.devices):
        return unknown("the time of a device could not be cut by the steps that count")
    # A device that recorded work took part, so it counts with 0 % if none of it is in the steps.
    worst = max(idle.devices, key=lambda device: device.percent())
    listed, recorded = len(idle.listed), len(idle.devices)
    omitted = f"; omitted: {listed - recorded} of {listed} that recorded no work" if recorded < listed else ""
    of_several = f", the least busy of {recorded} devices" if recorded > 1 else ""
    why = f"{worst.device}{of_several}, {_over_steps(host)}{omitted}"
    busy_ps = int(worst.busy_ps[worst.counted].sum())
    return Measurement(100.0 * busy_ps / worst.counted_window_ps, why)


def _memory(host: JudgedHost) -> Measurement:
    memory = host.host["memory"]
    if not memory.allocators:
        return unknown("no allocator recorded anything, so nothing is known about memory (tfperf analyze -s memory)")
    fullest = fullest_allocator(host)
    if fullest is None:
        return unknown("no allocator of a device recorded anything, so nothing is known about its memory")
    count = memory.malformed_events
    unknown_at = f"how much is in use is unknown at {counted(count, 'event')}"
    gap = f"{unknown_at} of allocators, so the peak may be higher" if count else ""
    part = ", which records only what it allocates itself" if fullest.place == "host" else ""
    why = f"in {fullest.name}{part}; in the whole capture, at {fullest.peak_ms:.6g} ms"
    return Measurement(float(fullest.peak_bytes), why, gap)


def fullest_allocator(host: JudgedHost) -> Allocator | None:
    """Return the allocator with the highest peak: of devices, or of the host in a job without any device."""
    allocators: tuple[Allocator, ...] = host.host["memory"].allocators
    of_devices = [allocator for allocator in allocators if allocator.place in ("device", "other")]
    candidates = of_devices if of_devices or host.breakdown.has_device else allocators
    return max(candidates, key=lambda allocator: allocator.peak_bytes, default=None)


def _retraces(host: JudgedHost) -> Measurement:
    functions: tuple[FunctionStats, ...] = host.host["functions"].functions
    if not functions:
        return unknown("no call of a tf.function is in the trace, so nothing is known about tracing")
    counts = [retraces_of(function) for function in functions]
    known = [count for count in counts if count is not None]
    silent = len(counts) - len(known)
    which = f"{counted(silent, 'traced function')} {'was' if silent == 1 else 'were'}"
    gap = f"the profile does not show whether {which} traced before" if silent else ""
    calls = sum(function.call_count for function in functions)
    return Measurement(float(sum(known)), f"of {counted(calls, 'call')} of tf.functions in the whole capture", gap)


def retraces_of(function: FunctionStats) -> int | None:
    """Return the calls in the capture that traced a function again; None if it is unknown whether one was the first.

    Functions of one name count as one: where each call makes a new one, all but the first call trace again.
    """
    traced = function.calls.get("traced", 0)
    if not traced:
        return 0
    if function.tracing_count <= 0:
        return None
    return traced if function.tracing_count > traced else traced - 1


_FIGURES: Mapping[str, Callable[[JudgedHost], Measurement]] = {
    "input_bound": _input_bound,
    "kernel_launch": partial(_share, category="kernel_launch"),
    "all_others": partial(_share, category="all_others"),
    "device_busy": _device_busy,
    "memory": _memory,
    "retraces": _retraces,
}
