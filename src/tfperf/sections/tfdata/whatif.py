"""What a change of the input pipeline would gain, from the trace alone: the bounds of `step_model.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.arrays import Intervals, overlap
from tfperf.sections.overview.summary import INPUT_LIMITS
from tfperf.sections.steps.breakdown import Breakdown
from tfperf.sections.tfdata.contention import Rivals
from tfperf.sections.tfdata.pipeline import Pipeline, StageStats, whole_pipelines
from tfperf.sections.tfdata.step_model import Load, StepModel
from tfperf.units import PS_PER_MS

LOCK_SLOWDOWN = 1.2
"""How much slower threads can be that fight for Python's lock."""
LAUNCH_PS = 5_000_000
"""What an op costs whatever the size of its input: at most about 5 us; the rest grows with the batch."""
_SMALL_SHARE = 0.02
"""Stages that work for less of the time of the step's thread are not worth a change."""
_FILES = ("TFRecord", "TextLine", "FixedLengthRecord", "SSTable", "RecordIO", "LMDB", "ArrayRecord")
_SOURCES = (*_FILES, "Generator")
"""What gains where several are read at a time; what is in memory does not."""
_MAPS = ("Map", "ParallelMap", "ParallelMapV2")
_ASSUMED_CORES = 8
FREE_INPUT = "free_input"
_FREE = "no input work at all: no waiting, and no threads of the pipeline beside the step"
_NOISE = "; a step takes up to 10 % more or less at another moment"
_CONDITION = 0.05
"""Share of the step time by which a change that depends on a condition must be better to be the first."""
_SLOWED_PERCENT = 12.0
"""What the pipelines' threads must likely take from the step: the estimate of that is rough."""
_GAIN = 0.9
"""A change promises a gain if its step time, likely, is below so much of today's: what is less drowns in noise."""


class Estimate(Struct, frozen=True):
    """What a change would lead to: a range of step times and of input-bound shares, and what it rests on."""

    change: str
    stage: int | None
    """Index of the stage that changes, in the pipeline of the outlook."""
    low_ms: float
    high_ms: float
    low_input_percent: float
    high_input_percent: float
    assumption: str
    likely_ms: float
    """The middle of the range, without the part at its top that only noise reaches."""


class Outlook(Struct, frozen=True, kw_only=True):
    """Estimates for the pipeline that steps wait for longest, the one that promises most first.

    Times are averages over the steps that count.
    """

    pipeline: Pipeline
    step_ms: float
    wait_ms: float
    slowed_ms: tuple[float, float] | None
    """What the pipelines' threads add to the step's own work, at least and at most: they use the same cores. None: the
    trace does not tell how many cores there are."""
    threads: float
    """How many threads of the pipelines work beside the step's own work."""
    cores: int
    """Those of the host; where the trace does not tell them, an assumption."""
    free: Estimate
    """The floor of all changes: no input work at all."""
    estimates: tuple[Estimate, ...]

    @property
    def input_percent(self) -> float:
        """Return the share of the step in which it waits for this pipeline."""
        return 100.0 * self.wait_ms / self.step_ms

    @property
    def keeps_up(self) -> bool:
        """Tell whether the pipeline is fast enough: steps hardly wait for it."""
        return self.input_percent < INPUT_LIMITS[0]

    @property
    def slowed_percent(self) -> tuple[float, float] | None:
        """Return what the pipelines' threads add to the step's own work as shares of the step."""
        if self.slowed_ms is None:
            return None
        return 100.0 * self.slowed_ms[0] / self.step_ms, 100.0 * self.slowed_ms[1] / self.step_ms

    @property
    def is_costly(self) -> bool:
        """Tell whether steps wait for the pipeline, or are slowed by its threads, for a share that matters."""
        return not self.keeps_up or sum(self.slowed_percent or (0.0, 0.0)) / 2.0 >= _SLOWED_PERCENT

    @property
    def gains(self) -> tuple[Estimate, ...]:
        """Return the estimates that promise more than noise: none where input costs next to nothing."""
        if not self.is_costly:
            return ()
        return tuple(each for each in self.estimates if each.likely_ms < _GAIN * self.step_ms)


