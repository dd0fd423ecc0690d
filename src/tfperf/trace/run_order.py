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
    calls, runs, fetches = (_first_of_runs(trace, wanted) for wanted in (_calls_function, _runs_function, is_fetch))
    called_ps, fetched_ps = _waits(calls, runs), _waits(runs, fetches)
    early, count = int((called_ps < 0).sum() + (fetched_ps < 0).sum()), len(called_ps) + len(fetched_ps)
    if early:
        text = f"{early:,} of {counted(count, 'run')} and fetches begin before what starts them: clocks disagree"
        yield Flaw("run_before_call", text, "unsound" if early > _SHARE * count else "doubtful")
    after = int((_waits(_last_of_runs(trace, _runs_function), fetches) > 0).sum())
    if after:
        text = f"{after:,} of {counted(len(fetched_ps), 'fetch', 'fetches')} begin after the run that they are in"
        level: Level = "unsound" if after > _SHARE * len(fetched_ps) else "doubtful"
        yield Flaw("fetch_after_run", f"{text}: clocks disagree", level)
    if len(called_ps) >= _FEW and called_ps.min() > _LATE_PS / min(len(called_ps), 10):
        late = f"every run of a function begins {called_ps.min() / PS_PER_MS:.1f} ms or more after its call"
        yield Flaw("late_runs", f"{late}: clocks may disagree", "doubtful")
    yield from _of_uncalled_runs(trace, runs)


def _of_uncalled_runs(trace: HostTrace, runs: tuple[Int64s, Int64s]) -> Iterator[Flaw]:
    """Yield runs of functions that begin while no call is under way, and whose own call is not there.

    A thread that calls loses the call during which a capture starts, and the one during which it ends.
    """
    callers = trace.host_events(mask(trace.names, _calls))
    if not len(callers):
        return
    uncalled_ps = runs[1][lookup(_first_of_runs(trace, _calls)[0], runs[0]) < 0]
    alone = int((~covers(union(trace.start_ps[callers], trace.end_ps[callers]), uncalled_ps)).sum())
    threads = len(distinct(trace.line_of[callers]))
    if alone > max(2 * threads, _SHARE * len(runs[0])):
        text = f"{alone:,} of {counted(len(runs[0]), 'run')} of functions without a call: events may be missing"
        yield Flaw("uncalled_runs", text, "doubtful")


def _first_of_runs(trace: HostTrace, wanted: Callable[[str], bool]) -> tuple[Int64s, Int64s]:
    """Return the ids that the wanted events carry, ascending, and when the first event with each starts."""
    rows, run, first = _by_run(trace, wanted)
    return run, np.minimum.reduceat(trace.start_ps[rows], first) if len(run) else NO_NUMBERS


def _last_of_runs(trace: HostTrace, wanted: Callable[[str], bool]) -> tuple[Int64s, Int64s]:
    """Return the ids that the wanted events carry, ascending, and when the last event with each ends."""
    rows, run, first = _by_run(trace, wanted)
    return run, np.maximum.reduceat(trace.end_ps[rows], first) if len(run) else NO_NUMBERS


def _by_run(trace: HostTrace, wanted: Callable[[str], bool]) -> tuple[Int64s, Int64s, Int64s]:
    """Return the wanted events ordered by the id that they carry, the ids, and where among them each id begins."""
    rows = trace.host_events(mask(trace.names, wanted))
    rows = rows[trace.has_stat("id")[rows]]
    run = trace.number_at("id", rows)
    order = np.argsort(run, kind="stable")
    rows, run = rows[order], run[order]
    first = np.flatnonzero(np.append(True, run[1:] != run[:-1])[: len(run)])
    return rows, run[first], first


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
