"""Host threads: which threads of each host have events, and for how long."""

from tfperf.analysis.registry import SectionSpec
from tfperf.sections.host_threads.tables import TABLES

SECTION = SectionSpec(
    name="host_threads",
    title="Host threads",
    analyze="tfperf.sections.host_threads.analysis:analyze",
    combine="tfperf.sections.host_threads.analysis:combine",
    shorten="tfperf.sections.host_threads.analysis:shorten",
    build="tfperf.sections.host_threads.section:build",
    tables=TABLES,
)
