"""The known stats of events: the purpose of each, and the events for which it is meaningful."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

from msgspec import Struct

from tfperf.formats.hlo.messages import HLO_PROTO
from tfperf.formats.wire.event_columns import StatType
from tfperf.formats.wire.planes import WantedStats
from tfperf.trace.event_names import (
    BATCH_SIZES,
    SERVERS,
    SESSIONS,
    carries_run_id,
    enters_batch,
    gives_task,
    hands_over_element,
    is_fetch,
    is_iterator,
    is_memory,
    is_root_iterator,
    is_transfer_to_tpu,
    mask,
    may_be_hlo_op,
    may_mark_steps,
    may_state_batch_size,
    names_its_chip,
    names_its_object,
    names_its_task,
    processes_batch,
)
from tfperf.trace.host_trace import TPU_KINDS, PlaneKind


class KnownStat(Struct, frozen=True):
    """The type of a stat, and the events that it is read from: host events by name (None: all), and devices.

    `device` is False for a stat of hosts alone, "tpu" for one that hosts and TPUs have.
    """

    type: StatType
    host: Callable[[str], bool] | None = None
    device: bool | Literal["tpu"] = True


def _none(name: str) -> bool:
    return False


_BY_PLACE: tuple[tuple[KnownStat, tuple[str, ...]], ...] = (
    (KnownStat("text"), ("tf_function_call", "graph_type", "step_name", "eager_op", "hlo_op")),
    (KnownStat("number"), ("tracing_count", "step_num", "group_id", "correlation_id")),
    (KnownStat("number"), ("is_eager", "is_func", "program_id")),
    (KnownStat("number", device="tpu"), ("run_id",)),
    # Nearly every host event has an id, which is slow to read; only those of iterators, functions and executors link.
    (KnownStat("number", carries_run_id), ("id",)),
    (KnownStat("number", device=False), ("iter_num", "_a")),
    (KnownStat("number", device="tpu"), ("_pt", "_ct")),
    (KnownStat("number", lambda name: may_be_hlo_op(name) or gives_task(name) or enters_batch(name), "tpu"), ("_p",)),
    (KnownStat("number", lambda name: may_be_hlo_op(name) or processes_batch(name), "tpu"), ("_c",)),
    (KnownStat("number", BATCH_SIZES.__contains__, device=False), ("batch_size_after_padding", "padding_amount")),
    (KnownStat("text", (*SERVERS, *SESSIONS).__contains__, device=False), ("model_id",)),
    (KnownStat("number", may_mark_steps, device=False), ("_r",)),
    (KnownStat("number", device=False), ("group_key", "instance_key", "group_size")),
    (KnownStat("number", is_transfer_to_tpu, device=False), ("size",)),
    (KnownStat("text", names_its_task, device=False), ("device", "key")),
    # Not read on hosts: launches repeat them, and old files contain uninitialized memory there.
    (KnownStat("text", is_memory), ("tf_op", "shape")),
    (KnownStat("text", names_its_object), ("name",)),
    (KnownStat("text", _none), ("level 0", "annotation", "kernel_details", "memcpy_details", "memset_details")),
    (KnownStat("text", _none), ("equation", "hlo_category", "hlo_module")),
    (KnownStat("text", _none), ("deduplicated_name", "shape_with_layout", "source")),
    (KnownStat("number", _none), ("symbol_id", "cuda_graph_node_id", "scope_range_id")),
    (KnownStat("number", _none, device="tpu"), ("device_offset_ps", "device_duration_ps", "queue_id", "flow")),
    (KnownStat("number", _none), ("flops", "bytes_accessed")),
    (KnownStat("bytes", _none), ("memory_access_breakdown",)),
    (KnownStat("number", is_iterator, device=False), ("parent_id", "parallelism", "buffered_elements", "buffer_limit")),
    (KnownStat("number", is_iterator, device=False), ("cycle_length", "cpu_budget", "threadpool_size")),
    (KnownStat("number", may_state_batch_size, device=False), ("batch_size",)),
    (KnownStat("text", is_root_iterator, device=False), ("shapes",)),
    (KnownStat("number", is_fetch, device=False), ("element_size",)),
    (KnownStat("number", hands_over_element, device=False), ("element_id",)),
    (KnownStat("text", is_iterator, device=False), ("autotune", "deterministic")),
    (KnownStat("text", is_memory, device=False), ("allocator_name", "region_type")),
    (KnownStat("real", is_memory, device=False), ("fragmentation",)),
    (KnownStat("number", is_memory, device=False), ("bytes_reserved", "bytes_allocated", "bytes_available", "addr")),
    (KnownStat("number", is_memory, device=False), ("peak_bytes_in_use", "requested_bytes", "allocation_bytes")),
    (KnownStat("number", is_memory, device=False), ("data_type", "index_on_host")),
    (KnownStat("number", names_its_chip, device=False), ("device_ordinal",)),
    # The compiled programs are in a separate plane, not on events (`HostTrace.programs`).
    (KnownStat("text", _none, device=False), (HLO_PROTO,)),
)
KNOWN = {name: stat for stat, names in _BY_PLACE for name in names}

LINKS = frozenset({"iter_num", "_r", "_pt", "_p", "_ct", "_c", "_a"})
"""Links between events on different threads (`group_trace`); nearly every host event has some."""
BASE = frozenset(("correlation_id", "graph_type", "group_id", "hlo_category", "id", "memcpy_details", "shape"))
BASE |= {"_r", "hlo_module", "program_id", "step_name", "step_num", "tf_function_call", "tracing_count"}
BASE |= {"eager_op", "is_func", "size", "element_id", "_p", "model_id"}
"""Steps, their categories, host states, launches, missing events, environment; `_p` only as task number, unless linked.
"""
TFDATA = frozenset(name for name, stat in KNOWN.items() if stat.host in (is_iterator, names_its_object))
TFDATA |= {"batch_size", "element_size"}
"""Pipelines of tf.data (`find_pipelines`)."""
BATCH = frozenset({"allocator_name", "batch_size", "region_type", "shape", "shapes", "tf_op"})
MEMORY = frozenset(name for name, stat in KNOWN.items() if stat.host is is_memory) | {"device_ordinal"}
HLO_OPS = frozenset({"cuda_graph_node_id", "hlo_op", "program_id", HLO_PROTO})
"""HLO ops and their compiled programs (`HostTrace.programs`); nodes order the kernels of a CUDA graph."""
XLA_FACTS = frozenset({"bytes_accessed", "deduplicated_name", "flops", "shape_with_layout", "source"})
XLA_FACTS |= {"memory_access_breakdown"}
"""Facts about each instruction from a TPU's profiler."""
EAGER = frozenset({"is_func"})
HOST_OPS = HLO_OPS | EAGER | {"is_eager"}
"""Ops of host threads (`host_ops`)."""
DEVICE_OPS = HLO_OPS | {"hlo_module", "name", "annotation", "level 0", "tf_op"}
"""Ops of GPU work (`device_work`)."""
JAX = frozenset({"program_id", "run_id", HLO_PROTO})
"""Calls of jitted functions and their work (`find_jax_calls`); read if a program calls such functions."""
TPU = frozenset({"device_offset_ps", "device_duration_ps", "run_id", "queue_id", "device_ordinal"})
TPU |= {"flow", "_pt", "_p", "_ct", "_c"}
"""Times of chips by their own clocks, and links of their runs to the host; read for every TPU."""
IDS = frozenset({"program_id", "symbol_id"})
"""Unsigned stats up to 2^64 - 1, stored with the same bits in an int64 (see `unsigned`)."""
CORES = frozenset({"cpu_budget"})
TASK = frozenset({"device", "key"})
COLLECTIVES = frozenset({"group_key", "group_size", "instance_key", "hlo_op", "run_id"})
"""Data exchange between devices and hosts (`find_collectives`, `find_participants`)."""
REQUESTS = frozenset({"_p", "_c", "batch_size_after_padding", "padding_amount"})
"""Batches of requests, and how long requests wait for them."""
HLO_ENDS = frozenset({"_p", "_c"})
"""End of ops that XLA compiled for the host: their completion is a separate event."""
DEFAULT = frozenset(KNOWN) - LINKS | HLO_ENDS
"""All known stats except links between events."""


