"""Batch size: how many examples a step takes, and what shows it."""

from tfperf.analysis.registry import SectionSpec
from tfperf.sections.batch.tables import TABLES
from tfperf.trace.known_stats import BATCH

SECTION = SectionSpec(
    name="batch",
    title="Batch size",
    rests_on=("steps",),
    analyze="tfperf.sections.batch.analysis:analyze",
    combine="tfperf.sections.batch.analysis:combine",
    stats=BATCH,
    build="tfperf.sections.batch.section:build",
    tables=TABLES,
)
