"""What to change in a tf.data pipeline: each change with its own estimate, the largest likely gain first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from tfperf.base.units import PS_PER_MS, format_ms
from tfperf.sections.overview.summary import INPUT_LIMITS
from tfperf.sections.tfdata.analysis import TfData
from tfperf.sections.tfdata.pipeline import Pipeline, stage_name
from tfperf.sections.tfdata.pipeline_code import changed_code, with_split_cache
from tfperf.sections.tfdata.stage_rules import (
    FULL_CPU,
    KERAS_ARRAYS,
    LESS_WORK,
    PREFETCH,
    REFILL,
    SPLIT_TO_CACHE,
    StageRule,
    rule_for,
    rule_of_change,
    words,
)
from tfperf.sections.tfdata.whatif import Estimate, Outlook

_MORE_AT_A_TIME = ("parallel_map", "parallel_read", "sequential_interleave", "interleave", "serial_transformation")
"""Changes that only let more threads work, which helps where cores have nothing to do, and not where all compute."""
_WORTH_IT = 0.9
"""A change is worth rewriting a function if the step takes at most so much of its time then."""
_MOSTLY_WAITS = 0.6
"""A Python function that computes for less of its time gains little from TensorFlow ops, and does not keep the lock."""
_LEAST_FIXED = 0.25
"""A random function is worth splitting if so much of the time of its ops is not of random ones."""


class PipelineAction(Struct, frozen=True, kw_only=True):
    """A change of the program, and where it leads: a range of step times if the trace allows an estimate of it."""

    code: str
    """`prefetch`, `parallel_map`, `parallel_read`, `cache`, `warm_cache`, `vectorize` as in the table what_if, or a
    code without an estimate."""
    stage: str
    """TensorFlow's name of the stage that changes; empty: the whole pipeline."""
    why: str
    """What the trace shows, as a sentence."""
    text: str
    """What to type."""
    low_ms: float | None
    """Step time at best and at worst; None: no estimate."""
    high_ms: float | None
    assumption: str
    """What the estimate rests on; empty without one."""
    url: str
    """The page of TensorFlow's documentation that explains the change."""
    program: str = ""
    """The whole pipeline in code, with the change; empty for a change of which the code is unknown."""
    line: str = ""
    """The calls in it that are new or different."""

    @property
    def gain(self) -> str:
        """Return the estimate as a sentence; empty without one."""
        if self.low_ms is None or self.high_ms is None:
            return ""
        return f"Estimated step time then: {format_ms(self.low_ms)} to {format_ms(self.high_ms)} ms."


def actions_of(tfdata: TfData) -> tuple[PipelineAction, ...]:
    """Return what to change in the main pipeline; nothing if it keeps nobody waiting.

    What promises the largest gain comes first; changes without an estimate follow.
    """
    pipeline, outlook = tfdata.main, tfdata.outlook
    if pipeline is None or not is_costly(pipeline, outlook):
        return ()
    if pipeline.is_of_keras_arrays:
        return (_action(pipeline, None, KERAS_ARRAYS),)
    if outlook is None or not outlook.estimates:
        return _ordered(pipeline, _without_estimates(pipeline))
    estimated = [_estimated(pipeline, estimate) for estimate in outlook.gains if _is_worth_it(outlook, estimate)]
    # A change whose estimate promises nothing is no advice, nor is less work where only its overhead is too much.
    known = {(estimate.change, stage_name(pipeline, estimate.stage) or "") for estimate in outlook.estimates}
    if outlook.python_computes < _MOSTLY_WAITS:
        known |= {("python_function", stage.name) for stage in pipeline.stages}
    known |= {("heavy_map", action.stage) for action in estimated if action.code == "vectorize"}
    if outlook.keeps_up:
        others = (*_split_to_cache(pipeline), _action(pipeline, None, LESS_WORK))
    else:
        refill = () if outlook.refilled is None else (_action(pipeline, outlook.refilled, REFILL),)
        others = (*refill, *_of_stages(pipeline), *_split_to_cache(pipeline), *_on_full_cpu(pipeline))
    return (*estimated, *_ordered(pipeline, (each for each in others if (each.code, each.stage) not in known)))