def _rank(estimate: Estimate, step_ms: float) -> tuple[float, str]:
    """Order by the likely step time. A cache must bring more than another change: it helps later, if at all."""
    condition_ms = _CONDITION * step_ms if estimate.change == "cache" else 0.0
    return estimate.likely_ms + condition_ms, estimate.change


class NoOutlook(Struct, frozen=True):
    """Why it is unknown whether steps wait for a pipeline: no steps count, or it is not asked in those that do."""

    steps: int = 0
    """How many steps count; 0: none."""
    calls_before: int = 0
    """How many calls of its outermost stage start before these steps, and behind them; the others in between."""
    calls_behind: int = 0


def estimate_changes(
    pipelines: tuple[Pipeline, ...],
    breakdown: Breakdown,
    rivals_of: Callable[[Intervals, Intervals], Rivals],
    *,
    has_device: bool,
) -> Outlook | None:
    """Estimate what changes of the main pipeline would gain; None without steps, or without calls of one in them.

    `rivals_of` returns the rivals of steps outside the times in which they wait.
    """
    rows = np.flatnonzero(breakdown.steps.headline)
    start, end = breakdown.steps.start_ps[rows], breakdown.steps.end_ps[rows]
    whole = whole_pipelines(pipelines)
    if not len(rows) or not whole:
        return None
    pipeline = max(whole, key=lambda pipeline: int(overlap(pipeline.waits, start, end).sum()))
    wait_ms = float(overlap(pipeline.waits, start, end).mean()) / PS_PER_MS
    step_ms = float((end - start).mean()) / PS_PER_MS
    # A step takes as many elements as calls of the outermost stage start in it.
    times = np.sort(pipeline.call_start_ps)
    per_step = float((np.searchsorted(times, end) - np.searchsorted(times, start)).mean())
    if not per_step or not step_ms:
        return None
    load = _load(pipeline, step_ms - wait_ms, per_step)
    cores = pipeline.cores or pipeline.pool_threads
    model = StepModel(
        now=load,
        step_ms=step_ms,
        cores=cores or _ASSUMED_CORES,
        rivals=rivals_of(Intervals(start, end), pipeline.waits),
        has_device=has_device,
    )
    low_ms, high_ms = model.free_ms()
    alone_low_ms, alone_high_ms = model.alone_ms
    slowed_ms = load.consumer_ms - alone_high_ms, load.consumer_ms - alone_low_ms
    # Only rivals for cores make their number matter.
    is_known = bool(cores) or has_device or not model.rivals.threads
    assumption = _FREE + f"; {model.cores} cores (assumed)" * (not is_known)
    free = _estimate(Change(FREE_INPUT, None, load, load, assumption), (low_ms, high_ms), (0.0, 0.0), step_ms)
    estimates = []
    for change in possible_changes(pipeline, load, elements_per_step=per_step, cores=model.cores):
        low_ms, high_ms = model.range_ms(change.best, change.worst, change.slowdown)
        shares = model.input_percent(low_ms), model.input_percent(high_ms)
        estimates.append(_estimate(change, (low_ms, high_ms), shares, step_ms))
    estimates.sort(key=lambda estimate: _rank(estimate, step_ms))
    return Outlook(
        pipeline=pipeline,
        step_ms=step_ms,
        wait_ms=wait_ms,
        slowed_ms=slowed_ms if is_known else None,
        threads=model.rivals.threads,
        cores=model.cores,
        free=free,
        estimates=tuple(estimates),
    )


def _estimate(
    change: Change, range_ms: tuple[float, float], input_percent: tuple[float, float], step_ms: float
) -> Estimate:
    """Say of a range whose top only noise reaches that it is so."""
    most_ms = change.slowdown * step_ms
    return Estimate(
        change.kind,
        change.stage,
        *range_ms,
        *input_percent,
        f"{change.assumption}{_NOISE * (range_ms[1] > most_ms)}",
        (range_ms[0] + min(range_ms[1], most_ms)) / 2.0,
    )


def why_no_outlook(pipeline: Pipeline, breakdown: Breakdown) -> NoOutlook:
    """Return what a pipeline without an outlook lacks."""
    rows = np.flatnonzero(breakdown.steps.headline)
    if not len(rows):
        return NoOutlook()
    start, end = int(breakdown.steps.start_ps[rows].min()), int(breakdown.steps.end_ps[rows].max())
    times = pipeline.call_start_ps
    return NoOutlook(len(rows), int((times < start).sum()), int((times >= end).sum()))


