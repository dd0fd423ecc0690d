"""The verdict in one sentence: whether the job is input-bound."""

from __future__ import annotations

from tfperf.report.model import Finding, Severity
from tfperf.sections.overview.summary import INPUT_LIMITS, OTHER_LIMITS, Overview, Summary
from tfperf.sections.results import Results
from tfperf.sections.steps.breakdown import Breakdown
from tfperf.units import format_percent

_OTHER_THRESHOLDS = f"moderate from {OTHER_LIMITS[0]:.0f}%, high from {OTHER_LIMITS[1]:.0f}%"
_INPUT_THRESHOLDS = f"moderate from {INPUT_LIMITS[0]:.0f}%, high from {INPUT_LIMITS[1]:.0f}%"
SEVERITIES: dict[str, Severity] = {"high": "problem", "moderate": "hint", "possible": "hint", "none": "info"}
"""How grave each class of input-bound jobs is."""


def verdict_of(results: Results) -> Finding:
    """Return the verdict on a run; of several hosts, it is about the one that waits longest for input."""
    summary: Overview = results["overview"]
    worst = summary.worst_host
    return verdict(summary, results["steps"], results.hosts[worst].host if worst is not None else "")


def verdict(summary: Summary, breakdown: Breakdown, host: str = "") -> Finding:
    """Say in one sentence whether the job is input-bound. `host` names the worst of several hosts."""
    if summary.step_time_ms is None:
        named = ", or name the events that are steps with --step-marker NAME" * (breakdown.attribution == "corrected")
        return Finding(
            "input_unknown",
            "problem",
            f"Cannot tell whether the job is input-bound: no step time was measured ({breakdown.steps.explanation}).",
            f"profile at least five steps of a running job{named}",
        )
    share = f"{format_percent(summary.input_percent)}% of the step time goes to input"
    share += f" on host {host}" if host else ""
    others = f"{format_percent(summary.percent['all_others'])}% is in 'All others' ({_OTHER_THRESHOLDS})"
    texts = {
        "high": f"HIGHLY input-bound: {share} ({_INPUT_THRESHOLDS}).",
        "moderate": f"MODERATELY input-bound: {share} ({_INPUT_THRESHOLDS}).",
        "possible": f"POSSIBLY input-bound: {share} ({_INPUT_THRESHOLDS}), but {others}: Python work or I/O?",
        "none": f"NOT input-bound: {share} ({_INPUT_THRESHOLDS}).",
        "unknown": "Cannot tell whether the job is input-bound: the trace does not show where its input comes from.",
    }
    text = texts[summary.input_class]
    if summary.input_percent is None and summary.input_class == "possible":
        text = f"POSSIBLY input-bound: the trace does not show where input comes from, and {others}."
    return Finding(f"input_{summary.input_class}", SEVERITIES.get(summary.input_class, "hint"), text)
