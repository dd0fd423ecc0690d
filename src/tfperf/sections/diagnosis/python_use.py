"""How Python uses the thread that makes the calls, as captures of tfperf record it: for each step, in picoseconds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Float64s, Int64s, Intervals, difference, intersection, overlap, union
from tfperf.base.units import PS_PER_MS
from tfperf.sections.diagnosis.cause import Range
from tfperf.trace.host.python_activity import CpuTimes, Pauses, PythonActivity
from tfperf.trace.steps.counted import CountedSteps

_LEAST_COVERED = 0.9
"""Share of a time that must be recorded, or nothing is said about it."""
_HALF = 0.5
_FEW = 2
_FULL = 2
"""The generation whose collection goes through all objects."""


class Collections(Struct, frozen=True, kw_only=True):
    """Runs of the garbage collector in the steps that count."""

    percent: float
    """Of the steps."""
    alone_percent: float
    """While nothing else is recorded."""
    count: int
    full_count: int
    """Those that went through all objects."""
    longest_ms: float
    most_steps: int
    """The fewest steps that hold half of the time of all."""
    rare_steps: int
    """How many steps hold nearly all of that time, if one or two of many do, at no regular distance; else 0."""
    step_count: int
    place: str
    """The line of Python that ran in most of that time; empty: unknown, or not most of it."""


class CollectionTimes(Struct, frozen=True, eq=False, kw_only=True):
    """The same for each step of a host."""

    total_ps: Int64s
    alone_ps: Int64s
    count: Int64s
    full_count: Int64s
    longest_ps: Int64s
    place: str

    @classmethod
    def of(cls, pauses: Pauses, idle: Intervals, steps: CountedSteps) -> CollectionTimes:
        """Measure pauses in each step; `idle` is when nothing is recorded."""
        start, end = steps.start_ps, steps.start_ps + steps.duration_ps
        times = union(pauses.start_ps, pauses.end_ps)
        first, last = np.searchsorted(pauses.start_ps, start), np.searchsorted(pauses.start_ps, end)
        lengths = np.append(pauses.end_ps - pauses.start_ps, 0)
        full = np.concatenate(([0], np.cumsum(pauses.generation == _FULL)))
        bounds = np.stack((first, last), axis=1).ravel()
        longest = np.maximum.reduceat(lengths, bounds)[::2] if len(bounds) else lengths[:0]
        return cls(
            total_ps=overlap(times, start, end),
            alone_ps=overlap(intersection(times, idle), start, end),
            count=last - first,
            full_count=full[last] - full[first],
            longest_ps=np.where(last > first, longest, 0),
            place=_most_of(pauses, steps),
        )

    def counted(self, steps: CountedSteps) -> Collections | None:
        """Return what they take of the steps that count."""
        percent, alone_percent = steps.percent(self.total_ps), steps.percent(self.alone_ps)
        if percent is None or alone_percent is None:
            return None
        times = self.total_ps[steps.counted]
        ordered = np.sort(times)[::-1]
        most = int(np.searchsorted(np.cumsum(ordered), _HALF * ordered.sum())) + 1 if ordered.any() else 0
        return Collections(
            percent=percent,
            alone_percent=alone_percent,
            count=steps.sum(self.count),
            full_count=steps.sum(self.full_count),
            longest_ms=float(self.longest_ps[steps.counted].max()) / PS_PER_MS,
            most_steps=most,
            rare_steps=_rare_steps(times),
            step_count=steps.count,
            place=self.place,
        )


def _rare_steps(times: Int64s) -> int:
    """Return how many steps hold nearly all of these times, if one or two of many do, and follow no period; else 0."""
    order = np.argsort(-times, kind="stable")
    number = int(np.searchsorted(np.cumsum(times[order]), _NEARLY_ALL * times.sum())) + 1
    if number > _FEW or number >= _HALF * len(times):
        return 0
    first, last = int(order[:number].min()), int(order[:number].max())
    has_period = number == _FEW and max(first, len(times) - 1 - last) < last - first
    return 0 if has_period else number


def _most_of(pauses: Pauses, steps: CountedSteps) -> str:
    """Return the line that ran in more than half of the time of the pauses in steps that count."""
    counted = union(steps.start_ps[steps.counted], (steps.start_ps + steps.duration_ps)[steps.counted])
    times = overlap(counted, pauses.start_ps, pauses.end_ps)
    places = dict.fromkeys(pauses.places, 0)
    for place in places:
        places[place] = int(times[[each == place for each in pauses.places]].sum())
    most = max(places, key=lambda place: places[place], default="")
    return most if places and places[most] > _HALF * times.sum() else ""


class ReadyTimes(Struct, frozen=True, eq=False, kw_only=True):
    """For how long the thread was ready in each step (it ran, or had no core), outside of calls and inside of them."""

    outside: tuple[Float64s, Float64s]
    """The least and the most."""
    inside: tuple[Float64s, Float64s]
    outside_ps: Int64s
    inside_ps: Int64s
    """The time that is recorded of both."""

    @classmethod
    def of(cls, cpu: CpuTimes, calls: Intervals, steps: CountedSteps) -> ReadyTimes:
        """Measure what was recorded in each step."""
        start, end = steps.start_ps, steps.start_ps + steps.duration_ps
        recorded = union(cpu.start_ps, cpu.end_ps)
        outside, inside = difference(recorded, calls), intersection(recorded, calls)
        return cls(
            outside=cpu.within(outside, start, end),
            inside=cpu.within(inside, start, end),
            outside_ps=overlap(outside, start, end),
            inside_ps=overlap(inside, start, end),
        )

    def shares(self, steps: CountedSteps, calls_ps: Int64s) -> tuple[Range | None, Range | None]:
        """Return in which share of the time outside of calls, and inside of them, the thread is ready, in percent.

        None where too little of that time is recorded.
        """
        inside_ps = steps.sum(calls_ps)
        outside_ps = steps.total_ps - inside_ps
        parts = ((self.outside, self.outside_ps, outside_ps), (self.inside, self.inside_ps, inside_ps))
        outside, inside = (
            _share([float(each[steps.counted].sum()) for each in bounds], steps.sum(recorded), whole)
            for bounds, recorded, whole in parts
        )
        return outside, inside


def _share(bounds: Sequence[float], recorded_ps: int, whole_ps: int) -> Range | None:
    if recorded_ps <= 0 or recorded_ps < _LEAST_COVERED * whole_ps:
        return None
    return Range(*(100.0 * min(max(bound / recorded_ps, 0.0), 1.0) for bound in bounds))


class PythonUse(Struct, frozen=True, eq=False, kw_only=True):
    """What is recorded of a host; None: it is not."""

    collections: CollectionTimes | None = None
    ready: ReadyTimes | None = None

    @classmethod
    def of(cls, activity: PythonActivity, idle: Intervals, calls: Intervals | None, steps: CountedSteps) -> PythonUse:
        """Measure what a capture recorded of Python."""
        return cls(
            collections=None if activity.pauses is None else CollectionTimes.of(activity.pauses, idle, steps),
            ready=None if activity.cpu is None or calls is None else ReadyTimes.of(activity.cpu, calls, steps),
        )
