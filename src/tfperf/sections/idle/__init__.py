"""Idle: where the device waits, and for what."""

from tfperf.analysis.registry import SectionSpec
from tfperf.sections.idle.tables import TABLES

SECTION = SectionSpec(
    name="idle",
    title="Where the device waits",
    rests_on=("steps", "overview"),
    analyze="tfperf.sections.idle.analysis:analyze",
    combine="tfperf.sections.idle.analysis:combine",
    combines_in_tree=True,
    narrow="tfperf.sections.idle.analysis:narrow",
    build="tfperf.sections.idle.section:build",
    tables=TABLES,
    without_device=(
        "Only the host recorded anything, so there is no idle time of a device to attribute. If the job used a GPU, "
        "tfperf doctor says why it is missing."
    ),
)
