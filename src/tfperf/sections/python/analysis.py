"""Python time per function and per known package, in the capture, in the steps, and while only Python is recorded."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.analysis.registry import Host, SectionSpec, Tabular
from tfperf.base.arrays import (
    EMPTY,
    MOST,
    Bools,
    Float64s,
    Int64s,
    Intervals,
    covers,
    difference,
    distinct_index,
    intersection,
    overlap,
    union,
    union_all,
)
from tfperf.base.units import percent
from tfperf.trace.event_names import is_jitted_call
from tfperf.trace.host.host_state import State, call_times, state_of
from tfperf.trace.host.python_frames import NO_MODULE, PythonFrames, PythonFunction, python_frames, python_functions
from tfperf.trace.steps.steps import Steps

OTHER_FUNCTIONS = "(other functions)"


class PythonTime(Struct, frozen=True, kw_only=True):
    """A function, or all functions of a package (`function` is empty); times are picoseconds, summed over threads.

    `self_ps` excludes called functions and `total_ps` includes them; recursive calls count once. Fields with the prefix
    `step_` cover the averaged steps. `others_ps` is the self time in these steps, on the thread that makes the calls,
    while only Python is recorded.
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
        """Return the totals of the capture and its steps; None for several functions, which may call each other."""
        return None if self.function == OTHER_FUNCTIONS else (self.total_ps, self.step_total_ps)


class PythonTimes(Tabular, frozen=True, kw_only=True):
    """Python activity in a run. `functions` and `packages` are sorted by total time, the longest first."""

    home = ("python", "python_functions")

    functions: tuple[PythonTime, ...] = ()
    packages: tuple[PythonTime, ...] = ()
    step_count: int = 0
    step_ps: int = 0
    """Number and duration of the averaged steps of all hosts."""
    all_others_ps: int | None = None
    """Time in these steps without an event that has a category; None unless known for all hosts."""
    between: BetweenCalls | None = None
    """Activity while the calling thread is in no call; None if unknown. With several hosts, of the one with most such
    time."""

    @property
    def own(self) -> tuple[PythonTime, ...]:
        """Return the functions outside known packages: those of the program."""
        return tuple(function for function in self.functions if not function.package)

    @property
    def others_percent(self) -> float | None:
        """Return the share of all others with one of the functions running; None if there is none, or unknown."""
        in_functions = sum(function.others_ps for function in self.functions)
        return percent(in_functions, self.all_others_ps) if self.all_others_ps else None


def analyze(host: Host) -> PythonTimes:
    """Measure the functions of a host; the result is empty without frames."""
    trace = host.trace
    frames = python_frames(trace)
    if frames is None:
        return PythonTimes()
    steps: Steps = host["steps"].steps
    counts = steps.headline
    counted = union(steps.start_ps[counts], steps.end_ps[counts])
    main = host.host_states.main
    others = None
    # TensorFlow's groups and the steps of TPU cores have their own time ranges.
    in_real_time = not host.as_tensorflow and steps.source != "device steps"
    if in_real_time and main is not None and (frames.line == main).any():
        others = difference(counted, union_all([*host.busy_times.values()]))

    used = np.flatnonzero(np.bincount(frames.name)).tolist()
    named = dict(zip(used, python_functions([trace.names[name] for name in used]), strict=True))
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


def _functions(
    frames: PythonFrames, named: Mapping[int, PythonFunction], counted: Intervals, others: Intervals, main: int | None
) -> list[PythonTime]:
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
    """Return sums per known package; calls within a package count once."""
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
    """Return for each frame the number of its key, and the keys; `key_of` is by frame name."""
    number: dict[_Key, int] = {}
    of_name = np.zeros(max(key_of) + 1, np.int64)
    for name, key in key_of.items():
        of_name[name] = number.setdefault(key, len(number))
    return of_name[frames.name], [*number]


def _totals(frames: PythonFrames, of_frame: Int64s, counted: Intervals, count: int) -> tuple[Int64s, Int64s]:
    group, start, end = frames.spans(of_frame)
    return _sums(group, end - start, count), _sums(group, overlap(counted, start, end), count)


def _sums(group: Int64s, values: Int64s, count: int) -> Int64s:
    sums = np.bincount(group, weights=values, minlength=count)
    return np.minimum(sums, MOST).astype(np.int64)


_FIELDS = ("calls", "self_ps", "total_ps", "step_calls", "step_self_ps", "step_total_ps", "others_ps")
_values = attrgetter(*_FIELDS)


def _time(key: _Key, values: Iterable[int]) -> PythonTime:
    return PythonTime(function=key[0], package=key[1], **dict(zip(_FIELDS, values, strict=True)))


