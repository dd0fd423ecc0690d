"""Which call on the host launched which work of a device."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tfperf.arrays import NO_NUMBERS, Int64s
from tfperf.trace.host_trace import HostTrace


class LaunchLinks(NamedTuple):
    """Links from device work to the host: `device` rows (ascending) and the `host` row that launched each."""

    device: Int64s
    host: Int64s

    def of(self, rows: Int64s) -> Int64s:
        """Return the host row that launched each device row, -1 where the trace does not tell."""
        if not len(self.device):
            return np.full(len(rows), -1, np.int64)
        place = np.minimum(np.searchsorted(self.device, rows), len(self.device) - 1)
        return np.where(self.device[place] == rows, self.host[place], -1)


def launch_links(trace: HostTrace, device_rows: Int64s) -> LaunchLinks:
    """Link device work to the calls that launched it, by `correlation_id`; `device_rows` ascend."""
    stat = trace.stat("correlation_id")
    called = trace.on_host[stat.event] & (stat.value > 0)
    host, ids = stat.event[called].astype(np.int64), stat.value[called]
    if not len(host) or not len(device_rows):
        return LaunchLinks(NO_NUMBERS, NO_NUMBERS)
    order = np.argsort(ids, kind="stable")
    host, ids = host[order], ids[order]
    wanted = trace.number_at("correlation_id", device_rows, 0)
    place = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    known = ids[place] == wanted
    return LaunchLinks(device_rows[known], host[place[known]])
