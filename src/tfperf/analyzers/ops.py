"""Time per op: on the device, and on host threads; and the time in which no op ran.

Host ops nest on their thread, so self time excludes the ops inside. Kernels on a GPU stream do not nest: total and
self time are the same. Times are summed over parallel threads, streams and devices; they are shares of op time, not
of wall time. Idle is wall-clock time: a device idles while none of its streams works.

Attribution `tensorflow` has TensorFlow's rows: kernels without an op are left out, and what idles is the time from the
first event of a device to its last, less the summed time of ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tfperf.analyzers.op_table import OpKey, OpTable, Side, Tallies, Tally, merge
from tfperf.arrays import MOST, Bools, Int64s, capped_sum, distinct
from tfperf.trace.activities import Activity, Attribution
from tfperf.trace.device_time import OP_LINES, DeviceTime, device_times
from tfperf.trace.device_work import NO_TYPE, DeviceWork, device_work
from tfperf.trace.eager_events import run_from_python
from tfperf.trace.event_names import parse_op
from tfperf.trace.group_spans import stored_groups
from tfperf.trace.host_ops import EAGER, FUNCTION, UNKNOWN, Flags, HostOps, host_ops
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.nesting import nest, self_time
from tfperf.trace.tensor_cores import tensorflow_kernel, uses_tensor_cores

__all__ = ["KERNEL_WITHOUT_OP", "MEMSET", "OpTable", "Ops", "Side", "analyze", "combine"]

KERNEL_WITHOUT_OP, MEMSET = "kernel without op", "Memset"
_COPY_TYPES = {
    Activity.HOST_TO_DEVICE: "MemcpyH2D", Activity.DEVICE_TO_HOST: "MemcpyD2H", Activity.DEVICE_TO_DEVICE: "MemcpyD2D",
}  # fmt: skip


@dataclass(frozen=True)
class Ops:
    """The op tables of a capture; `device` is None without a device."""

    device: OpTable | None
    host: OpTable


def analyze(
    trace: HostTrace,
    attribution: Attribution = "corrected",
    host: HostOps | None = None,
    work: DeviceWork | None = None,
    times: Sequence[DeviceTime] | None = None,
) -> Ops:
    """Sum time per op.

    `host`, `work` and `times` are what `host_ops`, `device_work` and `device_times` return for this trace; each saves
    a search where that was done before.
    """
    table = _host_table(host or host_ops(trace, attribution))
    if not trace.device_kind:
        return Ops(None, table)
    if attribution == "tensorflow" and trace.device_kind == "gpu":
        return Ops(_as_tensorflow(trace, work or device_work(trace, attribution)), table)
    times = device_times(trace) if times is None else times
    idle, wall = sum(own.idle_ps for own in times), sum(own.wall_ps for own in times)
    sums = _tpu_ops(trace) if trace.device_kind == "tpu" else _gpu_ops(trace, work or device_work(trace))
    return Ops(sums.table("device", idle, wall, len(times)), table)


def combine(parts: list[Ops]) -> Ops:
    """Add up the op tables of several hosts."""
    devices = [part.device for part in parts if part.device is not None]
    return Ops(merge(devices) if devices else None, merge([part.host for part in parts]))


def _host_table(host: HostOps) -> OpTable:
    sums = Tallies()
    numbers = (host.count.tolist(), host.total_ps.tolist(), host.self_ps.tolist(), host.eager.tolist())
    for index in np.flatnonzero(host.count).tolist():
        op, hlo = host.ops[index], host.hlo.get(index, ("", ""))
        count, total, own, eager = (column[index] for column in numbers)
        sums.add(OpKey(op.name, op.type, *hlo), Tally(count, total, own, eager=eager))
    busy = sum(row.self_ps for row in sums.rows.values())
    return sums.table("host", host.idle_ps, host.idle_ps + busy, host.thread_count)


# --- kernels and copies of GPUs ---


def _gpu_ops(trace: HostTrace, work: DeviceWork) -> Tallies:
    """Sum all work by op; what no op is known of stands under the name of the kernel, or the kind of copy."""

    def key(op: int, name: int, at: int) -> OpKey:
        if op >= 0:
            return OpKey(*work.ops[op][:4])
        if not work.moves[at]:
            return OpKey(trace.names[name], KERNEL_WITHOUT_OP)
        copied = _COPY_TYPES.get(Activity(int(work.activity[at])), "Memcpy")
        return OpKey(trace.names[name], MEMSET if work.is_memset[at] else copied)

    flags = _device_flags(trace, work)
    sums = Tallies()
    for op, name, at, count, time, eager in _by_kernel(trace, work, flags):
        tally = Tally(0, time, time, eager=eager)
        if not work.moves[at]:
            uses = uses_tensor_cores(trace.names[name])
            tally.kernel_ps, tally.tensor_core_ps, tally.unclear_ps = time, time * (uses is True), time * (uses is None)
        _add_kernel(sums, key(op, name, at), tally, count)
    return sums


def _as_tensorflow(trace: HostTrace, work: DeviceWork) -> OpTable:
    """Sum what an op is known of, copies too; on each device, the window of all events less that sum is idle."""
    old = stored_groups(trace) is not None
    sums, idle = Tallies(), 0
    for op, name, _, count, time, eager in _by_kernel(trace, work, _device_flags(trace, work)):
        if op < 0:
            continue
        tally = Tally(0, time, time, time, eager=eager)
        tally.tensor_core_ps = time * tensorflow_kernel(trace.names[name], old=old)
        own = work.ops[op]
        _add_kernel(sums, OpKey(own.name, own.type or NO_TYPE), tally, count)
    for plane in trace.devices:
        lines = [line for line in trace.device_lines(plane) if line.stop > line.start]
        if not lines:
            continue
        begin = min(int(trace.start_ps[line.start : line.stop].min()) for line in lines)
        end = max(int(trace.end_ps[line.start : line.stop].max()) for line in lines)
        known = work.rows[(work.plane == plane) & (work.op >= 0)]
        idle += max(0, end - begin - capped_sum(trace.duration_ps[known]))
    busy = sum(row.self_ps for row in sums.rows.values())
    return sums.table("device", idle, idle + busy, len(trace.devices))


def _by_kernel(
    trace: HostTrace, work: DeviceWork, flags: Flags
) -> list[tuple[int, int, int, int, int, int]]:  # fmt: skip
    """Return for each op and kernel name: op, name, one place in `work`, how often, how long, and how it was run."""
    if not len(work.rows):
        return []
    names = _same_names(trace)[trace.name[work.rows]]
    found, first, which = np.unique(
        (work.op + 1) * len(trace.names) + names, return_index=True, return_inverse=True
    )  # fmt: skip
    which = which.reshape(-1)
    count = np.bincount(which)
    time = np.minimum(np.bincount(which, weights=trace.duration_ps[work.rows]), MOST)
    eager, unknown = (np.bincount(which[flags == flag], minlength=len(found)) for flag in (EAGER, UNKNOWN))
    execution = np.where(eager > 0, EAGER, np.where(unknown > 0, UNKNOWN, FUNCTION))
    columns = (found // len(trace.names) - 1, found % len(trace.names), first, count, time, execution)
    return list(zip(*(column.astype(np.int64).tolist() for column in columns), strict=True))


def _same_names(trace: HostTrace) -> Int64s:
    """Return for each name the first that reads the same: each plane has its own."""
    first: dict[str, int] = {}
    return np.array([first.setdefault(name, at) for at, name in enumerate(trace.names)], np.int64)


def _add_kernel(sums: Tallies, key: OpKey, tally: Tally, count: int) -> None:
    """Add a kernel to its op, which occurs as often as the kernel that it launches most often."""
    row = sums.add(key, tally)
    row.occurrences = max(row.occurrences, count)


def _device_flags(trace: HostTrace, work: DeviceWork) -> Flags:
    """Return how the op behind each event was run: as noted on it, or by where on the host it was launched."""
    noted = trace.number_at("is_eager", work.rows, UNKNOWN)
    inside = None if (noted >= 0).any() else run_from_python(trace)
    if inside is None:
        return np.where(noted > 0, EAGER, noted).astype(np.int8)
    stat = trace.stat("correlation_id")
    on_host = trace.on_host[stat.event]
    launched = distinct(stat.value[on_host])
    eagerly = distinct(stat.value[on_host & inside[stat.event]])
    own = trace.number_at("correlation_id", work.rows, -1)
    flags = np.where(_holds(launched, own), FUNCTION, UNKNOWN)
    return np.where(_holds(eagerly, own), EAGER, flags).astype(np.int8)


def _holds(ascending: npt.NDArray[np.signedinteger], values: Int64s) -> Bools:
    """Tell which values are in an ascending array."""
    if not len(ascending):
        return np.zeros(len(values), np.bool_)
    place = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    return np.asarray(ascending[place] == values)


# --- ops of TPU cores ---


def _tpu_ops(trace: HostTrace) -> Tallies:
    """Sum the op line of each core; ops nest (a while loop contains its body)."""
    category, framework = (trace.name_stat(stat) for stat in ("hlo_category", "tf_op"))
    sums = Tallies()
    for line in trace.lines:
        if line.plane not in trace.devices or line.name not in OP_LINES or line.stop == line.start:
            continue
        rows = slice(line.start, line.stop)
        own = self_time(trace.duration_ps[rows], nest(trace.start_ps[rows], trace.end_ps[rows]).parent)
        names, which = np.unique(trace.name[rows], return_inverse=True)
        count, total, self_sum = (
            np.bincount(which, weights=values) for values in (None, trace.duration_ps[rows], own)
        )  # fmt: skip
        for position, name in enumerate(names.tolist()):
            shown = trace.display_names[name] or trace.names[name]
            key = _tpu_key(shown, str(category.get(name, "")), str(framework.get(name, "")))
            sums.add(key, Tally(int(count[position]), int(total[position]), int(self_sum[position]), eager=FUNCTION))
    return sums


def _tpu_key(hlo_op: str, category: str, framework: str) -> OpKey:
    op = parse_op(framework)
    return OpKey(op.name, op.type or category, hlo_op) if op.name else OpKey(hlo_op, category)
