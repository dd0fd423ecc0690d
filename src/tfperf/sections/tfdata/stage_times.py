"""What the stages of all pipelines of a host add up to, and when each of them worked."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from tfperf.arrays import Bools, Int64s, Intervals, union, union_all
from tfperf.trace.pipelines import Pipelines

_ASYNC = ("Prefetch", "ParallelMap", "MapAndBatch", "ParallelBatch", "ParseExample")
_INTERLEAVE = ("ParallelInterleave", "LegacyParallelInterleave")


class StageTimes(Struct, frozen=True, kw_only=True):
    """For each stage of all pipelines: its calls, sums in picoseconds, and when it worked, as flat sets."""

    count: Int64s
    total_ps: Int64s
    work_ps: Int64s
    """What it does itself: calls without what they wait for in other stages, its threads, and its function."""
    is_async: list[bool]
    """Whether it gets its elements from threads of its own."""
    calls: list[Intervals]
    functions: list[Intervals]
    """When its function ran in a pool."""
    busy: list[Intervals]
    """When it, or its function, worked."""
    latencies_ps: list[Int64s]


def measure_stages(recorded: Pipelines) -> StageTimes:
    """Measure all stages over all calls in the capture."""
    calls, produced, runs = recorded.calls, recorded.produced, recorded.runs
    stages = range(len(recorded.stages))
    is_async = asynchronous_stages(recorded)
    in_pool = (runs.stage >= 0) & runs.is_async
    call_times = [_times(calls.start, calls.end, calls.stage == stage) for stage in stages]
    functions = [_times(runs.start, runs.end, in_pool & (runs.stage == stage)) for stage in stages]
    threads = [_times(produced.start, produced.end, produced.stage == stage) for stage in stages]
    latency = calls.end - calls.start
    # Without threads of its own a stage works in its calls, else in its threads and its function.
    in_calls = _without_inner(latency, calls.around, latency)
    in_threads = _without_inner(produced.end - produced.start, calls.in_produce, latency)
    in_functions = np.minimum(runs.busy, runs.end - runs.start)
    work_ps = np.zeros(len(stages))  # What bincount returns of nothing are integers.
    for stage, duration, rows in (
        (calls.stage, in_calls, ~np.array(is_async, np.bool_)[calls.stage]),
        (produced.stage, in_threads, produced.stage >= 0),
        (runs.stage, in_functions, in_pool),
    ):
        work_ps += np.bincount(stage[rows], weights=duration[rows], minlength=len(stages))
    return StageTimes(
        count=np.bincount(calls.stage, minlength=len(stages)),
        total_ps=np.bincount(calls.stage, weights=latency, minlength=len(stages)).astype(np.int64),
        work_ps=work_ps.astype(np.int64),
        is_async=is_async,
        calls=call_times,
        functions=functions,
        busy=[
            union_all([functions[stage], threads[stage] if is_async[stage] else call_times[stage]]) for stage in stages
        ],
        latencies_ps=[latency[calls.stage == stage] for stage in stages],
    )


def _times(start: Int64s, end: Int64s, rows: Bools) -> Intervals:
    return union(start[rows], end[rows])


def _without_inner(duration: Int64s, around: Int64s, inner: Int64s) -> Int64s:
    """Return durations less those of what lies directly inside; `around` says in which of them each inner one lies."""
    inside = around >= 0
    inner_sum = np.bincount(around[inside], weights=inner[inside], minlength=len(duration)).astype(np.int64)
    return np.asarray(np.maximum(duration - inner_sum, 0), np.int64)


def asynchronous_stages(recorded: Pipelines) -> list[bool]:
    """Tell which stages get their elements from threads of their own: by name, or because calls show it.

    Calls show it if most of what a stage asks for is not asked inside its own calls.
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
