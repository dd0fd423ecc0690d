"""Hosts: who waits for whom."""

from tfperf.analysis.registry import SectionSpec
from tfperf.sections.hosts.tables import TABLES
from tfperf.trace.known_stats import COLLECTIVES

SECTION = SectionSpec(
    name="hosts",
    title="Hosts",
    analyze="tfperf.sections.hosts.analysis:analyze",
    derive="tfperf.sections.hosts.analysis:compare",
    build="tfperf.sections.hosts.section:build",
    rests_on=("steps", "overview"),
    stats=COLLECTIVES,
    tables=TABLES,
)
