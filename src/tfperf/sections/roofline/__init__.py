"""Roofline: how near the work of devices comes to what they can do, and what bounds it."""

from tfperf.sections.registry import SectionSpec
from tfperf.sections.roofline.tables import TABLES

SECTION = SectionSpec(
    name="roofline",
    title="Roofline",
    rests_on=("xla",),
    derive="tfperf.sections.roofline.analysis:derive",
    build="tfperf.sections.roofline.section:build",
    tables=TABLES,
    without_device="No roofline: no device recorded anything in this trace, and the peaks of a host are not known.",
)
