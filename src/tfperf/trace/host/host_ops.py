"""Ops on host threads: how often and how long each ran, individually and by function of the program.

Ops nest on their thread, so self time excludes the ops inside. Attribution `tensorflow` nests them as TensorFlow's
profiler did, with its losses (`nest_on_stack`). Programs that XLA compiled for the CPU run on host threads too: such an
event has the name of an HLO op, and the compiled program in the profile maps it to the framework's op.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.arrays import MOST, NO_NUMBERS, Int64s, capped_sum, distinct, lookup
from tfperf.formats.hlo.messages import NamedInstruction, NamedProgram
from tfperf.formats.wire.event_columns import OP_LINES
from tfperf.trace.device.device_work import device_work
from tfperf.trace.event_names import (
    JITTED_CALL,
    Op,
    concrete_function,
    is_eager_call,
    is_input_function,
    is_jitted_call,
    is_python_frame,
    mask,
    parse_op,
    runs_function,
)
from tfperf.trace.host.activities import Attribution
from tfperf.trace.host.launches import launch_links
from tfperf.trace.host_trace import HostTrace, rows_of
from tfperf.trace.nesting import innermost_around, nest, nest_on_stack, own_parts, parents, self_time
from tfperf.trace.steps.eager import run_from_python


class Work(NamedTuple):
    """Intervals in which an op itself worked: `name` as in the trace, `start` and `end` in picoseconds."""

    name: Int64s
    start: Int64s
    end: Int64s


Flags = npt.NDArray[np.int8]
EAGER, FUNCTION, UNKNOWN = 1, 0, -1
"""How an op was run: from Python, as part of a graph, or unknown."""


class Hlo(NamedTuple):
    """The XLA name of a compiled op, and its program (empty: unknown)."""

    op: str
    module: str


class HostOps(Struct, frozen=True, eq=False, kw_only=True):
    """For each name of the trace, its op and the totals of its events over all threads (picoseconds).

    After the names follow the ops that XLA compiled, one entry for each HLO op of each program.
    """

    ops: tuple[Op, ...]
    count: Int64s
    total_ps: Int64s
    self_ps: Int64s
    threads: Int64s
    input_work: Work
    """When ops of the input pipeline worked; on each thread without the ops inside them."""
    eager: Flags
    """EAGER if any event of the op was, FUNCTION if none was, else UNKNOWN."""
    hlo: dict[int, Hlo]
    """HLO ops by their index in `ops`."""
    idle_ps: int
    """Time without an op between the first and last op of a thread, summed over threads."""
    thread_count: int


def is_input_op(op: Op) -> bool:
    """Return whether an op reads or prepares input, or copies it to a device."""
    return op.type in ("Dataset", "MemcpyHToD") or op.type.startswith("InfeedEnqueue")


def host_ops(trace: HostTrace, attribution: Attribution = "corrected") -> HostOps:
    """Return the ops of all host threads, summed by name."""
    old = attribution == "tensorflow" and trace.has_groups
    named = tuple(Op("", name, "") if is_python_frame(name) else parse_op(name, old_names=old) for name in trace.names)
    name_of, compiled, hlo = compiled_ops(trace) if attribution == "corrected" else (trace.name, (), {})
    ops = (*named, *compiled)
    is_op = np.array([bool(op.kind) for op in ops], np.bool_)
    is_input = np.array([bool(op.kind) and is_input_op(op) for op in ops], np.bool_)
    count, total, of_itself, threads = np.zeros((4, len(ops)))
    input_work = [Work(NO_NUMBERS, NO_NUMBERS, NO_NUMBERS)]
    idle, thread_count = 0, 0
    for line in trace.host_lines:
        rows = np.flatnonzero(is_op[name_of[line.start : line.stop]]) + line.start
        if not len(rows):
            continue
        name, start, end = name_of[rows], trace.start_ps[rows], trace.end_ps[rows]
        if attribution == "tensorflow":
            parent, kept = nest_on_stack(start, end)
        else:
            parent, kept = nest(start, end).parent, np.ones(len(start), np.bool_)
        names, duration, self_ps = name[kept], (end - start)[kept], self_time(end - start, parent)[kept]
        here = np.bincount(names, minlength=len(ops))
        count, threads = count + here, threads + (here > 0)
        total += np.bincount(names, weights=duration, minlength=len(ops))
        of_itself += np.bincount(names, weights=self_ps, minlength=len(ops))
        idle += max(0, int(end.max()) - int(start.min()) - capped_sum(self_ps))
        thread_count += 1
        wanted = is_input[name] & kept
        if wanted.any():
            row, start, end = own_parts(start, end, parent, wanted)
            input_work.append(Work(name[row], start, end))
    count, total, of_itself, threads = np.minimum((count, total, of_itself, threads), MOST).astype(np.int64)
    return HostOps(
        ops=ops,
        count=count,
        total_ps=total,
        self_ps=of_itself,
        threads=threads,
        input_work=Work(*map(np.concatenate, zip(*input_work, strict=True))),
        eager=_flags(trace, ops, hlo),
        hlo=hlo,
        idle_ps=idle,
        thread_count=thread_count,
    )


def compiled_ops(trace: HostTrace) -> tuple[Int64s, tuple[Op, ...], dict[int, Hlo]]:
    """Return the name of each event, with new names for events that XLA compiled, and the ops of the new names."""
    stat = trace.stat("hlo_op")
    on_host = trace.on_host[stat.event]
    if not on_host.any():
        return trace.name, (), {}
    rows, text = stat.event[on_host].astype(np.int64), stat.value[on_host]
    program, ids = trace.program_at(rows)
    key = text * (len(ids) + 1) + program + 1
    keys = distinct(key)
    ops, hlo, first = [], {}, len(trace.names)
    for index, value in enumerate(keys.tolist()):
        place, of_program = divmod(value, len(ids) + 1)
        known = trace.programs.get(ids[of_program - 1]) if of_program else None
        op, hlo[first + index] = _compiled_op(stat.texts[place], known)
        ops.append(op)
    name = trace.name.copy()
    name[rows] = first + np.searchsorted(keys, key)
    return name, tuple(ops), hlo


def _compiled_op(text: str, known: NamedProgram | None) -> tuple[Op, Hlo]:
    """Return the framework's op of an HLO op, or the HLO op under its own name if no mapping is known."""
    program, hlo_op = known or NamedProgram("", {}), text.split("::")[-1]
    instruction = program.instructions.get(hlo_op, NamedInstruction("", "", ""))
    hlo = Hlo(hlo_op, program.module)
    if not instruction.op_name:
        return Op("tensorflow", hlo_op, instruction.opcode or "HLO op"), hlo
    op = parse_op(instruction.op_name)
    return Op("tensorflow", op.name, instruction.op_type or op.type or instruction.opcode), hlo


