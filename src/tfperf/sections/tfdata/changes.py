"""How a pipeline could be changed, and the load of a step (`step_model.py`) then, at best and at worst."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.units import PS_PER_MS
from tfperf.sections.tfdata.pipeline import MAPS, Pipeline, StageStats
from tfperf.sections.tfdata.pipeline_code import cache_size, kept_stages, with_cache
from tfperf.sections.tfdata.step_model import Load

LOCK_SLOWDOWN = 1.2
"""How much slower threads can be that fight for Python's lock."""
LAUNCH_PS = 5_000_000
"""What an op costs whatever the size of its input: at most about 5 us; the rest grows with the batch."""
_SMALL_SHARE = 0.02
"""Stages that work for less of the time of the step's thread are not worth a change."""
_FILES = ("TFRecord", "TextLine", "FixedLengthRecord", "SSTable", "RecordIO", "LMDB", "ArrayRecord")
_SOURCES = (*_FILES, "Generator")
"""What gains where several are read at a time; what is in memory does not."""


class Change(Struct, frozen=True):
    """A change of a stage, the load then, and by what factor (`slowdown`) threads may slow each other down."""

    kind: str
    stage: int | None
    best: Load
    worst: Load
    assumption: str
    slowdown: float = 1.0


class HostLimits(Struct, frozen=True):
    """What bounds the gain of more threads."""

    cores: int
    python_computes: float = 1.0
    """For how much of its time the only Python function computes, at most; 1: unknown."""


def possible_changes(
    pipeline: Pipeline, load: Load, limits: HostLimits, *, elements_per_step: float
) -> Iterator[Change]:
    """Propose what could be changed, with the load at best and at worst; nothing where Keras made the pipeline."""
    if pipeline.is_of_keras_arrays:
        return
    to_ms = elements_per_step / PS_PER_MS
    in_parallel = partial(_in_parallel, pipeline, load, limits=limits, to_ms=to_ms)
    if pipeline.final_prefetch is None and load.inline_ms:
        moved = replace(load, inline_ms=0.0, segments=(*load.segments, (load.inline_ms, 1)))
        yield Change("prefetch", None, moved, moved, "the pipeline works while the step computes")
    works_ms = [(stage.element_held_ps or 0.0) * to_ms for stage in pipeline.stages]
    least_ms = _SMALL_SHARE * (load.consumer_ms + load.inline_ms)
    for index, (stage, work_ms) in enumerate(zip(pipeline.stages, works_ms, strict=True)):
        if work_ms < least_ms:
            continue
        function_ms = _function_ms(stage, work_ms)
        is_map = stage.name in (*MAPS, "MapAndBatch")
        if stage.runs and function_ms and is_map and pipeline.is_sequential(index) and pipeline.is_waited_for(index):
            yield in_parallel(index, work_ms=function_ms)
        if stage.name.startswith(_SOURCES) and _may_read_several(pipeline, index):
            yield in_parallel(index, work_ms=work_ms)
    yield from _caches(pipeline, load, works_ms=works_ms, least_ms=least_ms)
    for index, stage in enumerate(pipeline.stages):
        batch_size = pipeline.next_batch_size(index)
        if stage.runs and batch_size and not stage.python and not pipeline.is_mostly_overhead(index):
            yield _vectorized(pipeline, load, index, work_ms=works_ms[index], batch_size=batch_size)


