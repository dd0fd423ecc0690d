"""tf.function calls: how often, how long, and whether Python was traced again.

A call that traces (mode `traced`) or runs eagerly is expensive; the share of such calls in a function's self time is
the figure that TensorFlow's overview warns about from 20 %.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tfperf.arrays import distinct
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.nesting import nest, self_time
from tfperf.units import PS_PER_MS

if TYPE_CHECKING:
    import pandas as pd

EXPENSIVE_PERCENT = 20.0
_MODES = ("traced", "notTraced", "eager", "concrete")


@dataclass(frozen=True)
class FunctionStats:
    """One tf.function; times in picoseconds, `calls` and `self_ps` by mode."""

    name: str
    calls: dict[str, int]
    self_ps: dict[str, int]
    tracing_count: int
    """How often the function had been traced since the program began, at the end of the capture."""
    xla: bool

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


@dataclass(frozen=True)
class Functions:
    """All tf.functions called, the one with the largest self time first."""

    functions: tuple[FunctionStats, ...]

    @property
    def table(self) -> pd.DataFrame:
        """Return one row per function, times in milliseconds."""
        import pandas as pd

        return pd.DataFrame(self.columns())

    def columns(self) -> dict[str, object]:
        """Return the columns of `table` without pandas."""
        rows = self.functions
        return {
            "function": [row.name for row in rows],
            "calls": [row.call_count for row in rows],
            **{f"{key}_calls": [row.calls.get(mode, 0) for row in rows] for key, mode in
               (("traced", "traced"), ("not_traced", "notTraced"), ("eager", "eager"), ("concrete", "concrete"))},
            "tracing_count": [row.tracing_count for row in rows],
            "compiler": ["XLA" if row.xla else "" for row in rows],
            "self_ms": [row.total_self_ps / PS_PER_MS for row in rows],
            "expensive_call_percent": [row.expensive_percent for row in rows],
        }  # fmt: skip


def analyze(trace: HostTrace) -> Functions:
    """Sum the tf.function calls of a host, nested calls apart from the call around them."""
    stat = trace.stat("tf_function_call")
    rows, own = stat.event.astype(np.int64), np.zeros(len(stat.event), np.int64)
    line_of = trace.line_of[rows] if len(rows) else rows
    for line in distinct(line_of):
        mine = np.flatnonzero(line_of == line)
        found = nest(trace.start_ps[rows[mine]], trace.end_ps[rows[mine]])
        own[mine] = self_time(trace.duration_ps[rows[mine]], found.parent)
    tracing = trace.number("tracing_count", 0)[rows]
    keys, which = np.unique(np.stack((trace.name[rows], stat.value)), axis=1, return_inverse=True)
    which = which.reshape(-1)
    parts = []
    for index, (name, mode) in enumerate(keys.T.tolist()):
        mine = which == index
        call, _, compiler = stat.texts[mode].partition("-")
        parts.append(FunctionStats(
            trace.names[name], {call: int(mine.sum())}, {call: int(own[mine].sum())}, int(tracing[mine].max()),
            compiler == "xla",
        ))  # fmt: skip
    return _merge(parts)


def combine(parts: list[Functions]) -> Functions:
    """Add up the calls of several hosts."""
    return _merge([function for part in parts for function in part.functions])


def _merge(parts: list[FunctionStats]) -> Functions:
    merged: dict[str, FunctionStats] = {}
    for part in parts:
        old = merged.get(part.name, FunctionStats(part.name, {}, {}, 0, False))
        merged[part.name] = FunctionStats(
            part.name, _plus(old.calls, part.calls), _plus(old.self_ps, part.self_ps),
            max(old.tracing_count, part.tracing_count), old.xla or part.xla,
        )  # fmt: skip
    return Functions(tuple(sorted(merged.values(), key=lambda row: (-row.total_self_ps, row.name))))


def _plus(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
    return {key: a.get(key, 0) + b.get(key, 0) for key in (*a, *(key for key in b if key not in a))}
