"""Where one training (or evaluation) step ends and the next starts, how that was found, and how sure it is.

Rules are tried in a fixed order and the first that yields steps wins:

1. the step line of a TPU;
2. markers that the program set (`step_num`), or the event name given with `--step-marker`; groups stored in the file;
3. calls of the tf.function that takes most of the time, together with the fetches from tf.data;
4. executor runs (`FunctionRun`) that do not belong to tf.data;
5. the cadence of fetches from tf.data;
6. repeated XLA modules on a device.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from tfperf.arrays import Int64s, median
from tfperf.trace import step_calls, step_markers
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.steps import END_ESTIMATED, SLOW_FIRST, Confidence, Pause, Steps, no_steps

_LOWER: dict[Confidence, Confidence] = {"high": "medium", "medium": "low", "low": "low", "none": "none"}
_RULES = (
    step_markers.from_tpu,
    step_markers.from_markers,
    step_markers.from_groups,
    step_calls.from_calls,
    step_calls.from_function_runs,
    step_calls.from_fetches,
    step_markers.from_modules,
)


def find_steps(trace: HostTrace, marker: str | None = None) -> Steps:
    """Find the steps of a host. `marker` (an event name, `*` as wildcard) overrides the rules."""
    if marker is not None:
        steps = step_markers.named(trace, marker)
        return close_windows(trace, steps) if steps else no_steps(f"no event on a host thread is named {marker!r}")
    for rule in _RULES:
        steps = rule(trace)
        if steps is not None and len(steps):
            return close_windows(trace, steps)
    return no_steps(
        "the trace contains no step marker, no repeated tf.function call, no tf.data fetch and no device step"
    )


def close_windows(trace: HostTrace, steps: Steps) -> Steps:
    """Return the steps with windows that run from start to start, except around pauses and changes of kind."""
    start, work_end = steps.start_ps, np.maximum(steps.end_ps, steps.start_ps)
    with_device = np.maximum(work_end, _device_end(trace, start))
    end = np.concatenate((start[1:], work_end[-1:] if steps.end_known else with_device[-1:]))
    gap = np.maximum(start[1:] - work_end[:-1], 0)
    longest_gap = max(5 * median(gap), median(work_end - start)) if len(gap) else 0.0
    changes = np.array([a != b for a, b in zip(steps.kinds, steps.kinds[1:], strict=False)], np.bool_)
    cut = np.flatnonzero((gap > longest_gap) | changes)
    end[cut] = np.clip(with_device[cut], work_end[cut], np.maximum(start[cut + 1], work_end[cut]))
    end[cut] = np.minimum(end[cut], start[cut + 1])
    pauses = tuple(Pause(int(end[i]), int(start[i + 1]), steps.names[i]) for i in cut.tolist() if start[i + 1] > end[i])
    closed = replace(steps, end_ps=end, pauses=pauses)
    closed = replace(closed, flags=_late_flags(closed))
    counted = closed.duration_ps[closed.averaged].astype(np.float64)
    why = ""
    if len(counted) < 3:
        why = "fewer than three complete steps"
    elif float(counted.std()) > float(counted.mean()):
        why = "step times vary a lot (standard deviation above their mean)"
    notes = (*closed.notes, f"confidence lowered: {why}")
    return replace(closed, confidence=_LOWER[closed.confidence], notes=notes) if why else closed


def _device_end(trace: HostTrace, start: Int64s) -> Int64s:
    """Return, per step, the latest end of device events that start before the next step does (0: none)."""
    lines = [line for plane in trace.devices for line in trace.device_lines(plane) if line.stop > line.start]
    if not lines:
        return np.zeros(len(start), np.int64)
    starts = np.concatenate([trace.start_ps[line.start : line.stop] for line in lines])
    ends = np.concatenate([trace.end_ps[line.start : line.stop] for line in lines])
    order = np.argsort(starts, kind="stable")
    latest = np.maximum.accumulate(ends[order])
    until = np.searchsorted(starts[order], np.concatenate((start[1:], [np.iinfo(np.int64).max]))) - 1
    return np.where(until >= 0, latest[np.maximum(until, 0)], 0)


def _late_flags(steps: Steps) -> tuple[str, ...]:
    """Add the flags that only windows show: an estimated last end, a slow first step."""
    flags, duration = list(steps.flags), steps.duration_ps
    if not steps.end_known and len(flags) > 1 and not flags[-1]:
        flags[-1] = END_ESTIMATED
    same = [i for i, kind in enumerate(steps.kinds) if kind == steps.kinds[0]]
    plain = [i for i in same[1:] if not flags[i]]
    if not flags[0] and len(plain) >= 3 and duration[0] > 3 * median(duration[plain]):
        flags[0] = SLOW_FIRST
    return tuple(flags)
