"""How often each op of a GPU ran: executions, not kernels, of which one execution may launch several.

The evidence, best first. An op is counted by the first that holds for all its kernels and copies, so that no count is
put together from two.

1. The event of the op on the host (`scope/MatMul:MatMul`, or an HLO op that XLA runs) around the call that launched
   them. It lies on the thread of the call, or, where the GPU library records its calls on lines of their own, on the
   line on which most calls of that line fall into such events.
2. The executor (`ExecutorState::Process`), or the call that runs an op eagerly, around the launching call: an op
   launches all it has on one thread, so calls that follow each other there for one op are one run.
3. The line of ops that the profiler derived for the device: an event of it is a run. It unites runs that follow each
   other, and splits one where streams take turns.
4. Nothing tells. Then what is counted are the kernels and copies themselves.

A capture that starts in the middle of a step lacks the calls of the first kernels. If the calls of at least half of the
kernels of an op are there, the others count by their order on the stream: those that follow each other are one run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tfperf.base.arrays import NO_NUMBERS, Bools, Int32s, Int64s, distinct
from tfperf.formats.wire.event_columns import OP_LINES, Line
from tfperf.trace.device.device_work import DeviceOp, DeviceWork
from tfperf.trace.event_names import mask, parse_op
from tfperf.trace.host.launches import launch_links
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.nesting import innermost_around

_MOST_LOST = 0.5
_BEYOND_ROWS = 1 << 40
_EXECUTORS = ("ExecutorState::Process", "EagerExecute", "EagerLocalExecute", "EagerKernelExecute")


class OpRuns(NamedTuple):
    """For each op of a `DeviceWork`: how often it ran; where that is unknown, how many kernels and copies it has."""

    runs: Int64s
    is_known: Bools


class _Launched(NamedTuple):
    """Device events whose op is known: the op (index into the ops), its text, and the call (host row, -1: unknown)."""

    op: Int64s
    text: Int64s
    call: Int64s

    def at(self, rows: Int64s) -> _Launched:
        """Return some of them."""
        return _Launched(self.op[rows], self.text[rows], self.call[rows])


class _Names(NamedTuple):
    """Which text each op goes by (index), and each name of the trace (-1: none of an op)."""

    of_op: Int64s
    of_name: Int64s


def op_runs(trace: HostTrace, work: DeviceWork) -> OpRuns:
    """Return how often each op ran."""
    places = np.flatnonzero(work.op >= 0)
    rows, op, ops = work.rows[places], work.op[places], len(work.ops)
    names = _names(trace, work.ops)
    events = _Launched(op, names.of_op[op], launch_links(trace, rows).of(rows))
    lost = _lost_calls(trace.line_of[rows], events)
    candidates = [
        _counted(op, np.where(lost >= 0, lost, _named_events(trace, events, names)), ops),
        _counted(op, np.where(lost >= 0, lost, _by_executor(trace, events)), ops),
        _on_op_lines(trace, names),
    ]
    runs, is_known = np.bincount(op, minlength=ops).astype(np.int64), np.zeros(ops, np.bool_)
    for candidate in candidates:
        better = (candidate > 0) & ~is_known
        runs, is_known = np.where(better, candidate, runs), is_known | better
    return OpRuns(runs, is_known)


def _names(trace: HostTrace, ops: tuple[DeviceOp, ...]) -> _Names:
    """Give each op a text: the HLO op that XLA runs, else the op of the framework."""
    index: dict[tuple[bool, str], int] = {}
    of_op = [index.setdefault((bool(op.hlo_op), op.hlo_op or op.name), len(index)) for op in ops]
    of_name = []
    for name in trace.names:
        framework = index.get((False, parse_op(name).name), -1) if ":" in name else -1
        of_name.append(framework if framework >= 0 else index.get((True, name), -1))
    return _Names(np.array(of_op, np.int64), np.array(of_name, np.int64))


def _counted(op: Int64s, run: Int64s, ops: int) -> Int64s:
    """Return how many distinct runs each op has; 0 for an op of which any event is in no run (-1)."""
    order = np.lexsort((run, op))
    op, run = op[order], run[order]
    is_first = np.ones(len(op), np.bool_)
    is_first[1:] = (op[1:] != op[:-1]) | (run[1:] != run[:-1])
    counts = np.bincount(op[is_first], minlength=ops)
    counts[op[run < 0]] = 0
    return counts.astype(np.int64)


def _lost_calls(line: Int32s, events: _Launched) -> Int64s:
    """Number the stretches of events without a call on a stream, for one op; -1 for all others.

    Numbers are beyond those of rows. Events are in the order of their streams.
    """
    is_lost = events.call < 0
    share = np.bincount(events.op, is_lost) / np.maximum(np.bincount(events.op), 1)
    is_new = np.ones(len(line), np.bool_)
    is_new[1:] = (line[1:] != line[:-1]) | (events.op[1:] != events.op[:-1]) | ~is_lost[:-1]
    return np.where(is_lost & (share[events.op] <= _MOST_LOST), _BEYOND_ROWS + np.cumsum(is_new), -1)


def _named_events(trace: HostTrace, events: _Launched, names: _Names) -> Int64s:
    """Return for each event the row of the host's event of its op around the call, -1 where there is none."""
    run = np.full(len(events.op), -1, np.int64)
    rows = trace.host_events(names.of_name >= 0)
    of_lines = [(line, rows[(rows >= line.start) & (rows < line.stop)]) for line in trace.host_lines]
    of_lines = [(line, on_line) for line, on_line in of_lines if len(on_line)]
    for line, places in _by_line(trace, events.call):
        launched, best = events.at(places), (0, np.full(len(places), -1, np.int64))
        # The thread of the calls comes first; of several lines with as many, the first counts.
        for _, on_line in sorted(of_lines, key=lambda each: each[0] != line):
            around = innermost_around(trace, on_line, launched.call)
            is_of_op = (around >= 0) & (names.of_name[trace.name[around]] == launched.text)
            matched = int(is_of_op.sum())
            if matched > best[0]:
                best = matched, np.where(is_of_op, around, -1)
            if 2 * best[0] > len(places):
                break
        run[places] = best[1]
    return run


