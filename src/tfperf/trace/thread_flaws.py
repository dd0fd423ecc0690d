"""What the events of host threads tell: whether they lie in each other as no profiler writes them, and what is missing.

Markers of steps have numbers, elements of tf.data have ids, a stage asks the one before it, and some thread always does
something: where one of these stops and goes on later, the profiler or whoever copied the profile has lost events. Tasks
of thread pools, which have numbers too, are counted while the file is read (`oddities`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from tfperf.base.arrays import Bools, Int64s, distinct, distinct_index, lookup, union_all, union_sorted
from tfperf.base.units import PS_PER_MS, counted
from tfperf.trace.event_names import (
    Op,
    is_eager_call,
    is_fetch,
    is_hand_over,
    is_input_function,
    is_iterator,
    is_jitted_call,
    is_python_frame,
    is_root_iterator,
    mask,
    parse_op,
    runs_function,
    takes_element,
)
from tfperf.trace.flaw import Flaw, Level
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.nesting import parents

RUN = "ExecutorState::Process"
"""How names of runs of an executor begin."""
_SHARE = 0.1
"""What is wrong with a tenth of the events is no chance."""
_FIRST_OPS = 10
"""More ops of a thread than began in a run from before the capture: at most 3 do in real traces."""
_FEW_CALLS = 3
"""Calls of a stage on a thread that lie in nothing, other than those of calls that the capture cuts off."""
_ASKS_FREELY = re.compile(r"(?:Shuffle\w*|Filter|GroupBy\w+|Skip|TakeWhile|Sample\w*|Choose\w*)(?:\[\d+\])?::\w+$")
"""Stages one call of which may ask for any number of elements, as to fill a buffer."""
_LEAVES = re.compile(
    r"TFE_Delete|EagerCopyToDevice|ExecutorDoneCallback$|ExecutorPropagateOutputs$|ValidateInputType|\w+Consume$"
)
_EAGER_PARTS = ("EagerKernelExecute", "KernelAndDevice", "ValidateInputType")
"""Of none of a hundred thousand such events in real traces is the first thing inside a call, a run or an op."""
_FEW = 2
"""Elements, and calls of a stage, that may be missing by chance."""
_NESTED = 3
"""Stages in each other, the functions of which may be under way on a thread at once."""
_LONG = 0.05
"""A silence of all threads for this part of a capture is long,"""
_LONGER = 4
"""if it is so many times as long as any other,"""
_REPEATS = 3
"""and the program runs functions so often before it, and after it."""
_ASKS_ALWAYS = re.compile(
    r"::(?:Root|Model|Map|(?:Padded)?Batch(?:V2)?|MaxIntraOpParallelism|PrivateThreadPool|Options)(?:\[\d+\])?$"
)
"""Stages each call of which asks the stage before them."""
_RUNS_NO_FUNCTION = re.compile(
    r"::(?:Root|Model|(?:Padded)?Batch(?:V2)?|Prefetch|(?:Forever|Finite)?Repeat|Shuffle\w*|MaxIntraOpParallelism"
    r"|PrivateThreadPool|Options|Take|Skip|TensorSlice|Range|Zip|Concatenate)(?:\[\d+\])?$"
)
"""Stages without a function of the user."""


def thread_flaws(trace: HostTrace) -> Iterator[Flaw]:
    """Yield what is wrong with how events lie in each other, thread by thread."""
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
    if alone := _uncalled_stages(trace):
        text = f"{counted(alone, 'call')} of tf.data's stages outside of the stage that makes the others: events may be"
        yield Flaw("uncalled_stages", f"{text} missing", "doubtful")
    if again := _overlapping_markers(trace):
        text = f"{counted(again, 'marker')} of steps inside the one before: times may be wrong"
        yield Flaw("overlapping_markers", text, "doubtful")
    if _repeats(trace) > _SHARE:
        yield Flaw("repeated_events", "events of host threads are there twice")


def is_function_call(name: str) -> bool:
    """Tell whether the event calls a function, or is one of tf.data."""
    return runs_function(name) or is_input_function(name)


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
        return name != RUN
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
    return is_eager or _calls_data(name) or is_function_call(name) or name.startswith(RUN) or _is_run_op(name)


def _uncalled_stages(trace: HostTrace) -> int:
    """Return how many calls of stages lie in no other call, where most calls of that stage on that thread do.

    A call that is under way when the capture starts or ends is not recorded, but the calls inside it are: on each
    thread, the first and the last ones may lie in nothing. They are as many as one call makes at most. The first stage
    of a pipeline is left out: it has one name in pipelines inside of pipelines.
    """
    calls = mask(trace.names, _calls_data)
    inner = mask(trace.names, lambda name: is_iterator(name) and not is_root_iterator(name))
    fills = mask(trace.names, lambda name: bool(_ASKS_FREELY.search(name)))
    alone = 0
    for line in trace.host_lines:
        rows = np.flatnonzero(calls[trace.name[line.start : line.stop]]) + line.start
        if len(rows) < _FEW_CALLS:
            continue
        reach_ps = np.maximum.accumulate(trace.end_ps[rows])[:-1]
        outside = np.concatenate(([True], trace.start_ps[rows[1:]] >= reach_ps))
        name, index = distinct_index(trace.name[rows])
        of_all, count = np.bincount(index), np.bincount(index, outside, len(name))
        suspects = inner[name] & (count >= _FEW_CALLS) & (2 * count < of_all)
        for suspect in np.flatnonzero(suspects).tolist():
            is_outside = outside[index == suspect]
            # Those inside one outermost call have its number in common.
            inside = np.flatnonzero(~is_outside)
            most = np.bincount(np.cumsum(outside)[index == suspect][inside]).max()
            for at_edge in (int(inside[0]), len(is_outside) - 1 - int(inside[-1])):
                if at_edge <= most or fills[name[suspect]]:
                    count[suspect] -= at_edge
        alone += int(count[suspects & (count >= _FEW_CALLS)].sum())
    return alone


def _overlapping_markers(trace: HostTrace) -> int:
    """Return how many markers of steps begin before the one of their name before them on their thread ends."""
    rows, is_next = _markers(trace)
    return int((is_next & (trace.start_ps[rows[1:]] < trace.end_ps[rows[:-1]])).sum())


def _markers(trace: HostTrace) -> tuple[Int64s, Bools]:
    """Return the markers of steps by thread, name and start, and which but the first continue the row before them."""
    rows = np.flatnonzero(trace.has_stat("step_num") & trace.on_host)
    rows = rows[np.lexsort((trace.start_ps[rows], trace.name[rows], trace.line_of[rows]))]
    before, after = rows[:-1], rows[1:]
    return rows, (trace.line_of[before] == trace.line_of[after]) & (trace.name[before] == trace.name[after])


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


# --- lost events ---


def lost_events(trace: HostTrace) -> Iterator[Flaw]:
    """Yield what shows that events of host threads are missing inside the capture."""
    yield from _missing_steps(trace)
    yield from _unmade_elements(trace)
    yield from _calls_without_input(trace)
    yield from _unasked_functions(trace)
    yield from _silence(trace)


def _missing_steps(trace: HostTrace) -> Iterator[Flaw]:
    """Yield numbers of steps that are left out, by markers of one name on a thread.

    Numbers may rise by more than one (several steps in one execution), and start again (an epoch).
    """
    rows, is_next = _markers(trace)
    rises = np.where(is_next, np.diff(trace.number_at("step_num", rows)), 0)
    # The last execution before numbers start again may hold fewer steps than the others.
    usual = rises[:-1][(rises[:-1] > 0) & (rises[1:] > 0)].min(initial=np.iinfo(np.int64).max)
    holes = rises[rises > usual]
    if len(holes):
        missing = int(((holes - 1) // usual).sum())
        text = f"the numbers of steps leave out {missing:,}, in {counted(len(holes), 'place')}: events may be missing"
        yield Flaw("missing_steps", text, "doubtful")


def _unmade_elements(trace: HostTrace) -> Iterator[Flaw]:
    """Yield elements of tf.data that a stage takes, but none makes, though they are of the time of the capture.

    The id of an element is when it was begun, in nanoseconds since 1970.
    """
    if trace.clock_start_ns is None:
        return
    taken, made = (
        distinct(trace.number_at("element_id", trace.host_events(mask(trace.names, wanted))))
        for wanted in (takes_element, is_hand_over)
    )
    first_ns, last_ns = (trace.clock_start_ns + ps // 1000 for ps in trace.extent_ps)
    taken = taken[(taken > first_ns) & (taken < last_ns)]
    unmade = int((lookup(made, taken) < 0).sum())
    if unmade > _FEW:
        text = f"{unmade:,} of {counted(len(taken), 'element')} that stages of tf.data take are never made"
        level: Level = "unsound" if unmade > _SHARE * len(taken) else "doubtful"
        yield Flaw("unmade_elements", f"{text}: events are missing", level)


def _calls_without_input(trace: HostTrace) -> Iterator[Flaw]:
    """Yield calls of stages that ask no other stage, though they always do, and most calls of their name do."""
    rows = trace.host_events(mask(trace.names, lambda name: is_iterator(name) or is_fetch(name) or is_hand_over(name)))
    parent = parents(trace, rows)
    asks = np.zeros(len(rows), np.bool_)
    asks[parent[parent >= 0]] = True
    name = trace.name[rows]
    calls, asking = np.bincount(name, minlength=len(trace.names)), np.bincount(name, asks, len(trace.names))
    judged = (2 * asking > calls) & mask(trace.names, _always_asks)
    without, of_all = int((calls - asking)[judged].sum()), int(calls[judged].sum())
    if without > max(_FEW, _SHARE * of_all):
        text = f"{without:,} of {counted(of_all, 'call')} of tf.data stages ask for no input, though the others do"
        yield Flaw("calls_without_input", f"{text}: events may be missing", "doubtful")


def _unasked_functions(trace: HostTrace) -> Iterator[Flaw]:
    """Yield runs of functions of tf.data that do not lie in a call of a stage that runs functions and waits for them.

    On each thread, the calls may be cut off during which the capture starts or ends: of a stage and of those around it.
    """
    functions = mask(trace.names, _runs_while_a_stage_waits)
    if not functions.any():
        return
    rows = trace.host_events(functions | mask(trace.names, is_iterator))
    is_function, parent = functions[trace.name[rows]], parents(trace, rows)
    runs_none = mask(trace.names, lambda name: bool(_RUNS_NO_FUNCTION.search(name)))
    is_alone = is_function & ((parent < 0) | runs_none[trace.name[rows[np.maximum(parent, 0)]]])
    on_line = np.bincount(trace.line_of[rows[is_alone]])
    alone = int(on_line[on_line > _NESTED].sum())
    if alone:
        text = f"{alone:,} of {counted(int(is_function.sum()), 'function call')} of tf.data are outside the stage"
        yield Flaw("unasked_functions", f"{text} that runs them: events may be missing", "doubtful")


def _runs_while_a_stage_waits(name: str) -> bool:
    """Tell whether the event is a function of tf.data that its stage runs itself: not for a parallel map."""
    return name in ("InstantiatedCapturedFunction::Run", "InstantiatedCapturedFunction::RunWithBorrowedArgs")


def _always_asks(name: str) -> bool:
    return is_fetch(name) or is_hand_over(name) or (is_iterator(name) and bool(_ASKS_ALWAYS.search(name)))


def _silence(trace: HostTrace) -> Iterator[Flaw]:
    """Yield a time in which no thread and no device does anything, unlike any other, in a program that repeats itself.

    Where tasks or steps have numbers, these tell whether anything is missing: programs do pause. TPUs run for seconds
    beside a host that waits without an event.
    """
    if trace.oddities.tasks or len(trace.stat("step_num").event) or trace.device_kind == "tpu":
        return
    rows = [slice(line.start, line.stop) for line in trace.lines if line.stop > line.start and not line.derived]
    active = union_all([union_sorted(trace.start_ps[each], trace.end_ps[each]) for each in rows])
    pauses = active.start[1:] - active.end[:-1]
    if len(pauses) < _REPEATS:
        return
    longest = int(pauses.argmax())
    silent_ps, begin_ps = int(pauses[longest]), active.end[longest]
    others_ps = int(np.partition(pauses, -2)[-2])
    length_ps = int(active.end[-1] - active.start[0])
    if silent_ps < max(_LONG * length_ps, _LONGER * others_ps):
        return
    calls = trace.host_events(mask(trace.names, _runs_again))
    name, is_before = trace.name[calls], trace.start_ps[calls] < begin_ps
    before, after = (np.bincount(name[which], minlength=len(trace.names)) for which in (is_before, ~is_before))
    if (np.minimum(before, after) >= _REPEATS).any():
        text = f"nothing happens on any thread for {silent_ps / PS_PER_MS:,.1f} ms, and never else for so long"
        yield Flaw("silence", f"{text}: events may be missing", "doubtful")


def _runs_again(name: str) -> bool:
    return runs_function(name) or is_jitted_call(name) or is_fetch(name) or is_root_iterator(name)
