"""Kernels: which GPU kernels take the time, what copies and launches cost, and how each device spends the capture."""

from tfperf.analysis.registry import SectionSpec
from tfperf.sections.kernels.tables import TABLES
from tfperf.trace.known_stats import DEVICE_OPS

SECTION = SectionSpec(
    name="kernels",
    title="GPU kernels",
    rests_on=("steps", "xla"),
    analyze="tfperf.sections.kernels.analysis:analyze",
    combine="tfperf.sections.kernels.analysis:combine",
    combines_in_tree=True,
    narrow="tfperf.sections.kernels.analysis:narrow",
    shorten="tfperf.sections.kernels.analysis:shorten",
    build="tfperf.sections.kernels.section:build",
    stats=DEVICE_OPS | {"equation", "kernel_details", "memcpy_details", "memset_details"},
    tables=TABLES,
    without_device="No kernels: no device recorded anything in this trace.",
)
