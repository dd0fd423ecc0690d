"""tf.function calls: how often, how long, and whether Python was traced again.

A call that traces (mode `traced`) or runs eagerly is expensive; the share of such calls in a function's self time is
the figure that TensorFlow's overview warns about from 20 %.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from msgspec import Struct

from tfperf.arrays import Int64s, distinct
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.nesting import nest, self_time


class FunctionStats(Struct, frozen=True):
    """One tf.function; times in picoseconds, `calls` and `self_ps` by mode as the trace names it."""

    name: str
    calls: dict[str, int]
    self_ps: dict[str, int]
    tracing_count: int
    """How often the function had been traced since the program started, at the end of the capture."""
    is_compiled: bool
    """Whether XLA compiled it, in any call."""

    @property
    def call_count(self) -> int:
        """Return the number of calls."""
        return sum(self.calls.values())

    @property
    def total_self_ps(self) -> int:
        """Return the self time of all calls."""
        return sum(self.self_ps.values())

    @property
    def expensive_percent(self) -> float:
        """Return the part of the self time spent in calls that trace or run eagerly."""
        expensive = self.self_ps.get("traced", 0) + self.self_ps.get("eager", 0)
        return 100.0 * expensive / self.total_self_ps if self.total_self_ps else 0.0


def count_calls(trace: HostTrace) -> tuple[FunctionStats, ...]:
    """Sum the tf.function calls of a host, nested calls apart from the call around them."""
    stat = trace.stat("tf_function_call")
    rows = stat.event.astype(np.int64)
    self_ps = _self_times(trace, rows)
    tracing = trace.number("tracing_count", 0)[rows]
    keys, which = np.unique(np.stack((trace.name[rows], stat.value)), axis=1, return_inverse=True)
    which = which.reshape(-1)
    parts = []
    for index, (name, text) in enumerate(keys.T.tolist()):
        calls = which == index
        mode, _, compiler = stat.texts[text].partition("-")
        parts.append(
            FunctionStats(
                trace.names[name],
                {mode: int(calls.sum())},
                {mode: int(self_ps[calls].sum())},
                int(tracing[calls].max()),
                compiler == "xla",
            )
        )
    return sum_calls(parts)


def _self_times(trace: HostTrace, rows: Int64s) -> Int64s:
    """Return how long each call of a tf.function took without the calls inside it, on its thread."""
    self_ps = np.zeros(len(rows), np.int64)
    line_of = trace.line_of[rows] if len(rows) else rows
    for line in distinct(line_of):
        on_line = np.flatnonzero(line_of == line)
        nesting = nest(trace.start_ps[rows[on_line]], trace.end_ps[rows[on_line]])
        self_ps[on_line] = self_time(trace.duration_ps[rows[on_line]], nesting.parent)
    return self_ps


def sum_calls(parts: Iterable[FunctionStats]) -> tuple[FunctionStats, ...]:
    """Add up what belongs to one function; the one with the largest self time comes first."""
    sums: dict[str, FunctionStats] = {}
    for part in parts:
        before = sums.get(part.name, FunctionStats(part.name, {}, {}, 0, False))
        sums[part.name] = FunctionStats(
            part.name,
            _plus(before.calls, part.calls),
            _plus(before.self_ps, part.self_ps),
            max(before.tracing_count, part.tracing_count),
            before.is_compiled or part.is_compiled,
        )
    return tuple(sorted(sums.values(), key=lambda function: (-function.total_self_ps, function.name)))


def _plus(first: dict[str, int], second: dict[str, int]) -> dict[str, int]:
    return {mode: first.get(mode, 0) + second.get(mode, 0) for mode in {**first, **second}}
