"""Time per op: on the device, and on host threads; and the time in which no op ran.

Host ops nest on their thread, so self time excludes the ops inside. Kernels on a GPU stream do not nest: total and
self time are the same. Times are summed over parallel threads, streams and devices; they are shares of op time, not
of wall time. Idle is wall-clock time: a device is idle while none of its streams works.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tfperf.analysis.tabular import Tabular
from tfperf.sections.ops.device_ops import gpu_ops, tensorflow_gpu_ops, tpu_ops
from tfperf.sections.ops.op_table import OpKey, OpTable, Tallies, Tally, cut, merge
from tfperf.trace.device.device_work import device_work

if TYPE_CHECKING:
    from tfperf.analysis.results import Host
    from tfperf.trace.host.host_ops import HostOps


class Ops(Tabular, frozen=True):
    """The op tables of a capture; that of `device` is of no place without a device."""

    home = ("ops", "ops")
    device: OpTable
    host: OpTable

    @property
    def sides(self) -> tuple[OpTable, ...]:
        """Return the tables that have rows, the device's first."""
        return tuple(table for table in (self.device, self.host) if len(table))


def analyze(host: Host) -> Ops:
    """Sum time per op."""
    return Ops(_device_table(host), _host_table(host.host_ops))


def combine(parts: list[Ops]) -> Ops:
    """Add up the op tables of several hosts."""
    devices = [part.device for part in parts if part.device.places]
    return Ops(merge(devices or [parts[0].device]), merge([part.host for part in parts]))


def shorten(ops: Ops, most: int) -> Ops:
    """Return the tables with so many ops each, and one row for all others."""
    if max(len(ops.device), len(ops.host)) <= most:
        return ops
    return Ops(cut(ops.device, most), cut(ops.host, most))


def _device_table(host: Host) -> OpTable:
    trace = host.trace
    if not trace.device_kind:
        return Tallies().table("device", idle_ps=None, time_ps=None, places=0)
    if host.as_tensorflow and trace.device_kind == "gpu":
        return tensorflow_gpu_ops(trace, device_work(trace, "tensorflow"))
    sums = tpu_ops(trace) if trace.device_kind == "tpu" else gpu_ops(trace, host.device_work)
    devices = host.device_times
    return sums.table(
        "device",
        idle_ps=sum(device.idle_ps for device in devices),
        time_ps=sum(device.wall_ps for device in devices),
        places=len(devices),
    )


def _host_table(host_ops: HostOps) -> OpTable:
    sums = Tallies()
    for index in np.flatnonzero(host_ops.count).tolist():
        op, hlo = host_ops.ops[index], host_ops.hlo.get(index, ("", ""))
        tally = Tally(
            occurrences=int(host_ops.count[index]),
            total_ps=int(host_ops.total_ps[index]),
            self_ps=int(host_ops.self_ps[index]),
            execution=int(host_ops.eager[index]),
        )
        sums.add(OpKey(op.name, op.type, *hlo), tally)
    busy_ps = sum(row.self_ps for row in sums.rows.values())
    return sums.table(
        "host", idle_ps=host_ops.idle_ps, time_ps=host_ops.idle_ps + busy_ps, places=host_ops.thread_count
    )
