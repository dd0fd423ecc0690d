"""Gaps: what the trace cannot tell, and why."""

from tfperf.analysis.registry import SectionSpec

SECTION = SectionSpec(
    name="gaps",
    title="What this trace cannot tell",
    rests_on=("steps", "batch", "environment"),
    analyze="tfperf.sections.gaps.analysis:analyze",
    combine=tuple,
    build="tfperf.sections.gaps.analysis:build",
)
