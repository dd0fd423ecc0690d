"""Steps: where the time of each step goes."""

from tfperf.analysis.registry import SectionSpec
from tfperf.sections.steps.section import TABLES
from tfperf.trace.known_stats import TASK

SECTION = SectionSpec(
    name="steps",
    title="Steps",
    analyze="tfperf.sections.steps.section:analyze",
    combine="tfperf.trace.steps.breakdown:combine",
    stats=TASK,
    narrow=lambda result, before, after: after,
    build="tfperf.sections.steps.section:build",
    tables=TABLES,
)
