"""XLA: which instructions of the programs that XLA compiled take the time, and what each program takes."""

from tfperf.analysis.registry import SectionSpec
from tfperf.sections.xla.tables import TABLES
from tfperf.trace.known_stats import DEVICE_OPS, HLO_ENDS, XLA_FACTS

SECTION = SectionSpec(
    name="xla",
    title="Programs of XLA",
    rests_on=("steps",),
    analyze="tfperf.sections.xla.analysis:analyze",
    combine="tfperf.sections.xla.analysis:combine",
    combines_in_tree=True,
    shorten="tfperf.sections.xla.analysis:shorten",
    build="tfperf.sections.xla.section:build",
    stats=DEVICE_OPS | HLO_ENDS | XLA_FACTS,
    tables=TABLES,
)
