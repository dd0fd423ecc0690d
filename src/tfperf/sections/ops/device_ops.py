"""Time per op on devices: kernels and copies of GPUs by the op behind them, and the op lines of TPU cores.

Attribution `tensorflow` has TensorFlow's rows for a GPU: kernels without an op are omitted, an op occurs as often as
the kernel that it launches most often, and what is idle is the time from the first event of a device to its last, less
the summed time of ops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import MOST, Int64s, capped_sum
from tfperf.formats.wire.event_columns import OP_LINES, Line
from tfperf.sections.ops.op_runs import op_runs
from tfperf.sections.ops.op_table import OpKey, OpTable, Tallies, Tally
from tfperf.trace.device.device_work import NO_TYPE, DeviceWork
from tfperf.trace.device.tensor_cores import tensorflow_kernel, uses_tensor_cores
from tfperf.trace.event_names import parse_op
from tfperf.trace.host.activities import Activity
from tfperf.trace.host.host_ops import EAGER, FUNCTION, UNKNOWN, Flags
from tfperf.trace.host.launches import launch_links
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.nesting import nest, self_time
from tfperf.trace.steps.eager_events import run_from_python

KERNEL_WITHOUT_OP, _MEMSET, _MEMCPY = "kernel without op", "Memset", "Memcpy"
"""Types of rows that no op is known of."""
_TYPE_OF_COPY = {
    Activity.HOST_TO_DEVICE: "MemcpyH2D",
    Activity.DEVICE_TO_HOST: "MemcpyD2H",
    Activity.DEVICE_TO_DEVICE: "MemcpyD2D",
}
COPY_TYPES = frozenset((*_TYPE_OF_COPY.values(), _MEMSET, _MEMCPY))


class KernelSum(Struct, frozen=True, kw_only=True):
    """What the events of one op and one kernel name (or name of a copy) add up to."""

    op: int
    """Index into `DeviceWork.ops`; -1: no op is known."""
    kernel: str
    row: int
    """One of the events: its row of `DeviceWork`."""
    count: int
    time_ps: int
    execution: int


# --- kernels and copies of GPUs ---


def gpu_ops(trace: HostTrace, work: DeviceWork) -> Tallies:
    """Sum all work by op; what no op is known of goes by the name of the kernel, or by the kind of copy."""
    sums, runs = Tallies(), op_runs(trace, work)
    for kernel in _kernel_sums(trace, work):
        tally = Tally(total_ps=kernel.time_ps, self_ps=kernel.time_ps, execution=kernel.execution)
        tally.occurrences = kernel.count if kernel.op < 0 else 0
        if not work.moves[kernel.row]:
            uses = uses_tensor_cores(kernel.kernel)
            tally.kernel_ps = kernel.time_ps
            tally.tensor_core_ps = kernel.time_ps if uses else 0
            tally.unclear_ps = kernel.time_ps if uses is None else 0
        sums.add(key_of_row(work, kernel.op, kernel.kernel, kernel.row), tally)
    for op, count, is_known in zip(work.ops, runs.runs.tolist(), runs.is_known.tolist(), strict=True):
        sums.add(OpKey(*op[:4]), Tally(occurrences=count, counts_kernels=not is_known))
    return sums


def key_of_row(work: DeviceWork, op: int, kernel: str, row: int) -> OpKey:
    """Return the op of a row of `DeviceWork`; of one without any (-1), the name of the kernel or the kind of copy."""
    if op >= 0:
        return OpKey(*work.ops[op][:4])
    if not work.moves[row]:
        return OpKey(kernel, KERNEL_WITHOUT_OP)
    copy_type = _TYPE_OF_COPY.get(Activity(int(work.activity[row])), _MEMCPY)
    return OpKey(kernel, _MEMSET if work.is_memset[row] else copy_type)


def tensorflow_gpu_ops(trace: HostTrace, work: DeviceWork) -> OpTable:
    """Sum what an op is known of, copies too; on each device, the window of all events less that sum is idle."""
    has_old_rules = trace.has_groups
    sums = Tallies()
    for kernel in _kernel_sums(trace, work):
        if kernel.op < 0:
            continue
        time_ps, op = kernel.time_ps, work.ops[kernel.op]
        uses = tensorflow_kernel(kernel.kernel, old=has_old_rules)
        tally = Tally(
            total_ps=time_ps, self_ps=time_ps, kernel_ps=time_ps, counts_kernels=True, execution=kernel.execution
        )
        tally.tensor_core_ps = time_ps if uses else 0
        sums.add(OpKey(op.name, op.type or NO_TYPE), tally, at_least=kernel.count)
    idle_ps = sum(_tensorflow_idle_ps(trace, work, plane) for plane in trace.devices)
    busy_ps = sum(row.self_ps for row in sums.rows.values())
    return sums.table("device", idle_ps=idle_ps, time_ps=idle_ps + busy_ps, places=len(trace.devices))


def _tensorflow_idle_ps(trace: HostTrace, work: DeviceWork, plane: int) -> int:
    lines = [line for line in trace.device_lines(plane) if line.stop > line.start]
    if not lines:
        return 0
    start = min(int(trace.start_ps[line.start : line.stop].min()) for line in lines)
    end = max(int(trace.end_ps[line.start : line.stop].max()) for line in lines)
    rows_with_op = work.rows[(work.plane == plane) & (work.op >= 0)]
    return max(0, end - start - capped_sum(trace.duration_ps[rows_with_op]))


def _kernel_sums(trace: HostTrace, work: DeviceWork) -> Iterator[KernelSum]:
    """Iterate over what each kernel name of each op adds up to."""
    if not len(work.rows):
        return
    name_count, same_names = len(trace.names), equal_names(trace)
    combined = (work.op + 1) * name_count + same_names[trace.name[work.rows]]
    keys, first, which = np.unique(combined, return_index=True, return_inverse=True)
    which = which.reshape(-1)
    flags = _execution(trace, work)
    eager, unknown = (np.bincount(which[flags == flag], minlength=len(keys)) for flag in (EAGER, UNKNOWN))
    columns = (
        keys // name_count - 1,
        keys % name_count,
        first,
        np.bincount(which),
        np.minimum(np.bincount(which, weights=trace.duration_ps[work.rows]), MOST).astype(np.int64),
        np.where(eager > 0, EAGER, np.where(unknown > 0, UNKNOWN, FUNCTION)),
    )
    for op, name, row, count, time_ps, execution in zip(*(column.tolist() for column in columns), strict=True):
        yield KernelSum(op=op, kernel=trace.names[name], row=row, count=count, time_ps=time_ps, execution=execution)


def equal_names(trace: HostTrace) -> Int64s:
    """Return for each name the first that reads the same: each plane has its own names."""
    first_of: dict[str, int] = {}
    return np.array([first_of.setdefault(name, index) for index, name in enumerate(trace.names)], np.int64)


def _execution(trace: HostTrace, work: DeviceWork) -> Flags:
    """Return how the op behind each event was run: as noted on it, or by where on the host it was launched."""
    noted = trace.number_at("is_eager", work.rows, UNKNOWN)
    inside_eager_op = None if (noted >= 0).any() else run_from_python(trace)
    if inside_eager_op is None:
        return np.where(noted > 0, EAGER, noted).astype(np.int8)
    call = launch_links(trace, work.rows).of(work.rows)
    flags = np.where(call < 0, UNKNOWN, np.where(inside_eager_op[call], EAGER, FUNCTION))
    return flags.astype(np.int8)


# --- ops of TPU cores ---


def tpu_ops(trace: HostTrace) -> Tallies:
    """Sum the op line of each core; ops nest (a while loop contains its body)."""
    key_of = tpu_keys(trace)
    sums = Tallies()
    for line in tpu_op_lines(trace):
        rows = slice(line.start, line.stop)
        self_ps = self_time(trace.duration_ps[rows], nest(trace.start_ps[rows], trace.end_ps[rows]).parent)
        names, which = np.unique(trace.name[rows], return_inverse=True)
        count, total, self_total = (np.bincount(which, weights) for weights in (None, trace.duration_ps[rows], self_ps))
        for row, name in enumerate(names.tolist()):
            tally = Tally(occurrences=int(count[row]), total_ps=int(total[row]), self_ps=int(self_total[row]))
            tally.execution = FUNCTION
            sums.add(key_of(name), tally)
    return sums


def tpu_op_lines(trace: HostTrace) -> list[Line]:
    """Return the op lines of cores."""
    lines = (line for line in trace.lines if line.plane in trace.devices and line.name in OP_LINES)
    return [line for line in lines if line.stop > line.start]


def tpu_keys(trace: HostTrace) -> Callable[[int], OpKey]:
    """Return the function that gives the op of a name on a line of ops, with the program that it is of."""
    categories, framework_ops, programs = (trace.name_stat(stat) for stat in ("hlo_category", "tf_op", "program_id"))

    def key_of(name: int) -> OpKey:
        hlo_op = trace.display_names[name] or trace.names[name]
        category, op = str(categories.get(name, "")), parse_op(str(framework_ops.get(name, "")))
        program = programs.get(name)
        named = trace.programs.get(program) if isinstance(program, int) else None
        module = named.module if named else ""
        return OpKey(op.name or hlo_op, op.type or category, hlo_op if op.name else "", module)

    return key_of
