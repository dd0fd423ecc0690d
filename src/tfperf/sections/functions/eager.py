"""Eager ops: ops that Python runs outside any tf.function, per step, and their share of step time.

`EagerExecute` is the host event of running an op or a function. Newer TensorFlow records the kind in `is_func` and the
name in `eager_op`; older TensorFlow puts the name into the event (`EagerExecute: LogicalAnd`). Fetching a batch is
input, so it is not counted. Ops that a `py_function` of the input pipeline runs are not part of the step. Ops of
Keras's own loop, in steps that call functions, are counted separately.

If Python frames show a callback, the whole callback belongs to the activity that takes most of it, or to Python.

Python between two ops belongs to eager execution: a *stretch* goes from the first to the last op without a function
call, a fetch or a long pause between them.
"""

from __future__ import annotations

import re
from typing import Literal

import numpy as np
from msgspec.structs import replace

from tfperf.analysis.registry import Tabular
from tfperf.base.arrays import (
    MOST,
    Bools,
    Int64s,
    Intervals,
    covers,
    difference,
    distinct,
    distinct_index,
    intersection,
    overlap,
    union,
    union_all,
)
from tfperf.base.units import PS_PER_MS
from tfperf.report.model import Data
from tfperf.trace.event_names import is_fetch, is_python_op, mask, runs_keras_function
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.nesting import last_around
from tfperf.trace.steps.breakdown import CountedSteps
from tfperf.trace.steps.eager import NAMED, eager_calls, notes_running, runs_keras_eagerly
from tfperf.trace.steps.steps import Steps

_OTHERS = ("__inference_", "IteratorGetNext")
"""Function calls and fetches, which are not eager ops of the program."""
_OTHER_OPS = "(other ops)"
_KERNEL = "EagerKernelExecute"
_OF_KERAS = re.compile(
    r"Optional\w+|SyncDevice|DivNoNan|_EagerConst|AssignVariableOp|\w*Iterator(?:V\d)?|\w*Dataset\w*"
)
"""Ops with which Keras creates iterators, converts a batch, reads step results, averages metrics and waits."""
FetchKind = Literal["save", "summary", "metrics", "variables", "arrays"]
FETCHES: tuple[FetchKind, ...] = ("save", "summary", "metrics", "variables", "arrays")
"""Purposes of a run of eager ops besides computing: checkpoints, summaries, metric results, variables; arrays in JAX.

The whole run counts, from its first to its last op, including the Python time for each value, and up to half as long
before and after it in which Python makes no call.
"""
_SAVES, _WRITES = re.compile(r"SaveV2|SaveSlices|MergeV2Checkpoints"), re.compile(r"Write\w*Summary")
_READS = ("ReadVariableOp",)
_COPIES = re.compile(r"ReadVariableOp|Identity|Cast|VarHandleOp|AssignVariableOp|_EagerConst|DisableCopyOnRead")
_COMPUTES = re.compile(r"\w*(?:Grad|Apply)\w*|Assign(?:Add|Sub)VariableOp|\w*MatMul\w*|\w*Conv\dD\w*|Optional\w+")
"""Ops of the computation of a step, as opposed to metric results."""
BESIDE_READS, _BESIDE_OPS = 2, 8
"""Python before and after a run counts up to 1/N of the run: to save files, or to prepare the first op."""
_CALLBACK = re.compile(
    r"\$(?!callback(?:_list|s)\.py:).+:\d+ on_(?:(?:train|test|predict)_)?(?:batch|epoch)?_?(?:begin|end)", re.DOTALL
)
_HALF = 0.5
LONGEST_PAUSE_PS = 10_000_000_000
"""10 ms; Python of TensorFlow and Keras between two ops takes less."""
_MANY_OPS, _LONGEST_AMONG_MANY_PS = 20, 100_000_000_000
"""A long run of ops is one program; a pause in it is more likely due to a busy machine."""


