"""The section of recommendations: the advice of all sections, each thing said once, the most important first.

Each sentence carries the number that it rests on and the threshold that the number passed.
"""

from __future__ import annotations

from collections.abc import Mapping

from tfperf.report.model import Finding, Section, Severity
from tfperf.sections.functions.advice import findings_of as function_findings
from tfperf.sections.idle.advice import idle_advice
from tfperf.sections.kernels.advice import kernel_advice
from tfperf.sections.memory.advice import findings_of as memory_findings
from tfperf.sections.recommendations.step_advice import capture_advice, input_advice, precision_advice, share_advice
from tfperf.sections.results import Results
from tfperf.sections.tfdata.advice import pipeline_advice

_SAME_TIME: Mapping[str, frozenset[str]] = {
    "idle_launch": frozenset({"kernel_launch"}),
    "idle_python": frozenset({"all_others"}),
    "idle_copy": frozenset({"copy_to_device"}),
    "idle_input": frozenset({"wait_for_input"}),
    "idle_synchronise": frozenset({"output"}),
    "idle_compile": frozenset({"compilation", "retracing"}),
}
"""What a device waits for, and the advice on the step that is about the same time."""
_ORDER: Mapping[Severity, int] = {"problem": 0, "hint": 1, "info": 2}


def build(results: Results) -> Section:
    """Build the section."""
    return Section("recommendations", "What to do next", findings=recommendations(results))


def recommendations(results: Results) -> tuple[Finding, ...]:
    """Return what to change, the most important first; one sentence if nothing passes a threshold."""
    summary, breakdown, ops = results["overview"], results["steps"], results["ops"]
    if summary.step_time_ms is None:
        return (Finding("no_steps", "info", "No advice without step times.", "see 'What this trace cannot tell'"),)
    tfdata = results["tfdata"]
    pipeline = pipeline_advice(tfdata) if tfdata.outlook else ()
    advice = [*input_advice(summary, ops, pipeline), *share_advice(summary, ops)]
    codes = {finding.code for finding in advice}
    of_sections = (
        *function_findings(results["functions"]),
        *idle_advice(results["idle"]),
        *kernel_advice(results["kernels"]),
        *memory_findings(results["memory"]),
    )
    advice += [
        finding
        for finding in of_sections
        if finding.severity != "info" and not codes & _SAME_TIME.get(finding.code, frozenset())
    ]
    advice += [*precision_advice(breakdown, summary), *capture_advice(summary, breakdown)]
    if not advice:
        text = "No share of the step time passes a threshold for advice."
        advice = [Finding("nothing", "info", text, "look at the top ops (-s ops)")]
    return tuple(sorted(advice, key=lambda finding: _ORDER[finding.severity]))
