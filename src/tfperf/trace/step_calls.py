"""Steps inferred from what a program does over and over: tf.function calls and fetches from tf.data."""

from __future__ import annotations

import numpy as np

from tfperf.arrays import Int64s, distinct, median
from tfperf.trace.cycles import cycle_starts
from tfperf.trace.event_names import is_eager_call, mask
from tfperf.trace.function_calls import Calls, Fetches, find_calls, find_fetches, retraced_flags
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.nesting import nest
from tfperf.trace.step_kinds import label_kinds
from tfperf.trace.steps import PARTIAL, RETRACE, UNLABELLED, Candidates, Confidence


def from_calls(trace: HostTrace) -> Candidates | None:
    """Infer steps from tf.function calls and the fetches inside or between them."""
    calls, fetches = find_calls(trace), find_fetches(trace)
    if not len(calls):
        return None
    inside = _containing_call(calls, fetches)
    per_call = _batches_per_call(calls, fetches, inside)
    mine = calls.name == calls.dominant
    if mine.sum() <= 2 and per_call[mine].min() >= 4:
        return _loop_inside(trace, calls, fetches, inside)
    if median(per_call[mine]) >= 1:
        return _executions(trace, calls, per_call)
    return _sequence(trace, calls, fetches)


def _containing_call(calls: Calls, fetches: Fetches) -> Int64s:
    """Return, for each fetch, the call that it happens in, or -1."""
    index = np.searchsorted(calls.begin, fetches.begin, side="right") - 1
    return np.where((index >= 0) & (fetches.begin < calls.end[np.maximum(index, 0)]), index, -1)


def _batches_per_call(calls: Calls, fetches: Fetches, inside: Int64s) -> Int64s:
    """Count the fetches in each call, of the pipeline that was asked most (replicas have one pipeline each)."""
    most = np.zeros(len(calls), np.int64)
    for iterator in distinct(fetches.iterator).tolist():
        mine = inside[(fetches.iterator == iterator) & (inside >= 0)]
        most = np.maximum(most, np.bincount(mine, minlength=len(calls)))
    return most


def _candidates(
    trace: HostTrace,
    span: tuple[Int64s, Int64s],
    kinds: list[str],
    how: tuple[str, Confidence, str],
    *,
    flags: list[str] | None = None,
    batches: Int64s | None = None,
) -> Candidates:
    begin, end = span
    labelled = label_kinds(trace, begin, end, kinds)
    count = len(begin)
    return Candidates(
        *how, begin, end, labelled, tuple(f"{kind} {i}" for i, kind in enumerate(labelled)),
        np.arange(count, dtype=np.int64), tuple(flags or [""] * count),
        np.ones(count, np.int64) if batches is None else batches,
    )  # fmt: skip


def _executions(trace: HostTrace, calls: Calls, per_call: Int64s) -> Candidates:
    """Every call that fetches its own batches is one execution."""
    fetching = np.array([median(per_call[calls.name == name]) >= 1 for name in range(len(calls.names))], np.bool_)
    mine = np.flatnonzero(fetching[calls.name])
    names = [calls.names[name] for name in calls.name[mine].tolist()]
    batches = int(median(per_call[mine]))
    each = f", {batches} batches each" if batches > 1 else ", which fetch one batch each"
    how: tuple[str, Confidence, str] = (
        "tf.function calls", "high", f"{len(mine)} calls of {_listed(names)}{each}",
    )  # fmt: skip
    flags = [RETRACE if traced else "" for traced in calls.traced[mine].tolist()]
    span = calls.begin[mine], calls.end[mine]
    return _candidates(trace, span, names, how, flags=flags, batches=np.maximum(per_call[mine], 1))


def _loop_inside(trace: HostTrace, calls: Calls, fetches: Fetches, inside: Int64s) -> Candidates:
    """One long call loops over the data: a step runs from fetch to fetch, of the pipeline asked most."""
    mine = calls.name == calls.dominant
    in_loop = (inside >= 0) & mine[np.maximum(inside, 0)]
    ids, counts = np.unique(fetches.iterator[in_loop], return_counts=True)
    rows = np.flatnonzero(in_loop & (fetches.iterator == ids[counts.argmax()]))
    begin, call = fetches.begin[rows], inside[rows]
    last = np.concatenate((call[1:] != call[:-1], [True]))
    end = np.where(last, calls.end[call], np.concatenate((begin[1:], [0])))
    name = calls.names[calls.dominant]
    how: tuple[str, Confidence, str] = (
        "tf.data fetches inside a call", "medium", f"{len(rows)} fetches inside {int(mine.sum())} call(s) of {name}",
    )  # fmt: skip
    return _candidates(trace, (begin, end), [name] * len(rows), how)


