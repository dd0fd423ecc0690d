"""The tf.data pipelines in a trace: their stages, calls, hand-overs, runs of user functions, and work.

An iterator's id is made from its address, which may be reused. So an iterator is identified by its id, its consumer's
id and its name; of several consumers with an id it belongs to the one at its time.

A program may have several iterators of one dataset at a time, such as one that it no longer reads and that still fills
its buffer. Within one pipeline, only one iterator of a name is called at a time: names contain input numbers.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import (
    Bools,
    Int32s,
    Int64s,
    Intervals,
    Uint8s,
    distinct,
    distinct_index,
    lookup,
    overlap,
    union,
)
from tfperf.trace.event_names import concrete_function, is_fetch, is_hand_over, is_iterator, mask, parse_op
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.nesting import last_around, own_parts, parents

_INDEX = re.compile(r"\[\d+\]")
_BRANCH = re.compile(r"(?:(?:[^[]*(?:Choose|Sample)|Directed)[^[]*|Zip|Concatenate)\[.*\]$", re.DOTALL)
"""A numbered input that differs from the others of its stage; files and repetitions are all alike."""
_DEEPEST = 255
"""Maximum depth: longer chains of stages do not occur in real programs."""


class Stage(Struct, frozen=True):
    """One stage of a pipeline; `parent` is the index of its consumer (-1: it is the outermost)."""

    name: str
    path: str
    pipeline: int
    parent: int
    depth: int
    recorded: bool = True
    """False: no call of it is entirely in the capture; it is known from its inputs only."""


class PipelineTree(Struct, frozen=True):
    """Stages and pipelines; `roots` holds the outermost stage of each pipeline, `stage_of_call` the stage of each call.

    `cut` marks the pipelines without a call of their outermost stage, `iterators` counts the successive outermost
    iterators.
    """

    stages: tuple[Stage, ...]
    roots: tuple[int, ...]
    cut: tuple[bool, ...]
    iterators: tuple[int, ...]
    stage_of_call: Int64s

    def is_device(self, python: set[int]) -> tuple[bool, ...]:
        """Return which pipelines feed a device: their prefetch or outermost stage calls a generator not in `python`."""
        outside = {
            *self.roots,
            *(i for i, each in enumerate(self.stages) if each.name == "Prefetch" and each.parent in (-1, *self.roots)),
        }
        generators = {index for index, stage in enumerate(self.stages) if stage.name == "Generator"} - python
        feeding = {self.stages[index].pipeline for index in generators if self.stages[index].parent in outside}
        return tuple(number in feeding for number in range(len(self.roots)))


def build_tree(trace: HostTrace, rows: Int64s) -> PipelineTree:
    """Merge the iterators of the calls at `rows` into stages: those of one pipeline with the same path."""
    iterators = _Iterators.of(trace, rows)
    top = np.where(iterators.parent >= 0, iterators.parent, np.arange(len(iterators.parent)))
    for _ in range(_DEEPEST.bit_length()):
        top = top[top]  # finally the outermost iterator above each
    rooted = {root for root in set(top.tolist()) if iterators.outermost[root]}
    pipeline_of = _same_pipelines(trace, iterators, top, rooted)
    builder = _Builder()
    members: dict[tuple[int, int], list[int]] = {}
    for index, (root, name) in enumerate(zip(top.tolist(), iterators.name.tolist(), strict=True)):
        members.setdefault((root, name), []).append(index)

    def consumers_first(key: tuple[int, int]) -> tuple[object, ...]:
        """Sort pipelines without a call of their outermost stage last, by the data of the others."""
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
    end: Int64s
    first_row: Int64s
    label: list[int]
    paths: dict[int, str]
    of_call: Int64s

    @staticmethod
    def of(trace: HostTrace, rows: Int64s) -> _Iterators:
        """Identify the iterators and their consumers."""
        call_ids, call_parents = trace.number_at("id", rows), trace.number_at("parent_id", rows)
        call_names = trace.name[rows]
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
    """Return for each outermost iterator the one that represents its pipeline.

    A program makes a new iterator for each epoch. Iterators of equal name and stages are one pipeline if each starts
    after the previous one has ended, and the same function calls them, which separates training from validation.
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
    """Return the concrete function that makes a call (empty: none, or unknown).

    The call is inside a fetch, which has the id of the executor's run; that run starts inside the call of a function.
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
    """Return the number of iterators above each, and the parents without (hostile) cycles."""
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
    return "::".join([*(part if _BRANCH.match(part) else _INDEX.sub("", part) for part in before), last])


class _Called(NamedTuple):
    name: int
    first_ps: int
    last_ps: int


class _Builder:
    """Builder of the stages of pipelines."""

    def __init__(self) -> None:
        self.stages: list[Stage] = []
        self.roots: list[int] = []
        self.pipeline_of_root: dict[int, int] = {}
        self._index: dict[tuple[int, str], int] = {}
        self._by_path: dict[str, list[int]] = {}
        self._called: dict[tuple[int, int], list[tuple[int, int]]] = {}

    def add(self, path: str, consumer: int, root: int | None, called: _Called) -> int:
        """Return the stage of this path, in the pipeline of its consumer, in that of `root`, or in a matching one."""
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
        """Add a stage without recorded consumers by its path, together with the missing stages above."""
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
        """Return the stages of a path in pipelines without calls of another iterator of this name at that time."""
        fitting = []
        for stage in self._by_path.get(path, ()):
            times = self._called.get((self.stages[stage].pipeline, called.name), ())
            before = times[: bisect_left(times, (called.last_ps,))][-1:]
            if not any(last_ps > called.first_ps for _, last_ps in before):
                fitting.append(stage)
        return fitting


# --- pipelines ---

_ITERATOR, _PRODUCE, _FUNCTION = 1, 2, 3
_SETTINGS = ("parallelism", "buffer_limit", "batch_size", "cycle_length", "cpu_budget", "threadpool_size")
_LABELS = ("name", "autotune", "deterministic")
_OPENS = re.compile(r"FlatMap|(?:Legacy)?(?:Parallel)?Interleave|GroupBy|Window")
"""Stages that make an iterator for each of their elements."""


class StageCalls(Struct, frozen=True):
    """Calls of stages (GetNext), in row order: the stage, the times, and the tf.data event around it on its thread.

    `around` is an index into these calls: the call around it, -1 if there is none on its thread.
    """

    row: Int64s
    stage: Int64s
    start: Int64s
    end: Int64s
    around: Int64s
    in_produce: Int64s
    """Index into `produced` of the hand-over around the call, -1 for none."""


class Produced(Struct, frozen=True):
    """Work of an asynchronous stage on its own threads (`PrefetchProduce`); the stage is -1 if unknown."""

    row: Int64s
    stage: Int64s
    start: Int64s
    end: Int64s


class Made(Struct, frozen=True):
    """Iterators made inside of calls, as at the start of an epoch, with the call; those per element are stage work."""

    row: Int64s
    around: Int64s
    start: Int64s
    end: Int64s


class Pipelines(Struct, frozen=True, dict=True):
    """All pipelines of a host. `roots` holds the index of the outermost stage of each."""

    stages: tuple[Stage, ...]
    roots: tuple[int, ...]
    calls: StageCalls
    produced: Produced
    made: Made
    runs: FunctionRuns
    device: tuple[bool, ...]
    """Per pipeline: whether it only copies the elements of another one to a device."""
    fetched: tuple[bool, ...]
    """Per pipeline: whether the program calls it (rather than, for example, a data service worker)."""
    handed_on: tuple[bool, ...]
    """Per pipeline: whether a device pipeline calls it, not the program."""
    cut: tuple[bool, ...]
    """Per pipeline: whether the capture has no call of its outermost stage."""
    iterators: tuple[int, ...]
    """Per pipeline: the number of successive outermost iterators (a program makes one per epoch)."""
    settings: dict[str, Int64s]
    """Settings recorded by stages (`parallelism`, `buffer_limit`, ...): per stage, the largest; -1: unknown."""
    labels: dict[str, tuple[str, ...]]
    """Texts recorded by stages (`name`, `autotune`, `deterministic`); empty: unknown."""
    buffered: tuple[float, ...]
    """Per stage: average number of elements in its buffer at a call; NaN: unknown."""

    def children(self, stage: int) -> list[int]:
        """Return the stages that provide the input of a stage."""
        return [*self._children.get(stage, ())]

    @cached_property
    def _children(self) -> dict[int, list[int]]:
        children: dict[int, list[int]] = {}
        for index, stage in enumerate(self.stages):
            children.setdefault(stage.parent, []).append(index)
        return children

    def members(self, pipeline: int) -> list[int]:
        """Return the stages of a pipeline, outermost first, each before its inputs and these before the next input."""
        members, waiting = [], [self.roots[pipeline]]
        while waiting:
            stage = waiting.pop()
            members.append(stage)
            waiting += reversed(self.children(stage))
        return members


def find_pipelines(trace: HostTrace) -> Pipelines | None:
    """Return the pipelines of a host; None if tf.data recorded nothing."""
    recorded = _Recorded.of(trace)
    calls_at = np.flatnonzero(recorded.kind == _ITERATOR)
    if not len(calls_at):
        return None
    rows = recorded.rows
    tree = build_tree(trace, rows[calls_at])
    stage = np.full(len(rows), -1, np.int64)
    stage[calls_at] = tree.stage_of_call
    produce_at = np.flatnonzero(recorded.kind == _PRODUCE)
    stage[produce_at] = _producers(recorded, produce_at, stage, tree)
    function_at = np.flatnonzero(recorded.kind == _FUNCTION)
    runs = find_function_runs(trace, rows[function_at], _callers(recorded, function_at, stage, tree))
    device = tree.is_device({stage for stage, _, op_type in runs.ops if "PyFunc" in op_type})
    above = recorded.above[calls_at]
    row, produced = rows[calls_at], rows[produce_at]
    around, in_produce = lookup(calls_at, above), lookup(produce_at, above)
    calls = StageCalls(row, stage[calls_at], trace.start_ps[row], trace.end_ps[row], around, in_produce)
    settings = {name: np.full(len(tree.stages), -1, np.int64) for name in _SETTINGS}
    for name, largest in settings.items():
        np.maximum.at(largest, tree.stage_of_call, trace.number_at(name, calls.row, -1))
    fetches = trace.host_events(mask(trace.names, is_fetch))
    fetched = last_around(trace, fetches, calls.row) >= 0
    labels = {}
    for name in _LABELS:  # the last value counts
        last, value = np.full(len(tree.stages), -1, np.int64), trace.number_at(name, calls.row, -1)
        last[tree.stage_of_call[value >= 0]] = value[value >= 0]
        texts = (*trace.stat(name).texts, "")
        labels[name] = tuple(texts[index] for index in last.tolist())
    return Pipelines(
        stages=tree.stages,
        roots=tree.roots,
        calls=calls,
        produced=Produced(produced, stage[produce_at], trace.start_ps[produced], trace.end_ps[produced]),
        made=_made(trace, tree, calls),
        runs=runs,
        device=device,
        fetched=tuple(bool(fetched[calls.stage == root].any()) for root in tree.roots),
        handed_on=_handed_on(trace, tree, calls, device),
        cut=tree.cut,
        iterators=tree.iterators,
        settings=settings,
        labels=labels,
        buffered=_buffered(trace, calls.row, tree),
    )


def _made(trace: HostTrace, tree: PipelineTree, calls: StageCalls) -> Made:
    """Return the outermost iterators that are made inside of calls of stages."""
    rows = trace.host_events(mask(trace.names, lambda name: name.startswith("MakeIterator::")))
    rows = rows[parents(trace, rows) < 0]
    around = last_around(trace, calls.row, rows)
    opens = np.array([bool(_OPENS.match(stage.name)) for stage in tree.stages], np.bool_)
    kept = (around >= 0) & ~opens[calls.stage[around]]
    rows, around = rows[kept], around[kept]
    return Made(rows, around, trace.start_ps[rows], trace.end_ps[rows])


class _Recorded(NamedTuple):
    """Recorded tf.data events: trace rows, the kind of each, and the index into these rows of the event around it."""

    trace: HostTrace
    rows: Int64s
    kind: Uint8s
    above: Int64s
    """-1: no tf.data event is around it on its thread."""

    @staticmethod
    def of(trace: HostTrace) -> _Recorded:
        """Return the events without calls of iterators that have no id."""
        of_name = np.zeros(len(trace.names), np.uint8)
        of_name[mask(trace.names, is_hand_over)] = _PRODUCE
        of_name[mask(trace.names, lambda name: name.startswith("InstantiatedCapturedFunction::"))] = _FUNCTION
        of_name[mask(trace.names, is_iterator)] = _ITERATOR
        rows = trace.host_events(of_name > 0)
        kind = of_name[trace.name[rows]]
        usable = (kind != _ITERATOR) | trace.has_stat("id")[rows]
        rows, kind = rows[usable], kind[usable]
        return _Recorded(trace, rows, kind, parents(trace, rows))


def _producers(recorded: _Recorded, produce_at: Int64s, stage: Int64s, tree: PipelineTree) -> Int64s:
    """Return the stage of each hand-over: the consumer of its first fetch, else as for others like it on its thread."""
    trace, rows, kind, above = recorded
    consumer = np.array([each.parent for each in tree.stages], np.int64)
    fetched = np.flatnonzero((kind == _ITERATOR) & (above >= 0))
    fetched = fetched[kind[above[fetched]] == _PRODUCE]
    owner = np.full(len(produce_at), -1, np.int64)
    # Written in reverse order, so that the first fetch decides.
    owner[lookup(produce_at, above[fetched[::-1]])] = consumer[stage[fetched[::-1]]]
    produced = rows[produce_at]
    alike = trace.line_of[produced].astype(np.int64) * len(trace.names) + trace.name[produced]
    groups, group = distinct_index(alike)
    usual = np.full(len(groups), -1, np.int64)
    usual[group[owner >= 0]] = owner[owner >= 0]
    return np.where(owner >= 0, owner, usual[group]) if len(group) else owner


def _callers(recorded: _Recorded, function_at: Int64s, stage: Int64s, tree: PipelineTree) -> Int64s:
    """Return the stage that runs each function: that of the event around it.

    Older versions record no event around it, and the capture's edge may cut it off. Then it is a consumer of the
    previous call on the thread: the nearest one that is known to run functions, else the nearest.
    """
    trace, rows, _, above = recorded
    consumer = [each.parent for each in tree.stages]
    owner = np.where(above[function_at] >= 0, stage[np.maximum(above[function_at], 0)], -1)
    running = set(owner.tolist()) - {-1}
    calls = np.flatnonzero((above < 0) & (stage >= 0))
    lost = np.flatnonzero((owner < 0) & (above[function_at] < 0))
    if not len(calls) or not len(lost):
        return owner
    before = calls[np.maximum(np.searchsorted(calls, function_at[lost]) - 1, 0)]
    near = (before < function_at[lost]) & (trace.line_of[rows[before]] == trace.line_of[rows[function_at[lost]]])
    runners = np.full(len(consumer), -1, np.int64)
    for index in distinct(stage[before]).tolist():
        runner = consumer[index]
        while runner >= 0 and runner not in running:
            runner = consumer[runner]
        runners[index] = runner if runner >= 0 else consumer[index]
    owner[lost] = np.where(near, runners[stage[before]], -1)
    return owner


def _handed_on(trace: HostTrace, tree: PipelineTree, calls: StageCalls, device: tuple[bool, ...]) -> tuple[bool, ...]:
    """Return which pipelines feed device pipelines: called by a thread for it, or while a generator of one runs."""
    generators = [i for i, stage in enumerate(tree.stages) if stage.name == "Generator" and device[stage.pipeline]]
    if not generators:
        return (False,) * len(device)
    asking = np.isin(calls.stage, generators)
    busy = union(calls.start[asking], calls.end[asking])
    feeding = np.array([line.name.startswith("tf_data_multi_device_iterator") for line in trace.lines], np.bool_)
    handed_on = []
    for is_device, root in zip(device, tree.roots, strict=True):
        of_root = calls.stage == root
        start, end = calls.start[of_root], calls.end[of_root]
        inside = int(overlap(busy, start, end).sum())
        by_thread = bool(feeding[trace.line_of[calls.row[of_root]]].any())
        handed_on.append(not is_device and bool(len(start)) and (by_thread or 2 * inside > int((end - start).sum())))
    return tuple(handed_on)


def _buffered(trace: HostTrace, rows: Int64s, tree: PipelineTree) -> tuple[float, ...]:
    """Return the average fill of buffers. Versions that record it omit it for an empty one."""
    value = trace.number_at("buffered_elements", rows, -1)
    limit = trace.number_at("buffer_limit", rows, -1)
    count = len(tree.stages)
    tells = np.bincount(tree.stage_of_call[value >= 0], minlength=count) > 0
    if len(trace.stat("cpu_budget").event):  # newer than the first version that records it
        tells |= np.bincount(tree.stage_of_call[limit >= 0], minlength=count) > 0
    total = np.bincount(tree.stage_of_call, weights=np.maximum(value, 0), minlength=count)
    times = np.bincount(tree.stage_of_call, minlength=count)
    return tuple((total / np.where(tells & (times > 0), times, np.nan)).tolist())


OpKey = tuple[int, str, str]


class FunctionRuns(Struct, frozen=True, kw_only=True):
    """Runs of user functions: stage (-1: unknown), start, end; `busy` is the summed time of executor threads on it."""

    row: Int64s
    stage: Int64s
    start: Int64s
    end: Int64s
    busy: Int64s
    started: Int64s
    """End of the event on the thread of tf.data."""
    is_async: Bools
    """Whether the run was only started on the thread of tf.data."""
    ops: dict[OpKey, tuple[int, int]]
    """Number of runs of each op inside, and their picoseconds."""
    other_ops: Int64s
    """Rows of the ops on host threads outside of all runs."""
    work: tuple[Int64s, Int64s]
    """Rows of the executor events that worked on runs, and the index of the run of each."""


def find_function_runs(trace: HostTrace, rows: Int64s, stage: Int64s) -> FunctionRuns:
    """Return the runs at `rows`, which belong to these stages."""
    ids = trace.number_at("id", rows)
    start, started = trace.start_ps[rows], trace.end_ps[rows]
    order = np.argsort(ids, kind="stable")
    work = trace.host_events(mask(trace.names, "ExecutorState::Process".__eq__))
    id_of_work = trace.number_at("id", work)
    place = np.where(id_of_work != 0, lookup(ids[order], id_of_work), -1)
    work, run_of_work = work[place >= 0], order[place[place >= 0]]
    end = started.copy()
    np.maximum.at(end, run_of_work, trace.end_ps[work])
    busy = np.bincount(run_of_work, weights=trace.duration_ps[work], minlength=len(rows)).astype(np.int64)
    asynchronous = mask(trace.names, "InstantiatedCapturedFunction::RunAsync".__eq__)
    op_rows = trace.host_events(mask(trace.names, lambda name: parse_op(name).kind == "tensorflow"))
    around = last_around(trace, work, op_rows)
    is_inside = around >= 0
    busy = np.where(busy > 0, busy, started - start)
    return FunctionRuns(
        row=rows,
        stage=stage,
        start=start,
        end=end,
        busy=busy,
        started=started,
        is_async=asynchronous[trace.name[rows]],
        ops=_summed(trace, op_rows[is_inside], stage[run_of_work[around[is_inside]]]),
        other_ops=op_rows[~is_inside],
        work=(work, run_of_work),
    )


def _summed(trace: HostTrace, rows: Int64s, stages: Int64s) -> dict[OpKey, tuple[int, int]]:
    sums: dict[OpKey, tuple[int, int]] = {}
    for stage in distinct(stages).tolist():
        of_stage = rows[stages == stage]
        counts = np.bincount(trace.name[of_stage])
        times = np.bincount(trace.name[of_stage], weights=trace.duration_ps[of_stage])
        for name in np.flatnonzero(counts).tolist():
            op = parse_op(trace.names[name])
            count, time = sums.get((stage, op.name, op.type), (0, 0))
            sums[stage, op.name, op.type] = count + int(counts[name]), time + int(times[name])
    return sums


# --- work ---
# On each thread the innermost tf.data event determines the work. A call, or a turn of a stage's own threads, works
# while no event of another stage is inside. A function works while executors run its ops; between its start and its end
# it is not counted as work otherwise, because it may wait for a thread.

CALL, THREAD, FUNCTION = 1, 2, 3
"""Where a stage works: in a call of it, on a thread of its own, or in its function."""
_PLACES = 4
_ASYNC = ("Prefetch", "ParallelMap", "MapAndBatch", "ParallelBatch", "ParseExample")
_INTERLEAVE = ("ParallelInterleave", "LegacyParallelInterleave")


class StageWork(Struct, frozen=True):
    """Intervals of work, ordered by stage, with the stage (-1: unknown), the place, and the event."""

    stage: Int32s
    place: Uint8s
    row: Int32s
    start: Int64s
    end: Int64s

    def at(self, stage: int, *places: int) -> Int64s:
        """Return the indices of the intervals in which a stage worked in these places."""
        first, last = np.searchsorted(self.stage, (stage, stage + 1)).tolist()
        wanted = np.zeros(_PLACES, np.bool_)
        wanted[list(places)] = True
        return np.asarray(first + np.flatnonzero(wanted[self.place[first:last]]), np.int64)

    def of(self, stage: int) -> Intervals:
        """Return the intervals in which a stage worked; those of several threads overlap."""
        first, last = np.searchsorted(self.stage, (stage, stage + 1)).tolist()
        return Intervals(self.start[first:last], self.end[first:last])

    def without_waiting(self, is_async: Sequence[bool]) -> StageWork:
        """Leave out calls of stages that get their elements from threads of their own (`asynchronous_stages`)."""
        # The last one represents stage -1.
        rows = (self.place != CALL) | ~np.array([*is_async, False], np.bool_)[self.stage]
        return StageWork(self.stage[rows], self.place[rows], self.row[rows], self.start[rows], self.end[rows])


def stage_work(trace: HostTrace, recorded: Pipelines) -> StageWork:
    """Return the work of all stages of a host."""
    calls, produced, runs = recorded.calls, recorded.produced, recorded.runs
    work, run_of_work = runs.work
    made = recorded.made.row
    rows = np.concatenate((calls.row, produced.row, runs.row, work, made))
    order = np.argsort(rows, kind="stable")
    rows = rows[order]
    no_stage = np.full(len(made), -1, np.int64)
    stage = np.concatenate((calls.stage, produced.stage, runs.stage, runs.stage[run_of_work], no_stage))[order]
    places = (
        np.full(len(calls.row), CALL, np.uint8),
        np.full(len(produced.row), THREAD, np.uint8),
        # A stage that waits for a function does not work while executors do; without any, it ran the function itself.
        np.where(runs.is_async, THREAD, np.where(has_executors(runs), 0, FUNCTION)).astype(np.uint8),
        np.full(len(work), FUNCTION, np.uint8),
        np.zeros(len(made), np.uint8),
    )
    place = np.concatenate(places)[order]
    index, start, end = own_parts(trace.start_ps[rows], trace.end_ps[rows], parents(trace, rows), place > 0)
    by_stage = np.argsort(stage[index], kind="stable")
    index, start, end = index[by_stage], start[by_stage], end[by_stage]
    return StageWork(stage[index].astype(np.int32), place[index], rows[index].astype(np.int32), start, end)


def has_executors(runs: FunctionRuns) -> Bools:
    """Return for which runs the trace has executor events."""
    return np.bincount(runs.work[1], minlength=len(runs.row)) > 0


def asynchronous_stages(recorded: Pipelines) -> list[bool]:
    """Return which stages use their own threads: by name, or because most calls of their inputs are not inside their
    calls.
    """
    calls, stages = recorded.calls, recorded.stages
    consumer = np.array([stage.parent for stage in stages], np.int64)[calls.stage]
    has_consumer = consumer >= 0
    is_direct = has_consumer & (calls.around >= 0) & (calls.stage[calls.around] == consumer)
    asked = np.bincount(consumer[has_consumer], minlength=len(stages))
    asked_directly = np.bincount(consumer[is_direct], minlength=len(stages))
    with_threads = {*recorded.produced.stage.tolist(), *recorded.runs.stage[recorded.runs.is_async].tolist()}
    return [
        stage.name.startswith((*_ASYNC, *_INTERLEAVE))
        or index in with_threads
        or (stage.recorded and bool(2 * asked_directly[index] < asked[index]))
        for index, stage in enumerate(stages)
    ]
