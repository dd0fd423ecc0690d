"""Estimated step times after changes of the input pipeline, as ranges, from the trace alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.arrays import Int64s, Intervals, difference, overlap, union
from tfperf.base.units import PS_PER_MS
from tfperf.sections.overview.summary import INPUT_LIMITS
from tfperf.sections.tfdata.pipeline import MAPS, Pipeline, Segment, StageStats, whole_pipelines
from tfperf.sections.tfdata.pipeline_code import cache_size, kept_stages, with_cache
from tfperf.trace.steps.breakdown import Breakdown
from tfperf.trace.tfdata import StageWork

_ASSUMED_CORES = 8
FREE_INPUT = "free_input"
_FREE = "no waiting for tf.data, and no pipeline threads that compete with the step"
NOISE = 0.12
"""Share by which the time of equal work differs between moments."""
_NOISE = f"; step times vary by up to {100 * NOISE:.0f}% over time"
_CONDITION = 0.05
"""Share of step time by which a conditional change must be better to be listed first."""
_SLOWED_PERCENT = 12.0
"""Minimum contention in percent of the step, because its estimate is rough."""
_GAIN = 0.9
"""A change promises a gain if its likely step time is below this share of today's; less is within the noise."""
_AT_EPOCH_START = 1.0 / 3.0
"""Share of the waiting at which waits for first elements of new iterators are reported."""
_FILLS = 0.5
"""If stages work in at least this share of the waiting without iterator creation, they fill a shuffle buffer."""


class Estimate(Struct, frozen=True):
    """Ranges of step time and input-bound share after a change, and its assumption."""

    change: str
    stage: int | None
    """Index of the changed stage, in the pipeline of the outlook."""
    low_ms: float
    high_ms: float
    low_input_percent: float
    high_input_percent: float
    assumption: str
    likely_ms: float
    """Middle of the range, without the part at its top that only noise reaches."""


class Outlook(Struct, frozen=True, kw_only=True):
    """Estimates for the pipeline that steps wait for longest, largest gain first; times are means per averaged step."""

    pipeline: Pipeline
    step_ms: float
    wait_ms: float
    usual_wait_ms: float
    """Median over the steps."""
    first_wait_ms: float
    """Mean waiting for the first element of each iterator created in the capture."""
    unchanged_ms: float
    """Step time of the unchanged pipeline, as predicted by the model."""
    slowed_ms: tuple[float, float] | None
    """Time that input adds to the step's own work. Minimum: CPU contention with pipeline threads; maximum: also slower
    work after waiting. None if the number of cores is unknown."""
    threads: float
    """Number of pipeline threads that work during the step's own work."""
    cores: int
    """Cores of the host; an assumption if not recorded."""
    python_computes: float
    """Maximum share of its time in which the only Python function computes; 1 if unknown."""
    free: Estimate
    """The lower bound of all changes: no input work at all."""
    estimates: tuple[Estimate, ...]

    @property
    def input_percent(self) -> float:
        """Return the share of the step that waits for this pipeline."""
        return 100.0 * self.wait_ms / self.step_ms

    @property
    def first_percent(self) -> float:
        """Return the share of the waiting for the first element of each iterator created in the capture."""
        return min(100.0 * self.first_wait_ms / self.wait_ms, 100.0) if self.wait_ms else 0.0

    @property
    def is_at_epoch_start(self) -> bool:
        """Return whether much of the waiting is for first elements of new iterators, and most steps hardly wait."""
        is_much = self.first_percent >= 100.0 * _AT_EPOCH_START
        return is_much and 100.0 * self.usual_wait_ms < INPUT_LIMITS[0] * self.step_ms

    @property
    def waits_at_epoch_start(self) -> bool:
        """Return whether that waiting is the cost of new iterators: Keras creates them, or stages hardly work then."""
        work, making = self.pipeline.first_work_share, self.pipeline.first_making_share
        is_idle = work < max(_FILLS * (1.0 - making), making) or self.pipeline.is_of_keras_arrays
        return self.is_at_epoch_start and is_idle

    @property
    def refilled(self) -> int | None:
        """Return the shuffle whose buffer each new iterator fills while the step waits; None without one."""
        if not self.is_at_epoch_start or self.waits_at_epoch_start or self.pipeline.blocking is None:
            return None
        chain = self.pipeline.consumers(self.pipeline.blocking)
        return next((index for index in chain if "Shuffle" in self.pipeline.stages[index].name), None)

    @property
    def keeps_up(self) -> bool:
        """Return whether the pipeline is fast enough: steps hardly wait, except for the first element of each epoch."""
        return self.input_percent < INPUT_LIMITS[0] or self.waits_at_epoch_start

    @property
    def slowed_percent(self) -> tuple[float, float] | None:
        """Return the added time from pipeline threads as shares of the step."""
        if self.slowed_ms is None:
            return None
        return 100.0 * self.slowed_ms[0] / self.step_ms, 100.0 * self.slowed_ms[1] / self.step_ms

    @property
    def is_costly(self) -> bool:
        """Return whether waits for the pipeline or contention with its threads take a significant share of steps."""
        return not self.keeps_up or sum(self.slowed_percent or (0.0, 0.0)) / 2.0 >= _SLOWED_PERCENT

    @property
    def gains(self) -> tuple[Estimate, ...]:
        """Return the estimates with gains beyond noise; empty if input costs little."""
        if not self.is_costly:
            return ()
        least_ms = _GAIN * min(self.step_ms, self.unchanged_ms)
        return tuple(each for each in self.estimates if each.likely_ms < least_ms)


