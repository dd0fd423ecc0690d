"""Time per op on devices and host threads, and time without ops.

Host ops nest on their thread, so self time excludes nested ops. Kernels on a GPU stream do not nest: total and self
time are equal. Times are summed over parallel threads, streams and devices; they are shares of op time, not of wall
time. Idle time is wall time in which all streams of a device are idle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, Literal, NamedTuple

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from tfperf.analysis.registry import Host, TableSpec, Tabular, declared
from tfperf.base.arrays import (
    MOST,
    NO_NUMBERS,
    Bools,
    Int32s,
    Int64s,
    capped_sum,
    capped_sums,
    distinct,
    group_equal,
    lookup,
)
from tfperf.base.display import Plotted
from tfperf.base.patterns import Pattern
from tfperf.base.units import PS_PER_MS
from tfperf.formats.wire.event_columns import OP_LINES, Line
from tfperf.report.model import Data
from tfperf.trace.device.device_work import NO_TYPE, DeviceOp, DeviceWork, computing, device_work
from tfperf.trace.device.kernels import tensorflow_kernel, uses_tensor_cores
from tfperf.trace.event_names import mask, parse_op
from tfperf.trace.host.activities import Activity
from tfperf.trace.host.host_ops import EAGER, FUNCTION, UNKNOWN, Flags, HostOps
from tfperf.trace.host.launches import launch_links
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.nesting import innermost_around, nest, self_time
from tfperf.trace.steps.eager import run_from_python


class Ops(Plotted, Tabular, frozen=True):
    """The op tables of a capture; without a device, the table `device` is empty."""

    home = ("ops", "ops")
    device: OpTable
    host: OpTable

    @property
    def sides(self) -> tuple[OpTable, ...]:
        """Return the tables that have rows, the device first."""
        return tuple(table for table in (self.device, self.host) if len(table))


def analyze(host: Host) -> Ops:
    """Sum time per op."""
    return Ops(_device_table(host), _host_table(host.host_ops))


def combine(parts: list[Ops]) -> Ops:
    """Add up the op tables of several hosts."""
    devices = [part.device for part in parts if part.device.places]
    return Ops(merge(devices or [parts[0].device]), merge([part.host for part in parts]))


def shorten(ops: Ops, most: int) -> Ops:
    """Return the tables with the `most` largest ops each, and one row for all others."""
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
    devices = computing(host.device_times)
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


Side = Literal["device", "host"]
_EXECUTION_NAMES = {EAGER: "eager", FUNCTION: "function", UNKNOWN: None}
_SUMS = ("occurrences", "total_ps", "self_ps", "kernel_ps", "tensor_core_ps", "unclear_ps")
_BY_OP = (*_SUMS, "execution", "counts_kernels")


class OpKey(NamedTuple):
    """Key of a row: the framework op, and the HLO op if XLA compiled it (else empty)."""

    name: str
    type: str
    hlo_op: str = ""
    hlo_module: str = ""


OTHERS = OpKey("(other ops)", "(other ops)")


class Tally(Struct, kw_only=True):
    """Sums over the events of one op; the fields are those of `OpTable`."""

    occurrences: int = 0
    total_ps: int = 0
    self_ps: int = 0
    kernel_ps: int = 0
    tensor_core_ps: int = 0
    unclear_ps: int = 0
    counts_kernels: bool = False
    execution: int | None = None
    """None before the first `add`."""

    def add(self, other: Tally) -> None:
        """Add up; an op is eager if any part is, and a function only if all parts are."""
        self.occurrences += other.occurrences
        self.total_ps += other.total_ps
        self.self_ps += other.self_ps
        self.kernel_ps += other.kernel_ps
        self.tensor_core_ps += other.tensor_core_ps
        self.unclear_ps += other.unclear_ps
        self.counts_kernels |= other.counts_kernels
        flags = [flag for flag in (self.execution, other.execution) if flag is not None]
        self.execution = EAGER if EAGER in flags else min(flags, default=UNKNOWN)


class Tallies(Struct):
    """Sums of ops by key."""

    rows: dict[OpKey, Tally] = field(default_factory=dict)

    def add(self, key: OpKey, tally: Tally, *, at_least: int = 0) -> None:
        """Add to the row of an op that occurs at least `at_least` times."""
        row = self.rows.setdefault(key, Tally())
        row.add(tally)
        row.occurrences = max(row.occurrences, at_least)

    def table(self, side: Side, *, idle_ps: int | None, time_ps: int | None, places: int) -> OpTable:
        """Return the rows, the largest self time first, then by name."""
        ordered = sorted(self.rows.items(), key=lambda row: (-row[1].self_ps, *row[0]))
        sums: dict[str, Any] = {
            name: np.array([min(getattr(tally, name), MOST) for _, tally in ordered], np.int64) for name in _SUMS
        }
        flags = [UNKNOWN if tally.execution is None else tally.execution for _, tally in ordered]
        return OpTable(
            side=side,
            keys=tuple(key for key, _ in ordered),
            execution=np.array(flags, np.int8),
            counts_kernels=np.array([tally.counts_kernels for _, tally in ordered], np.bool_),
            idle_ps=idle_ps,
            time_ps=time_ps,
            places=places,
            **sums,
        )


class OpTable(Tabular, frozen=True, kw_only=True):
    """Ops of one side, the largest self time first; times are int64 picoseconds.

    `kernel_ps` is the time of kernels, `tensor_core_ps` of those on tensor cores, `unclear_ps` of those with unclear
    names. `execution` holds the flags of `trace/host/host_ops.py`. `counts_kernels` marks ops without recorded runs:
    their `occurrences` counts kernels and copies. `idle_ps` is the time without ops, `time_ps` the total that shares
    with idle refer to, and `places` the number of devices (threads) that both are summed over; None is unknown.
    """

    side: Side
    keys: tuple[OpKey, ...]
    occurrences: Int64s
    total_ps: Int64s
    self_ps: Int64s
    kernel_ps: Int64s
    tensor_core_ps: Int64s
    unclear_ps: Int64s
    execution: Flags
    counts_kernels: Bools
    idle_ps: int | None
    time_ps: int | None
    places: int
    lacking_ps: int = 0
    """Maximum self time missing from an op, because hosts with many ops merged their last ones into one row."""

    def _spec(self) -> TableSpec:
        return declared("ops", f"{self.side}_ops")

    def _data(self) -> Data:
        return self.columns()

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the framework names of the ops."""
        return tuple(key.name for key in self.keys)

    @property
    def types(self) -> tuple[str, ...]:
        """Return the types of the ops."""
        return tuple(key.type for key in self.keys)

    @property
    def idle_share(self) -> float | None:
        """Return the share of `time_ps` without ops."""
        return self.idle_ps / self.time_ps if self.idle_ps is not None and self.time_ps else None

    def matching(self, patterns: Sequence[Pattern]) -> Bools:
        """Return which ops match any pattern in name, type or HLO op; all ops without patterns."""
        if not patterns:
            return np.ones(len(self), np.bool_)
        texts = [text for key in self.keys for text in (key.name, key.type, key.hlo_op)]
        found = np.logical_or.reduce([pattern.found_in(texts) for pattern in patterns])
        return np.asarray(found.reshape(-1, 3).any(axis=1), np.bool_)

    @property
    def all_self_ps(self) -> float:
        """Return the self time of all ops; a float, because it may exceed int64."""
        return float(self.self_ps.sum(dtype=np.float64))

    def only(self, rows: Int64s) -> OpTable:
        """Return the table with only the ops at `rows`; totals of all ops stay."""
        columns = {name: getattr(self, name)[rows] for name in _BY_OP}
        return replace(self, keys=tuple(self.keys[row] for row in rows.tolist()), **columns)

    def under(self, keys: Sequence[OpKey]) -> OpTable:
        """Return the table with the key given for each op; ops with equal keys are added up.

        An op is eager if any part is, and a function only if all parts are.
        """
        places: dict[OpKey, int] = {}
        place_of = np.array([places.setdefault(key, len(places)) for key in keys], np.int64)
        order, starts = group_equal([place_of])
        if not len(order):
            return self
        ordered = {name: getattr(self, name)[order] for name in _BY_OP}
        flags = ordered["execution"]
        is_eager = np.maximum.reduceat(flags, starts) == EAGER
        columns: dict[str, Any] = {
            **{name: capped_sums(ordered[name], starts) for name in _SUMS},
            "execution": np.where(is_eager, np.int8(EAGER), np.minimum.reduceat(flags, starts)),
            "counts_kernels": np.logical_or.reduceat(ordered["counts_kernels"], starts),
        }
        times, found = columns["self_ps"].tolist(), tuple(places)
        rows = sorted(range(len(found)), key=lambda row: (-times[row], *found[row]))
        return replace(self, keys=found, **columns).only(np.array(rows, np.int64))

    def columns(self, keep: Bools | None = None, *, whole_ps: float | None = None) -> dict[str, list[object]]:
        """Return one row per op, times in milliseconds; None is unknown.

        `keep` (one entry per op) omits rows; ranks and shares remain those among all ops. `whole_ps` is the total that
        shares refer to, if it is more than the self time of these ops.
        """
        share = 100 * (self.self_ps / max(self.all_self_ps if whole_ps is None else whole_ps, 1.0))
        count = np.maximum(self.occurrences, 1)
        tensor_cores = zip(self.tensor_core_ps.tolist(), self.kernel_ps.tolist(), self.unclear_ps.tolist(), strict=True)
        columns: dict[str, list[object]] = {
            "rank": list(range(1, len(self) + 1)),
            "op_name": list(self.names),
            "op_type": list(self.types),
            "occurrences": self.occurrences.tolist(),
            "count_of": ["kernels" if kernels else "runs" for kernels in self.counts_kernels.tolist()],
            "total_ms": (self.total_ps / PS_PER_MS).tolist(),
            "average_ms": (self.total_ps / count / PS_PER_MS).tolist(),
            "self_ms": (self.self_ps / PS_PER_MS).tolist(),
            "average_self_ms": (self.self_ps / count / PS_PER_MS).tolist(),
            "device_mean_ms": (self.self_ps / max(self.places, 1) / PS_PER_MS).tolist(),
            "self_percent": share.tolist(),
            "cumulative_self_percent": np.cumsum(share).tolist(),
            "self_with_idle_percent": percent_of(self.self_ps, self.time_ps),
            "execution": [_EXECUTION_NAMES[flag] for flag in self.execution.tolist()],
            # None: no kernels, or unclear names.
            "tensor_core_percent": [
                100 * (used / whole) if whole and not unclear else None for used, whole, unclear in tensor_cores
            ],
            "hlo_op": [key.hlo_op or None for key in self.keys],
            "hlo_module": [key.hlo_module or None for key in self.keys],
        }
        if keep is None or keep.all():
            return columns
        rows = np.flatnonzero(keep).tolist()
        return {key: [values[row] for row in rows] for key, values in columns.items()}


