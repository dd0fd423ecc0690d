"""The pipelines of tf.data in a trace: their calls, hand-overs, and the runs of users' functions."""

from __future__ import annotations

import re
from functools import cached_property
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Bools, Int64s, Uint8s, distinct, distinct_index, lookup, overlap, union
from tfperf.trace.event_names import is_fetch, is_hand_over, mask, parse_op
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.nesting import last_around, parents
from tfperf.trace.tfdata.pipeline_tree import PipelineTree, Stage, build_tree

_ITERATOR, _PRODUCE, _FUNCTION = 1, 2, 3
_SETTINGS = ("parallelism", "buffer_limit", "batch_size", "cycle_length", "cpu_budget", "threadpool_size")
_LABELS = ("name", "autotune", "deterministic")
_OPENS = re.compile(r"FlatMap|(?:Legacy)?(?:Parallel)?Interleave|GroupBy|Window")
"""Stages that make an iterator for each of their elements."""


class StageCalls(Struct, frozen=True):
    """Calls of stages (GetNext), in row order: which stage, when, and in which event of tf.data on the same thread.

    `around` is an index into these calls: the call that this one was made in, -1 if another thread's event or none
    is around it.
    """

    row: Int64s
    stage: Int64s
    start: Int64s
    end: Int64s
    around: Int64s
    in_produce: Int64s
    """Index into `produced` of the hand-over that the call was made in, -1 for none."""


class Produced(Struct, frozen=True):
    """Work of an asynchronous stage on its own threads (`PrefetchProduce`); the stage is -1 where nothing tells it."""

    row: Int64s
    stage: Int64s
    start: Int64s
    end: Int64s


class Made(Struct, frozen=True):
    """Iterators that were made inside of calls, as at the start of an epoch, and in which call (not its work).

    What a stage makes for each of its elements, such as `FlatMap`, is its work, and left out.
    """

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
    """Per pipeline: it only moves what another one makes to a device."""
    fetched: tuple[bool, ...]
    """Per pipeline: the program asks it (else the worker of a data service, say)."""
    handed_on: tuple[bool, ...]
    """Per pipeline: a device pipeline asks it, not the program."""
    cut: tuple[bool, ...]
    """Per pipeline: its outermost stage has no call in the capture."""
    iterators: tuple[int, ...]
    """Per pipeline: how many outermost iterators it has had, one after the other (a program makes one per epoch)."""
    settings: dict[str, Int64s]
    """What stages say of themselves (`parallelism`, `buffer_limit`, ...): per stage, the largest; -1: unknown."""
    labels: dict[str, tuple[str, ...]]
    """What stages say of themselves in words (`name`, `autotune`, `deterministic`); empty: unknown."""
    buffered: tuple[float, ...]
    """Per stage: how many elements its buffer held when it was asked, on average; NaN: unknown."""

    def children(self, stage: int) -> list[int]:
        """Return the stages that a stage gets its elements from."""
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
    """Rebuild the pipelines of a host; None if tf.data recorded nothing."""
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
    return Pipelines(
        stages=tree.stages,
        roots=tree.roots,
        calls=calls,
        produced=Produced(produced, stage[produce_at], trace.start_ps[produced], trace.end_ps[produced]),
        made=_made(trace, tree, calls),
        runs=runs,
        device=device,
        fetched=_fetched(trace, tree, calls),
        handed_on=_handed_on(trace, tree, calls, device),
        cut=tree.cut,
        iterators=tree.iterators,
        settings=settings,
        labels=_labels(trace, calls.row, tree),
        buffered=_buffered(trace, calls.row, tree),
    )


def _made(trace: HostTrace, tree: PipelineTree, calls: StageCalls) -> Made:
    """Find the iterators that are made inside of calls of stages, the outermost of those made in each other."""
    rows = trace.host_events(mask(trace.names, lambda name: name.startswith("MakeIterator::")))
    rows = rows[parents(trace, rows) < 0]
    around = last_around(trace, calls.row, rows)
    opens = np.array([bool(_OPENS.match(stage.name)) for stage in tree.stages], np.bool_)
    kept = (around >= 0) & ~opens[calls.stage[around]]
    rows, around = rows[kept], around[kept]
    return Made(rows, around, trace.start_ps[rows], trace.end_ps[rows])


class _Recorded(NamedTuple):
    """What tf.data recorded: rows of the trace, what each is, and the index into these rows of what is around it."""

    trace: HostTrace
    rows: Int64s
    kind: Uint8s
    above: Int64s
    """-1: nothing of tf.data is around it on its thread."""

    @staticmethod
    def of(trace: HostTrace) -> _Recorded:
        """Find the events; calls of iterators without an id are of no use."""
        of_name = np.array([_kind(name) for name in trace.names], np.uint8)
        rows = trace.host_events(of_name > 0)
        kind = of_name[trace.name[rows]]
        usable = (kind != _ITERATOR) | trace.has_stat("id")[rows]
        rows, kind = rows[usable], kind[usable]
        return _Recorded(trace, rows, kind, parents(trace, rows))


def _kind(name: str) -> int:
    if name.startswith("Iterator::"):
        return _ITERATOR
    if name.startswith("InstantiatedCapturedFunction::"):
        return _FUNCTION
    return _PRODUCE if is_hand_over(name) else 0