class NoOutlook(Struct, frozen=True):
    """Reason for missing estimates: no averaged steps, or no calls of the pipeline in them."""

    steps: int = 0
    """Number of averaged steps."""
    calls_before: int = 0
    """Calls of its outermost stage before and after these steps; the other calls are between steps."""
    calls_behind: int = 0


def estimate_changes(
    pipelines: tuple[Pipeline, ...],
    breakdown: Breakdown,
    rivals_of: Callable[[Intervals, Intervals], Rivals],
    *,
    has_device: bool,
    busy_cores: float | None = None,
) -> Outlook | None:
    """Estimate the gains of changes to the main pipeline; None without steps, or without its calls in them.

    `rivals_of` returns the competing threads outside the waits of steps. `busy_cores` is the number of cores that the
    process keeps busy in the steps; None if unknown.
    """
    rows = np.flatnonzero(breakdown.steps.headline)
    start, end = breakdown.steps.start_ps[rows], breakdown.steps.end_ps[rows]
    whole = whole_pipelines(pipelines)
    if not len(rows) or not whole:
        return None
    pipeline = max(whole, key=lambda pipeline: int(overlap(pipeline.waits, start, end).sum()))
    waits_ps = overlap(pipeline.waits, start, end)
    wait_ms = float(waits_ps.mean()) / PS_PER_MS
    step_ms = float((end - start).mean()) / PS_PER_MS
    # A step uses as many elements as outermost calls start in it.
    times = np.sort(pipeline.call_start_ps)
    per_step = float((np.searchsorted(times, end) - np.searchsorted(times, start)).mean())
    if not per_step or not step_ms:
        return None
    rivals = rivals_of(Intervals(start, end), pipeline.waits)
    making_ms = float(overlap(pipeline.making, start, end).mean()) / PS_PER_MS
    # Changes of stages do not make iterator creation faster.
    load = _load(pipeline, step_ms - wait_ms + making_ms, per_step, rivals.python_computes)
    cores = pipeline.cores or pipeline.pool_threads
    model = StepModel(
        now=load,
        step_ms=step_ms,
        cores=cores or _ASSUMED_CORES,
        rivals=rivals,
        has_device=has_device,
        busy_ms=(busy_cores or 0.0) * step_ms,
    )
    low_ms, high_ms = model.free_ms()
    # The number of cores only matters with competing threads.
    is_known = bool(cores) or has_device or not model.rivals.threads
    assumption = _FREE + f"; {model.cores} cores (assumed)" * (not is_known)
    assumption += "; iterators are created as now" * (making_ms >= NOISE * step_ms)
    unchanged = Change("", None, load, load, "")
    free = _estimate(Change(FREE_INPUT, None, load, load, assumption), (low_ms, high_ms), (0.0, 0.0), step_ms)
    estimates = []
    limits = HostLimits(model.cores, model.rivals.python_computes)
    for change in possible_changes(pipeline, load, limits, elements_per_step=per_step):
        low_ms, high_ms = model.range_ms(change.best, change.worst, change.slowdown)
        shares = model.input_percent(low_ms), model.input_percent(high_ms)
        estimates.append(_estimate(change, (low_ms, high_ms), shares, step_ms))
    # A cache must gain more than other changes, because it helps later, if at all.
    estimates.sort(key=lambda each: (each.likely_ms + _CONDITION * step_ms * (each.change == "cache"), each.change))
    return Outlook(
        pipeline=pipeline,
        step_ms=step_ms,
        wait_ms=wait_ms,
        usual_wait_ms=float(np.median(waits_ps)) / PS_PER_MS,
        first_wait_ms=float(overlap(pipeline.first_fetches, start, end).mean()) / PS_PER_MS,
        unchanged_ms=_estimate(unchanged, model.range_ms(load, load), (0.0, 0.0), step_ms).likely_ms,
        slowed_ms=model.slowed_ms if is_known else None,
        threads=model.rivals.threads,
        cores=model.cores,
        python_computes=rivals.python_computes,
        free=free,
        estimates=tuple(estimates),
    )


