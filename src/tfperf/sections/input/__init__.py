"""Input: how long steps wait for it, and what the host does to prepare it."""

from tfperf.analysis.registry import SectionSpec
from tfperf.sections.input.tables import TABLES
from tfperf.trace.known_stats import HOST_OPS, TFDATA

SECTION = SectionSpec(
    name="input",
    title="Input pipeline",
    rests_on=("steps", "overview", "environment"),
    analyze="tfperf.sections.input.analysis:analyze",
    combine="tfperf.sections.input.analysis:combine",
    combines_in_tree=True,
    stats=HOST_OPS | TFDATA,
    shorten="tfperf.sections.input.analysis:shorten",
    build="tfperf.sections.input.section:build",
    tables=TABLES,
)
