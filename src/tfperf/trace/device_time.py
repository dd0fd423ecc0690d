"""When each device was busy: with compute, with copies, with neither, in wall-clock time.

Streams of a device run side by side, so their times are united, not summed; all is on the clock of the trace.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tfperf.intervals import Intervals, capped_sum, difference, union_all, union_sorted
from tfperf.trace.activities import Activity, Codes, device_codes
from tfperf.trace.model import HostTrace, Line
from tfperf.trace.names import mask
from tfperf.trace.timeline import OP_LINES

COPIES = (Activity.HOST_TO_DEVICE, Activity.DEVICE_TO_HOST, Activity.DEVICE_TO_DEVICE)


@dataclass(frozen=True)
class DeviceTime:
    """One device: flat sets of intervals in picoseconds. `copies` holds memsets too, and may overlap `compute`."""

    plane: int
    name: str
    compute: Intervals
    copies: Intervals
    busy: Intervals
    kernel_sum_ps: int
    """Sum over kernels; more than `compute` holds where streams overlap."""
    copy_sum_ps: int
    begin_ps: int
    """Where the capture begins: the first event of the host or of any device."""
    end_ps: int

    @property
    def wall_ps(self) -> int:
        """Return the length of the capture."""
        return self.end_ps - self.begin_ps

    @property
    def copies_alone_ps(self) -> int:
        """Return how long the device only copied."""
        return difference(self.copies, self.compute).total()

    @property
    def idle_ps(self) -> int:
        """Return how long the device did nothing: compute + copies alone + idle = wall."""
        return self.wall_ps - self.busy.total()


def is_memset(name: str) -> bool:
    """Tell whether a device event fills memory, which is no kernel."""
    return name.lower().startswith(("memset", "hipmemset"))


def work_lines(trace: HostTrace, plane: int) -> tuple[Line, ...]:
    """Return the lines of a device that hold its work: recorded streams of a GPU, op lines of a TPU core."""
    lines = trace.device_lines(plane)
    return tuple(line for line in lines if line.name in OP_LINES) if trace.device_kind == "tpu" else lines


def device_times(trace: HostTrace) -> tuple[DeviceTime, ...]:
    """Return when each device that recorded anything was busy."""
    if not trace.devices:
        return ()
    codes = device_codes(trace, "corrected") if trace.device_kind == "gpu" else None
    begin, end = int(trace.begin_ps.min()), int(trace.end_ps.max())
    return tuple(_device_time(trace, plane, codes, begin, end) for plane in trace.devices)


def _device_time(trace: HostTrace, plane: int, codes: Codes | None, begin: int, end: int) -> DeviceTime:
    sets: dict[bool, list[Intervals]] = {False: [], True: []}
    sums = {False: 0, True: 0}
    fills = mask(trace.names, is_memset)
    for line in work_lines(trace, plane):
        rows = slice(line.start, line.stop)
        copying = fills[trace.name[rows]]
        if codes is not None:
            copying = copying | np.isin(codes[rows], COPIES)
        for copies in (False, True):
            mine = np.flatnonzero(copying == copies) + line.start
            sets[copies].append(union_sorted(trace.begin_ps[mine], trace.end_ps[mine]))
            sums[copies] += capped_sum(trace.duration_ps[mine])
    compute, copied = (union_all(sets[copies]) for copies in (False, True))
    busy = union_all([compute, copied])
    kernels = sums[False] if codes is not None else compute.total()  # ops on a TPU core nest
    return DeviceTime(plane, trace.planes[plane].name, compute, copied, busy, kernels, sums[True], begin, end)
