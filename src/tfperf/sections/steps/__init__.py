"""Steps: where the time of each step goes."""

from tfperf.sections.spec import SectionSpec
from tfperf.sections.steps.tables import HOST_STEPS, PAUSES, STEPS

SECTION = SectionSpec(
    name="steps",
    title="Steps",
    analyze="tfperf.sections.steps.breakdown:analyze",
    combine="tfperf.sections.steps.breakdown:combine",
    build="tfperf.sections.steps.section:build",
    tables=(STEPS, HOST_STEPS, PAUSES),
)
