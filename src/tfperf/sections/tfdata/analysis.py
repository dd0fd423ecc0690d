"""tf.data pipelines, with the blocking and the limiting stage of each.

The two differ. *Blocking*: while the consumer waits, the time counts for the stage that works (`blocked_times`).
*Limiting*: the segment with the most time per element (`cut_into_segments`), whether or not steps wait for it.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate, count, pairwise
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.analysis.registry import Host, Tabular
from tfperf.base.arrays import (
    EMPTY,
    NO_NUMBERS,
    Bools,
    Int64s,
    Intervals,
    difference,
    intersection,
    percentile,
    touches,
    union,
    union_all,
    union_sorted,
)
from tfperf.base.display import Plotted
from tfperf.base.units import PS_PER_MS
from tfperf.sections.tfdata.pipeline import SLOW_CALL_PS, Pipeline, Segment, SegmentKind, StageStats, whole_pipelines
from tfperf.sections.tfdata.whatif import NoOutlook, Outlook, estimate_changes, find_rivals, threads, why_no_outlook
from tfperf.trace.event_names import mask, parse_op
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.steps.breakdown import Breakdown
from tfperf.trace.tfdata import Pipelines, StageWork, asynchronous_stages, has_executors

_MOST_OF_CAPTURE = 0.8
"""Activity in the capture represents the steps if they cover this share of it."""
_PYTHON_OPS = {"EagerPyFunc": "py_function", "PyFunc": "numpy_function", "PyFuncStateless": "numpy_function"}


class TfData(Plotted, Tabular, frozen=True):
    """The pipelines of one or all hosts: the main one first, then by waiting time."""

    home = ("tfdata", "tfdata_stages")
    pipelines: tuple[Pipeline, ...]
    outlook: Outlook | None = None
    """Estimated gains of changes to the main pipeline; None without steps, or without its calls in them."""
    no_outlook: NoOutlook | None = None
    """Reason for a missing outlook; None also without a host pipeline."""
    of_kinds: Mapping[str, Outlook] = {}
    """Outlooks for steps of other kinds, such as `eval`. Pipelines that averaged steps use too have no estimates,
    because their activity is measured over the whole capture."""

    @property
    def main(self) -> Pipeline | None:
        """Return the pipeline that steps wait for longest; without an outlook, the one with the most waiting."""
        if self.outlook is not None:
            return self.outlook.pipeline
        return next(iter(whole_pipelines(self.pipelines)), None)

    def for_steps(self, kind: str) -> TfData | None:
        """Return a copy whose main pipeline is the one that steps of another kind wait for; None if unknown."""
        outlook = self.of_kinds.get(kind)
        return None if outlook is None else _main_first(self.pipelines, outlook)


def analyze(host: Host) -> TfData:
    """Return the pipelines of a host, with stages measured over the whole capture, and estimates of changes."""
    trace, recorded, work = host.trace, host.pipelines, host.stage_work
    if recorded is None or work is None:
        return TfData(())
    is_async = asynchronous_stages(recorded)
    work = work.without_waiting(is_async)
    times = measure_stages(recorded, work, is_async)
    numbers = {True: count(), False: count()}
    names = [f"{'Device' if is_device else 'Host'}:{next(numbers[is_device])}" for is_device in recorded.device]
    capture_ps: int = host["environment"].duration_ps
    making_ps = trace.start_ps[trace.host_events(mask(trace.names, lambda name: "MakeIterator" in name))]
    first_made_ps = int(making_ps.min()) if len(making_ps) else None
    found = [
        _pipeline(host, recorded, times, number=number, name=name, first_made_ps=first_made_ps)
        for number, name in enumerate(names)
    ]
    waits = union_all([pipeline.waits for pipeline in found])
    at_work = threads_at_work(trace, recorded, work, times, waits, capture_ps)
    pipelines = _ordered(map(at_work.while_waited, found))
    breakdown: Breakdown = host["steps"]
    steps, outlooks = breakdown.steps, dict[str, Outlook]()
    for kind in dict.fromkeys((steps.headline_kind, *steps.kinds)):
        of_kind = breakdown.only(np.flatnonzero(steps.averaged & steps.are(kind)))
        if outlook := _outlook(host, recorded, work, pipelines, of_kind):
            outlooks[kind] = _waiting_as_category(outlook, of_kind)
    headline = outlooks.pop(steps.headline_kind, None)
    for kind, outlook in outlooks.items():
        if headline is not None and outlook.pipeline is headline.pipeline:
            outlooks[kind] = replace(outlook, estimates=())
    tfdata = replace(_main_first(pipelines, headline), of_kinds=outlooks)
    if headline is None and tfdata.main is not None:
        return replace(tfdata, no_outlook=why_no_outlook(tfdata.main, breakdown))
    return tfdata


def _waiting_as_category(outlook: Outlook, breakdown: Breakdown) -> Outlook:
    """Return the outlook with the waiting time of the step table, so that both agree.

    A fetch takes a little longer than the pipeline call inside it, and is not waiting while the device works.
    """
    if "input_wait" in breakdown.unknown:
        return outlook
    wait_ps = breakdown.time_ps["input_wait"][breakdown.steps.headline]
    return replace(outlook, wait_ms=float(wait_ps.mean()) / PS_PER_MS)


def combine(hosts: Sequence[TfData]) -> TfData:
    """Merge the pipelines of several hosts; the outlook is that of the host that waits longest."""
    outlooks = [host.outlook for host in hosts if host.outlook is not None]
    pipelines = _ordered(pipeline for host in hosts for pipeline in host.pipelines)
    tfdata = _main_first(pipelines, max(outlooks, key=attrgetter("wait_ms"), default=None))
    of_kinds = {
        kind: max((host.of_kinds[kind] for host in hosts if kind in host.of_kinds), key=attrgetter("wait_ms"))
        for kind in dict.fromkeys(kind for host in hosts for kind in host.of_kinds)
    }
    without = next((host.no_outlook for host in hosts if host.main is tfdata.main), None)
    return replace(tfdata, no_outlook=without, of_kinds=of_kinds)


def shorten(tfdata: TfData, most: int) -> TfData:
    """Return the first pipelines with at most `most` stages in total, including the main pipeline."""
    stages = list(accumulate(len(pipeline.stages) for pipeline in tfdata.pipelines))
    if not stages or stages[-1] <= most:
        return tfdata
    return replace(tfdata, pipelines=tfdata.pipelines[: max(bisect_right(stages, most), 1)])


def _ordered(pipelines: Iterable[Pipeline]) -> tuple[Pipeline, ...]:
    return tuple(sorted(pipelines, key=lambda pipeline: (pipeline.is_device, pipeline.is_cut, -pipeline.waited_ps)))


def _main_first(pipelines: tuple[Pipeline, ...], outlook: Outlook | None) -> TfData:
    main = TfData(pipelines, outlook).main
    return TfData(tuple(sorted(pipelines, key=lambda pipeline: pipeline is not main)), outlook)


def _outlook(
    host: Host, recorded: Pipelines, work: StageWork, pipelines: tuple[Pipeline, ...], steps: Breakdown
) -> Outlook | None:
    """Estimate the gains of changes in these steps; `work` excludes calls that wait for other threads."""
    rows = steps.steps.headline
    steps_ps = union(steps.steps.start_ps[rows], steps.steps.end_ps[rows]).total()
    is_most = steps_ps >= _MOST_OF_CAPTURE * host["environment"].duration_ps
    has_device, busy_cores = bool(host.trace.devices), host.trace.capture_facts.busy_cores if is_most else None
    rivals_of = partial(
        find_rivals,
        work,
        python_stages=[owner for owner, _, kind in recorded.runs.ops if kind in _PYTHON_OPS],
        busy_cores=busy_cores,
    )
    outlook = estimate_changes(pipelines, steps, rivals_of, has_device=has_device, busy_cores=busy_cores)
    # Without device or op events, the time of steps during pipeline work is unknown.
    return replace(outlook, estimates=()) if outlook is not None and steps.missing else outlook


def _pipeline(
    host: Host, recorded: Pipelines, times: StageTimes, *, number: int, name: str, first_made_ps: int | None
) -> Pipeline:
    trace = host.trace
    members = recorded.members(number)
    root, latency_ps = members[0], times.latencies_ps[members[0]]
    elements = elements_by_stage(recorded, times, members)
    segments = cut_into_segments(recorded, times, members, elements)
    waits = waiting_times(recorded, times, number)
    blocked_ps, unattributed_ps = blocked_times(recorded, times, members=members, segments=segments, waits=waits)
    place = {stage: index for index, stage in enumerate(members)}
    stages = tuple(
        _stage(recorded, times, stage, place=place, blocked_ps=blocked_ps[stage], elements=elements[stage])
        for stage in members
    )
    segments = [
        replace(segment, owner=place[segment.owner], stages=tuple(place[stage] for stage in segment.stages))
        for segment in segments
    ]
    active = union_all([when for stage in members for when in (times.held[stage], times.calls[stage])])
    longest = max(range(len(stages)), key=lambda index: stages[index].blocked_ps)
    iterators = _iterators_made(trace, recorded, number, first_made_ps)
    of_first = iterators.call[iterators.first]
    # The program waits for the first element of each iterator created in the capture.
    first = intersection(waits, union(recorded.calls.start[of_first], recorded.calls.end[of_first]))
    first_work_ps = intersection(first, union_all([times.busy[stage] for stage in members])).total()
    slow_calls = int((latency_ps > SLOW_CALL_PS).sum())
    stated = trace.capture_facts.cores
    return Pipeline(
        host=trace.host,
        name=name,
        is_device=recorded.device[number],
        is_fetched=recorded.fetched[number],
        is_handed_on=recorded.handed_on[number],
        is_cut=recorded.cut[number],
        stages=stages,
        segments=tuple(segments),
        calls=len(latency_ps),
        mean_ps=float(latency_ps.mean()) if len(latency_ps) else 0.0,
        p95_ps=percentile(latency_ps, 0.95),
        max_ps=int(latency_ps.max(initial=0)),
        slow_calls=slow_calls,
        call_start_ps=recorded.calls.start[recorded.calls.stage == root],
        waits=waits,
        first_fetches=first,
        making=intersection(waits, union(recorded.made.start, recorded.made.end)),
        first_work_share=first_work_ps / max(first.total(), 1),
        epoch_bytes=_epoch_bytes(trace, recorded, iterators),
        waited_ps=waits.total(),
        unattributed_ps=unattributed_ps,
        span_ps=int(active.end[-1] - active.start[0]) if len(active.start) else 0,
        capture_ps=host["environment"].duration_ps,
        cpu_ps=int(times.held_ps[members].sum()),
        cores=max(round(stated), 1) if stated else _setting(recorded, "cpu_budget", root),
        pool_threads=_setting(recorded, "threadpool_size", root),
        blocking=longest if slow_calls and stages[longest].blocked_ps else None,
        limiting=_limiting(stages, segments),
    )


class _IteratorCalls(NamedTuple):
    """Calls of the outermost stage (`call`), the `iterator` of each, and the `first` of each created iterator.

    Iterators are numbered by their first calls; numbers of iterators from before the capture are negative.
    """

    call: Int64s
    iterator: Int64s
    first: Int64s


def _iterators_made(trace: HostTrace, recorded: Pipelines, number: int, first_made_ps: int | None) -> _IteratorCalls:
    """Return the iterators used; `first_made_ps` is the first creation on the host, None without any."""
    calls = np.flatnonzero(recorded.calls.stage == recorded.roots[number])
    calls = calls[np.argsort(recorded.calls.start[calls], kind="stable")]
    if first_made_ps is None or not len(calls):
        return _IteratorCalls(calls, np.full(len(calls), -1, np.int64), NO_NUMBERS)
    _, first, which = np.unique(
        trace.number_at("id", recorded.calls.row[calls]), return_index=True, return_inverse=True
    )
    # An iterator from before the capture was also used before it.
    order = np.argsort(first)
    is_made = recorded.calls.start[calls[first[order]]] > first_made_ps
    numbers = np.empty(len(first), np.int64)
    numbers[order] = np.where(is_made, np.cumsum(is_made) - 1, -1)
    return _IteratorCalls(calls, numbers[which], first[order][is_made])


def _epoch_bytes(trace: HostTrace, recorded: Pipelines, iterators: _IteratorCalls) -> int | None:
    """Return the bytes of all elements of an iterator created in the capture and followed by another one."""
    calls, iterator, first = iterators
    sizes = trace.stat("element_size")
    if len(first) < 2 or not len(sizes.event):
        return None
    order = np.argsort(trace.start_ps[sizes.event], kind="stable")
    fetches = sizes.event[order]
    around = np.searchsorted(trace.start_ps[fetches], recorded.calls.start[calls], side="right") - 1
    is_inside = (around >= 0) & (trace.end_ps[fetches[around]] >= recorded.calls.end[calls])
    of_call = np.where(is_inside, sizes.value[order][around], 0)
    whole = iterator[(iterator >= 0) & (iterator < len(first) - 1)]
    of_epoch = np.bincount(whole, weights=of_call[(iterator >= 0) & (iterator < len(first) - 1)])
    return int(np.median(of_epoch)) or None


def _limiting(stages: Sequence[StageStats], segments: Sequence[Segment]) -> int | None:
    working = (segment for segment in segments if segment.stages)
    slowest = max(working, key=lambda segment: segment.limit_ps, default=None)
    if slowest is None:
        return None
    work_ps = {index: stages[index].element_held_ps or 0.0 for index in slowest.stages}
    if slowest.kind == "producer":  # its function runs in a pool
        functions = (other for other in segments if (other.kind, other.owner) == ("function", slowest.owner))
        work_ps[slowest.owner] -= sum(function.element_ps for function in functions)
    return max(work_ps, key=work_ps.__getitem__)


def _setting(recorded: Pipelines, name: str, stage: int) -> int | None:
    value = int(recorded.settings[name][stage])
    return value if value >= 0 else None


def _stage(
    recorded: Pipelines, times: StageTimes, index: int, *, place: Mapping[int, int], blocked_ps: int, elements: float
) -> StageStats:
    """Measure a stage whose work covers `elements` elements of the pipeline; `place` maps to stage indices."""
    stage, runs = recorded.stages[index], recorded.runs
    is_run = runs.stage == index
    latency_ps = times.latencies_ps[index]
    ops = [(name, kind, *sums) for (owner, name, kind), sums in runs.ops.items() if owner == index]
    python = next((_PYTHON_OPS[kind] for _, kind, _, _ in ops if kind in _PYTHON_OPS), "")
    buffered, deterministic = recorded.buffered[index], recorded.labels["deterministic"][index]
    work_ps = times.work_ps[index]
    run_ps = int(np.minimum(runs.busy, runs.end - runs.start)[is_run].sum())
    functions_ps = times.functions[index].total()
    held_ps = float(times.held_ps[index]) / elements if elements else None
    element_ps = work_ps / elements if elements and work_ps is not None else None
    if elements and times.is_async[index]:
        held_ps = sum(async_work_ps(recorded, times, index, elements))
        element_ps = held_ps if work_ps is not None else None
    return StageStats(
        name=stage.name,
        path=stage.path,
        parent=place.get(stage.parent, -1),
        depth=stage.depth,
        dataset=recorded.labels["name"][index],
        calls=int(times.count[index]),
        total_ps=int(times.total_ps[index]),
        mean_ps=float(latency_ps.mean()) if len(latency_ps) else 0.0,
        p95_ps=percentile(latency_ps, 0.95),
        work_ps=work_ps,
        busy_ps=times.busy[index].total() if work_ps is not None else None,
        held_ps=int(times.held_ps[index]),
        blocked_ps=blocked_ps,
        element_ps=element_ps,
        element_held_ps=held_ps,
        is_async=times.is_async[index],
        runs=int(is_run.sum()),
        run_ps=run_ps,
        runs_at_once=run_ps / functions_ps if functions_ps else None,
        python="from_generator" if python and stage.name == "Generator" else python,
        ops=tuple(sorted(ops, key=lambda op: (-op[3], op))),
        parallelism=_setting(recorded, "parallelism", index),
        autotuned=recorded.labels["autotune"][index] == "true",
        deterministic=deterministic == "true" if deterministic else None,
        buffer_limit=_setting(recorded, "buffer_limit", index),
        buffered=buffered if not math.isnan(buffered) else None,
        batch_size=_setting(recorded, "batch_size", index),
        cycle_length=_setting(recorded, "cycle_length", index),
    )


_UNSEEN = ("ParallelBatch", "ParseExample", "DataService")
"""Stages that work in threads, or on hosts, that the profiler does not record."""


class StageTimes(Struct, frozen=True, kw_only=True):
    """Calls of each stage of all pipelines, sums in picoseconds, and work times as flat sets."""

    count: Int64s
    total_ps: Int64s
    held_ps: Int64s
    """Time that it occupies threads: its calls without nested stages, its own threads, and its function."""
    held: list[Intervals]
    """Intervals with any thread occupied: its calls; with own threads, those and the runs of its function."""
    is_async: list[bool]
    """Whether its elements come from its own threads."""
    calls: list[Intervals]
    functions: list[Intervals]
    """From the start of each run of its function in a pool to its end, including waits for a thread."""
    work_ps: list[int | None]
    """Work of its code and function, summed over threads; None if the trace does not show it."""
    busy: list[Intervals]
    """Intervals in which its code or function ran, as far as recorded, without waits for a thread."""
    latencies_ps: list[Int64s]


def measure_stages(recorded: Pipelines, work: StageWork, is_async: list[bool]) -> StageTimes:
    """Measure all stages over the whole capture; `work` excludes calls that wait for other threads."""
    calls, produced, runs = recorded.calls, recorded.produced, recorded.runs
    stages = range(len(recorded.stages))
    in_pool = (runs.stage >= 0) & runs.is_async
    call_times = [_times(calls.start, calls.end, calls.stage == stage) for stage in stages]
    functions = [_times(runs.start, runs.end, in_pool & (runs.stage == stage)) for stage in stages]
    threads = [_times(produced.start, produced.end, produced.stage == stage) for stage in stages]
    latency = calls.end - calls.start
    stretches = [work.of(stage) for stage in stages]
    unseen = stages_unseen(recorded, is_async)
    return StageTimes(
        count=np.bincount(calls.stage, minlength=len(stages)),
        total_ps=np.bincount(calls.stage, weights=latency, minlength=len(stages)).astype(np.int64),
        held_ps=_held_ps(recorded, np.array(is_async, np.bool_)),
        is_async=is_async,
        held=[
            union_all([functions[stage], threads[stage] if is_async[stage] else call_times[stage]]) for stage in stages
        ],
        calls=call_times,
        functions=functions,
        work_ps=[None if unseen[stage] else stretches[stage].total() for stage in stages],
        busy=[union(*each) for each in stretches],
        latencies_ps=[latency[calls.stage == stage] for stage in stages],
    )


def _held_ps(recorded: Pipelines, is_async: Bools) -> Int64s:
    """Return the occupied thread time per stage: calls of stages without own threads, else threads and function."""
    calls, produced, runs = recorded.calls, recorded.produced, recorded.runs
    latency = calls.end - calls.start
    made = recorded.made
    in_calls = _without_inner(latency, calls.around, latency)
    in_calls = _without_inner(in_calls, made.around, made.end - made.start)
    in_threads = _without_inner(produced.end - produced.start, calls.in_produce, latency)
    in_functions = np.minimum(runs.busy, runs.end - runs.start)
    held_ps = np.zeros(len(is_async))  # bincount returns integers for empty input
    for stage, duration, rows in (
        (calls.stage, in_calls, ~is_async[calls.stage]),
        (produced.stage, in_threads, produced.stage >= 0),
        (runs.stage, in_functions, (runs.stage >= 0) & runs.is_async),
    ):
        held_ps += np.bincount(stage[rows], weights=duration[rows], minlength=len(is_async))
    return held_ps.astype(np.int64)


def _times(start: Int64s, end: Int64s, rows: Bools) -> Intervals:
    return union(start[rows], end[rows])


def _without_inner(duration: Int64s, around: Int64s, inner: Int64s) -> Int64s:
    """Return durations without directly nested events; `around` is the enclosing event of each."""
    inside = around >= 0
    inner_sum = np.bincount(around[inside], weights=inner[inside], minlength=len(duration)).astype(np.int64)
    return np.asarray(np.maximum(duration - inner_sum, 0), np.int64)


def stages_unseen(recorded: Pipelines, is_async: list[bool]) -> list[bool]:
    """Return for each stage whether its work is not recorded, or cannot be separated from waiting.

    This applies to some kinds of stages, to stages whose function runs in a pool without recorded events, and to stages
    whose threads (or calls, without own threads) have no events.
    """
    produced, runs = recorded.produced, recorded.runs
    in_pool = set(runs.stage[runs.is_async].tolist())
    with_executors = set(runs.stage[has_executors(runs)].tolist())
    in_threads = {*produced.stage.tolist(), *runs.stage.tolist()}
    return [
        stage.name.startswith(_UNSEEN)
        or index in in_pool - with_executors
        or not (index in in_threads if is_async[index] else stage.recorded)
        for index, stage in enumerate(recorded.stages)
    ]


# --- pipeline segments, cut where threads change: work per element of each, and waits of the consumer ---
# Stages on one thread add up; a thread (or a pool) cannot deliver elements faster than it processes one.

_BATCHING = frozenset({"MapAndBatch", "ParallelBatch"})


def elements_by_stage(recorded: Pipelines, times: StageTimes, members: list[int]) -> dict[int, float]:
    """Return, for each stage, how many elements of the pipeline its work in the capture covers.

    A producer runs ahead of the consumer or lags behind it. Each stage is therefore counted by its own calls, divided
    by its calls per element: the calls nested in one consumer call, or the batch size where threads change.
    """
    called_inputs = Counter(recorded.stages[stage].parent for stage in members if times.count[stage])
    per_element = {members[0]: 1.0}
    elements = {}
    for stage in members:
        consumer = recorded.stages[stage].parent
        if consumer >= 0 and stage != members[0]:
            is_only_input = called_inputs[consumer] <= 1
            factor = _calls_per_call(recorded, times, stage, consumer, is_only_input=is_only_input)
            per_element[stage] = per_element[consumer] * factor
        elements[stage] = float(times.count[stage]) / per_element[stage] if per_element[stage] else 0.0
    # A stage without calls is known only from its inputs, so it produced as many elements as they did.
    for stage in reversed(members):
        inputs = [elements[child] for child in recorded.children(stage) if elements.get(child)]
        if not elements[stage] and inputs:
            elements[stage] = max(inputs)
    return elements


def _calls_per_call(recorded: Pipelines, times: StageTimes, stage: int, consumer: int, *, is_only_input: bool) -> float:
    calls, consumer_calls = float(times.count[stage]), float(times.count[consumer])
    if times.is_async[consumer] or not consumer_calls:
        batch = int(recorded.settings["batch_size"][consumer])
        if batch > 0 and (recorded.stages[consumer].name in _BATCHING or not consumer_calls):
            return float(batch)
        if is_only_input or not consumer_calls:
            return 1.0
    return calls / consumer_calls


def cut_into_segments(
    recorded: Pipelines, times: StageTimes, members: list[int], elements: dict[int, float]
) -> list[Segment]:
    """Cut a pipeline where threads change, and add up the work of each thread per element.

    `elements` is the number of elements covered by the work of each stage. Indices are those of all stages of the host.
    """
    root = members[0]
    first: SegmentKind = "producer" if recorded.handed_on[recorded.stages[root].pipeline] else "consumer"
    segments: list[Segment] = []
    cuts: deque[tuple[SegmentKind, int, list[int], int]] = deque([(first, root, [root], 1)])
    while cuts:
        kind, owner, inner, workers = cuts.popleft()
        stages, work_ps = [], 0.0
        while inner:
            stage = inner.pop()
            inputs = recorded.children(stage)
            if times.is_async[stage]:
                fetching = ("cycle_length", stage), ("parallelism", stage)
                threads = _least_of(recorded, *fetching) if "Interleave" in recorded.stages[stage].name else 1
                cuts.append(("producer", stage, inputs, threads))
            else:
                stages.append(stage)
                inner += inputs
                work_ps += float(times.held_ps[stage]) / elements[stage] if elements[stage] else 0.0
        if kind == "producer" and owner not in stages:
            function, handing_over = async_work_ps(recorded, times, owner, elements[owner])
            if function:
                threads = _least_of(recorded, ("parallelism", owner), ("threadpool_size", root))
                segments.append(Segment("function", owner, (owner,), function, threads))
            work_ps += handing_over
            stages.append(owner)
        segments.append(Segment(kind, owner, tuple(stages), work_ps, workers))
    return segments


def _least_of(recorded: Pipelines, *settings: tuple[str, int]) -> int:
    values = (int(recorded.settings[name][stage]) for name, stage in settings)
    return min((value for value in values if value > 0), default=1)


def async_work_ps(recorded: Pipelines, times: StageTimes, stage: int, elements: float) -> tuple[float, float]:
    """Return the work of an asynchronous stage per element, in picoseconds: in its function and in its threads.

    Runs are counted separately, because the elements in its buffer were not requested yet.
    """
    runs = recorded.runs
    in_pool = (runs.stage == stage) & runs.is_async
    function = float(np.minimum(runs.busy, runs.end - runs.start)[in_pool].sum())
    handing_over = max(float(times.held_ps[stage]) - function, 0.0)
    if not elements:
        return 0.0, 0.0
    calls, is_batching = int(times.count[stage]), recorded.stages[stage].name in _BATCHING
    batch = max(int(recorded.settings["batch_size"][stage]), 1) if is_batching else 1
    elements_run = int(in_pool.sum()) / batch * (elements / calls if calls else 1.0)
    return (function / elements_run if elements_run else 0.0), handing_over / (elements_run or elements)


def waiting_times(recorded: Pipelines, times: StageTimes, number: int) -> Intervals:
    """Return the waiting times for a pipeline: its calls, or those of the device pipelines that it feeds."""
    if not recorded.handed_on[number]:
        return times.calls[recorded.roots[number]]
    devices = [root for root, is_device in zip(recorded.roots, recorded.device, strict=True) if is_device]
    return union_all([times.calls[root] for root in devices])


def blocked_times(
    recorded: Pipelines, times: StageTimes, *, members: list[int], segments: list[Segment], waits: Intervals
) -> tuple[dict[int, int], int]:
    """Return the picoseconds that the consumer waited for each stage, and those without a known stage."""
    limits = {(segment.kind, segment.owner): segment.limit_ps for segment in segments}
    blocked_ps, unattributed_ps = dict.fromkeys(members, 0), 0
    made = union(recorded.made.start, recorded.made.end)
    waiting = {members[0]: intersection(waits, times.calls[members[0]])}
    for stage in members:
        rest = waiting.get(stage, EMPTY)
        if not len(rest.start):
            continue
        inputs = recorded.children(stage)
        claims = [(limits.get(("producer", stage), 0.0), child, times.calls[child]) for child in inputs]
        if times.is_async[stage]:
            claims.append((limits.get(("function", stage), 0.0), -1, times.functions[stage]))
        # If two are active at once, the consumer waits for the more limiting one.
        for _, child, active in sorted(claims, key=lambda claim: -claim[0]):
            claimed, rest = intersection(rest, active), difference(rest, active)
            if child >= 0:
                waiting[child] = claimed
            else:
                blocked_ps[stage] += claimed.total()
        if times.is_async[stage]:
            # Calls before the first and after the last recorded event may be cut off.
            recorded_times = union_all([active for _, _, active in claims])
            whole = Intervals(recorded_times.start[:1], recorded_times.end[-1:])
            attributable = intersection(rest, whole)
            unattributed_ps += rest.total() - attributable.total()
            rest = attributable
        else:
            unattributed_ps += intersection(rest, made).total()
            rest = difference(rest, made)
        blocked_ps[stage] += rest.total()
    return blocked_ps, unattributed_ps


# --- threads of a host that work while steps wait for a pipeline ---
# With few threads, more of the pipeline could run in parallel; with as many as cores, only less work helps. The number
# is a lower bound, because work outside TensorFlow and threads started by ops have no events. A thread that sleeps or
# reads a file counts as working, but does not need its core. If the capture recorded the CPU time of the process, which
# covers all work, the part that exceeds all cores outside the waits was spent in the waits.

_WAITING_OP = re.compile(r".*(?:Recv|Send|Call)$|IteratorGetNext|Collective")
_NEEDS_NO_CORE = re.compile(r"(?:Eager)?PyFunc|ReadFile")
"""Ops that may sleep, or wait for a disk or the network."""
_READERS = re.compile(r"Generator|TFRecord|TextLine|FixedLengthRecord|SSTable|RecordIO|LMDB|ArrayRecord|.*Remote")


class ThreadsAtWork(Struct, frozen=True):
    """Work of all threads of a host; intervals of several threads overlap."""

    working: Intervals
    computing: Intervals
    """Part that certainly needs a core."""
    is_complete: bool
    """False if the work of some stage is not recorded."""
    busy_cores: float | None
    """Number of cores that the process kept busy in the capture; None if unknown."""
    capture_ps: int

    def while_waited(self, pipeline: Pipeline) -> Pipeline:
        """Return the pipeline with the number of threads at work during waits for it."""
        waited_ps = pipeline.waits.total()
        if not waited_ps:
            return pipeline
        least = 0.0
        if self.busy_cores is not None and pipeline.cores is not None and self.capture_ps:
            # At other times the process can use all cores; the remaining CPU time is spent in waits.
            share = min(waited_ps / self.capture_ps, 1.0)
            least = (self.busy_cores - pipeline.cores * (1.0 - share)) / share
            least = min(max(least, 0.0), float(pipeline.cores))
        working, computing = (
            max(threads(pipeline.waits, *stretches), least) for stretches in (self.working, self.computing)
        )
        return replace(pipeline, threads_at_work=working if self.is_complete else None, threads_computing=computing)


def threads_at_work(
    trace: HostTrace, recorded: Pipelines, work: StageWork, times: StageTimes, waits: Intervals, capture_ps: int
) -> ThreadsAtWork:
    """Return the work of host threads in waits, in stages and other ops; `work` excludes calls that wait for others."""
    unseen = [stage for stage, work_ps in enumerate(times.work_ps) if work_ps is None]
    may_sleep = {stage for stage, _, kind in recorded.runs.ops if _NEEDS_NO_CORE.match(kind)}
    may_sleep |= {index for index, stage in enumerate(recorded.stages) if _READERS.match(stage.name)}
    ops = recorded.runs.other_ops
    ops = ops[~mask(trace.names, lambda name: bool(_WAITING_OP.match(parse_op(name).type)))[trace.name[ops]]]
    thunks = trace.stat("hlo_op").event
    ops = np.sort(np.concatenate((ops, thunks[trace.on_host[thunks]].astype(np.int64))))
    known = (work.stage >= 0) & ~np.isin(work.stage, unseen)
    certain = known & ~np.isin(work.stage, list(may_sleep))
    working = _by_thread(trace, ops, work, known, waits)
    return ThreadsAtWork(
        working=working,
        computing=working if bool((known == certain).all()) else _by_thread(trace, ops, work, certain, waits),
        is_complete=not unseen,
        busy_cores=trace.capture_facts.busy_cores,
        capture_ps=capture_ps,
    )


def _by_thread(trace: HostTrace, ops: Int64s, work: StageWork, rows: Bools, waits: Intervals) -> Intervals:
    # Each kind is cut to the relevant events separately, because both together need the most memory in a large trace.
    met_ops = ops[touches(waits, trace.start_ps[ops], trace.start_ps[ops] + trace.duration_ps[ops])]
    met = np.flatnonzero(rows)
    met = met[touches(waits, work.start[met], work.end[met])]
    row = np.concatenate((met_ops, work.row[met]))
    start = np.concatenate((trace.start_ps[met_ops], work.start[met]))
    end = np.concatenate((trace.start_ps[met_ops] + trace.duration_ps[met_ops], work.end[met]))
    order = np.lexsort((start, trace.line_of[row]))
    line, start, end = trace.line_of[row][order], start[order], end[order]
    first = np.flatnonzero(np.diff(line, prepend=-1)).tolist()
    flat = [union_sorted(start[at:stop], end[at:stop]) for at, stop in pairwise([*first, len(line)])]
    return Intervals(*(np.concatenate(times) for times in zip(*(flat or [EMPTY]), strict=True)))
