"""Which event of which host thread was at work in a gap, for the few gaps that are listed."""

from __future__ import annotations

import numpy as np

from tfperf.arrays import NO_NUMBERS, Int64s
from tfperf.intervals import union
from tfperf.trace.host_state import HostStates
from tfperf.trace.host_trace import HostTrace

_MOSTLY = 0.5


def at_work(
    trace: HostTrace, states: HostStates, cause_of_state: Int64s, begin: Int64s, end: Int64s, cause: Int64s
) -> Int64s:
    """Return, for each gap, the host row that was at work for its cause the longest; -1: none.

    Gaps [begin, end) are disjoint and ascend. Of the events of that thread, the innermost is taken that covers at least
    half as much (`_MOSTLY`), since it tells more; `cause` -1 asks for nothing.
    """
    found = np.full(len(begin), -1, np.int64)
    rows = _rows_within(trace, states, begin[cause >= 0], end[cause >= 0])
    first = np.searchsorted(end, trace.start_ps[rows], side="right")
    count = np.maximum(np.searchsorted(begin, trace.end_ps[rows]) - first, 0)
    gap = np.repeat(first - np.cumsum(count) + count, count) + np.arange(int(count.sum()))
    rows = np.repeat(rows, count)
    fits = cause_of_state[states.code[rows]] == cause[gap]
    gap, rows = gap[fits], rows[fits]
    shared = np.minimum(trace.end_ps[rows], end[gap]) - np.maximum(trace.start_ps[rows], begin[gap])
    gap, rows, shared = gap[shared > 0], rows[shared > 0], shared[shared > 0]
    order = np.lexsort((shared, gap))
    most, line = np.zeros(len(begin), np.int64), np.zeros(len(begin), np.int64)
    # Where an index comes several times, the value written last stays: the largest share, the innermost event.
    most[gap[order]], line[gap[order]] = shared[order], trace.line_of[rows[order]]
    close = (trace.line_of[rows] == line[gap]) & (shared >= _MOSTLY * most[gap])
    gap, rows = gap[close], rows[close]
    order = np.argsort(rows, kind="stable")
    found[gap[order]] = rows[order]
    return found


def _rows_within(trace: HostTrace, states: HostStates, begin: Int64s, end: Int64s) -> Int64s:
    """Return the host rows that say what their thread does and that overlap any of the gaps."""
    wanted = union(begin, end)
    if not len(wanted.start):
        return NO_NUMBERS
    parts = []
    for line in trace.host_lines:
        rows = np.flatnonzero(states.code[line.start : line.stop]) + line.start
        last = np.searchsorted(wanted.start, trace.end_ps[rows]) - 1
        parts.append(rows[(last >= 0) & (wanted.end[np.maximum(last, 0)] > trace.start_ps[rows])])
    return np.concatenate([NO_NUMBERS, *parts])
