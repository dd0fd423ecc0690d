"""Measure limits on a host, or on all hosts together: named figures, and columns of tables.

A host is measured over its whole steps, after the skipped ones. `RESTS_ON` lists the parts of a profile that a figure
depends on; flaws list the parts that they affect. A limit on a figure with a doubtful part is unknown.

Conditions select rows of a table, and a function combines them into one number. A cell can be unknown, so a row's
selection is true, false or unknown; one false condition drops the row, whatever the others are. Unknown text counts as
empty text.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.analysis.registry import call, find_section, find_table
from tfperf.base.arrays import Bools, Float64s, median, percentile
from tfperf.base.errors import TfperfError
from tfperf.base.patterns import pattern
from tfperf.base.units import counted, format_ms, format_percent
from tfperf.judge.grammar import column_of, limit_tables, metric_text
from tfperf.judge.limits import FIGURES, REGRESSION, RELATIONS, Condition, Limit, Metric
from tfperf.judge.summarize import whole_steps
from tfperf.report.model import Data, Finding, Status
from tfperf.report.render.values import brief
from tfperf.sections.diagnosis.case import LEAST_PERCENT
from tfperf.sections.hosts import late_text
from tfperf.sections.hosts.analysis import LEAST_LOSS_MS, LEAST_LOSS_PERCENT
from tfperf.sections.overview.summary import Statistics, Summary, summarize
from tfperf.sections.requests.analysis import needed, percentile_ms
from tfperf.sections.wall import steady_text, wall_step_ms
from tfperf.trace.device.device_work import device_label
from tfperf.trace.flaw import EVERYTHING, TIMES, Flaw, Parts
from tfperf.trace.steps.breakdown import NO_DEVICE, why_devices_unknown, why_unknown
from tfperf.trace.steps.steps import (
    COLLECTION,
    END_ESTIMATED,
    OMITTED,
    PARTIAL,
    RETRACE,
    SLOW_FIRST,
    UNLABELLED,
    step_word,
)

if TYPE_CHECKING:
    from tfperf.analysis.registry import HostResults, Results
    from tfperf.judge.regression import StepStatistic
    from tfperf.sections.diagnosis.cause import Diagnosis
    from tfperf.sections.functions.analysis import FunctionStats
    from tfperf.sections.hosts.analysis import Hosts
    from tfperf.sections.memory.analysis import Allocator
    from tfperf.sections.wall.analysis import Wall
    from tfperf.trace.steps.breakdown import Breakdown
    from tfperf.trace.steps.steps import Steps


class Measurement(Struct, frozen=True):
    """The value of a metric on one host or on all together; `Judged` is the result of its limit.

    `gap` is the unknown part of the value, or empty. With a gap, `value` is the smallest possible one (for an upper
    limit) or the largest (for a lower one): if it breaches a limit, the limit is breached. None if it is unknown.
    """

    value: float | None
    why: str = ""
    """The basis of the value."""
    gap: str = ""
    host: str = ""
    """The host with this value, if the metric is over several."""
    is_none: bool = False
    """Whether nothing is measured, which the limit allows."""

    @property
    def reason(self) -> str:
        """Return why a limit on it is unknown."""
        return self.gap or "the measured value is not a number"

    def status(self, limit: Limit) -> Status:
        """Return the result of a limit for the unrounded value: a breach despite gaps, but a pass only without them."""
        if self.is_none:
            return "pass"
        if self.value is None or not math.isfinite(self.value):
            return "unknown"
        if not RELATIONS[limit.relation](self.value, limit.bound):
            return "breach"
        return "unknown" if self.gap else "pass"


def unknown(gap: str) -> Measurement:
    """Return a measurement without a value, with the reason."""
    return Measurement(None, gap=gap)


_CALLS: Parts = frozenset({"calls", "host"})
_DEVICES: Parts = frozenset({"device"})
_MEMORY: Parts = frozenset({"memory"})
_INPUT: Parts = frozenset({"input"})
RESTS_ON: Mapping[str, Parts] = {
    **{name: TIMES if figure.parts is None else figure.parts for name, figure in FIGURES.items()},
    REGRESSION: frozenset(),
    **dict.fromkeys(("tfdata_stages", "tfdata_functions", "tfdata_pipelines", "tfdata_code"), _INPUT),
    **dict.fromkeys(("tf_functions", "eager_ops", "jitted_functions"), _CALLS),
    **dict.fromkeys(("python_functions", "python_packages", "python_package_functions"), _CALLS),
    **dict.fromkeys(
        ("kernels", "kernels_by_name", "kernel_regions", "kernel_sequences", "copies", "async_copies"), _DEVICES
    ),
    **dict.fromkeys(("device_time", "compute_precision", "idle_devices", "device_use"), _DEVICES),
    **dict.fromkeys(("memory_allocators", "memory_alive", "memory_by_op", "memory_by_scope"), _MEMORY),
    "memory_timeline": _MEMORY,
}
"""Figure or table -> the parts that it depends on, besides step detection; others depend on everything."""


def rests_on_steps(metric: Metric) -> bool:
    """Return whether a metric is a figure over steps."""
    return metric.name in FIGURES and not metric.table and "steps" in FIGURES[metric.name].sections


def is_over_steps(metric: Metric) -> bool:
    """Return whether a metric is a figure or a column over steps."""
    if not metric.table:
        return metric.name == REGRESSION or rests_on_steps(metric)
    table = limit_tables()[metric.table]
    return table.about_steps or any(column.over_steps for column in table.columns if column.key == metric.name)


def parts_of(metric: Metric, steps: Iterable[Steps]) -> Parts:
    """Return the parts of a profile that a metric depends on; `steps` are those of its hosts."""
    parts = RESTS_ON.get(metric.table or metric.name, EVERYTHING)
    if metric.cause == "memory_pressure":
        parts |= _MEMORY
    return parts.union(*(each.rests_on for each in steps)) if is_over_steps(metric) else parts


_MOST_DOUBTS = 5
_AGAIN = "capture it again and copy the complete file"
_MARK_STEPS = "mark the steps with tfperf.step, or name the step events with --step-marker"
_OMITTED = {
    PARTIAL: "cut off",
    RETRACE: "compiling",
    SLOW_FIRST: "slow first",
    END_ESTIMATED: "with estimated end",
    COLLECTION: "with rare garbage collection",
    OMITTED: "excluded by TensorFlow",
}
"""Description of each flag in a list of steps that are not averaged."""


class JudgedHost(Struct, frozen=True, kw_only=True, dict=True):
    """One host, over the selected steps; or all hosts together, for tables over hosts."""

    results: Results
    """Of this host alone, over the selected steps."""
    name: str
    """The host in messages: empty if there is only one."""
    stat: StepStatistic
    min_steps: int
    recorded_steps: int
    """Steps in the profile, including unselected ones."""
    other_kinds: Mapping[str, int]
    """Whole steps of each other kind, which are not checked."""
    omitted: Mapping[str, int]
    """Steps of the checked kind that are not averaged, by flag."""
    allow_doubt: bool = False
    """Whether a figure is checked even if it is doubtful."""

    @property
    def host(self) -> HostResults:
        """Return the results of the host."""
        return self.results.hosts[0]

    @property
    def breakdown(self) -> Breakdown:
        """Return the breakdown of the selected steps."""
        breakdown: Breakdown = self.host["steps"]
        return breakdown

    @cached_property
    def summary(self) -> Summary:
        """Return the means over the averaged steps."""
        return summarize(self.breakdown)

    @property
    def too_few_steps(self) -> str:
        """Return that the host has too few averaged steps, and a fix; empty if it has enough."""
        count, steps = self.summary.averaged_count, self.breakdown.steps
        if count >= self.min_steps:
            return ""
        word = step_word(self.summary.kind if self.other_kinds else UNLABELLED)
        whole = f"{counted(count, f'whole {word}')} {'counts' if count == 1 else 'count'}"
        why = steps.explanation if steps.source == "none" else f"of {self.recorded_steps:,} recorded"
        advice = ", or select hosts with --host" if self.name else ""
        return f"{whole} ({why}), but --min-steps is {self.min_steps}: profile longer{advice}"

    def damage(self, metric: Metric) -> str:
        """Return the damage of the profile that affects a figure, or empty."""
        parts = parts_of(metric, (host["steps"].steps for host in self.results.hosts))
        texts = [flaw.text for _, flaw in self.results.flaws if flaw.level == "unsound" and flaw.touches(parts)]
        return f"the profile is damaged: {texts[0]}" if texts else ""

    def why_doubtful(self, metric: Metric) -> str:
        """Return why a figure is too doubtful to check, and a fix; empty if it is reliable or doubt is allowed."""
        doubts = self.doubts(metric)
        if self.allow_doubt or not doubts:
            return ""
        fix = next(filter(None, (flaw.fix for _, flaw in doubts)), _AGAIN)
        doubt = f"the profile may be incomplete or wrong: {self.doubt_text(doubts)}"
        return f"{doubt}; {fix}, or check it anyway with --allow-doubt"

    def doubts(self, metric: Metric | None = None) -> Sequence[tuple[str, Flaw]]:
        """Return the doubts about a figure, or all doubts, with their hosts: flaws, and low-confidence steps."""
        found = [(host, flaw) for host, flaw in self.results.flaws if flaw.level == "doubtful"]
        for host in self.results.hosts:
            steps = host["steps"].steps
            if steps.confidence == "low" and steps.headline.any():
                text = f"step detection has low confidence: {steps.explanation}"
                found.append((host.host, Flaw("unsure_steps", text, "doubtful", fix=_MARK_STEPS)))
        parts = None if metric is None else parts_of(metric, (host["steps"].steps for host in self.results.hosts))
        return [(host, flaw) for host, flaw in found if parts is None or flaw.touches(parts)]

    def doubt_text(self, doubts: Sequence[tuple[str, Flaw]]) -> str:
        """Return the first doubts as text, with the host if the figure is over several."""
        is_of_several = self.results.has_several_hosts
        texts = [f"host {host}: {flaw.text}" if is_of_several else flaw.text for host, flaw in doubts]
        more = len(texts) - _MOST_DOUBTS
        return "; ".join([*texts[:_MOST_DOUBTS], *([f"and {more:,} more"] if more > 0 else [])])

    def over(self, summary: Summary) -> str:
        """Return the steps of a figure as text, and those that are not checked."""
        others = f"; {unjudged_steps(self.other_kinds)}" if self.other_kinds else ""
        return f"over {counted(summary.averaged_count, step_word(summary.kind))}{others}"

    def statistic_of(self, statistic: str) -> str:
        """Return the steps of a step time statistic as text, with the reasons for omissions."""
        total = self.summary.averaged_count + sum(self.omitted.values())
        reasons = ", ".join(f"{count:,} {_OMITTED[flag]}" for flag, count in self.omitted.items())
        omitted = f"; omitted: {reasons}" if reasons else ""
        return (
            f"{statistic} of {self.summary.averaged_count:,} of {counted(total, step_word(self.summary.kind))}{omitted}"
        )

    def named(self, reason: str) -> str:
        """Prefix a reason with the host's name if there are several hosts."""
        return f"host {self.name}: {reason}" if self.name else reason

    def findings(self, section: str) -> tuple[Finding, ...]:
        """Return the findings of a section; empty for a device section without device events."""
        spec = find_section(section)
        if spec.without_device and not self.results.has_device:
            return ()
        findings: tuple[Finding, ...] = call(spec.build, self.results).findings
        return findings


