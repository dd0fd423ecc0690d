"""The changes of a tf.data pipeline as findings."""

from __future__ import annotations

from tfperf.report.model import Finding, Severity
from tfperf.sections.overview.summary import INPUT_LIMITS
from tfperf.sections.tfdata.actions import actions_of
from tfperf.sections.tfdata.analysis import TfData


def pipeline_advice(tfdata: TfData) -> tuple[Finding, ...]:
    """Return what to change in the main pipeline, the most promising first; nothing if it keeps nobody waiting."""
    outlook = tfdata.outlook
    is_high = outlook is not None and outlook.input_percent >= INPUT_LIMITS[1]
    severity: Severity = "problem" if is_high else "hint"
    return tuple(
        Finding(action.code, severity, f"{action.why} {action.gain}".strip(), action.text)
        for action in actions_of(tfdata)
    )
