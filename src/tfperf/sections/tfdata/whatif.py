"""What a change of the input pipeline would gain, from the trace alone: the bounds of `step_model.py`."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from tfperf.arrays import Int64s
from tfperf.intervals import overlap
from tfperf.sections.overview.summary import INPUT_LIMITS
from tfperf.sections.steps.breakdown import Breakdown
from tfperf.sections.tfdata.pipeline import Pipeline, whole_pipelines
from tfperf.sections.tfdata.possible_changes import Change, possible_changes
from tfperf.sections.tfdata.step_model import Load, StepModel
from tfperf.units import PS_PER_MS

_ASSUMED_CORES = 8
_GAIN = 0.97
"""A change promises a gain if the middle of its range is below so much of the step time."""


class Estimate(Struct, frozen=True, kw_only=True):
    """What a change would lead to: a range of step times and of input-bound shares, and what it rests on."""

    change: str
    stage: int | None
    """Index of the stage that changes, in the pipeline of the outlook."""
    low_ms: float
    high_ms: float
    low_input_percent: float
    high_input_percent: float
    assumption: str


class Outlook(Struct, frozen=True, kw_only=True):
    """Estimates for the pipeline that steps wait for longest, the one that promises most first.

    `step_ms` and `wait_ms` are averages over the steps that count.
    """

    pipeline: Pipeline
    step_ms: float
    wait_ms: float
    elements_per_step: float
    cores: int | None
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
    def gains(self) -> tuple[Estimate, ...]:
        """Return the estimates that promise a gain: none where steps hardly wait for the pipeline."""
        if self.keeps_up:
            return ()
        most = 2 * _GAIN * self.step_ms
        return tuple(estimate for estimate in self.estimates if estimate.low_ms + estimate.high_ms < most)


def estimate_changes(
    pipelines: tuple[Pipeline, ...], breakdown: Breakdown, *, steadiness: float, has_device: bool
) -> Outlook | None:
    """Estimate what changes of the main pipeline would gain; None without steps, or without calls of one in them.

    `steadiness` is that of the ops outside the pipelines.
    """
    rows = np.flatnonzero(breakdown.headline)
    start, end = breakdown.steps.start_ps[rows], breakdown.steps.end_ps[rows]
    whole = whole_pipelines(pipelines)
    if not len(rows) or not whole:
        return None
    pipeline = max(whole, key=lambda pipeline: int(overlap(pipeline.waits, start, end).sum()))
    waited_ms = float(overlap(pipeline.waits, start, end).mean()) / PS_PER_MS
    step_ms = float((end - start).mean()) / PS_PER_MS
    per_step = _elements_per_step(pipeline, start, end)
    if not per_step or not step_ms:
        return None
    cores = pipeline.cores or pipeline.pool_threads
    load = _load(pipeline, step_ms - waited_ms, per_step)
    model = StepModel(
        now=load, step_ms=step_ms, cores=cores or _ASSUMED_CORES, steadiness=steadiness, has_device=has_device
    )
    changes = possible_changes(pipeline, load, elements_per_step=per_step, cores=model.cores)
    estimates = [_judged(change, model) for change in changes]
    estimates.sort(key=lambda estimate: (estimate.low_ms + estimate.high_ms, estimate.change))
    return Outlook(
        pipeline=pipeline,
        step_ms=step_ms,
        wait_ms=waited_ms,
        elements_per_step=per_step,
        cores=cores,
        estimates=tuple(estimates),
    )


def _elements_per_step(pipeline: Pipeline, start: Int64s, end: Int64s) -> float:
    """Return how many elements of the pipeline a step takes: calls of its outermost stage that start in it."""
    times = np.sort(pipeline.call_start_ps)
    return float((np.searchsorted(times, end) - np.searchsorted(times, start)).mean())


def _load(pipeline: Pipeline, consumer_ms: float, per_step: float) -> Load:
    """Return what a step costs as it is."""
    to_ms = per_step / PS_PER_MS
    apart_ps = pipeline.span_ps - pipeline.waited_ps
    cpu_ms = sum(segment.element_ps for segment in pipeline.segments) * to_ms
    return Load(
        consumer_ms=consumer_ms,
        inline_ms=sum(segment.element_ps for segment in pipeline.segments if segment.kind == "consumer") * to_ms,
        segments=tuple(
            (segment.element_ps * to_ms, segment.workers) for segment in pipeline.segments if segment.kind != "consumer"
        ),
        cpu_ms=cpu_ms,
        overlapped_ms=pipeline.overlapped_ps / max(pipeline.cpu_ps, 1) * cpu_ms,
        steadiness=pipeline.steadiness,
        busy_threads=pipeline.overlapped_ps / apart_ps if apart_ps > 0 else 0.0,
    )


def _judged(change: Change, model: StepModel) -> Estimate:
    low_ms, high_ms = model.range_ms(change.best, change.worst, change.slowdown)
    return Estimate(
        change=change.kind,
        stage=change.stage,
        low_ms=low_ms,
        high_ms=high_ms,
        low_input_percent=model.input_percent(low_ms),
        high_input_percent=model.input_percent(high_ms),
        assumption=change.assumption,
    )