def wanted_stats(kind: PlaneKind, stats: frozenset[str], *, every: bool = False) -> WantedStats:
    """Return which of the stats to decode on planes of a kind.

    The types of unknown stats are inferred from the file. `every` adds all other stats, as one table.
    """
    unread = (_none,) if reads_memory(stats) else (_none, is_memory)
    known = ((name, stat) for name, stat in KNOWN.items() if name in stats)
    on_device = (True, "tpu") if kind in TPU_KINDS else (True,)
    here = {
        name: stat for name, stat in known if (stat.host not in unread if kind == "host" else stat.device in on_device)
    }
    types = {name: stat.type for name, stat in here.items()}
    narrow = {name: stat.host for name, stat in here.items() if kind == "host" and stat.host}
    # Linking events requires all links.
    all_links = not stats.isdisjoint(LINKS - BASE - TPU)
    linked = {"id", "_r", *HLO_ENDS} if all_links else HLO_ENDS if "_pt" in stats else ()
    narrow = {name: where for name, where in narrow.items() if name not in linked}
    if "_p" in narrow and "_c" not in stats:
        narrow["_p"] = gives_task
    guesses: dict[str, Literal["guess"]] = dict.fromkeys(stats - KNOWN.keys(), "guess")
    accepted = {where: partial(mask, wanted=where) for where in narrow.values()}
    return WantedStats({**types, **guesses}, {name: accepted[where] for name, where in narrow.items()}, every)


def reads_memory(stats: frozenset[str]) -> bool:
    """Return whether allocations are requested: events without duration that are omitted otherwise."""
    return "allocator_name" in stats
