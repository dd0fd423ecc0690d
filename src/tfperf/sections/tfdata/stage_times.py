"""What the stages of all pipelines of a host add up to, and when each of them worked."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Bools, Int64s, Intervals, union, union_all
from tfperf.trace.tfdata.pipelines import Pipelines
from tfperf.trace.tfdata.stage_work import StageWork, has_executors

_UNSEEN = ("ParallelBatch", "ParseExample", "DataService")
"""Stages that work in threads, or on hosts, of which the profiler records nothing."""


class StageTimes(Struct, frozen=True, kw_only=True):
    """For each stage of all pipelines: its calls, sums in picoseconds, and when it worked, as flat sets."""

    count: Int64s
    total_ps: Int64s
    held_ps: Int64s
    """How long it holds threads: calls without those of other stages inside, its own threads, and its function."""
    held: list[Intervals]
    """When it holds any: in its calls or, with threads of its own, in these and from start to end of its function."""
    is_async: list[bool]
    """Whether it gets its elements from threads of its own."""
    calls: list[Intervals]
    functions: list[Intervals]
    """From the start of each run of its function in a pool to its end, waiting for a thread included."""
    work_ps: list[int | None]
    """What code of it, and its function, ran on all threads together; None: the trace does not show it."""
    busy: list[Intervals]
    """When code of it, or its function, ran (as far as the trace shows it): without waiting for a thread."""
    latencies_ps: list[Int64s]


def measure_stages(recorded: Pipelines, work: StageWork, is_async: list[bool]) -> StageTimes:
    """Measure all stages over all calls in the capture; `work` has no calls that wait for what other threads make."""
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
    """Without threads of its own a stage holds that of its calls, else its threads and those of its function."""
    calls, produced, runs = recorded.calls, recorded.produced, recorded.runs
    latency = calls.end - calls.start
    made = recorded.made
    in_calls = _without_inner(latency, calls.around, latency)
    in_calls = _without_inner(in_calls, made.around, made.end - made.start)
    in_threads = _without_inner(produced.end - produced.start, calls.in_produce, latency)
    in_functions = np.minimum(runs.busy, runs.end - runs.start)
    held_ps = np.zeros(len(is_async))  # What bincount returns of nothing are integers.
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
    """Return durations less those of what lies directly inside; `around` says in which of them each inner one lies."""
    inside = around >= 0
    inner_sum = np.bincount(around[inside], weights=inner[inside], minlength=len(duration)).astype(np.int64)
    return np.asarray(np.maximum(duration - inner_sum, 0), np.int64)


def stages_unseen(recorded: Pipelines, is_async: list[bool]) -> list[bool]:
    """Tell of which stages the trace does not show the work, or does not tell it from waiting.

    That is the case for some kinds of stages; for one whose function runs in a pool without a sign of it; and for one
    of whose threads (or of whose calls, if it has no threads) no event is recorded.
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