def _ordered(times: Iterable[PythonTime]) -> tuple[PythonTime, ...]:
    return tuple(sorted(times, key=lambda time: (-time.total_ps, time.function, time.package)))


def combine(hosts: Sequence[PythonTimes]) -> PythonTimes:
    """Add up the Python activity of several hosts."""
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
        between=max(
            (host.between for host in with_frames if host.between is not None), key=attrgetter("total_ps"), default=None
        ),
    )


def shorten(times: PythonTimes, most: int) -> PythonTimes:
    """Return the `most` functions with the largest total, and one row for all others of each package."""
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


# --- Python functions that run while the calling thread is in no call ---
# Reported are the innermost function of the program with at least half of that time, the functions that it calls, and
# whether the frames show waiting or computing. The innermost frame decides the last: some functions in C only wait,
# while Python functions and methods of numpy arrays compute.

_HALF, _QUARTER = 0.5, 0.25
_DEEPEST = 10
"""Doublings of the way up from a frame, for more frames than any stack has."""
_WAITS = re.compile(
    r"recv(?:_into|from|from_into|_bytes|msg)?|accept|connect|sendall|read|readinto|readline|poll|select|sleep|acquire"
    r"|wait|join|getaddrinfo|do_handshake|fsync"
)
_SHARED_FILES = re.compile(r"(?:trainer|core|variables?|layer|model|optimizer|metric|functional|sequential)\.py")
"""Files of Keras with names that programs use too."""
_OF_KERAS = re.compile(r"fit|evaluate|predict|(?:train|test|predict)_on_batch|function|wrapper|reset_metrics|__\w+__")
"""Functions in such files that belong to Keras itself if no Keras function called them."""
_FILES_OF_JAX = re.compile(
    r"(?:api|array|array_methods|basearray|dispatch|dtypes|lax_numpy|pjit|profiler|pxla|stages|traceback_util"
    r"|tree_util|ufuncs|xla_bridge)\.py"
)
_ENTRY = re.compile(r"fit|evaluate|predict|(?:train|test|predict)_on_batch")
_CALLBACK = re.compile(r"on_(?:(?:train|test|predict)_)?(?:batch|epoch)?_?(?:begin|end)")


class BetweenCalls(Struct, frozen=True, kw_only=True):
    """Time of the averaged steps in which the thread is in no call; shares of it are from 0 to 1."""

    total_ps: int
    function: str = ""
    """Innermost function of the program with at least half of the time; empty without one."""
    share: float = 0.0
    """Share of that function, including its callees."""
    callee: str = ""
    """Largest callee of the function; without a function, the callee of the program with at least half of the time."""
    callee_share: float = 0.0
    callback: str = ""
    """Callback method of the program with at least half of the time: the function, or its caller."""
    framework_share: float = 0.0
    """In functions of TensorFlow, Keras or JAX that no function of the program called."""
    waiting_share: float = 0.0
    computing_share: float = 0.0
    """The remainder may wait or compute."""
    collecting_share: float = 0.0
    """In calls of gc.collect."""


