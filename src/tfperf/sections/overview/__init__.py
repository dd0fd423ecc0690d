"""Overview: the average step, and whether the job is input-bound."""

from tfperf.sections.overview.tables import TABLES
from tfperf.sections.registry import SectionSpec

SECTION = SectionSpec(
    name="overview",
    title="Overview",
    rests_on=("steps", "batch"),
    derive="tfperf.sections.overview.summary:over_hosts",
    build="tfperf.sections.overview.section:build",
    tables=TABLES,
)
