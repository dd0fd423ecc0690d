"""Steps of a JAX program without markers: from the calls of its jitted functions.

A program that computes gradients trains. Calls that only compute forward are evaluation then, unless every step has
them (a teacher, a policy). What is left repeats: one turn is a step. Without gradients a turn is an iteration.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from tfperf.base.arrays import Bools, Int64s, distinct
from tfperf.base.units import counted, listed
from tfperf.formats.hlo.model import ProgramError
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.jax.jax_calls import JaxCalls, find_jax_calls
from tfperf.trace.jax.jax_loops import loop_notes
from tfperf.trace.steps.steps import ITERATION, PARTIAL, RETRACE, Confidence, How, Steps, plain_steps
from tfperf.trace.steps.turns import aligned_turns, in_most_turns, smallest_period

SOURCE = "jitted calls"
OF_THE_DEVICE = "those of the device's work, since calls return before it is done"
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
        """Tell which of the steps that begin with these calls are turns at an end of the sequence that lack calls."""
        short = np.zeros(len(first), np.bool_)
        if self.period > 1:
            size = np.diff(np.append(self.starts, len(self.calls)))
            short[np.isin(first, self.first[[0, -1]])] = size[[0, -1]] < self.period
        return short


class Found(NamedTuple):
    """Steps as positions in a sequence of calls: the first and the last call of each, its kind, and how it was found.

    `is_short` marks turns at the ends of the sequence that lack calls.
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
    """Infer steps from calls, or from runs of programs that stand for their calls: `what` they are in sentences."""
    trains = calls.of_class("gradient")
    return _training(calls, trains, _reports(trace, calls, trains), what) if trains.any() else _iterations(calls, what)


def of_first_loop(trace: HostTrace, calls: JaxCalls) -> tuple[JaxCalls, tuple[str, ...]]:
    """Return the calls of the loop that trains, or takes most time, and a sentence for each loop of another thread."""
    if len(distinct(trace.line_of[calls.row])) == 1:
        return calls, ()
    from tfperf.trace.steps import loops  # few programs call functions on several threads

    loop = loops.loop_of(trace, calls.row, calls.name, calls.name)
    trains = calls.of_class("gradient")
    loop = loops.with_first(loop, int(loop[trains].min()) if trains.any() else 0)
    return calls.only(loop == 0), loops.other_loops(trace, calls.row, loop)


def _reports(trace: HostTrace, calls: JaxCalls, trains: Bools) -> Bools:
    """Tell which calls only report now and then: they compute scalars (a metric to be printed), and not in every turn.

    What updates weights after several micro-batches is not every turn's either, but returns more.
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
    between = np.flatnonzero(forward & ~_inside(turns, len(every)))
    if len(np.unique(np.searchsorted(turns.first, between))) >= _SAME * len(turns.first):
        turns, between = _turns(calls, every[~reports]) or turns, between[:0]
    confidence: Confidence = "high" if turns.period else "medium"
    functions = listed(_names(calls, every[trains]), 3)
    programs = "program computes" if len(set(calls.name[trains].tolist())) == 1 else "programs compute"
    text = f"{counted(len(turns.first), 'training step')}: {what}s of {functions}, whose {programs} gradients"
    if turns.period > 1:
        text += f", in turns of {turns.period} {what}s"
    if len(between):
        text += f"; {counted(len(between), f'evaluation {what}')} of {listed(_names(calls, between), 3)}"
    first, last = np.concatenate((turns.first, between)), np.concatenate((turns.last, between))
    kinds = ["train"] * len(turns.first) + ["eval"] * len(between)
    order = np.argsort(first, kind="stable")
    kinds = [kinds[i] for i in order.tolist()]
    return Found(first[order], last[order], kinds, turns.are_short(first[order]), confidence, text)


def _each(chosen: Int64s, is_step: Bools) -> _Turns:
    return _Turns(chosen, np.flatnonzero(is_step), 0)


def _inside(turns: _Turns, count: int) -> Bools:
    """Tell which calls lie between the first and the last one of a turn."""
    depth = np.zeros(count + 1, np.int64)
    np.add.at(depth, turns.first, 1)
    np.add.at(depth, turns.last + 1, -1)
    return np.asarray(np.cumsum(depth)[:count] > 0, np.bool_)


def _iterations(calls: JaxCalls, what: str) -> Found:
    every = np.arange(len(calls.name))
    turns = _turns(calls, every)
    confidence: Confidence = "medium" if turns else "low"
    if turns is None:
        total, count = np.bincount(calls.name, weights=calls.end - calls.start), np.bincount(calls.name)
        # What runs once on a TPU, however long it waits for other chips, sets up what follows.
        repeats = (count > 1) | (what != "run" or count.max() == 1)
        turns = _each(every, calls.name == np.where(repeats, total, -1.0).argmax())
    text = f"{counted(len(turns.first), 'iteration')} of {listed(_names(calls, turns.calls[turns.starts[0] :]), 3)}"
    if turns.period > 1:
        text += f", in turns of {turns.period} {what}s"
    text += "; no program computes gradients, so these are not training steps"
    kinds = [ITERATION] * len(turns.first)
    return Found(turns.first, turns.last, kinds, turns.are_short(turns.first), confidence, text)


def _names(calls: JaxCalls, chosen: Int64s) -> list[str]:
    return [calls.names[name] for name in dict.fromkeys(calls.name[chosen].tolist())]


def _steps(calls: JaxCalls, found: Found) -> Steps:
    """Return the steps that were found, in time."""
    first, last, kinds = found.first, found.last, tuple(found.kinds)
    start, end, is_late, missing = windows(calls, first, last)
    axis = OF_THE_DEVICE if is_late else "those from call to call"
    how: How = (SOURCE, found.confidence, f"{found.explanation}; times are {axis}")
    steps = plain_steps(how, (start, end), np.arange(len(kinds), dtype=np.int64), found.names, kinds)
    before = np.concatenate(([0], np.cumsum(calls.compiles)))
    compiles = before[last + 1] > before[first]
    flags = np.where(compiles, RETRACE, np.where(found.is_short | missing, PARTIAL, ""))
    return replace(steps, flags=tuple(flags.tolist()))


def members(first: Int64s, last: Int64s, count: int) -> Int64s:
    """Return for each of `count` calls the index of the step whose first and last call it lies between, -1 for none."""
    step, every = np.searchsorted(last, np.arange(count)), np.arange(count)
    return np.where((step < len(first)) & (np.append(first, 0)[step] <= every), step, -1)


def windows(calls: JaxCalls, first: Int64s, last: Int64s) -> tuple[Int64s, Int64s, bool, Bools]:
    """Return where steps start and where their work ends, whether calls run ahead of the work, and steps without work.

    A program that waits for each step keeps the times of its calls. Where most steps are called before the work of the
    one before is done, a step lasts from the end of the work of the one before (or its own first work, if later) to the
    end of its own.
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
    """Return steps that the program marked, with the times of the device's work if calls run ahead of it.

    Else they end when their own work does, if that goes on after the mark.
    """
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
