"""Step detection: by markers and stored groups, else by the rules that follow."""

from __future__ import annotations

import fnmatch
import re

import numpy as np
from msgspec.structs import replace

from tfperf.base.arrays import Int64s, covers, distinct, lookup, median, overlap, span_at, union
from tfperf.base.units import counted
from tfperf.formats.wire.event_columns import MODULE_LINE, Line
from tfperf.trace.event_names import concrete_function, is_gradient, is_jitted_call, mask
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.nesting import outermost
from tfperf.trace.steps import step_calls
from tfperf.trace.steps.requests import from_requests
from tfperf.trace.steps.step_calls import FunctionCalls, find_calls, find_fetches, retrace_flags
from tfperf.trace.steps.steps import (
    COLLECTION,
    END_ESTIMATED,
    PARTIAL,
    RETRACE,
    SLOW_FIRST,
    UNLABELLED,
    Confidence,
    How,
    Pause,
    Steps,
    label_kinds,
    no_steps,
    plain_steps,
    step_word,
)
from tfperf.trace.steps.tpu_steps import step_line
from tfperf.trace.steps.turns import loop_of, other_loops

_FEWEST_EVALUATIONS = 2
"""A single call of another function between steps may have any purpose."""
_MOST_RARE, _STEPS_OF_RARE = 2, 10
"""Maximum number of rare steps with a garbage collection, and minimum number of steps per rare one."""


def from_markers(trace: HostTrace) -> Steps | None:
    """Return steps from host events with `step_num`, the outermost per thread."""
    marked = trace.stat("step_num").event.astype(np.int64)
    rows, others = _of_first_loop(
        trace, outermost(trace, marked[trace.on_host[marked] & (trace.duration_ps[marked] > 0)])
    )
    if not len(rows):
        return None
    numbers = trace.number_at("step_num", rows, -1)
    graph_types = trace.stat("graph_type").texts
    labels = [
        (graph_types[index] if index >= 0 else "") or trace.names[name]
        for index, name in zip(trace.number_at("graph_type", rows, -1).tolist(), trace.name[rows].tolist(), strict=True)
    ]
    kinds = [step_word(label) for label in sorted(set(labels))[:3]]
    explanation = f"the program marked {counted(len(rows), kinds[0] if len(kinds) == 1 else 'step')}"
    explanation += f" ({', '.join(kinds)})" if len(kinds) > 1 else ""
    calls = find_calls(trace)
    if others:
        calls = calls.only(np.isin(trace.line_of[calls.row], trace.line_of[rows]))
    steps = _marked(trace, calls, rows, labels, numbers, explanation)
    if steps.on_cores:  # JAX marks all steps alike, and runs no TensorFlow function between them
        return replace(steps, other_loops=others)
    steps = _with_unmarked_evaluation(trace, calls, steps)
    return replace(_with_partial_ends(calls, steps), other_loops=others)


def _of_first_loop(trace: HostTrace, rows: Int64s) -> tuple[Int64s, tuple[str, ...]]:
    """Return the marks of the loop with the longest total time, and a sentence for each loop of another thread."""
    thread = trace.line_of[rows].astype(np.int64)
    if not len(rows) or (thread == thread[0]).all():
        return rows, ()
    loop = loop_of(trace, rows, thread, trace.name[rows])
    return rows[loop == 0], other_loops(trace, rows, loop)


def named(trace: HostTrace, pattern: str) -> Steps | None:
    """Return steps from host events that match the pattern, the outermost per thread; else from TPU program runs."""
    accepts = re.compile(fnmatch.translate(pattern)).match if "*" in pattern else pattern.__eq__
    rows = trace.host_events(mask(trace.names, accepts))
    if not len(rows):
        return from_runs(trace, pattern)
    rows, others = _of_first_loop(trace, outermost(trace, rows[trace.duration_ps[rows] > 0]))
    if not len(rows):
        return None
    labels = [trace.names[name] for name in trace.name[rows].tolist()]
    numbers = np.arange(len(rows), dtype=np.int64)
    explanation = f"{counted(len(rows), 'event')} named {pattern!r} (--step-marker)"
    steps = _marked(trace, find_calls(trace), rows, labels, numbers, explanation)
    return replace(steps, other_loops=others)


def _marked(
    trace: HostTrace, calls: FunctionCalls, rows: Int64s, labels: list[str], numbers: Int64s, explanation: str
) -> Steps:
    span = trace.start_ps[rows], trace.end_ps[rows]
    names = tuple(f"{label} {number}" for label, number in zip(labels, numbers.tolist(), strict=True))
    kinds = label_kinds(trace, *span, labels)
    steps = plain_steps(("markers", "high", explanation), span, numbers, names, kinds)
    if not _is_jax(trace):
        # A mark ends when work is handed over; the end on a TPU is known only if it recorded its steps.
        return replace(steps, flags=retrace_flags(calls, *span), end_known=trace.device_kind != "tpu")
    if trace.device_kind == "tpu":
        from tfperf.trace.steps.run_steps import with_runs

        timed = with_runs(trace, steps)
        if timed is not None:
            return timed
    from tfperf.trace.jax import with_work

    return with_work(trace, steps)