class EagerOps(Tabular, frozen=True, kw_only=True):
    """Eager ops by type, the largest time first; times are in picoseconds.

    Per step, `eager_ps` is the wall time with an eager op running, and `step_calls` is the number of eager ops.
    `fetch_ps` has a row for each of `FETCHES`, and `variables` counts the variables read for them. For all other ops,
    `stretch_ps` is the time of their stretches, `stretch_calls` the number of ops, and `kernel_ps` the time with a
    kernel of an op running. Only the types include the ops of Keras's own loop.
    """

    home = ("functions", "eager_ops")

    op_types: tuple[str, ...]
    calls: Int64s
    total_ps: Int64s
    steps: CountedSteps
    eager_ps: Int64s
    fetch_ps: Int64s
    variables: Int64s
    stretch_ps: Int64s
    stretch_calls: Int64s
    kernel_ps: Int64s
    held_ps: Int64s
    """Time per step of callbacks that runs contain whole, with their Python."""
    callback_ps: Int64s
    """Time per step of eager ops in callbacks that are mostly Python; no other time of these callbacks counts."""
    step_calls: Int64s
    busy_ps: int = 0
    capture_ps: int = 0
    """Wall time with an eager op running, inside or outside steps, and duration of the capture."""
    step_counts: tuple[int, ...] = ()
    """Number of steps of each of several hosts, in the order of the times per step."""
    is_recorded: bool = True
    """False if the trace has no event of running anything from Python, so that nothing is known."""

    @property
    def percent(self) -> float | None:
        """Return the share of step time with an eager op running, in percent; None if unknown."""
        return self.steps.percent(self.eager_ps) if self.is_recorded else None

    @property
    def stretch_percent(self) -> float | None:
        """Return the share of step time in stretches of eager ops, in percent; None if unknown."""
        return self.steps.percent(self.stretch_ps) if self.is_recorded else None

    def percent_of(self, times: Literal["kernel_ps", "held_ps", "callback_ps"]) -> float:
        """Return the share of step time that these times take, in percent."""
        return self.steps.percent(getattr(self, times)) or 0.0

    @property
    def stretch_calls_per_step(self) -> float:
        """Return the number of ops per step in stretches."""
        return self.steps.sum(self.stretch_calls) / max(self.steps.count, 1)

    def fetches(self, kind: FetchKind) -> tuple[float, int, float]:
        """Return the share of step time in fetches of a kind, the steps with fetches (with several hosts, those of the
        host with most of them), and variables read in each.
        """
        times = self.fetch_ps[FETCHES.index(kind)]
        has = (times > 0) & self.steps.counted
        of_hosts = np.split(has, np.cumsum(self.step_counts[:-1], dtype=np.int64))
        variables = float(self.variables[has].sum()) / max(int(has.sum()), 1)
        return self.steps.percent(times) or 0.0, max(int(steps.sum()) for steps in of_hosts), variables

    @property
    def own_types(self) -> tuple[str, ...]:
        """Return the types without those of Keras's own loop."""
        return tuple(name for name in self.op_types if not _OF_KERAS.fullmatch(name))

    @property
    def computes_gradients(self) -> bool:
        """Return whether ops of a backward pass run eagerly."""
        return any("Grad" in name for name in self.op_types)

    @property
    def calls_per_step(self) -> float | None:
        """Return the number of eager ops per step; None if unknown."""
        count = self.steps.count
        return self.steps.sum(self.step_calls) / count if count and self.is_recorded else None

    @property
    def percent_of_capture(self) -> float | None:
        """Return the share of the capture with an eager op running, in percent; None if unknown."""
        return 100.0 * self.busy_ps / self.capture_ps if self.is_recorded and self.capture_ps else None

    def _data(self) -> Data:
        return self.columns()

    def columns(self) -> dict[str, list[object]]:
        """Return one row per op type."""
        return {
            "op_type": list(self.op_types),
            "calls": self.calls.tolist(),
            "total_ms": (self.total_ps / PS_PER_MS).tolist(),
            "mean_ms": (self.total_ps / np.maximum(self.calls, 1) / PS_PER_MS).tolist(),
        }


