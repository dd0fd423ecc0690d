"""Calls of functions that JAX compiled: what their programs do, and when the device works for them.

JAX notes `PjitFunction(f)` where Python calls a jitted function, twice, one inside the other. A call returns once its
work is handed out, so the work has its own times. On a GPU it is what the launches inside the call started, on a TPU
the runs that it led to (`tpu_runs.py`). On a CPU the ops of one run bear its `run_id`; nothing links a run to its call,
but both are in the same order.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import NO_NUMBERS, Bools, Int64s, distinct, distinct_index, extents, lookup
from tfperf.formats.hlo.names import NamedProgram
from tfperf.trace.event_names import called_function, canonical, is_jax_compilation, is_jitted_call, mask
from tfperf.trace.host.launches import begun_before, launch_links
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.nesting import hold, last_around, outermost

ProgramClass = Literal["gradient", "forward", "other", "unknown"]
"""`forward`: it multiplies matrices or convolves, but computes no gradient. `other`: neither."""
CLASSES: tuple[ProgramClass, ...] = ("gradient", "forward", "other", "unknown")
_UNKNOWN = CLASSES.index("unknown")


class Work(NamedTuple):
    """When devices work for each call, on the clock of the host, and which program they run.

    `start` and `end` are those of all devices together, -1 where the trace does not tell. `program` holds the bits of
    the program's id, where `known`. `each_ps` is how long a device works for the call: the mean over the chips of a TPU
    that run it, else from start to end.
    """

    start: Int64s
    end: Int64s
    program: Int64s
    known: Bools
    each_ps: Int64s


class JaxCalls(Struct, frozen=True):
    """Outermost calls of jitted functions in time order; `name` indexes `names`, `row` is the event of each call.

    `kind` tells what the program of each call computes, as an index into `CLASSES`: functions of one name may differ.
    `is_op` marks calls whose program is one op: Python runs that op by itself. `compile_ps` is the time of calls in
    which XLA compiles a program, 0 for all others; where a TPU then loads the program, only until it is compiled.
    """

    row: Int64s
    start: Int64s
    end: Int64s
    name: Int64s
    names: tuple[str, ...]
    kind: Int64s
    is_op: Bools
    compile_ps: Int64s
    work: Work

    @property
    def compiles(self) -> Bools:
        """Tell in which calls XLA compiles a program."""
        return self.compile_ps > 0

    def of_class(self, wanted: ProgramClass) -> Bools:
        """Tell which calls run a program of the class."""
        return np.asarray(self.kind == CLASSES.index(wanted), np.bool_)

    def only(self, wanted: Bools) -> JaxCalls:
        """Return some of the calls."""
        row, start, end, name = (column[wanted] for column in (self.row, self.start, self.end, self.name))
        kind, is_op, compile_ps = self.kind[wanted], self.is_op[wanted], self.compile_ps[wanted]
        begun, done, program, known, each_ps = self.work
        work = Work(begun[wanted], done[wanted], program[wanted], known[wanted], each_ps[wanted])
        return JaxCalls(row, start, end, name, self.names, kind, is_op, compile_ps, work)

    @property
    def token(self) -> Int64s:
        """Return a number for each call that is the same for calls of one name and class."""
        return self.name * len(CLASSES) + self.kind


def find_jax_calls(trace: HostTrace) -> JaxCalls | None:
    """Return the calls of jitted functions that are not inside another one on their thread, None without any."""
    rows = trace.host_events(mask(trace.names, is_jitted_call))
    rows = outermost(trace, rows[trace.duration_ps[rows] > 0])
    # A file whose fields are in an odd order hides the names from what decides to read runs and programs.
    if not len(rows) or "run_id" not in trace.read_stats or trace.hlo_protos is None:
        return None
    texts = [called_function(trace.names[name]) for name in trace.name[rows].tolist()]
    index = {text: index for index, text in enumerate(dict.fromkeys(texts))}
    start, end = trace.start_ps[rows], trace.end_ps[rows]
    functions = [canonical(text) for text in texts]
    if trace.device_kind == "tpu":
        work = _work_of_chips(trace, rows)
    elif trace.device_kind == "gpu":
        work = _launched_work(trace, start, end)
    else:
        work = _runs_of_calls(trace, find_runs(trace), start, functions)
    return JaxCalls(
        rows,
        start,
        end,
        np.array([index[text] for text in texts], np.int64),
        tuple(index),
        *programs_of(trace, functions, work.program, work.known),
        _compile_times(trace, rows),
        work,
    )


def _compile_times(trace: HostTrace, rows: Int64s) -> Int64s:
    """Return the time of the calls in which XLA compiles a program, on a TPU until it has."""
    compiling = trace.host_events(mask(trace.names, is_jax_compilation))
    if trace.device_kind != "tpu":
        return np.where(hold(trace, rows, compiling), trace.duration_ps[rows], 0)
    order, until = np.argsort(rows), trace.start_ps[rows]
    place = last_around(trace, rows[order], compiling)
    np.maximum.at(until, order[place[place >= 0]], trace.end_ps[compiling[place >= 0]])
    return until - trace.start_ps[rows]


_MATRIX_OPCODES = frozenset({"dot", "convolution"})
_MATRIX_OP = re.compile(r"(^|/)(dot_general|conv_general_dilated|[a-z_]*(attention|fmha)[a-z_]*)\b")


def programs_of(trace: HostTrace, functions: list[str], ran: Int64s, known: Bools) -> tuple[Int64s, Bools]:
    """Return the class of each call, and whether its program is one op: of the program that ran, where it is known.

    Else of the programs with the name of the function (`canonical`): the first class that one has, and whether all are
    one op.
    """
    wanted, by_id, by_name = set(functions), dict[int, tuple[int, bool]](), dict[str, tuple[int, bool]]()
    for key, program in (trace.programs if trace.hlo_protos is not None else {}).items():
        name = canonical(program.module)
        if name in wanted:
            kind, is_op = by_id[key] = CLASSES.index(program_class(program)), _is_op(program)
            other = by_name.get(name, (_UNKNOWN, True))
            by_name[name] = min(kind, other[0]), is_op and other[1]
    found = [
        (is_known and by_id.get(key)) or by_name.get(name, (_UNKNOWN, False))
        for name, key, is_known in zip(functions, ran.tolist(), known.tolist(), strict=True)
    ]
    return np.array([kind for kind, _ in found], np.int64), np.array([is_op for _, is_op in found], np.bool_)


_BESIDE = frozenset({"fusion", "call", "parameter", "constant", "broadcast", "bitcast", "copy", "convert", "tuple"})
"""What the compiler puts around the instruction that an op becomes."""


def _is_op(program: NamedProgram) -> bool:
    """Tell whether all that is computed comes from one op of the function (`jit(multiply)/mul`), once."""
    named = [item for item in program.instructions.values() if "/" in item.op_name]
    computing = [item.opcode for item in named if item.opcode not in _BESIDE]
    names = {item.op_name for item in named}
    is_one = len(names) == 1 and all(name.count("/") == 1 for name in names)
    return is_one and len(set(computing)) == len(computing)


def program_class(program: NamedProgram) -> ProgramClass:
    """Tell what a program computes, by the names of the ops that it comes from and its instructions.

    What a kernel of Pallas computes is unknown.
    """
    is_forward = has_kernel = False
    for instruction in program.instructions.values():
        if "transpose(" in instruction.op_name or "gradient_tape" in instruction.op_name:
            return "gradient"
        is_custom = instruction.opcode == "custom-call"
        is_forward |= instruction.opcode in _MATRIX_OPCODES
        is_forward |= is_custom and bool(_MATRIX_OP.search(instruction.op_name))
        has_kernel |= is_custom and instruction.op_name.endswith("/pallas_call")
    return "forward" if is_forward else "unknown" if has_kernel else "other"


def _launched_work(trace: HostTrace, start: Int64s, end: Int64s) -> Work:
    """Return when devices work for each call: for what was launched, on whichever thread, while the call lasted."""
    of_devices = (np.arange(line.start, line.stop) for plane in trace.devices for line in trace.device_lines(plane))
    links = launch_links(trace, np.sort(np.concatenate([NO_NUMBERS, *of_devices])))
    launched = trace.start_ps[links.host]
    call = np.searchsorted(start, launched, side="right") - 1
    inside = (call >= 0) & (launched < end[np.maximum(call, 0)])
    rows, call = links.device[inside], call[inside]
    begun, done = extents(call, trace.start_ps[rows], trace.end_ps[rows], len(start))
    return Work(begun, done, *_program_of(trace, rows, call, len(start)), done - begun)


def _program_of(trace: HostTrace, rows: Int64s, group: Int64s, count: int) -> tuple[Int64s, Bools]:
    """Return the id of the program that events of each group name (the last that does), and whether one does."""
    ids, known = trace.known_at("program_id", rows)
    program, is_known = np.zeros(count, np.int64), np.zeros(count, np.bool_)
    program[group[known]], is_known[group[known]] = ids[known], True
    return program, is_known


def _work_of_chips(trace: HostTrace, rows: Int64s) -> Work:
    """Return when the chips of a TPU work for each call (row)."""
    from tfperf.trace.device.tpu_runs import find_runs as find_tpu_runs  # few traces are of TPUs

    runs = find_tpu_runs(trace)
    order = np.argsort(rows)
    place = lookup(rows[order], runs.call)
    run, call = np.flatnonzero(place >= 0), order[place[place >= 0]]
    count = len(rows)
    start, end = (runs.on_host(trace, times)[run] for times in (runs.start_ps, runs.end_ps))
    sum_ps, program, known = np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count, np.bool_)
    np.add.at(sum_ps, call, runs.duration_ps[run])
    program[call], known[call] = runs.program[run], runs.known[run]
    chips = np.bincount(distinct(call * len(trace.planes) + runs.plane[run]) // len(trace.planes), minlength=count)
    return Work(*extents(call, start, end, count), program, known, sum_ps // np.maximum(chips, 1))


class Runs(Struct, frozen=True):
    """Runs of programs on the CPU, in time order; `program` is the id of the program of each, where `known`."""

    start: Int64s
    end: Int64s
    program: Int64s
    known: Bools


def find_runs(trace: HostTrace) -> Runs:
    """Return the runs: from the first op with a `run_id` to the last event that waits for the run."""
    stat = trace.stat("run_id")
    rows, ids = stat.event.astype(np.int64), stat.value
    order = np.argsort(trace.start_ps[rows], kind="stable")
    rows, (ids, run) = rows[order], distinct_index(ids[order])
    start, end = extents(run, trace.start_ps[rows], trace.end_ps[rows], len(ids))
    program, known = _program_of(trace, rows, run, len(ids))  # what only waits has none
    order = np.argsort(start, kind="stable")
    return Runs(start[order], end[order], program[order], known[order])


def _runs_of_calls(trace: HostTrace, runs: Runs, start: Int64s, functions: list[str]) -> Work:
    """Return when runs work for each call: those of a program belong to the calls of its function, in order."""
    function_of = {key: canonical(program.module) for key, program in trace.programs.items()}
    programs = zip(runs.program.tolist(), runs.known.tolist(), strict=True)
    ran = np.array([function_of.get(program, "") if known else "" for program, known in programs], object)
    called = np.array(functions, object)
    first, last, program = (np.full(len(start), -1, np.int64) for _ in range(3))
    known = np.zeros(len(start), np.bool_)
    for function in set(functions):
        calls, of_function = np.flatnonzero(called == function), np.flatnonzero(ran == function)
        of_function = of_function[begun_before(runs.start[of_function], start[calls]) :][: len(calls)]
        calls = calls[: len(of_function)]
        first[calls], last[calls] = runs.start[of_function], runs.end[of_function]
        program[calls], known[calls] = runs.program[of_function], True
    return Work(first, last, program, known, last - first)
