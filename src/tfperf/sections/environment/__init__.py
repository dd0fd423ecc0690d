"""Environment: what the job ran on."""

from tfperf.analysis.registry import SectionSpec
from tfperf.sections.environment.section import TABLES
from tfperf.trace.host.cores import CORES

SECTION = SectionSpec(
    name="environment",
    title="Run environment",
    analyze="tfperf.sections.environment.analysis:analyze",
    combine="tfperf.sections.environment.analysis:Environment",
    stats=CORES,
    build="tfperf.sections.environment.section:build",
    tables=TABLES,
)