def _caches(pipeline: Pipeline, load: Load, *, works_ms: list[float], least_ms: float) -> Iterator[Change]:
    """Keep what is made up to a stage, in a new cache or in one that is not full yet: no more work of these stages."""
    if pipeline.limiting is not None and (cached := with_cache(pipeline, pipeline.limiting)):
        spared_ms = {
            stage: work_ms if is_all else _function_ms(pipeline.stages[stage], work_ms)
            for stage, is_all in kept_stages(pipeline, cached).items()
            if (work_ms := works_ms[stage])
        }
        if sum(spared_ms.values()) >= least_ms:
            kept = _without(pipeline, load, spared_ms)
            size = cache_size(pipeline, cached)
            assumption = f"from the second epoch on; the elements{f' ({size})' * bool(size)} fit into memory"
            yield Change("cache", pipeline.limiting, kept, kept, assumption)
    for index in _filling_caches(pipeline):
        spared_ms = {each: works_ms[each] for each in (index, *pipeline.below(index))}
        if sum(spared_ms.values()) >= least_ms:
            full = _without(pipeline, load, spared_ms)
            assumption = "from the second epoch on; the first reads all of its input"
            yield Change("warm_cache", pipeline.stages[index].parent, full, full, assumption)


def _function_ms(stage: StageStats, work_ms: float) -> float:
    """Return the part of the work of a stage that its function does."""
    return stage.run_ps / max(stage.held_ps, 1) * work_ms


def _filling_caches(pipeline: Pipeline) -> Iterator[int]:
    """Yield the stages that a cache asks, which it does until it holds all that they make."""
    for index, stage in enumerate(pipeline.stages):
        is_asked_by_cache = stage.parent >= 0 and "Cache" in pipeline.stages[stage.parent].name
        if is_asked_by_cache and stage.calls and "Cache" not in stage.name:
            yield index


def _may_read_several(pipeline: Pipeline, index: int) -> bool:
    """Return whether steps wait for a source, and nothing reads several like it at a time already.

    A generator that Keras reads may be one of its own, which has other means for that.
    """
    reads_several = any("ParallelInterleave" in pipeline.stages[each].name for each in pipeline.consumers(index))
    return pipeline.is_waited_for(index) and not reads_several and not pipeline.is_bare_generator


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


def _in_parallel(
    pipeline: Pipeline, load: Load, index: int, *, limits: HostLimits, work_ms: float, to_ms: float
) -> Change:
    """Let several threads do `work_ms` of a stage; another one asks its inputs, whichever thread did so before."""
    stage, cores, computes = pipeline.stages[index], limits.cores, limits.python_computes
    inputs_ms = {
        each: (pipeline.stages[each].element_held_ps or 0.0) * to_ms
        for segment in pipeline.segments
        for each in segment.stages
        if index in segment.stages and each != index and index in pipeline.consumers(each)
    }
    rest = _without(pipeline, load, {index: work_ms, **inputs_ms})
    asking = ((sum(inputs_ms.values()), 1),) if inputs_ms else ()

    def spread(*work: tuple[float, float]) -> Load:
        return replace(rest, segments=(*rest.segments, *asking, *work), cpu_ms=load.cpu_ms)

    side_by_side = spread((work_ms, cores))
    if stage.name.startswith(_SOURCES):
        assumption = "several inputs; a gain as far as reading them, not the disk or network, takes the time"
        return Change("parallel_read", index, side_by_side, load if stage.python else spread((work_ms, 1)), assumption)
    if not stage.python:
        assumption = f"calls do not depend on each other; {cores} cores"
        return Change("parallel_map", index, side_by_side, side_by_side, assumption)
    # At best, the function does nothing but wait.
    side_by_side = replace(side_by_side, cpu_ms=max(load.cpu_ms - work_ms, 0.0))
    slowdown = 1.0 + computes * (LOCK_SLOWDOWN - 1.0)
    if computes < 1.0:
        waits = 100.0 * (1.0 - computes)
        assumption = f"the function waits for {waits:.0f} % of its time or more, as the CPU time of the capture shows"
        in_turn = spread((work_ms * computes, 1), (work_ms, cores))
        return Change("parallel_map", index, side_by_side, in_turn, assumption, slowdown)
    assumption = (
        "the function waits (network, disk) or releases Python's lock; if it computes, nothing is gained, and "
        "threads that fight for the lock may lose up to a fifth"
    )
    return Change("parallel_map", index, side_by_side, load, assumption, slowdown)


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
