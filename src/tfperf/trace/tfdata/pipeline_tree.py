"""Which stages tf.data's iterators are, and which pipelines the stages make.

An iterator has an id, made from its address: after it is gone, another one may get the same. So an iterator is known by
its id, its consumer's id and its name, and of several consumers with an id it is the one of its time.

A program may have several iterators of one dataset at a time, such as one that it no longer reads and that still fills
its buffer. Within one pipeline, only one iterator of a name is called at a time: names hold the numbers of inputs.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Int64s, distinct
from tfperf.trace.event_names import concrete_function, is_fetch, mask
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.nesting import last_around

_INDEX = re.compile(r"\[\d+\]")
_DEEPEST = 255
"""No program chains more stages; what does was made to look so."""


class Stage(Struct, frozen=True):
    """One stage of a pipeline; `parent` is the index of its consumer (-1: it is the outermost)."""

    name: str
    path: str
    pipeline: int
    parent: int
    depth: int
    recorded: bool = True
    """False: no call of it lies wholly in the capture; it is known from its inputs only."""


class PipelineTree(Struct, frozen=True):
    """Stages and pipelines; `roots` holds the outermost stage of each pipeline, `stage_of_call` the stage of each call.

    `cut` tells which pipelines have no call of their outermost stage, `iterators` how many outermost iterators each has
    had, one after the other.
    """

    stages: tuple[Stage, ...]
    roots: tuple[int, ...]
    cut: tuple[bool, ...]
    iterators: tuple[int, ...]
    stage_of_call: Int64s

    def is_device(self, python: set[int]) -> tuple[bool, ...]:
        """Tell which pipelines hand elements to a device: those whose prefetch, or outermost stage, asks a generator.

        `python` are the stages that run Python: a generator of the program's own is among them.
        """
        outside = {
            *self.roots,
            *(i for i, each in enumerate(self.stages) if each.name == "Prefetch" and each.parent in (-1, *self.roots)),
        }
        generators = {index for index, stage in enumerate(self.stages) if stage.name == "Generator"} - python
        feeding = {self.stages[index].pipeline for index in generators if self.stages[index].parent in outside}
        return tuple(number in feeding for number in range(len(self.roots)))


def build_tree(trace: HostTrace, rows: Int64s) -> PipelineTree:
    """Merge the iterators of the calls at `rows` to stages: those of one pipeline with the same path."""
    iterators = _Iterators.of(trace, rows)
    top = np.where(iterators.parent >= 0, iterators.parent, np.arange(len(iterators.parent)))
    for _ in range(_DEEPEST.bit_length()):
        top = top[top]  # at last the outermost iterator above each
    rooted = {root for root in set(top.tolist()) if iterators.outermost[root]}
    pipeline_of = _same_pipelines(trace, iterators, top, rooted)
    builder = _Builder()
    members: dict[tuple[int, int], list[int]] = {}
    for index, (root, name) in enumerate(zip(top.tolist(), iterators.name.tolist(), strict=True)):
        members.setdefault((root, name), []).append(index)

    def consumers_first(key: tuple[int, int]) -> tuple[object, ...]:
        """Pipelines without a call of their outermost stage come last, by what the others show."""
        root, name = key
        return root not in rooted, min(iterators.depth[i] for i in members[key]), iterators.paths[name], key

    stage_of_iterator = np.full(len(iterators.ids), -1, np.int64)
    for root, name in sorted(members, key=consumers_first):
        alike = members[root, name]
        above = int(iterators.parent[alike[0]])
        consumer = int(stage_of_iterator[above]) if above >= 0 else -1
        called = _Called(name, int(iterators.start[alike].min()), int(iterators.last_start[alike].max()))
        stage_of_iterator[alike] = builder.add(iterators.paths[name], consumer, pipeline_of.get(root), called)
    ids: dict[int, set[int]] = {}
    for root in rooted:
        ids.setdefault(builder.pipeline_of_root[pipeline_of[root]], set()).add(root)
    return PipelineTree(
        stages=tuple(builder.stages),
        roots=tuple(builder.roots),
        cut=tuple(not builder.stages[root].recorded for root in builder.roots),
        iterators=tuple(max(len(ids.get(number, ())), 1) for number in range(len(builder.roots))),
        stage_of_call=stage_of_iterator[iterators.of_call],
    )


class _Iterators(Struct, frozen=True):
    """One entry per iterator: its id, name, consumer (an index, -1: none); `of_call` is the iterator of each call."""

    ids: Int64s
    name: Int64s
    parent: Int64s
    depth: list[int]
    outermost: list[bool]
    start: Int64s
    last_start: Int64s
    """When the last call starts."""
    end: Int64s
    first_row: Int64s
    label: list[int]
    paths: dict[int, str]
    of_call: Int64s

    @staticmethod
    def of(trace: HostTrace, rows: Int64s) -> _Iterators:
        """Tell the iterators apart, and find the consumer of each."""
        call_ids, call_parents = trace.number_at("id", rows), trace.number_at("parent_id", rows)
        call_names = trace.name[rows].astype(np.int64)
        key = call_ids * 3 + call_parents * 0x9E3779B97F4A7C1 + call_names * 0x5851F42D4C957F2
        _, first, of_call = np.unique(key, return_index=True, return_inverse=True)
        of_call = of_call.reshape(-1)
        start, end = np.full(len(first), np.iinfo(np.int64).max), np.zeros(len(first), np.int64)
        last_start = np.zeros(len(first), np.int64)
        np.minimum.at(start, of_call, trace.start_ps[rows])
        np.maximum.at(last_start, of_call, trace.start_ps[rows])
        np.maximum.at(end, of_call, trace.end_ps[rows])
        ids, names = call_ids[first], call_names[first]
        paths = {name: stage_path(trace.names[name]) for name in set(names.tolist())}
        outermost = [paths[name].count("::") == 1 for name in names.tolist()]
        depth, parent = _depths(np.where(outermost, -1, _of_its_time(ids, start, call_parents[first])))
        label = trace.number_at("name", rows[first], -1).tolist()
        times = start, last_start, end
        return _Iterators(ids, names, parent, depth, outermost, *times, rows[first], label, paths, of_call)


def _of_its_time(ids: Int64s, start: Int64s, wanted: Int64s) -> Int64s:
    """Return, for each iterator, the one with the wanted id that started last before it (else the first with it)."""
    order = np.lexsort((start, ids))
    ordered = ids[order]
    first, last = np.searchsorted(ordered, wanted), np.searchsorted(ordered, wanted, side="right")
    rank = np.empty(len(ids), np.int64)
    rank[np.argsort(start, kind="stable")] = np.arange(len(ids))
    number = np.searchsorted(distinct(ids), ordered)
    composite = number * len(ids) + rank[order]
    place = np.searchsorted(composite, number[np.minimum(first, len(ids) - 1)] * len(ids) + rank, side="right") - 1
    chosen = order[np.clip(place, first, np.maximum(last - 1, first)) % len(ids)]
    return np.where((first < last) & (chosen != np.arange(len(ids))), chosen, -1)


def _same_pipelines(trace: HostTrace, iterators: _Iterators, top: Int64s, rooted: set[int]) -> dict[int, int]:
    """Return for each outermost iterator which one stands for its pipeline.

    A program makes a new iterator for each epoch. Iterators of equal name and stages are one pipeline if each starts
    after the one before has ended, and the same function asks them: that tells training from validation.
    """
    paths: dict[int, set[str]] = {root: set() for root in rooted}
    for index, root in enumerate(top.tolist()):
        if root in rooted:
            paths[root].add(iterators.paths[int(iterators.name[index])])
    start, end, label = iterators.start, iterators.end, iterators.label
    asked_by = _asking_functions(trace, {root: int(iterators.first_row[root]) for root in rooted})
    pipelines: list[list[int]] = []
    for root in sorted(rooted, key=lambda root: (int(start[root]), root)):
        for others in pipelines:
            first, last = others[0], others[-1]
            alike = paths[first] <= paths[root] or paths[root] <= paths[first]
            same = label[first] == label[root] and asked_by[first] == asked_by[root]
            if alike and same and end[last] <= start[root]:
                others.append(root)
                break
        else:
            pipelines.append([root])
    return {root: others[0] for others in pipelines for root in others}


def _asking_functions(trace: HostTrace, rows: dict[int, int]) -> dict[int, str]:
    """Return the concrete function in which a call is asked for (empty: none, or unknown).

    The call lies in a fetch, which carries the id of the executor's run; that run starts inside the call of a function.
    """
    fetches = trace.host_events(mask(trace.names, is_fetch))
    runs = trace.host_events(mask(trace.names, "FunctionRun".__eq__))
    functions = trace.host_events(mask(trace.names, concrete_function))
    around = last_around(trace, functions, runs)
    ids = trace.number_at("id", runs[around >= 0]).tolist()
    name_of_run = dict(zip(ids, trace.name[functions[around[around >= 0]]].tolist(), strict=True))
    fetch = last_around(trace, fetches, np.array([*rows.values()], np.int64))
    run_of_fetch = trace.number_at("id", np.append(fetches, -1)[fetch]).tolist()
    names = (trace.names[name_of_run[run]] if run in name_of_run else "" for run in run_of_fetch)
    return {root: concrete_function(name) for root, name in zip(rows, names, strict=True)}


def _depths(parent: Int64s) -> tuple[list[int], Int64s]:
    """Return how many iterators are above each, and the parents without those that (hostile) go round in circles."""
    depth, ancestor = np.where(parent >= 0, 1, 0), parent.copy()
    for _ in range(_DEEPEST):
        inside = ancestor >= 0
        if not inside.any():
            break
        ancestor = np.where(inside, parent[ancestor], -1)
        depth += ancestor >= 0
    return depth.tolist(), np.where(ancestor >= 0, -1, parent)


def stage_path(name: str) -> str:
    """Return the path of an iterator without the numbers of inputs that are all alike."""
    *before, last = name.split("::")
    return "::".join([*(part if _is_branch(part) else _INDEX.sub("", part) for part in before), last])


def _is_branch(part: str) -> bool:
    """Tell whether a numbered input differs from the others of its stage; files and repetitions are all alike."""
    stage, bracket, _ = part.partition("[")
    chosen = "Choose" in stage or "Sample" in stage or stage.startswith("Directed")
    return bool(bracket) and part.endswith("]") and (chosen or stage in ("Zip", "Concatenate"))


class _Called(NamedTuple):
    """Iterators of one name in one pipeline, and from when to when they are called."""

    name: int
    first_ps: int
    last_ps: int


class _Builder:
    """Stages while they are found."""

    def __init__(self) -> None:
        self.stages: list[Stage] = []
        self.roots: list[int] = []
        self.pipeline_of_root: dict[int, int] = {}
        self._index: dict[tuple[int, str], int] = {}
        self._by_path: dict[str, list[int]] = {}
        self._called: dict[tuple[int, int], list[tuple[int, int]]] = {}

    def add(self, path: str, consumer: int, root: int | None, called: _Called) -> int:
        """Return the stage of this path: of the pipeline of its consumer, or of `root`, or of one that it fits to."""
        if consumer >= 0:
            stage = self._stage(self.stages[consumer].pipeline, path, consumer)
        elif root is not None and path.count("::") == 1:
            pipeline = self.pipeline_of_root.setdefault(root, len(self.roots))
            stage = self._outermost(pipeline, path, recorded=True)
        else:
            stage = self._orphan(path, called)
        times = self._called.setdefault((self.stages[stage].pipeline, called.name), [])
        times.insert(bisect_left(times, called[1:]), called[1:])
        return stage

    def _outermost(self, pipeline: int, path: str, *, recorded: bool) -> int:
        stage = self._stage(pipeline, path, -1, recorded=recorded)
        if pipeline == len(self.roots):
            self.roots.append(stage)
        return stage

    def _stage(self, pipeline: int, path: str, consumer: int, *, recorded: bool = True) -> int:
        key = pipeline, path
        if key not in self._index:
            self._index[key] = len(self.stages)
            depth = self.stages[consumer].depth + 1 if consumer >= 0 else 0
            name = _INDEX.sub("", path.rpartition("::")[2])
            self._by_path.setdefault(path, []).append(len(self.stages))
            self.stages.append(Stage(name, path, pipeline, consumer, depth, recorded))
        return self._index[key]

    def _orphan(self, path: str, called: _Called) -> int:
        """Place a stage whose consumers have no call in the capture by its path: what is missing above is added."""
        alike = self._fitting(path, called)
        if len(alike) == 1:
            return alike[0]
        parts = path.split("::")
        above = ["::".join([*parts[: end - 1], _INDEX.sub("", parts[end - 1])]) for end in range(2, len(parts))]
        length, consumer = 0, -1
        for count in range(len(above), 0, -1):
            fitting = self._fitting(above[count - 1], called)
            if len(fitting) == 1:
                length, consumer = count, fitting[0]
            if fitting:
                break
        if consumer < 0:
            consumer, length = self._outermost(len(self.roots), above[0], recorded=False), 1
        for missing in above[length:]:
            consumer = self._stage(self.stages[consumer].pipeline, missing, consumer, recorded=False)
        return self._stage(self.stages[consumer].pipeline, path, consumer)

    def _fitting(self, path: str, called: _Called) -> list[int]:
        """Return the stages of a path, of pipelines in which no other iterator of this name is called meanwhile."""
        return [
            stage for stage in self._by_path.get(path, ()) if not self._is_rival(self.stages[stage].pipeline, called)
        ]

    def _is_rival(self, pipeline: int, called: _Called) -> bool:
        times = self._called.get((pipeline, called.name), ())
        before = times[: bisect_left(times, (called.last_ps,))][-1:]
        return any(last_ps > called.first_ps for _, last_ps in before)
