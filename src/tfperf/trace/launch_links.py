"""Which call on the host launched which work of a device."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tfperf.arrays import Int64s, lookup
from tfperf.trace.host_trace import HostTrace


class LaunchLinks(NamedTuple):
    """Links from device work to the host: `device` rows (ascending) and the `host` row that launched each."""

    device: Int64s
    host: Int64s

    def of(self, rows: Int64s) -> Int64s:
        """Return the host row that launched each device row, -1 where the trace does not tell."""
        return np.append(self.host, -1)[lookup(self.device, rows)]


def launch_links(trace: HostTrace, device_rows: Int64s) -> LaunchLinks:
    """Link device work to the calls that launched it, by `correlation_id`; `device_rows` ascend."""
    stat = trace.stat("correlation_id")
    called = trace.on_host[stat.event] & (stat.value > 0)
    host, ids = stat.event[called].astype(np.int64), stat.value[called]
    order = np.argsort(ids, kind="stable")
    place = lookup(ids[order], trace.number_at("correlation_id", device_rows, 0))
    return LaunchLinks(device_rows[place >= 0], host[order][place[place >= 0]])
