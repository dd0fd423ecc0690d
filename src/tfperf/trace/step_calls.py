"""Calls of functions as steps, and the turns of a sequence that repeats."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.arrays import NO_NUMBERS, Bools, Int64s, distinct, distinct_index, lookup, median
from tfperf.trace.event_names import is_eager_call, is_fetch, is_input_function, is_root_iterator, mask
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.nesting import nest, outermost
from tfperf.trace.steps import PARTIAL, RETRACE, UNLABELLED, Confidence, How, Steps, label_kinds, plain_steps
from tfperf.units import counted


class FunctionCalls(Struct, frozen=True):
    """Outermost tf.function calls in time order; `name` indexes `names`."""

    start: Int64s
    end: Int64s
    name: Int64s
    names: tuple[str, ...]
    traced: Bools

    @property
    def is_dominant(self) -> Bools:
        """Tell which calls are of the function with the largest total time."""
        total = np.bincount(self.name, weights=self.end - self.start, minlength=1)
        return np.asarray(self.name == total.argmax(), np.bool_)


NO_CALLS = FunctionCalls(NO_NUMBERS, NO_NUMBERS, NO_NUMBERS, (), np.empty(0, np.bool_))


class Fetches(Struct, frozen=True):
    """Fetches of an element by the program, in time order; `iterator` tells the pipelines apart.

    `root` is the row of the call of the pipeline's outermost stage, -1 where it is not recorded.
    """

    start: Int64s
    end: Int64s
    iterator: Int64s
    root: Int64s


def find_calls(trace: HostTrace) -> FunctionCalls:
    """Return the tf.function calls that are not inside another call on their thread."""
    stat = trace.stat("tf_function_call")
    rows = stat.event.astype(np.int64)
    rows = outermost(trace, rows[trace.on_host[rows] & (trace.duration_ps[rows] > 0)])
    if not len(rows):
        return NO_CALLS
    texts = [trace.names[name] for name in trace.name[rows].tolist()]
    index = {text: index for index, text in enumerate(dict.fromkeys(texts))}
    traced = np.array([text.startswith("traced") for text in stat.texts], np.bool_)
    name = np.array([index[text] for text in texts], np.int64)
    is_traced = traced[stat.value[lookup(stat.event, rows)]]
    return FunctionCalls(trace.start_ps[rows], trace.end_ps[rows], name, tuple(index), is_traced)


def find_fetches(trace: HostTrace) -> Fetches:
    """Return the fetches, each with the id of the pipeline that it asked."""
    rows = trace.host_events(mask(trace.names, is_fetch))
    rows = rows[trace.duration_ps[rows] > 0]
    roots = trace.host_events(mask(trace.names, is_root_iterator))
    iterator, root = np.zeros(len(rows), np.int64), np.full(len(rows), -1, np.int64)
    if len(roots) and len(rows):
        next_root = roots[np.minimum(np.searchsorted(roots, rows), len(roots) - 1)]
        inside = (next_root > rows) & (trace.line_of[next_root] == trace.line_of[rows])
        inside &= trace.start_ps[next_root] < trace.end_ps[rows]
        iterator, root = np.where(inside, trace.number_at("id", next_root), 0), np.where(inside, next_root, -1)
    order = np.argsort(trace.start_ps[rows], kind="stable")
    rows = rows[order]
    return Fetches(trace.start_ps[rows], trace.end_ps[rows], iterator[order], root[order])


def retrace_flags(calls: FunctionCalls, start: Int64s, end: Int64s) -> tuple[str, ...]:
    """Return `RETRACE` for each span in which a call traces Python again, else an empty text."""
    times = calls.start[calls.traced]
    traced = np.searchsorted(times, end) > np.searchsorted(times, start)
    return tuple(RETRACE if again else "" for again in traced.tolist())


def from_calls(trace: HostTrace) -> Steps | None:
    """Infer steps from tf.function calls and the fetches inside or between them."""
    calls = find_calls(trace)
    if not len(calls.name):
        return None
    fetches = find_fetches(trace)
    index = np.searchsorted(calls.start, fetches.start, side="right") - 1
    call_of_fetch = np.where((index >= 0) & (fetches.start < calls.end[np.maximum(index, 0)]), index, -1)
    # The fetches in each call, of the pipeline that was asked most (replicas have one pipeline each).
    per_call = np.zeros(len(calls.name), np.int64)
    for iterator in distinct(fetches.iterator).tolist():
        inside = call_of_fetch[(fetches.iterator == iterator) & (call_of_fetch >= 0)]
        per_call = np.maximum(per_call, np.bincount(inside, minlength=len(calls.name)))
    is_dominant = calls.is_dominant
    if is_dominant.sum() <= 2 and per_call[is_dominant].min() >= 4:
        return _loop_inside(trace, calls, fetches, call_of_fetch)
    if median(per_call[is_dominant]) >= 1:
        return _executions(trace, calls, per_call)
    return _repetitions(trace, calls, fetches)


def _numbered(
    trace: HostTrace, how: How, span: tuple[Int64s, Int64s], functions: list[str], until: Int64s | None = None
) -> Steps:
    """Return steps that are numbered from 0; `functions` names what each runs, and `until` bounds when its ops do."""
    kinds = label_kinds(trace, span[0], span[1] if until is None else until, functions)
    names = tuple(f"{kind} {i}" for i, kind in enumerate(kinds))
    steps = plain_steps(how, span, np.arange(len(kinds), dtype=np.int64), names, kinds)
    return replace(steps, end_known=False)


def _executions(trace: HostTrace, calls: FunctionCalls, per_call: Int64s) -> Steps:
    """Every call that fetches its own batches is one execution."""
    fetching = np.array([median(per_call[calls.name == name]) >= 1 for name in range(len(calls.names))], np.bool_)
    chosen = np.flatnonzero(fetching[calls.name])
    functions = [calls.names[name] for name in calls.name[chosen].tolist()]
    batches = int(median(per_call[chosen]))
    what = f"{counted(len(chosen), 'call')} of {_listed(functions)}"
    each = f"{what}, {counted(batches, 'batch', 'batches')} {'' if len(chosen) == 1 else 'each'}".strip()
    how: How = ("tf.function calls", "high", each)
    steps = _numbered(trace, how, (calls.start[chosen], calls.end[chosen]), functions)
    flags = tuple(RETRACE if traced else "" for traced in calls.traced[chosen].tolist())
    return replace(steps, flags=flags, batches=np.maximum(per_call[chosen], 1))


def _loop_inside(trace: HostTrace, calls: FunctionCalls, fetches: Fetches, call_of_fetch: Int64s) -> Steps:
    """One long call loops over the data: a step runs from fetch to fetch, of the pipeline asked most."""
    is_dominant = calls.is_dominant
    in_loop = (call_of_fetch >= 0) & is_dominant[np.maximum(call_of_fetch, 0)]
    rows = np.flatnonzero(in_loop & (fetches.iterator == _most_frequent(fetches.iterator[in_loop])))
    start, call = fetches.start[rows], call_of_fetch[rows]
    last = np.concatenate((call[1:] != call[:-1], [True]))
    end = np.where(last, calls.end[call], np.concatenate((start[1:], [0])))
    function = calls.names[int(calls.name[is_dominant][0])]
    loops = counted(int(is_dominant.sum()), "call")
    explanation = f"{counted(len(rows), 'fetch', 'fetches')} inside {loops} of {function}"
    how: How = ("tf.data fetches inside a call", "medium", explanation)
    return _numbered(trace, how, (start, end), [function] * len(rows))


def _repetitions(trace: HostTrace, calls: FunctionCalls, fetches: Fetches) -> Steps | None:
    """Fetches lie between the calls (or there are none): find the cycle in the sequence of both."""
    iterators, which = distinct_index(fetches.iterator)
    fetch_kinds = len(iterators)
    token = np.concatenate((which, calls.name + fetch_kinds))
    start = np.concatenate((_around(trace, calls, fetches.start), calls.start))
    end = np.concatenate((fetches.end, calls.end))
    order = np.lexsort((token, start))
    stop = int(np.flatnonzero(token[order] >= fetch_kinds)[-1]) + 1  # fetches behind the last call start no step
    token, start, end = token[order][:stop], start[order][:stop], end[order][:stop]
    cycle = cycle_starts(token, fetch_kinds=fetch_kinds)
    first = cycle.starts
    last = np.concatenate((first[1:], [stop])) - 1
    # The token of the longest call of each step.
    step = np.maximum(np.searchsorted(first, np.arange(stop), side="right") - 1, 0)
    order = np.lexsort((np.where(token >= fetch_kinds, end - start, -1), step))
    longest = token[order[np.searchsorted(step[order], np.arange(len(first)), side="right") - 1]]
    functions = [calls.names[value - fetch_kinds] for value in longest.tolist()]
    shape = "do not repeat regularly"
    if cycle.period:
        shape = "repeat one by one" if cycle.period == 1 else f"repeat every {cycle.period} events"
    levels: tuple[Confidence, Confidence] = ("medium", "high") if fetch_kinds else ("low", "medium")
    between = f"calls and the fetches between them {shape}"
    what = between if fetch_kinds else f"calls {shape}, no fetch from tf.data is visible"
    explanation = f"{what}: {counted(len(first), 'step')} of {_listed(functions)}"
    how: How = ("tf.function calls", levels[cycle.period > 0], explanation)
    steps = _numbered(trace, how, (start[first], np.maximum.reduceat(end, first)), functions)
    flags = [*retrace_flags(calls, start[first], end[last])]
    for index in {0, len(first) - 1}:
        if last[index] - first[index] + 1 < cycle.whole and not flags[index]:
            flags[index] = PARTIAL
    return replace(steps, flags=tuple(flags))


def _around(trace: HostTrace, calls: FunctionCalls, times: Int64s) -> Int64s:
    """Return where the outermost eager event (or call) around each time starts; the time itself where none is."""
    rows = outermost(trace, trace.host_events(mask(trace.names, is_eager_call)))
    starts = np.concatenate((calls.start, trace.start_ps[rows]))
    ends = np.concatenate((calls.end, trace.end_ps[rows]))
    if not len(starts):
        return times
    order = np.lexsort((-ends, starts))
    is_outer = nest(starts[order], ends[order]).parent < 0
    starts, ends = starts[order][is_outer], ends[order][is_outer]
    index = np.searchsorted(starts, times, side="right") - 1
    inside = (index >= 0) & (times < ends[np.maximum(index, 0)])
    return np.where(inside, starts[np.maximum(index, 0)], times)


def from_fetches(trace: HostTrace) -> Steps | None:
    """Without calls, a step runs from fetch to fetch of the pipeline that is asked most."""
    fetches = find_fetches(trace)
    if len(fetches.start) < 2:
        return None
    chosen = fetches.iterator == _most_frequent(fetches.iterator)
    start = _around(trace, NO_CALLS, fetches.start[chosen])
    explanation = f"{len(start)} fetches from tf.data; there are no tf.function calls"
    how: How = ("tf.data fetches", "medium" if len(start) >= 4 else "low", explanation)
    return _numbered(trace, how, (start, fetches.end[chosen]), [UNLABELLED] * len(start))


def from_function_runs(trace: HostTrace) -> Steps | None:
    """Without calls, take executor runs that tf.data did not start (a serving or TensorFlow 1 job)."""
    captured = trace.host_events(mask(trace.names, is_input_function))
    of_tfdata = trace.number_at("id", captured)
    for name in ("FunctionRun", "SessionRun", "RunGraph"):
        rows = trace.host_events(mask(trace.names, name.__eq__))
        rows = rows[~np.isin(trace.number_at("id", rows), of_tfdata)]
        if len(rows) < 2:
            continue
        rows = rows[np.lexsort((-trace.end_ps[rows], trace.start_ps[rows]))]
        rows = rows[nest(trace.start_ps[rows], trace.end_ps[rows]).parent < 0]
        how: How = ("executor runs", "low", f"{len(rows)} {name} events outside tf.data")
        start, end = trace.start_ps[rows], trace.end_ps[rows]
        # A run that another process asks for returns before its ops do.
        until = np.maximum(end, np.append(start[1:], int(trace.end_ps[trace.on_host].max())))
        return _numbered(trace, how, (start, end), [UNLABELLED] * len(rows), until)
    return None


def _most_frequent(iterators: Int64s) -> int:
    ids, index = distinct_index(iterators)
    return int(ids[np.bincount(index).argmax()])


def _listed(functions: list[str]) -> str:
    names = list(dict.fromkeys(functions))
    return ", ".join(names[:3]) + (" and others" if len(names) > 3 else "")


_AGREEMENT = 0.95
_LONGEST = 4096


class Cycle(Struct, frozen=True):
    """Positions where steps start.

    `period` is the length of the repeated part, 0 if nothing repeats; `whole` that of a complete step, 0 if it varies.
    """

    starts: Int64s
    period: int
    whole: int


def cycle_starts(token: Int64s, *, fetch_kinds: int) -> Cycle:
    """Find where the steps of a program start.

    A step is one repetition, and starts at a fetch. Two shapes need care. If every call has its own fetch and one
    (fetch, call) pair follows itself (a training phase, then an evaluation phase), each pair is a step. If a call
    has no fetch of its own (gradients applied after several micro-batches), it closes the repetition.
    """
    fetch = token < fetch_kinds
    if not fetch.any():
        period = smallest_period(token)
        return Cycle(np.arange(0, len(token), period or 1), period, period or 1)
    runs = _run_starts(fetch)
    period = smallest_period(token[runs[0] :])
    if not period:
        return Cycle(runs, 0, 0)
    pattern = token[runs[0] : runs[0] + period]
    paired = (pattern < fetch_kinds) | np.roll(pattern < fetch_kinds, 1)  # a fetch, or a call right after one
    groups = [tuple(part.tolist()) for part in np.split(pattern, _run_starts(pattern < fetch_kinds)[1:])]
    if paired.all() and any(a == b for a, b in zip(groups, groups[1:] + groups[:1], strict=True)):
        return Cycle(runs, period, 0)
    closing = np.flatnonzero(~paired & np.roll(paired, -1))
    shift = int((closing[0] + 1) % period) if len(closing) else 0  # so that a call without its own fetch closes one
    return Cycle(aligned_turns(token, int(runs[0]), pattern, shift), period, period)


def smallest_period(token: Int64s) -> int:
    """Return the smallest period with which the sequence agrees with itself by 95 %, or 0."""
    for period in range(1, min(len(token) // 3, _LONGEST) + 1):
        if float((token[period:] == token[:-period]).mean()) >= _AGREEMENT:
            return period
    return 0


def _run_starts(fetch: Bools) -> Int64s:
    return np.flatnonzero(fetch & np.concatenate(([True], ~fetch[:-1])))


def aligned_turns(token: Int64s, first: int, pattern: Int64s, shift: int = 0) -> Int64s:
    """Return where turns of the pattern start from `first` on; one begins with the token at `shift` in the pattern."""
    head, tail = pattern[shift], pattern[shift - 1]
    pairs = (pattern == head) & (np.roll(pattern, 1) == tail)
    if pairs.sum() == 1 and len(pattern) > 1:
        at = np.flatnonzero((token[1:] == head) & (token[:-1] == tail)) + 1
        return np.concatenate(([first], at)) if first not in at else at
    regular = np.arange(first + shift, len(token), len(pattern))
    return np.concatenate(([first], regular)) if shift else regular
