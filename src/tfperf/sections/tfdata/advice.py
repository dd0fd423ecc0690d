"""The changes of a tf.data pipeline as findings."""

from __future__ import annotations

from tfperf.report.model import Finding, Quantity, Severity
from tfperf.sections.overview.summary import INPUT_LIMITS, step_after
from tfperf.sections.tfdata.actions import PipelineAction, actions_of
from tfperf.sections.tfdata.analysis import TfData


def pipeline_advice(tfdata: TfData, of: str) -> tuple[Finding, ...]:
    """Return what to change in the main pipeline, the most promising first; nothing if it keeps nobody waiting.

    `of` says whose steps wait for it.
    """
    outlook = tfdata.outlook
    is_high = outlook is not None and outlook.input_percent >= INPUT_LIMITS[1]
    severity: Severity = "problem" if is_high else "hint"
    return tuple(
        Finding(
            action.code, severity, f"{action.why} {action.gain}".strip(), action.text, quantities=_estimate(action, of)
        )
        for action in actions_of(tfdata)
    )


def _estimate(action: PipelineAction, of: str) -> tuple[Quantity, ...]:
    """Return the step times after a change, under the keys that the diagnosis has for them."""
    if action.low_ms is None or action.high_ms is None:
        return ()
    return step_after(f"input_wait: {action.code}", action.low_ms, action.high_ms, of)