def _estimate(
    change: Change, range_ms: tuple[float, float], input_percent: tuple[float, float], step_ms: float
) -> Estimate:
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
    """Return the reason for a missing outlook."""
    rows = np.flatnonzero(breakdown.steps.headline)
    if not len(rows):
        return NoOutlook()
    start, end = int(breakdown.steps.start_ps[rows].min()), int(breakdown.steps.end_ps[rows].max())
    times = pipeline.call_start_ps
    return NoOutlook(len(rows), int((times < start).sum()), int((times >= end).sum()))


def _load(pipeline: Pipeline, consumer_ms: float, per_step: float, python_computes: float) -> Load:
    to_ms = per_step / PS_PER_MS
    python_ps = sum(stage.element_held_ps or 0.0 for stage in pipeline.stages if stage.python)
    cpu_ps = sum(segment.element_ps for segment in pipeline.segments) - (1.0 - python_computes) * python_ps
    in_threads = [segment for segment in pipeline.segments if segment.kind != "consumer"]
    return Load(
        consumer_ms=consumer_ms,
        inline_ms=sum(segment.element_ps for segment in pipeline.segments if segment.kind == "consumer") * to_ms,
        segments=tuple((segment.element_ps * to_ms, _workers(pipeline, segment)) for segment in in_threads),
        cpu_ms=max(cpu_ps, 0.0) * to_ms,
    )


def _workers(pipeline: Pipeline, segment: Segment) -> float:
    at_once = pipeline.stages[segment.owner].runs_at_once
    if segment.kind != "function" or at_once is None or not pipeline.is_waited_for(segment.owner):
        return segment.workers
    return min(max(at_once, 1.0), segment.workers)


LOCK_SLOWDOWN = 1.2
"""Maximum slowdown of threads that compete for the GIL."""
LAUNCH_PS = 5_000_000
"""Cost of an op regardless of its input size: at most about 5 us; the remainder grows with the batch."""
_SMALL_SHARE = 0.02
"""Stages below this share of the time of the step's thread are not worth a change."""
_FILES = ("TFRecord", "TextLine", "FixedLengthRecord", "SSTable", "RecordIO", "LMDB", "ArrayRecord")
_SOURCES = (*_FILES, "Generator")
"""Sources that gain from parallel reads; sources in memory do not."""


class Change(Struct, frozen=True):
    """A change of a stage, its new load, and the factor (`slowdown`) by which threads may slow each other down."""

    kind: str
    stage: int | None
    best: Load
    worst: Load
    assumption: str
    slowdown: float = 1.0


class HostLimits(Struct, frozen=True):
    """Limits of the gain from more threads."""

    cores: int
    python_computes: float = 1.0
    """Maximum share of its time in which the only Python function computes; 1 if unknown."""


