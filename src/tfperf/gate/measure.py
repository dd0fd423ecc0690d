"""What a limit measures on one host, or on all: named figures, and columns of tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tfperf.analyzers.functions import FunctionStats
from tfperf.analyzers.memory import Allocator
from tfperf.analyzers.summary import Statistics
from tfperf.arrays import median
from tfperf.gate.catalogue import OVER_HOSTS, counts_all_steps, rests_on_steps
from tfperf.gate.counted import View
from tfperf.gate.figures import FIGURES
from tfperf.gate.measured import Measured, unknown
from tfperf.gate.model import Limit
from tfperf.gate.tables import measure_rows, numbers

_STAT_NAMES: Mapping[str, str] = {
    "mean": "average", "median": "median", "p95": "p95", "max": "maximum", "min": "minimum",
}  # fmt: skip
_NO_DEVICE = "no device recorded anything in this profile, so nothing is known about devices"


def measure(limit: Limit, view: View) -> Measured:
    """Return what a limit measures on a host."""
    metric = limit.metric
    if metric.table:
        return _column(limit, view)
    if FIGURES[metric.name].needs_steps and view.too_few_steps:
        return unknown(view.too_few_steps)
    if metric.name == "step_time":
        return _step_time(view, metric.function)
    found = _FIGURES[metric.name](view)
    # What is known in part is the least that it can be, which says nothing about a lower limit.
    return unknown(found.gap) if found.gap and limit.relation.startswith(">") else found


def measure_skew(views: Sequence[View]) -> Measured:
    """Return by how much the slowest host's step time is above the median of the hosts, in %."""
    if len(views) < 2:
        return unknown("there is one host only, and skew is between hosts")
    thin = next((view for view in views if view.too_few_steps), None)
    if thin is not None:
        return unknown(f"host {thin.name}: {thin.too_few_steps}")
    times = [_step_time(view, "").value or 0.0 for view in views]
    slowest, middle = max(times), median(numbers(times))
    name = views[times.index(slowest)].name
    if not middle:
        return unknown("half of the hosts have steps without length")
    why = f"its steps take {slowest:.6g} ms, the median of {len(views)} hosts is {middle:.6g} ms"
    return Measured(100.0 * (slowest / middle - 1.0), why, host=name)


def _column(limit: Limit, view: View) -> Measured:
    table, key = limit.metric.table, limit.metric.name
    if table in OVER_HOSTS:
        if len(view.trace.hosts) < 2:
            return unknown(f"there is one host only, and {table} compares hosts")
    elif rests_on_steps(table, key) and view.too_few_steps:
        return unknown(view.too_few_steps)
    if table == "pauses" and view.host.breakdown.steps.source != "none" and table not in view.tables:
        return measure_rows(limit, _no_rows(limit))
    if table not in view.tables:
        return unknown(f"this profile has no table {table} (tfperf query --schema PATH lists those that it has)")
    used = {key, *(condition.column for condition in limit.metric.conditions)}
    if view.is_narrowed and (stale := sorted(own for own in used if counts_all_steps(table, own))):
        return unknown(f"{table}.{stale[0]} counts steps too that are skipped or cut off, and cannot be told without")
    return measure_rows(limit, view.tables[table])


def _no_rows(limit: Limit) -> Mapping[str, Sequence[object]]:
    return {key: [] for key in (limit.metric.name, *(condition.column for condition in limit.metric.conditions))}


# --- figures ---


def _over_steps(view: View) -> str:
    found = view.summary
    kind = "" if found.kind == "step" else f"{found.kind} "
    return f"over {found.averaged_count:,} {kind}{'step' if found.averaged_count == 1 else 'steps'}"


def _step_time(view: View, function: str) -> Measured:
    times: Statistics | None = view.summary.step_time_ms
    if times is None:
        return unknown("no step has any length")
    return Measured(float(getattr(times, _STAT_NAMES[function or view.stat])), _over_steps(view))