def judged_hosts(
    results: Results, *, stat: StepStatistic, skip_first: int, min_steps: int, kind: str = "", allow_doubt: bool = False
) -> tuple[JudgedHost, ...]:
    """Return each host alone, then all together if there are several; `kind` selects steps, by default the main."""
    judged, whole = whole_steps(results, skip_first, kind), whole_steps(results)
    several = results.has_several_hosts
    others = []
    for of_all, of_host in zip(whole.hosts, judged.hosts, strict=True):
        counts = Counter(of_all["steps"].steps.kinds)
        counts.pop(of_host["steps"].steps.headline_kind, None)
        others.append(dict(counts))
    together = JudgedHost(
        results=judged,
        name="",
        stat=stat,
        min_steps=max(min_steps, 1),
        recorded_steps=len(results["steps"].steps),
        other_kinds={kind: max(kinds.get(kind, 0) for kinds in others) for kinds in others for kind in kinds},
        omitted={},
        allow_doubt=allow_doubt,
    )
    alone = []
    for before, after, kinds in zip(results.hosts, judged.hosts, others, strict=True):
        steps, counting = before["steps"].steps, after["steps"].steps
        flags = [flag for flag, own in zip(steps.flags, steps.kinds, strict=True) if own == counting.headline_kind]
        averaged = Counter(
            flag for flag, counts in zip(counting.flags, counting.headline.tolist(), strict=True) if counts
        )
        host = replace(
            together,
            results=judged.only([after]),
            name=after.host if several else "",
            recorded_steps=len(steps),
            other_kinds=kinds,
            omitted=dict(Counter(filter(None, flags[skip_first:])) - averaged),
        )
        alone.append(host)
    return (*alone, together) if several else tuple(alone)


