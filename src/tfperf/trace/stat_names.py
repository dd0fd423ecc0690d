"""Which stats tfperf knows: the type of each, and the planes and events on which it is read.

Only what is asked for is decoded, so whoever reads a stat of a `HostTrace` declares its name. The sets below name what
the functions of this package read; `BASE` is always read, since steps and their categories need it.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from tfperf.trace.host_trace import PlaneKind
from tfperf.wire.event_columns import StatType
from tfperf.wire.hlo import HLO_PROTO
from tfperf.wire.stats import WantedStats

_ITERATOR = "Iterator::"
_NAMED_ITERATOR = "Iterator::(?:[^:]+|.*::Prefetch)$"
_OF_A_RUN = "Iterator::|FunctionRun$|InstantiatedCapturedFunction|ExecutorState::Process|IteratorGetNext.*::"
_ALLOCATION = "Memory(?:Allocation|Deallocation)$"


class KnownStat(NamedTuple):
    """The type of a stat, and where it means something.

    `host` is a regular expression for the names of host events that it is read on: empty means all, None means none.
    """

    type: StatType
    host: str | None = ""
    device: bool = True


KNOWN = {
    "tf_function_call": KnownStat("text"),
    "tracing_count": KnownStat("number"),
    "step_num": KnownStat("number"),
    "graph_type": KnownStat("text"),
    "group_id": KnownStat("number"),
    "step_name": KnownStat("text"),
    "correlation_id": KnownStat("number"),
    "is_eager": KnownStat("number"),
    "is_func": KnownStat("number"),
    "eager_op": KnownStat("text"),
    # Nearly every event of a host carries an id, which costs time; those of iterators, functions and executors link.
    "id": KnownStat("number", _OF_A_RUN),
    "iter_num": KnownStat("number", device=False),
    "_r": KnownStat("number", device=False),
    "_pt": KnownStat("number", device=False),
    "_p": KnownStat("number", device=False),
    "_ct": KnownStat("number", device=False),
    "_c": KnownStat("number", device=False),
    "_a": KnownStat("number", device=False),
    "hlo_op": KnownStat("text"),
    "program_id": KnownStat("number"),
    # Not read on hosts: launches repeat them, and old files hold uninitialised memory there.
    "tf_op": KnownStat("text", _ALLOCATION),
    "shape": KnownStat("text", _ALLOCATION),
    "name": KnownStat("text", _NAMED_ITERATOR),
    "level 0": KnownStat("text", host=None),
    "annotation": KnownStat("text", host=None),
    "kernel_details": KnownStat("text", host=None),
    "memcpy_details": KnownStat("text", host=None),
    "memset_details": KnownStat("text", host=None),
    "equation": KnownStat("text", host=None),
    "hlo_category": KnownStat("text", host=None),
    "hlo_module": KnownStat("text", host=None),
    "symbol_id": KnownStat("number", host=None),
    "device_offset_ps": KnownStat("number", host=None),
    "device_duration_ps": KnownStat("number", host=None),
    "parent_id": KnownStat("number", _ITERATOR, device=False),
    "parallelism": KnownStat("number", _ITERATOR, device=False),
    "buffered_elements": KnownStat("number", _ITERATOR, device=False),
    "buffer_limit": KnownStat("number", _ITERATOR, device=False),
    "batch_size": KnownStat("number", _ITERATOR, device=False),
    "cycle_length": KnownStat("number", _ITERATOR, device=False),
    "cpu_budget": KnownStat("number", _ITERATOR, device=False),
    "threadpool_size": KnownStat("number", _ITERATOR, device=False),
    "autotune": KnownStat("text", _ITERATOR, device=False),
    "deterministic": KnownStat("text", _ITERATOR, device=False),
    "allocator_name": KnownStat("text", _ALLOCATION, device=False),
    "region_type": KnownStat("text", _ALLOCATION, device=False),
    "fragmentation": KnownStat("real", _ALLOCATION, device=False),
    "bytes_reserved": KnownStat("number", _ALLOCATION, device=False),
    "bytes_allocated": KnownStat("number", _ALLOCATION, device=False),
    "bytes_available": KnownStat("number", _ALLOCATION, device=False),
    "peak_bytes_in_use": KnownStat("number", _ALLOCATION, device=False),
    "requested_bytes": KnownStat("number", _ALLOCATION, device=False),
    "allocation_bytes": KnownStat("number", _ALLOCATION, device=False),
    "addr": KnownStat("number", _ALLOCATION, device=False),
    "data_type": KnownStat("number", _ALLOCATION, device=False),
    "index_on_host": KnownStat("number", _ALLOCATION, device=False),
    "device_ordinal": KnownStat("number", _ALLOCATION, device=False),
    # Not on events, but in a plane of its own: the compiled programs (`HostTrace.programs`).
    HLO_PROTO: KnownStat("text", host=None, device=False),
}

LINKS = frozenset({"iter_num", "_r", "_pt", "_p", "_ct", "_c", "_a"})
"""What connects events on different threads (`group_by_links`); nearly every event of a host carries some."""
BASE = frozenset(
    {
        "correlation_id",
        "graph_type",
        "group_id",
        "hlo_category",
        "id",
        "memcpy_details",
        "shape",
        "step_name",
        "step_num",
        "tf_function_call",
    }
)
"""Steps, the categories of their time, states of host threads, launches, and the environment."""
TFDATA = frozenset(name for name, stat in KNOWN.items() if stat.host in (_ITERATOR, _NAMED_ITERATOR))
"""Pipelines of tf.data (`find_pipelines`)."""
MEMORY = frozenset(name for name, stat in KNOWN.items() if stat.host == _ALLOCATION)
"""Allocations (`HostTrace.memory`)."""
HLO_OPS = frozenset({"hlo_op", "program_id", HLO_PROTO})
"""HLO ops and the compiled programs that they are part of (`HostTrace.programs`)."""
EAGER = frozenset({"is_func"})
"""What Python runs op by op (`eager_calls`, `run_from_python`)."""
HOST_OPS = HLO_OPS | EAGER | {"is_eager"}
"""Ops of host threads (`host_ops`)."""
DEVICE_OPS = HLO_OPS | {"hlo_module", "name", "annotation", "level 0", "tf_op"}
"""The ops behind what a GPU did (`device_work`)."""
DEFAULT = frozenset(KNOWN) - LINKS
"""All that tfperf knows, but for links."""


def wanted_stats(kind: PlaneKind, stats: frozenset[str], *, every: bool = False) -> WantedStats:
    """Return which of the stats to decode on planes of a kind.

    The type of a stat that tfperf does not know is guessed from the file. `every` adds all other stats, as one table.
    """
    types = {name: stat.type for name, stat in KNOWN.items() if name in stats and _is_read_on(kind, stat, stats)}
    narrow = {name: KNOWN[name].host or "" for name in types if kind == "host" and KNOWN[name].host}
    if not LINKS.isdisjoint(stats):
        narrow.pop("id", None)  # fetches and executors are linked by the ids of all events
    guesses: dict[str, Literal["guess"]] = dict.fromkeys(stats - KNOWN.keys(), "guess")
    return WantedStats({**types, **guesses}, narrow, every)


def _is_read_on(kind: PlaneKind, stat: KnownStat, stats: frozenset[str]) -> bool:
    if kind != "host":
        return stat.device
    return stat.host is not None and (stat.host != _ALLOCATION or reads_memory(stats))


def reads_memory(stats: frozenset[str]) -> bool:
    """Tell whether allocations are asked for: events of no duration that are left out otherwise."""
    return "allocator_name" in stats
