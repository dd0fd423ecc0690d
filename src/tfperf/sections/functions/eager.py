"""Ops that Python runs eagerly, one by one, outside any tf.function: how many in a step, and how much of its time.

`EagerExecute` is the host's side of running an op or a function. Newer TensorFlow says by `is_func` which it is and by
`eager_op` what is run; older TensorFlow has it in the name (`EagerExecute: LogicalAnd`). Fetching a batch is not
counted: it is input, however it is called; and what a `py_function` of the input pipeline runs is no part of the step.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from tfperf.arrays import MOST, Bools, Int64s, covers, distinct, overlap, union
from tfperf.report.model import Data
from tfperf.sections.steps.counted import CountedSteps
from tfperf.sections.tabular import Tabular
from tfperf.trace.eager_events import NAMED, eager_calls, notes_running
from tfperf.trace.event_names import is_python_op, mask
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.steps import Steps
from tfperf.units import PS_PER_MS

_OTHERS = ("__inference_", "IteratorGetNext")
"""Calls of functions, and fetches: they do not count as eager ops of the program."""
_OTHER_OPS = "(other ops)"


class EagerOps(Tabular, frozen=True, kw_only=True):
    """Ops run eagerly by type, the one with the most time first; times in picoseconds.

    `eager_ps` is the wall time of each step in which an op runs eagerly, `step_calls` the ops run eagerly in it.
    """

    home = ("functions", "eager_ops")

    op_types: tuple[str, ...]
    calls: Int64s
    total_ps: Int64s
    steps: CountedSteps
    eager_ps: Int64s
    step_calls: Int64s
    busy_ps: int = 0
    capture_ps: int = 0
    """The wall time in which an op runs eagerly, steps or not, and that of the capture."""
    is_recorded: bool = True
    """False: the trace holds no event of running anything from Python, so nothing is known."""

    @property
    def percent(self) -> float | None:
        """Return the share of the step time in which an op runs eagerly; None is unknown."""
        return self.steps.percent(self.eager_ps) if self.is_recorded else None

    @property
    def calls_per_step(self) -> float | None:
        """Return how many ops a step runs eagerly; None is unknown."""
        count = self.steps.count
        return self.steps.sum(self.step_calls) / count if count and self.is_recorded else None

    @property
    def percent_of_capture(self) -> float | None:
        """Return the share of the capture in which an op runs eagerly; None is unknown."""
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
    """Find the ops that the host ran eagerly, and what they take of its steps."""
    rows, op_type, names = _eager_rows(trace)
    busy = union(trace.start_ps[rows], trace.end_ps[rows])
    first, last = np.searchsorted(np.sort(trace.start_ps[rows]), (steps.start_ps, steps.end_ps))
    calls = np.bincount(op_type, minlength=len(names)).astype(np.int64)
    total = np.bincount(op_type, weights=trace.duration_ps[rows], minlength=len(names))
    called = np.flatnonzero(calls).tolist()
    order = np.array(sorted(called, key=lambda index: (-total[index], names[index])), np.int64)
    return EagerOps(
        op_types=tuple(names[index] for index in order.tolist()),
        calls=calls[order],
        total_ps=np.minimum(total[order], MOST).astype(np.int64),
        steps=CountedSteps.of(steps),
        eager_ps=overlap(busy, steps.start_ps, steps.end_ps),
        step_calls=last - first,
        busy_ps=busy.total(),
        capture_ps=trace.extent_ps[1] - trace.extent_ps[0],
        is_recorded=notes_running(trace),
    )


def sum_eager_ops(parts: list[EagerOps]) -> EagerOps:
    """Add up the ops of several hosts; shares are of the steps of all hosts."""
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
        step_calls=np.concatenate([part.step_calls for part in parts]),
        busy_ps=min(sum(part.busy_ps for part in parts), MOST),
        capture_ps=min(sum(part.capture_ps for part in parts), MOST),
        is_recorded=any(part.is_recorded for part in parts),
    )


def shorten_eager_ops(ops: EagerOps, most: int) -> EagerOps:
    """Return so many types of ops, those that take most time, and one row for all others."""
    if len(ops.op_types) <= most:
        return ops
    return sum_eager_ops([replace(ops, op_types=(*ops.op_types[:most], *[_OTHER_OPS] * (len(ops.op_types) - most)))])


def _eager_rows(trace: HostTrace) -> tuple[Int64s, Int64s, tuple[str, ...]]:
    """Return the rows of eagerly run ops, for each the index of its op type, and the op types."""
    rows = eager_calls(trace)
    rows = rows[~_inside_python(trace, rows)]
    indices: dict[str, int] = {}
    from_names = (name.removeprefix(NAMED) if name.startswith(NAMED) else "" for name in trace.names)
    # A missing stat is -1, so it takes what stands last: -1 again.
    by_name, by_text = (
        [indices.setdefault(op, len(indices)) if op and not op.startswith(_OTHERS) else -1 for op in (*ops, "")]
        for ops in (from_names, trace.stat("eager_op").texts)
    )
    noted = np.array(by_text, np.int64)[trace.number_at("eager_op", rows, -1)]
    op_type = np.where(noted >= 0, noted, np.array(by_name, np.int64)[trace.name[rows]])
    return rows[op_type >= 0], op_type[op_type >= 0], tuple(indices)


def _inside_python(trace: HostTrace, rows: Int64s) -> Bools:
    python_calls = trace.host_events(mask(trace.names, is_python_op))
    inside = np.zeros(len(rows), np.bool_)
    for line in distinct(trace.line_of[python_calls]).tolist():
        calls = python_calls[trace.line_of[python_calls] == line]
        on_line = np.flatnonzero(trace.line_of[rows] == line)
        inside[on_line] = covers(union(trace.start_ps[calls], trace.end_ps[calls]), trace.start_ps[rows[on_line]])
    return inside
