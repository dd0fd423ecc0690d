"""Timeline: the events of single steps on a time axis."""

from tfperf.analysis.registry import SectionSpec
from tfperf.trace.known_stats import DEVICE_OPS, TFDATA

SECTION = SectionSpec(
    name="timeline",
    title="Timeline",
    rests_on=("steps", "hosts", "idle"),
    analyze="tfperf.sections.timeline.analysis:analyze",
    combine="tfperf.sections.timeline.analysis:combine",
    stats=DEVICE_OPS
    | TFDATA
    | {"allocator_name", "bytes_allocated", "bytes_reserved", "correlation_id", "device_ordinal", "index_on_host"}
    | {"kernel_details", "memcpy_details"},
    build="tfperf.sections.timeline.section:build",
    is_picture=True,
)