def unjudged_steps(kinds: Mapping[str, int]) -> str:
    """Return the number of steps of other kinds, and the options to check them."""
    steps = " and ".join(counted(count, step_word(kind)) for kind, count in kinds.items())
    options = " or ".join(f"--by-kind {kind}" for kind in kinds)
    return f"{steps} {'is' if [*kinds.values()] == [1] else 'are'} not checked: {options}"


_STATISTICS = {"mean": "average", "median": "median", "p95": "p95", "max": "maximum", "min": "minimum"}


def measure(limit: Limit, host: JudgedHost) -> Measurement:
    """Measure a limit on a host."""
    if damage := host.damage(limit.metric):
        return unknown(damage)
    measurement = _measure(limit, host)
    is_unknown = measurement.value is None and not measurement.is_none
    doubt = "" if is_unknown else host.why_doubtful(limit.metric)
    return unknown(doubt) if doubt else measurement


def _measure(limit: Limit, host: JudgedHost) -> Measurement:
    metric = limit.metric
    if metric.table:
        section, _ = find_table(metric.table)
        lacking = why_devices_unknown(host.breakdown) if find_section(section).without_device else ""
        measurement = unknown(lacking) if lacking else _measure_column(limit, host)
        if section == "diagnosis" and host.breakdown.missing:
            # There may be more causes in missing events.
            flaw = host.breakdown.missing[0]
            return replace(measurement, gap=measurement.gap or f"{flaw.text}: {flaw.fix}", is_none=False)
        return measurement
    if rests_on_steps(metric) and not FIGURES[metric.name].over_hosts and host.too_few_steps:
        return unknown(host.too_few_steps)
    read: Callable[[JudgedHost, Metric], Measurement] = resolve_name(FIGURES[metric.name].measure)
    measurement = read(host, metric)
    # A partial value is a lower bound, which cannot decide a lower limit.
    return unknown(measurement.gap) if measurement.gap and limit.relation.startswith(">") else measurement


