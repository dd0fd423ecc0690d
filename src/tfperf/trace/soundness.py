"""Soundness of a trace: impossible, repeated, lost or contradictory data.

No profile has these flaws as profilers write it, so each makes every figure that depends on it doubtful.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from hashlib import blake2b
from itertools import chain, pairwise
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import (
    NO_NUMBERS,
    Bools,
    Int64s,
    covers,
    distinct,
    distinct_index,
    lookup,
    union,
    union_all,
    union_sorted,
)
from tfperf.base.units import PS_PER_MS, counted
from tfperf.formats.wire.event_columns import NO_STAT
from tfperf.formats.wire.untraced_gpu import report_of_failure
from tfperf.trace.event_names import (
    Op,
    called_function,
    canonical,
    concrete_function,
    is_call,
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
from tfperf.trace.steps.steps import PARTIAL, Steps

if TYPE_CHECKING:
    from tfperf.trace.host.launches import LaunchLinks

_LOST = re.compile(r"(?i)\b(?:dropped|lost|discarded|truncated|overflow(?:ed)?|buffer (?:is )?full)\b")
_NO_GPU = re.compile(r"\bNo GPU detected\b")
"""Message of a TensorFlow with GPU support on a machine without one."""
_APART_PS = 1_000 * PS_PER_MS
"""Fetches and steps of one capture are never all this far apart, unless their clocks disagree."""
_SHARE = 0.1
"""A flaw in a tenth of the events or runs is not a coincidence."""
_FEW = 3
"""Minimum number of fetches and steps of which at least one must be close to each other."""
_GPU_CLOCK_PS = PS_PER_MS // 20
"""GPU tracers convert times to the clock of the host within some microseconds; launching takes 8 or more."""
_PAUSE_PS = PS_PER_MS // 50
"""In shorter pauses, a kernel may start late by itself: launching takes some microseconds, at most 54 in real files."""
_LATE_START_PS = PS_PER_MS // 10
"""In a long pause, a later start after the launch is late: twice the maximum in real files."""
_LATE_PS = 5 * PS_PER_MS
"""The fastest of ten runs of functions begins at most 0.1 ms after its call, a fiftieth of this."""


def find_flaws(trace: HostTrace, steps: Steps, links: LaunchLinks | None = None) -> tuple[Flaw, ...]:
    """Return the flaws in the trace of a host and its steps; empty if sound. `links` are the launches of GPU work."""
    return tuple(chain.from_iterable(check() for check in flaw_checks(trace, steps, links)))


def flaw_checks(
    trace: HostTrace, steps: Steps, links: LaunchLinks | None = None
) -> tuple[Callable[[], Iterable[Flaw]], ...]:
    """Return the checks of `find_flaws`, in its order; they may be called in any order."""
    return (
        partial(_of_file, trace),
        partial(trace.oddities.flaws, trace.event_count),
        partial(_of_stats, trace),
        partial(_of_planes, trace),
        partial(_of_clocks, trace),
        partial(_of_runs, trace),
        partial(thread_flaws, trace),
        partial(lost_events, trace),
        partial(_of_launches, trace, links),
        partial(_of_steps, trace, steps),
    )


def _of_file(trace: HostTrace) -> Iterator[Flaw]:
    """Yield errors reported by the profiler, and data omitted by the reader; with lost events, no sum is complete."""
    for message in dict.fromkeys((*trace.errors, *trace.warnings)):
        said = " ".join(message.split())[:200]
        # `missing_events` reports which values are unknown because a GPU was not traced.
        if not trace.devices and (_NO_GPU.search(said) or report_of_failure([message]) is not None):
            continue
        if _LOST.search(said):
            yield Flaw("lost_events", f"the profiler reports that events are missing ({said})")
        elif message in trace.errors:
            yield Flaw("profiler_error", f"the profiler reports an error ({said})", "doubtful")
    if trace.malformed_events:
        events = counted(trace.malformed_events, "event")
        yield Flaw("impossible_times", f"{events} of {trace.event_count:,} with impossible times (omitted)")


def _of_stats(trace: HostTrace) -> Iterator[Flaw]:
    bears_id = mask(trace.names, lambda name: is_iterator(name) or is_fetch(name) or is_function_call(name))
    calls = trace.host_events(bears_id) if len(trace.stat("id").event) else NO_NUMBERS
    without = int((~trace.has_stat("id")[calls]).sum())
    if without:
        text = f"{without:,} of {counted(len(calls), 'call')} of tf.data and functions without an id"
        yield Flaw("missing_ids", text, "doubtful")
    counted_traces = trace.has_stat("tracing_count") & trace.on_host
    alone = int((counted_traces & ~trace.has_stat("tf_function_call")).sum())
    if alone:
        calls_of = f"{alone:,} of {counted(int(counted_traces.sum()), 'call')} of tf.function"
        yield Flaw("unsaid_calls", f"{calls_of} without tf_function_call: names may be swapped", "doubtful")
    if trace.allocations is not None:
        allocator = trace.allocations.stats.get("allocator_name", NO_STAT)
        named = int(mask(allocator.texts, bool)[allocator.value].sum())
        # TPU profilers do not name allocators.
        is_of_tpu = trace.device_kind == "tpu" and not named
        if named < len(trace.allocations) and not is_of_tpu:
            of_all = f"{len(trace.allocations) - named:,} of {counted(len(trace.allocations), 'allocation')}"
            yield Flaw("unnamed_allocators", f"{of_all} without an allocator name", "doubtful")


def _of_planes(trace: HostTrace) -> Iterator[Flaw]:
    recorded = Counter(plane.name for plane in trace.planes if plane.event_count and plane.kind != "other")
    judged: tuple[tuple[Counter[str], Level], ...] = (
        (recorded, "unsound"),
        (Counter(plane.name for plane in trace.planes), "doubtful"),
    )
    for names, level in judged:
        twice = next((name for name, count in names.items() if count > 1), None)
        if twice is not None:
            text = f"{names[twice]} planes are named {twice}, but a capture has one plane per name"
            yield Flaw("repeated_planes", text, level)
            break
    of_host = int(mask(trace.names, is_call)[trace.name[~trace.on_host]].sum())
    if of_host:
        text = f"{counted(of_host, 'host event')} on device planes: planes may be swapped"
        yield Flaw("host_events_on_device", text)


def _of_clocks(trace: HostTrace) -> Iterator[Flaw]:
    # TPU clocks jump (without damage), and hosts of TPUs wait for them for seconds.
    lines = [line for line in trace.lines if line.stop > line.start and trace.device_kind != "tpu"]
    extents = sorted(
        (int(trace.start_ps[line.start]), int(trace.end_ps[line.start : line.stop].max())) for line in lines
    )
    end_ps = extents[0][1] if extents else 0
    for (_, before_ps), (start_ps, _) in pairwise(extents):
        end_ps = max(end_ps, before_ps)
        if start_ps - end_ps > _APART_PS:
            # A thread that hands work to the next after a pause looks the same.
            text = f"some threads end {_seconds(start_ps - end_ps)} before all others start: their clocks may disagree"
            yield Flaw("clocks_disagree", text, "doubtful")
            break


def _of_runs(trace: HostTrace) -> Iterator[Flaw]:
    """Yield runs of functions that begin before their call, fetch before they begin, or all begin late.

    A call, the executor that runs it on another thread, and the run's fetches from tf.data have the same id. Events
    during which the capture starts or ends are not recorded: the first runs may seem to begin late or uncalled, and the
    last ones to end early.
    """
    run, start_ps, end_ps = _spans(trace, lambda name: name.startswith(RUN))
    calls = _spans(trace, lambda name: name == "FunctionRun" or is_input_function(name))[:2]
    fetches = _spans(trace, is_fetch)[:2]
    called_ps, fetched_ps = _waits(calls, (run, start_ps)), _waits((run, start_ps), fetches)
    threads = len(distinct(trace.line_of[trace.host_events(mask(trace.names, lambda name: name.startswith(RUN)))]))
    early, count = sum(_odd(each < 0, threads) for each in (called_ps, fetched_ps)), len(called_ps) + len(fetched_ps)
    if early:
        text = f"{early:,} of {counted(count, 'run')} and fetches start before their caller: clocks disagree"
        yield Flaw("run_before_call", text, "unsound" if early > _SHARE * count else "doubtful")
    after = _odd(_waits((run, end_ps), fetches)[::-1] > 0, threads)
    if after:
        text = f"{after:,} of {counted(len(fetched_ps), 'fetch', 'fetches')} start after the end of their run"
        level: Level = "unsound" if after > _SHARE * len(fetched_ps) else "doubtful"
        yield Flaw("fetch_after_run", f"{text}: clocks disagree", level)
    if len(called_ps) >= _FEW and called_ps.min() > _LATE_PS / min(len(called_ps), 10):
        late = f"every function run starts at least {called_ps.min() / PS_PER_MS:.1f} ms after its call"
        yield Flaw("late_runs", f"{late}: clocks may disagree", "doubtful")
    yield from _of_uncalled_runs(trace, run, start_ps)


def _of_launches(trace: HostTrace, links: LaunchLinks | None) -> Iterator[Flaw]:
    """Yield GPU work that starts before its launch, long after it, or without one.

    While the GPUs of a host are idle, the next work starts some microseconds after its launch. If most pauses continue
    after it, their clock is late or too fast, unless other programs use the GPUs.
    """
    if links is None:
        return
    start_ps, launched_ps = trace.start_ps[links.device], trace.end_ps[links.host]
    after_ps = start_ps - trace.start_ps[links.host]
    early, count = int((after_ps < -_GPU_CLOCK_PS).sum()), len(after_ps)
    if early:
        text = f"{early:,} of {counted(count, 'kernel')} and copies start before their launch"
        most = f"by up to {-after_ps.min() / PS_PER_MS:,.1f} ms: the clock of the GPU is wrong"
        yield Flaw("work_before_launch", f"{text}, {most}", "unsound" if early > _SHARE * count else "doubtful")
    yield from _of_unlaunched_work(trace, links)
    lines = [slice(line.start, line.stop) for plane in trace.devices for line in trace.device_lines(plane)]
    busy = union_all([union_sorted(trace.start_ps[rows], trace.end_ps[rows]) for rows in lines])
    pauses_ps = busy.start[1:] - busy.end[:-1]
    # If several events start together after a pause, the last launch counts.
    ends = lookup(busy.start[1:], start_ps)
    ready_ps = np.full(len(pauses_ps), np.iinfo(np.int64).min)
    np.maximum.at(ready_ps, ends[ends >= 0], launched_ps[ends >= 0])
    judged = (pauses_ps > _PAUSE_PS) & (ready_ps > np.iinfo(np.int64).min)
    in_vain_ps = (busy.start[1:] - np.maximum(ready_ps, busy.end[:-1]))[judged]
    in_vain = int((in_vain_ps > np.minimum(pauses_ps[judged] // 2, _LATE_START_PS)).sum())
    if in_vain >= _FEW and 4 * in_vain >= 3 * len(in_vain_ps):
        text = f"{in_vain:,} of {counted(len(in_vain_ps), 'GPU idle gap')} continue after the next work is launched"
        most = f"for up to {in_vain_ps.max() / PS_PER_MS:,.1f} ms: its clock may be late, or another program uses it"
        yield Flaw("late_work", f"{text}, {most}", "doubtful")


def _of_unlaunched_work(trace: HostTrace, links: LaunchLinks) -> Iterator[Flaw]:
    """Yield GPU work without the call that launched it, although earlier launches are recorded: their ids ascend."""
    work = trace.device_rows
    first = trace.number_at("correlation_id", links.device).min(initial=np.iinfo(np.int64).max)
    should = work[trace.number_at("correlation_id", work) > first]
    unlaunched = int((links.of(should) < 0).sum())
    if unlaunched > max(_FEW, _SHARE * len(work)):
        text = f"{unlaunched:,} of {counted(len(work), 'kernel')} and copies have no launch"
        yield Flaw("unlaunched_work", f"{text}: host events may be missing", "doubtful")


def _of_uncalled_runs(trace: HostTrace, run: Int64s, start_ps: Int64s) -> Iterator[Flaw]:
    """Yield runs that begin outside of any call, without their own call; a thread may lose its first and last call."""
    callers = trace.host_events(mask(trace.names, is_function_call))
    if not len(callers):
        return
    uncalled_ps = start_ps[lookup(_spans(trace, is_function_call)[0], run) < 0]
    alone = int((~covers(union(trace.start_ps[callers], trace.end_ps[callers]), uncalled_ps)).sum())
    threads = len(distinct(trace.line_of[callers]))
    if alone > max(2 * threads, _SHARE * len(run)):
        text = f"{alone:,} of {counted(len(run), 'function run')} have no call: events may be missing"
        yield Flaw("uncalled_runs", text, "doubtful")


def _spans(trace: HostTrace, wanted: Callable[[str], bool]) -> tuple[Int64s, Int64s, Int64s]:
    """Return the ids of the wanted events, ascending, with the first start and last end of each."""
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
    """Return the delays of effects after their causes, for those with a recorded cause, in the order of effects."""
    order = np.argsort(effects[1], kind="stable")
    effect, effect_ps = effects[0][order], effects[1][order]
    place = lookup(causes[0], effect)
    return effect_ps[place >= 0] - causes[1][place[place >= 0]]


def _odd(are_odd: Bools, threads: int) -> int:
    """Return how many are odd, ignoring the first ones if there are at most as many as threads that run functions."""
    cut_off = len(are_odd) if are_odd.all() else int(are_odd.argmin())
    return int(are_odd.sum()) - (cut_off if cut_off <= threads and cut_off < len(are_odd) else 0)


def _of_steps(trace: HostTrace, steps: Steps) -> Iterator[Flaw]:
    if not len(steps):
        return
    # JAX may call steps whose work comes after the capture.
    is_cut_off = np.array([flag == PARTIAL for flag in steps.flags], np.bool_)
    empty = int(((steps.end_ps <= steps.start_ps) & ~is_cut_off).sum())
    if empty:
        yield Flaw("empty_steps", f"{counted(empty, 'step')} of {len(steps):,} without a duration")
    fetches: Int64s = trace.host_events(mask(trace.names, lambda name: is_fetch(name) or is_root_iterator(name)))
    if min(len(fetches), len(steps)) < _FEW:
        return
    halt = _halt_of(trace.start_ps[fetches], steps)
    if halt:
        yield Flaw("fetches_stop", f"{halt}: events of a thread may be missing", "doubtful")
    first_ps, last_ps = int(steps.start_ps.min()), int(steps.end_ps.max())
    away_ps = np.maximum(first_ps - trace.end_ps[fetches], trace.start_ps[fetches] - last_ps).min()
    if away_ps > _APART_PS:
        text = f"all tf.data calls are at least {_seconds(away_ps)} away from any step: clocks disagree"
        yield Flaw("fetches_apart", text)


def _halt_of(fetched_ps: Int64s, steps: Steps) -> str:
    """Return a clause if tf.data calls are in all steps on one side of a single point and in no others, else empty."""
    place = np.searchsorted(np.sort(steps.start_ps), fetched_ps, side="right") - 1
    fetches = np.bincount(place[place >= 0], minlength=len(steps)) > 0
    changes = np.flatnonzero(fetches[1:] != fetches[:-1]) + 1
    if len(changes) != 1 or not _FEW <= changes[0] <= len(steps) - _FEW:
        return ""
    which = "last" if fetches[0] else "first"
    without = int((~fetches).sum())
    return f"the {which} {without} of {len(steps)} steps have no tf.data call, and all other steps have one"


def _seconds(duration_ps: int) -> str:
    return f"{duration_ps / (1000 * PS_PER_MS):.1f} s"


# --- host threads ---
# Step markers have numbers, elements of tf.data have ids, a stage calls the one before it, and some thread is always
# active: a gap in one of these means lost events.
# Numbered tasks of thread pools are counted while the file is read (`Oddities`).

RUN = "ExecutorState::Process"
"""Start of the names of executor runs."""
_FIRST_OPS = 10
"""More ops of a thread than began in a run from before the capture: at most 3 do in real traces."""
_FEW_CALLS = 3
"""Calls of a stage on a thread without a parent, in addition to those whose parent the capture cuts off."""
_ASKS_FREELY = re.compile(r"(?:Shuffle\w*|Filter|GroupBy\w+|Skip|TakeWhile|Sample\w*|Choose\w*)(?:\[\d+\])?::\w+$")
"""Stages with calls that may request any number of elements, for example to fill a buffer."""
_LEAVES = re.compile(
    r"TFE_Delete|EagerCopyToDevice|ExecutorDoneCallback$|ExecutorPropagateOutputs$|ValidateInputType|\w+Consume$"
)
_EAGER_PARTS = ("EagerKernelExecute", "KernelAndDevice", "ValidateInputType")
"""Events that are never the first one inside a call, a run or an op, in a hundred thousand of real traces."""
_BY_CHANCE = 2
"""Elements, and calls of a stage, that may be missing by chance."""
_NESTED = 3
"""Maximum nesting of stages whose functions may run on a thread at once."""
_LONG = 0.05
"""Minimum fraction of a capture for a silence of all threads,"""
_LONGER = 4
"""its minimum ratio to any other silence,"""
_REPEATS = 3
"""and the minimum number of function runs before and after it."""
_ASKS_ALWAYS = re.compile(
    r"::(?:Root|Model|Map|(?:Padded)?Batch(?:V2)?|MaxIntraOpParallelism|PrivateThreadPool|Options)(?:\[\d+\])?$"
)
"""Stages whose every call calls the stage before them."""
_RUNS_NO_FUNCTION = re.compile(
    r"::(?:Root|Model|(?:Padded)?Batch(?:V2)?|Prefetch|(?:Forever|Finite)?Repeat|Shuffle\w*|MaxIntraOpParallelism"
    r"|PrivateThreadPool|Options|Take|Skip|TensorSlice|Range|Zip|Concatenate)(?:\[\d+\])?$"
)
"""Stages without a user function."""


def thread_flaws(trace: HostTrace) -> Iterator[Flaw]:
    """Yield flaws in the nesting of events, by thread."""
    crossing, alone = _misfits(trace)
    if alone:
        text = f"{counted(alone, 'op')} outside of all executor runs and calls of their threads: times may be wrong"
        yield Flaw("ops_outside", text, "doubtful")
    if crossing:
        # No event on a thread ends inside an event that it contains. A few can be a glitch of the clock.
        text = f"host events partially overlap ({crossing:,} of {trace.event_count:,})"
        yield Flaw("crossing_events", text, "doubtful")
    if misplaced := _misplaced(trace):
        text = f"{counted(misplaced, 'event')} directly inside unsuitable events: names or times may be wrong"
        yield Flaw("misplaced_calls", text, "doubtful")
    if alone := _uncalled_stages(trace):
        text = f"{counted(alone, 'tf.data stage call')} outside of the stage that makes the other calls: events may be"
        yield Flaw("uncalled_stages", f"{text} missing", "doubtful")
    rows, is_next = _markers(trace)
    if again := int((is_next & (trace.start_ps[rows[1:]] < trace.end_ps[rows[:-1]])).sum()):
        text = f"{counted(again, 'step marker')} inside the previous marker: times may be wrong"
        yield Flaw("overlapping_markers", text, "doubtful")
    if _repeats(trace) > _SHARE:
        yield Flaw("repeated_events", "host events are duplicated")


def is_function_call(name: str) -> bool:
    """Return whether the event calls a function, or belongs to tf.data."""
    return runs_function(name) or is_input_function(name)


def _misfits(trace: HostTrace) -> tuple[int, int]:
    """Return how many TensorFlow events cross others on host threads, and how many ops have no parent.

    An event crosses another one that it starts inside of and ends after: it is compared with the event before it, and
    with the one before it that ends last. Python frames are left out, because they are cut where tracing starts.
    Executor runs overlap in sound traces too, and events that users mark may overlap. Elements that a thread hands over
    are produced one after the other. Ops have an executor run or an eager call as parent, except the first ones on a
    thread, which began before the capture.
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
    op = parse_op(name) if ":" in name and not is_fetch(name) else Op("", name, "")
    is_op = op.kind == "tensorflow" and not re.search("Collective|Service", name)
    return is_op or name.startswith("KernelAndDevice")