def _load(pipeline: Pipeline, consumer_ms: float, per_step: float) -> Load:
    to_ms = per_step / PS_PER_MS
    in_threads = [segment for segment in pipeline.segments if segment.kind != "consumer"]
    return Load(
        consumer_ms=consumer_ms,
        inline_ms=sum(segment.element_ps for segment in pipeline.segments if segment.kind == "consumer") * to_ms,
        segments=tuple((segment.element_ps * to_ms, segment.workers) for segment in in_threads),
        cpu_ms=sum(segment.element_ps for segment in pipeline.segments) * to_ms,
    )


class Change(Struct, frozen=True):
    """A change of a stage, the load then, and by what factor (`slowdown`) threads may slow each other down."""

    kind: str
    stage: int | None
    best: Load
    worst: Load
    assumption: str
    slowdown: float = 1.0


def possible_changes(pipeline: Pipeline, load: Load, *, elements_per_step: float, cores: int) -> Iterator[Change]:
    """Propose what could be changed, with the load at best and at worst."""
    to_ms = elements_per_step / PS_PER_MS
    if pipeline.final_prefetch is None and load.inline_ms:
        moved = replace(load, inline_ms=0.0, segments=(*load.segments, (load.inline_ms, 1)))
        yield Change("prefetch", None, moved, moved, "the pipeline works while the step computes")
    works_ms = [(stage.element_held_ps or 0.0) * to_ms for stage in pipeline.stages]
    least_ms = _SMALL_SHARE * (load.consumer_ms + load.inline_ms)
    for index, (stage, work_ms) in enumerate(zip(pipeline.stages, works_ms, strict=True)):
        if work_ms < least_ms:
            continue
        function_ms = stage.run_ps / max(stage.held_ps, 1) * work_ms
        is_map = stage.name in (*_MAPS, "MapAndBatch")
        if stage.runs and function_ms and is_map and pipeline.is_sequential(index):
            yield _in_parallel(pipeline, load, index, work_ms=function_ms, cores=cores)
        if stage.name.startswith(_SOURCES) and not _reads_several(pipeline, index):
            yield _in_parallel(pipeline, load, index, work_ms=work_ms, cores=cores)
    if pipeline.limiting is not None and _could_be_kept(pipeline, pipeline.limiting):
        yield from _kept(pipeline, load, pipeline.limiting, works_ms=works_ms, least_ms=least_ms)
    for index in _filling_caches(pipeline):
        yield from _kept(pipeline, load, index, works_ms=works_ms, least_ms=least_ms, is_filling=True)
    for index, stage in enumerate(pipeline.stages):
        batch_size = _next_batch_size(pipeline, stage)
        if stage.runs and batch_size and not stage.python:
            yield _vectorized(pipeline, load, index, work_ms=works_ms[index], batch_size=batch_size)


def _kept(
    pipeline: Pipeline, load: Load, index: int, *, works_ms: list[float], least_ms: float, is_filling: bool = False
) -> Iterator[Change]:
    """Keep what a stage makes, in a new cache or in one that is not full yet: it and all before it work no more."""
    removed_ms = {each: work for each, work in enumerate(works_ms) if index in pipeline.consumers(each)}
    if sum(removed_ms.values()) < least_ms:
        return
    kept = _without(pipeline, load, removed_ms)
    if is_filling:
        cache, assumption = pipeline.stages[index].parent, "from the second epoch on; the first reads all of its input"
        yield Change("warm_cache", cache, kept, kept, assumption)
        return
    assumption = "from the second epoch on; the elements fit into memory"
    if pipeline.stages[index].is_random:
        assumption += "; its random ops give the same in every epoch"
    yield Change("cache", index, kept, kept, assumption)


def _filling_caches(pipeline: Pipeline) -> Iterator[int]:
    """Yield the stages that a cache asks, which it does until it holds all that they make."""
    for index, stage in enumerate(pipeline.stages):
        is_asked_by_cache = stage.parent >= 0 and "Cache" in pipeline.stages[stage.parent].name
        if is_asked_by_cache and stage.calls and "Cache" not in stage.name:
            yield index


