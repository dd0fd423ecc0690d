"""What a change of the input pipeline would gain, from the trace alone: the bounds of `step_model.py`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Intervals, overlap
from tfperf.base.units import PS_PER_MS
from tfperf.sections.overview.summary import INPUT_LIMITS
from tfperf.sections.tfdata.changes import Change, HostLimits, possible_changes
from tfperf.sections.tfdata.contention import Rivals
from tfperf.sections.tfdata.pipeline import Pipeline, Segment, whole_pipelines
from tfperf.sections.tfdata.step_model import NOISE, Load, StepModel
from tfperf.trace.steps.breakdown import Breakdown

_ASSUMED_CORES = 8
FREE_INPUT = "free_input"
_FREE = "no input work at all: no waiting, and no threads of the pipeline that compete with the step"
_NOISE = f"; a step takes up to {100 * NOISE:.0f} % more or less at another moment"
_CONDITION = 0.05
"""Share of the step time by which a change that depends on a condition must be better to be the first."""
_SLOWED_PERCENT = 12.0
"""What the pipelines' threads must likely take from the step: the estimate of that is rough."""
_GAIN = 0.9
"""A change promises a gain if its step time, likely, is below so much of today's: what is less drowns in noise."""
_AT_EPOCH_START = 1.0 / 3.0
"""From this share of the waiting on, that for the first element of new iterators is named."""
_FILLS = 0.5
"""If stages work for at least this share of the waiting that no iterator is made in, they fill a buffer (shuffle)."""


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
    usual_wait_ms: float
    """The median over the steps."""
    first_wait_ms: float
    """The part of the waiting that is for the first element of each iterator made in the capture, averaged likewise."""
    unchanged_ms: float
    """What the model says that a step takes as it is."""
    slowed_ms: tuple[float, float] | None
    """What input adds to the step's own work. At least: what the pipelines' threads do, for they use the same cores; at
    most: that work after waiting is slower, too. None: the trace does not tell how many cores there are."""
    threads: float
    """How many threads of the pipelines work beside the step's own work."""
    cores: int
    """Those of the host; where the trace does not tell them, an assumption."""
    python_computes: float
    """For how much of its time the only Python function computes, at most; 1: unknown."""
    free: Estimate
    """The floor of all changes: no input work at all."""
    estimates: tuple[Estimate, ...]

    @property
    def input_percent(self) -> float:
        """Return the share of the step in which it waits for this pipeline."""
        return 100.0 * self.wait_ms / self.step_ms

    @property
    def first_percent(self) -> float:
        """Return the share of the waiting that is for the first element of each iterator made in the capture."""
        return min(100.0 * self.first_wait_ms / self.wait_ms, 100.0) if self.wait_ms else 0.0

    @property
    def is_at_epoch_start(self) -> bool:
        """Return whether much of the waiting is for the first element of new iterators, and most steps hardly wait."""
        is_much = self.first_percent >= 100.0 * _AT_EPOCH_START
        return is_much and 100.0 * self.usual_wait_ms < INPUT_LIMITS[0] * self.step_ms

    @property
    def waits_at_epoch_start(self) -> bool:
        """Return whether that waiting is what a new iterator costs: Keras makes it, or stages hardly work then."""
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
        """Return whether the pipeline is fast enough: steps hardly wait for it, but for the first one of each epoch."""
        return self.input_percent < INPUT_LIMITS[0] or self.waits_at_epoch_start

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
        least_ms = _GAIN * min(self.step_ms, self.unchanged_ms)
        return tuple(each for each in self.estimates if each.likely_ms < least_ms)


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
    busy_cores: float | None = None,
) -> Outlook | None:
    """Estimate what changes of the main pipeline would gain; None without steps, or without calls of one in them.

    `rivals_of` returns the rivals of steps outside the times in which they wait. `busy_cores` is how many cores the
    process keeps busy in the steps; None: unknown.
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
    # A step takes as many elements as calls of the outermost stage start in it.
    times = np.sort(pipeline.call_start_ps)
    per_step = float((np.searchsorted(times, end) - np.searchsorted(times, start)).mean())
    if not per_step or not step_ms:
        return None
    rivals = rivals_of(Intervals(start, end), pipeline.waits)
    making_ms = float(overlap(pipeline.making, start, end).mean()) / PS_PER_MS
    # No change of what stages do makes it faster to make iterators.
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
    # Only rivals for cores make their number matter.
    is_known = bool(cores) or has_device or not model.rivals.threads
    assumption = _FREE + f"; {model.cores} cores (assumed)" * (not is_known)
    assumption += "; iterators are made as today" * (making_ms >= NOISE * step_ms)
    unchanged = Change("", None, load, load, "")
    free = _estimate(Change(FREE_INPUT, None, load, load, assumption), (low_ms, high_ms), (0.0, 0.0), step_ms)
    estimates = []
    limits = HostLimits(model.cores, model.rivals.python_computes)
    for change in possible_changes(pipeline, load, limits, elements_per_step=per_step):
        low_ms, high_ms = model.range_ms(change.best, change.worst, change.slowdown)
        shares = model.input_percent(low_ms), model.input_percent(high_ms)
        estimates.append(_estimate(change, (low_ms, high_ms), shares, step_ms))
    estimates.sort(key=lambda estimate: _rank(estimate, step_ms))
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
    """Return how many threads share a segment: of a function that steps wait for, as many as the trace shows."""
    at_once = pipeline.stages[segment.owner].runs_at_once
    if segment.kind != "function" or at_once is None or not pipeline.is_waited_for(segment.owner):
        return segment.workers
    return min(max(at_once, 1.0), segment.workers)
