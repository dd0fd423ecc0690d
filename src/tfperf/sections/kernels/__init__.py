"""Kernels: which GPU kernels take the time, what copies and launches cost, and how each device spends the capture."""

from tfperf.sections.kernels.tables import TABLES
from tfperf.sections.spec import SectionSpec

SECTION = SectionSpec(
    name="kernels",
    title="GPU kernels",
    rests_on=("steps",),
    analyze="tfperf.sections.kernels.analysis:analyze",
    combine="tfperf.sections.kernels.analysis:combine",
    build="tfperf.sections.kernels.section:build",
    stats=frozenset(
        {
            "annotation",
            "correlation_id",
            "equation",
            "group_id",
            "hlo_module",
            "hlo_op",
            "kernel_details",
            "level 0",
            "memcpy_details",
            "memset_details",
            "name",
            "program_id",
            "shape",
            "tf_op",
        }
    ),
    tables=TABLES,
    without_device="No kernels: no device recorded anything in this trace.",
)