def _is_jax(trace: HostTrace) -> bool:
    return any(map(is_jitted_call, trace.names))


def from_jitted_calls(trace: HostTrace) -> Steps | None:
    """Return the repetitions in the calls of JAX's jitted functions."""
    if not _is_jax(trace):
        return None
    from tfperf.trace.jax import from_jitted_calls

    return from_jitted_calls(trace)


def from_eager_ops(trace: HostTrace) -> Steps | None:
    """Return the turns of a loop of eager ops."""
    from tfperf.trace.steps.eager import from_eager_ops  # most programs call functions

    return from_eager_ops(trace)


def _with_partial_ends(calls: FunctionCalls, steps: Steps) -> Steps:
    """Add calls before the first and after the last marker: steps whose marker the capture cut off."""
    start, end = calls.start[calls.is_dominant], calls.end[calls.is_dominant]
    before, after = np.flatnonzero(end <= steps.start_ps[0]), np.flatnonzero(start >= steps.end_ps[-1])
    if len(steps) < 3 or not 0 < len(before) + len(after) <= 2:
        return steps
    first = steps.numbers[:1] - np.arange(len(before), 0, -1)
    last = steps.numbers[-1:] + 1 + np.arange(len(after))
    label = steps.names[0].rsplit(" ", 1)[0]
    added = len(before) + len(after)
    return replace(
        steps,
        explanation=f"{steps.explanation}, and {added} more cut off by the capture",
        start_ps=np.concatenate((start[before], steps.start_ps, start[after])),
        end_ps=np.concatenate((end[before], steps.end_ps, end[after])),
        numbers=np.concatenate((first, steps.numbers, last)),
        names=(*(f"{label} {n}" for n in first.tolist()), *steps.names, *(f"{label} {n}" for n in last.tolist())),
        kinds=(steps.kinds[0],) * len(before) + steps.kinds + (steps.kinds[-1],) * len(after),
        flags=(PARTIAL,) * len(before) + steps.flags + (PARTIAL,) * len(after),
        batches=np.ones(len(before) + len(steps) + len(after), np.int64),
    )


def _with_unmarked_evaluation(trace: HostTrace, calls: FunctionCalls, steps: Steps) -> Steps:
    """Add evaluation between training steps: Keras marks only training, and calls another function for each batch.

    Such a call is of a concrete function that no marked step runs, and runs no gradient or optimizer op.
    """
    if set(steps.kinds) != {"train"} or not len(calls.start):
        return steps
    marked = union(steps.start_ps, steps.end_ps)
    concrete = [concrete_function(name) for name in trace.names]
    runs = trace.host_events(np.array([bool(name) for name in concrete], np.bool_))
    runs = runs[np.argsort(trace.start_ps[runs], kind="stable")]
    gradients = trace.host_events(mask(trace.names, is_gradient))
    trains = covers(marked, trace.start_ps[runs])
    of_training = distinct(trace.name[runs[trains]])
    call = span_at(calls.start, calls.end, trace.start_ps[runs])
    is_other = (call >= 0) & ~trains & (lookup(of_training, trace.name[runs]) < 0)
    chosen = distinct(call[is_other])
    chosen = chosen[~covers(marked, calls.start[chosen])]
    times = np.sort(trace.start_ps[gradients])
    start, end = calls.start[chosen], calls.end[chosen]
    chosen = chosen[np.searchsorted(times, end) == np.searchsorted(times, start)]
    if len(chosen) < _FEWEST_EVALUATIONS or not len(of_training):
        return steps
    start, end, number = calls.start[chosen], calls.end[chosen], np.arange(len(chosen), dtype=np.int64)
    order = np.argsort(np.concatenate((steps.start_ps, start)), kind="stable")
    added = replace(
        steps,
        explanation=f"{steps.explanation}, and {counted(len(chosen), 'call')} of another function between them",
        start_ps=np.concatenate((steps.start_ps, start)),
        end_ps=np.concatenate((steps.end_ps, end)),
        numbers=np.concatenate((steps.numbers, number)),
        names=(*steps.names, *(f"eval {n}" for n in number.tolist())),
        kinds=steps.kinds + ("eval",) * len(chosen),
        flags=(*steps.flags, *(RETRACE if traced else "" for traced in calls.traced[chosen].tolist())),
        batches=np.concatenate((steps.batches, np.ones(len(chosen), np.int64))),
    )
    return added.only(order)


