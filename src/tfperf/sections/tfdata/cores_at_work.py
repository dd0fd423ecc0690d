"""How many threads of a host the trace shows at work while steps wait for a pipeline.

Hardly any: more of the pipeline could run at a time. As many as there are cores: only less work helps. What runs
outside of TensorFlow, and threads that an op starts by itself, leave no event, so the number is the least that is true;
a thread that sleeps or reads a file counts as working, but does not need its core. Where the capture knows how much CPU
time the process took, that includes everything: what cannot have been spent outside of waiting was spent in it.
"""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.arrays import EMPTY, Bools, Int64s, Intervals, touches, union_sorted
from tfperf.sections.tfdata.contention import threads
from tfperf.sections.tfdata.pipeline import Pipeline
from tfperf.sections.tfdata.stage_times import StageTimes
from tfperf.trace.event_names import mask, parse_op
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.tfdata.pipelines import Pipelines
from tfperf.trace.tfdata.stage_work import StageWork

_WAITING_OP = re.compile(r".*(?:Recv|Send|Call)$|IteratorGetNext|Collective")
_NEEDS_NO_CORE = re.compile(r"(?:Eager)?PyFunc|ReadFile")
"""Ops that may sleep, or wait for a disk or the network."""
_READERS = re.compile(r"Generator|TFRecord|TextLine|FixedLengthRecord|SSTable|RecordIO|LMDB|ArrayRecord|.*Remote")


class ThreadsAtWork(Struct, frozen=True):
    """When threads of a host work, all together: stretches of several threads overlap."""

    working: Intervals
    computing: Intervals
    """The part of it that certainly needs a core."""
    is_complete: bool
    """False: the trace does not show when some stage works."""
    busy_cores: float | None
    """How many cores the process kept busy in the capture; None: unknown."""
    capture_ps: int

    def while_waited(self, pipeline: Pipeline) -> Pipeline:
        """Return the pipeline with the number of threads at work while anyone waits for it."""
        if not pipeline.waits.total():
            return pipeline
        least = self._least_busy(pipeline)
        working, computing = (
            max(threads(pipeline.waits, *stretches), least) for stretches in (self.working, self.computing)
        )
        return replace(pipeline, threads_at_work=working if self.is_complete else None, threads_computing=computing)

    def _least_busy(self, pipeline: Pipeline) -> float:
        """Return how many cores the process keeps busy at least while anyone waits: it can fill all at other times."""
        if self.busy_cores is None or pipeline.cores is None or not self.capture_ps:
            return 0.0
        share = min(pipeline.waits.total() / self.capture_ps, 1.0)
        return min(max((self.busy_cores - pipeline.cores * (1.0 - share)) / share, 0.0), float(pipeline.cores))


def threads_at_work(
    trace: HostTrace, recorded: Pipelines, work: StageWork, times: StageTimes, waits: Intervals, capture_ps: int
) -> ThreadsAtWork:
    """Find when the threads of a host work while anyone waits: at stages of its pipelines, or at other ops.

    `work` has no calls that wait for what other threads make.
    """
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
    """Unite stretches of ops and of stages (`rows` of `work`) on the same thread, as far as they meet waits."""
    # Each kind by itself, cut to what counts: all of both at once is what takes most memory in a large trace.
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