def _flags(trace: HostTrace, ops: tuple[Op, ...], hlo: dict[int, Hlo]) -> Flags:
    """Return how ops were run: from the stat of the profiler (up to TensorFlow 2.4), or from the events around them."""
    flags = np.full(len(ops), UNKNOWN, np.int8)
    flags[list(hlo)] = FUNCTION
    is_eager = trace.stat("is_eager")
    if len(is_eager.event):
        on_host = trace.on_host[is_eager.event]
        names = trace.name[is_eager.event]
        flags[names[on_host & (is_eager.value == 0)]] = FUNCTION
        flags[names[on_host & (is_eager.value == 1)]] = EAGER
        return flags
    inside = run_from_python(trace)
    if inside is not None:
        is_tensorflow = np.array([op.kind == "tensorflow" for op in ops], np.bool_)
        flags[is_tensorflow] = FUNCTION
        run_eagerly = distinct(trace.name[inside])
        flags[run_eagerly[is_tensorflow[run_eagerly]]] = EAGER
    return flags


# --- events one by one ---

NO_FRAMEWORK_OP = "(no framework op)"
"""The scope of device work without a framework op, such as copies from host memory."""


class OpEvents(Struct, frozen=True, kw_only=True):
    """Events of framework ops: `op` indexes `ops`, which are names of nodes and types of their kernels.

    `start` is when the host ran the op, or launched its device work if that is known, else when the device worked;
    `self_ps` excludes ops inside, and `plane` is where it ran. Times are picoseconds on the clock of the trace.
    """

    ops: tuple[tuple[str, str], ...]
    op: Int64s
    start: Int64s
    begin: Int64s
    end: Int64s
    """Start and end where it ran."""
    self_ps: Int64s
    plane: Int64s