def _sequence(trace: HostTrace, calls: Calls, fetches: Fetches) -> Candidates | None:
    """Fetches lie between the calls (or there are none): find the cycle in the sequence of both."""
    iterators, which = np.unique(fetches.iterator, return_inverse=True)
    token = np.concatenate((which.reshape(-1), calls.name + len(iterators)))
    begin = np.concatenate((anchors(trace, calls, fetches.begin), calls.begin))
    end = np.concatenate((fetches.end, calls.end))
    order = np.lexsort((token, begin))
    token, begin, end = token[order], begin[order], end[order]
    calls_left = np.flatnonzero(token >= len(iterators))
    stop = int(calls_left[-1]) + 1
    token, begin, end = token[:stop], begin[:stop], end[:stop]
    cycle = cycle_starts(token, fetch_kinds=len(iterators))
    starts = cycle.starts
    last = np.concatenate((starts[1:], [stop])) - 1
    work_end = np.maximum.reduceat(end, starts)
    named = [calls.names[value - len(iterators)] for value in _longest_call(token, begin, end, starts, len(iterators))]
    shape = f"repeat every {cycle.period} events" if cycle.period else "do not repeat regularly"
    confidence: Confidence
    if len(fetches):
        what, confidence = f"calls and the fetches between them {shape}", "high" if cycle.period else "medium"
    else:
        what, confidence = f"calls {shape}, no fetch from tf.data is visible", "medium" if cycle.period else "low"
    how: tuple[str, Confidence, str] = (
        "tf.function calls", confidence, f"{what}: {len(starts)} step(s) of {_listed(named)}",
    )  # fmt: skip
    flags = list(retraced_flags(calls, begin[starts], end[last]))
    for index in {0, len(starts) - 1}:
        if last[index] - starts[index] + 1 < cycle.whole and not flags[index]:
            flags[index] = PARTIAL
    return _candidates(trace, (begin[starts], work_end), named, how, flags=flags)


def _longest_call(token: Int64s, begin: Int64s, end: Int64s, starts: Int64s, fetch_kinds: int) -> list[int]:
    """Return, per step, the token of its longest call."""
    step = np.searchsorted(starts, np.arange(len(token)), side="right") - 1
    length = np.where(token >= fetch_kinds, end - begin, -1)
    order = np.lexsort((length, np.maximum(step, 0)))
    last = np.searchsorted(np.maximum(step, 0)[order], np.arange(len(starts)), side="right") - 1
    return [int(value) for value in token[order[last]]]


def anchors(trace: HostTrace, calls: Calls, begin: Int64s) -> Int64s:
    """Return where the outermost eager event (or call) around each time begins; the time itself where there is none."""
    rows = trace.host_events(mask(trace.names, is_eager_call))
    kept = [calls.begin], [calls.end]
    for line in distinct(trace.line_of[rows]):
        mine = rows[trace.line_of[rows] == line]
        outer = mine[nest(trace.start_ps[mine], trace.end_ps[mine]).parent < 0]
        kept[0].append(trace.start_ps[outer])
        kept[1].append(trace.end_ps[outer])
    starts, ends = np.concatenate(kept[0]), np.concatenate(kept[1])
    if not len(starts):
        return begin
    order = np.lexsort((-ends, starts))
    outer = nest(starts[order], ends[order]).parent < 0
    starts, ends = starts[order][outer], ends[order][outer]
    index = np.searchsorted(starts, begin, side="right") - 1
    inside = (index >= 0) & (begin < ends[np.maximum(index, 0)])
    return np.where(inside, starts[np.maximum(index, 0)], begin)


def from_fetches(trace: HostTrace) -> Candidates | None:
    """Without calls, a step runs from fetch to fetch of the pipeline that is asked most."""
    fetches = find_fetches(trace)
    if len(fetches) < 2:
        return None
    ids, counts = np.unique(fetches.iterator, return_counts=True)
    mine = fetches.iterator == ids[counts.argmax()]
    nothing = np.empty(0, np.int64)
    begin = anchors(trace, Calls(nothing, nothing, nothing, (), np.empty(0, np.bool_)), fetches.begin[mine])
    confidence: Confidence = "medium" if len(begin) >= 4 else "low"
    how = "tf.data fetches", confidence, f"{len(begin)} fetches from tf.data; there are no tf.function calls"
    return _candidates(trace, (begin, fetches.end[mine]), [UNLABELLED] * len(begin), how)


def from_function_runs(trace: HostTrace) -> Candidates | None:
    """Without calls, take executor runs that tf.data did not start (a serving or TensorFlow 1 job)."""
    ids = trace.number("id", 0)
    captured = trace.host_events(mask(trace.names, lambda name: name.startswith("InstantiatedCapturedFunction")))
    for name in ("FunctionRun", "SessionRun", "RunGraph"):
        rows = trace.host_events(mask(trace.names, name.__eq__))
        rows = rows[~np.isin(ids[rows], ids[captured])]
        if len(rows) < 2:
            continue
        order = np.lexsort((-trace.end_ps[rows], trace.start_ps[rows]))
        rows = rows[order]
        outer = rows[nest(trace.start_ps[rows], trace.end_ps[rows]).parent < 0]
        how: tuple[str, Confidence, str] = ("executor runs", "low", f"{len(outer)} {name} events outside tf.data")
        return _candidates(trace, (trace.start_ps[outer], trace.end_ps[outer]), [UNLABELLED] * len(outer), how)
    return None


def _listed(names: list[str]) -> str:
    known = list(dict.fromkeys(names))
    return ", ".join(known[:3]) + (" and others" if len(known) > 3 else "")