def measure_skew(hosts: Sequence[JudgedHost]) -> Measurement:
    """Return the excess of the slowest host's step time over the median of the hosts, in %."""
    if len(hosts) < 2:
        return unknown("single-host profile, but skew compares hosts")
    metric = Metric("skew")
    for host in hosts:
        problem = host.damage(metric) or host.too_few_steps or host.why_doubtful(metric)
        if problem:
            return unknown(host.named(problem))
    steps_of = [step_time(host, metric) for host in hosts]
    for host, measured in zip(hosts, steps_of, strict=True):
        if measured.value is None:
            return unknown(host.named(measured.reason))
    times = [measured.value or 0.0 for measured in steps_of]
    slowest, middle = max(times), median(numbers(times))
    if not middle:
        return unknown("the median step time of the hosts is 0")
    why = f"its steps take {format_ms(slowest)} ms; the median of {len(hosts)} hosts is {format_ms(middle)} ms"
    return Measurement(100.0 * (slowest / middle - 1.0), why, host=hosts[times.index(slowest)].name)


def measure_together(limit: Limit, hosts: Sequence[JudgedHost], together: JudgedHost) -> Measurement:
    """Measure a limit on all hosts together, each of which must have enough steps."""
    thin = next((host for host in hosts if host.too_few_steps), None)
    return measure(limit, together) if thin is None else unknown(thin.named(thin.too_few_steps))


