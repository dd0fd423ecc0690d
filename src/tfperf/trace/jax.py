"""Calls of functions that JAX compiled: the class of their programs, their device work, and steps.

JAX records `PjitFunction(f)` when Python calls a jitted function, twice, nested. A call returns once its work is
enqueued, so the work has its own times. On a GPU it is the work that launches inside the call started, on a TPU the
runs that the call led to (`tpu_runs.py`). On a CPU the ops of a run share its `run_id`; runs are not linked to calls,
but both are in the same order.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Literal, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, replace

from tfperf.base.arrays import (
    Bools,
    Int64s,
    distinct,
    distinct_index,
    extents,
    group_equal,
    lookup,
    span_at,
    text_index,
)
from tfperf.base.units import counted, listed
from tfperf.formats.hlo.messages import NamedProgram
from tfperf.formats.hlo.model import ProgramError
from tfperf.trace.event_names import called_function, canonical, infers, is_jax_compilation, is_jitted_call, mask
from tfperf.trace.host.launches import begun_before, launch_links
from tfperf.trace.host_trace import HostTrace, once
from tfperf.trace.nesting import hold, last_around, outermost
from tfperf.trace.steps.steps import INFERENCE, ITERATION, PARTIAL, RETRACE, Confidence, How, Steps, plain_steps
from tfperf.trace.steps.turns import aligned_turns, in_most_turns, loop_of, other_loops, smallest_period, with_first

ProgramClass = Literal["gradient", "forward", "other", "unknown"]
"""`forward`: it multiplies matrices or convolves, but computes no gradient. `other`: neither."""
CLASSES: tuple[ProgramClass, ...] = ("gradient", "forward", "other", "unknown")
_UNKNOWN = CLASSES.index("unknown")


class Work(NamedTuple):
    """Device work and program of each call, on the clock of the host.

    `start` and `end` are those of all devices together, -1 if unknown. `program` holds the bits of the program's id,
    where `known`. `each_ps` is how long a device works for the call: the mean over the chips of a TPU that run it, else
    from start to end.
    """

    start: Int64s
    end: Int64s
    program: Int64s
    known: Bools
    each_ps: Int64s


class JaxCalls(Struct, frozen=True):
    """Outermost calls of jitted functions in time order; `name` indexes `names`, `row` is the event of each call.

    `kind` is the class of the program of each call, as an index into `CLASSES`: functions of one name may differ.
    `is_op` marks calls whose program is one op that Python runs by itself. `compile_ps` is the time of calls in which
    XLA compiles a program, 0 for others; if a TPU then loads the program, only until it is compiled.
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
        """Return in which calls XLA compiles a program."""
        return self.compile_ps > 0

    def of_class(self, wanted: ProgramClass) -> Bools:
        """Return which calls run a program of the class."""
        return np.asarray(self.kind == CLASSES.index(wanted), np.bool_)

    def only(self, wanted: Bools) -> JaxCalls:
        """Return some of the calls."""
        columns = {key: column[wanted] for key, column in asdict(self).items() if key not in ("names", "work")}
        work: Any = (column[wanted] for column in self.work)
        return replace(self, **columns, work=Work(*work))

    @property
    def token(self) -> Int64s:
        """Return a number for each call that is the same for calls of one name and class."""
        return self.name * len(CLASSES) + self.kind


@once
def find_jax_calls(trace: HostTrace) -> JaxCalls | None:
    """Return the calls of jitted functions that are not inside another one on their thread, None without any."""
    rows = trace.host_events(mask(trace.names, is_jitted_call))
    rows = outermost(trace, rows[trace.duration_ps[rows] > 0])
    # Unusual field order in a file hides the names that determine whether runs and programs are read.
    if not len(rows) or "run_id" not in trace.read_stats or trace.hlo_protos is None:
        return None
    texts = [called_function(trace.names[name]) for name in trace.name[rows].tolist()]
    names, name = text_index(texts)
    start, end = trace.start_ps[rows], trace.end_ps[rows]
    functions = [canonical(text) for text in texts]
    if trace.device_kind == "tpu":
        work = _work_of_chips(trace, rows)
    elif trace.device_kind == "gpu":
        # Includes work launched during the call on any thread.
        links = launch_links(trace, np.sort(trace.device_rows))
        call = span_at(start, end, trace.start_ps[links.host])
        launched, call = links.device[call >= 0], call[call >= 0]
        begun, done = extents(call, trace.start_ps[launched], trace.end_ps[launched], len(start))
        work = Work(begun, done, *_program_of(trace, launched, call, len(start)), done - begun)
    else:
        work = _runs_of_calls(trace, find_runs(trace), start, functions)
    return JaxCalls(
        rows,
        start,
        end,
        name,
        tuple(names),
        *programs_of(trace, functions, work.program, work.known),
        _compile_times(trace, rows),
        work,
    )


