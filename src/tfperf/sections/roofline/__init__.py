"""Roofline: how near the work of devices comes to what they can do, and what bounds it."""

from tfperf.analysis.registry import SectionSpec
from tfperf.sections.roofline.tables import TABLES
from tfperf.trace.known_stats import DEVICE_OPS

SECTION = SectionSpec(
    name="roofline",
    title="Roofline",
    rests_on=("steps", "xla"),
    analyze="tfperf.sections.roofline.framework_ops:analyze",
    combine="tfperf.sections.roofline.framework_ops:combine",
    combines_in_tree=True,
    derive="tfperf.sections.roofline.analysis:derive",
    shorten="tfperf.sections.roofline.framework_ops:shorten",
    build="tfperf.sections.roofline.section:build",
    stats=DEVICE_OPS | {"equation", "shape"},
    tables=TABLES,
    without_device="No roofline: no device recorded anything in this trace, and the peaks of a host are not known.",
)