def percent_of(self_ps: Int64s, time_ps: int | None) -> list[object]:
    """Return times in percent of a total; None if that is unknown or 0."""
    return (100.0 * self_ps / float(time_ps)).tolist() if time_ps else [None] * len(self_ps)


def merge(tables: list[OpTable]) -> OpTable:
    """Add up the tables of one side over hosts: equal ops, idle time, and the total that shares refer to."""
    if len(tables) == 1:
        return tables[0]
    together = replace(
        tables[0],
        keys=tuple(chain.from_iterable(table.keys for table in tables)),
        idle_ps=_sum_if_known([table.idle_ps for table in tables]),
        time_ps=_sum_if_known([table.time_ps for table in tables]),
        places=sum(table.places for table in tables),
        lacking_ps=sum(table.lacking_ps for table in tables),
        **{name: np.concatenate([getattr(table, name) for table in tables]) for name in _BY_OP},
    )
    return together.under(together.keys)


def cut(table: OpTable, most: int) -> OpTable:
    """Return the table with its first `most` ops, and one row (`OTHERS`) for all others, if there are any."""
    if len(table) <= most:
        return table
    keys = (*table.keys[:most], *[OTHERS] * (len(table) - most))
    return replace(table.under(keys), lacking_ps=table.lacking_ps + int(table.self_ps[most]))


