"""Which events to show, why the others are omitted, and the error if nothing fits."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import translate

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from tfperf.base.arrays import NO_NUMBERS, Bools, Int64s, Intervals, union
from tfperf.base.errors import TfperfError
from tfperf.formats.wire.event_columns import COUNTER_LINE, Line
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.steps.steps import Steps, WhichStep, chosen_step

_THREADS_LISTED = 8
_NO_STEP = (1, 0)


class Selection(Struct, frozen=True):
    """What to show: steps of these numbers (both included), lines or planes of these names (`*` is a wildcard), and
    events that are at least that long. By default everything.
    """

    steps: tuple[int, int] | None = None
    threads: tuple[str, ...] = ()
    min_duration_ps: int = 0
    step: WhichStep | None = None
    """One step; of several hosts, the first that has steps tells its number (`SelectionCheck.choose`)."""


def selected_steps(steps: Steps, selection: Selection) -> Steps:
    """Return the steps of the numbers asked for."""
    if selection.steps is None:
        return steps
    return steps.only(np.flatnonzero(_between(steps.numbers, selection.steps)))


def _between(numbers: Int64s, limits: tuple[int, int]) -> Bools:
    return np.asarray((numbers >= limits[0]) & (numbers <= limits[1]))


def select_events(trace: HostTrace, steps: Steps, selection: Selection) -> tuple[Bools, dict[str, int]]:
    """Return which rows to show, and how many are omitted for which reason; `steps` are the selected ones."""
    keep = np.ones(len(trace.name), np.bool_)
    masks: dict[str, Bools] = {}
    if counters := [line for line in trace.lines if line.raw_name == COUNTER_LINE]:
        masks["estimates of the compiler for TPU programs, which measure nothing"] = ~rows_of(trace, counters)
    if selection.threads:
        masks["on other threads"] = rows_of(trace, matching_lines(trace, selection.threads))
    if selection.steps is not None:
        windows = union(steps.start_ps, steps.end_ps)
        masks["outside the selected steps"] = overlaps(windows, trace.start_ps, trace.end_ps)
    if selection.min_duration_ps:
        masks["shorter than the minimum duration"] = trace.duration_ps >= selection.min_duration_ps
    omitted: dict[str, int] = {}
    for reason, mask in masks.items():
        omitted[reason] = int((keep & ~mask).sum())
        keep &= mask
    omitted["with invalid times"] = trace.malformed_events
    omitted["aggregated, without a time of their own"] = trace.aggregated_events
    return keep, {reason: count for reason, count in omitted.items() if count}


def overlaps(windows: Intervals, start: Int64s, end: Int64s) -> Bools:
    """Tell which events overlap the (flat) windows; one without duration must lie in one."""
    if not len(windows.start):
        return np.zeros(len(start), np.bool_)
    place = np.searchsorted(windows.end, start, side="right")
    opens = windows.start[np.minimum(place, len(windows.end) - 1)]
    return np.asarray((place < len(windows.end)) & ((opens < end) | (opens <= start)))


def rows_of(trace: HostTrace, lines: Iterable[Line]) -> Bools:
    """Tell which rows are on one of the lines."""
    rows = np.zeros(len(trace.name), np.bool_)
    for line in lines:
        rows[line.start : line.stop] = True
    return rows


def matching_lines(trace: HostTrace, patterns: tuple[str, ...]) -> list[Line]:
    """Return the lines that a pattern matches, by the name of the line or of its plane."""
    matches = re.compile("|".join(translate(pattern) for pattern in patterns)).match
    planes = [matches(plane.name) is not None for plane in trace.planes]
    return [line for line in trace.lines if planes[line.plane] or matches(line.name)]


class SelectionCheck(Struct):
    """Whether any host has something of a selection, and what there is, for the message if none has."""

    selection: Selection
    matches: bool = False
    threads: list[str] = field(default_factory=list)
    numbers: list[Int64s] = field(default_factory=list)

    def choose(self, steps: Steps) -> Selection:
        """Return what to show of a host: a step that is asked for by its duration is known once a host has steps."""
        which = self.selection.step
        if which is not None and (row := chosen_step(steps, which)) is not None:
            number = int(steps.numbers[row])
            self.selection = replace(self.selection, steps=(number, number), step=None)
        elif isinstance(which, int):
            self.selection = replace(self.selection, steps=(which, which), step=None)
        return self.selection if self.selection.step is None else replace(self.selection, steps=_NO_STEP)

    def add(self, trace: HostTrace, numbers: Int64s) -> None:
        """Note what a host has; `numbers` are those of its steps."""
        steps, threads = self.selection.steps, self.selection.threads
        has_steps = steps is None or bool(_between(numbers, steps).any())
        has_threads = not threads or bool(matching_lines(trace, threads))
        self.matches |= has_steps and has_threads
        self.numbers.append(numbers)
        self.threads += [line.name for line in trace.lines]

    def raise_if_empty(self) -> None:
        """Raise TfperfError, with what there is, if no host has anything of the selection."""
        if self.selection.step is not None:
            raise TfperfError("the profile has no steps; omit --step, or name the step events with --step-marker")
        if self.matches:
            return
        numbers = np.concatenate([NO_NUMBERS, *self.numbers])
        if (asked := self.selection.steps) is not None and not len(numbers):
            raise TfperfError("the profile has no steps; omit --steps, or name the step events with --step-marker")
        if asked is not None and not _between(numbers, asked).any():
            first, last = asked
            missing = f"is no step {first}" if first == last else f"are no steps {first}..{last}"
            low, high = int(numbers.min()), int(numbers.max())
            known = f"the only step is {low}" if low == high else f"the steps are {low}..{high}"
            raise TfperfError(f"there {missing}; {known}")
        threads = list(dict.fromkeys(self.threads))
        names = ", ".join(threads[:_THREADS_LISTED]) + (", ..." if len(threads) > _THREADS_LISTED else "")
        patterns = " or ".join(self.selection.threads)
        raise TfperfError(f"no thread or plane is named {patterns}; the threads are: {names or 'none'}")
