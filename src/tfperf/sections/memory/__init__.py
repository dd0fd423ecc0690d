"""Memory: peak use of each allocator, the tensors live at the peak, and problems."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tfperf.analysis.registry import Results, SectionSpec, TableSpec
from tfperf.report.model import Column, Data, Ranked
from tfperf.trace.known_stats import MEMORY

if TYPE_CHECKING:
    from tfperf.sections.memory.analysis import Memory

_OF_ALLOCATOR = (
    Column("host", "Host", str, "", "name of the trace file", level="data"),
    Column("allocator", "Allocator", str, "", "name of the allocator", level="data"),
)
_TENSOR = (
    Column("shape", "Shape", str, "", "shape of the tensor"),
    Column("data_type", "Type", str, "", "element type"),
)
_KIND = Column("kind", "Kind", str, "", "tensor, reserved, or rest (allocated before the capture)", level="data")
_SUMS = (
    Column("count", "Count", int, "count", "tensors"),
    Column("total_bytes", "Total", int, "bytes", "total allocated size"),
    Column("peak_percent", "Share", float, "%", "share of the peak"),
)
_ALLOCATED = "sum over all allocations, if all sizes are known"
_per_step = partial(Column, level="data", over_steps=True)
_UNNAMED = {
    "tensor": "(no name)",
    "other tensors": "(other tensors)",
    "before the capture": "(allocated before the capture)",
    "before the capture or of unknown size": "(allocated before the capture, or of unknown size)",
    "reserved": "(stack, reserved)",
}


_COLUMNS = {
    "memory_allocators": ("columns", ""),
    "memory_alive": ("alive_columns", ""),
    "memory_by_op": ("op_columns", "op"),
    "memory_by_scope": ("scope_columns", "scope"),
    "memory_timeline": ("timeline_columns", ""),
}
"""Per table: the method of `Memory` that returns its columns, and the columns that contain row names."""


def columns_of(table: str, memory: Memory) -> Data:
    """Return the columns of a table; for rows with names also `what`, the name or a description of unnamed rows."""
    method, name_key = _COLUMNS[table]
    columns: Data = getattr(memory, method)()
    if not name_key:
        return columns
    names = zip(columns[name_key], columns["kind"], strict=True)
    return {**columns, "what": [name or _UNNAMED[kind] for name, kind in names]}


def _data(table: str, results: Results) -> Data | None:
    memory: Memory = results["memory"]
    return columns_of(table, memory) if memory.allocators else None


ALLOCATORS = TableSpec(
    name="memory_allocators",
    title="Allocators, fullest first",
    row="allocators, with their peak use",
    details=(
        "One row per allocator of each host, the fullest first, device memory before host memory. "
        "[Memory](memory.md) explains the columns of this file and the next four."
    ),
    columns=(
        Column("host", "Host", str, "", "name of the trace file", level="data"),
        Column("allocator", "Allocator", str, "", "name of the allocator"),
        Column("place", "Place", str, "", "device, pinned host, host, or other: by the allocator's name", level="data"),
        Column("capacity_bytes", "Capacity", int, "bytes", "in use + free at the peak"),
        Column("peak_bytes", "Peak", int, "bytes", "peak use in the capture"),
        Column("peak_percent", "Full", float, "%", "share of the capacity in use at the peak"),
        Column("peak_ms", "Peak at", float, "ms", "time of the last peak, on the clock of the trace"),
        Column("peak_step", "Step", int, "", "number of the step with the peak", level="data"),
        Column("lifetime_peak_bytes", "Lifetime peak", int, "bytes", "peak use since the program started"),
        Column("start_bytes", "Start", int, "bytes", "in use before the first event of the capture", level="data"),
        Column("end_bytes", "End", int, "bytes", "in use after the last event of the capture", level="data"),
        Column(
            "fragmentation_percent",
            "Frag.",
            float,
            "%",
            "at the peak: share of the free memory outside its largest free block",
        ),
        Column("max_fragmentation_percent", "Most fragmented", float, "%", "maximum in the capture", level="data"),
        Column("allocations", "Allocs", int, "count", "allocations in the capture"),
        Column("unsized_allocations", "Unsized", int, "count", "allocations without a recorded size", level="data"),
        Column("frees", "Frees", int, "count", "deallocations in the capture"),
        Column("allocated_bytes", "Allocated", int, "bytes", _ALLOCATED, level="data"),
        _per_step("allocations_per_step", "Allocs/step", float, "count", "mean over the averaged steps"),
        _per_step("allocated_bytes_per_step", "Allocated/step", float, "bytes", "mean over the averaged steps"),
        _per_step(
            "growth_bytes_per_step",
            "Growth/step",
            float,
            "bytes",
            "steady growth of the memory that stays in use; 0: no growth",
        ),
        Column("before_bytes", "Before", int, "bytes", "bytes of the peak allocated before the capture", level="data"),
        Column("before_percent", "Before", float, "%", "share of the peak allocated before the capture", level="data"),
        Column(
            "rounding_bytes",
            "Rounding",
            int,
            "bytes",
            "allocated bytes of known tensors beyond their requested size",
            level="data",
        ),
        Column("contradictions", "Contradictions", int, "count", "events that contradict the previous event", "data"),
    ),
    data=partial(_data, "memory_allocators"),
    name_key="allocator",
    ranked=Ranked("peak_percent", each="allocators", apart="place"),
)
ALIVE = TableSpec(
    name="memory_alive",
    title="Live at the peak of each allocator",
    row="live allocations at the peak of each allocator",
    details="Live allocations at the peak of each allocator, the largest first.",
    columns=(
        *_OF_ALLOCATOR,
        _KIND,
        Column("op", "Op", str, "", "name of the op that allocated it, with its scope"),
        Column("scope", "Scope", str, "", "name scope of the op", level="data"),
        *_TENSOR,
        Column("region", "Region", str, "", "role for the op: output, temp, persist or dynamic", level="data"),
        Column("each_bytes", "Each", int, "bytes", "allocated size of one", level="data"),
        Column("requested_bytes", "Requested", int, "bytes", "requested size of one", level="data"),
        *_SUMS,
    ),
    data=partial(_data, "memory_alive"),
    name_key="op",
    ranked=Ranked("total_bytes", apart="allocator"),
)
BY_OP = TableSpec(
    name="memory_by_op",
    title="Live at peak, by op",
    row="live at peak, by op",
    details="Live allocations at the peak, summed over ops that differ only in a number.",
    columns=(
        *_OF_ALLOCATOR,
        _KIND,
        Column("op", "Op", str, "", "op that allocated it; * replaces the numbers of several ops", level="data"),
        Column("what", "Op", str, "", "the same, or the known rest"),
        *_TENSOR,
        *_SUMS,
    ),
    data=partial(_data, "memory_by_op"),
    name_key="what",
    ranked=Ranked("total_bytes", apart="allocator"),
)
BY_SCOPE = TableSpec(
    name="memory_by_scope",
    title="Live at peak, by name scope",
    row="live at peak, by name scope",
    details="Live allocations at the peak, summed by name scope.",
    columns=(
        *_OF_ALLOCATOR,
        _KIND,
        Column("scope", "Scope", str, "", "first three parts of the name scope", level="data"),
        Column("what", "Scope", str, "", "the same, or the known rest"),
        *_SUMS,
    ),
    data=partial(_data, "memory_by_scope"),
    name_key="what",
    ranked=Ranked("total_bytes", apart="allocator"),
)
TIMELINE = TableSpec(
    name="memory_timeline",
    title="Memory in use over time",
    row="memory in use over time",
    details="Memory in use over time, at most 1000 points per allocator.",
    columns=(
        *_OF_ALLOCATOR,
        Column("time_ms", "Time", float, "ms", "on the clock of the trace"),
        Column("in_use_bytes", "In use", int, "bytes", "memory in use; the maximum of each interval of events"),
        Column("free_bytes", "Free", int, "bytes", "memory that could still be allocated"),
        Column(
            "fragmentation_percent",
            "Frag.",
            float,
            "%",
            "share of the allocator's free memory outside its largest free block",
        ),
    ),
    data=partial(_data, "memory_timeline"),
    name_key="allocator",
)
TABLES = (ALLOCATORS, ALIVE, BY_OP, BY_SCOPE, TIMELINE)


SECTION = SectionSpec(
    name="memory",
    title="Memory",
    rests_on=("steps", "batch"),
    analyze="tfperf.sections.memory.analysis:analyze",
    combine="tfperf.sections.memory.analysis:combine",
    stats=MEMORY,
    shorten="tfperf.sections.memory.analysis:shorten",
    build="tfperf.sections.memory.section:build",
    tables=TABLES,
)