def _ordered(pipeline: Pipeline, actions: Iterable[PipelineAction]) -> tuple[PipelineAction, ...]:
    """Return changes without an estimate: more at a time first where cores have nothing to do, never where all compute.

    A prefetch is no change of that kind: it lets the pipeline work while the step does.
    """
    if pipeline.fills_cores:
        return tuple(action for action in actions if action.code not in _MORE_AT_A_TIME)
    if pipeline.leaves_cores:
        return tuple(sorted(actions, key=lambda action: action.code not in ("prefetch", *_MORE_AT_A_TIME)))
    return tuple(actions)


def is_costly(pipeline: Pipeline, outlook: Outlook | None) -> bool:
    """Tell whether the pipeline is worth a change: it costs steps 5 % of their time; unknown: the program waits so."""
    if outlook is not None:
        return outlook.is_costly
    return 100.0 * pipeline.waited_ps > INPUT_LIMITS[0] * pipeline.capture_ps > 0


def _is_worth_it(outlook: Outlook, estimate: Estimate) -> bool:
    """Tell whether a change is advised: the table of estimates holds more."""
    if estimate.change in _MORE_AT_A_TIME and outlook.pipeline.fills_cores:
        return False
    return estimate.change != "vectorize" or estimate.high_ms < _WORTH_IT * outlook.step_ms


def _estimated(pipeline: Pipeline, estimate: Estimate) -> PipelineAction:
    return _action(pipeline, estimate.stage, rule_of_change(pipeline, estimate.change, estimate.stage), estimate)


def _split_to_cache(pipeline: Pipeline) -> Iterator[PipelineAction]:
    """Yield the cache for a part of a random function, where enough of it is not random."""
    if pipeline.limiting is None:
        return
    stage = pipeline.stages[pipeline.limiting]
    is_worth_it = stage.is_random and stage.random_share <= 1.0 - _LEAST_FIXED
    if is_worth_it and with_split_cache(pipeline, pipeline.limiting) is not None:
        yield _action(pipeline, pipeline.limiting, SPLIT_TO_CACHE)


def _of_stages(pipeline: Pipeline) -> Iterator[PipelineAction]:
    """Yield what the stages call for that limit the pipeline or are waited for most, if anyone waits for them."""
    for index in dict.fromkeys((pipeline.limiting, pipeline.blocking)):
        if index is None or not pipeline.is_waited_for(index):
            continue
        rule = rule_for(pipeline, index)
        if rule is not None:
            yield _action(pipeline, index, rule)


def _without_estimates(pipeline: Pipeline) -> Iterator[PipelineAction]:
    if pipeline.final_prefetch is None:
        yield _action(pipeline, None, PREFETCH)
    yield from _of_stages(pipeline)
    yield from _on_full_cpu(pipeline)


def _on_full_cpu(pipeline: Pipeline) -> Iterator[PipelineAction]:
    if pipeline.fills_cores:
        yield _action(pipeline, None, FULL_CPU)


def _action(pipeline: Pipeline, index: int | None, rule: StageRule, estimate: Estimate | None = None) -> PipelineAction:
    """Put the words of a rule and its estimate together."""
    inserted, changed = words(pipeline, index, rule.code), changed_code(pipeline, rule.code, index)
    stage = pipeline.stages[index] if index is not None else None
    why = rule.why.format(**inserted)
    if stage is not None and not why.endswith("."):
        own_ps, held_ps = stage.element_ps, stage.element_held_ps or 0.0
        takes = f"takes {format_ms((held_ps if own_ps is None else own_ps) / PS_PER_MS)} ms"
        why = f"{stage.name} {takes} for an element of the pipeline, {why}."
    return PipelineAction(
        code=rule.code,
        stage=stage.name if stage is not None else "",
        why=why,
        text=rule.action.format(**inserted),
        low_ms=estimate.low_ms if estimate else None,
        high_ms=estimate.high_ms if estimate else None,
        assumption=estimate.assumption if estimate else "",
        url=rule.url,
        program="" if changed is None else changed.code,
        line="" if changed is None else changed.line,
    )
