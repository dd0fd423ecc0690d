"""Python: which functions of Python take the time, and which of them fill "All others" of the step."""

from tfperf.analysis.registry import SectionSpec
from tfperf.sections.python.tables import TABLES

SECTION = SectionSpec(
    name="python",
    title="Python functions",
    rests_on=("steps", "overview"),
    analyze="tfperf.sections.python.analysis:analyze",
    combine="tfperf.sections.python.analysis:combine",
    combines_in_tree=True,
    shorten="tfperf.sections.python.analysis:shorten",
    build="tfperf.sections.python.section:build",
    tables=TABLES,
)
