"""Python functions as stacks, with the time of the innermost: for flame graphs.

The sums over stacks are those of the table of functions. Time in steps is cut at their edges.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.analysis.registry import SectionSpec
from tfperf.base.arrays import MOST, Int64s, covers, distinct_index, overlap, union
from tfperf.trace.host.python_frames import PythonFrames, python_frames
from tfperf.trace.host.python_packages import python_functions

if TYPE_CHECKING:
    from tfperf.analysis.results import Host
    from tfperf.trace.steps.steps import Steps

STACKS = SectionSpec(
    name="python_stacks",
    title="Python stacks",
    rests_on=("steps",),
    analyze="tfperf.sections.python.stacks:analyze",
    combine="tfperf.sections.python.stacks:combine",
    combines_in_tree=True,
    shorten="tfperf.sections.python.stacks:shorten",
    build="tfperf.sections.python.section:build",  # which nobody calls: no report has it
)


class Frame(NamedTuple):
    """A function of Python as people read it, and the package that it is of (empty: of none that is known)."""

    function: str
    package: str


PythonStack = tuple[Frame, ...]
OTHERS: PythonStack = (Frame("(other functions)", ""),)
"""What stands for the stacks of a host beyond those that are kept."""


class StackSum(NamedTuple):
    """Calls of the innermost function of a stack, and its own time: in the capture, and in the steps that count."""

    calls: int
    self_ps: int
    step_calls: int
    step_self_ps: int


class PythonStacks(Struct, frozen=True, kw_only=True):
    """Stacks, the outermost function first; `step_count` counts the steps of all hosts that have Python frames."""

    sums: dict[PythonStack, StackSum]
    step_count: int


def analyze(host: Host) -> PythonStacks:
    """Add up the frames of a host by their stack; without frames there are none."""
    trace = host.trace
    frames = python_frames(trace)
    if frames is None:
        return PythonStacks(sums={}, step_count=0)
    steps: Steps = host["steps"].steps
    counts = steps.headline
    counted = union(steps.start_ps[counts], steps.end_ps[counts])
    stack_of, above, name = _numbered(frames)
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


def combine(hosts: Sequence[PythonStacks]) -> PythonStacks:
    """Add up the stacks of several hosts."""
    if len(hosts) == 1:
        return hosts[0]
    sums: dict[PythonStack, StackSum] = {}
    for host in hosts:
        for stack, value in host.sums.items():
            _add(sums, stack, value)
    return PythonStacks(sums=sums, step_count=sum(host.step_count for host in hosts))


def shorten(stacks: PythonStacks, most: int) -> PythonStacks:
    """Return so many stacks, those with most own time, and one for all others."""
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


def _sums(group: Int64s, values: Int64s, count: int) -> Int64s:
    return np.minimum(np.bincount(group, weights=values, minlength=count), MOST).astype(np.int64)


def _numbered(frames: PythonFrames) -> tuple[Int64s, list[int], list[int]]:
    """Return for each frame the number of its stack; of each stack that around it (-1: none), and its innermost name.

    From the outermost frames inward, level by level: calls of one function in one stack have one number.
    """
    depth, size = _depths(frames.parent), int(frames.name.max()) + 1
    order = np.argsort(depth, kind="stable")
    number = np.full(len(frames) + 1, -1, np.int64)  # the last entry stands for no frame (-1)
    above: list[int] = []
    name: list[int] = []
    for level in np.split(order, np.flatnonzero(np.diff(depth[order])) + 1):
        keys, index = distinct_index((number[frames.parent[level]] + 1) * size + frames.name[level])
        number[level] = len(above) + index
        above.extend((keys // size - 1).tolist())
        name.extend((keys % size).tolist())
    return number[:-1], above, name


def _depths(parent: Int64s) -> Int64s:
    """Return how many frames are around each; pointers to those around double their reach in each round."""
    depth, ancestor = (parent >= 0).astype(np.int64), parent
    while (ancestor >= 0).any():
        above = np.maximum(ancestor, 0)
        depth = depth + np.where(ancestor >= 0, depth[above], 0)
        ancestor = np.where(ancestor >= 0, ancestor[above], -1)
    return depth