def from_groups(trace: HostTrace) -> Steps | None:
    """Return the groups stored by the profiler (TensorFlow 2.2 to 2.4), if they have a step marker."""
    if not trace.has_groups:
        return None
    from tfperf.trace.steps.tensorflow_groups import group_spans

    spans = group_spans(trace, trace.number("group_id", -1))
    if not len(spans.group):
        return None
    order = np.argsort(spans.start, kind="stable")
    span, numbers = (spans.start[order], spans.end[order]), spans.group[order]
    stored = [spans.names.get(number, "") for number in numbers.tolist()]
    # Without the number at the end (a regular expression is slow on digits).
    bare = [name.rstrip("0123456789") for name in stored]
    labels = [
        name if label == name else label.removesuffix("-").removesuffix(" ")
        for name, label in zip(stored, bare, strict=True)
    ]
    kinds = label_kinds(trace, *span, [label or UNLABELLED for label in labels])
    names = tuple(
        f"{kind} {number}" if name.isdigit() or not name else name
        for kind, name, number in zip(kinds, stored, numbers, strict=True)
    )
    how: How = ("stored groups", "high", f"the profiler stored {counted(len(numbers), 'step')} in the file")
    return plain_steps(how, span, numbers, names, kinds)


def from_tpu(trace: HostTrace) -> Steps | None:
    """Return the step line of the first TPU core that has one."""
    if trace.device_kind != "tpu":
        return None
    lines = (step_line(trace, plane) for plane in trace.devices)
    line = next((each for each in lines if each is not None), None)
    if line is None:
        return None
    rows = np.arange(line.start, line.stop)
    return _of_line(trace, line, rows, ("device steps", "high", "the TPU recorded its steps"))


def from_runs(trace: HostTrace, pattern: str | None = None) -> Steps | None:
    """Return the repeated program runs on TPU chips, or those whose name matches the pattern."""
    if trace.device_kind != "tpu":
        return None
    from tfperf.trace.steps.run_steps import from_runs

    return from_runs(trace, pattern)


def from_modules(trace: HostTrace) -> Steps | None:
    """Return the repetitions of the XLA module with the longest total time on a GPU."""
    for line in trace.lines:
        if line.plane not in trace.devices or not line.name.startswith(MODULE_LINE) or line.stop - line.start < 2:
            continue
        name = trace.name[line.start : line.stop]
        total = np.bincount(name, weights=trace.duration_ps[line.start : line.stop].astype(np.float64))
        rows = np.flatnonzero(name == total.argmax()) + line.start
        module = trace.names[int(total.argmax())]
        if len(rows) >= 2:
            return _of_line(trace, line, rows, ("device modules", "low", f"{len(rows)} runs of XLA module {module}"))
    return None


def _of_line(trace: HostTrace, line: Line, rows: Int64s, how: How) -> Steps:
    texts = [trace.display_names[name] or trace.names[name] for name in trace.name[rows].tolist()]
    numbers = [
        int(text) if re.fullmatch(r"-?\d{1,19}", text, re.ASCII) and -(1 << 63) <= int(text) < 1 << 63 else row
        for row, text in enumerate(texts)
    ]
    shown = numbers if line.name == "Steps" else range(len(rows))
    span = trace.start_ps[rows], trace.end_ps[rows]
    names = tuple(f"{UNLABELLED} {number}" for number in shown)
    return plain_steps(how, span, np.array(numbers, np.int64), names, (UNLABELLED,) * len(rows))


_LOWER: dict[Confidence, Confidence] = {"high": "medium", "medium": "low", "low": "low", "none": "none"}
_RULES = (
    from_tpu,
    from_markers,
    from_groups,
    from_requests,
    from_runs,
    from_jitted_calls,
    step_calls.from_calls,
    step_calls.from_function_runs,
    step_calls.from_fetches,
    from_eager_ops,
    from_modules,
)


_CALLS_AND_FETCHES = (step_calls.from_calls, step_calls.from_function_runs, step_calls.from_fetches)
_FEW = 3
"""Fewer calls or fetches may be part of a loop of eager ops."""


def find_steps(trace: HostTrace, marker: str | None = None) -> Steps:
    """Return the steps of a host. `marker` (an event name, `*` as wildcard) overrides the rules."""
    if marker is not None:
        steps = named(trace, marker)
        if steps is None:
            or_run = " and no TPU program" if trace.device_kind == "tpu" else ""
            return no_steps(f"no host event{or_run} is named {marker!r}")
        return with_batches(trace, close_windows(trace, steps))
    for rule in _RULES:
        steps = rule(trace)
        if steps is not None and rule is from_requests and not len(steps):
            return steps
        if steps is not None and len(steps):
            if len(steps) < _FEW and rule in _CALLS_AND_FETCHES:
                turns = from_eager_ops(trace)
                if turns is not None and turns.duration_ps.sum() > steps.duration_ps.sum():
                    steps = turns
            return with_batches(trace, close_windows(trace, steps))
    return no_steps(
        "the profile has no step markers, no repeated calls of a tf.function or jitted function, no tf.data "
        "fetches and no device steps"
    )


