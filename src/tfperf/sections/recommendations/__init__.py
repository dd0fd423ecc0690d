"""Recommendations: what to change next, from what the other sections found."""

from tfperf.sections.registry import SectionSpec

SECTION = SectionSpec(
    name="recommendations",
    title="What to do next",
    rests_on=("steps", "overview", "idle", "tfdata", "ops", "kernels", "functions", "memory"),
    build="tfperf.sections.recommendations.section:build",
    is_lead=True,
)
