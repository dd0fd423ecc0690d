"""Steps from program runs on TPU chips: a run of the main program, or a turn of the programs that repeat.

If a program enqueues runs before the previous ones are done, the slowest chip determines the rate: a step lasts from
the start of its run to the start of the next one, on each chip by its clock. If it waits for each result, a step lasts
from call to call, and the last one until it stops waiting. The clock of the host, where runs are linked to calls,
distinguishes the two.
"""

from __future__ import annotations

import fnmatch
import re
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from tfperf.base.arrays import Bools, Int64s, Intervals, distinct, extents, lookup, median, overlap, text_index, union
from tfperf.base.units import PS_PER_MS, counted, format_ms
from tfperf.trace.device.tpu_runs import TpuRuns, find_runs, module_name
from tfperf.trace.event_names import called_function, canonical, is_jax_compilation, mask
from tfperf.trace.host.host_state import State, state_of
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.jax import Found, JaxCalls, Work, find_jax_calls, find_turns, members, of_first_loop, programs_of
from tfperf.trace.steps.steps import (
    END_ESTIMATED,
    PARTIAL,
    RETRACE,
    SLOW_FIRST,
    UNLABELLED,
    CoreSteps,
    How,
    Steps,
    plain_steps,
)

SOURCE = "program runs"
_CUT = 0.9
"""A first or last run that takes less than this share of every other one is cut by an end of the capture."""
_LONGER = 0.1
"""Minimum share of a step in compilation with an idle chip that makes a step different from others."""
_SEVERAL, _COLD = 3, 2.0
"""Minimum number of steps from call to call, and how much longer the first one is if it is not typical."""
_LOAD, _LONG_MS = "LoadProgram", 1.0
"""Event that loads a program onto a chip, and its duration in ms if it was not loaded before."""


def from_runs(trace: HostTrace, pattern: str | None = None) -> Steps | None:
    """Infer steps from program runs; or return those whose name matches, with or without the program's id."""
    runs, others = find_runs(trace), tuple[str, ...]()
    if pattern is not None:
        accepts = re.compile(fnmatch.translate(pattern)).match if "*" in pattern else pattern.__eq__
        wanted = mask(runs.names, lambda name: accepts(name) or accepts(module_name(name)))
        runs = runs.only(wanted[runs.name])
    elif (calls := find_jax_calls(trace)) is not None:
        # Other loops may call functions at the same time.
        mine, others = of_first_loop(trace, calls)
        runs = runs.only(lookup(np.setdiff1d(calls.row, mine.row), runs.call) < 0)
    if not len(runs):
        return None
    chip = _slowest(runs)
    launched = _launched(trace, runs, chip)
    if pattern is None:
        found = find_turns(trace, launched, "run")
    else:
        every = np.arange(len(launched.row))
        kinds = [UNLABELLED if len(launched.names) == 1 else launched.names[name] for name in launched.name.tolist()]
        text = f"{counted(len(every), 'run')} of programs named {pattern!r} (--step-marker)"
        found = Found(every, every, kinds, np.zeros(len(every), np.bool_), "high", text)
    step_of = np.full(int(runs.launch.max()) + 1, -1, np.int64)
    step_of[runs.launch[chip]] = members(found.first, found.last, len(chip))
    work = _work(trace, runs, step_of[runs.launch], len(found.first), int(runs.plane[chip[0]]))
    first, last = runs.call[chip[found.first]], runs.call[chip[found.last]]
    source, confidence = (SOURCE, found.confidence) if pattern is None else ("markers", "high")
    numbers = np.arange(len(found.first), dtype=np.int64)
    how: How = (source, confidence, found.explanation)
    steps = plain_steps(how, (work.begun, work.ended), numbers, found.names, tuple(found.kinds))
    steps = replace(steps, flags=tuple(np.where(found.is_short, PARTIAL, "").tolist()), other_loops=others)
    if _waits(trace, first, work):
        steps = _from_call_to_call(trace, steps, work, first, last)
    else:
        steps = _from_run_to_run(trace, steps, work)
    return replace(steps, notes=(*steps.notes, *_first_call(trace, runs, int(runs.launch[chip[found.first[0]]]))))


def with_runs(trace: HostTrace, steps: Steps) -> Steps | None:
    """Return steps that the program marked, with the times of the runs called in them; None without linked runs.

    A program that waits for each result keeps the times of its marks.
    """
    runs = find_runs(trace)
    called = np.append(trace.start_ps, -1)[runs.call]
    step = np.where(runs.call < 0, -1, steps.at(called))
    if not (step >= 0).any():
        return None
    work = _work(trace, runs, step, len(steps), int(runs.plane[step >= 0][_slowest(runs.only(step >= 0))[0]]))
    first, last = np.full(len(steps), -1, np.int64), np.full(len(steps), -1, np.int64)
    order = np.argsort(-called, kind="stable")
    order = order[step[order] >= 0]
    first[step[order]], last[step[order[::-1]]] = runs.call[order], runs.call[order[::-1]]
    if not _waits(trace, first, work):
        return _from_run_to_run(trace, steps, work)
    flags = np.where(_compiles(trace, first, last), RETRACE, "")
    return replace(steps, end_ps=np.maximum(steps.end_ps, work.done), flags=tuple(flags.tolist()))


