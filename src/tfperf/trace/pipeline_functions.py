"""Runs of the functions that a user gave to tf.data (`map`, `filter`, ...).

The event of a run ends, for an asynchronous one, as soon as the function is started. Its work is in executor events on
other threads that carry the same id; the last of them is its end.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tfperf.arrays import Bools, Int64s, distinct, lookup
from tfperf.trace.event_names import mask, parse_op
from tfperf.trace.host_trace import HostTrace

OpKey = tuple[int, str, str]
"""Stage, name and type of an op."""


class FunctionRuns(NamedTuple):
    """Runs of user functions: the stage that each belongs to (-1: unknown), from start to end, and its work.

    `busy` is the time that executors worked on it, on all threads together.
    """

    stage: Int64s
    start: Int64s
    end: Int64s
    busy: Int64s
    started: Int64s
    """Where the event on the thread of tf.data ends."""
    is_async: Bools
    """Whether the run was only started on the thread of tf.data."""
    ops: dict[OpKey, tuple[int, int]]
    """How often each op ran inside, and for how many picoseconds."""
    inner_ops: tuple[Int64s, Int64s]
    """Rows of the ops that ran inside, and the stage of each."""
    other_ops: Int64s
    """Rows of the ops on host threads that ran in none of them."""


def find_function_runs(trace: HostTrace, rows: Int64s, stage: Int64s) -> FunctionRuns:
    """Return the runs at `rows`, which belong to these stages."""
    ids = trace.number_at("id", rows)
    start, started = trace.start_ps[rows], trace.end_ps[rows]
    order = np.argsort(ids, kind="stable")
    work = trace.host_events(mask(trace.names, "ExecutorState::Process".__eq__))
    id_of_work = trace.number_at("id", work)
    place = np.where(id_of_work != 0, lookup(ids[order], id_of_work), -1)
    work, run_of_work = work[place >= 0], order[place[place >= 0]]
    end = started.copy()
    np.maximum.at(end, run_of_work, trace.end_ps[work])
    busy = np.bincount(run_of_work, weights=trace.duration_ps[work], minlength=len(rows)).astype(np.int64)
    asynchronous = mask(trace.names, "InstantiatedCapturedFunction::RunAsync".__eq__)
    inner_rows, inner_stages, other_rows = _ops_inside(trace, work, stage[run_of_work])
    busy = np.where(busy > 0, busy, started - start)
    is_async, ops = asynchronous[trace.name[rows]], _summed(trace, inner_rows, inner_stages)
    return FunctionRuns(stage, start, end, busy, started, is_async, ops, (inner_rows, inner_stages), other_rows)


def _ops_inside(trace: HostTrace, work: Int64s, stage: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Return the rows of the ops that ran in these executor events, their stages, and the rows of all other ops."""
    rows = trace.host_events(mask(trace.names, lambda name: parse_op(name).kind == "tensorflow"))
    if not len(rows) or not len(work):
        return rows[:0], rows[:0], rows
    # Both are in row order, where what an event contains follows it.
    before = np.searchsorted(work, rows) - 1
    holder = work[np.maximum(before, 0)]
    same_line = trace.line_of[holder] == trace.line_of[rows]
    inside = (before >= 0) & same_line & (trace.end_ps[rows] <= trace.end_ps[holder])
    return rows[inside], stage[before[inside]], rows[~inside]


def _summed(trace: HostTrace, rows: Int64s, stages: Int64s) -> dict[OpKey, tuple[int, int]]:
    sums: dict[OpKey, tuple[int, int]] = {}
    for stage in distinct(stages).tolist():
        of_stage = rows[stages == stage]
        counts = np.bincount(trace.name[of_stage])
        times = np.bincount(trace.name[of_stage], weights=trace.duration_ps[of_stage])
        for name in np.flatnonzero(counts).tolist():
            op = parse_op(trace.names[name])
            count, time = sums.get((stage, op.name, op.type), (0, 0))
            sums[stage, op.name, op.type] = count + int(counts[name]), time + int(times[name])
    return sums
