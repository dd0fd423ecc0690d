"""When the instructions of XLA's programs ran: the events of a host or of its devices, added up by instruction.

On a GPU an instruction is what its kernels take, and one run of it may launch several. On a TPU core instructions nest,
so a loop is without its body. On a host, the event of an instruction lasts until its work is handed out, and another,
`end: NAME`, says when it is done: the time between is an upper bound, since it holds waiting for threads, and
instructions overlap.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.arrays import MOST, Int32s, Int64s, Intervals, capped_sum, covers, group_equal, lookup, union
from tfperf.formats.wire.event_columns import MODULE_LINE, OP_LINES
from tfperf.sections.ops.op_runs import op_runs
from tfperf.trace.device.device_work import DeviceOp, DeviceWork, trace_texts
from tfperf.trace.device.tpu_runs import module_name, program_in_name
from tfperf.trace.event_names import mask
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.nesting import nest, self_time

Place = Literal["gpu", "tpu", "cpu"]


class Key(NamedTuple):
    """Which instruction: the id of its program, the name of that as far as events say it, and its own.

    An id is the int64 that keeps its bits; None: unknown.
    """

    program: int | None
    module: str
    op: str


class OpTime(Struct, frozen=True, kw_only=True):
    """What the events of one instruction add up to, over devices or threads; times are picoseconds.

    Time is without what is inside (TPU), summed over kernels (GPU), or goes to the end of each run, which is an upper
    bound (host).
    """

    key: Key
    runs: int
    is_estimated: bool = False
    """Whether runs are counted by kernels, since nothing tells which kernels one run launched."""
    events: int
    time_ps: int
    least_ps: int | None = None
    """On a host, the time until its work is handed out: a lower bound."""
    in_steps: int = 0
    """Those of the events that start in the steps that count."""
    devices: int = 0
    pass_flops: int | None = None
    """On a TPU, the operations that events of a kernel state: those of one pass through its body."""
    name: int
    """The name of its longest event: index into the names of the trace."""


class ProgramRuns(NamedTuple):
    """Runs of a program on TPU cores: its name, how many, and how long they take together."""

    name: str
    runs: int
    time_ps: int


class OpTimes(Struct, frozen=True, kw_only=True):
    """All instructions that ran, and where; `busy` is when any of a program was under way, by program id.

    `programs` are the runs that cores of TPUs record, some of which have no instruction that takes time.
    """

    place: Place | None
    ops: tuple[OpTime, ...] = ()
    busy_ps: dict[int | None, int] = {}
    programs: dict[int, ProgramRuns] = {}


def op_times(
    trace: HostTrace, work: DeviceWork, steps: Intervals, on_cores: Mapping[int, Intervals] | None = None
) -> OpTimes:
    """Return what instructions took: on the devices if there are any, else on the host.

    `steps` is when the steps that count are under way, as a flat set; `on_cores` the same for each core of a TPU, by
    the index of its plane.
    """
    if trace.device_kind == "gpu":
        return _on_gpu(trace, work, steps)
    return _on_tpu(trace, steps, on_cores or {}) if trace.device_kind == "tpu" else _on_host(trace)


# --- GPUs ---


def _on_gpu(trace: HostTrace, work: DeviceWork, steps: Intervals) -> OpTimes:
    places = np.flatnonzero(trace.number_at("hlo_op", work.rows, -1) >= 0)
    if not len(places):
        return OpTimes(place="gpu")
    rows = work.rows[places]
    groups = _Groups.of(_key_columns(trace, rows, trace.number_at("hlo_module", rows, -1)))
    keys = _keys(trace, groups.values)
    op = np.full(len(work.rows), -1, np.int64)
    op[places] = groups.of_row
    ops = tuple(DeviceOp("", "", key.op, key.module) for key in keys)
    runs = op_runs(trace, replace(work, op=op, ops=ops))
    kernels = np.bincount(groups.of_row, minlength=len(keys))
    is_known = runs.is_known & (runs.runs <= kernels)
    counts = np.where(is_known, runs.runs, _most_of_one_name(groups.of_row, trace.name[rows], len(keys)))
    pairs, first_of_pair = group_equal([groups.of_row, work.plane[places]])
    devices = np.bincount(groups.of_row[pairs[first_of_pair]], minlength=len(keys))
    sums = groups.sums(trace.duration_ps[rows])
    in_steps = groups.sums(covers(steps, trace.start_ps[rows]).astype(np.int64))
    names = trace.name[rows][groups.longest(trace.duration_ps[rows])]
    columns: dict[str, npt.NDArray[Any]] = {
        "runs": counts,
        "is_estimated": ~is_known,
        "events": kernels,
        "time_ps": sums,
        "in_steps": in_steps,
        "devices": devices,
        "name": names,
    }
    found = _op_times(keys, columns)
    return OpTimes(place="gpu", ops=found, busy_ps=_summed(found))


def _most_of_one_name(op: Int64s, name: Int32s, count: int) -> Int64s:
    """Return how often the kernel name runs that an instruction has most of: a run launches it at least once."""
    order, starts = group_equal([op, name.astype(np.int64)])
    most = np.zeros(count, np.int64)
    np.maximum.at(most, op[order[starts]], np.diff(starts, append=len(order)))
    return most


# --- TPU cores ---


def _on_tpu(trace: HostTrace, steps: Intervals, on_cores: Mapping[int, Intervals]) -> OpTimes:
    """Sum the op line of each core; runs are events."""
    programs = trace.name_stat("program_id")
    stated = trace.stat("flops")
    stating, first = np.unique(trace.name[stated.event], return_index=True)
    pass_flops = dict(zip(stating.tolist(), stated.value[first].tolist(), strict=True))
    ran = _program_runs(trace)
    found: dict[Key, OpTime] = {}
    for line in trace.lines:
        if line.plane not in trace.devices or line.name not in OP_LINES or line.stop == line.start:
            continue
        rows = slice(line.start, line.stop)
        self_ps = self_time(trace.duration_ps[rows], nest(trace.start_ps[rows], trace.end_ps[rows]).parent)
        names, which = np.unique(trace.name[rows], return_inverse=True)
        counts = np.bincount(which)
        sums = np.minimum(np.bincount(which, weights=self_ps), MOST).astype(np.int64)
        is_stepped = covers(on_cores.get(line.plane, steps), trace.start_ps[rows])
        stepped = np.bincount(which, weights=is_stepped).astype(np.int64)
        for name, *values in zip(names.tolist(), *map(np.ndarray.tolist, (counts, sums, stepped)), strict=True):
            op = trace.display_names[name] or trace.names[name].partition(" = ")[0].lstrip("%")
            program = programs.get(name)
            key = (
                Key(program, ran[program].name if program in ran else "", op)
                if isinstance(program, int)
                else Key(None, "", op)
            )
            before = found.get(key)
            olds = (before.runs, before.time_ps, before.in_steps) if before else (0, 0, 0)
            runs, time_ps, in_steps = (min(one + other, MOST) for one, other in zip(values, olds, strict=True))
            found[key] = OpTime(
                key=key,
                runs=runs,
                events=runs,
                time_ps=time_ps,
                in_steps=in_steps,
                devices=1 + (before.devices if before else 0),
                pass_flops=pass_flops.get(name),
                name=name,
            )
    ops = tuple(found.values())
    return OpTimes(place="tpu", ops=ops, busy_ps=_summed(ops), programs=ran)


def _program_runs(trace: HostTrace) -> dict[int, ProgramRuns]:
    """Return the runs of programs that cores record, by the id of the program."""
    found: dict[int, ProgramRuns] = {}
    for line in trace.lines:
        if line.plane not in trace.devices or line.name != MODULE_LINE:
            continue
        rows = slice(line.start, line.stop)
        names, which = np.unique(trace.name[rows], return_inverse=True)
        sums = np.bincount(which, weights=trace.duration_ps[rows], minlength=len(names))
        for name, runs, time_ps in zip(names.tolist(), np.bincount(which).tolist(), sums.tolist(), strict=True):
            program = program_in_name(trace.names[name])
            if program is not None:
                before = found.get(program, ProgramRuns("", 0, 0))
                module = module_name(trace.names[name])
                found[program] = ProgramRuns(module, before.runs + runs, min(before.time_ps + int(time_ps), MOST))
    return found


def _summed(ops: tuple[OpTime, ...]) -> dict[int | None, int]:
    """Return the time of all instructions of each program."""
    sums: dict[int | None, int] = {}
    for op in ops:
        sums[op.key.program] = min(sums.get(op.key.program, 0) + op.time_ps, MOST)
    return sums


# --- hosts ---

_END = "end: "


def _on_host(trace: HostTrace) -> OpTimes:
    """Sum the events of instructions on host threads, from where each begins to where its end is noted."""
    stat = trace.stat("hlo_op")
    rows = stat.event.astype(np.int64)
    rows = np.sort(rows[trace.on_host[rows]])
    if not len(rows):
        return OpTimes(place=None)
    groups = _Groups.of(_key_columns(trace, rows, np.full(len(rows), -1, np.int64)))
    keys = _keys(trace, groups.values)
    end = _ends(trace, rows)
    span = end - trace.start_ps[rows]
    runs = np.bincount(groups.of_row, minlength=len(keys))
    columns: dict[str, npt.NDArray[Any]] = {
        "runs": runs,
        "events": runs,
        "time_ps": groups.sums(span),
        "least_ps": groups.sums(trace.duration_ps[rows]),
        "name": trace.name[rows][groups.first],
    }
    found = _op_times(keys, columns)
    programs = tuple(dict.fromkeys(key.program for key in keys))
    program = np.array([programs.index(key.program) for key in keys], np.int64)[groups.of_row]
    united = _united(program, trace.start_ps[rows], end)
    return OpTimes(place="cpu", ops=found, busy_ps={programs[index]: time_ps for index, time_ps in united.items()})


def _ends(trace: HostTrace, rows: Int64s) -> Int64s:
    """Return when the work of each instruction ends: by the event that notes it, if that is later than its own."""
    end = trace.end_ps[rows].copy()
    noted = trace.host_events(mask(trace.names, lambda name: name.startswith(_END)))
    if not len(noted):
        return end
    ids, links = trace.number_at("_c", noted, -1), trace.number_at("_p", rows, -2)
    order = np.argsort(ids, kind="stable")
    place = lookup(ids[order], links)
    later = np.where(place >= 0, trace.start_ps[noted[order[np.maximum(place, 0)]]], 0)
    return np.maximum(end, later)


def _united(program: Int64s, start: Int64s, end: Int64s) -> dict[int, int]:
    """Return for how long any instruction of each program was under way."""
    united: dict[int, int] = {}
    for each in np.unique(program).tolist():
        at = program == each
        flat: Intervals = union(start[at], end[at])
        united[each] = capped_sum(flat.end - flat.start)
    return united


# --- what they share ---


class _Groups(NamedTuple):
    """Rows with equal values: the group of each row, a row of each group, and the values of each group."""

    of_row: Int64s
    first: Int64s
    values: Int64s

    @classmethod
    def of(cls, columns: list[Int64s]) -> _Groups:
        order, starts = group_equal(columns)
        of_row = np.empty(len(order), np.int64)
        of_row[order] = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(order)))
        first = order[starts]
        return cls(of_row, first, np.stack([column[first] for column in columns], axis=1))

    def longest(self, values: Int64s) -> Int64s:
        """Return for each group the row of the largest value."""
        order = np.lexsort((values, self.of_row))
        return np.asarray(order[np.append(np.flatnonzero(np.diff(self.of_row[order])), len(order) - 1)], np.int64)

    def sums(self, values: Int64s) -> Int64s:
        """Return the sum of values of each group."""
        sums = np.bincount(self.of_row, weights=values, minlength=len(self.first))
        return np.minimum(sums, MOST).astype(np.int64)


def _key_columns(trace: HostTrace, rows: Int64s, module: Int64s) -> list[Int64s]:
    """Return what tells instructions apart: the id of the program, whether it is known, its name, and the op."""
    program, known = trace.known_at("program_id", rows)
    return [program, known.astype(np.int64), module, trace.number_at("hlo_op", rows, -1)]


def _keys(trace: HostTrace, values: Int64s) -> tuple[Key, ...]:
    modules, ops = trace_texts(trace, "hlo_module"), trace_texts(trace, "hlo_op")
    return tuple(
        Key(program if known else None, modules[module], ops[op].split("::")[-1])
        for program, known, module, op in values.tolist()
    )


def _op_times(keys: tuple[Key, ...], columns: Mapping[str, npt.NDArray[Any]]) -> tuple[OpTime, ...]:
    """Return a row for each key; `columns` has fields of `OpTime`."""
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    return tuple(OpTime(key=key, **dict(zip(columns, row, strict=True))) for key, row in zip(keys, rows, strict=True))