def _is_of_tensorflow(name: str) -> bool:
    """Return whether TensorFlow writes the event, so that it ends before the call around it."""
    if name.startswith(("Executor", "ThreadpoolListener::", "KernelAndDevice")):
        return name != RUN
    if is_iterator(name) or is_fetch(name) or is_eager_call(name) or is_hand_over(name):
        return True
    return ":" in name and bool(parse_op(name).kind)


def _misplaced(trace: HostTrace) -> int:
    """Return how many events are the first one inside an event that never contains their kind.

    Only tf.data ops call tf.data. Events that wait for memory, copy to a device, report that an op is done or delete a
    tensor run nothing.
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
    """Return whether the event calls no iterator: ops, except those like `ReduceDataset`, and the end of a run."""
    op = parse_op(name) if ":" in name and not is_fetch(name) else Op("", name, "")
    if op.kind == "tensorflow":
        return not re.search("Dataset|Iterator", op.type)
    return name == "ExecutorState::ProcessAsync::Done"


def _runs(name: str) -> bool:
    is_eager = is_eager_call(name) or name.startswith(_EAGER_PARTS)
    runs = name.startswith(RUN) and not name.endswith("::Done")  # a callback may end the run that waits for it
    return is_eager or _calls_data(name) or is_function_call(name) or runs or _is_run_op(name)


def _uncalled_stages(trace: HostTrace) -> int:
    """Return how many calls of stages have no parent call, although most calls of that stage on that thread do.

    A call that runs when the capture starts or ends is not recorded, but the calls inside it are: on each thread, the
    first and the last ones may have no parent, at most as many as one call makes. The first stage of a pipeline is left
    out, because it has one name in nested pipelines.
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
            # Calls inside one outermost call share its number.
            inside = np.flatnonzero(~is_outside)
            most = np.bincount(np.cumsum(outside)[index == suspect][inside]).max()
            for at_edge in (int(inside[0]), len(is_outside) - 1 - int(inside[-1])):
                if at_edge <= most or fills[name[suspect]]:
                    count[suspect] -= at_edge
        alone += int(count[suspects & (count >= _FEW_CALLS)].sum())
    return alone


