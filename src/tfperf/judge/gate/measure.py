"""What a limit measures on a host, or on all of them together: named figures, and columns of tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tfperf.analysis.registry import find_section, find_table
from tfperf.base.arrays import median
from tfperf.base.errors import TfperfError
from tfperf.base.units import counted, format_ms, format_percent
from tfperf.judge.gate.grammar import limit_tables
from tfperf.judge.gate.judged_host import JudgedHost, unjudged_steps
from tfperf.judge.gate.limits import CAUSE, FIGURES, Limit, Measurement, Metric, unknown
from tfperf.judge.gate.rests_on import rests_on_steps
from tfperf.judge.gate.table_rows import measure_rows, numbers
from tfperf.sections.diagnosis.case import LEAST_PERCENT
from tfperf.sections.hosts import late_text
from tfperf.sections.hosts.analysis import LEAST_LOSS_MS, LEAST_LOSS_PERCENT
from tfperf.sections.overview.summary import Statistics
from tfperf.sections.wall import wall_step_ms
from tfperf.trace.steps.breakdown import NO_DEVICE, why_devices_unknown, why_unknown
from tfperf.trace.steps.steps import step_word

if TYPE_CHECKING:
    from tfperf.sections.diagnosis.cause import Diagnosis
    from tfperf.sections.functions.analysis import FunctionStats
    from tfperf.sections.hosts.analysis import Hosts
    from tfperf.sections.memory.analysis import Allocator
    from tfperf.sections.wall.analysis import Wall

_SKEW = Metric("skew")
_STATISTICS = {"mean": "average", "median": "median", "p95": "p95", "max": "maximum", "min": "minimum"}


def measure(limit: Limit, host: JudgedHost) -> Measurement:
    """Return what a limit measures on a host."""
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
        return _with_more_causes(measurement, host) if section == "diagnosis" else measurement
    if rests_on_steps(metric) and not FIGURES[metric.name].over_hosts and host.too_few_steps:
        return unknown(host.too_few_steps)
    if metric.name == "step_time":
        return _step_time(host, metric.function)
    measurement = _OF_CAUSES[metric.name](host, metric.cause) if metric.cause else _FIGURES[metric.name](host)
    # A part of the value is the smallest that is possible, which says nothing about a lower limit.
    return unknown(measurement.gap) if measurement.gap and limit.relation.startswith(">") else measurement


def measure_skew(hosts: Sequence[JudgedHost]) -> Measurement:
    """Return by how much the slowest host's step time is above the median of the hosts, in %."""
    if len(hosts) < 2:
        return unknown("there is only one host, and skew compares hosts")
    for host in hosts:
        problem = host.damage(_SKEW) or host.too_few_steps or host.why_doubtful(_SKEW)
        if problem:
            return unknown(host.named(problem))
    steps_of = [_step_time(host, "") for host in hosts]
    for host, measured in zip(hosts, steps_of, strict=True):
        if measured.value is None:
            return unknown(host.named(measured.reason))
    times = [measured.value or 0.0 for measured in steps_of]
    slowest, middle = max(times), median(numbers(times))
    if not middle:
        return unknown("the median step time of the hosts is 0")
    why = f"its steps take {format_ms(slowest)} ms, the median of {len(hosts)} hosts is {format_ms(middle)} ms"
    return Measurement(100.0 * (slowest / middle - 1.0), why, host=hosts[times.index(slowest)].name)


def measure_together(limit: Limit, hosts: Sequence[JudgedHost], together: JudgedHost) -> Measurement:
    """Return what a limit measures on all hosts together, each of which must have enough steps."""
    thin = next((host for host in hosts if host.too_few_steps), None)
    return measure(limit, together) if thin is None else unknown(thin.named(thin.too_few_steps))


def _with_more_causes(measured: Measurement, host: JudgedHost) -> Measurement:
    """Return what was measured of causes, with a gap if events are missing: there may be more causes then."""
    gaps = [measured.gap, *(f"{flaw.text}: {flaw.fix}" for flaw in host.breakdown.missing)]
    gap = next(filter(None, gaps), "")
    return replace(measured, gap=gap, is_none=measured.is_none and not gap)


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


def why_step_time_unknown(host: JudgedHost) -> str:
    """Say why the missing events of devices leave the step time unknown: only they show where steps end."""
    steps = host.breakdown.steps
    return "" if steps.source == "markers" and steps.end_known else why_devices_unknown(host.breakdown)


def _step_time(host: JudgedHost, function: str) -> Measurement:
    if lacking := why_step_time_unknown(host):
        return unknown(lacking)
    times: Statistics | None = host.summary.step_time_ms
    if times is None:
        return unknown("no step has a duration")
    statistic = function or host.stat
    others = f"; {unjudged_steps(host.other_kinds)}" if host.other_kinds else ""
    return Measurement(float(getattr(times, _STATISTICS[statistic])), f"{host.statistic_of(statistic)}{others}")


def _wall_step_time(host: JudgedHost) -> Measurement:
    if lacking := why_step_time_unknown(host):
        return unknown(lacking)
    wall: Wall = host.host["wall"]
    step_ms = wall_step_ms(wall)
    if step_ms is None:
        return unknown("the profile does not show the wall time of a step")
    apart = ", without steps of other kinds" if wall.evaluation_ps else ""
    return Measurement(step_ms, f"from the first to the last of {counted(wall.count, step_word(wall.kind))}{apart}")


def _input_bound(host: JudgedHost) -> Measurement:
    if host.summary.input_percent is None:
        return unknown(why_unknown(host.breakdown, "input"))
    return Measurement(host.summary.input_percent, host.over(host.summary))


