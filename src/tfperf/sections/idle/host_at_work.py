"""Which event of which host thread was at work in a gap, for the few gaps that are listed."""

from __future__ import annotations

import numpy as np

from tfperf.arrays import NO_NUMBERS, Int64s
from tfperf.intervals import union
from tfperf.sections.idle.device_gaps import CAUSE_OF_STATE
from tfperf.trace.host_state import HostStates
from tfperf.trace.host_trace import HostTrace

_MOSTLY = 0.5


def rows_at_work(trace: HostTrace, states: HostStates, start_ps: Int64s, end_ps: Int64s, cause: Int64s) -> Int64s:
    """Return, for each gap, the host row that was at work for its cause the longest; -1: none.

    Gaps [start_ps, end_ps) are disjoint and ascend; `cause` is an index into `CAUSES`, -1 asks for nothing. Of the
    events of that thread, the innermost is taken that covers at least half as much (`_MOSTLY`), since it tells more.
    """
    at_work = np.full(len(start_ps), -1, np.int64)
    rows = _rows_within(trace, states, start_ps[cause >= 0], end_ps[cause >= 0])
    first = np.searchsorted(end_ps, trace.start_ps[rows], side="right")
    count = np.maximum(np.searchsorted(start_ps, trace.end_ps[rows]) - first, 0)
    gap = np.repeat(first - np.cumsum(count) + count, count) + np.arange(int(count.sum()))
    rows = np.repeat(rows, count)
    is_of_cause = CAUSE_OF_STATE[states.code[rows]] == cause[gap]
    gap, rows = gap[is_of_cause], rows[is_of_cause]
    shared = np.minimum(trace.end_ps[rows], end_ps[gap]) - np.maximum(trace.start_ps[rows], start_ps[gap])
    gap, rows, shared = gap[shared > 0], rows[shared > 0], shared[shared > 0]
    order = np.lexsort((shared, gap))
    most, line = np.zeros(len(start_ps), np.int64), np.zeros(len(start_ps), np.int64)
    # Where an index comes several times, the value written last stays: the largest share, the innermost event.
    most[gap[order]], line[gap[order]] = shared[order], trace.line_of[rows[order]]
    is_close = (trace.line_of[rows] == line[gap]) & (shared >= _MOSTLY * most[gap])
    gap, rows = gap[is_close], rows[is_close]
    order = np.argsort(rows, kind="stable")
    at_work[gap[order]] = rows[order]
    return at_work


def _rows_within(trace: HostTrace, states: HostStates, start_ps: Int64s, end_ps: Int64s) -> Int64s:
    """Return the host rows that say what their thread does and that overlap any of the gaps."""
    gaps = union(start_ps, end_ps)
    if not len(gaps.start):
        return NO_NUMBERS
    parts = []
    for line in trace.host_lines:
        rows = np.flatnonzero(states.code[line.start : line.stop]) + line.start
        last = np.searchsorted(gaps.start, trace.end_ps[rows]) - 1
        parts.append(rows[(last >= 0) & (gaps.end[np.maximum(last, 0)] > trace.start_ps[rows])])
    return np.concatenate([NO_NUMBERS, *parts])