def possible_changes(
    pipeline: Pipeline, load: Load, limits: HostLimits, *, elements_per_step: float
) -> Iterator[Change]:
    """Yield possible changes with the load at best and at worst; nothing if Keras created the pipeline."""
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
        is_read_in_parallel = any("ParallelInterleave" in pipeline.stages[at].name for at in pipeline.consumers(index))
        # A generator that Keras reads may belong to Keras itself, which has other options to read in parallel.
        is_source = stage.name.startswith(_SOURCES) and not pipeline.is_bare_generator
        if is_source and pipeline.is_waited_for(index) and not is_read_in_parallel:
            yield in_parallel(index, work_ms=work_ms)
    yield from _caches(pipeline, load, works_ms=works_ms, least_ms=least_ms)
    for index, stage in enumerate(pipeline.stages):
        batch_size = pipeline.next_batch_size(index)
        if stage.runs and batch_size and not stage.python and not pipeline.is_mostly_overhead(index):
            yield _vectorized(pipeline, load, index, work_ms=works_ms[index], batch_size=batch_size)


def _caches(pipeline: Pipeline, load: Load, *, works_ms: list[float], least_ms: float) -> Iterator[Change]:
    """Yield caches, new or not yet full, which remove the work of the stages before them."""
    if pipeline.limiting is not None and (cached := with_cache(pipeline, pipeline.limiting)):
        spared_ms = {
            stage: work_ms if is_all else _function_ms(pipeline.stages[stage], work_ms)
            for stage, is_all in kept_stages(pipeline, cached).items()
            if (work_ms := works_ms[stage])
        }
        if sum(spared_ms.values()) >= least_ms:
            kept = _without(pipeline, load, spared_ms)
            size = cache_size(pipeline, cached)
            assumption = f"from the second epoch on; the elements{f' ({size})' * bool(size)} fit in memory"
            yield Change("cache", pipeline.limiting, kept, kept, assumption)
    for index, stage in enumerate(pipeline.stages):
        # A cache fetches from its input until it holds the whole output.
        is_asked_by_cache = stage.parent >= 0 and "Cache" in pipeline.stages[stage.parent].name
        if not is_asked_by_cache or not stage.calls or "Cache" in stage.name:
            continue
        spared_ms = {each: works_ms[each] for each in (index, *pipeline.below(index))}
        if sum(spared_ms.values()) >= least_ms:
            full = _without(pipeline, load, spared_ms)
            assumption = "from the second epoch on; the first epoch reads all of its input"
            yield Change("warm_cache", stage.parent, full, full, assumption)


def _function_ms(stage: StageStats, work_ms: float) -> float:
    return stage.run_ps / max(stage.held_ps, 1) * work_ms


def _without(pipeline: Pipeline, load: Load, removed_ms: dict[int, float]) -> Load:
    """Remove work of stages (milliseconds per step) from their segments, the function's before the producer's."""
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
    """Distribute `work_ms` of a stage over several threads; another one fetches from its inputs, as before."""
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
        assumption = "several inputs; the gain depends on how much of the time is reading them, not disk or network"
        return Change("parallel_read", index, side_by_side, load if stage.python else spread((work_ms, 1)), assumption)
    if not stage.python:
        assumption = f"calls are independent; {cores} cores"
        return Change("parallel_map", index, side_by_side, side_by_side, assumption)
    # At best, the function only waits.
    side_by_side = replace(side_by_side, cpu_ms=max(load.cpu_ms - work_ms, 0.0))
    slowdown = 1.0 + computes * (LOCK_SLOWDOWN - 1.0)
    if computes < 1.0:
        waits = 100.0 * (1.0 - computes)
        assumption = f"the function waits for at least {waits:.0f}% of its time (from the CPU time of the capture)"
        in_turn = spread((work_ms * computes, 1), (work_ms, cores))
        return Change("parallel_map", index, side_by_side, in_turn, assumption, slowdown)
    assumption = (
        "the function waits (network, disk) or releases the GIL; if it computes, there is no gain, and contention "
        "for the GIL may cost up to a fifth"
    )
    return Change("parallel_map", index, side_by_side, load, assumption, slowdown)


def _vectorized(pipeline: Pipeline, load: Load, index: int, *, work_ms: float, batch_size: int) -> Change:
    """Run the function once per batch, which pays the size-independent cost of each op once."""
    stage = pipeline.stages[index]
    ops_ps = sum(duration_ps for _, _, _, duration_ps in stage.ops)
    fixed_ps = min(LAUNCH_PS * sum(count for _, _, count, _ in stage.ops), ops_ps)
    growing_ms = (ops_ps - fixed_ps) / max(stage.held_ps, 1) * work_ms
    overhead_ms = max(work_ms * (1.0 - ops_ps / max(stage.held_ps, 1)), 0.0)
    best = _without(pipeline, load, {index: max(work_ms - growing_ms - work_ms / stage.runs, 0.0)})
    worst = _without(pipeline, load, {index: overhead_ms * (1.0 - 1.0 / batch_size)})
    return Change("vectorize", index, best, worst, "the function works on whole batches as on single elements")