class HostOpRows(Struct, frozen=True, kw_only=True):
    """Events of ops on host threads, by line: `name` indexes `ops`, `parent` these events (-1: none)."""

    ops: tuple[Op, ...]
    hlo: dict[int, Hlo]
    row: Int64s
    name: Int64s
    parent: Int64s
    self_ps: Int64s


def host_op_rows(trace: HostTrace) -> HostOpRows:
    """Return the ops on host threads; the time of an op excludes ops inside it."""
    named = [parse_op(name) if not is_python_frame(name) else parse_op("") for name in trace.names]
    name_of, compiled, hlo = compiled_ops(trace)
    ops = (*named, *compiled)
    is_op = np.array([bool(op.kind) for op in ops], np.bool_)
    row = np.flatnonzero(is_op[name_of] & trace.on_host)
    parent = parents(trace, row)
    return HostOpRows(
        ops=ops,
        hlo=hlo,
        row=row,
        name=name_of[row].astype(np.int64),
        parent=parent,
        self_ps=self_time(trace.duration_ps[row], parent),
    )


def host_op_events(trace: HostTrace) -> OpEvents:
    """Return the framework's ops on host threads; the time of an op excludes ops inside it."""
    found = host_op_rows(trace)
    of_framework = np.array([op.kind == "tensorflow" for op in found.ops], np.bool_)[found.name]
    name, row, self_ps = (column[of_framework] for column in (found.name, found.row, found.self_ps))
    return _events([(op.name, op.type) for op in found.ops], trace, name, row, self_ps)


def device_op_events(trace: HostTrace) -> OpEvents:
    """Return device work with a known op: kernels and copies of GPUs, ops of TPU cores."""
    if trace.device_kind == "tpu":
        return _tpu(trace)
    work = device_work(trace)
    known = work.op >= 0
    rows = work.rows[known]
    events = _events([(op.name, op.type) for op in work.ops], trace, work.op[known], rows, trace.duration_ps[rows])
    call = launch_links(trace, np.sort(rows)).of(rows)
    start = np.where(call >= 0, trace.start_ps[call], trace.start_ps[rows])
    return replace(events, start=start)


def _tpu(trace: HostTrace) -> OpEvents:
    """Return the ops of TPU cores; loops exclude their body. Ops without a framework name keep their own."""
    row = rows_of(line for line in trace.lines if line.plane in trace.devices and line.name in OP_LINES)
    self_ps = self_time(trace.duration_ps[row], parents(trace, row))
    named, categories = trace.name_stat("tf_op"), trace.name_stat("hlo_category")
    ops = []
    for name, text in enumerate(trace.display_names):
        op, category = parse_op(str(named.get(name, ""))), str(categories.get(name, ""))
        ops.append((op.name or f"{NO_FRAMEWORK_OP}/{text or trace.names[name]}", op.type or category))
    return _events(ops, trace, trace.name[row], row, self_ps)


