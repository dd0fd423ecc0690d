"""Ops: which take the time, on devices and on host threads, and how long none runs."""

from tfperf.analysis.registry import SectionSpec
from tfperf.sections.ops.tables import TABLES
from tfperf.trace.known_stats import DEVICE_OPS, HOST_OPS

SECTION = SectionSpec(
    name="ops",
    title="Ops",
    analyze="tfperf.sections.ops.analysis:analyze",
    combine="tfperf.sections.ops.analysis:combine",
    combines_in_tree=True,
    shorten="tfperf.sections.ops.analysis:shorten",
    stats=HOST_OPS | DEVICE_OPS,
    build="tfperf.sections.ops.section:build",
    tables=TABLES,
)
