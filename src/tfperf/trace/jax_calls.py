"""Calls of functions that JAX compiled: what their programs do, and when the device works for them.

JAX notes `PjitFunction(f)` where Python calls a jitted function, twice, one inside the other. A call returns once its
work is handed out, so the work has its own times. On a GPU it is what the launches inside the call started. On a CPU
the ops of one run bear its `run_id`, and on a TPU each core has an event for each run of a program; nothing links a run
to its call, but both are in the same order.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

import numpy as np
from msgspec import Struct

from tfperf.arrays import NO_NUMBERS, Bools, Int64s, distinct_index, group_equal
from tfperf.programs.names import NamedProgram
from tfperf.trace.event_names import JITTED_CALL, is_jax_compilation, is_jitted_call, mask
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.launches import launch_links
from tfperf.trace.nesting import hold, outermost
from tfperf.wire.event_columns import MODULE_LINE, signed

ProgramClass = Literal["gradient", "forward", "other", "unknown"]
"""`forward`: it multiplies matrices or convolves, but computes no gradient. `other`: neither."""
CLASSES: tuple[ProgramClass, ...] = ("gradient", "forward", "other", "unknown")
_UNKNOWN = CLASSES.index("unknown")


class Work(NamedTuple):
    """When the device works for each call (-1 where the trace does not tell), and the id of the program that it runs.

    An id is the int64 that keeps its bits, so it may be any number: `known` tells which are known.
    """

    start: Int64s
    end: Int64s
    program: Int64s
    known: Bools


class JaxCalls(Struct, frozen=True):
    """Outermost calls of jitted functions in time order; `name` indexes `names`, `row` is the event of each call.

    `kind` tells what the program of each call computes, as an index into `CLASSES`: functions of one name may differ.
    `is_op` marks calls whose program is one op: Python runs that op by itself. `compiles` marks calls in which XLA
    compiles a program.
    """

    row: Int64s
    start: Int64s
    end: Int64s
    name: Int64s
    names: tuple[str, ...]
    kind: Int64s
    is_op: Bools
    compiles: Bools
    work: Work

    def of_class(self, wanted: ProgramClass) -> Bools:
        """Tell which calls run a program of the class."""
        return np.asarray(self.kind == CLASSES.index(wanted), np.bool_)

    def only(self, wanted: Bools) -> JaxCalls:
        """Return some of the calls."""
        row, start, end, name = (column[wanted] for column in (self.row, self.start, self.end, self.name))
        kind, is_op, compiles = self.kind[wanted], self.is_op[wanted], self.compiles[wanted]
        start_of, end_of, program, known = self.work
        work = Work(start_of[wanted], end_of[wanted], program[wanted], known[wanted])
        return JaxCalls(row, start, end, name, self.names, kind, is_op, compiles, work)

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
    texts = [_function(trace.names[name]) for name in trace.name[rows].tolist()]
    index = {text: index for index, text in enumerate(dict.fromkeys(texts))}
    start, end = trace.start_ps[rows], trace.end_ps[rows]
    functions = [canonical(text) for text in texts]
    if trace.device_kind == "gpu":
        work = _launched_work(trace, start, end)
    else:
        runs = find_core_runs(trace) if trace.device_kind == "tpu" else find_runs(trace)
        work = _runs_of_calls(trace, runs, start, functions)
    return JaxCalls(
        rows,
        start,
        end,
        np.array([index[text] for text in texts], np.int64),
        tuple(index),
        *_programs_of(functions, work, trace.programs),
        hold(trace, rows, trace.host_events(mask(trace.names, is_jax_compilation))),
        work,
    )


def _function(name: str) -> str:
    return name.removeprefix(JITTED_CALL).removesuffix(")")


def canonical(function: str) -> str:
    """Return the name of a function as XLA writes it in the name of its program, without `jit_` or `pmap_`."""
    return re.sub(r"[^A-Za-z0-9_]", "_", re.sub(r"^(jit|pmap)_", "", function)).strip("_")


_MATRIX_OPCODES = frozenset({"dot", "convolution"})
_MATRIX_OP = re.compile(r"(^|/)(dot_general|conv_general_dilated|[a-z_]*(attention|fmha)[a-z_]*)\b")


def _programs_of(functions: list[str], work: Work, programs: dict[int, NamedProgram]) -> tuple[Int64s, Bools]:
    """Return the class of each call, and whether its program is one op: of the program that ran, if it is known.

    Else of the programs with the name of the function: the first class that one has, and whether all are one op.
    """
    wanted, by_id, by_name = set(functions), dict[int, tuple[int, bool]](), dict[str, tuple[int, bool]]()
    for key, program in programs.items():
        name = canonical(program.module)
        if name in wanted:
            kind, is_op = by_id[key] = CLASSES.index(program_class(program)), _is_op(program)
            other = by_name.get(name, (_UNKNOWN, True))
            by_name[name] = min(kind, other[0]), is_op and other[1]
    ran = [by_id.get(key) if known else None for key, known in zip(work.program.tolist(), work.known, strict=True)]
    found = [each or by_name.get(name, (_UNKNOWN, False)) for name, each in zip(functions, ran, strict=True)]
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
    """Tell what a program computes, by the names of the ops that it comes from and its instructions."""
    is_forward = False
    for instruction in program.instructions.values():
        if "transpose(" in instruction.op_name or "gradient_tape" in instruction.op_name:
            return "gradient"
        library = instruction.opcode == "custom-call" and _MATRIX_OP.search(instruction.op_name)
        is_forward |= instruction.opcode in _MATRIX_OPCODES or bool(library)
    return "forward" if is_forward else "other"


def _launched_work(trace: HostTrace, start: Int64s, end: Int64s) -> Work:
    """Return when devices work for each call: for what was launched, on whichever thread, while the call lasted."""
    of_devices = (np.arange(line.start, line.stop) for plane in trace.devices for line in trace.device_lines(plane))
    links = launch_links(trace, np.sort(np.concatenate([NO_NUMBERS, *of_devices])))
    launched = trace.start_ps[links.host]
    call = np.searchsorted(start, launched, side="right") - 1
    inside = (call >= 0) & (launched < end[np.maximum(call, 0)])
    rows, call = links.device[inside], call[inside]
    of_call = _program_of(trace, rows, call, len(start))
    return Work(*_extents(call, trace.start_ps[rows], trace.end_ps[rows], len(start)), *of_call)


def _program_of(trace: HostTrace, rows: Int64s, group: Int64s, count: int) -> tuple[Int64s, Bools]:
    """Return the id of the program that events of each group name (the last that does), and whether one does."""
    ids, known = trace.known_at("program_id", rows)
    program, is_known = np.zeros(count, np.int64), np.zeros(count, np.bool_)
    program[group[known]], is_known[group[known]] = ids[known], True
    return program, is_known


def _extents(group: Int64s, start: Int64s, end: Int64s, count: int) -> tuple[Int64s, Int64s]:
    """Return the first start and the last end in each group, -1 for a group without events."""
    first, last = np.full(count, np.iinfo(np.int64).max), np.full(count, -1, np.int64)
    np.minimum.at(first, group, start)
    np.maximum.at(last, group, end)
    return np.where(last >= 0, first, -1), last


class Runs(Struct, frozen=True):
    """Runs of programs on the CPU or on TPU cores, in time order; `program` is the id of the program of each.

    `called` is when each was called at the latest, on the clock of the host; `known` tells whether the id is known.
    """

    called: Int64s
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
    start, end = _extents(run, trace.start_ps[rows], trace.end_ps[rows], len(ids))
    program, known = _program_of(trace, rows, run, len(ids))  # what only waits has none
    order = np.argsort(start, kind="stable")
    return Runs(start[order], start[order], end[order], program[order], known[order])


_SKEW = 20
"""Clocks of a host and its TPU differ by less than a run takes, divided by this."""


def find_core_runs(trace: HostTrace) -> Runs:
    """Return the runs of programs on TPU cores, which run each program together: from the first core to the last."""
    lines = [line for line in trace.lines if line.plane in trace.devices and line.name == MODULE_LINE]
    rows = np.concatenate([NO_NUMBERS, *(np.arange(line.start, line.stop) for line in lines)])
    programs, known = trace.known_at("program_id", rows)
    names, name_of_run = distinct_index(trace.name[rows])
    named = [program_in_name(trace.names[name]) for name in names.tolist()]
    of_names = np.array([each or 0 for each in named], np.int64)[name_of_run]
    programs = np.where(known, programs, of_names)
    known |= np.array([each is not None for each in named], np.bool_)[name_of_run]
    rows, programs = rows[known], programs[known]
    # The order of a run among those of its program on its core.
    order, starts = group_equal([trace.line_of[rows].astype(np.int64), programs])
    nth = np.zeros(len(rows), np.int64)
    nth[order] = np.arange(len(rows)) - np.repeat(starts, np.diff([*starts, len(rows)]))
    order, starts = group_equal([programs, nth])
    run = np.zeros(len(rows), np.int64)
    run[order] = np.repeat(np.arange(len(starts)), np.diff([*starts, len(rows)]))
    start, end = _extents(run, trace.start_ps[rows], trace.end_ps[rows], len(starts))
    program = programs[order[starts]]
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    return Runs(start + (end - start) // _SKEW, start, end, program[order], np.ones(len(start), np.bool_))


def program_in_name(module: str) -> int | None:
    """Return the id of the program in the name of a run, `jit_f(7)`, as an int64 keeps its bits; None without one."""
    found = re.search(r"\(([0-9]{1,20})\)$", module)
    return signed(int(found[1])) if found and int(found[1]) < 1 << 64 else None


def _runs_of_calls(trace: HostTrace, runs: Runs, start: Int64s, functions: list[str]) -> Work:
    """Return when runs work for each call: those of a program belong to the calls of its function, in order."""
    function_of = {key: canonical(program.module) for key, program in trace.programs.items()}
    programs = zip(runs.program.tolist(), runs.known.tolist(), strict=True)
    ran = np.array([function_of.get(program, "") if known else "" for program, known in programs], object)
    called = np.array(functions, object)
    nothing = np.full(len(start), -1, np.int64)
    work = Work(nothing, nothing.copy(), nothing.copy(), np.zeros(len(start), np.bool_))
    for function in set(functions):
        calls, of_function = np.flatnonzero(called == function), np.flatnonzero(ran == function)
        # Runs that were called before the capture began come first.
        begun = np.searchsorted(runs.called[of_function], start[calls]) - np.arange(len(calls))
        of_function = of_function[max(0, int(begun.max())) :][: len(calls)]
        calls = calls[: len(of_function)]
        work.start[calls], work.end[calls] = runs.start[of_function], runs.end[of_function]
        work.program[calls], work.known[calls] = runs.program[of_function], True
    return work