def _measure_column(limit: Limit, host: JudgedHost) -> Measurement:
    name, key = limit.metric.table, limit.metric.name
    table = limit_tables()[name]
    columns = {column.key: column for column in table.columns}
    if table.over_hosts:
        if not host.results.has_several_hosts:
            return unknown(f"single-host profile, but {name} compares hosts")
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
        return unknown(f"this profile has no table {name} (tfperf query --schema PATH lists its tables)")
    if host.results.is_narrowed:
        stale = sorted(column for column in used if table.counts_all_steps or columns[column].over_steps)
        if stale:
            return unknown(f"{name}.{stale[0]} also includes steps that are not checked")
    hidden = [category for category in sorted(host.breakdown.unknown) if f"{category}_ms" in used]
    if table.about_steps and hidden:
        # In a job without a device, rows have 0 for device categories.
        return unknown(f"{name}.{hidden[0]}_ms is unknown: {why_unknown(host.breakdown, hidden[0])}")
    return measure_rows(limit, data)


def why_step_time_unknown(host: JudgedHost) -> str:
    """Return why missing device events leave the step time unknown: only they show where steps end."""
    steps = host.breakdown.steps
    return "" if steps.source == "markers" and steps.end_known else why_devices_unknown(host.breakdown)


def step_time(host: JudgedHost, metric: Metric) -> Measurement:
    """Return the metric's statistic of the step times, by default the host's."""
    if lacking := why_step_time_unknown(host):
        return unknown(lacking)
    times: Statistics | None = host.summary.step_time_ms
    if times is None:
        return unknown("no step has a duration")
    statistic = metric.function or host.stat
    others = f"; {unjudged_steps(host.other_kinds)}" if host.other_kinds else ""
    return Measurement(float(getattr(times, _STATISTICS[statistic])), f"{host.statistic_of(statistic)}{others}")


def wall_step_time(host: JudgedHost, _: Metric) -> Measurement:
    """Return the wall time per step of the main kind."""
    if lacking := why_step_time_unknown(host):
        return unknown(lacking)
    wall: Wall = host.host["wall"]
    step_ms = wall_step_ms(wall)
    if step_ms is None:
        return unknown("the profile does not show the wall time of a step")
    return Measurement(step_ms, f"from the first to the last of {steady_text(wall)}")


def input_bound(host: JudgedHost, _: Metric) -> Measurement:
    """Return the share of input in the step time."""
    if host.summary.input_percent is None:
        return unknown(why_unknown(host.breakdown, "input"))
    return Measurement(host.summary.input_percent, host.over(host.summary))


def share(host: JudgedHost, metric: Metric) -> Measurement:
    """Return the share of the category with this name in the step time."""
    category = metric.name
    if category in host.breakdown.unknown:
        return unknown(why_unknown(host.breakdown, category))
    return Measurement(host.summary.percent[category], host.over(host.summary))


def device_busy(host: JudgedHost, _: Metric) -> Measurement:
    """Return the share of the step time in which the least busy device runs work."""
    idle = host.host["idle"]
    if lacking := why_devices_unknown(host.breakdown):
        return unknown(lacking)
    if not idle.devices:
        return unknown(NO_DEVICE)
    if host.breakdown.attribution == "tensorflow":
        return unknown(
            "steps of attribution tensorflow are not time windows, so device time per step is unknown: use corrected"
        )
    if any(not device.counted_window_ps for device in idle.devices):
        return unknown("the time of a device could not be split by averaged steps")
    # A device with recorded work took part, so it counts as 0% without work in the steps.
    worst = min(idle.devices, key=lambda device: device.works_percent)
    listed, recorded = len(idle.listed), len(idle.devices)
    omitted = f"; omitted: {listed - recorded} of {listed} devices, without recorded work" if recorded < listed else ""
    of_several = f", the least busy of {recorded} devices" if recorded > 1 else ""
    waiting = 100.0 - worst.percent() - worst.works_percent if host.breakdown.on_tpu else 0.0
    not_counted = f"; excludes {format_percent(waiting)}% of the step in which it waits for data" * bool(waiting)
    why = f"{device_label(worst.device)}{of_several}, {host.over(host.summary)}{not_counted}{omitted}"
    return Measurement(worst.works_percent, why)


