"""tf.data pipelines: which stage the consumer waits for, and which one limits how fast elements can come.

The two differ. *Blocking*: while the consumer waits, some stage works; that stage gets the time (`blocked_times`).
*Limiting*: the segment of the pipeline that takes longest for an element (`segments.py`), whether or not anybody waits
for it now.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate, count
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from tfperf.analysis.results import Host
from tfperf.analysis.tabular import Tabular
from tfperf.base.arrays import NO_NUMBERS, Int64s, intersection, percentile, union, union_all
from tfperf.base.units import PS_PER_MS
from tfperf.sections.tfdata.contention import find_rivals
from tfperf.sections.tfdata.cores_at_work import threads_at_work
from tfperf.sections.tfdata.pipeline import SLOW_CALL_PS, Pipeline, Segment, StageStats, whole_pipelines
from tfperf.sections.tfdata.segments import (
    async_work_ps,
    blocked_times,
    cut_into_segments,
    elements_by_stage,
    waiting_times,
)
from tfperf.sections.tfdata.stage_times import StageTimes, measure_stages
from tfperf.sections.tfdata.whatif import NoOutlook, Outlook, estimate_changes, why_no_outlook
from tfperf.trace.event_names import mask
from tfperf.trace.host.cores import whole_cores
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.steps.breakdown import Breakdown
from tfperf.trace.tfdata.pipelines import Pipelines
from tfperf.trace.tfdata.stage_work import StageWork, asynchronous_stages

_MOST_OF_CAPTURE = 0.8
"""What a process does in a capture is what it does in steps that take so much of it."""
_PYTHON_OPS = {"EagerPyFunc": "py_function", "PyFunc": "numpy_function", "PyFuncStateless": "numpy_function"}


class TfData(Tabular, frozen=True):
    """The pipelines of a host, or of all hosts: the main one first, then those that were waited for longest."""

    home = ("tfdata", "tfdata_stages")
    pipelines: tuple[Pipeline, ...]
    outlook: Outlook | None = None
    """What changes of the main pipeline would gain; None without steps, or without calls of a pipeline in them."""
    no_outlook: NoOutlook | None = None
    """Why there is none; None also without a host pipeline."""
    of_kinds: Mapping[str, Outlook] = {}
    """The same for steps of each other kind, such as `eval`; without estimates for a pipeline that headline steps ask
    too: what it does is measured over all of the capture."""

    @property
    def main(self) -> Pipeline | None:
        """Return the pipeline that steps wait for longest; without an outlook, the one that was waited for longest."""
        if self.outlook is not None:
            return self.outlook.pipeline
        return next(iter(whole_pipelines(self.pipelines)), None)

    def for_steps(self, kind: str) -> TfData | None:
        """Return this with the pipeline that steps of another kind wait for as the main one; None if it is unknown."""
        outlook = self.of_kinds.get(kind)
        return None if outlook is None else _main_first(self.pipelines, outlook)


def analyze(host: Host) -> TfData:
    """Find the pipelines of a host, measure their stages over all calls in the capture, and estimate changes."""
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
    outlooks = {
        kind: _waiting_as_category(outlook, steps)
        for kind, steps in _by_kind(host["steps"]).items()
        if (outlook := _outlook(host, recorded, work, pipelines, steps))
    }
    outlook = outlooks.pop(host["steps"].steps.headline_kind, None)
    tfdata = replace(_main_first(pipelines, outlook), of_kinds=_without_shared(outlooks, outlook))
    if outlook is None and tfdata.main is not None:
        return replace(tfdata, no_outlook=why_no_outlook(tfdata.main, host["steps"]))
    return tfdata


def _by_kind(breakdown: Breakdown) -> dict[str, Breakdown]:
    """Return the averaged steps of each kind; those of the headline kind are there even if there are none."""
    steps = breakdown.steps
    kinds = dict.fromkeys((steps.headline_kind, *steps.kinds))
    return {kind: breakdown.only(np.flatnonzero(steps.averaged & steps.are(kind))) for kind in kinds}


def _without_shared(outlooks: Mapping[str, Outlook], headline: Outlook | None) -> dict[str, Outlook]:
    """Return outlooks, without estimates for the pipeline that headline steps ask too."""
    shared = None if headline is None else headline.pipeline
    return {
        kind: replace(outlook, estimates=()) if outlook.pipeline is shared else outlook
        for kind, outlook in outlooks.items()
    }


def _waiting_as_category(outlook: Outlook, breakdown: Breakdown) -> Outlook:
    """Return an outlook whose waiting is that of the step table, so that one thing has one number.

    A fetch takes a little longer than the call of the pipeline inside it, and is no waiting while the device works.
    """
    if "input_wait" in breakdown.unknown:
        return outlook
    wait_ps = breakdown.time_ps["input_wait"][breakdown.steps.headline]
    return replace(outlook, wait_ms=float(wait_ps.mean()) / PS_PER_MS)


def combine(hosts: Sequence[TfData]) -> TfData:
    """Put the pipelines of several hosts in one list; the outlook is that of the host that waits longest."""
    outlooks = [host.outlook for host in hosts if host.outlook is not None]
    pipelines = _ordered(pipeline for host in hosts for pipeline in host.pipelines)
    tfdata = _main_first(pipelines, max(outlooks, key=_wait_ms, default=None))
    of_kinds = {
        kind: max((host.of_kinds[kind] for host in hosts if kind in host.of_kinds), key=_wait_ms)
        for kind in dict.fromkeys(kind for host in hosts for kind in host.of_kinds)
    }
    without = next((host.no_outlook for host in hosts if host.main is tfdata.main), None)
    return replace(tfdata, no_outlook=without, of_kinds=of_kinds)


def shorten(tfdata: TfData, most: int) -> TfData:
    """Return the first pipelines, with so many stages in all; the main one is always among them."""
    stages = list(accumulate(len(pipeline.stages) for pipeline in tfdata.pipelines))
    if not stages or stages[-1] <= most:
        return tfdata
    return replace(tfdata, pipelines=tfdata.pipelines[: max(bisect_right(stages, most), 1)])


def _wait_ms(outlook: Outlook) -> float:
    return outlook.wait_ms


def _ordered(pipelines: Iterable[Pipeline]) -> tuple[Pipeline, ...]:
    return tuple(sorted(pipelines, key=lambda pipeline: (pipeline.is_device, pipeline.is_cut, -pipeline.waited_ps)))


def _main_first(pipelines: tuple[Pipeline, ...], outlook: Outlook | None) -> TfData:
    main = TfData(pipelines, outlook).main
    return TfData(tuple(sorted(pipelines, key=lambda pipeline: pipeline is not main)), outlook)


def _outlook(
    host: Host, recorded: Pipelines, work: StageWork, pipelines: tuple[Pipeline, ...], steps: Breakdown
) -> Outlook | None:
    """Estimate what changes would gain in these steps; `work` has no calls that wait for what other threads make."""
    has_device, busy_cores = bool(host.trace.devices), _busy_cores(host, steps)
    rivals_of = partial(
        find_rivals,
        work,
        python_stages=[owner for owner, _, kind in recorded.runs.ops if kind in _PYTHON_OPS],
        busy_cores=busy_cores,
    )
    outlook = estimate_changes(pipelines, steps, rivals_of, has_device=has_device, busy_cores=busy_cores)
    # Without the events of the device or of the ops, nothing shows what steps take while the pipeline works.
    return replace(outlook, estimates=()) if outlook is not None and steps.missing else outlook


def _busy_cores(host: Host, breakdown: Breakdown) -> float | None:
    """Return how many cores the process kept busy in these steps; None where they are not most of the capture."""
    rows = breakdown.steps.headline
    steps_ps = union(breakdown.steps.start_ps[rows], breakdown.steps.end_ps[rows]).total()
    is_most = steps_ps >= _MOST_OF_CAPTURE * host["environment"].duration_ps
    return host.trace.capture_facts.busy_cores if is_most else None


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
    # The program waits for the first element of each iterator that it made in the capture.
    first = intersection(waits, union(recorded.calls.start[of_first], recorded.calls.end[of_first]))
    first_work_ps = intersection(first, union_all([times.busy[stage] for stage in members])).total()
    slow_calls = int((latency_ps > SLOW_CALL_PS).sum())
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
        cores=_cores(trace, recorded, root),
        pool_threads=_setting(recorded, "threadpool_size", root),
        blocking=longest if slow_calls and stages[longest].blocked_ps else None,
        limiting=_limiting(stages, segments),
    )


class _IteratorCalls(NamedTuple):
    """The calls of the outermost stage (`call`), the `iterator` of each, and the `first` of each iterator made.

    Iterators have numbers in the order of their first calls; those that were there before the capture are below 0.
    """

    call: Int64s
    iterator: Int64s
    first: Int64s


def _iterators_made(trace: HostTrace, recorded: Pipelines, number: int, first_made_ps: int | None) -> _IteratorCalls:
    """Return which iterators are asked; `first_made_ps` is when the host first makes one, None if it makes none."""
    calls = np.flatnonzero(recorded.calls.stage == recorded.roots[number])
    calls = calls[np.argsort(recorded.calls.start[calls], kind="stable")]
    if first_made_ps is None or not len(calls):
        return _IteratorCalls(calls, np.full(len(calls), -1, np.int64), NO_NUMBERS)
    _, first, which = np.unique(
        trace.number_at("id", recorded.calls.row[calls]), return_index=True, return_inverse=True
    )
    # An iterator that was there before the capture was asked before, too.
    order = np.argsort(first)
    is_made = recorded.calls.start[calls[first[order]]] > first_made_ps
    numbers = np.empty(len(first), np.int64)
    numbers[order] = np.where(is_made, np.cumsum(is_made) - 1, -1)
    return _IteratorCalls(calls, numbers[which], first[order][is_made])


def _epoch_bytes(trace: HostTrace, recorded: Pipelines, iterators: _IteratorCalls) -> int | None:
    """Return the bytes of what an iterator hands out that was made in the capture, and followed by another one."""
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
    """Return the stage that works most for an element, in the segment that limits."""
    working = (segment for segment in segments if segment.stages)
    slowest = max(working, key=lambda segment: segment.limit_ps, default=None)
    if slowest is None:
        return None
    work_ps = {index: stages[index].element_held_ps or 0.0 for index in slowest.stages}
    if slowest.kind == "producer":  # Its function runs elsewhere.
        functions = (other for other in segments if (other.kind, other.owner) == ("function", slowest.owner))
        work_ps[slowest.owner] -= sum(function.element_ps for function in functions)
    return max(work_ps, key=work_ps.__getitem__)


def _cores(trace: HostTrace, recorded: Pipelines, root: int) -> int | None:
    """Return the cores that the pipeline can use: as the capture states, else as tf.data counts them."""
    stated = trace.capture_facts.cores
    return whole_cores(stated) if stated else _setting(recorded, "cpu_budget", root)


def _setting(recorded: Pipelines, name: str, stage: int) -> int | None:
    value = int(recorded.settings[name][stage])
    return value if value >= 0 else None


def _stage(
    recorded: Pipelines, times: StageTimes, index: int, *, place: Mapping[int, int], blocked_ps: int, elements: float
) -> StageStats:
    """Measure a stage, whose work was for so many `elements` of the pipeline; `place` are the indices of its stages."""
    stage, runs = recorded.stages[index], recorded.runs
    is_run = runs.stage == index
    latency_ps = times.latencies_ps[index]
    ops = [(name, kind, *sums) for (owner, name, kind), sums in runs.ops.items() if owner == index]
    python = next((_PYTHON_OPS[kind] for _, kind, _, _ in ops if kind in _PYTHON_OPS), "")
    buffered, deterministic = recorded.buffered[index], recorded.labels["deterministic"][index]
    work_ps = times.work_ps[index]
    run_ps, functions_ps = (
        int(np.minimum(runs.busy, runs.end - runs.start)[is_run].sum()),
        times.functions[index].total(),
    )
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
