"""Whether a trace can be trusted: what in it is impossible, repeated, lost, or contradicts itself.

None of these occurs in a profile as profilers write them, so each makes every figure doubtful that rests on it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Literal

import numpy as np
from msgspec import Struct

from tfperf.arrays import Bools, Int64s
from tfperf.trace.event_names import is_fetch, is_root_iterator, mask
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.steps import Steps
from tfperf.units import PS_PER_MS, counted

Level = Literal["sound", "doubtful", "unsound"]
_LEVELS: tuple[Level, ...] = ("sound", "doubtful", "unsound")
_LOST = re.compile(r"(?i)\b(?:dropped|lost|discarded|truncated|overflow(?:ed)?|buffer (?:is )?full)\b")
_APART_PS = 1_000 * PS_PER_MS
"""Fetches and steps of one capture are not this far apart, all of them, unless their clocks disagree."""
_REPEATED = 0.1
"""Share of the events of a host thread that repeat the one before: next to none do in a sound trace."""
_FEW = 3
"""Of so many fetches and steps, one fetch at least is beside a step."""


class Flaw(Struct, frozen=True):
    """What is wrong with a trace. `text` is a clause that follows "the profile is damaged:"."""

    code: str
    text: str
    level: Level = "unsound"
    about_steps: bool = False
    """Whether only figures over steps are wrong."""


def find_flaws(trace: HostTrace, steps: Steps) -> tuple[Flaw, ...]:
    """Return what is wrong with the trace of a host, and with the steps found in it; nothing if it is sound."""
    return (*_of_profiler(trace), *_of_times(trace), *_of_planes(trace), *_of_threads(trace), *_of_steps(trace, steps))


def level_of(flaws: Iterable[Flaw]) -> Level:
    """Return the gravest level."""
    return max((flaw.level for flaw in flaws), key=_LEVELS.index, default="sound")


def _of_profiler(trace: HostTrace) -> Iterator[Flaw]:
    """Yield what the profiler itself says; where events are missing, no sum holds."""
    for message in dict.fromkeys((*trace.errors, *trace.warnings)):
        said = " ".join(message.split())[:200]
        if _LOST.search(said):
            yield Flaw("lost_events", f"the profiler reports that events are missing ({said})")
        elif message in trace.errors:
            yield Flaw("profiler_error", f"the profiler reports an error ({said})", "doubtful")


def _of_times(trace: HostTrace) -> Iterator[Flaw]:
    if trace.malformed_events:
        events = counted(trace.malformed_events, "event")
        yield Flaw("impossible_times", f"{events} of {trace.event_count:,} with impossible times (omitted)")


def _of_planes(trace: HostTrace) -> Iterator[Flaw]:
    names = Counter(plane.name for plane in trace.planes if plane.event_count and plane.kind != "other")
    twice = next((name for name, count in names.items() if count > 1), None)
    if twice is not None:
        yield Flaw("repeated_planes", f"{names[twice]} planes are called {twice}: a capture has one of each name")


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
    if _repeats(trace) > _REPEATED:
        yield Flaw("repeated_events", "events of host threads are there twice")


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


def _of_steps(trace: HostTrace, steps: Steps) -> Iterator[Flaw]:
    if not len(steps):
        return
    empty = int((steps.end_ps <= steps.start_ps).sum())
    if empty:
        yield Flaw("empty_steps", f"{counted(empty, 'step')} of {len(steps):,} without a duration", about_steps=True)
    fetches: Int64s = trace.host_events(mask(trace.names, lambda name: is_fetch(name) or is_root_iterator(name)))
    if min(len(fetches), len(steps)) < _FEW:
        return
    first_ps, last_ps = int(steps.start_ps.min()), int(steps.end_ps.max())
    away_ps = np.maximum(first_ps - trace.end_ps[fetches], trace.start_ps[fetches] - last_ps).min()
    if away_ps > _APART_PS:
        text = f"no call of tf.data is within {_seconds(away_ps)} of a step: clocks disagree"
        yield Flaw("fetches_apart", text, about_steps=True)


def _seconds(duration_ps: int) -> str:
    return f"{duration_ps / (1000 * PS_PER_MS):.1f} s"