# --- model of a step: bounds of its time, before and after a change of the input pipeline ---
# A step cannot be faster than its own thread (the consumer's work, and the pipeline stages that run in that thread),
# than the slowest segment of the pipeline, or than all work on host cores divided by their number. A change moves work
# between segments, or removes it.
#
# Without a device, the step and the pipeline compete for the same cores. With R competing pipeline threads on N cores,
# the work of the step takes 1 + s R / N times as long as alone. s depends on facts that are not in the profile: the
# threads of the step's ops, whether they wait for the slowest thread, and whether two cores are hyperthreads of one.
# Two values represent its minimum and maximum; R is measured in the trace.
#
# Work right after waiting is slower than continuous work (caches, clock rates, threads that wake up). This slowdown,
# the contention, the width of the bounds, and the variation of equal work over time are independent errors, so their
# squares add up.

SHARING = (0.25, 1.2)
"""Minimum and maximum of s. Minimum: the step has one thread, and shares only parts of a core (caches, pipelines).
Maximum: its ops use all cores, and wait for the thread whose core is contended. This and the following values are from
fourteen runs of `benchmarks/whatif.py` on two cores."""
TURNS = 0.6
"""Maximum slowdown of a step per competing thread beyond one for each other core, because they take turns."""
LOCK = (0.1, 2.0)
"""Slowdown of a step per competing thread that computes in Python. Maximum: the step waits several times for the GIL,
which Python releases every 5 ms, and works for a few milliseconds only."""
PARALLEL_EFFICIENCY = 0.85
OVERLAP = 0.9
STEADIEST = 0.85
"""Minimum share of its profiled time that pipeline work takes with less contention."""
COLD = (0.0, 0.8)
"""Minimum and maximum slowdown of work after waiting, times the share of the step that waits. Minimum: the profile does
not show any, so the step may take as long as now. Jobs whose input only sleeps have 0.13 to 0.80."""
FASTEST = 0.45
"""Minimum time of the work that a change does not touch, as a share of its time now. Without input, it takes 0.45 to
1.12 of that in the seventeen jobs of `benchmarks/whatif.py`."""


class Load(Struct, frozen=True, kw_only=True):
    """Milliseconds per step in its own thread, in pipeline segments, and on the host's cores."""

    consumer_ms: float
    inline_ms: float
    """Stages of the pipeline that run in the consumer's thread."""
    segments: tuple[tuple[float, float], ...]
    """Milliseconds per step of each other segment, and the number of threads that share them."""
    cpu_ms: float
    """Work of the pipeline that needs a core, summed over threads."""


