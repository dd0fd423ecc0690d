"""How the events of host threads lie in each other: what no profiler writes, unless events are lost or moved."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from tfperf.arrays import Bools, distinct_index
from tfperf.trace.event_names import (
    Op,
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
from tfperf.trace.flaw import Flaw
from tfperf.trace.host_trace import HostTrace
from tfperf.units import counted

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
