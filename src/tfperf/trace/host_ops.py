"""Ops on host threads: how often each ran and how long, and when the ops of the input pipeline worked themselves.

Ops nest on their thread, so self time is without the ops inside. Attribution `tensorflow` nests them as TensorFlow's
profiler did, with what it loses (`nest_on_stack`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tfperf.intervals import Int64s
from tfperf.trace.activities import Attribution
from tfperf.trace.groups import stored_groups
from tfperf.trace.model import NO_EVENTS, Bools, HostTrace
from tfperf.trace.names import Op, is_python_frame, parse_op
from tfperf.trace.nesting import Stacked, nest, nest_on_stack, self_time

_MOST = float(1 << 62)
"""Impossible times of a damaged file may add up to more than an int64 holds."""


class Work(NamedTuple):
    """Stretches of time in which an op worked itself: `name` as in the trace, `begin` and `end` in picoseconds."""

    name: Int64s
    begin: Int64s
    end: Int64s


@dataclass(frozen=True)
class HostOps:
    """For each name of the trace, which op it is and what its events add up to over all threads (picoseconds)."""

    ops: tuple[Op, ...]
    count: Int64s
    total_ps: Int64s
    self_ps: Int64s
    threads: Int64s
    """On how many threads the name occurs."""
    input_work: Work
    """When ops of the input pipeline worked; on each thread without the ops inside them."""


def is_input_op(op: Op) -> bool:
    """Tell whether an op reads or prepares input, or hands it to a device."""
    return op.type in ("Dataset", "MemcpyHToD") or op.type.startswith("InfeedEnqueue")


def host_ops(trace: HostTrace, attribution: Attribution = "corrected") -> HostOps:
    """Sum up the ops of all host threads."""
    old = attribution == "tensorflow" and stored_groups(trace) is not None
    ops = tuple(Op("", name, "") if is_python_frame(name) else parse_op(name, old_names=old) for name in trace.names)
    is_op = np.array([bool(op.kind) for op in ops], np.bool_)
    is_input = np.array([bool(op.kind) and is_input_op(op) for op in ops], np.bool_)
    count, total, own, threads = np.zeros((4, len(ops)))
    work: list[Work] = []
    for line in trace.host_lines:
        rows = np.flatnonzero(is_op[trace.name[line.start : line.stop]]) + line.start
        if not len(rows):
            continue
        name, begin, end = trace.name[rows], trace.begin_ps[rows], trace.end_ps[rows]
        parent, kept = _nested(begin, end, attribution)
        names, duration, own_time = name[kept], (end - begin)[kept], self_time(end - begin, parent)[kept]
        here = np.bincount(names, minlength=len(ops))
        count, threads = count + here, threads + (here > 0)
        total += np.bincount(names, weights=duration, minlength=len(ops))
        own += np.bincount(names, weights=own_time, minlength=len(ops))
        wanted = is_input[name] & kept
        if wanted.any():
            at, begin, end = _without_children(begin, end, parent, wanted)
            work.append(Work(name[at].astype(np.int64), begin, end))
    sums = np.minimum((count, total, own, threads), _MOST).astype(np.int64)
    return HostOps(ops, sums[0], sums[1], sums[2], sums[3], _joined(work))


def _nested(begin: Int64s, end: Int64s, attribution: Attribution) -> Stacked:
    if attribution == "tensorflow":
        return nest_on_stack(begin, end)
    return Stacked(nest(begin, end).parent, np.ones(len(begin), np.bool_))


def _without_children(begin: Int64s, end: Int64s, parent: Int64s, wanted: Bools) -> tuple[Int64s, Int64s, Int64s]:
    """Return the parts of the wanted events that no child covers: row, begin and end of each part.

    Children of one parent follow each other, so a part lies before each child, and one behind the last.
    """
    child = np.flatnonzero((parent >= 0) & wanted[parent])
    child = child[np.argsort(parent[child], kind="stable")]
    above = parent[child]
    is_next = above[1:] == above[:-1]
    before = begin[above]
    before[1:][is_next] = end[child[:-1]][is_next]
    rest = np.flatnonzero(wanted)
    behind = begin.copy()
    is_last = np.append(~is_next, True)[: len(child)]
    behind[above[is_last]] = end[child[is_last]]
    row, start, stop = (
        np.concatenate(parts) for parts in ((above, rest), (before, behind[rest]), (begin[child], end[rest]))
    )
    some = stop > start
    return row[some], start[some], stop[some]


def _joined(work: list[Work]) -> Work:
    return Work(*(np.concatenate([NO_EVENTS, *(part[at] for part in work)]) for at in range(3)))
