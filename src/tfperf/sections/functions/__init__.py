"""Functions: how often tf.functions are called and traced, and what Python runs eagerly beside them."""

from tfperf.sections.functions.tables import TABLES
from tfperf.sections.spec import SectionSpec

SECTION = SectionSpec(
    name="functions",
    title="tf.functions",
    rests_on=("steps",),
    analyze="tfperf.sections.functions.analysis:analyze",
    combine="tfperf.sections.functions.analysis:combine",
    build="tfperf.sections.functions.section:build",
    tables=TABLES,
)