def between_calls(
    frames: PythonFrames, named: Mapping[int, PythonFunction], outside: Intervals, main: int, *, is_jax: bool
) -> BetweenCalls:
    """Measure the frames of the line `main` in the time `outside`; `named` maps names to functions."""
    first, last = np.searchsorted(frames.line, (main, main + 1)).tolist()
    rows = slice(first, last)
    parent = np.where(frames.parent[rows] >= 0, frames.parent[rows] - first, -1)
    columns = (frames.rows[rows], frames.name[rows], frames.line[rows], parent, frames.start[rows], frames.end[rows])
    frames = PythonFrames(**dict(zip(("rows", "name", "line", "parent", "start", "end"), columns, strict=True)))
    total = max(outside.total(), 1)
    functions = [*dict.fromkeys(named.values())]
    number = {function: place for place, function in enumerate(functions)}
    of_name = np.zeros(max(named) + 1, np.int64)
    of_name[[*named]] = [number[function] for function in named.values()]
    function = of_name[frames.name]

    def summed(of_frame: Int64s, groups: Int64s) -> Float64s:
        return np.bincount(groups, weights=of_frame, minlength=len(functions))[: len(functions)] / total

    part, start, end = frames.own_parts()
    own_ps = np.bincount(part, weights=overlap(outside, start, end), minlength=len(frames)).astype(np.int64)
    of_function = summed(own_ps, function)

    def are(test: Callable[[PythonFunction], object]) -> Bools:
        return np.array([bool(test(each)) for each in functions], np.bool_)

    is_framework = are(lambda each: each.package in ("tensorflow", "keras", "tfperf"))
    if is_jax:
        is_framework |= are(lambda each: _FILES_OF_JAX.fullmatch(each.file))
    is_shared = are(lambda each: not is_jax and _SHARED_FILES.fullmatch(each.file))
    is_program = are(lambda each: not each.package) & ~is_framework & ~is_shared
    # In a file whose name both use, functions that Keras called belong to Keras, except callbacks.
    above = _nearest(frames.parent, (is_framework | is_program)[function])
    is_keras = are(lambda each: _OF_KERAS.fullmatch(each.name))
    is_hook = are(lambda each: _CALLBACK.fullmatch(each.name))
    of_program = is_program[function]
    of_program |= is_shared[function] & (is_hook[function] | (above < 0) & ~is_keras[function])
    of_framework = (is_framework | is_shared)[function] & ~of_program
    entries = of_framework & are(lambda each: _ENTRY.fullmatch(each.name))[function]
    runs_it = _nearest(frames.parent, of_program | entries)
    owner = _nearest(frames.parent, of_program | of_framework)
    # Called neither by the program, except `fit` and the like, nor by other functions than these.
    by_itself = ((runs_it < 0) | entries[runs_it]) & (owner >= 0) & of_framework[owner]
    of_part = by_itself[part]
    in_program = intersection(outside, union(start[~of_part], end[~of_part]))
    waits = are(lambda each: (not each.file and _WAITS.fullmatch(each.name.rpartition(".")[2])) or _awaits_device(each))
    computes = are(_computes)
    collects = are(lambda each: each.shown == "gc.collect")
    # Recursive calls count once.
    group, begin, stop = frames.spans(function)
    share = summed(overlap(in_program, begin, stop), group)
    measured = BetweenCalls(
        total_ps=outside.total(),
        framework_share=float(own_ps[by_itself].sum()) / total,
        waiting_share=float(of_function[waits].sum()),
        computing_share=float(of_function[computes].sum()),
        collecting_share=float(share[collects].sum()),
    )
    is_named = are(lambda each: not each.name.startswith("<"))
    is_programs = np.bincount(function[of_program], minlength=len(functions)) > 0
    holders = np.flatnonzero(is_programs & is_named & (share >= _HALF))
    holder = int(holders[share[holders].argmin()]) if len(holders) else -1
    if holder >= 0:
        measured = replace(measured, function=functions[holder].shown, share=float(share[holder]))
        hooks = holders[is_hook[holders]]
        if len(hooks):
            measured = replace(measured, callback=functions[int(hooks[share[hooks].argmin()])].shown)
    for most, of in ((share, collects), (of_function, waits)):
        found = int(np.where(of, most, -1.0).argmax())
        if of[found] and most[of].sum() >= _HALF:
            return replace(measured, callee=functions[found].shown, callee_share=float(most[found]))
    # Direct callees of the function, or frames outside all functions of the program.
    callers = _nearest(frames.parent, is_named[function])[frames.parent]
    caller = np.where((frames.parent >= 0) & (callers >= 0), function[callers], -1)
    called = (caller == holder) & (function != holder) & is_named[function] & ~of_framework
    by_callee = summed(np.where(called, overlap(outside, frames.start, frames.end), 0), function)
    found = int(by_callee.argmax())
    if by_callee[found] >= (_QUARTER if holder >= 0 else _HALF):
        measured = replace(measured, callee=functions[found].shown, callee_share=float(by_callee[found]))
    return measured


def _nearest(parent: Int64s, wanted: Bools) -> Int64s:
    """Return for each frame the nearest wanted one among itself and its callers; -1 without one."""
    found = np.where(wanted, np.arange(len(parent)), parent)
    for _ in range(_DEEPEST):
        found = np.where(found >= 0, found[found], -1)
    return np.where((found >= 0) & wanted[found], found, -1)


def _awaits_device(function: PythonFunction) -> bool:
    return state_of(f"${function.shown}") == State.SYNC


def _computes(function: PythonFunction) -> bool:
    """Return whether a function certainly computes: C functions of numpy may wait for a JAX array."""
    if function.file:
        return not _awaits_device(function)
    is_of_array = function.package == NO_MODULE and (
        hasattr(np.ndarray, function.name) or hasattr(np.ufunc, function.name)
    )
    return is_of_array or function.shown.startswith(("builtins.", "gc."))


# --- python stacks, with the time of the innermost function, for flame graphs ---
# The sums over stacks equal those of the table of functions. Time in steps is cut at step edges.

STACKS = SectionSpec(
    name="python_stacks",
    title="Python stacks",
    rests_on=("steps",),
    analyze="tfperf.sections.python.analysis:analyze_stacks",
    combine="tfperf.sections.python.analysis:combine_stacks",
    combines_in_tree=True,
    shorten="tfperf.sections.python.analysis:shorten_stacks",
    build="tfperf.sections.python.section:build",  # required, but not called: no report contains it
)