def find_eager_ops(trace: HostTrace, steps: Steps) -> EagerOps:
    """Return the eager ops of the host and their time in its steps."""
    rows, op_type, names = _eager_rows(trace)
    calls = np.bincount(op_type, minlength=len(names)).astype(np.int64)
    total = np.bincount(op_type, weights=trace.duration_ps[rows], minlength=len(names))
    called = np.flatnonzero(calls).tolist()
    order = np.array(sorted(called, key=lambda index: (-total[index], names[index])), np.int64)
    if any(map(runs_keras_function, trace.names)):
        is_own = ~mask(names, _OF_KERAS.fullmatch)[op_type]
        rows, op_type = rows[is_own], op_type[is_own]
    busy = union(trace.start_ps[rows], trace.end_ps[rows])
    fetches, read, stretches, left = _runs(trace, rows, op_type, names, steps)
    hooks = trace.host_events(mask(trace.names, _CALLBACK.fullmatch))
    callbacks = union(trace.start_ps[hooks], trace.end_ps[hooks])
    (*fetches, stretches), held, of_python = _by_callback([*fetches, stretches], callbacks)
    kernels = trace.host_events(mask(trace.names, lambda name: name == _KERNEL))
    kernels = kernels[last_around(trace, left, kernels) >= 0]

    def in_steps(times: Intervals) -> Int64s:
        return overlap(times, steps.start_ps, steps.end_ps)

    return EagerOps(
        op_types=tuple(names[index] for index in order.tolist()),
        calls=calls[order],
        total_ps=np.minimum(total[order], MOST).astype(np.int64),
        steps=CountedSteps.of(steps),
        eager_ps=in_steps(busy),
        fetch_ps=np.stack([in_steps(times) for times in fetches]),
        variables=_counts(trace, read, steps),
        stretch_ps=in_steps(stretches),
        stretch_calls=_counts(trace, left, steps),
        kernel_ps=in_steps(union(trace.start_ps[kernels], trace.end_ps[kernels])),
        held_ps=in_steps(held),
        callback_ps=in_steps(intersection(busy, of_python)),
        step_calls=_counts(trace, rows, steps),
        busy_ps=busy.total(),
        capture_ps=trace.extent_ps[1] - trace.extent_ps[0],
        is_recorded=notes_running(trace),
    )


def _counts(trace: HostTrace, rows: Int64s, steps: Steps) -> Int64s:
    first, last = np.searchsorted(np.sort(trace.start_ps[rows]), (steps.start_ps, steps.end_ps))
    return np.asarray(last - first, np.int64)


