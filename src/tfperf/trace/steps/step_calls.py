"""Function calls as steps, and the turns of a sequence that repeats."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.arrays import (
    NO_NUMBERS,
    Bools,
    Float64s,
    Int64s,
    covers,
    distinct,
    distinct_index,
    lookup,
    median,
    ranges,
    span_at,
    text_index,
    touches,
    union,
)
from tfperf.base.units import counted
from tfperf.trace.event_names import (
    REQUEST,
    concrete_function,
    is_eager_call,
    is_fetch,
    is_gradient,
    is_input_function,
    is_keras_predict,
    is_root_iterator,
    mask,
)
from tfperf.trace.host.activities import xla_compilations
from tfperf.trace.host_trace import HostTrace, once
from tfperf.trace.nesting import hold, nest, outermost
from tfperf.trace.steps.steps import (
    INFERENCE,
    PARTIAL,
    RETRACE,
    UNLABELLED,
    Confidence,
    How,
    Steps,
    label_kinds,
    plain_steps,
)
from tfperf.trace.steps.turns import (
    Cycle,
    aligned_turns,
    cycle_starts,
    in_most_turns,
    loop_of,
    other_loops,
    run_starts,
    smallest_period,
    with_first,
)


class FunctionCalls(Struct, frozen=True):
    """Outermost tf.function calls in time order; `name` indexes `names`, `row` is the event of each call.

    `traced` marks those that traced Python, and those in which XLA compiled.
    """

    row: Int64s
    start: Int64s
    end: Int64s
    name: Int64s
    names: tuple[str, ...]
    traced: Bools

    @property
    def is_dominant(self) -> Bools:
        """Return which calls are of the function with the longest total time."""
        total = np.bincount(self.name, weights=self.end - self.start, minlength=1)
        return np.asarray(self.name == total.argmax(), np.bool_)

    def only(self, wanted: Bools) -> FunctionCalls:
        """Return some of the calls."""
        row, start, end = self.row[wanted], self.start[wanted], self.end[wanted]
        return replace(self, row=row, start=start, end=end, name=self.name[wanted], traced=self.traced[wanted])


NO_CALLS = FunctionCalls(NO_NUMBERS, NO_NUMBERS, NO_NUMBERS, NO_NUMBERS, (), np.empty(0, np.bool_))


class Fetches(Struct, frozen=True):
    """Fetches of an element by the program, in time order; `iterator` distinguishes pipelines.

    `row` is the event of each, `root` that of the call of the pipeline's outermost stage, -1 if not recorded. `ends`
    are the starts of fetches that reach the end of the data, which are not in the other columns.
    """

    row: Int64s
    start: Int64s
    end: Int64s
    iterator: Int64s
    root: Int64s
    ends: Int64s = NO_NUMBERS

    def only(self, wanted: Bools) -> Fetches:
        """Return some of the fetches."""
        row, start, end = self.row[wanted], self.start[wanted], self.end[wanted]
        return replace(self, row=row, start=start, end=end, iterator=self.iterator[wanted], root=self.root[wanted])

    @property
    def pipeline(self) -> Int64s:
        """Return a number for each fetch, equal for iterators that follow each other (one per epoch)."""
        iterators, index = distinct_index(self.iterator)
        first, last = _first_of_each(index), len(index) - 1 - _first_of_each(index[::-1])
        done: list[int] = []
        number = np.zeros(len(iterators), np.int64)
        for one in np.argsort(first).tolist():
            free = next((place for place, at in enumerate(done) if at < first[one]), len(done))
            done[free : free + 1] = [int(last[one])]
            number[one] = free
        return np.asarray(number[index], np.int64)


@once
def find_calls(trace: HostTrace) -> FunctionCalls:
    """Return the tf.function calls that are not inside another call on their thread."""
    stat = trace.stat("tf_function_call")
    rows = stat.event.astype(np.int64)
    rows = outermost(trace, rows[trace.on_host[rows] & (trace.duration_ps[rows] > 0)])
    if not len(rows):
        return NO_CALLS
    names, name = text_index([trace.names[name] for name in trace.name[rows].tolist()])
    traced = np.array([text.startswith("traced") for text in stat.texts], np.bool_)
    is_traced = traced[stat.value[lookup(stat.event, rows)]]
    is_traced |= touches(xla_compilations(trace), trace.start_ps[rows], trace.end_ps[rows])
    return FunctionCalls(rows, trace.start_ps[rows], trace.end_ps[rows], name, tuple(names), is_traced)


@once
def find_fetches(trace: HostTrace) -> Fetches:
    """Return the fetches, each with the id of its pipeline."""
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
    rows, iterator, root = rows[order], iterator[order], root[order]
    fetches = Fetches(rows, trace.start_ps[rows], trace.end_ps[rows], iterator, root)
    is_end = _finds_the_end(trace, fetches)
    return replace(fetches.only(~is_end), ends=fetches.start[is_end])


_MOSTLY = 0.8


def _finds_the_end(trace: HostTrace, fetches: Fetches) -> Bools:
    """Return which fetches reach the end of their pipeline, shown by a missing hand-over or by fewer values taken."""
    known = fetches.root >= 0
    handed = hold(trace, fetches.row, trace.host_events(mask(trace.names, "PrefetchConsume".__eq__)))
    is_end = known & ~handed & (_share(fetches.iterator, handed) >= _MOSTLY)
    optional = known & mask(trace.names, lambda name: "AsOptional" in name)[trace.name[fetches.row]]
    taken = trace.host_events(mask(trace.names, lambda name: name.endswith(":OptionalGetValue")))
    if len(taken):
        calls = find_calls(trace)
        rows = np.flatnonzero(optional)
        call = _call_around(calls, fetches.start[rows])
        rows, call = rows[call >= 0], call[call >= 0]
        values = np.bincount(_call_around(calls, trace.start_ps[taken]) + 1, minlength=len(calls.row) + 1)[1:]
        if not len(rows):
            return is_end
        # The last one of each pipeline in its call.
        order = np.lexsort((rows, fetches.iterator[rows], call))
        rows, call = rows[order], call[order]
        last = np.append((call[1:] != call[:-1]) | (fetches.iterator[rows[1:]] != fetches.iterator[rows[:-1]]), True)
        pipelines = np.bincount(call[last], minlength=len(values))
        asked = np.bincount(call, minlength=len(values))
        is_end[rows[last & (values <= asked - pipelines)[call]]] = True
    return np.asarray(is_end, np.bool_)


def _share(group: Int64s, wanted: Bools) -> Float64s:
    """Return for each position the wanted share of its group; one member of the group may differ."""
    _, index = distinct_index(group)
    return (np.bincount(index, weights=wanted) / np.maximum(np.bincount(index) - 1, 1))[index]


def _first_of_each(index: Int64s) -> Int64s:
    first = np.full(int(index.max(initial=-1)) + 1, len(index))
    np.minimum.at(first, index, np.arange(len(index)))
    return first


def retrace_flags(calls: FunctionCalls, start: Int64s, end: Int64s) -> tuple[str, ...]:
    """Return `RETRACE` for each span in which a call traces Python again, else an empty text."""
    times = calls.start[calls.traced]
    traced = np.searchsorted(times, end) > np.searchsorted(times, start)
    return tuple(RETRACE if again else "" for again in traced.tolist()) if traced.any() else ("",) * len(traced)


def from_calls(trace: HostTrace) -> Steps | None:
    """Infer steps from tf.function calls and the fetches inside or between them."""
    calls = find_calls(trace)
    if not len(calls.name):
        return None
    fetches = find_fetches(trace)
    if len(distinct(trace.line_of[calls.row])) == 1:
        return _of_one_loop(trace, calls, fetches)
    loop = loop_of(trace, calls.row, _concrete_functions(trace, calls), calls.name)
    if not loop.any():
        return _of_one_loop(trace, calls, fetches)
    from tfperf.trace.host.host_ops import function_calls

    work, gradients = function_calls(trace), trace.host_events(mask(trace.names, is_gradient))
    training = {work.names[number] for number in distinct(work.of(gradients)).tolist() if number >= 0}
    trains = np.array([name in training for name in calls.names], np.bool_)[calls.name]
    loop = with_first(loop, int(loop[trains].min()) if trains.any() else 0)
    steps = _of_one_loop(trace, calls.only(loop == 0), _fetches_of_first(trace, calls, loop, fetches))
    return replace(steps, other_loops=other_loops(trace, calls.row, loop))


def _fetches_of_first(trace: HostTrace, calls: FunctionCalls, loop: Int64s, fetches: Fetches) -> Fetches:
    """Return the fetches without those of other loops (on their threads, or of iterators mostly used there)."""
    others = distinct(trace.line_of[calls.row[loop > 0]])
    elsewhere = np.isin(trace.line_of[fetches.row], others)
    in_first, in_others = (
        covers(union(calls.start[chosen], calls.end[chosen]), fetches.start) for chosen in (loop == 0, loop > 0)
    )
    _, index = distinct_index(fetches.iterator)
    votes = np.bincount(index, weights=in_others.astype(np.float64) - in_first)
    return fetches.only(~elsewhere & (votes[index] <= 0))


def _of_one_loop(trace: HostTrace, calls: FunctionCalls, fetches: Fetches) -> Steps:
    call_of_fetch, ending = (_call_around(calls, times) for times in (fetches.start, fetches.ends))
    # Fetches in each call, of its most-used pipeline (replicas have one pipeline each).
    per_call = np.zeros(len(calls.name), np.int64)
    for pipeline in distinct(fetches.pipeline).tolist():
        inside = call_of_fetch[(fetches.pipeline == pipeline) & (call_of_fetch >= 0)]
        per_call = np.maximum(per_call, np.bincount(inside, minlength=len(calls.name)))
    is_dominant = calls.is_dominant
    if is_dominant.sum() <= 2 and per_call[is_dominant].min() >= 4:
        return _loop_inside(trace, calls, fetches, call_of_fetch)
    if median(per_call[is_dominant]) >= 1:
        only_ends = np.zeros(len(per_call) + 1, np.bool_)
        only_ends[ending] = True
        return _executions(trace, calls, per_call, only_ends[:-1] & (per_call == 0))
    return _repetitions(trace, calls, fetches)


def _call_around(calls: FunctionCalls, times: Int64s) -> Int64s:
    """Return the call that contains each time, -1 for none."""
    return span_at(calls.start, calls.end, times)


def _numbered(
    trace: HostTrace,
    how: How,
    span: tuple[Int64s, Int64s],
    functions: list[str],
    *,
    until: Int64s | None = None,
    kinds: tuple[str, ...] = (),
) -> Steps:
    """Return steps numbered from 0; without `kinds`, the ops of their `functions` (up to `until`) determine them."""
    kinds = kinds or label_kinds(trace, span[0], span[1] if until is None else until, functions)
    names = tuple(f"{kind} {i}" for i, kind in enumerate(kinds))
    steps = plain_steps(how, span, np.arange(len(kinds), dtype=np.int64), names, kinds)
    return replace(steps, end_known=False)


def _executions(trace: HostTrace, calls: FunctionCalls, per_call: Int64s, only_ends: Bools) -> Steps:
    """Return one step per call that fetches its own batches (also evaluation on arrays), without those at the data's
    end.
    """
    fetching = np.array([median(per_call[calls.name == name]) >= 1 for name in range(len(calls.names))], np.bool_)
    fetches_own = fetching[calls.name]
    evaluates = _roles(trace, calls, fetches_own).evaluates if not fetches_own.all() else fetches_own
    chosen = np.flatnonzero((fetches_own | evaluates) & ~only_ends)
    functions = [calls.names[name] for name in calls.name[chosen].tolist()]
    batches = int(median(per_call[chosen]))
    what = f"{counted(len(chosen), 'call')} of {_listed(functions)}"
    each = f"{what}, {counted(batches, 'batch', 'batches')} {'' if len(chosen) == 1 else 'each'}".strip()
    how: How = ("tf.function calls", "high", each)
    steps = _numbered(trace, how, (calls.start[chosen], calls.end[chosen]), functions)
    flags = tuple(RETRACE if traced else "" for traced in calls.traced[chosen].tolist())
    return replace(steps, flags=flags, batches=np.maximum(per_call[chosen], 1))


def _loop_inside(trace: HostTrace, calls: FunctionCalls, fetches: Fetches, call_of_fetch: Int64s) -> Steps:
    """Return the steps inside one long call that loops over the data, from fetch to fetch of the most-used pipeline."""
    is_dominant = calls.is_dominant
    in_loop = (call_of_fetch >= 0) & is_dominant[np.maximum(call_of_fetch, 0)]
    rows = np.flatnonzero(in_loop & (fetches.pipeline == _most_frequent(fetches.pipeline[in_loop])))
    start, call = fetches.start[rows], call_of_fetch[rows]
    last = np.concatenate((call[1:] != call[:-1], [True]))
    end = np.where(last, calls.end[call], np.concatenate((start[1:], [0])))
    function = calls.names[int(calls.name[is_dominant][0])]
    loops = counted(int(is_dominant.sum()), "call")
    explanation = f"{counted(len(rows), 'fetch', 'fetches')} inside {loops} of {function}"
    how: How = ("tf.data fetches inside a call", "medium", explanation)
    return _numbered(trace, how, (start, end), [function] * len(rows))


class _Roles(NamedTuple):
    """The role of each call: training, evaluation, or occasional; all others are part of each step."""

    trains: Bools
    evaluates: Bools
    rare: Bools

    @property
    def are_told_apart(self) -> bool:
        """Return whether the ops of some calls show that they train, and of others that they do not."""
        return bool(self.trains.any() and not self.trains.all())


_FORWARD = re.compile(r":\w*(MatMul|Conv[123]D|Einsum|RNN|LSTM|GRU|Attention|Xla\w*Run|XlaLaunch)\w*$")
_UPDATE = re.compile(r"(?i)ResourceApply|[/:_](adam|adamw|sgd|rmsprop|adagrad|adadelta|adamax|nadam|ftrl|lamb|lion)/")
_SUBTRACTS = re.compile(r"^(?!.*AssignMovingAvg).*:AssignSubVariableOp$")


def _roles(trace: HostTrace, calls: FunctionCalls, fetches_own: Bools) -> _Roles:
    """Return which calls train and which evaluate, by the ops of their functions.

    A function called in nearly every turn of the training calls belongs to the step (a teacher, a policy that acts). A
    rarer one is evaluation if it computes forward, fetches its own batches or is called several times in a row; else it
    is occasional (a moving average, a summary), unless the training calls leave the weight update to it.
    """
    function = _concrete_functions(trace, calls)
    trains = _holds(trace, calls, function, is_gradient)
    evaluates, rare = np.zeros(len(trains), np.bool_), np.zeros(len(trains), np.bool_)
    if trains.all() or not trains.any():
        return _Roles(trains, evaluates, rare)
    at = np.flatnonzero(trains)
    token = calls.name[at]
    period = smallest_period(token)
    first = at if period <= 1 else at[aligned_turns(token, 0, token[:period])]
    turn = np.searchsorted(first, np.arange(len(trains)), side="right")
    forward = _holds(trace, calls, function, lambda name: bool(_FORWARD.search(name)))
    updates = _holds(trace, calls, function, lambda name: bool(_UPDATE.search(name) or _SUBTRACTS.match(name)))
    for one in distinct(function[~trains]).tolist():
        mine = function == one
        if in_most_turns(turn[mine], max(len(first) - 1, 1)):
            continue
        in_a_row = int(mine.sum()) / max(len(run_starts(mine)), 1)
        if forward[mine].any() or 2 * int(fetches_own[mine].sum()) >= int(mine.sum()) or in_a_row >= 2:
            evaluates |= mine
        elif updates[trains].all():
            rare |= mine
    return _Roles(trains, evaluates, rare)


def _concrete_functions(trace: HostTrace, calls: FunctionCalls) -> Int64s:
    """Return a number for each call, by its name and, if recorded, its concrete function."""
    function_of = [concrete_function(name) for name in trace.names]
    rows = trace.host_events(np.array([bool(function) for function in function_of], np.bool_))
    following = np.append(rows, -1)[np.searchsorted(rows, calls.row, side="right")]
    inside = (following >= 0) & (trace.line_of[following] == trace.line_of[calls.row])
    inside &= trace.start_ps[following] < calls.end
    index = {text: number for number, text in enumerate(dict.fromkeys(function_of))}
    concrete = np.array([index[text] for text in function_of], np.int64)[trace.name[following]]
    return calls.name * (len(index) + 1) + np.where(inside, concrete + 1, 0)


def _holds(trace: HostTrace, calls: FunctionCalls, function: Int64s, wanted: Callable[[str], bool]) -> Bools:
    """Return in which calls wanted ops run, by the majority of calls of a function, because an op may run late."""
    times = np.sort(trace.start_ps[trace.host_events(mask(trace.names, wanted))])
    holds = np.searchsorted(times, calls.end) > np.searchsorted(times, calls.start)
    _, index = distinct_index(function)
    return np.asarray((2 * np.bincount(index, weights=holds) >= np.bincount(index))[index], np.bool_)


def _repetitions(trace: HostTrace, calls: FunctionCalls, fetches: Fetches) -> Steps:
    """Return the steps of the cycle of calls and of fetches between them, if any."""
    iterators, which = distinct_index(fetches.pipeline)
    fetch_kinds = len(iterators)
    token = np.concatenate((which, calls.name + fetch_kinds))
    start = np.concatenate((_around(trace, calls, fetches.start), calls.start))
    end = np.concatenate((fetches.end, calls.end))
    order = np.lexsort((token, start))
    call = np.concatenate((np.full(len(which), -1, np.int64), np.arange(len(calls.name))))[order]
    is_call = call >= 0
    # Fetches after the last call start no step, nor do those without a call that uses the element.
    wanted = np.arange(len(order)) <= np.flatnonzero(is_call)[-1]
    iterator = np.concatenate((fetches.iterator, np.full(len(calls.name), -1)))[order]
    followed = np.append(is_call[1:], False)
    wanted &= is_call | followed | (_share(iterator, followed) < _MOSTLY)
    token, start, end, call, is_call = (
        column[wanted] for column in (token[order], start[order], end[order], call, is_call)
    )
    place = np.flatnonzero(is_call)
    own_fetch = np.zeros(len(calls.name), np.bool_)
    own_fetch[call[place]] = np.diff(place, prepend=-1) > 1
    roles = _roles(trace, calls, own_fetch)
    evaluated = np.flatnonzero(is_call & np.append(roles.evaluates, False)[call])
    evaluations = np.append(-1, place)[np.searchsorted(place, evaluated)] + 1  # each from its first fetch
    in_cycle = ~(is_call & np.append(roles.rare, False)[call])
    in_cycle[ranges(evaluations, evaluated - evaluations + 1)] = False
    kept = np.flatnonzero(in_cycle)
    cycle = cycle_starts(token[kept], fetch_kinds=fetch_kinds, has_phases=not roles.trains.any())
    turns = kept[cycle.starts]
    first = np.sort(np.concatenate((turns, evaluations)))
    last = np.concatenate((first[1:], [len(token)])) - 1
    # The token of the longest call of each step.
    step = np.maximum(np.searchsorted(first, np.arange(len(token)), side="right") - 1, 0)
    order = np.lexsort((np.where(is_call, end - start, -1), step))
    longest = token[order[np.searchsorted(step[order], np.arange(len(first)), side="right") - 1]]
    functions = [calls.names[value - fetch_kinds] for value in longest.tolist()]
    is_evaluation = np.isin(first, evaluations)
    span = start[first], np.maximum.reduceat(end, first)
    forward = [INFERENCE if is_keras_predict(function) else "eval" for function in functions]
    kinds = tuple(np.where(is_evaluation, forward, "train").tolist()) if roles.are_told_apart else ()
    how: How = ("tf.function calls", *_explained(cycle, fetch_kinds, functions, is_evaluation, roles))
    steps = _numbered(trace, how, span, functions, kinds=kinds)
    flags = [*retrace_flags(calls, start[first], end[last])]
    size = np.diff(cycle.starts, append=len(kept))
    for turn in {0, len(turns) - 1}:
        index = int(np.searchsorted(first, turns[turn]))
        if size[turn] < cycle.whole and not flags[index]:
            flags[index] = PARTIAL
    return replace(steps, flags=tuple(flags))


def _explained(
    cycle: Cycle, fetch_kinds: int, functions: list[str], is_evaluation: Bools, roles: _Roles
) -> tuple[Confidence, str]:
    """Return the confidence of the steps, and their description."""
    shape = "do not repeat regularly"
    if cycle.period:
        shape = "repeat one by one" if cycle.period == 1 else f"repeat every {cycle.period} events"
    levels: tuple[Confidence, Confidence] = ("medium", "high") if fetch_kinds else ("low", "medium")
    between = f"calls and the fetches between them {shape}"
    what = between if fetch_kinds else f"calls {shape}, without visible tf.data fetches"
    turns = [functions[index] for index in np.flatnonzero(~is_evaluation).tolist()]
    text = f"{what}: {counted(len(turns), 'step')} of {_listed(turns)}"
    if is_evaluation.any():
        evaluating = [functions[index] for index in np.flatnonzero(is_evaluation).tolist()]
        text += f"; {counted(len(evaluating), 'evaluation call')} of {_listed(evaluating)}"
    if cycle.has_phases and not roles.trains.any():
        return "low", f"{text} (ops do not show which calls train, so steps are from the order of calls)"
    return levels[cycle.period > 0], text


def _around(trace: HostTrace, calls: FunctionCalls, times: Int64s) -> Int64s:
    """Return the start of the outermost eager event (or call) around each time; the time itself without one."""
    rows = outermost(trace, trace.host_events(mask(trace.names, is_eager_call)))
    starts = np.concatenate((calls.start, trace.start_ps[rows]))
    ends = np.concatenate((calls.end, trace.end_ps[rows]))
    if not len(starts):
        return times
    order = np.lexsort((-ends, starts))
    is_outer = nest(starts[order], ends[order]).parent < 0
    starts, ends = starts[order][is_outer], ends[order][is_outer]
    index = span_at(starts, ends, times)
    return np.where(index >= 0, starts[index], times)


def from_fetches(trace: HostTrace) -> Steps | None:
    """Return the steps of a program without calls, from fetch to fetch of the most-used pipeline."""
    fetches = find_fetches(trace)
    if len(fetches.start) < 2:
        return None
    chosen = fetches.pipeline == _most_frequent(fetches.pipeline)
    start = _around(trace, NO_CALLS, fetches.start[chosen])
    explanation = f"{len(start)} tf.data fetches, without tf.function calls"
    how: How = ("tf.data fetches", "medium" if len(start) >= 4 else "low", explanation)
    return _numbered(trace, how, (start, fetches.end[chosen]), [UNLABELLED] * len(start))


def from_function_runs(trace: HostTrace) -> Steps | None:
    """Return executor runs that tf.data did not start, for programs without calls (a serving or TensorFlow 1 job)."""
    captured = trace.host_events(mask(trace.names, is_input_function))
    of_tfdata = trace.number_at("id", captured)
    for name in ("FunctionRun", "SessionRun", "RunGraph"):
        rows = trace.host_events(mask(trace.names, name.__eq__))
        rows = rows[~np.isin(trace.number_at("id", rows), of_tfdata)]
        if len(rows) < 2:
            continue
        rows = rows[np.lexsort((-trace.end_ps[rows], trace.start_ps[rows]))]
        rows = rows[nest(trace.start_ps[rows], trace.end_ps[rows]).parent < 0]
        start, end = trace.start_ps[rows], trace.end_ps[rows]
        asked = trace.host_events(mask(trace.names, REQUEST.__eq__))
        are_asked = covers(union(trace.start_ps[asked], trace.end_ps[asked]), start).mean() >= _MOSTLY
        how: How = ("executor runs", "medium" if are_asked else "low", f"{len(rows)} {name} events outside tf.data")
        # A run that another process requests returns before its ops do.
        until = np.maximum(end, np.append(start[1:], int(trace.end_ps[trace.on_host].max())))
        return _numbered(trace, how, (start, end), [UNLABELLED] * len(rows), until=until)
    return None


def _most_frequent(iterators: Int64s) -> int:
    ids, index = distinct_index(iterators)
    return int(ids[np.bincount(index).argmax()])


def _listed(functions: list[str]) -> str:
    names = list(dict.fromkeys(functions))
    return ", ".join(names[:3]) + (" and others" if len(names) > 3 else "")
