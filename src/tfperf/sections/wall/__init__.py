"""Wall time: where the time of the whole capture goes, in steps and outside of them."""

from tfperf.analysis.registry import SectionSpec
from tfperf.sections.wall.tables import TABLES

SECTION = SectionSpec(
    name="wall",
    title="Wall time",
    rests_on=("steps",),
    analyze="tfperf.sections.wall.analysis:analyze",
    combine="tfperf.sections.wall.analysis:combine",
    narrow="tfperf.sections.wall.analysis:narrow",
    build="tfperf.sections.wall.section:build",
    tables=TABLES,
)
