"""Environment: what the job ran on."""

from tfperf.sections.environment.section import TABLES
from tfperf.sections.registry import SectionSpec
from tfperf.trace.cores import CORES

SECTION = SectionSpec(
    name="environment",
    title="Run environment",
    analyze="tfperf.sections.environment.analysis:analyze",
    combine="tfperf.sections.environment.analysis:Environment",
    stats=CORES,
    build="tfperf.sections.environment.section:build",
    tables=TABLES,
)