def _runs(
    trace: HostTrace, rows: Int64s, op_type: Int64s, names: tuple[str, ...], steps: Steps
) -> tuple[list[Intervals], Int64s, Intervals, Int64s]:
    """Cut the ops of each thread into runs, between function calls, batch fetches, and starts and ends of steps.

    Return the intervals of runs of each kind of `FETCHES`, the rows that read variables in them, the stretches of all
    other runs, and the rows of these.
    """
    functions = [trace.stat("tf_function_call").event, trace.stat("step_num").event]
    is_func = trace.stat("is_func")
    batches = trace.host_events(mask(trace.names, is_fetch))
    others = np.concatenate([*functions, is_func.event[is_func.value != 0], batches]).astype(np.int64)
    eagerly = runs_keras_eagerly(trace)
    kinds = [mask(names, pattern.fullmatch)[op_type] for pattern in (_SAVES, _WRITES, _COPIES, _COMPUTES)]
    reads = mask(names, _READS.__contains__)[op_type]
    averages = mask(names, "DivNoNan".__eq__)[op_type]
    edges = np.concatenate((steps.start_ps, steps.end_ps))
    times: list[list[Intervals]] = [[] for _ in (*FETCHES, "stretch")]
    kind_of_row = np.zeros(len(rows), np.int64)
    for index in distinct(trace.line_of[rows]).tolist():
        mine = np.flatnonzero(trace.line_of[rows] == index)
        start, end = trace.start_ps[rows[mine]], np.maximum.accumulate(trace.end_ps[rows[mine]])
        on_line = others[trace.line_of[others] == index]
        breaks = np.sort(np.concatenate((trace.start_ps[on_line], edges)))
        run = distinct_index(np.searchsorted(breaks, start, side="right"))[1]
        saves, writes, copies, computes, read, average, size = (
            np.bincount(run, weights=each[mine] if each is not None else None)
            for each in (*kinds, reads, averages, None)
        )
        kind = np.select(
            [saves > 0, writes > 0, (average > 0) & (computes == 0), (copies == size) & (read > 1)],
            range(4),
            len(FETCHES),
        )
        kind_of_row[mine] = len(FETCHES) if eagerly else kind[run]
        bounds = np.concatenate((on_line, rows[mine]))
        starts, ends = (np.concatenate((each[bounds], edges)) for each in (trace.start_ps, trace.end_ps))
        for number, parts in enumerate(times):
            chosen = kind_of_row[mine] == number
            if number == len(FETCHES):
                among_many = size[run[chosen]][1:] >= _MANY_OPS
                longest_ps = np.where(among_many, _LONGEST_AMONG_MANY_PS, LONGEST_PAUSE_PS)
                stretches = joined(start[chosen], end[chosen], breaks, MOST if eagerly else longest_ps)
                parts.append(with_python_beside(stretches, start[chosen], starts, ends))
            elif chosen.any():
                run_times = joined(start[chosen], end[chosen], breaks, MOST)
                parts.append(with_python_around(run_times, starts, ends, BESIDE_READS))
    *fetches, stretches = map(union_all, times)
    is_left = kind_of_row == len(FETCHES)
    return fetches, rows[reads & ~is_left], stretches, rows[is_left]


def _by_callback(kinds: list[Intervals], callbacks: Intervals) -> tuple[list[Intervals], Intervals, Intervals]:
    """Assign each callback to the kind of runs that takes most of it, if runs take at least half of it.

    Return the runs, the callbacks that they contain, and the other callbacks with runs, which runs exclude.
    """
    inside = np.stack([overlap(times, callbacks.start, callbacks.end) for times in kinds])
    most, total = inside.argmax(axis=0), inside.sum(axis=0)
    of_runs = (total > 0) & (total >= _HALF * (callbacks.end - callbacks.start))
    some = _at(callbacks, total > 0)
    given = (_at(callbacks, of_runs & (most == kind)) for kind in range(len(kinds)))
    runs = [union_all([difference(times, some), whole]) for times, whole in zip(kinds, given, strict=True)]
    return runs, _at(callbacks, of_runs), _at(callbacks, ~of_runs & (total > 0))


def _at(times: Intervals, places: Bools) -> Intervals:
    return Intervals(times.start[places], times.end[places])


def with_python_beside(stretches: Intervals, ops: Int64s, start: Int64s, end: Int64s) -> Intervals:
    """Return stretches, the long ones extended by the Python around them; `ops` holds the start times of ops."""
    count = np.searchsorted(ops, stretches.end) - np.searchsorted(ops, stretches.start)
    is_long = count >= _MANY_OPS
    return union_all([_at(stretches, ~is_long), with_python_around(_at(stretches, is_long), start, end, _BESIDE_OPS)])


def with_python_around(runs: Intervals, start: Int64s, end: Int64s, part: int) -> Intervals:
    """Return runs extended into the time before and after them until the next event, at most 1/`part` of each run."""
    longest = (runs.end - runs.start) // part
    ends, starts = np.sort(end), np.sort(start)
    before = np.append(ends, -MOST)[np.searchsorted(ends, runs.start, side="right") - 1]
    after = np.append(starts, MOST)[np.searchsorted(starts, runs.end)]
    return union(np.maximum(runs.start - longest, before), np.minimum(runs.end + longest, after))


