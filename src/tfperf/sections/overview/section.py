"""The section of the overview: the verdict, the average step, and the fixed keys of every report."""

from __future__ import annotations

from typing import Any

from tfperf.report.model import Fact, Finding, Section, Severity
from tfperf.sections.overview.summary import INPUT_LIMITS, OTHER_LIMITS, Overview, Summary
from tfperf.sections.overview.tables import CATEGORY_TABLE, KINDS, STEPS_BY_HOST, known
from tfperf.sections.results import Results
from tfperf.sections.spec import present
from tfperf.sections.steps.breakdown import Breakdown
from tfperf.sections.steps.section import CATEGORIES
from tfperf.trace.steps import UNLABELLED
from tfperf.units import format_percent

_OTHER_THRESHOLDS = f"moderate from {OTHER_LIMITS[0]:.0f}%, high from {OTHER_LIMITS[1]:.0f}%"
_INPUT_THRESHOLDS = f"moderate from {INPUT_LIMITS[0]:.0f}%, high from {INPUT_LIMITS[1]:.0f}%"
SEVERITIES: dict[str, Severity] = {"high": "problem", "moderate": "hint", "possible": "hint", "none": "info"}
"""How grave each class of input-bound jobs is."""


def build(results: Results) -> Section:
    """Build the section: the verdict, facts about steps, and where their time goes."""
    breakdown: Breakdown = results["steps"]
    summary: Summary = results["overview"]
    time = summary.step_time_ms
    if time is None:
        return Section("overview", "Overview", findings=(verdict_of(results),))
    steps = breakdown.steps
    batches = int(steps.batches.max())
    precise = breakdown.compute_16_ps + breakdown.compute_32_ps
    label = "" if summary.kind == UNLABELLED else f"{summary.kind} "
    spread = f"± {time.standard_deviation:.3g} ms over steps"
    facts = [
        Fact("average_step_time", "Average step time", time.average, "ms", spread),
        Fact("minimum_step_time", "Shortest step", time.minimum, "ms"),
        Fact("maximum_step_time", "Longest step", time.maximum, "ms"),
        Fact("steps", "Steps averaged", summary.averaged_count, "count", f"of {summary.step_count} {label}steps"),
        Fact("step_source", "Steps found by", steps.source, "", f"confidence {steps.confidence}"),
    ]
    if batches > 1:
        note = f"{batches} batches in a step"
        facts.append(Fact("batch_time", "Average per batch", time.average / batches, "ms", note))
    if precise:
        facts.append(Fact("compute_16_bit", "Device compute 16-bit", 100.0 * breakdown.compute_16_ps / precise, "%"))
        facts.append(Fact("compute_32_bit", "Device compute 32-bit", 100.0 * breakdown.compute_32_ps / precise, "%"))
    return Section(
        "overview",
        "Overview",
        findings=(verdict_of(results),),
        facts=tuple(facts),
        tables=present(
            CATEGORY_TABLE.build(results, bar_key="percent"), KINDS.build(results), STEPS_BY_HOST.build(results)
        ),
    )


def report_summary(results: Results) -> dict[str, Any]:
    """Return the fixed JSON keys of every report."""
    breakdown: Breakdown = results["steps"]
    steps, summary = breakdown.steps, results["overview"]
    return {
        "step_count": len(steps),
        "averaged_step_count": summary.averaged_count,
        "step_kind": summary.kind if len(steps) else None,
        "step_source": steps.source,
        "step_confidence": steps.confidence,
        "step_explanation": steps.explanation,
        "step_notes": list(steps.notes),
        "step_time_ms": _times(summary),
        "input_percent": summary.input_percent,
        "input_class": summary.input_class,
        "verdict": verdict_of(results).text,
        "category_percent": {key: known(breakdown, key, summary.percent.get(key)) for key in CATEGORIES},
        "input_wait_percent": summary.percent.get("input_wait") if breakdown.input_visible else None,
        "host_to_device_percent": known(breakdown, "output", summary.percent.get("host_to_device")),
        "kinds": {
            kind.kind: {
                "step_count": kind.step_count,
                "averaged_step_count": kind.averaged_count,
                "step_time_ms": _times(kind),
                "input_percent": kind.input_percent,
                "input_class": kind.input_class,
            }
            for kind in summary.by_kind
        },
        "worst_host": results.hosts[summary.worst_host].host if summary.worst_host is not None else None,
    }


def _times(summary: Summary) -> dict[str, float | None]:
    keys = ("average", "standard_deviation", "minimum", "maximum", "median", "p95")
    return {key: getattr(summary.step_time_ms, key, None) for key in keys}


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
