"""When each device was busy with compute and with copies, in wall-clock time.

Streams of a device run side by side, so their times are united, not summed; all is on the clock of the trace.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import NO_NUMBERS, Bools, Int64s, Intervals, capped_sum, difference, union_all, union_sorted
from tfperf.formats.wire.event_columns import OP_LINES, Line
from tfperf.trace.event_names import mask
from tfperf.trace.host.activities import TPU_WAITS, Activity, Codes, device_codes, tpu_codes
from tfperf.trace.host_trace import HostTrace

COPIES = (Activity.HOST_TO_DEVICE, Activity.DEVICE_TO_HOST, Activity.DEVICE_TO_DEVICE)


class DeviceTime(Struct, frozen=True):
    """One device: flat sets of intervals in picoseconds. `copies` holds memsets too, and may overlap `compute`.

    Of a TPU core, `copies` is when it waits for data in an op, from the host or from another memory, and `compute` is
    when it runs other ops.
    """

    plane: int
    name: str
    compute: Intervals
    copies: Intervals
    busy: Intervals
    kernel_sum_ps: int
    """Sum over kernels; more than `compute` holds where streams overlap. Of a TPU core, the time in any op."""
    start_ps: int
    """Where the capture starts: the first event of the host or of any device. Of a TPU core, its first op: the profiler
    itself takes long to start and to stop."""
    end_ps: int

    @property
    def wall_ps(self) -> int:
        """Return the duration of the capture, of a TPU core from its first to its last op."""
        return self.end_ps - self.start_ps

    @property
    def copies_alone_ps(self) -> int:
        """Return how long the device only copied."""
        return difference(self.copies, self.compute).total()

    @property
    def idle_ps(self) -> int:
        """Return how long the device did nothing: compute + copies alone + idle = wall."""
        return self.wall_ps - self.busy.total()


def device_label(plane_name: str) -> str:
    """Return `GPU:0` for `/device:GPU:0`."""
    return plane_name.removeprefix("/device:") or plane_name


def is_memset(name: str) -> bool:
    """Tell whether a device event fills memory, which is not a kernel."""
    return name.lower().startswith(("memset", "hipmemset"))


def is_copy_of_any_kind(name: str) -> bool:
    """Tell whether the name is that of a copy, also where it does not say from where to where."""
    return name.lower().startswith(("memcpy", "hipmemcpy"))


def moves_data(trace: HostTrace, codes: Codes) -> Bools:
    """Tell, for every event as if it ran on a GPU, whether it copies or fills memory; all others are kernels.

    `codes` are those of `device_codes(trace, "corrected")`.
    """
    by_code = np.zeros(256, np.bool_)
    by_code[list(COPIES)] = True
    by_name = mask(trace.names, lambda name: is_memset(name) or is_copy_of_any_kind(name))
    moves: Bools = by_code[codes] | by_name[trace.name]
    return moves


def work_lines(trace: HostTrace, plane: int) -> tuple[Line, ...]:
    """Return the lines of a device that hold its work: recorded streams of a GPU, op lines of a TPU core."""
    lines = trace.device_lines(plane)
    return tuple(line for line in lines if line.name in OP_LINES) if trace.device_kind == "tpu" else lines


def work_rows(trace: HostTrace, plane: int) -> Int64s:
    """Return the rows of what a device did, in row order."""
    return np.concatenate([NO_NUMBERS, *(np.arange(line.start, line.stop) for line in work_lines(trace, plane))])


def device_times(trace: HostTrace) -> tuple[DeviceTime, ...]:
    """Return when each device that recorded anything was busy."""
    if not trace.devices:
        return ()
    if trace.device_kind == "tpu":
        moves = np.isin(tpu_codes(trace), np.array(TPU_WAITS, np.uint8))
    else:
        moves = moves_data(trace, device_codes(trace, "corrected"))
    return tuple(_device_time(trace, plane, moves) for plane in trace.devices)


def _device_time(trace: HostTrace, plane: int, moves: Bools) -> DeviceTime:
    sets: dict[bool, list[Intervals]] = {False: [], True: []}
    kernel_sum_ps = 0
    for line in work_lines(trace, plane):
        copying = moves[line.start : line.stop]
        for copies in (False, True):
            rows = np.flatnonzero(copying == copies) + line.start
            sets[copies].append(union_sorted(trace.start_ps[rows], trace.end_ps[rows]))
            kernel_sum_ps += 0 if copies else capped_sum(trace.duration_ps[rows])
    compute, copied = union_all(sets[False]), union_all(sets[True])
    name, busy = trace.planes[plane].name, union_all([compute, copied])
    span = trace.extent_ps
    if trace.device_kind == "tpu":  # ops nest: a loop waits where an op in it does
        compute, kernel_sum_ps = difference(compute, copied), busy.total()
        span = (int(busy.start[0]), int(busy.end[-1])) if len(busy.start) else span
    return DeviceTime(plane, name, compute, copied, busy, kernel_sum_ps, *span)
