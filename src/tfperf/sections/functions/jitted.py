"""Jitted functions of JAX: how often they are called and compiled, and what that takes.

A call that compiles traces Python, lowers what it traced, and has XLA compile it: all of its time is that of compiling,
but for handing out the first run.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.arrays import Bools, Intervals, difference, overlap, union, union_all
from tfperf.report.model import Data
from tfperf.sections.functions.eager import EagerOps
from tfperf.sections.steps.counted import CountedSteps
from tfperf.sections.tabular import Tabular
from tfperf.trace.steps import Steps
from tfperf.units import PS_PER_MS

if TYPE_CHECKING:
    from tfperf.trace.jax_calls import JaxCalls, Work

_COMPUTES = {"gradient": "gradients", "forward": "forward only", "other": "neither"}


OTHER_FUNCTIONS = "(other functions)"


class JittedFunction(Struct, frozen=True):
    """A jitted function; `computes` is empty where its program is not in the trace. Times in picoseconds.

    `work_ps` sums the times from the first to the last op of its runs; None: no run is in the trace.
    """

    name: str
    computes: str
    calls: int
    compiling_calls: int
    total_ps: int
    compiling_ps: int
    work_ps: int | None


class JittedFunctions(Tabular, frozen=True):
    """The jitted functions, the one whose calls take most time first, and how many calls a step has (None: unknown)."""

    home = ("functions", "jitted_functions")

    functions: tuple[JittedFunction, ...] = ()
    calls_per_step: float | None = None

    @property
    def most_compiled(self) -> JittedFunction | None:
        """Return the function whose compiling takes most time, if any compiles."""
        compiled = [function for function in self.functions if function.compiling_calls]
        return max(compiled, key=lambda function: function.compiling_ps, default=None)

    def _data(self) -> Data:
        return self.columns()

    def columns(self) -> dict[str, list[object]]:
        """Return one row per function."""
        rows = self.functions
        return {
            "function": [row.name for row in rows],
            "computes": [row.computes for row in rows],
            "calls": [row.calls for row in rows],
            "compiling_calls": [row.compiling_calls for row in rows],
            "total_ms": [row.total_ps / PS_PER_MS for row in rows],
            "compiling_ms": [row.compiling_ps / PS_PER_MS for row in rows],
            "work_ms": [None if row.work_ps is None else row.work_ps / PS_PER_MS for row in rows],
        }


def jitted_functions(calls: JaxCalls, steps: Steps) -> JittedFunctions:
    """Sum the calls of jitted functions of a host."""
    from tfperf.trace.jax_calls import CLASSES  # few traces are of JAX

    functions = []
    for token in np.unique(calls.token).tolist():
        mine = np.flatnonzero(calls.token == token)
        compiling = mine[calls.compiles[mine]]
        ran = mine[calls.work.end[mine] >= 0]
        functions.append(
            JittedFunction(
                name=calls.names[token // len(CLASSES)],
                computes=_COMPUTES.get(CLASSES[token % len(CLASSES)], ""),
                calls=len(mine),
                compiling_calls=len(compiling),
                total_ps=int((calls.end - calls.start)[mine].sum()),
                compiling_ps=int((calls.end - calls.start)[compiling].sum()),
                work_ps=int((calls.work.end - calls.work.start)[ran].sum()) if len(ran) else None,
            )
        )
    first, last = np.searchsorted(calls.start, (steps.start_ps, steps.end_ps))
    counted = CountedSteps.of(steps)
    per_step = counted.sum(last - first) / counted.count if counted.count else None
    return JittedFunctions(_ordered(functions), per_step)


def single_ops(calls: JaxCalls, steps: Steps, *, has_device: bool) -> EagerOps:
    """Find the ops that Python runs one by one: calls of programs of one op.

    On a CPU the work of these ops counts too, as far as no other program works; a device has its own categories. Where
    a step is one such call and nothing else, that is the function of the program, and none.
    """
    first, last = np.searchsorted(calls.start, (steps.start_ps, steps.end_ps))
    is_step = bool(len(steps)) and int((last - first).max(initial=0)) <= 1
    single, works = calls.is_op & (not is_step), calls.work.end >= 0
    alone, others = single & works, ~single & works
    busy = union(calls.start[single], calls.end[single])
    if not has_device:
        busy = difference(union_all([busy, _times(calls.work, alone)]), _times(calls.work, others))
    first, last = np.searchsorted(calls.start[single], (steps.start_ps, steps.end_ps))
    name, duration = calls.name[single], (calls.end - calls.start)[single]
    count = np.bincount(name, minlength=len(calls.names)).astype(np.int64)
    total = np.bincount(name, weights=duration, minlength=len(calls.names)).astype(np.int64)
    called = sorted(np.flatnonzero(count).tolist(), key=lambda index: (-total[index], calls.names[index]))
    order = np.array(called, np.int64)
    return EagerOps(
        op_types=tuple(calls.names[index] for index in called),
        calls=count[order],
        total_ps=total[order],
        steps=CountedSteps.of(steps),
        eager_ps=overlap(busy, steps.start_ps, steps.end_ps),
        step_calls=last - first,
    )


def _times(work: Work, chosen: Bools) -> Intervals:
    return union(work.start[chosen], work.end[chosen])


def sum_jitted(parts: list[JittedFunctions]) -> JittedFunctions:
    """Add up the calls of several hosts; calls per step are averages over the hosts that call."""
    sums: dict[tuple[str, str], JittedFunction] = {}
    for row in (row for part in parts for row in part.functions):
        key = row.name, row.computes
        sums[key] = _plus(sums[key], row) if key in sums else row
    known = [part.calls_per_step for part in parts if part.calls_per_step is not None]
    return JittedFunctions(_ordered(sums.values()), sum(known) / len(known) if known else None)


def shorten_jitted(jitted: JittedFunctions, most: int) -> JittedFunctions:
    """Return so many functions, those whose calls take most time, and one row for all others."""
    if len(jitted.functions) <= most:
        return jitted
    others = (replace(function, name=OTHER_FUNCTIONS, computes="") for function in jitted.functions[most:])
    return sum_jitted([replace(jitted, functions=(*jitted.functions[:most], *others))])


def _plus(one: JittedFunction, other: JittedFunction) -> JittedFunction:
    known = [row.work_ps for row in (one, other) if row.work_ps is not None]
    return JittedFunction(
        name=one.name,
        computes=one.computes,
        calls=one.calls + other.calls,
        compiling_calls=one.compiling_calls + other.compiling_calls,
        total_ps=one.total_ps + other.total_ps,
        compiling_ps=one.compiling_ps + other.compiling_ps,
        work_ps=sum(known) if known else None,
    )


def _ordered(functions: Iterable[JittedFunction]) -> tuple[JittedFunction, ...]:
    return tuple(sorted(functions, key=lambda row: (-row.total_ps, row.name, row.computes)))
