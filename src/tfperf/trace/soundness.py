"""Whether a trace can be trusted: what in it is impossible, repeated, lost, or contradicts itself.

None of these occurs in a profile as profilers write them, so each makes every figure doubtful that rests on it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, pairwise
from typing import TYPE_CHECKING

import numpy as np

from tfperf.base.arrays import NO_NUMBERS, Bools, Int64s, covers, distinct, lookup, union, union_all, union_sorted
from tfperf.base.units import PS_PER_MS, counted
from tfperf.formats.wire.event_columns import NO_STAT
from tfperf.trace.event_names import (
    is_call,
    is_fetch,
    is_input_function,
    is_iterator,
    is_root_iterator,
    mask,
    runs_function,
)
from tfperf.trace.flaw import Flaw, Level
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.steps.steps import Steps
from tfperf.trace.thread_flaws import RUN, is_function_call, lost_events, thread_flaws

if TYPE_CHECKING:
    from tfperf.trace.host.launches import LaunchLinks

_LOST = re.compile(r"(?i)\b(?:dropped|lost|discarded|truncated|overflow(?:ed)?|buffer (?:is )?full)\b")
_NO_GPU = re.compile(r"\bNo GPU detected\b")
"""What a TensorFlow with GPU support reports on a machine without one."""
_APART_PS = 1_000 * PS_PER_MS
"""Fetches and steps of one capture are not this far apart, all of them, unless their clocks disagree."""
_SHARE = 0.1
"""What is wrong with a tenth of the events, or of the runs, is no chance."""
_FEW = 3
"""Of so many fetches and steps, one fetch at least is beside a step."""
_GPU_CLOCK_PS = PS_PER_MS // 20
"""Tracers of GPUs convert times to the clock of the host to some microseconds; launching takes 8 or more."""
_PAUSE_PS = PS_PER_MS // 50
"""In shorter pauses, a kernel may start late by itself: launching takes some microseconds, at most 54 in real files."""
_LATE_START_PS = PS_PER_MS // 10
"""In a long pause, so long after the launch is late: twice what is the most in real files."""
_LATE_PS = 5 * PS_PER_MS
"""The fastest of ten runs of functions begins a tenth of a millisecond after its call at most: a fiftieth of this."""


def find_flaws(trace: HostTrace, steps: Steps, links: LaunchLinks | None = None) -> tuple[Flaw, ...]:
    """Return what is wrong with the trace of a host, and with the steps found in it; nothing if it is sound.

    `links` are the launches of work on GPUs, if there are any.
    """
    return tuple(chain.from_iterable(check() for check in flaw_checks(trace, steps, links)))


def flaw_checks(
    trace: HostTrace, steps: Steps, links: LaunchLinks | None = None
) -> tuple[Callable[[], Iterable[Flaw]], ...]:
    """Return the functions that look for what `find_flaws` returns, in its order: any of them may be called first."""
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
    """Yield what the profiler says, and what reading omitted; where events are missing, no sum holds."""
    for message in dict.fromkeys((*trace.errors, *trace.warnings)):
        said = " ".join(message.split())[:200]
        if not trace.devices and (_NO_GPU.search(said) or _is_about_gpu(message)):
            continue
        if _LOST.search(said):
            yield Flaw("lost_events", f"the profiler reports that events are missing ({said})")
        elif message in trace.errors:
            yield Flaw("profiler_error", f"the profiler reports an error ({said})", "doubtful")
    if trace.malformed_events:
        events = counted(trace.malformed_events, "event")
        yield Flaw("impossible_times", f"{events} of {trace.event_count:,} with impossible times (omitted)")


def _is_about_gpu(message: str) -> bool:
    """Tell whether a message says why a GPU was not traced, of which `missing_events` says what is unknown."""
    from tfperf.formats.wire.untraced_gpu import report_of_failure  # few profiles hold any message

    return report_of_failure([message]) is not None


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
        # Profilers of TPUs name no allocator.
        is_of_tpu = trace.device_kind == "tpu" and not named
        if named < len(trace.allocations) and not is_of_tpu:
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


def _of_clocks(trace: HostTrace) -> Iterator[Flaw]:
    """Yield threads whose clocks disagree."""
    # Clocks of TPUs jump (which is no damage), and hosts of TPUs wait for them for seconds.
    lines = [line for line in trace.lines if line.stop > line.start and trace.device_kind != "tpu"]
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


def _of_runs(trace: HostTrace) -> Iterator[Flaw]:
    """Yield runs of functions that begin before they are called, fetch before they begin, or all begin late.

    A call, the executor that runs it on another thread, and what the run fetches from tf.data carry the same id. An
    event during which the capture starts or ends is not recorded: the first runs may seem to begin late or uncalled,
    and the last ones to end early.
    """
    run, start_ps, end_ps = _spans(trace, lambda name: name.startswith(RUN))
    calls, fetches = (_spans(trace, wanted)[:2] for wanted in (_calls_function, is_fetch))
    called_ps, fetched_ps = _waits(calls, (run, start_ps)), _waits((run, start_ps), fetches)
    threads = len(distinct(trace.line_of[trace.host_events(mask(trace.names, lambda name: name.startswith(RUN)))]))
    early, count = sum(_odd(each < 0, threads) for each in (called_ps, fetched_ps)), len(called_ps) + len(fetched_ps)
    if early:
        text = f"{early:,} of {counted(count, 'run')} and fetches begin before what starts them: clocks disagree"
        yield Flaw("run_before_call", text, "unsound" if early > _SHARE * count else "doubtful")
    after = _odd(_waits((run, end_ps), fetches)[::-1] > 0, threads)
    if after:
        text = f"{after:,} of {counted(len(fetched_ps), 'fetch', 'fetches')} begin after the run that they are in"
        level: Level = "unsound" if after > _SHARE * len(fetched_ps) else "doubtful"
        yield Flaw("fetch_after_run", f"{text}: clocks disagree", level)
    if len(called_ps) >= _FEW and called_ps.min() > _LATE_PS / min(len(called_ps), 10):
        late = f"every run of a function begins {called_ps.min() / PS_PER_MS:.1f} ms or more after its call"
        yield Flaw("late_runs", f"{late}: clocks may disagree", "doubtful")
    yield from _of_uncalled_runs(trace, run, start_ps)


def _of_launches(trace: HostTrace, links: LaunchLinks | None) -> Iterator[Flaw]:
    """Yield work of GPUs that starts before its launch, long after it, or without one.

    While the GPUs of a host do nothing, the next work starts some microseconds after its launch. If most of their
    pauses go on after it, their clock is late or too fast, unless other programs use them.
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
    lines = [slice(line.start, line.stop) for plane in trace.devices for line in trace.device_lines(plane)]
    yield from _of_unlaunched_work(trace, links, lines)
    busy = union_all([union_sorted(trace.start_ps[rows], trace.end_ps[rows]) for rows in lines])
    pauses_ps = busy.start[1:] - busy.end[:-1]
    # Of what starts together after a pause, the last launch counts.
    ends = lookup(busy.start[1:], start_ps)
    ready_ps = np.full(len(pauses_ps), np.iinfo(np.int64).min)
    np.maximum.at(ready_ps, ends[ends >= 0], launched_ps[ends >= 0])
    judged = (pauses_ps > _PAUSE_PS) & (ready_ps > np.iinfo(np.int64).min)
    in_vain_ps = (busy.start[1:] - np.maximum(ready_ps, busy.end[:-1]))[judged]
    in_vain = int((in_vain_ps > np.minimum(pauses_ps[judged] // 2, _LATE_START_PS)).sum())
    if in_vain >= _FEW and 4 * in_vain >= 3 * len(in_vain_ps):
        text = f"{in_vain:,} of {counted(len(in_vain_ps), 'pause')} of the GPU go on after the next work is launched"
        most = f"for up to {in_vain_ps.max() / PS_PER_MS:,.1f} ms: its clock may be late, or another program uses it"
        yield Flaw("late_work", f"{text}, {most}", "doubtful")


def _of_unlaunched_work(trace: HostTrace, links: LaunchLinks, lines: Sequence[slice]) -> Iterator[Flaw]:
    """Yield work of GPUs without the call that launched it, though launches before it are there: their ids ascend."""
    work = np.concatenate([NO_NUMBERS, *(np.arange(rows.start, rows.stop) for rows in lines)])
    first = trace.number_at("correlation_id", links.device).min(initial=np.iinfo(np.int64).max)
    should = work[trace.number_at("correlation_id", work) > first]
    unlaunched = int((links.of(should) < 0).sum())
    if unlaunched > max(_FEW, _SHARE * len(work)):
        text = f"{unlaunched:,} of {counted(len(work), 'kernel')} and copies without a launch"
        yield Flaw("unlaunched_work", f"{text}: events of host threads may be missing", "doubtful")


def _of_uncalled_runs(trace: HostTrace, run: Int64s, start_ps: Int64s) -> Iterator[Flaw]:
    """Yield runs of functions that begin while no call is under way, and whose own call is not there.

    A thread that calls loses the call during which a capture starts, and the one during which it ends.
    """
    callers = trace.host_events(mask(trace.names, is_function_call))
    if not len(callers):
        return
    uncalled_ps = start_ps[lookup(_spans(trace, is_function_call)[0], run) < 0]
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
    """Return how long after its cause each effect begins, of those whose cause is there, in the order of effects."""
    order = np.argsort(effects[1], kind="stable")
    effect, effect_ps = effects[0][order], effects[1][order]
    place = lookup(causes[0], effect)
    return effect_ps[place >= 0] - causes[1][place[place >= 0]]


def _odd(are_odd: Bools, threads: int) -> int:
    """Return how many are odd, but for the first ones if they are at most as many as threads that run functions."""
    cut_off = len(are_odd) if are_odd.all() else int(are_odd.argmin())
    return int(are_odd.sum()) - (cut_off if cut_off <= threads and cut_off < len(are_odd) else 0)


def _calls_function(name: str) -> bool:
    return name == "FunctionRun" or is_input_function(name)


def _of_steps(trace: HostTrace, steps: Steps) -> Iterator[Flaw]:
    if not len(steps):
        return
    empty = int((steps.end_ps <= steps.start_ps).sum())
    if empty:
        yield Flaw("empty_steps", f"{counted(empty, 'step')} of {len(steps):,} without a duration")
    fetches: Int64s = trace.host_events(mask(trace.names, lambda name: is_fetch(name) or is_root_iterator(name)))
    if min(len(fetches), len(steps)) < _FEW:
        return
    halt = _halt_of(trace.start_ps[fetches], steps)
    if halt:
        yield Flaw("fetches_stop", f"{halt}: data of some thread may be missing", "doubtful")
    first_ps, last_ps = int(steps.start_ps.min()), int(steps.end_ps.max())
    away_ps = np.maximum(first_ps - trace.end_ps[fetches], trace.start_ps[fetches] - last_ps).min()
    if away_ps > _APART_PS:
        text = f"no call of tf.data is within {_seconds(away_ps)} of a step: clocks disagree"
        yield Flaw("fetches_apart", text)


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
