"""Which stats are read from a trace: those that analyzers use, on the planes and events where they mean something."""

from __future__ import annotations

import re

from tfperf.trace.host_trace import PlaneKind
from tfperf.wire.stats import WantedStats

_NUMBERS = {"group_id", "step_num", "correlation_id", "tracing_count", "is_eager", "id", "is_func"}
_LINK_NUMBERS = {"_r", "_pt", "_p", "_ct", "_c", "_a", "iter_num"}
_TEXTS = {
    "tf_function_call", "graph_type", "step_name", "tf_op", "hlo_op", "eager_op", "shape", "device_type_string",
    "_ipl_stage_name",
}  # fmt: skip
_DEVICE_TEXTS = {"level 0", "annotation", "kernel_details", "memcpy_details", "memset_details", "hlo_category",
                 "hlo_module", "equation", "name"}  # fmt: skip
"""Not read on hosts: launches repeat them, and old files hold uninitialised memory there."""
_DEVICE_NUMBERS = {"program_id", "symbol_id", "device_offset_ps", "device_duration_ps"}
_TFDATA_NUMBERS = {
    "parent_id", "parallelism", "buffered_elements", "buffer_limit", "batch_size", "cycle_length", "cpu_budget",
    "threadpool_size",
}  # fmt: skip
_TFDATA_TEXTS = {"autotune", "deterministic"}
_MEMORY_NUMBERS = {
    "bytes_reserved", "bytes_allocated", "bytes_available", "peak_bytes_in_use", "requested_bytes", "allocation_bytes",
    "addr", "data_type", "index_on_host", "device_ordinal",
}  # fmt: skip
_MEMORY_TEXTS = {"allocator_name", "region_type"}
_MEMORY_REALS = frozenset({"fragmentation"})
_ITERATOR = re.compile("Iterator::")
_NAMED_ITERATOR = re.compile("Iterator::(?:[^:]+|.*::Prefetch)$")
_ID_ON = re.compile("Iterator::|FunctionRun$|InstantiatedCapturedFunction|ExecutorState::Process|IteratorGetNext.*::")


def wanted_stats(kind: PlaneKind, *, links: bool = False, every: bool = False) -> WantedStats:
    """Return the stats to decode on planes of a kind.

    `links` adds those that connect threads, which most events carry; `every` all stats besides.
    """
    if kind != "host":
        return WantedStats(frozenset(_NUMBERS | _DEVICE_NUMBERS), frozenset(_TEXTS | _DEVICE_TEXTS), every=every)
    numbers = _NUMBERS | _TFDATA_NUMBERS | _MEMORY_NUMBERS | {"program_id"}
    texts = frozenset(_TEXTS | _TFDATA_TEXTS | _MEMORY_TEXTS | {"name"})
    only_on = {_ITERATOR: frozenset(_TFDATA_NUMBERS | _TFDATA_TEXTS), _NAMED_ITERATOR: frozenset({"name"})}
    if links:
        return WantedStats(frozenset(numbers | _LINK_NUMBERS), texts, only_on, _MEMORY_REALS, every)
    return WantedStats(frozenset(numbers), texts, {**only_on, _ID_ON: frozenset({"id"})}, _MEMORY_REALS, every)


ON_NAMES = WantedStats(frozenset(_NUMBERS | _DEVICE_NUMBERS), frozenset(_TEXTS | _DEVICE_TEXTS))
"""Stats that may stand on event names instead of on events."""