def close_windows(trace: HostTrace, steps: Steps) -> Steps:
    """Return the steps with windows from start to start, except around pauses and changes of kind."""
    start, work_end = steps.start_ps, np.maximum(steps.end_ps, steps.start_ps)
    with_device = work_end if steps.on_cores else np.maximum(work_end, _device_end(trace, start))
    end = np.concatenate((start[1:], work_end[-1:] if steps.end_known else with_device[-1:]))
    gap = np.maximum(start[1:] - work_end[:-1], 0)
    longest_gap = max(5 * median(gap), median(work_end - start)) if len(gap) else 0.0
    changes = np.array([a != b for a, b in zip(steps.kinds, steps.kinds[1:], strict=False)], np.bool_)
    cut = np.flatnonzero((gap > longest_gap) | changes)
    end[cut] = np.clip(with_device[cut], work_end[cut], np.maximum(start[cut + 1], work_end[cut]))
    end[cut] = np.minimum(end[cut], start[cut + 1])
    pauses = tuple(Pause(int(end[i]), int(start[i + 1]), steps.names[i]) for i in cut.tolist() if start[i + 1] > end[i])
    is_cut = np.zeros(len(start), np.bool_)
    is_cut[cut], is_cut[-1:] = True, True
    on_cores = tuple(
        each._replace(end_ps=np.where(is_cut, each.end_ps, np.append(each.start_ps[1:], 0))) for each in steps.on_cores
    )
    closed = replace(steps, end_ps=end, pauses=pauses, on_cores=on_cores)
    closed = _with_collections(trace, replace(closed, flags=_late_flags(closed)))
    counted = closed.duration_ps[closed.headline].astype(np.float64)
    why = ""
    if len(counted) < 3:
        why = "fewer than three complete steps"
    elif float(counted.std()) > float(counted.mean()):
        why = "step times vary a lot (standard deviation above their mean)"
    notes = (*closed.notes, f"Lower confidence: {why}.")
    return replace(closed, confidence=_LOWER[closed.confidence], notes=notes) if why else closed


def with_batches(trace: HostTrace, steps: Steps) -> Steps:
    """Count the fetches of the most-used pipeline in each step, if the rule did not and steps fetch several."""
    if steps.batches.max(initial=1) > 1:
        return steps
    fetches = find_fetches(trace)
    step = steps.at(fetches.start)
    most = np.ones(len(steps), np.int64)
    for iterator in distinct(fetches.iterator).tolist():
        mine = step[(step >= 0) & (fetches.iterator == iterator)]
        most = np.maximum(most, np.bincount(mine, minlength=len(steps)))
    # A single fetch may be on the other side of a border; several in nearly every step are not.
    return replace(steps, batches=most) if median(most) >= 2 else steps


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
    flags, duration, plain = [*steps.flags], steps.duration_ps, steps.plain & steps.are(steps.kinds[0])
    if not steps.end_known and len(flags) > 1 and not flags[-1]:
        flags[-1], plain[-1] = END_ESTIMATED, False
    others = np.flatnonzero(plain)[1:]
    if plain[0] and len(others) >= 3 and duration[0] > 3 * median(duration[others]):
        flags[0] = SLOW_FIRST
    return tuple(flags)


def _with_collections(trace: HostTrace, steps: Steps) -> Steps:
    """Flag rare steps that consist of a garbage collection, because an average with them fits no step.

    Rare steps are at most one in ten and at most two, unless the distance of the two may be a period.
    """
    pauses = trace.python_activity.pauses
    if pauses is None or not len(pauses.start_ps):
        return steps
    counted = np.flatnonzero(steps.headline)
    duration = steps.duration_ps[counted]
    collected = overlap(union(pauses.start_ps, pauses.end_ps), steps.start_ps[counted], steps.end_ps[counted])
    rows = np.flatnonzero((2 * collected > duration) & (duration > 2 * median(duration)))
    has_period = len(rows) > 1 and max(rows[0], len(counted) - 1 - rows[-1]) < rows[-1] - rows[0]
    if not 0 < len(rows) <= min(_MOST_RARE, len(counted) // _STEPS_OF_RARE) or has_period:
        return steps
    flags = [*steps.flags]
    for row in counted[rows].tolist():
        flags[row] = COLLECTION
    return replace(steps, flags=tuple(flags))