def _slowest(runs: TpuRuns) -> Int64s:
    """Return the runs of the chip on which repeated runs of the main program take the longest total time."""
    total, (_, first) = np.bincount(runs.name, weights=runs.duration_ps), np.unique(runs.launch, return_index=True)
    launches = np.bincount(runs.name[first])
    main = runs.name == np.where((launches > 1) | (launches.max() == 1), total, -1.0).argmax()
    return np.flatnonzero(runs.plane == np.bincount(runs.plane[main], weights=runs.duration_ps[main]).argmax())


def _launched(trace: HostTrace, runs: TpuRuns, chip: Int64s) -> JaxCalls:
    """Return the runs of a chip as if each were the call that caused it."""
    modules = [module_name(runs.names[name]) for name in runs.name[chip].tolist()]
    names, name = text_index(modules)
    start, end, program, known = runs.start_ps[chip], runs.end_ps[chip], runs.program[chip], runs.known[chip]
    return JaxCalls(
        runs.row[chip],
        start,
        end,
        name,
        tuple(names),
        *programs_of(trace, [canonical(module) for module in modules], program, known),
        np.zeros(len(chip), np.int64),
        Work(start, end, program, known, end - start),
    )


class _Work(NamedTuple):
    """When chips work for each step: each chip by its clock; the slowest one, and all, by the clock of the host; -1: no
    run.
    """

    on_cores: tuple[CoreSteps, ...]
    begun: Int64s
    ended: Int64s
    done: Int64s
    chip: int


def _work(trace: HostTrace, runs: TpuRuns, step: Int64s, count: int, chip: int) -> _Work:
    cores, done = [], np.full(count, -1, np.int64)
    begun = ended = done
    for plane in distinct(runs.plane[step >= 0]).tolist():
        mine = (runs.plane == plane) & (step >= 0)
        start, end = extents(step[mine], runs.start_ps[mine], runs.end_ps[mine], count)
        ran = end >= 0
        if 2 * int(ran.sum()) < count and plane != chip:  # another program runs on it
            continue
        cores.append(CoreSteps(plane, start, end))
        on_host = np.where(ran, trace.on_host_clock(plane, end), -1)
        done = np.maximum(done, on_host)
        if plane == chip:
            begun, ended = np.where(ran, trace.on_host_clock(plane, start), -1), on_host
    return _Work(tuple(cores), begun, ended, done, chip)


def _waits(trace: HostTrace, first: Int64s, work: _Work) -> bool:
    """Return whether most steps are called after the previous one is done; `first`: first call of each, -1: unknown."""
    called = np.append(trace.start_ps, -1)[first]
    if len(first) == 1:
        return bool(_stops_waiting(trace, first, np.full(1, -1), work)[0] >= 0)
    known = (first[1:] >= 0) & (work.done[:-1] >= 0)
    late = called[1:][known] < work.done[:-1][known]
    return bool(known.any()) and 2 * int(late.sum()) <= int(known.sum())


def _from_run_to_run(trace: HostTrace, steps: Steps, work: _Work) -> Steps:
    """Return the steps that ran on all chips, in windows of the slowest one."""
    ran = np.flatnonzero(np.all([each.end_ps >= 0 for each in work.on_cores], axis=0))
    notes = steps.notes
    if len(ran) < len(steps):
        lost = counted(len(steps) - len(ran), "step")
        notes = (*notes, f"{lost} of {len(steps)} did not run on all TPU cores within the capture (omitted).")
    explanation = f"{steps.explanation}; times are from run to run on the TPU"
    timed = replace(steps, start_ps=work.begun, end_ps=work.ended, explanation=explanation, on_cores=work.on_cores)
    timed = replace(timed.only(ran), notes=notes, end_known=True, enough=1)
    flags = np.array(timed.flags, object)
    gap_start, gap_end = timed.end_ps[:-1], np.maximum(timed.start_ps[1:], timed.end_ps[:-1])
    stalls = overlap(_compiling(trace), gap_start, gap_end)
    same = np.array([one == other for one, other in zip(timed.kinds, timed.kinds[1:], strict=False)], np.bool_)
    flags[np.flatnonzero(same & (stalls > _LONGER * (timed.start_ps[1:] - timed.start_ps[:-1])))] = RETRACE
    flags[_cut(timed)] = PARTIAL
    return replace(timed, flags=tuple(flags.tolist()))