def _by_executor(trace: HostTrace, events: _Launched) -> Int64s:
    """Number the stretches of calls of one op inside an event of `_EXECUTORS`; -1 for calls outside of any."""
    run = np.full(len(events.op), -1, np.int64)
    executors = trace.host_events(mask(trace.names, lambda name: name.startswith(_EXECUTORS)))
    first = 0
    for line, places in _by_line(trace, events.call):
        on_line = executors[(executors >= line.start) & (executors < line.stop)]
        if not len(on_line):
            continue
        around = innermost_around(trace, on_line, events.call[places])
        places, around = places[around >= 0], around[around >= 0]
        order = np.lexsort((events.op[places], events.call[places], around))
        places, around = places[order], around[order]
        op = events.op[places]
        is_new = np.ones(len(places), np.bool_)
        is_new[1:] = (around[1:] != around[:-1]) | (op[1:] != op[:-1])
        run[places] = first + np.cumsum(is_new) - 1
        first += len(places)
    return run


def _by_line(trace: HostTrace, call: Int64s) -> Iterator[tuple[Line, Int64s]]:
    """Iterate over lines with calls, and which of the calls are theirs."""
    known = np.flatnonzero(call >= 0)
    of_line = trace.line_of[call[known]]
    for index in distinct(of_line).tolist():
        yield trace.lines[index], known[of_line == index]


def _on_op_lines(trace: HostTrace, names: _Names) -> Int64s:
    """Return how many events of each op lie on lines of ops that the profiler derived for GPUs."""
    lines = [line for plane in trace.devices for line in trace.device_lines(plane, derived=True)]
    lines = [line for line in lines if line.name.partition(" - ")[0] in OP_LINES]
    name = np.concatenate([NO_NUMBERS, *(trace.name[line.start : line.stop] for line in lines)]).astype(np.int64)
    text = names.of_name[name]
    return np.bincount(text[text >= 0], minlength=int(names.of_op.max(initial=-1)) + 1)[names.of_op]