def _sum_if_known(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


# With attribution `tensorflow`, GPU rows are those of TensorFlow: kernels without an op are omitted, an op occurs as
# often as the kernel that it launches most often, and idle time is the time from the first to the last event of a
# device, minus the summed time of ops.

KERNEL_WITHOUT_OP, _MEMSET, _MEMCPY = "kernel without op", "Memset", "Memcpy"
"""Types of rows without a known op."""
_TYPE_OF_COPY = {
    Activity.HOST_TO_DEVICE: "MemcpyH2D",
    Activity.DEVICE_TO_HOST: "MemcpyD2H",
    Activity.DEVICE_TO_DEVICE: "MemcpyD2D",
}
COPY_TYPES = frozenset((*_TYPE_OF_COPY.values(), _MEMSET, _MEMCPY))


class KernelSum(Struct, frozen=True, kw_only=True):
    """Sums over the events of one op and one kernel or copy name."""

    op: int
    """Index into `DeviceWork.ops`; -1 if the op is unknown."""
    kernel: str
    row: int
    """Row of one of the events in `DeviceWork`."""
    count: int
    time_ps: int
    execution: int


def gpu_ops(trace: HostTrace, work: DeviceWork) -> Tallies:
    """Sum all work by op; work without an op is listed by kernel name or copy kind."""
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
    """Return the op of a row of `DeviceWork`; without an op (-1), the kernel name or copy kind."""
    if op >= 0:
        return OpKey(*work.ops[op][:4])
    if not work.moves[row]:
        return OpKey(kernel, KERNEL_WITHOUT_OP)
    copy_type = _TYPE_OF_COPY.get(Activity(int(work.activity[row])), _MEMCPY)
    return OpKey(kernel, _MEMSET if work.is_memset[row] else copy_type)


def tensorflow_gpu_ops(trace: HostTrace, work: DeviceWork) -> OpTable:
    """Sum work with a known op, including copies; idle is the window of a device's events minus that sum."""
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
    idle_ps = 0
    for plane in trace.devices:
        lines = [line for line in trace.device_lines(plane) if line.stop > line.start]
        if lines:
            start = min(int(trace.start_ps[line.start : line.stop].min()) for line in lines)
            end = max(int(trace.end_ps[line.start : line.stop].max()) for line in lines)
            rows_with_op = work.rows[(work.plane == plane) & (work.op >= 0)]
            idle_ps += max(0, end - start - capped_sum(trace.duration_ps[rows_with_op]))
    busy_ps = sum(row.self_ps for row in sums.rows.values())
    return sums.table("device", idle_ps=idle_ps, time_ps=idle_ps + busy_ps, places=len(trace.devices))


def _kernel_sums(trace: HostTrace, work: DeviceWork) -> Iterator[KernelSum]:
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
    """Return for each name the first equal name, because each plane has its own names."""
    first_of: dict[str, int] = {}
    return np.array([first_of.setdefault(name, index) for index, name in enumerate(trace.names)], np.int64)


def _execution(trace: HostTrace, work: DeviceWork) -> Flags:
    """Return the execution flags of the op of each event: recorded on it, or from its launch on the host."""
    noted = trace.number_at("is_eager", work.rows, UNKNOWN)
    inside_eager_op = None if (noted >= 0).any() else run_from_python(trace)
    if inside_eager_op is None:
        return np.where(noted > 0, EAGER, noted).astype(np.int8)
    call = launch_links(trace, work.rows).of(work.rows)
    flags = np.where(call < 0, UNKNOWN, np.where(inside_eager_op[call], EAGER, FUNCTION))
    return flags.astype(np.int8)


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
    """Return a function that returns the op, with its program, of a name on an op line."""
    categories, framework_ops, programs = (trace.name_stat(stat) for stat in ("hlo_category", "tf_op", "program_id"))

    def key_of(name: int) -> OpKey:
        hlo_op = trace.display_names[name] or trace.names[name]
        category, op = str(categories.get(name, "")), parse_op(str(framework_ops.get(name, "")))
        program = programs.get(name)
        named = trace.programs.get(program) if isinstance(program, int) else None
        module = named.module if named else ""
        return OpKey(op.name or hlo_op, op.type or category, hlo_op if op.name else "", module)

    return key_of


# --- runs of GPU ops: executions, not kernels, because one execution may launch several kernels ---
# An op is counted by the first of these sources that covers all its kernels and copies, so that no count mixes two.
# Runs in CUDA graphs are known from the schedule of the program (`GraphOps`), and added to those of any source.
#
# 1. The host event of the op (`scope/MatMul:MatMul`, or an HLO op that XLA runs) around the call that launched them. It
#    is on the thread of the call or, if the GPU library records its calls on separate lines, on the line with most of
#    the events that contain the calls of that line.
# 2. The executor (`ExecutorState::Process`), or the call that runs an op eagerly, around the launching call: an op
#    launches all its work on one thread, so consecutive calls for one op are one run.
# 3. The op line that the profiler derived for the device: each event is a run. It merges consecutive runs, and splits a
#    run if streams take turns.
# 4. Without these, the kernels and copies themselves are counted.
#
# A capture that starts in the middle of a step lacks the calls of the first kernels. If the calls of at least half of
# the kernels of an op are recorded, the others count by their order on the stream: consecutive ones are one run.

_MOST_LOST = 0.5
_BEYOND_ROWS = 1 << 40
_EXECUTORS = ("ExecutorState::Process", "EagerExecute", "EagerLocalExecute", "EagerKernelExecute")


class OpRuns(NamedTuple):
    """Runs of each op of a `DeviceWork`; if unknown, its number of kernels and copies."""

    runs: Int64s
    is_known: Bools


class _Launched(NamedTuple):
    """Device events with a known op: its index, its text, and the call (host row, -1 if unknown)."""

    op: Int64s
    text: Int64s
    call: Int64s

    def at(self, rows: Int64s) -> _Launched:
        return _Launched(self.op[rows], self.text[rows], self.call[rows])


class _Names(NamedTuple):
    """Index of the text of each op, and of each name of the trace (-1 if it is not an op)."""

    of_op: Int64s
    of_name: Int64s

    @classmethod
    def of(cls, trace: HostTrace, ops: tuple[DeviceOp, ...]) -> _Names:
        index: dict[tuple[bool, str], int] = {}
        of_op = [index.setdefault((bool(op.hlo_op), op.hlo_op or op.name), len(index)) for op in ops]
        of_name = []
        for name in trace.names:
            framework = index.get((False, parse_op(name).name), -1) if ":" in name else -1
            of_name.append(framework if framework >= 0 else index.get((True, name), -1))
        return cls(np.array(of_op, np.int64), np.array(of_name, np.int64))


def op_runs(trace: HostTrace, work: DeviceWork) -> OpRuns:
    """Return the number of runs of each op."""
    places = np.flatnonzero(work.op >= 0)
    rows, op, ops = work.rows[places], work.op[places], len(work.ops)
    names = _Names.of(trace, work.ops)
    events = _Launched(op, names.of_op[op], launch_links(trace, rows).of(rows))
    lost = _lost_calls(trace.line_of[rows], events)
    if len(trace.graph_ops.rows):
        in_graph = np.append(trace.graph_ops.run, -1)[lookup(trace.graph_ops.rows, rows)]
        lost = np.where(in_graph >= 0, 2 * _BEYOND_ROWS + in_graph, lost)
    lines = [line for plane in trace.devices for line in trace.device_lines(plane, derived=True)]
    lines = [line for line in lines if line.name.partition(" - ")[0] in OP_LINES]
    name = np.concatenate([NO_NUMBERS, *(trace.name[line.start : line.stop] for line in lines)]).astype(np.int64)
    text = names.of_name[name]
    candidates = [
        _counted(op, np.where(lost >= 0, lost, _named_events(trace, events, names)), ops),
        _counted(op, np.where(lost >= 0, lost, _by_executor(trace, events)), ops),
        np.bincount(text[text >= 0], minlength=int(names.of_op.max(initial=-1)) + 1)[names.of_op],
    ]
    runs, is_known = np.bincount(op, minlength=ops).astype(np.int64), np.zeros(ops, np.bool_)
    for candidate in candidates:
        better = (candidate > 0) & ~is_known
        runs, is_known = np.where(better, candidate, runs), is_known | better
    return OpRuns(runs, is_known)


def _counted(op: Int64s, run: Int64s, ops: int) -> Int64s:
    """Return the number of distinct runs of each op; 0 if any of its events is in no run (-1)."""
    order = np.lexsort((run, op))
    op, run = op[order], run[order]
    is_first = np.ones(len(op), np.bool_)
    is_first[1:] = (op[1:] != op[:-1]) | (run[1:] != run[:-1])
    counts = np.bincount(op[is_first], minlength=ops)
    counts[op[run < 0]] = 0
    return counts.astype(np.int64)


def _lost_calls(line: Int32s, events: _Launched) -> Int64s:
    """Number the stretches of events without a call on a stream, for one op; -1 for all others.

    Numbers are larger than those of rows. Events are in the order of their streams.
    """
    is_lost = events.call < 0
    share = np.bincount(events.op, is_lost) / np.maximum(np.bincount(events.op), 1)
    is_new = np.ones(len(line), np.bool_)
    is_new[1:] = (line[1:] != line[:-1]) | (events.op[1:] != events.op[:-1]) | ~is_lost[:-1]
    return np.where(is_lost & (share[events.op] <= _MOST_LOST), _BEYOND_ROWS + np.cumsum(is_new), -1)


def _named_events(trace: HostTrace, events: _Launched, names: _Names) -> Int64s:
    """Return for each event the row of its op's host event around the call, -1 without one."""
    run = np.full(len(events.op), -1, np.int64)
    rows = trace.host_events(names.of_name >= 0)
    of_lines = [(line, rows[(rows >= line.start) & (rows < line.stop)]) for line in trace.host_lines]
    of_lines = [(line, on_line) for line, on_line in of_lines if len(on_line)]
    for line, places in _by_line(trace, events.call):
        launched, best = events.at(places), (0, np.full(len(places), -1, np.int64))
        # The thread of the calls comes first; among lines with equal counts, the first one.
        for _, on_line in sorted(of_lines, key=lambda each: each[0] != line):
            around = innermost_around(trace, on_line, trace.start_ps[launched.call])
            is_of_op = (around >= 0) & (names.of_name[trace.name[around]] == launched.text)
            matched = int(is_of_op.sum())
            if matched > best[0]:
                best = matched, np.where(is_of_op, around, -1)
            if 2 * best[0] > len(places):
                break
        run[places] = best[1]
    return run


def _by_executor(trace: HostTrace, events: _Launched) -> Int64s:
    """Number the stretches of calls of one op inside an event of `_EXECUTORS`; -1 for calls outside."""
    run = np.full(len(events.op), -1, np.int64)
    executors = trace.host_events(mask(trace.names, lambda name: name.startswith(_EXECUTORS)))
    first = 0
    for line, places in _by_line(trace, events.call):
        on_line = executors[(executors >= line.start) & (executors < line.stop)]
        if not len(on_line):
            continue
        around = innermost_around(trace, on_line, trace.start_ps[events.call[places]])
        places, around = places[around >= 0], around[around >= 0]
        order = np.lexsort((events.op[places], events.call[places], around))
        places, around = places[order], around[order]
        op = events.op[places]
        is_new = np.ones(len(places), np.bool_)
        is_new[1:] = (around[1:] != around[:-1]) | (op[1:] != op[:-1])
        run[places] = first + np.cumsum(is_new) - 1
        first += len(places)
    return run


def _by_line(trace: HostTrace, call: Int64s) -> Iterator[tuple[Line, Int64s]]:
    known = np.flatnonzero(call >= 0)
    of_line = trace.line_of[call[known]]
    for index in distinct(of_line).tolist():
        yield trace.lines[index], known[of_line == index]
