"""The section of steps: a chart and a table of them, and how they were found."""

from __future__ import annotations

from tfperf.report.model import Section, StepChart, at_levels
from tfperf.sections.results import Results
from tfperf.sections.spec import present
from tfperf.sections.steps.breakdown import Breakdown
from tfperf.sections.steps.tables import CATEGORY_TITLES, DEVICE_CATEGORIES, PAUSES, STEPS
from tfperf.units import PS_PER_MS


def build(results: Results) -> Section:
    """Build the section; without a device, people see no columns of the device's."""
    breakdown: Breakdown = results["steps"]
    steps = breakdown.steps
    if not len(steps):
        return Section("steps", "Steps", notes=(f"No steps: {steps.explanation}.",))
    hidden = () if breakdown.has_device else DEVICE_CATEGORIES
    columns = at_levels(STEPS.columns, {f"{key}_ms": "data" for key in hidden})
    notes = (f"Steps: {steps.explanation} (confidence {steps.confidence}).", *steps.notes)
    if any(flag and counted for flag, counted in zip(steps.flags, breakdown.averaged.tolist(), strict=True)):
        notes += ("Fewer than three steps are without a flag, so flagged ones count in the averages too.",)
    return Section(
        "steps",
        "Steps",
        charts=(_chart(breakdown),),
        tables=present(STEPS.build(results, columns=columns), PAUSES.build(results)),
        notes=notes,
    )


def _chart(breakdown: Breakdown) -> StepChart:
    steps = breakdown.steps
    series = {title: (breakdown.time_ps[key] / PS_PER_MS).tolist() for key, title in CATEGORY_TITLES.items()}
    return StepChart("Step time (ms)", tuple(str(number) for number in steps.numbers.tolist()), series, steps.flags)