def _share(host: JudgedHost, category: str) -> Measurement:
    """Return the share of a category in the step time."""
    if category in host.breakdown.unknown:
        return unknown(why_unknown(host.breakdown, category))
    return Measurement(host.summary.percent[category], host.over(host.summary))


def _device_busy(host: JudgedHost) -> Measurement:
    idle = host.host["idle"]
    if lacking := why_devices_unknown(host.breakdown):
        return unknown(lacking)
    if not idle.devices:
        return unknown(NO_DEVICE)
    if host.breakdown.attribution == "tensorflow":
        return unknown(
            "steps of attribution tensorflow are not windows in time, which device time needs: use corrected"
        )
    if any(not device.counted_window_ps for device in idle.devices):
        return unknown("the time of a device could not be cut by the steps that count")
    # A device that recorded work took part, so it counts with 0 % if none of it is in the steps.
    worst = min(idle.devices, key=lambda device: device.works_percent)
    listed, recorded = len(idle.listed), len(idle.devices)
    omitted = f"; omitted: {listed - recorded} of {listed} that recorded no work" if recorded < listed else ""
    of_several = f", the least busy of {recorded} devices" if recorded > 1 else ""
    waiting = 100.0 - worst.percent() - worst.works_percent if host.breakdown.on_tpu else 0.0
    not_counted = f"; it waits for data {format_percent(waiting)}% of the step, which does not count" * bool(waiting)
    why = f"{worst.device}{of_several}, {host.over(host.summary)}{not_counted}{omitted}"
    return Measurement(worst.works_percent, why)


def _memory(host: JudgedHost) -> Measurement:
    memory = host.host["memory"]
    if not memory.allocators:
        return unknown("no allocator recorded anything, so nothing is known about memory (tfperf analyze -s memory)")
    fullest = fullest_allocator(host)
    if fullest is None:
        return unknown("no allocator of a device recorded anything, so nothing is known about its memory")
    silent, odd = memory.malformed_events, sum(allocator.contradictions for allocator in memory.allocators)
    gaps = (
        f"how much is in use is unknown at {counted(silent, 'event')} of allocators" if silent else "",
        f"{counted(odd, 'event')} of allocators contradict the one before, so some are missing" if odd else "",
    )
    gap = next((f"{why}; the peak may be higher" for why in gaps if why), "")
    part = ", which records only what it allocates itself" if fullest.place == "host" else ""
    why = f"in {fullest.name}{part}; in the whole capture, at {format_ms(fullest.peak_ms)} ms"
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
    odd = sum(function.unknown_count for function in functions)
    if odd:
        return unknown(f"the profile does not say of {counted(odd, 'call')} of tf.functions whether they traced")
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


def _input_cost(host: JudgedHost) -> Measurement:
    """Return the least that input costs: a limit is breached only where even that is above it."""
    diagnosis: Diagnosis = host.results["diagnosis"]
    cost = diagnosis.input_cost_percent
    if cost is None:
        return unknown(diagnosis.unjudged.get("input_wait", "the trace does not show what input costs"))
    wide = f"the low end of {format_percent(cost.low)} to {format_percent(cost.high)}%, " * (cost.low != cost.high)
    return Measurement(cost.low, f"{wide}{host.over(diagnosis.summary)}", host=diagnosis.host)


def _cause(host: JudgedHost, code: str) -> Measurement:
    """Return whether the diagnosis names a cause; with a gap where it could not judge it."""
    diagnosis: Diagnosis = host.results["diagnosis"]
    is_named = float(bool(diagnosis.named(code)))
    return Measurement(is_named, host.over(diagnosis.summary), diagnosis.unjudged.get(code, ""), diagnosis.host)


def _cause_cost(host: JudgedHost, code: str) -> Measurement:
    """Return the most that a cause costs; nothing if the diagnosis could judge it and does not name it."""
    diagnosis: Diagnosis = host.results["diagnosis"]
    causes, gap = diagnosis.named(code), diagnosis.unjudged.get(code, "")
    costs = [cause.cost_percent for cause in causes if cause.cost_percent is not None]
    if len(costs) < len(causes):
        gap = f"the diagnosis names {code}, whose cost is no known share of the step: use --fail-on {code}"
    low, high = sum(cost.low for cost in costs), sum(cost.high for cost in costs)
    how = f"the high end of {format_percent(low)} to {format_percent(high)}%, " if low != high else ""
    how = how if causes else f"not named: it takes less than {LEAST_PERCENT:.0f}% of the step or the wall time, "
    return Measurement(high, f"{how}{host.over(diagnosis.summary)}", gap, diagnosis.host)


_OF_CAUSES: Mapping[str, Callable[[JudgedHost, str], Measurement]] = {CAUSE: _cause, "cause_cost": _cause_cost}


def _straggler_loss(together: JudgedHost) -> Measurement:
    """Return what steps lose because hosts wait for the last one; `together` is all of them."""
    hosts: Hosts = together.results["hosts"]
    if not hosts.is_known:
        return unknown(hosts.why_unknown)
    found = hosts.straggler
    if found is None or found.is_outside_averages:
        return Measurement(
            0.0, f"hosts wait for each other less than {LEAST_LOSS_MS:.0f} ms or {LEAST_LOSS_PERCENT:.0f}%"
        )
    return Measurement(found.loss_percent, late_text(found, "")[0], host=found.host)


_FIGURES: Mapping[str, Callable[[JudgedHost], Measurement]] = {
    "input_bound": _input_bound,
    "wall_step_time": _wall_step_time,
    "kernel_launch": partial(_share, category="kernel_launch"),
    "all_others": partial(_share, category="all_others"),
    "device_busy": _device_busy,
    "memory": _memory,
    "retraces": _retraces,
    "input_cost": _input_cost,
    "straggler_loss": _straggler_loss,
}
