"""Whether functions run after they are called, and fetch while they run.

A call, the executor that runs it on another thread, and what the run fetches from tf.data carry the same id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tfperf.arrays import NO_NUMBERS, Int64s, covers, distinct, lookup, union
from tfperf.trace.event_names import is_fetch, is_input_function, mask, runs_function
from tfperf.trace.flaw import Flaw, Level
from tfperf.trace.host_trace import HostTrace
from tfperf.units import PS_PER_MS, counted

_SHARE = 0.1
"""What is wrong with a tenth of the runs is no chance."""
_FEW = 3
_LATE_PS = 5 * PS_PER_MS
"""The fastest of ten runs of functions begins a tenth of a millisecond after its call at most: a fiftieth of this."""


def flaws_of_runs(trace: HostTrace) -> Iterator[Flaw]:
    """Yield runs of functions that begin before they are called, fetch before they begin, or all begin late."""
    run, start_ps, end_ps = _spans(trace, _runs_function)
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


def _runs_function(name: str) -> bool:
    return name.startswith("ExecutorState::Process")
