"""Whether a trace can be trusted: what in it is impossible, repeated, lost, or contradicts itself.

None of these occurs in a profile as profilers write them, so each makes every figure doubtful that rests on it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain, pairwise

import numpy as np

from tfperf.arrays import NO_NUMBERS, Bools, Int64s, covers, distinct, lookup, union
from tfperf.trace.event_names import (
    Op,
    is_call,
    is_eager_call,
    is_fetch,
    is_hand_over,
    is_input_function,
    is_iterator,
    is_python_frame,
    is_root_iterator,
    mask,
    parse_op,
    runs_function,
)
from tfperf.trace.flaw import Flaw, Level
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.steps import Steps
from tfperf.units import PS_PER_MS, counted
from tfperf.wire.event_columns import NO_STAT

_LOST = re.compile(r"(?i)\b(?:dropped|lost|discarded|truncated|overflow(?:ed)?|buffer (?:is )?full)\b")
_APART_PS = 1_000 * PS_PER_MS
"""Fetches and steps of one capture are not this far apart, all of them, unless their clocks disagree."""
_SHARE = 0.1
"""What is wrong with a tenth of the events, or of the runs, is no chance."""
_FIRST_OPS = 10
"""More ops of a thread than began in a run from before the capture: at most 3 do in real traces."""
_FEW = 3
"""Of so many fetches and steps, one fetch at least is beside a step."""
_LEAVES = re.compile(
    r"TFE_Delete|EagerCopyToDevice|ExecutorDoneCallback$|ExecutorPropagateOutputs$|ValidateInputType|\w+Consume$"
)
_RUN = "ExecutorState::Process"
_EAGER_PARTS = ("EagerKernelExecute", "KernelAndDevice", "ValidateInputType")
"""Of none of a hundred thousand such events in real traces is the first thing inside a call, a run or an op."""
_LATE_PS = 5 * PS_PER_MS
"""The fastest of ten runs of functions begins a tenth of a millisecond after its call at most: a fiftieth of this."""


def find_flaws(trace: HostTrace, steps: Steps) -> tuple[Flaw, ...]:
    """Return what is wrong with the trace of a host, and with the steps found in it; nothing if it is sound."""
    of_names = trace.oddities.flaws(trace.event_count)
    of_events = chain(_of_stats(trace), _of_planes(trace), _of_threads(trace))
    return *_of_file(trace), *of_names, *of_events, *_of_steps(trace, steps)


def _of_file(trace: HostTrace) -> Iterator[Flaw]:
    """Yield what the profiler says, and what reading omitted; where events are missing, no sum holds."""
    for message in dict.fromkeys((*trace.errors, *trace.warnings)):
        said = " ".join(message.split())[:200]
        if _LOST.search(said):
            yield Flaw("lost_events", f"the profiler reports that events are missing ({said})")
        elif message in trace.errors:
            yield Flaw("profiler_error", f"the profiler reports an error ({said})", "doubtful")
    if trace.malformed_events:
        events = counted(trace.malformed_events, "event")
        yield Flaw("impossible_times", f"{events} of {trace.event_count:,} with impossible times (omitted)")


def _of_stats(trace: HostTrace) -> Iterator[Flaw]:
    """Yield events without the stat that they always have."""
    calls = trace.host_events(mask(trace.names, _has_id)) if len(trace.stat("id").event) else NO_NUMBERS
    without = int((~trace.has_stat("id")[calls]).sum())
    if without:
        text = f"{without:,} of {counted(len(calls), 'call')} of tf.data and of functions without an id"
        yield Flaw("missing_ids", text, "doubtful")
    counted_traces = trace.has_stat("tracing_count") & trace.on_host
    alone = int((counted_traces & ~trace.has_stat("tf_function_call")).sum())
    if alone:
        calls_of = f"{alone:,} of {counted(int(counted_traces.sum()), 'call')} of tf.function"
        yield Flaw("unsaid_calls", f"{calls_of} without tf_function_call: names may be exchanged", "doubtful")
    if trace.allocations is not None:
        allocator = trace.allocations.stats.get("allocator_name", NO_STAT)
        named = int(mask(allocator.texts, bool)[allocator.value].sum())
        if named < len(trace.allocations):
            of_all = f"{len(trace.allocations) - named:,} of {counted(len(trace.allocations), 'allocation')}"
            yield Flaw("unnamed_allocators", f"{of_all} without the name of an allocator", "doubtful")


def _has_id(name: str) -> bool:
    return is_iterator(name) or is_fetch(name) or is_input_function(name) or runs_function(name)


def _of_planes(trace: HostTrace) -> Iterator[Flaw]:
    recorded = Counter(plane.name for plane in trace.planes if plane.event_count and plane.kind != "other")
    judged: tuple[tuple[Counter[str], Level], ...] = (
        (recorded, "unsound"),
        (Counter(plane.name for plane in trace.planes), "doubtful"),
    )
    for names, level in judged:
        twice = next((name for name, count in names.items() if count > 1), None)
        if twice is not None:
            text = f"{names[twice]} planes are called {twice}: a capture has one of each name"
            yield Flaw("repeated_planes", text, level)
            break
    of_host = int(mask(trace.names, is_call)[trace.name[~trace.on_host]].sum())
    if of_host:
        text = f"{counted(of_host, 'event')} of host threads on planes of devices: planes may be exchanged"
        yield Flaw("host_events_on_device", text)


def _of_threads(trace: HostTrace) -> Iterator[Flaw]:
    """Yield threads whose clocks disagree, and those whose events are there twice."""
    lines = [line for line in trace.lines if line.stop > line.start]
    extents = sorted(
        (int(trace.start_ps[line.start]), int(trace.end_ps[line.start : line.stop].max())) for line in lines
    )
    end_ps = extents[0][1] if extents else 0
    for (_, before_ps), (start_ps, _) in pairwise(extents):
        end_ps = max(end_ps, before_ps)
        if start_ps - end_ps > _APART_PS:
            # Work that one thread hands on to the next after a pause looks like this too.
            text = f"some threads end {_seconds(start_ps - end_ps)} before all others start: their clocks may disagree"
            yield Flaw("clocks_disagree", text, "doubtful")
            break
    yield from _of_runs(trace)
    crossing, alone = _misfits(trace)
    if alone:
        text = f"{counted(alone, 'op')} outside of what runs them on their threads: times may be wrong"
        yield Flaw("ops_outside", text, "doubtful")
    if crossing:
        # Nothing on a thread ends inside of what it calls. A few can be a glitch of the clock.
        text = f"events of host threads end inside another one ({crossing:,} of {trace.event_count:,})"
        yield Flaw("crossing_events", text, "doubtful")
    if misplaced := _misplaced(trace):
        text = f"{counted(misplaced, 'event')} directly inside events that contain none: names or times may be wrong"
        yield Flaw("misplaced_calls", text, "doubtful")
    if again := _overlapping_markers(trace):
        text = f"{counted(again, 'marker')} of steps inside the one before: times may be wrong"
        yield Flaw("overlapping_markers", text, "doubtful", about_steps=True)
    if _repeats(trace) > _SHARE:
        yield Flaw("repeated_events", "events of host threads are there twice")


def _misfits(trace: HostTrace) -> tuple[int, int]:
    """Return how many events of TensorFlow cross others on host threads, and how many ops lie in nothing.

    An event crosses what it begins inside of and ends after: it is compared with the event before it, and with what
    ends last of all before it. Frames of Python are left out, which are cut where tracing starts. Runs of the executor
    overlap each other in sound traces too, and what users mark may overlap as it likes. Elements that a thread hands
    over, it makes one after the other. Ops lie in a run of the executor or in an eager call, but for the first ones on
    a thread, which began before the capture.
    """
    of_tensorflow, ops = mask(trace.names, _is_of_tensorflow), mask(trace.names, _is_run_op)
    excluded, hand_overs = mask(trace.names, is_python_frame), mask(trace.names, is_hand_over)
    crossing = alone = 0
    for line in trace.host_lines:
        rows = slice(line.start, line.stop)
        name = trace.name[rows]
        keep = ~excluded[name]
        name, start_ps, end_ps = name[keep], trace.start_ps[rows][keep], trace.end_ps[rows][keep]
        before_ps, reach_ps = end_ps[:-1], np.maximum.accumulate(end_ps)[:-1]
        crosses = [(start_ps[1:] < limit_ps) & (limit_ps < end_ps[1:]) for limit_ps in (before_ps, reach_ps)]
        crosses_any = (crosses[0] | crosses[1]) & of_tensorflow[name[1:]]
        hands = np.flatnonzero(hand_overs[name])
        crosses_any[hands[1:][start_ps[hands[1:]] < np.maximum.accumulate(end_ps[hands])[:-1]] - 1] = True
        crossing += int(crosses_any.sum())
        is_op = ops[name[1:]]
        outside = int((is_op & (start_ps[1:] >= reach_ps)).sum())
        alone += outside if outside > max(_FIRST_OPS, _SHARE * int(is_op.sum())) else 0
    return crossing, alone


def _is_run_op(name: str) -> bool:
    """Tell whether the event runs inside another one: ops but for those that wait for others, and eager kernels."""
    op = parse_op(name) if ":" in name and not is_fetch(name) else Op("", name, "")
    is_op = op.kind == "tensorflow" and not re.search("Collective|Service", name)
    return is_op or name.startswith("KernelAndDevice")


def _is_of_tensorflow(name: str) -> bool:
    """Tell whether the event is one that TensorFlow writes, which ends before the call around it does."""
    if name.startswith(("Executor", "ThreadpoolListener::", "KernelAndDevice")):
        return name != _RUN
    if is_iterator(name) or is_fetch(name) or is_eager_call(name) or is_hand_over(name):
        return True
    return ":" in name and bool(parse_op(name).kind)


def _misplaced(trace: HostTrace) -> int:
    """Return how many events are the first thing inside one that never contains such.

    Of ops, only those about tf.data call it. What waits for memory, copies to a device, tells that an op is done or
    deletes a tensor runs nothing.
    """
    names = trace.names
    calls, others = mask(names, _calls_data)[trace.name], mask(names, _calls_no_data)[trace.name]
    runs, leaves = mask(names, _runs)[trace.name], mask(names, _LEAVES.match)[trace.name]
    is_inside = (trace.end_ps[1:] <= trace.end_ps[:-1]) & (trace.line_of[1:] == trace.line_of[:-1])
    is_inside &= trace.start_ps[1:] < trace.end_ps[:-1]
    return int((((calls[1:] & others[:-1]) | (runs[1:] & leaves[:-1])) & is_inside).sum())


def _calls_data(name: str) -> bool:
    return is_iterator(name) or is_fetch(name)


def _calls_no_data(name: str) -> bool:
    """Tell whether the event calls no iterator: ops, but for those like `ReduceDataset`, and the end of a run."""
    op = parse_op(name) if ":" in name and not is_fetch(name) else Op("", name, "")
    if op.kind == "tensorflow":
        return not re.search("Dataset|Iterator", op.type)
    return name == "ExecutorState::ProcessAsync::Done"


def _runs(name: str) -> bool:
    """Tell whether something is run in the event: a function, an op, a stage of tf.data."""
    is_eager = is_eager_call(name) or name.startswith(_EAGER_PARTS)
    return is_eager or _calls_data(name) or _calls(name) or name.startswith(_RUN) or _is_run_op(name)


def _overlapping_markers(trace: HostTrace) -> int:
    """Return how many markers of steps begin before the one of their name before them on their thread ends."""
    rows = np.flatnonzero(trace.has_stat("step_num") & trace.on_host)
    rows = rows[np.lexsort((trace.start_ps[rows], trace.name[rows], trace.line_of[rows]))]
    before, after = rows[:-1], rows[1:]
    is_next = (trace.line_of[before] == trace.line_of[after]) & (trace.name[before] == trace.name[after])
    return int((is_next & (trace.start_ps[after] < trace.end_ps[before])).sum())


def _repeats(trace: HostTrace) -> float:
    """Return the share of the events of host threads that are like the one before: in name, start and duration."""
    if len(trace.name) < 2:
        return 0.0
    like_before: Bools = (
        (trace.start_ps[1:] == trace.start_ps[:-1])
        & (trace.duration_ps[1:] == trace.duration_ps[:-1])
        & (trace.name[1:] == trace.name[:-1])
        & (trace.line_of[1:] == trace.line_of[:-1])
        & (trace.duration_ps[1:] > 0)
        & trace.on_host[1:]
    )
    return float(like_before.sum()) / max(int(trace.on_host.sum()), 1)


def _of_runs(trace: HostTrace) -> Iterator[Flaw]:
    """Yield runs of functions that begin before they are called, fetch before they begin, or all begin late.

    A call, the executor that runs it on another thread, and what the run fetches from tf.data carry the same id.
    """
    run, start_ps, end_ps = _spans(trace, lambda name: name.startswith(_RUN))
    calls, fetches = (_spans(trace, wanted)[:2] for wanted in (_calls_function, is_fetch))
    called_ps, fetched_ps = _waits(calls, (run, start_ps)), _waits((run, start_ps), fetches)
    early, count = int((called_ps < 0).sum() + (fetched_ps < 0).sum()), len(called_ps) + len(fetched_ps)
    if early:
        text = f"{early:,} of {counted(count, 'run')} and fetches begin before what starts them: clocks disagree"
        yield Flaw("run_before_call", text, "unsound" if early > _SHARE * count else "doubtful")
    after = int((_waits((run, end_ps), fetches) > 0).sum())
    if after:
        text = f"{after:,} of {counted(len(fetched_ps), 'fetch', 'fetches')} begin after the run that they are in"
        level: Level = "unsound" if after > _SHARE * len(fetched_ps) else "doubtful"
        yield Flaw("fetch_after_run", f"{text}: clocks disagree", level)
    if len(called_ps) >= _FEW and called_ps.min() > _LATE_PS / min(len(called_ps), 10):
        late = f"every run of a function begins {called_ps.min() / PS_PER_MS:.1f} ms or more after its call"
        yield Flaw("late_runs", f"{late}: clocks may disagree", "doubtful")
    yield from _of_uncalled_runs(trace, run, start_ps)


def _of_uncalled_runs(trace: HostTrace, run: Int64s, start_ps: Int64s) -> Iterator[Flaw]:
    """Yield runs of functions that begin while no call is under way, and whose own call is not there.

    A thread that calls loses the call during which a capture starts, and the one during which it ends.
    """
    callers = trace.host_events(mask(trace.names, _calls))
    if not len(callers):
        return
    uncalled_ps = start_ps[lookup(_spans(trace, _calls)[0], run) < 0]
    alone = int((~covers(union(trace.start_ps[callers], trace.end_ps[callers]), uncalled_ps)).sum())
    threads = len(distinct(trace.line_of[callers]))
    if alone > max(2 * threads, _SHARE * len(run)):
        text = f"{alone:,} of {counted(len(run), 'run')} of functions without a call: events may be missing"
        yield Flaw("uncalled_runs", text, "doubtful")


def _spans(trace: HostTrace, wanted: Callable[[str], bool]) -> tuple[Int64s, Int64s, Int64s]:
    """Return the ids that the wanted events carry, ascending, when the first event with each starts, the last ends."""
    rows = trace.host_events(mask(trace.names, wanted))
    rows = rows[trace.has_stat("id")[rows]]
    run = trace.number_at("id", rows)
    if not len(run):
        return NO_NUMBERS, NO_NUMBERS, NO_NUMBERS
    order = np.argsort(run, kind="stable")
    rows, run = rows[order], run[order]
    first = np.flatnonzero(np.concatenate(([True], run[1:] != run[:-1])))
    start_ps, end_ps = np.minimum.reduceat(trace.start_ps[rows], first), np.maximum.reduceat(trace.end_ps[rows], first)
    return run[first], start_ps, end_ps


def _waits(causes: tuple[Int64s, Int64s], effects: tuple[Int64s, Int64s]) -> Int64s:
    """Return how long after its cause each effect begins, of those whose cause is there."""
    place = lookup(causes[0], effects[0])
    return effects[1][place >= 0] - causes[1][place[place >= 0]]


def _calls_function(name: str) -> bool:
    return name == "FunctionRun" or is_input_function(name)


def _calls(name: str) -> bool:
    return runs_function(name) or is_input_function(name)


def _of_steps(trace: HostTrace, steps: Steps) -> Iterator[Flaw]:
    if not len(steps):
        return
    empty = int((steps.end_ps <= steps.start_ps).sum())
    if empty:
        yield Flaw("empty_steps", f"{counted(empty, 'step')} of {len(steps):,} without a duration", about_steps=True)
    fetches: Int64s = trace.host_events(mask(trace.names, lambda name: is_fetch(name) or is_root_iterator(name)))
    if min(len(fetches), len(steps)) < _FEW:
        return
    halt = _halt_of(trace.start_ps[fetches], steps)
    if halt:
        yield Flaw("fetches_stop", f"{halt}: data of some thread may be missing", "doubtful", about_steps=True)
    first_ps, last_ps = int(steps.start_ps.min()), int(steps.end_ps.max())
    away_ps = np.maximum(first_ps - trace.end_ps[fetches], trace.start_ps[fetches] - last_ps).min()
    if away_ps > _APART_PS:
        text = f"no call of tf.data is within {_seconds(away_ps)} of a step: clocks disagree"
        yield Flaw("fetches_apart", text, about_steps=True)


def _halt_of(fetched_ps: Int64s, steps: Steps) -> str:
    """Say that fetches begin late or end early, if all steps up to one fetch and all others do not; else nothing."""
    place = np.searchsorted(np.sort(steps.start_ps), fetched_ps, side="right") - 1
    fetches = np.bincount(place[place >= 0], minlength=len(steps)) > 0
    changes = np.flatnonzero(fetches[1:] != fetches[:-1]) + 1
    if len(changes) != 1 or not _FEW <= changes[0] <= len(steps) - _FEW:
        return ""
    which = "last" if fetches[0] else "first"
    without = int((~fetches).sum())
    return f"no call of tf.data is in the {which} {without} of {len(steps)} steps, and one in each of the others"


def _seconds(duration_ps: int) -> str:
    return f"{duration_ps / (1000 * PS_PER_MS):.1f} s"
