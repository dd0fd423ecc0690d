"""What to change in a tf.data pipeline, and what that would gain."""

from __future__ import annotations

from collections.abc import Iterator

from tfperf.report.model import Finding, Severity
from tfperf.sections.tfdata.analysis import TfData
from tfperf.sections.tfdata.pipeline import Pipeline
from tfperf.sections.tfdata.stage_rules import in_code, rule_for
from tfperf.sections.tfdata.whatif import Outlook
from tfperf.units import PS_PER_MS, format_ms

_FULL_CPU = 0.85
"""From this share of its cores on, a host is busy."""
_WORTH_IT = 0.9
"""A change is worth rewriting a function if the step takes at most so much of its time then."""
_PREFETCH_ACTION = (
    "end the pipeline with .prefetch(tf.data.AUTOTUNE); it gains less where the pipeline takes longer than the step"
)
_CACHE_ACTION = (
    "put .cache() behind {code}, and what is random (shuffle, augmentation) behind the cache; only where the elements "
    "fit into memory (or cache(FILE) on a local disk), and only from the second epoch on"
)
_VECTORIZE_ACTION = "let the function work on batches: .batch(n).map(f); elements must have the same shape"
_FULL_CPU_ACTION = (
    "do less work for each element, cache(), move work to the device, or spread it over other machines with "
    "tf.data.experimental.service, which pays off where those are cheaper than a waiting accelerator; with an older "
    "TensorFlow set options.threading.max_intra_op_parallelism = 1, so that parallel calls do not split their ops too"
)


def pipeline_advice(tfdata: TfData) -> tuple[Finding, ...]:
    """Return what to change in the main pipeline, the most promising first; nothing if it keeps nobody waiting."""
    pipeline, outlook = tfdata.main, tfdata.outlook
    if pipeline is None or not (pipeline.slow_calls if outlook is None else not outlook.keeps_up):
        return ()
    advice = []
    if pipeline.final_prefetch is None:
        outer = next((in_code(stage.name) for stage in pipeline.stages if stage.depth == 1), "it")
        text = f"Nothing decouples the pipeline from the step: {outer} works in the step's thread, so they take turns."
        advice.append(Finding("no_prefetch", "problem", text + _gain(outlook, "prefetch", None), _PREFETCH_ACTION))
    for index in dict.fromkeys((pipeline.limiting, pipeline.blocking)):
        if index is not None:
            advice += _stage_advice(pipeline, index, outlook)
    if outlook is not None:
        advice += _less_work_advice(outlook)
    if (pipeline.busy_share or 0.0) >= _FULL_CPU:
        text = f"The pipeline keeps the {pipeline.cores} cores of the host busy: more threads gain nothing."
        advice.append(Finding("host_cpu_full", "hint", text, _FULL_CPU_ACTION))
    return tuple(dict.fromkeys(advice))


def _gain(outlook: Outlook | None, change: str, index: int | None) -> str:
    """Return what the estimate for this change says, in words."""
    for estimate in outlook.estimates if outlook else ():
        if (estimate.change, estimate.stage) == (change, index):
            return f" Estimated step time then: {format_ms(estimate.low_ms)} to {format_ms(estimate.high_ms)} ms."
    return ""


def _stage_advice(pipeline: Pipeline, index: int, outlook: Outlook | None) -> Iterator[Finding]:
    stage, rule = pipeline.stages[index], rule_for(pipeline, index)
    if rule is None:
        return
    severity: Severity = "problem" if index == pipeline.limiting else "hint"
    words = {"code": in_code(stage.name), "python": stage.python, "together": str(pipeline.workers(index))}
    takes = f"{stage.name} takes {format_ms((stage.element_ps or 0.0) / PS_PER_MS)} ms for an element of the pipeline"
    gain = _gain(outlook, rule.change, index) if rule.change else ""
    yield Finding(rule.code, severity, f"{takes}, {rule.why.format(**words)}.{gain}", rule.action.format(**words))


def _less_work_advice(outlook: Outlook) -> Iterator[Finding]:
    for estimate in outlook.estimates:
        if estimate.stage is None:
            continue
        stage = outlook.pipeline.stages[estimate.stage]
        code, gain = in_code(stage.name), _gain(outlook, estimate.change, estimate.stage)
        if estimate.change == "cache":
            text = f"What {code} makes could be kept instead of made again in every epoch.{gain}"
            yield Finding("cache", "hint", text, _CACHE_ACTION.format(code=code))
        elif estimate.change == "vectorize" and estimate.high_ms < _WORTH_IT * outlook.step_ms:
            text = f"{stage.name} runs its function {stage.runs:,} times, for single elements: much of it is overhead."
            yield Finding("vectorize", "hint", f"{text}{gain}", _VECTORIZE_ACTION)
