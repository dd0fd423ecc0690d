"""Calls from Python into TensorFlow, by the functions of Python that made them: what a profile with frames tells."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Bools, Int64s, distinct
from tfperf.models.tfprof.op_log import Stacks
from tfperf.trace.event_names import is_eager_call, is_python_frame, mask
from tfperf.trace.host.python_frames import PythonFunction, python_functions
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.nesting import nest

_FUNCTION = re.compile(r"__inference_(.+)_\d+")
_NAMED = re.compile(r"Eager(?:Local)?Execute: (.+)", re.DOTALL)
_OF_FUNCTION = "tf.function"


class PythonCalls(Struct, frozen=True, kw_only=True):
    """Calls into TensorFlow that a function of Python made: `node` indexes `nodes`, times are in picoseconds.

    A node is what is called in one place, its type the op that Python runs, or `tf.function`; `stacks` are those of the
    nodes. `self_ps` is without functions of Python that the call calls itself. `outside` counts calls that no frame is
    around.
    """

    nodes: tuple[tuple[str, str], ...]
    stacks: Stacks
    node: Int64s
    start: Int64s
    end: Int64s
    self_ps: Int64s
    outside: int


def python_calls(trace: HostTrace) -> PythonCalls | None:
    """Return the calls; None if the profile has no Python frames."""
    of_name = mask(trace.names, is_python_frame)
    if not of_name.any() or not len(trace.host_events(of_name)):
        return None
    rows = trace.host_events(of_name | mask(trace.names, is_eager_call))
    frames = _nested(trace, rows, of_name[trace.name[rows]])
    self_ps = trace.duration_ps[rows].copy()
    # A call that calls Python: what runs in those frames is not its time.
    called = np.flatnonzero(frames.called_by >= 0)
    np.add.at(self_ps, frames.called_by[called], -trace.duration_ps[rows[called]])
    calls = np.flatnonzero(frames.is_root)
    inside = calls[frames.around[calls] >= 0]
    path, paths = _paths(trace.name[rows].astype(np.int64), frames, inside)
    functions = dict(enumerate(python_functions(trace.names)))
    what, texts = _called(trace, rows, frames.root, inside)
    pairs, node = np.unique(np.stack((path, what)), axis=1, return_inverse=True)
    return PythonCalls(
        nodes=_names(
            [texts[each] for each in pairs[1].tolist()], [functions[paths.name[each]] for each in pairs[0].tolist()]
        ),
        stacks=_stacks([paths.names(each) for each in pairs[0].tolist()], functions),
        node=node.reshape(-1),
        start=trace.start_ps[rows[inside]],
        end=trace.end_ps[rows[inside]],
        self_ps=np.maximum(self_ps[inside], 0),
        outside=len(calls) - len(inside),
    )


class _Frames(NamedTuple):
    """Frames and parts of calls into TensorFlow, by index: how they lie in each other."""

    is_root: Bools
    """Whether it is a call, and no part of another one: it lies directly in a frame, or in nothing."""
    root: Int64s
    """The call that it is part of, or itself."""
    around: Int64s
    """The innermost frame around it, -1 for none."""
    called_by: Int64s
    """Of a frame that lies directly in a call: that call; else -1."""
    depth: Int64s


def _nested(trace: HostTrace, rows: Int64s, is_frame: Bools) -> _Frames:
    parent, depth = np.full((2, len(rows)), -1, np.int64)
    for line in trace.lines:
        first, last = np.searchsorted(rows, (line.start, line.stop)).tolist()
        nesting = nest(trace.start_ps[rows[first:last]], trace.end_ps[rows[first:last]])
        parent[first:last] = np.where(nesting.parent >= 0, nesting.parent + first, -1)
        depth[first:last] = nesting.depth
    in_call = (parent >= 0) & ~is_frame[parent]
    root = np.where(in_call & ~is_frame, parent, np.arange(len(rows)))
    while (root != (further := root[root])).any():
        root = further
    return _Frames(
        is_root=~is_frame & ~in_call,
        root=root,
        around=np.where(in_call, parent[root[parent]], parent),
        called_by=np.where(in_call & is_frame, root[parent], -1),
        depth=depth,
    )


def _paths(name: Int64s, frames: _Frames, calls: Int64s) -> tuple[Int64s, _Paths]:
    """Return for each call the number of its stack, and the stacks.

    From the outermost frames inward, level by level: frames of one name in one stack are one.
    """
    needed = np.zeros(len(name), np.bool_)
    waiting = frames.around[calls]
    while len(waiting := distinct(waiting[waiting >= 0])):
        waiting = waiting[~needed[waiting]]
        needed[waiting] = True
        waiting = frames.around[waiting]
    rows = np.flatnonzero(needed)
    rows = rows[np.argsort(frames.depth[rows], kind="stable")]
    number = np.full(len(name) + 1, -1, np.int64)  # the last entry stands for no frame (-1)
    paths = _Paths([], [])
    for level in np.split(rows, np.flatnonzero(np.diff(frames.depth[rows])) + 1):
        keys, index = np.unique(np.stack((number[frames.around[level]], name[level])), axis=1, return_inverse=True)
        number[level] = len(paths.above) + index.reshape(-1)
        paths.above.extend(keys[0].tolist())
        paths.name.extend(keys[1].tolist())
    return number[frames.around[calls]], paths


class _Paths(NamedTuple):
    """Stacks by number: the one without the innermost frame (-1: empty), and the name of that frame."""

    above: list[int]
    name: list[int]

    def names(self, path: int) -> list[int]:
        """Return the names of a stack, the outermost frame first."""
        found = []
        while path >= 0:
            found.append(self.name[path])
            path = self.above[path]
        return found[::-1]


def _called(trace: HostTrace, rows: Int64s, root: Int64s, calls: Int64s) -> tuple[Int64s, list[_What]]:
    """Return for each call the number of what it calls, and these: as the outermost event in it says that says it."""
    numbers: dict[_What, int] = {}
    named = (_NAMED.fullmatch(name) for name in trace.names)
    of_name = [numbers.setdefault(_what(match[1]), len(numbers)) if match else -1 for match in named]
    of_text = [numbers.setdefault(_what(text), len(numbers)) for text in trace.stat("eager_op").texts]
    noted = trace.number_at("eager_op", rows, -1)
    what = np.where(
        noted >= 0, np.array([*of_text, -1], np.int64)[noted], np.array(of_name, np.int64)[trace.name[rows]]
    )
    says = np.flatnonzero(what >= 0)
    first = np.full(len(rows), -1, np.int64)
    first[root[says][::-1]] = what[says][::-1]
    found = first[calls]
    unnamed = found < 0
    found[unnamed] = numbers.setdefault(_What("TensorFlow", "TensorFlow"), len(numbers))
    return found, [*numbers]


class _What(NamedTuple):
    """What is called: its name, and its type."""

    name: str
    type: str


def _what(text: str) -> _What:
    function = _FUNCTION.fullmatch(text)
    return _What(function[1], _OF_FUNCTION) if function else _What(text, text)


def _names(called: list[_What], callers: list[PythonFunction]) -> tuple[tuple[str, str], ...]:
    """Return names that tell the nodes apart, and their types."""
    seen: dict[str, int] = {}
    nodes = []
    for what, caller in zip(called, callers, strict=True):
        name = f"{what.name} in {caller.shown}"
        count = seen[name] = seen.get(name, 0) + 1
        nodes.append((f"{name} #{count}" if count > 1 else name, what.type))
    return tuple(nodes)


def _stacks(paths: list[list[int]], functions: dict[int, PythonFunction]) -> Stacks:
    """Return stacks as an op log has them; files of packages lie in a folder that says so."""
    used = sorted({name for path in paths for name in path})
    number = {name: place for place, name in enumerate(used)}
    of_frame = [functions[name] for name in used]
    return Stacks(
        ends=np.cumsum([0, *map(len, paths)], dtype=np.int64),
        frame=np.array([number[name] for path in paths for name in path], np.int64),
        files=[_file(function) for function in of_frame],
        lines=[function.line for function in of_frame],
        functions=[function.name for function in of_frame],
    )


def _file(function: PythonFunction) -> str:
    """Return the file of a function, for one in C its module."""
    file = function.file or function.shown.removesuffix(f".{function.name}")
    return f"/site-packages/{function.package}/{file}" if function.package else file