def memory(host: JudgedHost, _: Metric) -> Measurement:
    """Return the highest peak of an allocator."""
    memory = host.host["memory"]
    if not memory.allocators:
        return unknown("the profile has no allocator events, so memory is unknown (tfperf analyze -s memory)")
    fullest = fullest_allocator(host)
    if fullest is None:
        return unknown("the profile has no device allocator events, so device memory is unknown")
    silent, odd = memory.malformed_events, sum(allocator.contradictions for allocator in memory.allocators)
    gaps = (
        f"the bytes in use are unknown at {counted(silent, 'allocator event')}" if silent else "",
        f"events are missing: {counted(odd, 'allocator event')} inconsistent with the previous event" if odd else "",
    )
    gap = next((f"{why}; the peak may be higher" for why in gaps if why), "")
    part = ", which records only its own allocations" if fullest.place == "host" else ""
    why = f"in {fullest.name}{part}; in the whole capture, at {format_ms(fullest.peak_ms)} ms"
    return Measurement(float(fullest.peak_bytes), why, gap)


def fullest_allocator(host: JudgedHost) -> Allocator | None:
    """Return the allocator with the highest peak: of a device, or of the host if there is no device."""
    allocators: tuple[Allocator, ...] = host.host["memory"].allocators
    of_devices = [allocator for allocator in allocators if allocator.place in ("device", "other")]
    candidates = of_devices if of_devices or host.breakdown.has_device else allocators
    return max(candidates, key=lambda allocator: allocator.peak_bytes, default=None)


def latency(host: JudgedHost, metric: Metric) -> Measurement:
    """Return the percentile of the latency of the slowest model or function; every one needs enough requests."""
    found = host.host["requests"].requests
    found = tuple(each for each in found if each.is_inference) or found
    if not found:
        return unknown("the profile has no requests: docs/requests.md lists the events that are requests")
    if lacking := why_devices_unknown(host.breakdown):
        return unknown(lacking)
    percent = int(metric.name.removeprefix("latency_p"))
    times = {each.name: percentile_ms(each.latency_ps, percent) for each in found}
    few = next((each for each in found if times[each.name] is None), None)
    if few is not None:
        count = few.counted(len(few.latency_ps))
        return unknown(f"p{percent} needs {needed(percent)} requests, but the profile measures {count}")
    slowest = max(found, key=lambda each: times[each.name] or 0.0)
    omitted = f"; omitted: {slowest.compiling} compiling" if slowest.compiling else ""
    of_several = f", the slowest of {len(found)}" if len(found) > 1 else ""
    why = f"of {slowest.counted(len(slowest.latency_ps))}{of_several}{omitted}"
    return Measurement(times[slowest.name], why)


def retraces(host: JudgedHost, _: Metric) -> Measurement:
    """Return the number of retracing calls."""
    functions: tuple[FunctionStats, ...] = host.host["functions"].functions
    if not functions:
        return unknown("the profile has no tf.function calls, so tracing is unknown")
    odd = sum(function.unknown_count for function in functions)
    if odd:
        return unknown(f"the profile does not show whether {counted(odd, 'tf.function call')} traced")
    counts = [retraces_of(function) for function in functions]
    known = [count for count in counts if count is not None]
    silent = len(counts) - len(known)
    which = f"{counted(silent, 'traced function')} {'was' if silent == 1 else 'were'}"
    gap = f"the profile does not show whether {which} traced before" if silent else ""
    calls = sum(function.call_count for function in functions)
    return Measurement(float(sum(known)), f"of {counted(calls, 'tf.function call')} in the whole capture", gap)


def retraces_of(function: FunctionStats) -> int | None:
    """Return a function's retracing calls; None if one may be the first call. Functions of one name count as one."""
    traced = function.calls.get("traced", 0)
    if not traced:
        return 0
    if function.tracing_count <= 0:
        return None
    return traced if function.tracing_count > traced else traced - 1


