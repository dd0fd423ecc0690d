"""Whose Python runs while the thread that makes the calls is in none of them, as the frames of the Python tracer tell.

Three questions: in which function of the program most of that time goes (the innermost one that holds half of it), what
that function calls, and whether the frames show waiting or computing. For the last, the innermost frame counts: some
functions in C only wait, while functions in Python and those of numpy's arrays compute.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.arrays import Bools, Float64s, Int64s, Intervals, intersection, overlap, union
from tfperf.trace.host.host_state import State, state_of
from tfperf.trace.host.python_frames import PythonFrames
from tfperf.trace.host.python_packages import NO_MODULE, PythonFunction

_HALF, _QUARTER = 0.5, 0.25
_DEEPEST = 10
"""Doublings of the way up from a frame: more than any stack holds."""
_WAITS = re.compile(
    r"recv(?:_into|from|from_into|_bytes|msg)?|accept|connect|sendall|read|readinto|readline|poll|select|sleep|acquire"
    r"|wait|join|getaddrinfo|do_handshake|fsync"
)
_SHARED_FILES = re.compile(r"(?:trainer|core|variables?|layer|model|optimizer|metric|functional|sequential)\.py")
"""Files of Keras whose names programs use too."""
_OF_KERAS = re.compile(r"fit|evaluate|predict|(?:train|test|predict)_on_batch|function|wrapper|reset_metrics|__\w+__")
"""Functions in such files that are Keras's own, where nothing of Keras has called them."""
_FILES_OF_JAX = re.compile(
    r"(?:api|array|array_methods|basearray|dispatch|dtypes|lax_numpy|pjit|profiler|pxla|stages|traceback_util"
    r"|tree_util|ufuncs|xla_bridge)\.py"
)
_ENTRY = re.compile(r"fit|evaluate|predict|(?:train|test|predict)_on_batch")
_CALLBACK = re.compile(r"on_(?:(?:train|test|predict)_)?(?:batch|epoch)?_?(?:begin|end)")


class BetweenCalls(Struct, frozen=True, kw_only=True):
    """The time of the steps that count in which the thread is in no call; shares of it are from 0 to 1."""

    total_ps: int
    function: str = ""
    """The innermost function of the program that holds half of the time or more; empty: none does."""
    share: float = 0.0
    """What it holds, with all that it calls."""
    callee: str = ""
    """What it calls for most of that; without a function, what the program calls for half of the time or more."""
    callee_share: float = 0.0
    callback: str = ""
    """The method of a callback of the program that holds half of the time or more: the function, or what calls it."""
    framework_share: float = 0.0
    """In functions of TensorFlow, Keras or JAX that no function of the program has called."""
    waiting_share: float = 0.0
    computing_share: float = 0.0
    """The rest may do either."""
    collecting_share: float = 0.0
    """In calls of gc.collect."""


