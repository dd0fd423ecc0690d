"""Runs of the functions that a user gave to tf.data (`map`, `filter`, ...).

The event of a run ends, for an asynchronous one, as soon as the function is started. Its work is in executor events on
other threads that carry the same id; the last of them is its end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tfperf.arrays import Bools, Int64s, distinct
from tfperf.trace.event_names import mask, parse_op
from tfperf.trace.host_trace import HostTrace


@dataclass(frozen=True)
class FunctionRuns:
    """Runs of user functions: the stage that each belongs to (-1: not known), from start to end, and its work.

    `busy` is the time that executors worked on it, on all threads together.
    """

    stage: Int64s
    begin: Int64s
    end: Int64s
    busy: Int64s
    own_end: Int64s
    """Where the event on the thread of tf.data ends."""
    is_async: Bools
    """Whether the run was only started on the thread of tf.data."""
    ops: dict[tuple[int, str, str], tuple[int, int]]
    """(stage, op name, op type) -> how often it ran inside, and picoseconds."""
    inner_ops: tuple[Int64s, Int64s]
    """Rows of the ops that ran inside, and the stage of each."""
    other_ops: Int64s
    """Rows of the ops on host threads that ran in none of them."""

    def __len__(self) -> int:
        """Return the number of runs."""
        return len(self.stage)


def find_function_runs(trace: HostTrace, rows: Int64s, stage: Int64s) -> FunctionRuns:
    """Return the runs at `rows`, which belong to these stages."""
    ids = trace.number_at("id", rows)
    begin, own_end = trace.start_ps[rows], trace.end_ps[rows]
    order = np.argsort(ids, kind="stable")
    work = trace.host_events(mask(trace.names, "ExecutorState::Process".__eq__)).astype(np.int64)
    run_of_work = _matching(ids[order], order, trace.number_at("id", work))
    known = run_of_work >= 0
    work, run_of_work = work[known], run_of_work[known]
    end = own_end.copy()
    np.maximum.at(end, run_of_work, trace.end_ps[work])
    busy = np.bincount(run_of_work, weights=trace.duration_ps[work], minlength=len(rows)).astype(np.int64)
    busy = np.where(busy > 0, busy, own_end - begin)
    is_async = mask(trace.names, lambda name: name == "InstantiatedCapturedFunction::RunAsync")[trace.name[rows]]
    return FunctionRuns(stage, begin, end, busy, own_end, is_async, *_ops_inside(trace, work, stage[run_of_work]))


def _matching(ids: Int64s, order: Int64s, wanted: Int64s) -> Int64s:
    """Return, for each id, the index of the run with it (-1: none); `ids` is sorted, `order` leads back to runs."""
    if not len(ids):
        return np.full(len(wanted), -1, np.int64)
    place = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    return np.where((ids[place] == wanted) & (wanted != 0), order[place], -1)


def _ops_inside(
    trace: HostTrace, work: Int64s, stage: Int64s
) -> tuple[dict[tuple[int, str, str], tuple[int, int]], tuple[Int64s, Int64s], Int64s]:
    """Sum the ops that ran in these executor events, by stage; return also the rows of these and of the other ops."""
    is_op = mask(trace.names, lambda name: parse_op(name).kind == "tensorflow")
    rows = trace.host_events(is_op).astype(np.int64)
    if not len(rows) or not len(work):
        return {}, (rows[:0], rows[:0]), rows
    # Both are in row order, where what an event contains follows it.
    before = np.searchsorted(work, rows) - 1
    holder = work[np.maximum(before, 0)]
    inside = (
        (before >= 0) & (trace.line_of[holder] == trace.line_of[rows]) & (trace.end_ps[rows] <= trace.end_ps[holder])
    )
    others = rows[~inside]
    rows, owner = rows[inside], stage[before[inside]]
    found: dict[tuple[int, str, str], tuple[int, int]] = {}
    for own in distinct(owner).tolist():
        mine = rows[owner == own]
        counts = np.bincount(trace.name[mine])
        times = np.bincount(trace.name[mine], weights=trace.duration_ps[mine])
        for name in np.flatnonzero(counts).tolist():
            op = parse_op(trace.names[name])
            so_far = found.get((own, op.name, op.type), (0, 0))
            found[own, op.name, op.type] = so_far[0] + int(counts[name]), so_far[1] + int(times[name])
    return found, (rows, owner), others
