"""How long each function of Python runs, in the capture and in the steps, and when nothing but it is recorded.

Functions of packages that are known (`trace/python_packages.py`) are also added up by package.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.analysis.results import Host
from tfperf.analysis.tabular import Tabular
from tfperf.base.arrays import EMPTY, MOST, Int64s, Intervals, covers, difference, overlap, union, union_all
from tfperf.base.units import percent
from tfperf.trace.event_names import is_jitted_call
from tfperf.trace.host.host_state import call_times
from tfperf.trace.host.python_frames import PythonFrames, python_frames
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.steps.steps import Steps

if TYPE_CHECKING:
    from tfperf.sections.python.between_calls import BetweenCalls
    from tfperf.trace.host.python_packages import PythonFunction

OTHER_FUNCTIONS = "(other functions)"


class PythonTime(Struct, frozen=True, kw_only=True):
    """A function, or all functions of a package (then `function` is empty); times are picoseconds, summed over threads.

    `self_ps` is without the functions that it calls, `total_ps` with them; what calls itself counts once. Fields that
    start with `step_` are of the steps that count, and `others_ps` of the time in them in which nothing but Python is
    recorded: on the thread that makes the calls, as self time.
    """

    function: str
    package: str
    calls: int
    self_ps: int
    total_ps: int
    step_calls: int
    step_self_ps: int
    step_total_ps: int
    others_ps: int

    @property
    def totals_ps(self) -> tuple[int, int] | None:
        """Return the totals of the capture and its steps; None for several functions, some of which may call others."""
        return None if self.function == OTHER_FUNCTIONS else (self.total_ps, self.step_total_ps)


class PythonTimes(Tabular, frozen=True, kw_only=True):
    """What Python did in a run. `functions` and `packages` are in order of their total time, the longest first."""

    home = ("python", "python_functions")

    functions: tuple[PythonTime, ...] = ()
    packages: tuple[PythonTime, ...] = ()
    step_count: int = 0
    step_ps: int = 0
    """How many steps count, and their duration, both of all hosts."""
    all_others_ps: int | None = None
    """The time in them in which nothing is recorded that has a category; None: not known of all hosts."""
    between: BetweenCalls | None = None
    """What runs while the thread that makes the calls is in none; None: unknown. Of several hosts, of the first."""

    @property
    def own(self) -> tuple[PythonTime, ...]:
        """Return the functions of no known package: those of the program."""
        return tuple(function for function in self.functions if not function.package)

    @property
    def others_percent(self) -> float | None:
        """Return the share of all others in which one of the functions runs; None if there is none, or unknown."""
        in_functions = sum(function.others_ps for function in self.functions)
        return percent(in_functions, self.all_others_ps) if self.all_others_ps else None


def analyze(host: Host) -> PythonTimes:
    """Measure the functions of a host; without frames there is nothing to measure."""
    trace = host.trace
    frames = python_frames(trace)
    if frames is None:
        return PythonTimes()
    steps: Steps = host["steps"].steps
    counts = steps.headline
    counted = union(steps.start_ps[counts], steps.end_ps[counts])
    main = host.host_states.main
    others = None
    if _shows_others(host, steps) and main is not None and (frames.line == main).any():
        others = _others(host, counted)
    from tfperf.sections.python.between_calls import between_calls  # most profiles have no frames

    named = _named(trace, frames)
    between = None
    if others is not None and main is not None and (calls := call_times(trace, main)) is not None:
        is_jax = any(map(is_jitted_call, trace.names))
        between = between_calls(frames, named, difference(counted, calls), main, is_jax=is_jax)
    functions = _functions(frames, named, counted, EMPTY if others is None else others, main)
    return PythonTimes(
        functions=_ordered(functions),
        packages=_ordered(_packages(frames, named, functions, counted)),
        step_count=int(counts.sum()),
        step_ps=int(steps.duration_ps[counts].sum()),
        all_others_ps=None if others is None else others.total(),
        between=between,
    )


def _shows_others(host: Host, steps: Steps) -> bool:
    """Tell whether steps have the category "all others" in real time, which TensorFlow's groups and TPU cores have not.

    Their steps are stretches of time of their own.
    """
    return not host.as_tensorflow and steps.source != "device steps"


def _others(host: Host, counted: Intervals) -> Intervals:
    """Return when no activity that has a category is under way in the steps that count: what is "all others" there."""
    return difference(counted, union_all([*host.busy_times.values()]))


def _named(trace: HostTrace, frames: PythonFrames) -> dict[int, PythonFunction]:
    """Return the function of each name that a frame has."""
    from tfperf.trace.host.python_packages import python_functions

    used = np.flatnonzero(np.bincount(frames.name)).tolist()
    return dict(zip(used, python_functions([trace.names[name] for name in used]), strict=True))


def _functions(
    frames: PythonFrames, named: Mapping[int, PythonFunction], counted: Intervals, others: Intervals, main: int | None
) -> list[PythonTime]:
    """Return the functions of a host; names of several planes may be the same function."""
    of_frame, keys = _numbered(frames, {name: (each.shown, each.package) for name, each in named.items()})
    part, start, end = frames.own_parts()
    of_part = of_frame[part]
    in_others = np.where(frames.line[part] == main, overlap(others, start, end), 0)
    total_ps, step_total_ps = _totals(frames, of_frame, counted, len(keys))
    columns = (
        np.bincount(of_frame, minlength=len(keys)),
        _sums(of_frame, frames.self_ps, len(keys)),
        total_ps,
        np.bincount(of_frame[covers(counted, frames.start)], minlength=len(keys)),
        _sums(of_part, overlap(counted, start, end), len(keys)),
        step_total_ps,
        _sums(of_part, in_others, len(keys)),
    )
    return [_time(key, values) for key, *values in zip(keys, *(column.tolist() for column in columns), strict=True)]


def _packages(
    frames: PythonFrames, named: Mapping[int, PythonFunction], functions: Sequence[PythonTime], counted: Intervals
) -> list[PythonTime]:
    """Return what the functions of each known package add up to; what one calls in the same package counts once."""
    of_frame, keys = _numbered(frames, {name: ("", each.package) for name, each in named.items()})
    totals = zip(*(column.tolist() for column in _totals(frames, of_frame, counted, len(keys))), strict=True)
    packages = []
    for key, (total_ps, step_total_ps) in zip(keys, totals, strict=True):
        parts = [_values(function) for function in functions if function.package == key[1]]
        calls, self_ps, _, step_calls, step_self_ps, _, others_ps = map(sum, zip(*parts, strict=True))
        if key[1]:
            values = (calls, self_ps, total_ps, step_calls, step_self_ps, step_total_ps, others_ps)
            packages.append(_time(key, values))
    return packages


_Key = tuple[str, str]


def _numbered(frames: PythonFrames, key_of: Mapping[int, _Key]) -> tuple[Int64s, list[_Key]]:
    """Return for each frame the number of its key, and the keys; `key_of` has those of the names of frames."""
    number: dict[_Key, int] = {}
    of_name = np.zeros(max(key_of) + 1, np.int64)
    for name, key in key_of.items():
        of_name[name] = number.setdefault(key, len(number))
    return of_name[frames.name], [*number]


def _totals(frames: PythonFrames, of_frame: Int64s, counted: Intervals, count: int) -> tuple[Int64s, Int64s]:
    """Return for how long a frame of each group is open, and for how long in the steps that count."""
    group, start, end = frames.spans(of_frame)
    return _sums(group, end - start, count), _sums(group, overlap(counted, start, end), count)


def _sums(group: Int64s, values: Int64s, count: int) -> Int64s:
    sums = np.bincount(group, weights=values, minlength=count)
    return np.minimum(sums, MOST).astype(np.int64)


_FIELDS = ("calls", "self_ps", "total_ps", "step_calls", "step_self_ps", "step_total_ps", "others_ps")


def _time(key: _Key, values: Iterable[int]) -> PythonTime:
    return PythonTime(function=key[0], package=key[1], **dict(zip(_FIELDS, values, strict=True)))


def _values(time: PythonTime) -> tuple[int, ...]:
    return tuple(getattr(time, field) for field in _FIELDS)


def _ordered(times: Iterable[PythonTime]) -> tuple[PythonTime, ...]:
    return tuple(sorted(times, key=lambda time: (-time.total_ps, time.function, time.package)))


def combine(hosts: Sequence[PythonTimes]) -> PythonTimes:
    """Add up what Python did on several hosts."""
    if len(hosts) == 1:
        return hosts[0]
    with_frames = [host for host in hosts if host.functions]
    others = [host.all_others_ps for host in with_frames if host.all_others_ps is not None]
    return PythonTimes(
        functions=_added(time for host in with_frames for time in host.functions),
        packages=_added(time for host in with_frames for time in host.packages),
        step_count=sum(host.step_count for host in with_frames),
        step_ps=sum(host.step_ps for host in with_frames),
        all_others_ps=sum(others) if others and len(others) == len(with_frames) else None,
        between=next((host.between for host in with_frames if host.between is not None), None),
    )


def shorten(times: PythonTimes, most: int) -> PythonTimes:
    """Return so many functions, those of the longest total, and one row for all others of each package."""
    if len(times.functions) <= most:
        return times
    others = (replace(function, function=OTHER_FUNCTIONS) for function in times.functions[most:])
    return replace(times, functions=_added((*times.functions[:most], *others)))


def _added(times: Iterable[PythonTime]) -> tuple[PythonTime, ...]:
    sums: dict[_Key, tuple[int, ...]] = {}
    for time in times:
        key = (time.function, time.package)
        before = sums.get(key, (0,) * len(_FIELDS))
        sums[key] = tuple(min(one + other, MOST) for one, other in zip(before, _values(time), strict=True))
    return _ordered(_time(key, values) for key, values in sums.items())