def _producers(recorded: _Recorded, produce_at: Int64s, stage: Int64s, tree: PipelineTree) -> Int64s:
    """Return which stage each hand-over belongs to: the consumer of what it fetches; else as others on its thread."""
    trace, rows, kind, above = recorded
    consumer = np.array([each.parent for each in tree.stages], np.int64)
    fetched = np.flatnonzero((kind == _ITERATOR) & (above >= 0))
    fetched = fetched[kind[above[fetched]] == _PRODUCE]
    owner = np.full(len(produce_at), -1, np.int64)
    # Written from the last to the first, so that the first fetch decides.
    owner[lookup(produce_at, above[fetched[::-1]])] = consumer[stage[fetched[::-1]]]
    produced = rows[produce_at]
    alike = trace.line_of[produced].astype(np.int64) * len(trace.names) + trace.name[produced]
    groups, group = distinct_index(alike)
    usual = np.full(len(groups), -1, np.int64)
    usual[group[owner >= 0]] = owner[owner >= 0]
    return np.where(owner >= 0, owner, usual[group]) if len(group) else owner


def _callers(recorded: _Recorded, function_at: Int64s, stage: Int64s, tree: PipelineTree) -> Int64s:
    """Return which stage runs each function: that of the event around it.

    Older versions record no event around it, and it may be cut off by the capture's edge. Then it is a consumer of what
    was called just before on the thread: the nearest one that is known to run functions, else the nearest.
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


def _fetched(trace: HostTrace, tree: PipelineTree, calls: StageCalls) -> tuple[bool, ...]:
    """Tell of which pipelines a call of the outermost stage lies in a fetch of the program."""
    fetches = trace.host_events(mask(trace.names, is_fetch))
    fetched = last_around(trace, fetches, calls.row) >= 0
    return tuple(bool(fetched[calls.stage == root].any()) for root in tree.roots)


def _handed_on(trace: HostTrace, tree: PipelineTree, calls: StageCalls, device: tuple[bool, ...]) -> tuple[bool, ...]:
    """Tell which pipelines feed device pipelines: asked by a thread that does so, or while a generator of one runs."""
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


def _labels(trace: HostTrace, rows: Int64s, tree: PipelineTree) -> dict[str, tuple[str, ...]]:
    """Return what stages last said of themselves in words."""
    labels = {}
    for name in _LABELS:
        last, value = np.full(len(tree.stages), -1, np.int64), trace.number_at(name, rows, -1)
        last[tree.stage_of_call[value >= 0]] = value[value >= 0]
        texts = (*trace.stat(name).texts, "")
        labels[name] = tuple(texts[index] for index in last.tolist())
    return labels


def _buffered(trace: HostTrace, rows: Int64s, tree: PipelineTree) -> tuple[float, ...]:
    """Return the average fill of buffers. Versions that tell it omit it for an empty one."""
    value = trace.number_at("buffered_elements", rows, -1)
    limit = trace.number_at("buffer_limit", rows, -1)
    count = len(tree.stages)
    tells = np.bincount(tree.stage_of_call[value >= 0], minlength=count) > 0
    if len(trace.stat("cpu_budget").event):  # newer than the first version that tells it
        tells |= np.bincount(tree.stage_of_call[limit >= 0], minlength=count) > 0
    total = np.bincount(tree.stage_of_call, weights=np.maximum(value, 0), minlength=count)
    times = np.bincount(tree.stage_of_call, minlength=count)
    return tuple((total / np.where(tells & (times > 0), times, np.nan)).tolist())


OpKey = tuple[int, str, str]
"""Stage, name and type of an op."""


class FunctionRuns(Struct, frozen=True, kw_only=True):
    """Runs of user functions: the stage that each belongs to (-1: unknown), from start to end, and its work.

    `busy` is the time that executors worked on it, on all threads together.
    """

    row: Int64s
    stage: Int64s
    start: Int64s
    end: Int64s
    busy: Int64s
    started: Int64s
    """Where the event on the thread of tf.data ends."""
    is_async: Bools
    """Whether the run was only started on the thread of tf.data."""
    ops: dict[OpKey, tuple[int, int]]
    """How often each op ran inside, and for how many picoseconds."""
    other_ops: Int64s
    """Rows of the ops on host threads that ran in none of them."""
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
    inner_rows, inner_stages, other_rows = _ops_inside(trace, work, stage[run_of_work])
    busy = np.where(busy > 0, busy, started - start)
    is_async, ops = asynchronous[trace.name[rows]], _summed(trace, inner_rows, inner_stages)
    return FunctionRuns(
        row=rows,
        stage=stage,
        start=start,
        end=end,
        busy=busy,
        started=started,
        is_async=is_async,
        ops=ops,
        other_ops=other_rows,
        work=(work, run_of_work),
    )


def _ops_inside(trace: HostTrace, work: Int64s, stage: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Return the rows of the ops that ran in these executor events, their stages, and the rows of all other ops."""
    rows = trace.host_events(mask(trace.names, lambda name: parse_op(name).kind == "tensorflow"))
    around = last_around(trace, work, rows)
    inside = around >= 0
    return rows[inside], stage[around[inside]], rows[~inside]


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
