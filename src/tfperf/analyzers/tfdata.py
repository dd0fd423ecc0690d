"""tf.data pipelines: which stage the consumer waits for, and which one limits how fast elements can come.

The two differ. *Blocking*: while the consumer waits, some stage works; that stage gets the time (`waiting.py`).
*Limiting*: stages that run on one thread add up; a thread (or a pool of them) cannot deliver elements faster than it
works on one. The slowest of them limits the pipeline, whether or not anybody waits for it now.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tfperf.analyzers.pipeline import SLOW_CALL_PS, Pipeline, Section, StageStats, TfData
from tfperf.analyzers.waiting import blocked_times
from tfperf.arrays import Int64s, percentile
from tfperf.intervals import Intervals, difference, intersection, union, union_all
from tfperf.trace.event_names import mask
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.pipelines import Pipelines, find_pipelines

_ASYNC = frozenset({
    "Prefetch", "ParallelMap", "ParallelMapV2", "MapAndBatch", "ParallelInterleave", "ParallelInterleaveV2",
    "ParallelInterleaveV3", "ParallelInterleaveV4", "LegacyParallelInterleave", "LegacyParallelInterleaveV2",
    "ParallelBatch", "ParseExample", "ParseExampleV2",
})  # fmt: skip
_OP_BITS = 42
"""Picoseconds in so many bits are four seconds; what is left tells two million names apart."""
_BATCHING = frozenset({"MapAndBatch", "ParallelBatch"})
_PYTHON_OPS = {"EagerPyFunc": "py_function", "PyFunc": "numpy_function", "PyFuncStateless": "numpy_function"}


def analyze(trace: HostTrace) -> TfData:
    """Find the pipelines of a host, and measure their stages over all calls in the capture."""
    found = find_pipelines(trace)
    if found is None:
        return TfData(())
    measured = _Measured.of(found)
    pipelines = []
    counts = {True: 0, False: 0}
    for index, is_device in enumerate(found.device):
        name = f"{'Device' if is_device else 'Host'}:{counts[is_device]}"
        counts[is_device] += 1
        pipelines.append(_pipeline(trace, name, found, measured, index))
    return TfData(_ordered(pipelines), _steadiness(trace, found.runs.other_ops))


def combine(parts: list[TfData]) -> TfData:
    """Put the pipelines of several hosts in one list."""
    return TfData(
        _ordered([own for part in parts for own in part.pipelines]),
        min((part.steadiness for part in parts if part.pipelines), default=1.0),
    )


def _ordered(pipelines: list[Pipeline]) -> tuple[Pipeline, ...]:
    return tuple(sorted(pipelines, key=lambda own: (own.is_device, own.is_cut, -own.waited_ps)))


def _steadiness(trace: HostTrace, rows: Int64s) -> float:
    waits = mask(trace.names, lambda name: name.startswith("IteratorGetNext") or name.endswith(("_Recv", "_HostRecv")))
    rows = rows[~waits[trace.name[rows]]]
    if not len(rows):
        return 1.0
    # One sort by name, then by time: both in one number.
    shortened = np.minimum(trace.duration_ps[rows], (1 << _OP_BITS) - 1)
    ordered = np.sort((trace.name[rows].astype(np.int64) << _OP_BITS) | shortened)
    name, duration = ordered >> _OP_BITS, ordered & ((1 << _OP_BITS) - 1)
    first = np.flatnonzero(np.diff(name, prepend=-1))
    count = np.diff(first, append=len(rows))
    return float((duration[first + count // 10] * count).sum()) / max(float(duration.sum()), 1.0)


@dataclass(frozen=True)
class _Measured:
    """Per stage of all pipelines: sums, and when it worked."""

    count: Int64s
    total: Int64s
    work: Int64s
    is_async: list[bool]
    calls: list[Intervals]
    functions: list[Intervals]
    busy: list[Intervals]
    latencies: list[Int64s]

    @staticmethod
    def of(found: Pipelines) -> _Measured:
        """Measure all stages."""
        calls, produced, runs = found.calls, found.produced, found.runs
        count = len(found.stages)
        is_async = _asynchronous(found)
        own = _without(calls.end - calls.start, calls.around)
        made = _without(produced.end - produced.start, calls.in_produce, calls.end - calls.start)
        works = ~np.array(is_async)[calls.stage]
        work = np.zeros(count)  # What bincount returns of nothing are integers.
        work += np.bincount(calls.stage[works], weights=own[works], minlength=count)
        known = produced.stage >= 0
        work += np.bincount(produced.stage[known], weights=made[known], minlength=count)
        running = (runs.stage >= 0) & runs.is_async
        elapsed = runs.end - runs.start
        work += np.bincount(runs.stage[running], weights=np.minimum(runs.busy, elapsed)[running], minlength=count)
        call_sets = [_flat(calls.start, calls.end, calls.stage == index) for index in range(count)]
        functions = [_flat(runs.start, runs.end, running & (runs.stage == index)) for index in range(count)]
        made_sets = [_flat(produced.start, produced.end, produced.stage == index) for index in range(count)]
        busy = [
            union_all([functions[index], made_sets[index] if is_async[index] else call_sets[index]])
            for index in range(count)
        ]
        latency = calls.end - calls.start
        return _Measured(
            np.bincount(calls.stage, minlength=count), np.bincount(calls.stage, weights=latency, minlength=count)
            .astype(np.int64), work.astype(np.int64), is_async, call_sets, functions, busy,
            [latency[calls.stage == index] for index in range(count)],
        )  # fmt: skip


def _flat(begin: Int64s, end: Int64s, rows: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Intervals:
    return union(begin[rows], end[rows])


def _without(duration: Int64s, around: Int64s, inner: Int64s | None = None) -> Int64s:
    """Return durations less those of what lies directly inside; `around` says in which of them each inner one lies."""
    inner = duration if inner is None else inner
    inside = around >= 0
    taken = np.bincount(around[inside], weights=inner[inside], minlength=len(duration)).astype(np.int64)
    return np.asarray(np.maximum(duration - taken, 0), np.int64)


def _asynchronous(found: Pipelines) -> list[bool]:
    """Tell which stages get their elements from threads of their own: by name, or because calls show it."""
    calls, stages = found.calls, found.stages
    parent = np.array([stage.parent for stage in stages], np.int64)
    consumer = parent[calls.stage]
    direct = (calls.around >= 0) & (calls.stage[calls.around] == consumer)
    asked = consumer >= 0
    all_calls = np.bincount(consumer[asked], minlength=len(stages))
    direct_calls = np.bincount(consumer[asked & direct], minlength=len(stages))
    handing = set(found.produced.stage.tolist())
    started = set(found.runs.stage[found.runs.is_async].tolist())
    return [
        stage.name in _ASYNC or index in handing or index in started
        or (stage.recorded and bool(all_calls[index]) and 2 * int(direct_calls[index]) < int(all_calls[index]))
        for index, stage in enumerate(stages)
    ]  # fmt: skip


def _pipeline(trace: HostTrace, name: str, found: Pipelines, measured: _Measured, number: int) -> Pipeline:
    members = found.members(number)
    rows, owner = found.runs.inner_ops
    place = {stage: index for index, stage in enumerate(members)}
    elements = _elements(found, measured, members)
    sections = _sections(found, measured, members, elements)
    waits = _waits(found, measured, number)
    blocked, untold = blocked_times(found, measured, members, sections, waits)
    stages = tuple(_stage(found, measured, stage, place, blocked[stage], elements[stage]) for stage in members)
    root = members[0]
    latency = measured.latencies[root]
    everything = union_all([measured.busy[stage] for stage in members] + [measured.calls[stage] for stage in members])
    shown = tuple(_renumbered(section, place) for section in sections)
    return Pipeline(
        trace.host, name, found.device[number], found.fetched[number], found.handed_on[number],
        found.cut[number], stages, shown,
        len(latency), float(latency.mean()) if len(latency) else 0.0, percentile(latency, 0.95),
        int(latency.max(initial=0)), int((latency > SLOW_CALL_PS).sum()), found.calls.start[found.calls.stage == root],
        waits, waits.total(), untold,
        int(everything.end[-1] - everything.start[0]) if len(everything.start) else 0,
        int(measured.work[members].sum()), _beside(found, measured, members, waits),
        _steadiness(trace, rows[np.isin(owner, members)]), _told(found, "cpu_budget", root),
        _told(found, "threadpool_size", root),
        _largest([stage.blocked_ps for stage in stages]) if (latency > SLOW_CALL_PS).any() else None,
        _heaviest(shown, stages),
    )  # fmt: skip


def _waits(found: Pipelines, measured: _Measured, number: int) -> Intervals:
    """Return when somebody waits for a pipeline: calls of it, or of the device pipelines that it is handed on to."""
    if not found.handed_on[number]:
        return measured.calls[found.roots[number]]
    devices = [root for root, is_device in zip(found.roots, found.device, strict=True) if is_device]
    return union_all([measured.calls[root] for root in devices])


def _beside(found: Pipelines, measured: _Measured, members: list[int], waits: Intervals) -> int:
    """Return the work that is done while nobody waits for the pipeline."""
    beside = 0.0
    for stage in members:
        inputs = union_all([measured.calls[child] for child in found.children(stage)])
        own = difference(measured.busy[stage], inputs) if not measured.is_async[stage] else measured.busy[stage]
        if own.total():
            beside += float(measured.work[stage]) * (1.0 - intersection(own, waits).total() / own.total())
    return int(beside)


def _renumbered(section: Section, place: dict[int, int]) -> Section:
    return Section(section.kind, place[section.owner], tuple(place[stage] for stage in section.stages),
                   section.element_ps, section.workers)  # fmt: skip


def _largest(values: list[int]) -> int | None:
    best = max(range(len(values)), key=values.__getitem__, default=None)
    return best if best is not None and values[best] > 0 else None


def _heaviest(sections: tuple[Section, ...], stages: tuple[StageStats, ...]) -> int | None:
    """Return the stage that works most for an element, in the section that limits."""
    slowest = max((own for own in sections if own.stages), key=lambda own: own.limit_ps, default=None)
    if slowest is None:
        return None
    work = {index: stages[index].element_ps or 0.0 for index in slowest.stages}
    if slowest.kind == "producer":  # Its function runs elsewhere.
        functions = (own.element_ps for own in sections if (own.kind, own.owner) == ("function", slowest.owner))
        work[slowest.owner] -= sum(functions)
    return max(work, key=work.__getitem__)


def _told(found: Pipelines, setting: str, stage: int) -> int | None:
    value = int(found.settings[setting][stage])
    return value if value >= 0 else None


def _stage(
    found: Pipelines, measured: _Measured, index: int, place: dict[int, int], blocked: int, elements: float
) -> StageStats:
    own, runs = found.stages[index], found.runs
    mine = runs.stage == index
    latency = measured.latencies[index]
    ops = [(name, kind, count, time) for (stage, name, kind), (count, time) in runs.ops.items() if stage == index]
    buffered = found.buffered[index]
    deterministic = found.labels["deterministic"][index]
    return StageStats(
        own.name, own.path, place.get(own.parent, -1), own.depth, found.labels["name"][index], own.recorded,
        int(measured.count[index]), int(measured.total[index]),
        float(latency.mean()) if len(latency) else 0.0, percentile(latency, 0.95), int(measured.work[index]),
        measured.busy[index].total(), blocked, _element_work(found, measured, index, elements),
        measured.is_async[index], int(mine.sum()), int(np.minimum(runs.busy, runs.end - runs.start)[mine].sum()),
        _python(own.name, [kind for _, kind, _, _ in ops]), tuple(sorted(ops, key=lambda op: (-op[3], op))),
        _told(found, "parallelism", index), found.labels["autotune"][index] == "true",
        deterministic == "true" if deterministic else None, _told(found, "buffer_limit", index),
        buffered if not math.isnan(buffered) else None, _told(found, "batch_size", index),
        _told(found, "cycle_length", index),
    )  # fmt: skip


def _element_work(found: Pipelines, measured: _Measured, stage: int, elements: float) -> float | None:
    if not elements:
        return None
    if measured.is_async[stage]:
        return sum(_async_work(found, measured, stage, elements))
    return float(measured.work[stage]) / elements


def _python(stage: str, op_types: list[str]) -> str:
    if stage == "Generator" and any(kind in _PYTHON_OPS for kind in op_types):
        return "from_generator"
    return next((_PYTHON_OPS[kind] for kind in op_types if kind in _PYTHON_OPS), "")


def _elements(found: Pipelines, measured: _Measured, members: list[int]) -> dict[int, float]:
    """Return, for each stage, how many elements of the pipeline its work in the capture was for.

    A producer runs ahead of the consumer or lags behind it, so each stage is counted by its own calls, divided by how
    many of them one element takes: as many as the consumer has calls inside, or the batch size where threads change.
    """
    per_element = {members[0]: 1.0}
    elements = {}
    for stage in members:
        consumer = found.stages[stage].parent
        if consumer >= 0 and stage in members[1:]:
            per_element[stage] = per_element[consumer] * _per_call(found, measured, stage, consumer)
        calls = float(measured.count[stage])
        elements[stage] = calls / per_element[stage] if per_element[stage] else 0.0
        if not calls:  # Known from its inputs only: as many elements as they.
            elements[stage] = 0.0
    for stage in reversed(members):
        inputs = [elements[child] for child in found.children(stage) if elements.get(child)]
        if not elements[stage] and inputs:
            elements[stage] = max(inputs)
    return elements


def _per_call(found: Pipelines, measured: _Measured, stage: int, consumer: int) -> float:
    own, asked = float(measured.count[stage]), float(measured.count[consumer])
    name = found.stages[consumer].name
    if measured.is_async[consumer] or not asked:
        batch = int(found.settings["batch_size"][consumer])
        if batch > 0 and (name in _BATCHING or not asked):
            return float(batch)
        alike = [child for child in found.children(consumer) if measured.count[child]]
        if len(alike) <= 1 or not asked:
            return 1.0
    return own / asked if asked else 1.0


def _sections(found: Pipelines, measured: _Measured, members: list[int], elements: dict[int, float]) -> list[Section]:
    """Cut the pipeline where threads change, and add up what each thread does for an element."""
    first = "producer" if found.handed_on[found.stages[members[0]].pipeline] else "consumer"
    sections, waiting = [], [(first, members[0], [members[0]], 1)]
    while waiting:
        kind, owner, todo, workers = waiting.pop(0)
        stages, work = [], 0.0
        while todo:
            stage = todo.pop()
            inputs = found.children(stage)
            if measured.is_async[stage]:
                waiting.append(("producer", stage, inputs, _workers(found, stage)))
            else:
                stages.append(stage)
                todo += inputs
                work += float(measured.work[stage]) / elements[stage] if elements[stage] else 0.0
        if kind == "producer" and owner not in stages:
            function, handing = _async_work(found, measured, owner, elements[owner])
            if function:
                sections.append(Section("function", owner, (owner,), function, _pool_workers(found, owner, members[0])))
            work += handing
            stages.append(owner)
        sections.append(Section(kind, owner, tuple(stages), work, workers))
    return sections


def _workers(found: Pipelines, stage: int) -> int:
    """Return how many threads of an asynchronous stage fetch at the same time."""
    if "Interleave" not in found.stages[stage].name:
        return 1
    cycle, parallel = (int(found.settings[key][stage]) for key in ("cycle_length", "parallelism"))
    return max(min((value for value in (cycle, parallel) if value > 0), default=1), 1)


def _pool_workers(found: Pipelines, stage: int, root: int) -> int:
    """Return how many runs of a stage's function can be under way: as many as it says, if the pool has the threads."""
    parallel, pool = int(found.settings["parallelism"][stage]), int(found.settings["threadpool_size"][root])
    return max(min((value for value in (parallel, pool) if value > 0), default=1), 1)


def _async_work(found: Pipelines, measured: _Measured, stage: int, elements: float) -> tuple[float, float]:
    """Return what an asynchronous stage works for one element: its function in a pool, and its own threads.

    Runs are counted by themselves: those of the elements in its buffer were not asked for yet.
    """
    runs = found.runs
    mine = (runs.stage == stage) & runs.is_async
    function = float(np.minimum(runs.busy, runs.end - runs.start)[mine].sum())
    handing = max(float(measured.work[stage]) - function, 0.0)
    if not elements:
        return 0.0, 0.0
    calls = int(measured.count[stage])
    batch = max(int(found.settings["batch_size"][stage]), 1) if found.stages[stage].name in _BATCHING else 1
    made = int(mine.sum()) / batch * (elements / calls if calls else 1.0)
    return (function / made if made else 0.0), handing / (made or elements)
