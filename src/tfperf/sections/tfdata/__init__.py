"""tf.data: is the pipeline fast enough, which stage limits it, what to change, and what that would gain."""

from tfperf.analysis.registry import SectionSpec
from tfperf.sections.tfdata.tables import TABLES
from tfperf.trace.known_stats import TFDATA

SECTION = SectionSpec(
    name="tfdata",
    title="tf.data",
    rests_on=("steps", "environment"),
    analyze="tfperf.sections.tfdata.analysis:analyze",
    combine="tfperf.sections.tfdata.analysis:combine",
    stats=TFDATA | {"id", "hlo_op"},
    shorten="tfperf.sections.tfdata.analysis:shorten",
    build="tfperf.sections.tfdata.section:build",
    tables=TABLES,
)
