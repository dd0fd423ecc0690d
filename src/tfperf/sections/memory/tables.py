"""The columns of the tables about memory."""

from __future__ import annotations

from dataclasses import replace

from tfperf.report.model import Column

ALLOCATORS = (
    Column("host", "Host", str, "", "name of the trace file", level="data"),
    Column("allocator", "Allocator", str, "", "name of the allocator"),
    Column("place", "Place", str, "", "device, pinned host, host, or other: by the allocator's name", level="data"),
    Column("capacity_bytes", "Capacity", int, "bytes", "in use + free at the peak"),
    Column("peak_bytes", "Peak", int, "bytes", "most in use in the capture"),
    Column("peak_percent", "Full", float, "%", "share of the capacity in use at the peak"),
    Column("peak_ms", "Peak at", float, "ms", "when the peak was reached last, from the begin of the capture"),
    Column("peak_step", "Step", int, "", "number of the step that the peak fell into", level="data"),
    Column("lifetime_peak_bytes", "Lifetime peak", int, "bytes", "most in use since the program began"),
    Column("begin_bytes", "Begin", int, "bytes", "in use before the first event of the capture", level="data"),
    Column("end_bytes", "End", int, "bytes", "in use after the last event of the capture", level="data"),
    Column("fragmentation_percent", "Frag.", float, "%", "at the peak: share of the free memory held not in one piece"),
    Column("max_fragmentation_percent", "Most fragmented", float, "%", "largest fragmentation in the capture", level="data"),
    Column("allocations", "Allocs", int, "count", "allocations in the capture"),
    Column("frees", "Frees", int, "count", "deallocations in the capture"),
    Column("allocated_bytes", "Allocated", int, "bytes", "sum over all allocations", level="data"),
    Column("allocations_per_step", "Allocs/step", float, "count", "average over the averaged steps", level="data"),
    Column("allocated_bytes_per_step", "Allocated/step", float, "bytes", "average over the averaged steps", level="data"),
    Column("growth_bytes_per_step", "Growth/step", float, "bytes", "steady growth of what stays; 0: none", level="data"),
    Column("before_bytes", "Before", int, "bytes", "part of the peak that was allocated before the capture", level="data"),
    Column("before_percent", "Before", float, "%", "share of the peak that was allocated before the capture", level="data"),
    Column("rounding_bytes", "Rounding", int, "bytes", "what known tensors got beyond their size", level="data"),
    Column("contradictions", "Contradictions", int, "count", "events that do not follow from the one before", level="data"),
)  # fmt: skip


def allocators(*, several_hosts: bool) -> tuple[Column, ...]:
    """Return the columns of the table of allocators; people see hosts if there are several, instead of frees."""
    shown = {"host": several_hosts, "frees": not several_hosts, "fragmentation_percent": not several_hosts}
    return tuple(replace(column, compact=shown.get(column.key, column.compact)) for column in ALLOCATORS)


_OF_ALLOCATOR = (
    Column("host", "Host", str, "", "name of the trace file", level="data"),
    Column("allocator", "Allocator", str, "", "name of the allocator", level="data"),
)

_KIND = Column(
    "kind", "Kind", str, "", "tensor, before the capture (nothing tells what it is), or reserved", level="data"
)
_SHAPE, _TYPE = (
    Column("shape", "Shape", str, "", "shape of the tensor"), Column("data_type", "Type", str, "", "type of its elements"),
)  # fmt: skip
_SUMS = (
    Column("count", "Count", int, "count", "tensors"),
    Column("total_bytes", "Total", int, "bytes", "size of all, as allocated"),
    Column("peak_percent", "Share", float, "%", "share of the peak"),
)

ALIVE = (
    *_OF_ALLOCATOR,
    _KIND,
    Column("op", "Op", str, "", "name of the op that allocated it, with its scope"),
    Column("scope", "Scope", str, "", "name scope of the op", level="data"),
    _SHAPE,
    _TYPE,
    Column("region", "Region", str, "", "what it is to the op: output, temp, persist or dynamic", level="data"),
    Column("each_bytes", "Each", int, "bytes", "size of one, as allocated", level="data"),
    Column("requested_bytes", "Requested", int, "bytes", "size of one, as the op asked for", level="data"),
    *_SUMS,
)

BY_OP = (
    *_OF_ALLOCATOR,
    _KIND,
    Column("op", "Op", str, "", "op that allocated it; * stands for the numbers of several ops", level="data"),
    Column("what", "Op", str, "", "the same, or what else is known"),
    _SHAPE,
    _TYPE,
    *_SUMS,
)

BY_SCOPE = (
    *_OF_ALLOCATOR,
    _KIND,
    Column("scope", "Scope", str, "", "first three parts of the name scope", level="data"),
    Column("what", "Scope", str, "", "the same, or what else is known"),
    *_SUMS,
)

TIMELINE = (
    *_OF_ALLOCATOR,
    Column("time_ms", "Time", float, "ms", "from the begin of the capture"),
    Column("in_use_bytes", "In use", int, "bytes", "memory in use; of each stretch of events the one with the most"),
    Column("free_bytes", "Free", int, "bytes", "memory that could still be taken"),
    Column("fragmentation_percent", "Frag.", float, "%", "share of the free memory held that is not in one piece"),
)
