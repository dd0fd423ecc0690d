"""Memory: how full each allocator became, what lay in it then, and whether that is a problem."""

from tfperf.analysis.registry import SectionSpec
from tfperf.sections.memory.tables import TABLES
from tfperf.trace.known_stats import MEMORY

SECTION = SectionSpec(
    name="memory",
    title="Memory",
    rests_on=("steps",),
    analyze="tfperf.sections.memory.analysis:analyze",
    combine="tfperf.sections.memory.analysis:combine",
    stats=MEMORY,
    shorten="tfperf.sections.memory.analysis:shorten",
    build="tfperf.sections.memory.section:build",
    tables=TABLES,
)
