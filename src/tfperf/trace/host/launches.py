"""Links from device work to the host calls that launched it.

A call and its device work have the same `correlation_id`. Ids are unique on a host, also over several devices; one call
may launch several events (a CUDA graph). The id 0 means none, and an id of several calls identifies no call.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Int64s, lookup
from tfperf.trace.host_trace import HostTrace


class LaunchLinks(Struct, frozen=True):
    """Links from device work to the host: `device` rows (ascending) and the `host` row that launched each."""

    device: Int64s
    host: Int64s

    def of(self, rows: Int64s) -> Int64s:
        """Return the host row that launched each device row, -1 if unknown."""
        return np.append(self.host, -1)[lookup(self.device, rows)]


def launching_calls(trace: HostTrace) -> tuple[Int64s, Int64s]:
    """Return the rows of host events with an id, ascending, and their ids, which need not be unique."""
    stat = trace.stat("correlation_id")
    is_call = trace.on_host[stat.event] & (stat.value != 0)
    return stat.event[is_call].astype(np.int64), stat.value[is_call]


def launch_links(trace: HostTrace, device_rows: Int64s) -> LaunchLinks:
    """Link device work to the calls that launched it; `device_rows` ascend."""
    rows, ids = launching_calls(trace)
    order = np.argsort(ids, kind="stable")
    rows, ids = rows[order], ids[order]
    is_unique = np.ones(len(ids), np.bool_)
    is_unique[1:] &= ids[1:] != ids[:-1]
    is_unique[:-1] &= ids[1:] != ids[:-1]
    rows, ids = rows[is_unique], ids[is_unique]
    # The id 0 means no call.
    place = lookup(ids, trace.number_at("correlation_id", device_rows, 0))
    return LaunchLinks(device_rows[place >= 0], rows[place[place >= 0]])


def begun_before(runs: Int64s, calls: Int64s) -> int:
    """Return how many of a function's runs were called before the capture: they come first, the others in order.

    Both are starts in time order; no run begins before its call.
    """
    return max(0, int((np.searchsorted(runs, calls) - np.arange(len(calls))).max(initial=0)))
