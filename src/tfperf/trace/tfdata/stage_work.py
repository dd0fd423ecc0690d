"""When the stages of a host's pipelines worked themselves: never while they waited.

On each thread the innermost event of tf.data tells what runs. A call, or a turn of a stage's own threads, works where
nothing of another stage is inside. A function works while executors run its ops; that it was started and not yet
finished is no work, for it may wait for a thread.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Bools, Int32s, Int64s, Intervals, Uint8s
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.nesting import own_parts, parents
from tfperf.trace.tfdata.pipelines import FunctionRuns, Pipelines

CALL, THREAD, FUNCTION = 1, 2, 3
"""Where a stage works: in a call of it, on a thread of its own, or in its function."""
_PLACES = 4
_ASYNC = ("Prefetch", "ParallelMap", "MapAndBatch", "ParallelBatch", "ParseExample")
_INTERLEAVE = ("ParallelInterleave", "LegacyParallelInterleave")


class StageWork(Struct, frozen=True):
    """Stretches of work, ordered by stage: on behalf of which one (-1: nothing tells), where, and in which event."""

    stage: Int32s
    place: Uint8s
    row: Int32s
    start: Int64s
    end: Int64s

    def at(self, stage: int, *places: int) -> Int64s:
        """Return the indices of the stretches in which a stage worked in these places."""
        first, last = np.searchsorted(self.stage, (stage, stage + 1)).tolist()
        wanted = np.zeros(_PLACES, np.bool_)
        wanted[list(places)] = True
        return np.asarray(first + np.flatnonzero(wanted[self.place[first:last]]), np.int64)

    def of(self, stage: int) -> Intervals:
        """Return the stretches in which a stage worked; those of several threads overlap."""
        first, last = np.searchsorted(self.stage, (stage, stage + 1)).tolist()
        return Intervals(self.start[first:last], self.end[first:last])

    def without_waiting(self, is_async: Sequence[bool]) -> StageWork:
        """Leave out calls of stages that get their elements from threads of their own (`asynchronous_stages`)."""
        # The last one stands for stage -1.
        rows = (self.place != CALL) | ~np.array([*is_async, False], np.bool_)[self.stage]
        return StageWork(self.stage[rows], self.place[rows], self.row[rows], self.start[rows], self.end[rows])


def stage_work(trace: HostTrace, recorded: Pipelines) -> StageWork:
    """Find the work of all stages of a host."""
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
        _places_of_runs(runs),
        np.full(len(work), FUNCTION, np.uint8),
        np.zeros(len(made), np.uint8),
    )
    place = np.concatenate(places)[order]
    index, start, end = own_parts(trace.start_ps[rows], trace.end_ps[rows], parents(trace, rows), place > 0)
    by_stage = np.argsort(stage[index], kind="stable")
    index, start, end = index[by_stage], start[by_stage], end[by_stage]
    return StageWork(stage[index].astype(np.int32), place[index], rows[index].astype(np.int32), start, end)


def has_executors(runs: FunctionRuns) -> Bools:
    """Tell of which runs the trace shows what executors did."""
    return np.bincount(runs.work[1], minlength=len(runs.row)) > 0


def _places_of_runs(runs: FunctionRuns) -> Uint8s:
    """Return where a stage works in the event that starts a function.

    One that waits for its end does not work where executors do; if none is known, it ran the function itself.
    """
    waits = np.where(has_executors(runs), 0, FUNCTION)
    return np.where(runs.is_async, THREAD, waits).astype(np.uint8)


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