def _could_be_kept(pipeline: Pipeline, index: int) -> bool:
    """Tell whether a cache behind a stage is new: none follows, and it does not come from workers elsewhere."""
    names = [pipeline.stages[each].name for each in pipeline.consumers(index)]
    return not names[0].startswith("DataService") and not any("Cache" in name for name in names)


def _reads_several(pipeline: Pipeline, index: int) -> bool:
    """Tell whether several inputs like this one are read at a time already."""
    return any("ParallelInterleave" in pipeline.stages[each].name for each in pipeline.consumers(index))


def _without(pipeline: Pipeline, load: Load, removed_ms: dict[int, float]) -> Load:
    """Take work (milliseconds per step) of stages out of the segments that do it; of a function before its producer."""
    works_ms = (work_ms for work_ms, _ in load.segments)
    in_threads = (segment for segment in pipeline.segments if segment.kind != "consumer")
    of_function = {
        segment.owner: min(work_ms, removed_ms.get(segment.owner, 0.0))
        for segment, work_ms in zip(in_threads, works_ms, strict=True)
        if segment.kind == "function"
    }
    inline_ms, segments = load.inline_ms, []
    others = iter(load.segments)
    for segment in pipeline.segments:
        less_ms = sum(removed_ms.get(stage, 0.0) for stage in segment.stages)
        if segment.kind == "consumer":
            inline_ms = max(inline_ms - less_ms, 0.0)
            continue
        work_ms, workers = next(others)
        if segment.kind == "producer":
            less_ms -= of_function.get(segment.owner, 0.0)
        segments.append((max(work_ms - less_ms, 0.0), workers))
    cpu_ms = max(load.cpu_ms - sum(removed_ms.values()), 0.0)
    return replace(load, inline_ms=inline_ms, segments=tuple(segments), cpu_ms=cpu_ms)


def _in_parallel(pipeline: Pipeline, load: Load, index: int, *, work_ms: float, cores: int) -> Change:
    stage = pipeline.stages[index]
    rest = _without(pipeline, load, {index: work_ms})
    spread = replace(rest, segments=(*rest.segments, (work_ms, cores)), cpu_ms=load.cpu_ms)
    if stage.name.startswith(_SOURCES):
        assumption = "several inputs; a gain as far as reading them, not the disk or network, takes the time"
        return Change("parallel_read", index, spread, load, assumption)
    if stage.python:
        assumption = (
            "the function waits (network, disk) or releases Python's lock; if it computes, nothing is gained, and "
            "threads that fight for the lock may lose up to a fifth"
        )
        return Change("parallel_map", index, spread, load, assumption, LOCK_SLOWDOWN)
    return Change("parallel_map", index, spread, spread, f"calls do not depend on each other; {cores} cores")


def _next_batch_size(pipeline: Pipeline, stage: StageStats) -> int | None:
    """Return the batch size if what this stage makes is batched next."""
    if stage.name == "MapAndBatch":
        return stage.batch_size
    if stage.name not in _MAPS or stage.parent < 0:
        return None
    consumer = pipeline.stages[stage.parent]
    return consumer.batch_size if "Batch" in consumer.name else None


def _vectorized(pipeline: Pipeline, load: Load, index: int, *, work_ms: float, batch_size: int) -> Change:
    """Run the function once for a batch: what each op costs whatever its size is paid once."""
    stage = pipeline.stages[index]
    ops_ps = sum(duration_ps for _, _, _, duration_ps in stage.ops)
    fixed_ps = min(LAUNCH_PS * sum(count for _, _, count, _ in stage.ops), ops_ps)
    growing_ms = (ops_ps - fixed_ps) / max(stage.held_ps, 1) * work_ms
    overhead_ms = max(work_ms * (1.0 - ops_ps / max(stage.held_ps, 1)), 0.0)
    best = _without(pipeline, load, {index: max(work_ms - growing_ms - work_ms / stage.runs, 0.0)})
    worst = _without(pipeline, load, {index: overhead_ms * (1.0 - 1.0 / batch_size)})
    return Change("vectorize", index, best, worst, "the function works on whole batches as it does on one element")