def _markers(trace: HostTrace) -> tuple[Int64s, Bools]:
    """Return the step markers by thread, name and start, and which of them continue the name of the row before."""
    rows = np.flatnonzero(trace.has_stat("step_num") & trace.on_host)
    rows = rows[np.lexsort((trace.start_ps[rows], trace.name[rows], trace.line_of[rows]))]
    before, after = rows[:-1], rows[1:]
    return rows, (trace.line_of[before] == trace.line_of[after]) & (trace.name[before] == trace.name[after])


def _repeats(trace: HostTrace) -> float:
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
    """Yield signs of missing host events inside the capture."""
    yield from _missing_steps(trace)
    yield from _unmade_elements(trace)
    yield from _calls_without_input(trace)
    yield from _unasked_functions(trace)
    yield from _silence(trace)


def _missing_steps(trace: HostTrace) -> Iterator[Flaw]:
    """Yield missing numbers of step markers; numbers may rise by more than one (several per execution) and restart
    (epochs).
    """
    rows, is_next = _markers(trace)
    rises = np.where(is_next, np.diff(trace.number_at("step_num", rows)), 0)
    # The last execution before numbers restart may contain fewer steps than the others.
    usual = rises[:-1][(rises[:-1] > 0) & (rises[1:] > 0)].min(initial=np.iinfo(np.int64).max)
    holes = rises[rises > usual]
    if len(holes):
        missing = int(((holes - 1) // usual).sum())
        text = f"step numbers skip {missing:,}, in {counted(len(holes), 'place')}: events may be missing"
        yield Flaw("missing_steps", text, "doubtful")


def _unmade_elements(trace: HostTrace) -> Iterator[Flaw]:
    """Yield tf.data elements that a stage takes, but none produces during the capture; ids are start times (ns since
    1970).
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
    if unmade > _BY_CHANCE:
        text = f"{unmade:,} of {counted(len(taken), 'element')} that tf.data stages take have no producer"
        level: Level = "unsound" if unmade > _SHARE * len(taken) else "doubtful"
        yield Flaw("unmade_elements", f"{text}: events are missing", level)


def _calls_without_input(trace: HostTrace) -> Iterator[Flaw]:
    """Yield calls of stages without a call of another stage, although most calls of their name have one."""
    rows = trace.host_events(mask(trace.names, lambda name: is_iterator(name) or is_fetch(name) or is_hand_over(name)))
    parent = parents(trace, rows)
    asks = np.zeros(len(rows), np.bool_)
    asks[parent[parent >= 0]] = True
    name = trace.name[rows]
    calls, asking = np.bincount(name, minlength=len(trace.names)), np.bincount(name, asks, len(trace.names))
    always_asks = mask(trace.names, lambda name: not is_iterator(name) or bool(_ASKS_ALWAYS.search(name)))
    judged = (2 * asking > calls) & always_asks
    without, of_all = int((calls - asking)[judged].sum()), int(calls[judged].sum())
    if without > max(_BY_CHANCE, _SHARE * of_all):
        text = f"{without:,} of {counted(of_all, 'tf.data stage call')} lack an input call, unlike the others"
        yield Flaw("calls_without_input", f"{text}: events may be missing", "doubtful")


def _unasked_functions(trace: HostTrace) -> Iterator[Flaw]:
    """Yield tf.data functions outside of a call of a stage that runs functions, ignoring those cut off at the capture's
    ends.
    """
    # Run by their stage itself: not for a parallel map.
    waited_for = ("InstantiatedCapturedFunction::Run", "InstantiatedCapturedFunction::RunWithBorrowedArgs")
    functions = mask(trace.names, lambda name: name in waited_for)
    if not functions.any():
        return
    rows = trace.host_events(functions | mask(trace.names, is_iterator))
    is_function, parent = functions[trace.name[rows]], parents(trace, rows)
    runs_none = mask(trace.names, lambda name: bool(_RUNS_NO_FUNCTION.search(name)))
    is_alone = is_function & ((parent < 0) | runs_none[trace.name[rows[np.maximum(parent, 0)]]])
    on_line = np.bincount(trace.line_of[rows[is_alone]])
    alone = int(on_line[on_line > _NESTED].sum())
    if alone:
        text = f"{alone:,} of {counted(int(is_function.sum()), 'tf.data function call')} are outside of the stage"
        yield Flaw("unasked_functions", f"{text} that runs them: events may be missing", "doubtful")


def _silence(trace: HostTrace) -> Iterator[Flaw]:
    """Yield a time without any event of a thread or device, unlike any other, in a program that repeats itself.

    If tasks or steps have numbers, these show whether events are missing, because programs do pause. TPUs run for
    seconds while their host waits without an event.
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
    repeats = (runs_function, is_jitted_call, is_fetch, is_root_iterator)
    calls = trace.host_events(np.any([mask(trace.names, each) for each in repeats], axis=0))
    name, is_before = trace.name[calls], trace.start_ps[calls] < begin_ps
    before, after = (np.bincount(name[which], minlength=len(trace.names)) for which in (is_before, ~is_before))
    if (np.minimum(before, after) >= _REPEATS).any():
        text = f"all threads are silent for {silent_ps / PS_PER_MS:,.1f} ms, much longer than at any other time"
        yield Flaw("silence", f"{text}: events may be missing", "doubtful")


# --- several hosts ---
# Newer profilers write the time of the capture, so it is equal to the nanosecond in a copied file. Without it, two
# hosts with many events of equal start and duration are copies, because that never happens by chance. Clocks of hosts
# differ, but a capture that begins after all others have ended counts as another one.

_ENOUGH_EVENTS = 200
"""Two processes never share the starts and durations of this many events."""
_MOST_EVENTS = 1 << 16
_NS_PER_S = 1_000_000_000

FOREIGN = frozenset({"copied_host", "other_capture", "other_profiler", "other_program"})
"""Codes of the flaws from `foreign_hosts`."""

Span = tuple[int, int]


class CaptureIdentity(Struct, frozen=True, kw_only=True):
    """Identity of the capture of one host.

    `start_ns` and `span_ns` (start and end) are nanoseconds since 1970, None if not in the file. `digest` is equal for
    files of one size with equal events, and empty with no or too few events. `functions` are those that Python calls,
    without the numbers added by each process; empty for a host without steps.
    """

    start_ns: int | None
    span_ns: Span | None
    digest: bytes
    functions: frozenset[str]


def capture_identity(trace: HostTrace, *, has_steps: bool) -> CaptureIdentity:
    """Return the identity of a host's capture."""
    count, start_ns = len(trace.name), trace.clock_start_ns
    span_ns = None
    if start_ns is not None:
        first_ps, last_ps = trace.extent_ps
        stop_ns = trace.session_stats.get("profile_stop_time")
        span_ns = start_ns + first_ps // 1000, start_ns + last_ps // 1000
        if isinstance(stop_ns, int) and stop_ns > start_ns and not trace.clock_zero_ns:
            span_ns = start_ns, stop_ns
    digest = b""
    if count and (start_ns is not None or count >= _ENOUGH_EVENTS):
        rows = slice(0, _MOST_EVENTS)
        events = trace.start_ps[rows].tobytes() + trace.duration_ps[rows].tobytes()
        digest = blake2b(events, digest_size=16).digest() + f"{count} {trace.size_bytes}".encode()
    names = trace.names if has_steps else ()
    called = {canonical(called_function(name)) for name in names if is_jitted_call(name)}
    called |= {re.sub(r"_\d+$", "", name) for name in map(concrete_function, names) if name}
    return CaptureIdentity(start_ns=start_ns, span_ns=span_ns, digest=digest, functions=frozenset(called))


def foreign_hosts(names: Sequence[str], captures: Sequence[CaptureIdentity]) -> dict[int, Flaw]:
    """Return the hosts that cannot be of the most frequent capture, with the flaw."""
    found = {place: _flaw("copied_host", text) for place, text in _copies(names, captures).items()}
    for code, of_others in (("other_capture", _apart), ("other_profiler", _undated), ("other_program", _strangers)):
        rest = [place for place in range(len(names)) if place not in found]
        texts = of_others([captures[place] for place in rest])
        found |= {rest[place]: _flaw(code, text) for place, text in texts.items()}
    return found


def _flaw(code: str, text: str) -> Flaw:
    return Flaw(code, f"{text}: its figures do not belong to this run")


def _copies(names: Sequence[str], captures: Sequence[CaptureIdentity]) -> dict[int, str]:
    first: dict[tuple[int | None, bytes], int] = {}
    copies: dict[int, str] = {}
    for place, capture in enumerate(captures):
        if capture.digest:
            original = first.setdefault((capture.start_ns, capture.digest), place)
            if original != place:
                copies[place] = f"the file is a copy of the file of host {names[original]}"
    return copies


def _apart(captures: Sequence[CaptureIdentity]) -> dict[int, str]:
    """Return the captures that do not overlap with most of the others."""
    spans = {place: capture.span_ns for place, capture in enumerate(captures) if capture.span_ns is not None}
    groups: list[list[int]] = []
    end_ns = 0
    for place, (start_ns, stop_ns) in sorted(spans.items(), key=lambda item: item[1]):
        if not groups or start_ns > end_ns:
            groups.append([])
        groups[-1].append(place)
        end_ns = max(end_ns, stop_ns)
    most = max(groups, key=len, default=[])
    first_ns, last_ns = (pick([spans[place][end] for place in most], default=0) for end, pick in ((0, min), (1, max)))
    texts = {}
    for place in (place for group in groups if group is not most for place in group):
        start_ns, stop_ns = spans[place]
        away, when = (start_ns - last_ns, "after") if start_ns > last_ns else (first_ns - stop_ns, "before")
        texts[place] = f"the capture is {away / _NS_PER_S:.1f} s {when} those of other hosts, or a clock is wrong"
    return texts


def _undated(captures: Sequence[CaptureIdentity]) -> dict[int, str]:
    """Return captures without a time if others have one, or the other way round."""
    dated = [place for place, capture in enumerate(captures) if capture.digest and capture.start_ns is not None]
    undated = [place for place, capture in enumerate(captures) if capture.digest and capture.start_ns is None]
    if not dated or not undated:
        return {}
    odd, is_dated = (undated, "does not record") if len(undated) <= len(dated) else (dated, "records")
    others = counted(max(len(dated), len(undated)), "other")
    return dict.fromkeys(odd, f"the file {is_dated} its capture time, unlike {others}, so it is from another profiler")


def _strangers(captures: Sequence[CaptureIdentity]) -> dict[int, str]:
    """Return the captures that share no function with most of the others, directly or through others."""
    groups: list[tuple[frozenset[str], list[int]]] = []
    for place, capture in enumerate(captures):
        if not capture.functions:
            continue
        joined = [group for group in groups if group[0] & capture.functions]
        groups = [group for group in groups if not group[0] & capture.functions]
        functions = capture.functions.union(*(each for each, _ in joined))
        groups.append((functions, sorted([place, *(member for _, members in joined for member in members)])))
    most = max(groups, key=lambda group: (len(group[1]), -group[1][0]), default=(frozenset[str](), [0]))
    return {
        place: f"the host runs another program ({min(captures[place].functions)}, which other hosts do not call)"
        for _, places in groups
        if places is not most[1]
        for place in places
    }
