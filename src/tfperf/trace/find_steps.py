"""Steps: where one training (or evaluation) step ends and the next begins, how that was found, and how sure it is.

Rules are tried in a fixed order and the first that yields steps wins:

1. the step line of a TPU;
2. markers that the program set (`step_num`), or the event name given with `--step-marker`; groups stored in the file;
3. calls of the tf.function that takes most of the time, together with the fetches from tf.data;
4. executor runs (`FunctionRun`) that do not belong to tf.data;
5. the cadence of fetches from tf.data;
6. repeated XLA modules on a device.

A rule gives candidates (begin, end of the work, kind); `close_windows` makes windows of them that run from begin to
begin.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tfperf.arrays import Int64s, median
from tfperf.trace import step_calls, step_markers, step_stored
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.steps import END_ESTIMATED, SLOW_FIRST, Candidates, Confidence, Pause, Steps, no_steps

_LOWER: dict[Confidence, Confidence] = {"high": "medium", "medium": "low", "low": "low", "none": "none"}


def find_steps(trace: HostTrace, marker: str | None = None) -> Steps:
    """Find the steps of a host. `marker` (an event name, `*` as wildcard) overrides the rules."""
    if marker is not None:
        found = step_markers.named(trace, marker)
        return close_windows(trace, found) if found else no_steps(f"no event on a host thread is named {marker!r}")
    for rule in (
        step_stored.from_tpu, step_markers.from_markers, step_stored.from_groups, step_calls.from_calls,
        step_calls.from_function_runs, step_calls.from_fetches, step_stored.from_modules,
    ):  # fmt: skip
        found = rule(trace)
        if found is not None and len(found.start_ps):
            return close_windows(trace, found)
    return no_steps(
        "the trace holds no step marker, no repeated tf.function call, no tf.data fetch and no device step to infer "
        "steps from"
    )


def close_windows(trace: HostTrace, found: Candidates) -> Steps:
    """Turn candidates into windows that run from begin to begin, except around pauses and changes of kind."""
    begin, work_end = found.start_ps, np.maximum(found.end_ps, found.start_ps)
    own_end = np.maximum(work_end, _device_end(trace, begin))
    end = np.concatenate((begin[1:], work_end[-1:] if found.end_known else own_end[-1:]))
    gap = np.maximum(begin[1:] - work_end[:-1], 0)
    limit = max(5 * median(gap), median(work_end - begin)) if len(gap) else 0.0
    changes = np.array([a != b for a, b in zip(found.kinds, found.kinds[1:], strict=False)], np.bool_)
    cut = np.flatnonzero((gap > limit) | changes)
    end[cut] = np.clip(own_end[cut], work_end[cut], np.maximum(begin[cut + 1], work_end[cut]))
    end[cut] = np.minimum(end[cut], begin[cut + 1])
    pauses = tuple(Pause(int(end[i]), int(begin[i + 1]), found.names[i]) for i in cut.tolist() if begin[i + 1] > end[i])
    flags = _late_flags(found, end - begin)
    steps = Steps(
        found.source, found.confidence, found.explanation, begin, end, found.numbers, found.names, found.kinds, flags,
        found.batches, pauses,
    )  # fmt: skip
    return _lower_confidence(steps)


def _device_end(trace: HostTrace, begin: Int64s) -> Int64s:
    """Return, per step, the latest end of device events that begin before the next step does (0: none)."""
    lines = [line for plane in trace.devices for line in trace.device_lines(plane) if line.stop > line.start]
    if not lines:
        return np.zeros(len(begin), np.int64)
    starts = np.concatenate([trace.start_ps[line.start : line.stop] for line in lines])
    ends = np.concatenate([trace.end_ps[line.start : line.stop] for line in lines])
    order = np.argsort(starts, kind="stable")
    latest = np.maximum.accumulate(ends[order])
    until = np.searchsorted(starts[order], np.concatenate((begin[1:], [np.iinfo(np.int64).max]))) - 1
    return np.where(until >= 0, latest[np.maximum(until, 0)], 0)


def _late_flags(found: Candidates, duration: Int64s) -> tuple[str, ...]:
    """Add the flags that only windows show: an estimated last end, a slow first step."""
    flags = list(found.flags)
    if not found.end_known and len(flags) > 1 and not flags[-1]:
        flags[-1] = END_ESTIMATED
    same = [i for i, kind in enumerate(found.kinds) if kind == found.kinds[0]]
    plain = [i for i in same[1:] if not flags[i]]
    if not flags[0] and len(plain) >= 3 and duration[0] > 3 * median(duration[plain]):
        flags[0] = SLOW_FIRST
    return tuple(flags)


def _lower_confidence(steps: Steps) -> Steps:
    """Lower the confidence by one level where there are few steps or they vary wildly."""
    counted = steps.duration_ps[steps.averaged].astype(np.float64)
    few = len(counted) < 3
    wild = len(counted) > 1 and float(counted.std()) > float(counted.mean())
    if not (few or wild):
        return steps
    why = "fewer than three complete steps" if few else "step times vary by more than their mean"
    return replace(steps, confidence=_LOWER[steps.confidence], notes=(*steps.notes, f"confidence lowered: {why}"))
