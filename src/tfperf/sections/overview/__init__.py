"""Overview: the average step, and whether the job is input-bound."""

from tfperf.analysis.registry import SectionSpec
from tfperf.sections.overview.tables import TABLES

SECTION = SectionSpec(
    name="overview",
    title="Overview",
    rests_on=("steps", "batch"),
    derive="tfperf.sections.overview.summary:over_hosts",
    build="tfperf.sections.overview.section:build",
    summarize="tfperf.sections.overview.section:report_summary",
    tables=TABLES,
)