def _cut(steps: Steps) -> list[int]:
    """Return which of the first and last step is shorter than all others of its kind, so probably cut off."""
    kinds = np.array(steps.kinds, object)
    cut = []
    for end in {0, len(steps) - 1} if len(steps) else ():
        others = np.flatnonzero(kinds == kinds[end])
        others = others[(others != 0) & (others != len(steps) - 1)]
        if len(others) >= 3 and steps.duration_ps[end] < _CUT * steps.duration_ps[others].min():
            cut.append(end)
    return cut


def _from_call_to_call(trace: HostTrace, steps: Steps, work: _Work, first: Int64s, last: Int64s) -> Steps:
    """Return steps from their first call until the program, or the TPU, is done with the last one."""
    is_called = (first >= 0) & (last >= 0)
    start = np.where(is_called, trace.start_ps[first], work.begun)
    returned = np.where(is_called, trace.end_ps[last], work.ended)
    end = np.maximum(np.maximum(returned, work.done), _stops_waiting(trace, last, np.append(start[1:], -1), work))
    flags = np.where(_compiles(trace, first, last), RETRACE, np.array(steps.flags, object))
    if len(steps) >= _SEVERAL:  # the time from the end of waiting to the next call belongs to a step too
        flags[-1] = flags[-1] or END_ESTIMATED
        others = np.diff(start)[1:][flags[1:-1] == ""]
        if not flags[0] and len(others) and start[1] - start[0] > _COLD * median(others):
            flags[0] = SLOW_FIRST
    explanation = (
        f"{steps.explanation}; times are from call to call, and for the last call until the program has its result"
    )
    return replace(steps, start_ps=start, end_ps=end, flags=tuple(flags.tolist()), explanation=explanation, enough=1)


def _stops_waiting(trace: HostTrace, last: Int64s, following: Int64s, work: _Work) -> Int64s:
    """Return when the program stops waiting for the last call of each step, -1 if it does not wait.

    This is the end of the waiting event on its thread that begins before the TPU is done and the next call.
    """
    ends = np.full(len(last), -1, np.int64)
    called = np.flatnonzero(last >= 0)
    waits = trace.host_events(mask(trace.names, lambda name: state_of(name) == State.SYNC))
    waits = waits[np.isin(trace.line_of[waits], trace.line_of[last[called]])]
    if not len(waits) or not len(called):
        return ends
    clock = trace.device_clocks.get(work.chip)
    most = None if clock is None else clock.shift_bounds_ps[1]
    until = work.done[called] + (0 if clock is None or most is None else max(most - clock.shift_ps, 0))
    until = np.where(following[called] >= 0, np.minimum(until, following[called]), until)
    step = np.searchsorted(trace.start_ps[last[called]], trace.start_ps[waits], side="right") - 1
    is_in = (step >= 0) & (trace.start_ps[waits] <= until[step])
    np.maximum.at(ends, called[step[is_in]], trace.end_ps[waits[is_in]])
    return ends


def _compiling(trace: HostTrace) -> Intervals:
    rows = trace.host_events(mask(trace.names, is_jax_compilation))
    return union(trace.start_ps[rows], trace.end_ps[rows])


def _compiles(trace: HostTrace, first: Int64s, last: Int64s) -> Bools:
    """Return in which steps XLA compiles on the thread of their calls, from the first call to the end of the last."""
    rows = trace.host_events(mask(trace.names, is_jax_compilation))
    known = (first >= 0) & (last >= 0)
    start, end = trace.start_ps[first], trace.end_ps[last]
    inside = np.searchsorted(np.sort(trace.start_ps[rows]), end) > np.searchsorted(np.sort(trace.start_ps[rows]), start)
    return np.asarray(known & inside, np.bool_)


def _first_call(trace: HostTrace, runs: TpuRuns, launch: int) -> tuple[str, ...]:
    """Return a sentence if the first step's call compiles or loads the program before it runs."""
    mine = runs.launch == launch
    call = int(runs.call[mine].max())
    if call < 0:
        return ()
    start, begun = trace.start_ps[[call]], runs.on_host(trace, runs.start_ps)[mine].min(keepdims=True)
    compiling_ms = int(overlap(_compiling(trace), start, begun)[0]) / PS_PER_MS
    loads = trace.host_events(mask(trace.names, _LOAD.__eq__))
    loads = loads[(trace.start_ps[loads] >= start) & (trace.start_ps[loads] < begun)]
    loading_ms = int(trace.duration_ps[loads].max(initial=0)) / PS_PER_MS
    parts = []
    if compiling_ms:
        parts.append(f"{format_ms(compiling_ms)} ms to compile it")
    if loading_ms >= _LONG_MS:
        parts.append(f"up to {format_ms(loading_ms)} ms to load it onto the TPU")
    function, taken_ms = called_function(trace.names[trace.name[call]]), int(begun[0] - start[0]) / PS_PER_MS
    text = f"The first call of {function} takes {format_ms(taken_ms)} ms until its program runs: "
    return (f"{text}{' and '.join(parts)}.",) if parts else ()
