"""The selected part of a profile: which steps, lines and events of a host are shown, and what is omitted."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from fnmatch import translate

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from tfperf.base.arrays import NO_NUMBERS, Bools, Int64s, Intervals, union
from tfperf.base.errors import StepsNotFoundError, TfperfError
from tfperf.formats.wire.event_columns import COUNTER_LINE, Line
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.steps.step_range import StepRange, in_range, no_such_steps
from tfperf.trace.steps.steps import Steps, WhichStep, chosen_step

_THREADS_LISTED = 8
_NO_STEP = (1, 0)


class Selection(Struct, frozen=True):
    """The selected steps (first and last), lines or planes (`*` is a wildcard), and minimum duration; default: all."""

    steps: StepRange | None = None
    threads: tuple[str, ...] = ()
    min_duration_ps: int = 0
    step: WhichStep | None = None
    """A single step; with several hosts, the first host with steps determines its number (`SelectionCheck.choose`)."""


def selected_steps(steps: Steps, selection: Selection) -> Steps:
    """Return the steps with the selected numbers."""
    if selection.steps is None:
        return steps
    return steps.only(np.flatnonzero(in_range(steps.numbers, selection.steps)))


def select_events(trace: HostTrace, steps: Steps, selection: Selection) -> tuple[Bools, dict[str, int]]:
    """Return the displayed rows, and the number of omitted ones by reason; `steps` are the selected steps."""
    keep = np.ones(len(trace.name), np.bool_)
    masks: dict[str, Bools] = {}
    if counters := [line for line in trace.lines if line.raw_name == COUNTER_LINE]:
        masks["compiler estimates for TPU programs, which are not measurements"] = ~rows_of(trace, counters)
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
    omitted["aggregated, without own times"] = trace.aggregated_events
    return keep, {reason: count for reason, count in omitted.items() if count}


def overlaps(windows: Intervals, start: Int64s, end: Int64s) -> Bools:
    """Return which events overlap the (flat) windows; an event without duration must be inside one."""
    if not len(windows.start):
        return np.zeros(len(start), np.bool_)
    place = np.searchsorted(windows.end, start, side="right")
    opens = windows.start[np.minimum(place, len(windows.end) - 1)]
    return np.asarray((place < len(windows.end)) & ((opens < end) | (opens <= start)))


def rows_of(trace: HostTrace, lines: Iterable[Line]) -> Bools:
    """Return which rows are on one of the lines."""
    rows = np.zeros(len(trace.name), np.bool_)
    for line in lines:
        rows[line.start : line.stop] = True
    return rows


def name_matcher(patterns: tuple[str, ...]) -> Callable[[str], object]:
    """Return a function that returns whether a name matches any of the patterns."""
    return re.compile("|".join(translate(pattern) for pattern in patterns)).match


def matching_lines(trace: HostTrace, patterns: tuple[str, ...]) -> list[Line]:
    """Return the lines whose name or plane name matches a pattern."""
    matches = name_matcher(patterns)
    planes = [matches(plane.name) is not None for plane in trace.planes]
    return [line for line in trace.lines if planes[line.plane] or matches(line.name)]


class SelectionCheck(Struct):
    """Checks whether any host matches a selection, and collects the available names for the error message."""

    selection: Selection
    matches: bool = False
    threads: list[str] = field(default_factory=list)
    numbers: list[Int64s] = field(default_factory=list)

    def choose(self, steps: Steps) -> Selection:
        """Return the selection of a host; a step selected by duration is determined once a host has steps."""
        which = self.selection.step
        if which is not None and (row := chosen_step(steps, which)) is not None:
            number = int(steps.numbers[row])
            self.selection = replace(self.selection, steps=(number, number), step=None)
        elif isinstance(which, int):
            self.selection = replace(self.selection, steps=(which, which), step=None)
        return self.selection if self.selection.step is None else replace(self.selection, steps=_NO_STEP)

    def add(self, trace: HostTrace, numbers: Int64s, *, has_derived: bool) -> None:
        """Add a host: the numbers of its steps, and whether derived tracks are shown."""
        steps, threads = self.selection.steps, self.selection.threads
        has_steps = steps is None or bool(in_range(numbers, steps).any())
        has_threads = not threads or has_derived or bool(matching_lines(trace, threads))
        self.matches |= has_steps and has_threads
        self.numbers.append(numbers)
        self.threads += [line.name for line in trace.lines]

    def raise_if_empty(self) -> None:
        """Raise TfperfError with the available values if no host matches the selection."""
        if self.selection.step is not None:
            raise TfperfError("the profile has no steps; omit --step, or name the step events with --step-marker")
        if self.matches:
            return
        numbers = np.concatenate([NO_NUMBERS, *self.numbers])
        if (asked := self.selection.steps) is not None and not in_range(numbers, asked).any():
            raise StepsNotFoundError(no_such_steps(numbers, asked))
        threads = list(dict.fromkeys(self.threads))
        names = ", ".join(threads[:_THREADS_LISTED]) + (", ..." if len(threads) > _THREADS_LISTED else "")
        patterns = " or ".join(self.selection.threads)
        raise TfperfError(f"no thread or plane is named {patterns}; the threads are: {names or 'none'}")
