"""Ops that Python runs eagerly, one by one, outside any tf.function: how many in a step, and how much of its time.

`EagerExecute` is the host's side of running an op or a function. Newer TensorFlow says by `is_func` which it is and by
`eager_op` what is run; older TensorFlow has it in the name (`EagerExecute: LogicalAnd`). Fetching a batch is not
counted: it is input, however it is called; and what a `py_function` of the input pipeline runs is no part of the step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tfperf.arrays import MOST, Bools, Int64s, distinct
from tfperf.intervals import covers, overlap, union
from tfperf.trace.eager_events import NAMED, eager_calls, notes_running
from tfperf.trace.event_names import mask
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.steps import Steps
from tfperf.units import PS_PER_MS

if TYPE_CHECKING:
    import pandas as pd

EAGER_PERCENT = 10.0
"""Share of eager execution from which TensorFlow's overview gives advice."""
_FUNCTION, _FETCH, _PYTHON = "__inference_", "IteratorGetNext", ":EagerPyFunc"


@dataclass(frozen=True)
class Eager:
    """Eagerly run ops, the one with the most time first; times in picoseconds.

    `share_ps` is the wall time of the averaged steps in which an op runs eagerly, `step_time_ps` the time of these
    steps, `step_calls` the ops run eagerly in them.
    """

    ops: tuple[str, ...]
    calls: Int64s
    total_ps: Int64s
    share_ps: int
    step_time_ps: int
    step_count: int
    step_calls: int
    recorded: bool = True
    """False: the trace holds no event of running anything from Python, so nothing is known."""

    @property
    def percent(self) -> float | None:
        """Return the share of the step time in which an op runs eagerly; None if not known."""
        return 100.0 * self.share_ps / self.step_time_ps if self.step_time_ps and self.recorded else None

    @property
    def calls_per_step(self) -> float | None:
        """Return how many ops a step runs eagerly; None if not known."""
        return self.step_calls / self.step_count if self.step_count and self.recorded else None

    @property
    def table(self) -> pd.DataFrame:
        """Return one row per op, times in milliseconds."""
        import pandas as pd

        return pd.DataFrame(self.columns())

    def columns(self) -> dict[str, object]:
        """Return the columns of `table` without pandas."""
        return {
            "op_type": list(self.ops),
            "calls": self.calls.tolist(),
            "total_ms": (self.total_ps / PS_PER_MS).tolist(),
            "mean_ms": (self.total_ps / np.maximum(self.calls, 1) / PS_PER_MS).tolist(),
        }


def analyze(trace: HostTrace, steps: Steps) -> Eager:
    """Find the ops that the host ran eagerly, and what they take of its averaged steps."""
    rows, op, names = _eager_rows(trace)
    counted = steps.averaged & (np.array(steps.kinds, object) == steps.headline_kind)
    begin, end = steps.start_ps[counted], steps.end_ps[counted]
    busy = union(trace.start_ps[rows], trace.end_ps[rows])
    first, last = np.searchsorted(np.sort(trace.start_ps[rows]), (begin, end))
    calls = np.bincount(op, minlength=len(names)).astype(np.int64)
    total = np.bincount(op, weights=trace.duration_ps[rows], minlength=len(names))
    order = np.array(sorted(np.flatnonzero(calls).tolist(), key=lambda at: (-total[at], names[at])), np.int64)
    return Eager(
        tuple(names[at] for at in order.tolist()), calls[order], np.minimum(total[order], MOST).astype(np.int64),
        int(overlap(busy, begin, end).sum()), int((end - begin).sum()), len(begin), int((last - first).sum()),
        notes_running(trace),
    )  # fmt: skip


def combine(parts: list[Eager]) -> Eager:
    """Add up the ops of several hosts; shares are of the steps of all hosts."""
    sums: dict[str, list[int]] = {}
    for part in parts:
        for name, calls, total in zip(part.ops, part.calls.tolist(), part.total_ps.tolist(), strict=True):
            before = sums.setdefault(name, [0, 0])
            sums[name] = [before[0] + calls, min(before[1] + total, MOST)]
    order = sorted(sums, key=lambda name: (-sums[name][1], name))
    numbers = np.array([sums[name] for name in order], np.int64).reshape(-1, 2)
    return Eager(
        tuple(order), numbers[:, 0], numbers[:, 1], sum(part.share_ps for part in parts),
        sum(part.step_time_ps for part in parts), sum(part.step_count for part in parts),
        sum(part.step_calls for part in parts), any(part.recorded for part in parts),
    )  # fmt: skip


def _eager_rows(trace: HostTrace) -> tuple[Int64s, Int64s, tuple[str, ...]]:
    """Return the rows of eagerly run ops, for each the index of its op type, and the op types."""
    rows = eager_calls(trace)
    rows = rows[~_inside_python(trace, rows)]
    known: dict[str, int] = {}
    named = (name.removeprefix(NAMED) if name.startswith(NAMED) else "" for name in trace.names)
    by_name, by_text = (
        np.array([known.setdefault(op, len(known)) if _counts(op) else -1 for op in (*ops, "")], np.int64)
        for ops in (named, trace.stat("eager_op").texts)
    )
    told = by_text[trace.number_at("eager_op", rows, -1)]
    op = np.where(told >= 0, told, by_name[trace.name[rows]])
    return rows[op >= 0], op[op >= 0], tuple(known)


def _counts(op_type: str) -> bool:
    """Tell whether running this eagerly is the program's doing: neither a call of a function nor a fetch."""
    return bool(op_type) and not op_type.startswith((_FUNCTION, _FETCH))


def _inside_python(trace: HostTrace, rows: Int64s) -> Bools:
    """Tell which events lie inside a `py_function` on their thread."""
    calls = trace.host_events(mask(trace.names, lambda name: name.endswith(_PYTHON))).astype(np.int64)
    inside = np.zeros(len(rows), np.bool_)
    for line in distinct(trace.line_of[calls]).tolist() if len(calls) else ():
        own, mine = calls[trace.line_of[calls] == line], np.flatnonzero(trace.line_of[rows] == line)
        inside[mine] = covers(union(trace.start_ps[own], trace.end_ps[own]), trace.start_ps[rows[mine]])
    return inside