def between_calls(
    frames: PythonFrames, named: Mapping[int, PythonFunction], outside: Intervals, main: int, *, is_jax: bool
) -> BetweenCalls:
    """Measure the frames of the line `main` in the time `outside`; `named` has the function of each name."""
    frames = _of_line(frames, main)
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
    is_framework = np.array([_is_framework(each, is_jax=is_jax) for each in functions], np.bool_)
    is_shared = np.array([not is_jax and bool(_SHARED_FILES.fullmatch(each.file)) for each in functions], np.bool_)
    is_program = np.array([not each.package for each in functions], np.bool_) & ~is_framework & ~is_shared
    # Of a file whose name both use, what Keras has called is of Keras, but for callbacks.
    above = _nearest(frames.parent, (is_framework | is_program)[function])
    is_keras = np.array([bool(_OF_KERAS.fullmatch(each.name)) for each in functions], np.bool_)
    is_hook = np.array([bool(_CALLBACK.fullmatch(each.name)) for each in functions], np.bool_)
    of_program = is_program[function]
    of_program |= is_shared[function] & (is_hook[function] | (above < 0) & ~is_keras[function])
    of_framework = (is_framework | is_shared)[function] & ~of_program
    entries = of_framework & np.array([bool(_ENTRY.fullmatch(each.name)) for each in functions], np.bool_)[function]
    runs_it = _nearest(frames.parent, of_program | entries)
    owner = _nearest(frames.parent, of_program | of_framework)
    # Neither called by the program, but by `fit` and its like, nor anything that these do not call themselves.
    by_itself = ((runs_it < 0) | entries[runs_it]) & (owner >= 0) & of_framework[owner]
    of_part = by_itself[part]
    in_program = intersection(outside, union(start[~of_part], end[~of_part]))
    waits, computes = (np.array([test(each) for each in functions], np.bool_) for test in (_waits, _computes))
    collects = np.array([each.shown == "gc.collect" for each in functions], np.bool_)
    # What calls itself counts once.
    group, begin, stop = frames.spans(function)
    share = summed(overlap(in_program, begin, stop), group)
    measured = BetweenCalls(
        total_ps=outside.total(),
        framework_share=float(own_ps[by_itself].sum()) / total,
        waiting_share=float(of_function[waits].sum()),
        computing_share=float(of_function[computes].sum()),
        collecting_share=float(share[collects].sum()),
    )
    is_named = np.array([not each.name.startswith("<") for each in functions], np.bool_)
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
    # What the function calls itself, or what lies outside of all functions of the program.
    callers = _nearest(frames.parent, is_named[function])[frames.parent]
    caller = np.where((frames.parent >= 0) & (callers >= 0), function[callers], -1)
    called = (caller == holder) & (function != holder) & is_named[function] & ~of_framework
    by_callee = summed(np.where(called, overlap(outside, frames.start, frames.end), 0), function)
    found = int(by_callee.argmax())
    if by_callee[found] >= (_QUARTER if holder >= 0 else _HALF):
        measured = replace(measured, callee=functions[found].shown, callee_share=float(by_callee[found]))
    return measured


def _of_line(frames: PythonFrames, line: int) -> PythonFrames:
    """Return the frames of a line, which lie side by side."""
    first, last = np.searchsorted(frames.line, (line, line + 1)).tolist()
    rows = slice(first, last)
    parent = np.where(frames.parent[rows] >= 0, frames.parent[rows] - first, -1)
    columns = (frames.rows[rows], frames.name[rows], frames.line[rows], parent, frames.start[rows], frames.end[rows])
    return PythonFrames(**dict(zip(("rows", "name", "line", "parent", "start", "end"), columns, strict=True)))


def _nearest(parent: Int64s, wanted: Bools) -> Int64s:
    """Return for each frame the nearest wanted one among itself and those around it; -1: none is wanted."""
    found = np.where(wanted, np.arange(len(parent)), parent)
    for _ in range(_DEEPEST):
        found = np.where(found >= 0, found[found], -1)
    return np.where((found >= 0) & wanted[found], found, -1)


def _is_framework(function: PythonFunction, *, is_jax: bool) -> bool:
    return function.package in ("tensorflow", "keras", "tfperf") or (
        is_jax and bool(_FILES_OF_JAX.fullmatch(function.file))
    )


def _waits(function: PythonFunction) -> bool:
    in_c = not function.file and bool(_WAITS.fullmatch(function.name.rpartition(".")[2]))
    return in_c or _awaits_device(function)


def _awaits_device(function: PythonFunction) -> bool:
    return state_of(f"${function.shown}") == State.SYNC


def _computes(function: PythonFunction) -> bool:
    """Tell whether a function computes for sure: functions of numpy in C may wait for an array of JAX."""
    if function.file:
        return not _awaits_device(function)
    is_of_array = function.package == NO_MODULE and (
        hasattr(np.ndarray, function.name) or hasattr(np.ufunc, function.name)
    )
    return is_of_array or function.shown.startswith(("builtins.", "gc."))
