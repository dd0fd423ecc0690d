"""The columns of the tables about memory."""

from __future__ import annotations

from dataclasses import replace

from tfperf.report.model import Column

ALLOCATORS = (
    Column("host", "Host", "", "name of the trace file", compact=False),
    Column("allocator", "Allocator", "", "name of the allocator"),
    Column("place", "Place", "", "device, pinned host, host, or other: by the allocator's name", compact=False),
    Column("capacity_bytes", "Capacity", "bytes", "in use + free at the peak"),
    Column("peak_bytes", "Peak", "bytes", "most in use in the capture"),
    Column("peak_percent", "Full", "%", "share of the capacity in use at the peak"),
    Column("peak_ms", "Peak at", "ms", "when the peak was reached last, from the begin of the capture"),
    Column("peak_step", "Step", "", "number of the step that the peak fell into", compact=False),
    Column("lifetime_peak_bytes", "Lifetime peak", "bytes", "most in use since the program began"),
    Column("begin_bytes", "Begin", "bytes", "in use before the first event of the capture", compact=False),
    Column("end_bytes", "End", "bytes", "in use after the last event of the capture", compact=False),
    Column("fragmentation_percent", "Frag.", "%", "at the peak: share of the free memory held not in one piece"),
    Column("max_fragmentation_percent", "Most fragmented", "%", "largest fragmentation in the capture", compact=False),
    Column("allocations", "Allocs", "count", "allocations in the capture"),
    Column("frees", "Frees", "count", "deallocations in the capture"),
    Column("allocated_bytes", "Allocated", "bytes", "sum over all allocations", compact=False),
    Column("allocations_per_step", "Allocs/step", "count", "average over the averaged steps", compact=False),
    Column("allocated_bytes_per_step", "Allocated/step", "bytes", "average over the averaged steps", compact=False),
    Column("growth_bytes_per_step", "Growth/step", "bytes", "steady growth of what stays; 0: none", compact=False),
    Column("before_bytes", "Before", "bytes", "part of the peak that was allocated before the capture", compact=False),
    Column("before_percent", "Before", "%", "share of the peak that was allocated before the capture", compact=False),
    Column("rounding_bytes", "Rounding", "bytes", "what known tensors got beyond their size", compact=False),
    Column("contradictions", "Contradictions", "count", "events that do not follow from the one before", compact=False),
)  # fmt: skip


def allocators(*, several_hosts: bool) -> tuple[Column, ...]:
    """Return the columns of the table of allocators; people see hosts if there are several, instead of frees."""
    shown = {"host": several_hosts, "frees": not several_hosts, "fragmentation_percent": not several_hosts}
    return tuple(replace(column, compact=shown.get(column.key, column.compact)) for column in ALLOCATORS)


_OF_ALLOCATOR = (
    Column("host", "Host", "", "name of the trace file", compact=False),
    Column("allocator", "Allocator", "", "name of the allocator", compact=False),
)

_KIND = Column("kind", "Kind", "", "tensor, before the capture (nothing tells what it is), or reserved", compact=False)
_SHAPE, _TYPE = (
    Column("shape", "Shape", "", "shape of the tensor"), Column("data_type", "Type", "", "type of its elements"),
)  # fmt: skip
_SUMS = (
    Column("count", "Count", "count", "tensors"),
    Column("total_bytes", "Total", "bytes", "size of all, as allocated"),
    Column("peak_percent", "Share", "%", "share of the peak"),
)

ALIVE = (
    *_OF_ALLOCATOR,
    _KIND,
    Column("op", "Op", "", "name of the op that allocated it, with its scope"),
    Column("scope", "Scope", "", "name scope of the op", compact=False),
    _SHAPE,
    _TYPE,
    Column("region", "Region", "", "what it is to the op: output, temp, persist or dynamic", compact=False),
    Column("each_bytes", "Each", "bytes", "size of one, as allocated", compact=False),
    Column("requested_bytes", "Requested", "bytes", "size of one, as the op asked for", compact=False),
    *_SUMS,
)

BY_OP = (
    *_OF_ALLOCATOR,
    _KIND,
    Column("op", "Op", "", "op that allocated it; * stands for the numbers of several ops", compact=False),
    Column("what", "Op", "", "the same, or what else is known"),
    _SHAPE,
    _TYPE,
    *_SUMS,
)

BY_SCOPE = (
    *_OF_ALLOCATOR,
    _KIND,
    Column("scope", "Scope", "", "first three parts of the name scope", compact=False),
    Column("what", "Scope", "", "the same, or what else is known"),
    *_SUMS,
)

TIMELINE = (
    *_OF_ALLOCATOR,
    Column("time_ms", "Time", "ms", "from the begin of the capture"),
    Column("in_use_bytes", "In use", "bytes", "memory in use; of each stretch of events the one with the most"),
    Column("free_bytes", "Free", "bytes", "memory that could still be taken"),
    Column("fragmentation_percent", "Frag.", "%", "share of the free memory held that is not in one piece"),
)