def _input_bound(view: View) -> Measured:
    if view.summary.input_percent is None:
        return unknown(
            "the trace does not show where input comes from (no fetch from tf.data, no copy to a device), so its share "
            "is unknown, not 0; profile with host tracer level 2"
        )
    return Measured(view.summary.input_percent, _over_steps(view))


def _kernel_launch(view: View) -> Measured:
    return _share(view, "kernel_launch") if view.host.breakdown.has_device else unknown(_NO_DEVICE)


def _share(view: View, category: str) -> Measured:
    return Measured(view.summary.percent[category], _over_steps(view))


def _device_busy(view: View) -> Measured:
    idle = view.host.idle
    if not idle.devices:
        return unknown(_NO_DEVICE)
    if view.host.breakdown.attribution == "tensorflow":
        return unknown("the steps of attribution tensorflow are not those that device time is cut by; use corrected")
    if any(not own.counted_window_ps for own in idle.averaged):
        return unknown("the time of a device could not be cut by the steps that count")
    worst = max(idle.averaged, key=lambda own: own.percent())
    unused = len(idle.devices) - len(idle.averaged)
    left_out = f"; {unused} that did nothing in the steps are left out" if unused else ""
    of_several = f", the least busy of {len(idle.averaged)} devices" if len(idle.averaged) > 1 else ""
    why = f"{worst.device}{of_several}, {_over_steps(view)}{left_out}"
    busy = int(worst.busy_ps[worst.counted].sum())
    return Measured(100.0 * busy / worst.counted_window_ps, why)


def _memory(view: View) -> Measured:
    memory = view.host.memory
    if not memory.allocators:
        return unknown("no allocator noted anything, so nothing is known about memory (tfperf analyze -s memory)")
    fullest = fullest_allocator(view)
    if fullest is None:
        return unknown("no allocator of a device noted anything, so nothing is known about its memory")
    count = memory.malformed_events
    gap = f"{count:,} events of allocators do not say how much is in use, so the peak may be higher" if count else ""
    part = ", which notes only what it gives out itself" if fullest.place == "host" else ""
    why = f"in {fullest.name}{part}; in the whole capture, at {fullest.peak_ms:.6g} ms"
    return Measured(float(fullest.peak_bytes), why, gap)


def fullest_allocator(view: View) -> Allocator | None:
    """Return the allocator with the highest peak: of devices, or of the host in a job without any device."""
    found = view.host.memory.allocators
    of_devices = [own for own in found if own.place in ("device", "other")]
    if of_devices or view.host.breakdown.has_device:
        return max(of_devices, key=lambda own: own.peak_bytes, default=None)
    return max(found, key=lambda own: own.peak_bytes, default=None)


def _retraces(view: View) -> Measured:
    functions = view.host.functions.functions
    if not functions:
        return unknown("no call of a tf.function is in the trace, so nothing is known about tracing")
    counts = [retraces_of(own) for own in functions]
    known = [count for count in counts if count is not None]
    silent = len(counts) - len(known)
    gap = f"of {silent:,} traced functions the profile does not tell whether they were traced before" if silent else ""
    calls = sum(own.call_count for own in functions)
    return Measured(float(sum(known)), f"of {calls:,} calls of tf.functions in the whole capture", gap)


def retraces_of(function: FunctionStats) -> int | None:
    """Return the calls in the capture that traced a function again; None if it is not told whether one was the first.

    Functions of one name count as one: where each call makes a new one, all but the first call trace again.
    """
    traced = function.calls.get("traced", 0)
    if not traced:
        return 0
    if function.tracing_count <= 0:
        return None
    return traced if function.tracing_count > traced else traced - 1


_FIGURES: Mapping[str, Callable[[View], Measured]] = {
    "input_bound": _input_bound,
    "kernel_launch": _kernel_launch,
    "all_others": lambda view: _share(view, "all_others"),
    "device_busy": _device_busy,
    "memory": _memory,
    "retraces": _retraces,
}
