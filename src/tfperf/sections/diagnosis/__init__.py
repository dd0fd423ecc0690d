"""Diagnosis: what costs the step its time, each cause once, the one that is best fixed first."""

from tfperf.analysis.registry import SectionSpec
from tfperf.sections.diagnosis.tables import TABLES
from tfperf.trace.host.cores import CORES
from tfperf.trace.known_stats import HLO_OPS, MEMORY

SECTION = SectionSpec(
    name="diagnosis",
    title="Diagnosis",
    rests_on=(
        *(
            "steps",
            "overview",
            "wall",
            "hosts",
            "idle",
            "tfdata",
            "kernels",
            "roofline",
            "functions",
            "memory",
            "environment",
            "gaps",
            "python",
        ),
        "batch",
    ),
    stats=HLO_OPS | MEMORY | CORES | {"eager_op", "batch_size", "is_func"},
    analyze="tfperf.sections.diagnosis.program:analyze",
    derive="tfperf.sections.diagnosis.diagnose:diagnose",
    narrow="tfperf.sections.diagnosis.program:narrow",
    build="tfperf.sections.diagnosis.section:build",
    document="tfperf.sections.diagnosis.section:document",
    tables=TABLES,
)