class StepModel(Struct, frozen=True, kw_only=True):
    """The unchanged step, and the conversion of a changed load into a range of step times."""

    now: Load
    step_ms: float
    cores: int
    rivals: Rivals
    """None if the step computes on a device."""
    has_device: bool
    busy_ms: float = 0.0
    """Busy time per step summed over cores; 0 if unknown."""

    def range_ms(self, best: Load, worst: Load, slowdown: float = 1.0) -> tuple[float, float]:
        """Return the range of the step time at another moment; threads may slow each other down by `slowdown`.

        Changes of the pipeline do not make the step itself slower, but another step is equally likely to be slower or
        faster. No change is estimated below the step without input work.
        """

        def bounds(slowed: float, cold: float) -> tuple[float, float]:
            shortest, longest = self.shortest_ms(best, slowed, cold), self.longest_ms(worst, slowed, cold)
            return min(shortest, self.step_ms), min(longest, self.step_ms) * slowdown

        low, high = with_noise(*self._united(bounds))
        return max(low, min(self.free_ms()[0], high)), high

    def free_ms(self) -> tuple[float, float]:
        """Return the range of the step time without any input work, at another moment.

        Its top may exceed today's step time: if input costs nothing, another step is equally likely to be slower.
        """
        low, high = with_noise(*self.alone_ms)
        return max(low, self._least_ms), high

    @property
    def _least_ms(self) -> float:
        return 0.0 if self.has_device else FASTEST * self.now.consumer_ms

    @property
    def alone_ms(self) -> tuple[float, float]:
        """Return the range of the step's own work at the same moment, without any input work."""

        def alone(slowed: float, cold: float) -> tuple[float, float]:
            alone_ms = self.now.consumer_ms / slowed * self._warm(0.0, cold)
            return alone_ms, alone_ms

        low, high = self._united(alone)
        return max(low, self._least_ms), max(min(high, self.now.consumer_ms), self._least_ms)

    @property
    def slowed_ms(self) -> tuple[float, float]:
        """Return the minimum time that competing threads add, and the maximum with slower work after waiting."""
        consumer_ms = self.now.consumer_ms
        return consumer_ms * (1.0 - 1.0 / self.slowdowns[0]), consumer_ms - self.alone_ms[0]

    def _united(self, bounds: Callable[[float, float], tuple[float, float]]) -> tuple[float, float]:
        """Combine the ranges of three independent unknowns by the squares of their shares.

        `bounds` returns the range for a given contention slowdown and a given slowdown after waiting.
        """
        slowed, cold = math.sqrt(math.prod(self.slowdowns)), sum(COLD) / 2.0
        low, high = bounds(slowed, cold)
        if not 0.0 < low <= high:
            return min(low, high), high
        by_slowed = [math.prod(bounds(each, cold)) for each in self.slowdowns]
        by_cold = [math.prod(bounds(slowed, each)) for each in COLD]
        shares = [math.log(max(pair) / min(pair)) / 4.0 for pair in (by_slowed, by_cold) if min(pair) > 0.0]
        return _spread(math.sqrt(low * high), math.log(high / low) / 2.0, *shares)

    def _warm(self, input_percent: float, cold: float) -> float:
        """Return the time of the step's work with less input, as a share of its time today."""
        less_percent = 0.0 if self.has_device else max(self.input_percent(self.step_ms) - input_percent, 0.0)
        return 1.0 - cold * less_percent / 100.0

    @property
    def slowdowns(self) -> tuple[float, float]:
        """Return the minimum and maximum slowdown of the consumer today, compared with running alone."""
        if self.has_device:
            return 1.0, 1.0
        native, python = self.rivals.native, self.rivals.python
        least = 1.0 + SHARING[0] * native / self.cores + LOCK[0] * python
        turns = TURNS * max(native - (self.cores - 1), 0.0)
        return least, 1.0 + SHARING[1] * native / self.cores + LOCK[1] * python + turns

    def input_percent(self, step_ms: float) -> float:
        """Return the share of input in a step of this duration, with unchanged own work."""
        return 100.0 * max(1.0 - self.now.consumer_ms / step_ms, 0.0) if step_ms else 0.0

    def shortest_ms(self, load: Load, slowed: float, cold: float) -> float:
        """Return the largest bound; the consumer today takes `slowed` times its time alone; for `cold` see `_warm`."""
        segments = [STEADIEST * work / min(workers, self.cores) for work, workers in load.segments]
        threads = 0.0 if self.has_device else 1.0
        shared = (STEADIEST * load.cpu_ms + threads * self.now.consumer_ms / slowed) / self.cores
        return max(self._in_step(load, slowed, cold), *segments, shared, self._busy_ms(load, STEADIEST))

    def longest_ms(self, load: Load, slowed: float, cold: float) -> float:
        """Return the bound for inefficient parallel work and partial overlap."""
        in_step = self._in_step(load, slowed, cold)
        segments = [work / max(min(workers, self.cores) * PARALLEL_EFFICIENCY, 1.0) for work, workers in load.segments]
        slowest = max(segments, default=0.0)
        together = max(in_step, slowest) + (1.0 - OVERLAP) * min(in_step, slowest)
        threads = 0.0 if self.has_device else (1.0 + self.cores) / 2.0
        shared = (load.cpu_ms + threads * self.now.consumer_ms / slowed) / self.cores
        return max(together, shared, self._busy_ms(load, 1.0) / PARALLEL_EFFICIENCY)

    def _busy_ms(self, load: Load, share: float) -> float:
        """Return the busy time of all cores for a share of today's work; 0 if the pipeline has less work.

        The trace does not contain all work of the process for a pipeline, so the remainder is unknown.
        """
        return 0.0 if load.cpu_ms < self.now.cpu_ms else share * self.busy_ms / self.cores

    def _in_step(self, load: Load, slowed: float, cold: float) -> float:
        """Return the time of the step's own thread during pipeline work, after less waiting than today."""
        in_step = self._with_rivals(load, slowed)
        return in_step - (1.0 - self._warm(self.input_percent(in_step), cold)) * self.now.consumer_ms / slowed

    def _with_rivals(self, load: Load, slowed: float) -> float:
        """Return the time of the step's own thread, with contention from the pipeline work in that time.

        Today's work in today's time slows it down by the factor `slowed`. A shorter step has more contention, t = alone
        + rivals_ms alone / t, but no more than today unless the pipeline gets more threads.
        """
        alone = load.consumer_ms / slowed
        kept = load.cpu_ms / self.now.cpu_ms if self.now.cpu_ms else 0.0
        rivals_ms = (slowed - 1.0) * kept * self.step_ms
        least = alone + load.inline_ms
        with_all = least + (slowed - 1.0) * alone * max(self._most_workers(load) / self._most_workers(self.now), 1.0)
        return min((least + math.sqrt(least * least + 4.0 * alone * rivals_ms)) / 2.0, with_all)

    def _most_workers(self, load: Load) -> float:
        return max((min(workers, self.cores) for _, workers in load.segments), default=1.0)