def input_cost(host: JudgedHost, _: Metric) -> Measurement:
    """Return the lower bound of the input cost: a limit is breached only if even that exceeds it."""
    diagnosis: Diagnosis = host.results["diagnosis"]
    cost = diagnosis.input_cost_percent
    if cost is None:
        return unknown(diagnosis.unjudged.get("input_wait", "the profile does not show the cost of input"))
    wide = f"the low end of {format_percent(cost.low)} to {format_percent(cost.high)}%, " * (cost.low != cost.high)
    return Measurement(cost.low, f"{wide}{host.over(diagnosis.summary)}", host=diagnosis.host)


def cause(host: JudgedHost, metric: Metric) -> Measurement:
    """Return whether the diagnosis reports a cause; with a gap if it was not evaluated."""
    diagnosis: Diagnosis = host.results["diagnosis"]
    is_named, gap = float(bool(diagnosis.named(metric.cause))), diagnosis.unjudged.get(metric.cause, "")
    return Measurement(is_named, host.over(diagnosis.summary), gap, diagnosis.host)


def cause_cost(host: JudgedHost, metric: Metric) -> Measurement:
    """Return the upper bound of a cause's cost; 0 if it was evaluated and not reported."""
    diagnosis: Diagnosis = host.results["diagnosis"]
    code = metric.cause
    causes, gap = diagnosis.named(code), diagnosis.unjudged.get(code, "")
    costs = [cause.cost_percent for cause in causes if cause.cost_percent is not None]
    if len(costs) < len(causes):
        gap = f"the diagnosis reports {code}, but its share of the step is unknown: use --fail-on {code}"
    low, high = sum(cost.low for cost in costs), sum(cost.high for cost in costs)
    how = f"the high end of {format_percent(low)} to {format_percent(high)}%, " if low != high else ""
    how = how if causes else f"not reported: it takes less than {LEAST_PERCENT:.0f}% of the step or the wall time, "
    return Measurement(high, f"{how}{host.over(diagnosis.summary)}", gap, diagnosis.host)


def straggler_loss(together: JudgedHost, _: Metric) -> Measurement:
    """Return the step time lost by waiting for the last host; `together` is all hosts."""
    hosts: Hosts = together.results["hosts"]
    if not hosts.is_known:
        return unknown(hosts.why_unknown)
    found = hosts.straggler
    if found is None or found.is_outside_averages:
        return Measurement(
            0.0, f"hosts wait less than {LEAST_LOSS_MS:.0f} ms or {LEAST_LOSS_PERCENT:.0f}% for each other"
        )
    return Measurement(found.loss_percent, late_text(found, "")[0], host=found.host)


_LONGEST_LABEL = 120
_KERNEL_TABLES = ("kernels", "kernels_by_name")


def measure_rows(limit: Limit, data: Data) -> Measurement:
    """Measure a limit on columns of its table."""
    metric = limit.metric
    rows = len(data[metric.name])
    surely, possibly = np.ones(rows, np.bool_), np.ones(rows, np.bool_)
    for condition in metric.conditions:
        true, is_known = _matches(metric.table, condition, data[condition.column])
        surely &= true & is_known
        possibly &= true | ~is_known
    perhaps = possibly & ~surely
    is_upper = limit.relation.startswith("<")
    if metric.function == "count":
        gap, why = _undecided(perhaps), f"of {counted(len(surely), 'row')}"
        return Measurement(float(surely.sum()), why, gap) if is_upper or not gap else unknown(gap)
    values = numbers(data[metric.name])
    if metric.function in ("", "max" if is_upper else "min"):
        return _worst(limit, data, values, surely, perhaps)
    return _of_all(limit, values, surely, perhaps)


def numbers(values: Sequence[Any]) -> Float64s:
    """Return cells as floats, with NaN for unknown."""

    def number(value: Any) -> float:
        try:
            return math.nan if isinstance(value, (str, bool, np.bool_)) else float(value)
        except (OverflowError, TypeError, ValueError):
            return math.nan

    cells = np.array([number(value) for value in values], np.float64)
    return np.where(np.isfinite(cells), cells, np.nan)