def joined(start: Int64s, end: Int64s, others: Int64s, longest_ps: int | Int64s = LONGEST_PAUSE_PS) -> Intervals:
    """Return events in time order, joined across short pauses in which no event of `others` starts."""
    begun = np.searchsorted(others, start)
    is_pause = (begun[1:] == begun[:-1]) & (start[1:] - end[:-1] <= longest_ps)
    until = end.copy()
    until[:-1][is_pause] = np.maximum(start[1:], end[:-1])[is_pause]
    return union(start, until)


def sum_eager_ops(parts: list[EagerOps]) -> EagerOps:
    """Add up the ops of several hosts; shares are of the steps of all hosts whose eager ops are known."""
    parts = [part for part in parts if part.is_recorded] or parts
    sums: dict[str, tuple[int, int]] = {}
    for part in parts:
        for name, calls, total_ps in zip(part.op_types, part.calls.tolist(), part.total_ps.tolist(), strict=True):
            calls_before, total_before = sums.get(name, (0, 0))
            sums[name] = (calls_before + calls, min(total_before + total_ps, MOST))
    ordered = sorted(sums, key=lambda name: (-sums[name][1], name))
    return EagerOps(
        op_types=tuple(ordered),
        calls=np.array([sums[name][0] for name in ordered], np.int64),
        total_ps=np.array([sums[name][1] for name in ordered], np.int64),
        steps=CountedSteps.joined([part.steps for part in parts]),
        eager_ps=np.concatenate([part.eager_ps for part in parts]),
        fetch_ps=np.concatenate([part.fetch_ps for part in parts], axis=1),
        variables=np.concatenate([part.variables for part in parts]),
        stretch_ps=np.concatenate([part.stretch_ps for part in parts]),
        stretch_calls=np.concatenate([part.stretch_calls for part in parts]),
        kernel_ps=np.concatenate([part.kernel_ps for part in parts]),
        held_ps=np.concatenate([part.held_ps for part in parts]),
        callback_ps=np.concatenate([part.callback_ps for part in parts]),
        step_calls=np.concatenate([part.step_calls for part in parts]),
        busy_ps=min(sum(part.busy_ps for part in parts), MOST),
        capture_ps=min(sum(part.capture_ps for part in parts), MOST),
        step_counts=tuple(count for part in parts for count in part.step_counts or (len(part.eager_ps),)),
        is_recorded=parts[0].is_recorded,
    )


def shorten_eager_ops(ops: EagerOps, most: int) -> EagerOps:
    """Return the `most` op types with the largest time, and one row for all others."""
    if len(ops.op_types) <= most:
        return ops
    return sum_eager_ops([replace(ops, op_types=(*ops.op_types[:most], *[_OTHER_OPS] * (len(ops.op_types) - most)))])


def _eager_rows(trace: HostTrace) -> tuple[Int64s, Int64s, tuple[str, ...]]:
    rows = eager_calls(trace)
    python_calls = trace.host_events(mask(trace.names, is_python_op))
    inside = np.zeros(len(rows), np.bool_)
    for line in distinct(trace.line_of[python_calls]).tolist():
        calls = python_calls[trace.line_of[python_calls] == line]
        on_line = np.flatnonzero(trace.line_of[rows] == line)
        inside[on_line] = covers(union(trace.start_ps[calls], trace.end_ps[calls]), trace.start_ps[rows[on_line]])
    rows = rows[~inside]
    indices: dict[str, int] = {}
    from_names = (name.removeprefix(NAMED) if name.startswith(NAMED) else "" for name in trace.names)
    # A missing stat is -1, which indexes the last entry: also -1.
    by_name, by_text = (
        [indices.setdefault(op, len(indices)) if op and not op.startswith(_OTHERS) else -1 for op in (*ops, "")]
        for ops in (from_names, trace.stat("eager_op").texts)
    )
    noted = np.array(by_text, np.int64)[trace.number_at("eager_op", rows, -1)]
    op_type = np.where(noted >= 0, noted, np.array(by_name, np.int64)[trace.name[rows]])
    return rows[op_type >= 0], op_type[op_type >= 0], tuple(indices)
