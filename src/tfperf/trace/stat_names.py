"""Which stats tfperf knows: the type of each, and the planes and events on which it is read.

Only what is asked for is decoded, so whoever reads a stat of a `HostTrace` declares its name. The sets below name what
the functions of this package read; `BASE` is always read, since steps and their categories need it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from tfperf.trace.event_names import carries_run_id, is_iterator, is_labelled_iterator, is_memory
from tfperf.trace.host_trace import PlaneKind
from tfperf.wire.event_columns import StatType
from tfperf.wire.hlo import HLO_PROTO
from tfperf.wire.stats import WantedStats


def _every(name: str) -> bool:
    return True


def _none(name: str) -> bool:
    return False


class KnownStat(NamedTuple):
    """The type of a stat, and where it means something.

    `host` accepts the names of host events that it is read on.
    """

    type: StatType
    host: Callable[[str], bool] = _every
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
    "id": KnownStat("number", carries_run_id),
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
    "tf_op": KnownStat("text", is_memory),
    "shape": KnownStat("text", is_memory),
    "name": KnownStat("text", is_labelled_iterator),
    "level 0": KnownStat("text", _none),
    "annotation": KnownStat("text", _none),
    "kernel_details": KnownStat("text", _none),
    "memcpy_details": KnownStat("text", _none),
    "memset_details": KnownStat("text", _none),
    "equation": KnownStat("text", _none),
    "hlo_category": KnownStat("text", _none),
    "hlo_module": KnownStat("text", _none),
    "symbol_id": KnownStat("number", _none),
    "device_offset_ps": KnownStat("number", _none),
    "device_duration_ps": KnownStat("number", _none),
    "parent_id": KnownStat("number", is_iterator, device=False),
    "parallelism": KnownStat("number", is_iterator, device=False),
    "buffered_elements": KnownStat("number", is_iterator, device=False),
    "buffer_limit": KnownStat("number", is_iterator, device=False),
    "batch_size": KnownStat("number", is_iterator, device=False),
    "cycle_length": KnownStat("number", is_iterator, device=False),
    "cpu_budget": KnownStat("number", is_iterator, device=False),
    "threadpool_size": KnownStat("number", is_iterator, device=False),
    "autotune": KnownStat("text", is_iterator, device=False),
    "deterministic": KnownStat("text", is_iterator, device=False),
    "allocator_name": KnownStat("text", is_memory, device=False),
    "region_type": KnownStat("text", is_memory, device=False),
    "fragmentation": KnownStat("real", is_memory, device=False),
    "bytes_reserved": KnownStat("number", is_memory, device=False),
    "bytes_allocated": KnownStat("number", is_memory, device=False),
    "bytes_available": KnownStat("number", is_memory, device=False),
    "peak_bytes_in_use": KnownStat("number", is_memory, device=False),
    "requested_bytes": KnownStat("number", is_memory, device=False),
    "allocation_bytes": KnownStat("number", is_memory, device=False),
    "addr": KnownStat("number", is_memory, device=False),
    "data_type": KnownStat("number", is_memory, device=False),
    "index_on_host": KnownStat("number", is_memory, device=False),
    "device_ordinal": KnownStat("number", is_memory, device=False),
    # Not on events, but in a plane of its own: the compiled programs (`HostTrace.programs`).
    HLO_PROTO: KnownStat("text", _none, device=False),
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
TFDATA = frozenset(name for name, stat in KNOWN.items() if stat.host in (is_iterator, is_labelled_iterator))
"""Pipelines of tf.data (`find_pipelines`)."""
MEMORY = frozenset(name for name, stat in KNOWN.items() if stat.host is is_memory)
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
    narrow = {name: KNOWN[name].host for name in types if kind == "host" and KNOWN[name].host is not _every}
    if not LINKS.isdisjoint(stats):
        narrow.pop("id", None)  # fetches and executors are linked by the ids of all events
    guesses: dict[str, Literal["guess"]] = dict.fromkeys(stats - KNOWN.keys(), "guess")
    return WantedStats({**types, **guesses}, narrow, every)


def _is_read_on(kind: PlaneKind, stat: KnownStat, stats: frozenset[str]) -> bool:
    if kind != "host":
        return stat.device
    return stat.host is not _none and (stat.host is not is_memory or reads_memory(stats))


def reads_memory(stats: frozenset[str]) -> bool:
    """Tell whether allocations are asked for: events of no duration that are left out otherwise."""
    return "allocator_name" in stats