def faster_without(share: float, rest_ms: float) -> float:
    """Return the minimum time of the remaining work of a host step if a share (0 to 1) of the step is removed.

    `rest_ms` is its time today, after waiting or other work.
    """
    return rest_ms * max(1.0 - COLD[1] * share, FASTEST)


def with_noise(low: float, high: float) -> tuple[float, float]:
    """Return the range extended by the variation between moments."""
    if not 0.0 < low <= high:
        return min(low, high), high
    return _spread(math.sqrt(low * high), math.log(high / low) / 2.0, NOISE)


def _spread(middle: float, *shares: float) -> tuple[float, float]:
    factor = math.exp(math.hypot(*shares))
    return middle / factor, middle * factor


SATURATED = 0.9
"""A process that uses this share of some cores may use all of them."""


class Rivals(Struct, frozen=True, kw_only=True):
    """Mean number of working pipeline threads while the step does not wait for input."""

    native: float = 0.0
    """Threads that run stages and TensorFlow ops."""
    python: float = 0.0
    """Threads inside Python functions, which compute or wait: at most one computes at a time, limited by the CPU time
    of the capture."""
    python_computes: float = 1.0
    """Maximum share of its time in which the only Python function computes, if all of that CPU time is its own. 1 if
    unknown, or with several functions, of which one may compute while the others wait."""

    @property
    def threads(self) -> float:
        """Return the total number of working threads."""
        return self.native + self.python


def find_rivals(
    work: StageWork, steps: Intervals, waits: Intervals, *, python_stages: list[int], busy_cores: float | None
) -> Rivals:
    """Measure the competing threads of steps (windows that may touch or overlap) outside the flat set `waits`.

    `work` excludes calls that wait for other threads. `busy_cores` is the number of cores that the process kept busy in
    the steps; None if unknown.
    """
    steps = union(steps.start, steps.end)
    own = difference(steps, waits)
    if not own.total():
        return Rivals()
    is_python = np.isin(work.stage, np.array(python_stages, np.int64))
    native = (work.stage >= 0) & ~is_python
    python = threads(own, work.start[is_python], work.end[is_python])
    in_python = threads(steps, work.start[is_python], work.end[is_python])
    computes = 1.0
    # If they computed, they would keep as many cores busy, independent of the step.
    if in_python and busy_cores is not None and busy_cores < SATURATED * min(in_python, 1.0):
        computes = busy_cores / in_python if len({*python_stages}) == 1 else 1.0
        python *= max(busy_cores - own.total() / steps.total(), 0.0) / in_python
    return Rivals(
        native=threads(own, work.start[native], work.end[native]), python=min(python, 1.0), python_computes=computes
    )


def threads(when: Intervals, start: Int64s, end: Int64s) -> float:
    """Return the mean number of active events over a flat, non-empty set of times."""
    return float(overlap(when, start, end).sum()) / when.total()