def _compile_times(trace: HostTrace, rows: Int64s) -> Int64s:
    """Return the time of the calls in which XLA compiles a program, on a TPU until compilation ends."""
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
    """Return the class of each call, and whether its program is one op.

    If the program that ran is unknown: of the programs with the function's name (`canonical`), the first known class,
    and whether all are one op.
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
"""Instructions that the compiler adds around that of an op."""


def _is_op(program: NamedProgram) -> bool:
    """Return whether one op of the function (`jit(multiply)/mul`), once, is the source of all computation."""
    named = [item for item in program.instructions.values() if "/" in item.op_name]
    computing = [item.opcode for item in named if item.opcode not in _BESIDE]
    names = {item.op_name for item in named}
    is_one = len(names) == 1 and all(name.count("/") == 1 for name in names)
    return is_one and len(set(computing)) == len(computing)


def program_class(program: NamedProgram) -> ProgramClass:
    """Return the class of a program, by its source ops and instructions; unknown for Pallas kernels."""
    is_forward = has_kernel = False
    for instruction in program.instructions.values():
        if "transpose(" in instruction.op_name or "gradient_tape" in instruction.op_name:
            return "gradient"
        is_custom = instruction.opcode == "custom-call"
        is_forward |= instruction.opcode in _MATRIX_OPCODES
        is_forward |= is_custom and bool(_MATRIX_OP.search(instruction.op_name))
        has_kernel |= is_custom and instruction.op_name.endswith("/pallas_call")
    return "forward" if is_forward else "unknown" if has_kernel else "other"


def _program_of(trace: HostTrace, rows: Int64s, group: Int64s, count: int) -> tuple[Int64s, Bools]:
    ids, known = trace.known_at("program_id", rows)
    program, is_known = np.zeros(count, np.int64), np.zeros(count, np.bool_)
    program[group[known]], is_known[group[known]] = ids[known], True
    return program, is_known


def _work_of_chips(trace: HostTrace, rows: Int64s) -> Work:
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
    program, known = _program_of(trace, rows, run, len(ids))  # waiting events have no program
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


# --- loops in programs ---
# Loops with matrix products or convolutions count; loops that generate random numbers do not.

_BODY = "while/body"
_MATRIX_OP_IN_BODY = re.compile(rf"{_BODY}.*(dot_general|conv_general_dilated)")


def loop_notes(trace: HostTrace, calls: JaxCalls) -> tuple[str, ...]:
    """Return a sentence for each called function whose program loops, if all its runs loop equally often."""
    notes: dict[str, None] = {}
    called = {canonical(name): name for name in calls.names}
    stat = trace.stat("run_id")
    rows = stat.event.astype(np.int64)
    program_of, known = trace.known_at("program_id", rows)
    for key, program in trace.programs.items():
        function = called.get(canonical(program.module), "")
        mine = known & (program_of == key)
        if not function or not mine.any():
            continue
        looped = frozenset(
            name
            for name, item in program.instructions.items()
            if item.op_name.count(_BODY) == 1 and _MATRIX_OP_IN_BODY.search(item.op_name)
        )
        iterations = _runs_of_loop(trace, rows[mine], stat.value[mine], looped) if looped else 0
        if iterations > 1:
            notes[f"Each call of {function} runs its loop {counted(iterations, 'time')}."] = None
    return tuple(notes)


def _runs_of_loop(trace: HostTrace, rows: Int64s, runs: Int64s, looped: frozenset[str]) -> int:
    """Return the runs of these instructions per run of an instruction outside of loops, or 0."""
    order, starts = group_equal([runs, trace.name[rows]])
    count = np.diff([*starts, len(rows)])
    is_looped = np.array([trace.names[name] in looped for name in trace.name[rows[order[starts]]].tolist()], np.bool_)
    _, run = distinct_index(runs[order[starts]])
    found: Counter[int] = Counter()
    for groups in np.split(np.argsort(run, kind="stable"), np.cumsum(np.bincount(run))[:-1]):
        repeated = count[groups][is_looped[groups]]
        # Events without duration are not read, so some ops are counted less often.
        found[int(repeated.max() // count[groups].min()) if len(repeated) else 0] += 1
    iterations, agree = found.most_common(1)[0]
    runs_seen = sum(found.values())
    # The capture may have begun or ended during one run.
    return iterations if agree >= runs_seen - (runs_seen > 2) else 0


# --- steps ---
# A program that computes gradients trains. Calls that only compute forward are then evaluation, unless every step has
# them (a teacher, a policy). The remaining calls repeat: one turn is a step. Without gradients a turn is an iteration.

SOURCE = "jitted calls"
OF_THE_DEVICE = "device times, because calls return before the device work is done"
_SAME = 0.95


class _Turns(NamedTuple):
    """Turns of a sequence of calls (ascending): the positions in it where each starts, and the period (0: none)."""

    calls: Int64s
    starts: Int64s
    period: int

    @property
    def first(self) -> Int64s:
        return np.asarray(self.calls[self.starts], np.int64)

    @property
    def last(self) -> Int64s:
        return np.asarray(self.calls[np.append(self.starts[1:], len(self.calls)) - 1], np.int64)

    def are_short(self, first: Int64s) -> Bools:
        """Return which steps starting with these calls are incomplete turns at an end of the sequence."""
        short = np.zeros(len(first), np.bool_)
        if self.period > 1:
            size = np.diff(np.append(self.starts, len(self.calls)))
            short[np.isin(first, self.first[[0, -1]])] = size[[0, -1]] < self.period
        return short


class Found(NamedTuple):
    """Steps as positions in a sequence of calls (first, last), with kind and rule; `is_short`: incomplete turns at its
    ends.
    """

    first: Int64s
    last: Int64s
    kinds: list[str]
    is_short: Bools
    confidence: Confidence
    explanation: str

    @property
    def names(self) -> tuple[str, ...]:
        """Return a name for each step: its kind, and its number among those of its kind."""
        number = dict.fromkeys(self.kinds, 0)
        names = []
        for kind in self.kinds:
            names.append(f"{kind} {number[kind]}")
            number[kind] += 1
        return tuple(names)


def from_jitted_calls(trace: HostTrace) -> Steps | None:
    """Infer steps from the calls of jitted functions."""
    calls = find_jax_calls(trace)
    if calls is None:
        return None
    calls, others = of_first_loop(trace, calls)
    steps = _steps(calls, find_turns(trace, calls))
    return replace(steps, notes=(*steps.notes, *loop_notes(trace, calls)), other_loops=others)


def find_turns(trace: HostTrace, calls: JaxCalls, what: str = "call") -> Found:
    """Infer steps from calls, or from runs of programs that stand for their calls; `what` is the noun in sentences."""
    trains = calls.of_class("gradient")
    return _training(calls, trains, _reports(trace, calls, trains), what) if trains.any() else _iterations(calls, what)


def of_first_loop(trace: HostTrace, calls: JaxCalls) -> tuple[JaxCalls, tuple[str, ...]]:
    """Return the calls of the loop that trains, or takes most time, and a sentence for each loop of another thread."""
    if len(distinct(trace.line_of[calls.row])) == 1:
        return calls, ()
    loop = loop_of(trace, calls.row, calls.name, calls.name)
    trains = calls.of_class("gradient")
    loop = with_first(loop, int(loop[trains].min()) if trains.any() else 0)
    return calls.only(loop == 0), other_loops(trace, calls.row, loop)


def _reports(trace: HostTrace, calls: JaxCalls, trains: Bools) -> Bools:
    """Return which calls only report scalars (a metric to print), and not in every turn; rare weight updates return
    more.
    """
    reports = np.zeros(len(trains), np.bool_)
    others = np.flatnonzero(calls.of_class("other"))
    turn = np.searchsorted(np.flatnonzero(trains), others, side="right")
    for token in distinct(calls.token[others]).tolist():
        mine = calls.token[others] == token
        if not in_most_turns(turn[mine], int(trains.sum()) - 1):
            known = calls.work.known[others[mine]]
            ran = distinct(calls.work.program[others[mine]]).tolist() if known.all() else [None]
            reports[others[mine]] = all(_returns_scalars(trace, program) for program in ran)
    return reports


def _returns_scalars(trace: HostTrace, program: int | None) -> bool:
    from tfperf.formats.hlo.hlo_proto import read_proto  # few programs need more than the names of their instructions

    serialized = None if program is None else (trace.hlo_protos or {}).get(program)
    if serialized is None:
        return False
    try:
        shape = read_proto(serialized).entry.root_instruction.shape
    except ProgramError:
        return False
    return all(not array.dims for array in shape.leaves())


def _turns(calls: JaxCalls, chosen: Int64s) -> _Turns | None:
    """Return the turns of the chosen calls, None if nothing repeats."""
    token = calls.token[chosen]
    period = smallest_period(token)
    if not period:
        return None
    if period == 1:
        starts = np.flatnonzero(token == np.bincount(token).argmax())
    else:
        starts = aligned_turns(token, 0, token[:period])
    return _Turns(chosen, starts, period)


def _training(calls: JaxCalls, trains: Bools, reports: Bools, what: str) -> Found:
    every, forward = np.arange(len(calls.name)), calls.of_class("forward")
    in_turns = ~forward & ~reports
    turns = _turns(calls, every[in_turns]) or _each(every[in_turns], trains[in_turns])
    between = np.flatnonzero(forward & (members(turns.first, turns.last, len(every)) < 0))
    if len(np.unique(np.searchsorted(turns.first, between))) >= _SAME * len(turns.first):
        turns, between = _turns(calls, every[~reports]) or turns, between[:0]
    confidence: Confidence = "high" if turns.period else "medium"
    functions = listed(_names(calls, every[trains]), 3)
    programs = "program computes" if len(set(calls.name[trains].tolist())) == 1 else "programs compute"
    text = f"{counted(len(turns.first), 'training step')}: {what}s of {functions} ({programs} gradients)"
    if turns.period > 1:
        text += f", {turns.period} {what}s per step"
    if len(between):
        text += f"; {counted(len(between), f'evaluation {what}')} of {listed(_names(calls, between), 3)}"
    first, last = np.concatenate((turns.first, between)), np.concatenate((turns.last, between))
    kinds = ["train"] * len(turns.first) + ["eval"] * len(between)
    order = np.argsort(first, kind="stable")
    kinds = [kinds[i] for i in order.tolist()]
    return Found(first[order], last[order], kinds, turns.are_short(first[order]), confidence, text)


def _each(chosen: Int64s, is_step: Bools) -> _Turns:
    return _Turns(chosen, np.flatnonzero(is_step), 0)


def _iterations(calls: JaxCalls, what: str) -> Found:
    every = np.arange(len(calls.name))
    turns = _turns(calls, every)
    confidence: Confidence = "medium" if turns else "low"
    if turns is None:
        total, count = np.bincount(calls.name, weights=calls.end - calls.start), np.bincount(calls.name)
        # A program that runs once on a TPU, even if it waits long for other chips, is set-up.
        repeats = (count > 1) | (what != "run" or count.max() == 1)
        turns = _each(every, calls.name == np.where(repeats, total, -1.0).argmax())
    text = f"{counted(len(turns.first), 'iteration')} of {listed(_names(calls, turns.calls[turns.starts[0] :]), 3)}"
    if turns.period > 1:
        text += f", {turns.period} {what}s per step"
    text += "; no program computes gradients, so these are not training steps"
    forward = _names(calls, np.flatnonzero(calls.of_class("forward")))
    kinds = [INFERENCE if forward and all(map(infers, forward)) else ITERATION] * len(turns.first)
    return Found(turns.first, turns.last, kinds, turns.are_short(turns.first), confidence, text)


def _names(calls: JaxCalls, chosen: Int64s) -> list[str]:
    return [calls.names[name] for name in dict.fromkeys(calls.name[chosen].tolist())]


def _steps(calls: JaxCalls, found: Found) -> Steps:
    first, last, kinds = found.first, found.last, tuple(found.kinds)
    start, end, is_late, missing = windows(calls, first, last)
    axis = OF_THE_DEVICE if is_late else "measured from call to call"
    how: How = (SOURCE, found.confidence, f"{found.explanation}; times are {axis}")
    steps = plain_steps(how, (start, end), np.arange(len(kinds), dtype=np.int64), found.names, kinds)
    before = np.concatenate(([0], np.cumsum(calls.compiles)))
    compiles = before[last + 1] > before[first]
    flags = np.where(compiles, RETRACE, np.where(found.is_short | missing, PARTIAL, ""))
    return replace(steps, flags=tuple(flags.tolist()))


def members(first: Int64s, last: Int64s, count: int) -> Int64s:
    """Return for each of `count` calls the index of the step that contains it, -1 for none."""
    step, every = np.searchsorted(last, np.arange(count)), np.arange(count)
    return np.where((step < len(first)) & (np.append(first, 0)[step] <= every), step, -1)


def windows(calls: JaxCalls, first: Int64s, last: Int64s) -> tuple[Int64s, Int64s, bool, Bools]:
    """Return the starts of steps, the ends of their work, whether calls run ahead of the work, and steps without work.

    A program that waits for each step keeps the times of its calls. If most steps are called before the previous work
    is done, a step lasts from the end of the previous work (or its own first work, if later) to the end of its own
    work.
    """
    step = members(first, last, len(calls.name))
    at = np.flatnonzero(step >= 0)
    group = step[at]
    end = np.zeros(len(first), np.int64)
    np.maximum.at(end, group, calls.end[at])
    works = calls.work.end[at] >= 0
    work_start = np.full(len(first), np.iinfo(np.int64).max)
    work_end = np.full(len(first), -1, np.int64)
    np.minimum.at(work_start, group[works], calls.work.start[at][works])
    np.maximum.at(work_end, group, calls.work.end[at])
    missing = work_end < 0
    start = calls.start[first]
    if len(first) < 2 or 2 * int((start[1:] < work_end[:-1]).sum()) <= len(first) - 1:
        return start, np.maximum(end, work_end), False, np.zeros(len(first), np.bool_)
    done = np.maximum.accumulate(np.where(missing, 0, work_end))
    done = np.where(missing & (done == 0), end, done)
    begun = np.where(missing, done, work_start)
    begun[1:] = np.maximum(begun[1:], done[:-1])
    return begun, np.maximum(done, begun), True, missing


def with_work(trace: HostTrace, steps: Steps) -> Steps:
    """Return marked steps, with times of device work if calls run ahead; else they end with their own work."""
    calls = find_jax_calls(trace)
    if calls is None:
        return steps
    first, last = np.searchsorted(calls.start, steps.start_ps), np.searchsorted(calls.start, steps.end_ps)
    before = np.concatenate(([0], np.cumsum(calls.compiles)))
    flags = tuple(RETRACE if compiles else "" for compiles in (before[last] > before[first]).tolist())
    steps = replace(steps, flags=flags)
    if (first >= last).any():
        return steps
    begun, done, is_late, missing = windows(calls, first, last - 1)
    if not is_late or missing.any():
        return replace(steps, end_ps=np.maximum(steps.end_ps, done))
    explanation = f"{steps.explanation}; times are {OF_THE_DEVICE}"
    return replace(steps, start_ps=begun, end_ps=done, explanation=explanation)