def _events(names: list[tuple[str, str]], trace: HostTrace, which: Int64s, rows: Int64s, self_ps: Int64s) -> OpEvents:
    """Return the events, each op once: several names of a trace may be the same op."""
    number: dict[tuple[str, str], int] = {}
    of_name = np.zeros(len(names), np.int64)
    for name in np.flatnonzero(np.bincount(which, minlength=len(names))).tolist():
        of_name[name] = number.setdefault(names[name], len(number))
    start = trace.start_ps[rows]
    return OpEvents(
        ops=tuple(number),
        op=of_name[which],
        start=start,
        begin=start,
        end=trace.end_ps[rows],
        self_ps=self_ps,
        plane=trace.plane_of(rows),
    )


# --- functions ---
# Python calls a tf.function (`EagerLocalExecute: __inference_train_step_12`); it contains a run (`FunctionRun`) with an
# id, and executor events on other threads have the same id (`ExecutorState::Process`). So the innermost of these events
# around an op identifies its function. A function that tf.data runs has no name in the trace.

NO_FUNCTION, OF_INPUT, EAGERLY = "(no function)", "(function of tf.data)", "(run eagerly)"
_CONCRETE_NAME = re.compile(r"__inference_(.+)_\d+")
_EXECUTOR = "ExecutorState::Process"


class FunctionCalls(Struct, frozen=True, eq=False, kw_only=True):
    """Rows of the trace that call or execute a function, ascending, and the index of its name."""

    trace: HostTrace
    names: tuple[str, ...]
    rows: Int64s
    function: Int64s

    def of(self, rows: Int64s) -> Int64s:
        """Return for each host row the index of the function that it runs for, -1 if unknown; -1 for -1."""
        found = np.full(len(rows), -1, np.int64)
        order = np.argsort(rows, kind="stable")
        ordered = rows[order]
        for line in self.trace.host_lines:
            first, last = np.searchsorted(ordered, (line.start, line.stop)).tolist()
            begin, end = np.searchsorted(self.rows, (line.start, line.stop)).tolist()
            if last > first and end > begin:
                around = innermost_around(self.trace, self.rows[begin:end], self.trace.start_ps[ordered[first:last]])
                found[order[first:last]] = np.append(self.function, -1)[lookup(self.rows, around)]
        return found


def function_calls(trace: HostTrace) -> FunctionCalls:
    """Return where functions are called, and where executors work on them."""
    numbers: dict[str, int] = {}
    of_name = np.full(len(trace.names), -1, np.int64)
    for name, text in enumerate(map(_called, trace.names)):
        if text:
            of_name[name] = numbers.setdefault(text, len(numbers))
    calls = trace.host_events(of_name >= 0)
    named = FunctionCalls(trace=trace, names=tuple(numbers), rows=calls, function=of_name[trace.name[calls]])
    runs = trace.host_events(mask(trace.names, lambda name: runs_function(name) or is_input_function(name)))
    # A run belongs to the function whose call is around it; runs of tf.data are identified by their own name.
    of_run = np.where(of_name[trace.name[runs]] >= 0, of_name[trace.name[runs]], named.of(runs))
    ids = trace.number_at("id", runs)
    order = np.argsort(ids, kind="stable")
    work = trace.host_events(mask(trace.names, _EXECUTOR.__eq__))
    id_of_work = trace.number_at("id", work)
    place = np.where(id_of_work != 0, lookup(ids[order], id_of_work), -1)
    work, of_work = work[place >= 0], of_run[order[place[place >= 0]]]
    rows, function = (
        np.concatenate((calls, work[of_work >= 0])),
        np.concatenate((named.function, of_work[of_work >= 0])),
    )
    by_row = np.argsort(rows, kind="stable")
    return FunctionCalls(trace=trace, names=tuple(numbers), rows=rows[by_row], function=function[by_row])


def _called(name: str) -> str:
    """Return the function that an event of this name calls, empty if none."""
    if is_input_function(name):
        return OF_INPUT
    if is_jitted_call(name):
        return name.removeprefix(JITTED_CALL).rstrip(")")
    if not is_eager_call(name) or ": " not in name:
        return ""
    concrete = _CONCRETE_NAME.fullmatch(concrete_function(name))
    return concrete[1] if concrete else EAGERLY
