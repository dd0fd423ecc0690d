"""Functions: how often tf.functions and jitted functions are called, traced, compiled; and what Python runs eagerly."""

from tfperf.analysis.registry import SectionSpec
from tfperf.sections.functions.section import TABLES
from tfperf.trace.known_stats import EAGER

SECTION = SectionSpec(
    name="functions",
    title="tf.functions",
    rests_on=("steps", "overview"),
    analyze="tfperf.sections.functions.analysis:analyze",
    combine="tfperf.sections.functions.analysis:combine",
    combines_in_tree=True,
    narrow="tfperf.sections.functions.analysis:narrow",
    stats=EAGER | {"tf_function_call", "tracing_count", "eager_op", "batch_size"},
    shorten="tfperf.sections.functions.analysis:shorten",
    build="tfperf.sections.functions.section:build",
    tables=TABLES,
)
