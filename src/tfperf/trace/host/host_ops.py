"""Ops on host threads: how often each ran and how long, and when the ops of the input pipeline worked themselves.

Ops nest on their thread, so self time is without the ops inside. Attribution `tensorflow` nests them as TensorFlow's
profiler did, with what it loses (`nest_on_stack`). What XLA compiled for the CPU runs on host threads too: such an
event bears the name of an HLO op, and the compiled program in the profile tells the framework's op.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from tfperf.base.arrays import MOST, NO_NUMBERS, Int64s, capped_sum, distinct
from tfperf.formats.hlo.names import NamedInstruction, NamedProgram
from tfperf.trace.event_names import Op, is_python_frame, parse_op
from tfperf.trace.host.activities import Attribution
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.nesting import nest, nest_on_stack, own_parts, self_time
from tfperf.trace.steps.eager_events import run_from_python


class Work(NamedTuple):
    """Stretches of time in which an op worked itself: `name` as in the trace, `start` and `end` in picoseconds."""

    name: Int64s
    start: Int64s
    end: Int64s


Flags = npt.NDArray[np.int8]
EAGER, FUNCTION, UNKNOWN = 1, 0, -1
"""How an op was run: from Python, as part of a graph, or the trace does not tell."""


class Hlo(NamedTuple):
    """What XLA calls an op that it compiled, and the program that it is part of (empty: unknown)."""

    op: str
    module: str


class HostOps(Struct, frozen=True, eq=False, kw_only=True):
    """For each name of the trace, which op it is and what its events add up to over all threads (picoseconds).

    Behind the names follow the ops that XLA compiled, one entry for each HLO op of each program.
    """

    ops: tuple[Op, ...]
    count: Int64s
    total_ps: Int64s
    self_ps: Int64s
    threads: Int64s
    """On how many threads the name occurs."""
    input_work: Work
    """When ops of the input pipeline worked; on each thread without the ops inside them."""
    eager: Flags
    """EAGER if any event of the op was run so, FUNCTION if none, UNKNOWN where nothing tells."""
    hlo: dict[int, Hlo]
    """Of ops that XLA compiled, by their index in `ops`."""
    idle_ps: int
    """Of each thread, the time from its first op to its last in which none ran; summed over threads."""
    thread_count: int
    """Threads that ran ops."""


def is_input_op(op: Op) -> bool:
    """Tell whether an op reads or prepares input, or hands it to a device."""
    return op.type in ("Dataset", "MemcpyHToD") or op.type.startswith("InfeedEnqueue")


def host_ops(trace: HostTrace, attribution: Attribution = "corrected") -> HostOps:
    """Sum up the ops of all host threads."""
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
            input_work.append(Work(name[row].astype(np.int64), start, end))
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


def compiled_ops(trace: HostTrace) -> tuple[npt.NDArray[np.int32], tuple[Op, ...], dict[int, Hlo]]:
    """Return the name of each event, where an event that XLA compiled gets a new one, and what these new ones are."""
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
    """Return the framework's op of an HLO op, or the HLO op under its own name where nothing leads further."""
    program, hlo_op = known or NamedProgram("", {}), text.split("::")[-1]
    instruction = program.instructions.get(hlo_op, NamedInstruction("", "", ""))
    hlo = Hlo(hlo_op, program.module)
    if not instruction.op_name:
        return Op("tensorflow", hlo_op, instruction.opcode or "HLO op"), hlo
    op = parse_op(instruction.op_name)
    return Op("tensorflow", op.name, instruction.op_type or op.type or instruction.opcode), hlo


def _flags(trace: HostTrace, ops: tuple[Op, ...], hlo: dict[int, Hlo]) -> Flags:
    """Return how ops were run: as the profiler noted on events (up to TensorFlow 2.4), or by what is around them."""
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
