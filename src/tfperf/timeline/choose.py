"""Which events to show, and why the others are left out."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import translate

import numpy as np

from tfperf.arrays import Bools, Int64s
from tfperf.errors import TfperfError
from tfperf.intervals import Intervals, union
from tfperf.timeline.model import Selection
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.steps import Steps

_SHOWN_NAMES = 8


def chosen_steps(steps: Steps, selection: Selection) -> Steps:
    """Return the steps of the numbers asked for."""
    if selection.steps is None:
        return steps
    first, last = selection.steps
    return steps.only(np.flatnonzero((steps.numbers >= first) & (steps.numbers <= last)))


def choose(trace: HostTrace, steps: Steps, selection: Selection) -> tuple[Bools, dict[str, int]]:
    """Return which rows to show, and how many are left out for which reason; `steps` are the chosen ones."""
    keep = np.ones(len(trace.name), np.bool_)
    left_out: dict[str, int] = {}
    for reason, mask in _masks(trace, steps, selection):
        lost = keep & ~mask
        left_out[reason] = int(lost.sum())
        keep &= mask
    left_out["of impossible times"] = trace.malformed_events
    left_out["that stand for several and have no time of their own"] = trace.aggregated_events
    return keep, {reason: count for reason, count in left_out.items() if count}


def _masks(trace: HostTrace, steps: Steps, selection: Selection) -> Iterable[tuple[str, Bools]]:
    if selection.threads:
        yield "on other threads", _on_threads(trace, selection.threads)
    if selection.steps is not None:
        yield "outside the steps", within(union(steps.start_ps, steps.end_ps), trace.start_ps, trace.end_ps)
    if selection.min_duration_ps:
        yield "shorter than the limit", trace.duration_ps >= selection.min_duration_ps


def within(windows: Intervals, begin: Int64s, end: Int64s) -> Bools:
    """Tell which events overlap the (flat) windows; one without duration must lie in one."""
    if not len(windows.start):
        return np.zeros(len(begin), np.bool_)
    place = np.searchsorted(windows.end, begin, side="right")
    opens = windows.start[np.minimum(place, len(windows.end) - 1)]
    return np.asarray((place < len(windows.end)) & ((opens < end) | (opens <= begin)))


def _on_threads(trace: HostTrace, patterns: tuple[str, ...]) -> Bools:
    mask = np.zeros(len(trace.name), np.bool_)
    for line in matching_lines(trace, patterns):
        mask[line[0] : line[1]] = True
    return mask


def matching_lines(trace: HostTrace, patterns: tuple[str, ...]) -> list[tuple[int, int]]:
    """Return the rows (from, to) of lines that a pattern matches, by the name of the line or of its plane."""
    matches = re.compile("|".join(translate(pattern) for pattern in patterns)).match
    planes = [matches(plane.name) is not None for plane in trace.planes]
    return [(line.start, line.stop) for line in trace.lines if planes[line.plane] or matches(line.name)]


def nothing_chosen(selection: Selection, threads: list[str], numbers: Int64s) -> TfperfError:
    """Return the error for a selection that no host has anything of; `threads` and `numbers` are what there is."""
    if selection.steps is not None and not len(numbers):
        return TfperfError(
            "the profile has no steps to choose from; leave out --steps, or name them with --step-marker"
        )
    if selection.steps is not None and not _any_between(numbers, selection.steps):
        first, last = selection.steps
        return TfperfError(f"there is no step {first}..{last}; the steps are {numbers.min()}..{numbers.max()}")
    names = ", ".join(dict.fromkeys(threads[:_SHOWN_NAMES])) + (", ..." if len(threads) > _SHOWN_NAMES else "")
    return TfperfError(f"no thread or plane is named {' or '.join(selection.threads)}; there are: {names or 'none'}")


def _any_between(numbers: Int64s, limits: tuple[int, int]) -> bool:
    return bool(((numbers >= limits[0]) & (numbers <= limits[1])).any())
