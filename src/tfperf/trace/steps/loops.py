"""Loops of a program that run at the same time, on threads of their own."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Bools, Int64s, distinct, median, touches, union
from tfperf.base.units import PS_PER_MS, counted, format_number
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.steps.turns import AGREEMENT, smallest_period

_AT_ONCE = 0.02
"""Share of the calls of a loop during which a call of another one runs, if the two take no turns."""


class OtherLoop(Struct, frozen=True):
    """A loop whose steps are not those of the report: it runs at the same time on another thread."""

    event: str
    count: int
    median_ps: int

    def described(self, main: str) -> str:
        """Return a sentence about it, for a report whose steps are events called `main`."""
        each = format_number(self.median_ps / PS_PER_MS)
        text = (
            f"Another thread runs a loop of its own at the same time ({self.event}: {counted(self.count, 'time')}, "
            f"median {each} ms). Steps and rates do not include it"
        )
        return f"{text}; --step-marker '{self.event}' analyzes it instead." if self.event != main else f"{text}."


def loop_of(trace: HostTrace, rows: Int64s, function: Int64s, name: Int64s) -> Int64s:
    """Return for each call (`rows`, in time order) which loop it belongs to; loop 0 takes most time.

    A loop is the calls of one thread, or of several threads that call the same functions (those that hand work to
    workers). Threads of which only one is in a call at a time take turns, unless each repeats by itself and both
    together do not, and threads that call functions of the same names in lockstep run the replicas of one step: each of
    these is one loop.
    """
    loop = _threads_of_functions(trace.line_of[rows].astype(np.int64), function)
    time = np.bincount(loop, weights=trace.duration_ps[rows])
    start, end = trace.start_ps[rows], trace.end_ps[rows]
    kept: list[int] = []
    for number in np.argsort(-time, kind="stable").tolist():
        mine = loop == number
        for earlier in kept:
            other = loop == earlier
            at_once = touches(union(start[other], end[other]), start[mine], end[mine])
            take_turns = float(at_once.mean()) <= _AT_ONCE and _repeats_as_one(mine, other, name)
            if take_turns or _in_lockstep(loop, number, earlier, name):
                loop[mine] = earlier
                break
        else:
            kept.append(number)
    number_of = np.zeros(max(kept, default=0) + 1, np.int64)
    number_of[kept] = np.arange(len(kept))
    return np.asarray(number_of[loop], np.int64)


def _threads_of_functions(line: Int64s, function: Int64s) -> Int64s:
    """Number the threads of the calls; threads that share a function have one number."""
    threads = distinct(line)
    loop = np.searchsorted(threads, line)
    if len(threads) > 1:
        for one in distinct(function).tolist():
            shared = distinct(loop[function == one])
            loop[np.isin(loop, shared)] = shared[0]
    return np.asarray(loop, np.int64)


def _repeats_as_one(one: Bools, other: Bools, name: Int64s) -> bool:
    return bool(smallest_period(name[one | other])) or not (smallest_period(name[one]) and smallest_period(name[other]))


def _in_lockstep(loop: Int64s, one: int, other: int, name: Int64s) -> bool:
    """Tell whether two loops call functions of the same names, each once before the other calls its next one."""
    of_both = (loop == one) | (loop == other)
    if distinct(name[loop == one]).tolist() != distinct(name[loop == other]).tolist():
        return False
    turns = loop[of_both]
    pairs = turns[: len(turns) // 2 * 2].reshape(-1, 2)
    return float((pairs[:, 0] != pairs[:, 1]).mean()) >= AGREEMENT


def with_first(loop: Int64s, first: int) -> Int64s:
    """Return the loops so that this one is loop 0."""
    return np.asarray(np.where(loop == first, 0, loop + (loop < first)), np.int64)


def other_loops(trace: HostTrace, rows: Int64s, loop: Int64s) -> tuple[str, ...]:
    """Return a sentence for each loop but the first; one that calls twice repeats nothing."""
    found = []
    for number in range(int(loop.max(initial=0)) + 1):
        mine = rows[loop == number]
        longest = trace.names[trace.name[mine[trace.duration_ps[mine].argmax()]]]
        found.append(OtherLoop(longest, len(mine), int(median(trace.duration_ps[mine]))))
    return tuple(other.described(found[0].event) for other in found[1:] if other.count >= 3)
