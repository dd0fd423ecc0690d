"""Hosts: who waits for whom."""

from tfperf.sections.hosts.tables import TABLES
from tfperf.sections.registry import SectionSpec
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