class Frame(NamedTuple):
    """Displayed name of a Python function, and its package (empty if unknown)."""

    function: str
    package: str


PythonStack = tuple[Frame, ...]
OTHERS: PythonStack = (Frame("(other functions)", ""),)
"""Replaces the stacks of a host beyond the maximum."""


class StackSum(NamedTuple):
    """Calls and self time of the innermost function of a stack, in the capture and in the averaged steps."""

    calls: int
    self_ps: int
    step_calls: int
    step_self_ps: int


class PythonStacks(Struct, frozen=True, kw_only=True):
    """Stacks, the outermost function first; `step_count` counts the steps of all hosts with Python frames."""

    sums: dict[PythonStack, StackSum]
    step_count: int


def analyze_stacks(host: Host) -> PythonStacks:
    """Add up the frames of a host by their stack; empty without frames."""
    trace = host.trace
    frames = python_frames(trace)
    if frames is None:
        return PythonStacks(sums={}, step_count=0)
    steps: Steps = host["steps"].steps
    counts = steps.headline
    counted = union(steps.start_ps[counts], steps.end_ps[counts])
    stack_of, above, name = _numbered_stacks(frames)
    part, start, end = frames.own_parts()
    columns = (
        np.bincount(stack_of, minlength=len(name)),
        _sums(stack_of, frames.self_ps, len(name)),
        np.bincount(stack_of[covers(counted, frames.start)], minlength=len(name)),
        _sums(stack_of[part], overlap(counted, start, end), len(name)),
    )
    used = sorted(set(name))
    functions = python_functions([trace.names[each] for each in used])
    frame_of = {each: Frame(function.shown, function.package) for each, function in zip(used, functions, strict=True)}
    stacks: list[PythonStack] = []
    for around, innermost in zip(above, name, strict=True):
        stacks.append((*(stacks[around] if around >= 0 else ()), frame_of[innermost]))
    sums: dict[PythonStack, StackSum] = {}
    for stack, *values in zip(stacks, *(column.tolist() for column in columns), strict=True):
        _add(sums, stack, StackSum(*values))
    return PythonStacks(sums=sums, step_count=int(counts.sum()))


def combine_stacks(hosts: Sequence[PythonStacks]) -> PythonStacks:
    """Add up the stacks of several hosts."""
    if len(hosts) == 1:
        return hosts[0]
    sums: dict[PythonStack, StackSum] = {}
    for host in hosts:
        for stack, value in host.sums.items():
            _add(sums, stack, value)
    return PythonStacks(sums=sums, step_count=sum(host.step_count for host in hosts))


def shorten_stacks(stacks: PythonStacks, most: int) -> PythonStacks:
    """Return the `most` stacks with the largest self time, and one row for all others."""
    if len(stacks.sums) <= most:
        return stacks
    ordered = sorted(stacks.sums.items(), key=lambda pair: -pair[1].self_ps)
    sums = dict(ordered[:most])
    for _, value in ordered[most:]:
        _add(sums, OTHERS, value)
    return replace(stacks, sums=sums)


def _add(sums: dict[PythonStack, StackSum], stack: PythonStack, value: StackSum) -> None:
    before = sums.get(stack, StackSum(0, 0, 0, 0))
    sums[stack] = StackSum(*(min(one + other, MOST) for one, other in zip(before, value, strict=True)))


def _numbered_stacks(frames: PythonFrames) -> tuple[Int64s, list[int], list[int]]:
    """Return for each frame the number of its stack; for each stack its parent (-1 without) and innermost name.

    Levels are numbered from the outermost frames inward; calls of one function in one stack share a number.
    """
    # The number of frames around each frame; pointers double their reach in each round.
    depth, ancestor = (frames.parent >= 0).astype(np.int64), frames.parent
    while (ancestor >= 0).any():
        outer = np.maximum(ancestor, 0)
        depth = depth + np.where(ancestor >= 0, depth[outer], 0)
        ancestor = np.where(ancestor >= 0, ancestor[outer], -1)
    size = int(frames.name.max()) + 1
    order = np.argsort(depth, kind="stable")
    number = np.full(len(frames) + 1, -1, np.int64)  # the last entry represents no frame (-1)
    above: list[int] = []
    name: list[int] = []
    for level in np.split(order, np.flatnonzero(np.diff(depth[order])) + 1):
        keys, index = distinct_index((number[frames.parent[level]] + 1) * size + frames.name[level])
        number[level] = len(above) + index
        above.extend((keys // size - 1).tolist())
        name.extend((keys % size).tolist())
    return number[:-1], above, name