def _matches(table: str, condition: Condition, cells: Sequence[Any]) -> tuple[Bools, Bools]:
    column = column_of(table, condition.column)
    value = condition.value
    if isinstance(value, float):
        cell_values = numbers(cells)
        return _compared(cell_values, condition.relation, value), ~np.isnan(cell_values)
    if column is not None and column.dtype is bool:
        same = np.array([bool(cell) == (value == "true") for cell in cells], np.bool_)
        return same ^ (condition.relation == "!="), np.array([cell is not None for cell in cells], np.bool_)
    texts = ["" if cell is None else str(cell) for cell in cells]
    is_search = "~" in condition.relation
    same = pattern(value).found_in(texts) if is_search else np.array([text == value for text in texts], np.bool_)
    return same ^ condition.relation.startswith("!"), np.ones(len(texts), np.bool_)


def _compared(cells: Float64s, relation: str, value: float) -> Bools:
    compare = {"=": operator.eq, "!=": operator.ne, **RELATIONS}[relation]
    return np.asarray(compare(cells, value), np.bool_)


def _worst(limit: Limit, data: Data, values: Float64s, surely: Bools, perhaps: Bools) -> Measurement:
    is_known = ~np.isnan(values)
    rows = np.flatnonzero(surely & is_known)
    # A row with unknown selection does not matter if it passes.
    harmless = _compared(values, limit.relation, limit.bound)
    gap = _gap(limit, surely & ~is_known, perhaps & ~harmless)
    if not len(rows):
        gap = gap or _undecided(perhaps)
        return unknown(gap) if gap else _nothing(limit)
    worst = values[rows].argmax() if limit.relation.startswith("<") else values[rows].argmin()
    row = int(rows[worst])
    host = str(data["host"][row]) if "host" in data and column_of(limit.metric.table, "host") else ""
    key = limit_tables()[limit.metric.table].name_key
    name = data[key][row] if key in data else None
    why = f"row {row + 1}" if name is None or name == "" else f"{key} {brief(str(name), _LONGEST_LABEL)}"
    if len(rows) > 1:
        why += f", the worst of {len(rows):,} rows"
    return Measurement(float(values[row]), why, gap, host)


def _of_all(limit: Limit, values: Float64s, surely: Bools, perhaps: Bools) -> Measurement:
    is_known = ~np.isnan(values)
    known_values = values[surely & is_known]
    gap = _gap(limit, surely & ~is_known, perhaps)
    if not len(known_values):
        return unknown(gap) if gap else _nothing(limit)
    # More rows could only increase a sum of non-negative numbers, so a breach without them is final.
    is_least = limit.metric.function == "sum" and limit.relation.startswith("<") and bool((known_values >= 0).all())
    if gap and not is_least:
        return unknown(gap)
    value = _FUNCTIONS[limit.metric.function](known_values)
    return Measurement(value, f"over {counted(len(known_values), 'row')}", gap)


_FUNCTIONS: Mapping[str, Callable[[Float64s], float]] = {
    "sum": math.fsum,
    "mean": lambda values: math.fsum(values) / len(values),
    "median": median,
    "p95": lambda values: percentile(values, 0.95),
    "max": lambda values: float(values.max()),
    "min": lambda values: float(values.min()),
}


def _gap(limit: Limit, without_value: Bools, perhaps: Bools) -> str:
    count = int(without_value.sum())
    missing = f"{limit.metric.table}.{limit.metric.name} is unknown in {counted(count, 'row')}" if count else ""
    return "; ".join(part for part in (missing, _undecided(perhaps)) if part)


def _undecided(perhaps: Bools) -> str:
    count = int(perhaps.sum())
    return (
        f"it is unknown whether {counted(count, 'row')} {'matches' if count == 1 else 'match'} the conditions"
        if count
        else ""
    )


def _nothing(limit: Limit) -> Measurement:
    """Return the measurement if no row is selected."""
    table = limit.metric.table
    why = f"no row of {table} matches the conditions" if limit.metric.conditions else f"the table {table} has no rows"
    if table in _KERNEL_TABLES:
        why = "no such kernel ran" if limit.metric.conditions else "no kernel ran"
    if limit.or_none:
        return Measurement(None, why, is_none=True)
    return unknown(f"{why}; to accept that, append `or none` to the limit")


def metric_title(limit: Limit) -> str:
    """Return the metric as a title: `sum of kernels.total_us[kernel_name~nccl]`."""
    function, text = limit.metric.function, metric_text(limit.metric)
    return f"{function} of {text[len(function) + 1 : -1]}" if function else text
