"""A pipeline, cut where threads change: what each thread does for one element, and what its consumer waits for.

Stages that run on one thread add up; a thread (or a pool of them) cannot deliver elements faster than it works on one.
"""

from __future__ import annotations

from collections import Counter, deque

import numpy as np

from tfperf.base.arrays import EMPTY, Intervals, difference, intersection, union, union_all
from tfperf.sections.tfdata.pipeline import Segment, SegmentKind
from tfperf.sections.tfdata.stage_times import StageTimes
from tfperf.trace.tfdata.pipelines import Pipelines

_BATCHING = frozenset({"MapAndBatch", "ParallelBatch"})


def elements_by_stage(recorded: Pipelines, times: StageTimes, members: list[int]) -> dict[int, float]:
    """Return, for each stage, how many elements of the pipeline its work in the capture was for.

    A producer runs ahead of the consumer or lags behind it, so each stage is counted by its own calls, divided by how
    many of them one element takes: as many as the consumer has calls inside, or the batch size where threads change.
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
    # A stage without calls is known from its inputs only: it made as many elements as they.
    for stage in reversed(members):
        inputs = [elements[child] for child in recorded.children(stage) if elements.get(child)]
        if not elements[stage] and inputs:
            elements[stage] = max(inputs)
    return elements


def _calls_per_call(recorded: Pipelines, times: StageTimes, stage: int, consumer: int, *, is_only_input: bool) -> float:
    """Return how many calls of a stage one call of its consumer takes; `is_only_input`: no other input is called."""
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
    """Cut a pipeline where threads change, and add up what each thread does for an element.

    `elements` is how many elements the work of each stage was for. The indices are those of all stages of the host.
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
    """Return what an asynchronous stage works for one element, in picoseconds: its function in a pool, and its threads.

    Runs are counted by themselves: those of the elements in its buffer were not asked for yet.
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
    """Return when somebody waits for a pipeline: calls of it, or of the device pipelines that it is handed on to."""
    if not recorded.handed_on[number]:
        return times.calls[recorded.roots[number]]
    devices = [root for root, is_device in zip(recorded.roots, recorded.device, strict=True) if is_device]
    return union_all([times.calls[root] for root in devices])


def blocked_times(
    recorded: Pipelines, times: StageTimes, *, members: list[int], segments: list[Segment], waits: Intervals
) -> tuple[dict[int, int], int]:
    """Return the picoseconds that the consumer waited for each stage itself, and those for which none can be named."""
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
        # Where two are under way at once, the one that limits more is what the consumer waits for.
        for _, child, active in sorted(claims, key=lambda claim: -claim[0]):
            claimed, rest = intersection(rest, active), difference(rest, active)
            if child >= 0:
                waiting[child] = claimed
            else:
                blocked_ps[stage] += claimed.total()
        if times.is_async[stage]:
            # Before the first and after the last of what is recorded, calls may be cut off.
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
