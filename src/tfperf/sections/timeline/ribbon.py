"""The categories of one step as stretches of time: the same intervals that the table of steps adds up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from tfperf.analysis.results import Host
from tfperf.base.arrays import EMPTY, Int64s, Intervals, difference, distinct, intersection, overlap, union_all
from tfperf.report.step_picture import Ribbon
from tfperf.sections.timeline.window import Window
from tfperf.trace.device.device_time import device_label
from tfperf.trace.host.activities import ActivityTimes, corrected_times, tpu_codes, tpu_times
from tfperf.trace.steps.breakdown import CATEGORY_ACTIVITIES, Breakdown
from tfperf.trace.steps.categories import CATEGORIES, CATEGORY_TITLES
from tfperf.trace.steps.tpu_steps import core_steps

PARTS = {"input_wait": "Input wait", "host_to_device": CATEGORY_TITLES["host_to_device"]}
"""The two parts of the category Input: they have colours of their own."""
MOST_STRETCHES = 5_000
_CELLS = 1_000
TITLES = {**{key: CATEGORY_TITLES[key] for key in CATEGORIES}, **PARTS}


def ribbons(host: Host, row: int) -> tuple[Ribbon, ...]:
    """Return the ribbon of a step; one for each core of a TPU, whose ops say what they do."""
    breakdown: Breakdown = host["steps"]
    steps, trace = breakdown.steps, host.trace
    if not breakdown.on_tpu:
        window = Window(int(steps.start_ps[row]), int(steps.end_ps[row]))
        times = corrected_times(host.busy_times, steps.start_ps[[row]], steps.end_ps[[row]])
        return (_ribbon("Step by category", times, window, breakdown.unknown),)
    codes, drawn = tpu_codes(trace), []
    for plane, start_ps, end_ps in core_steps(trace, steps):
        if row >= len(start_ps):
            continue
        window = Window(int(start_ps[row]), int(end_ps[row]))
        times = tpu_times(trace, plane, codes, start_ps[[row]], end_ps[[row]])
        label = device_label(trace.planes[plane].name)
        drawn.append(_ribbon(f"Step of {label} by category", times, window, breakdown.unknown))
    return tuple(drawn)


def categories_ns(host: Host, row: int) -> dict[str, int]:
    """Return the nanoseconds of each category of a step that is known, as in the table of steps."""
    breakdown: Breakdown = host["steps"]
    known = (key for key in breakdown.categories if key not in breakdown.unknown)
    return {CATEGORY_TITLES[key]: round(int(breakdown.time_ps[key][row]) / 1000) for key in known}


def _ribbon(title: str, times: ActivityTimes, window: Window, unknown: frozenset[str]) -> Ribbon:
    keys = tuple(TITLES)
    # What several activities of a category hold one after the other is one stretch.
    by_category: dict[str, list[Intervals]] = {}
    for category, part in _parts(times, window):
        if category not in unknown:
            by_category.setdefault(category, []).append(part)
    parts = [(category, union_all(of_category)) for category, of_category in by_category.items()]
    start = np.concatenate([part.start for _, part in parts]) if parts else np.zeros(0, np.int64)
    end = np.concatenate([part.end for _, part in parts]) if parts else np.zeros(0, np.int64)
    which = np.repeat(
        np.array([keys.index(category) for category, _ in parts], np.int64), [len(part.start) for _, part in parts]
    )
    order = np.argsort(start, kind="stable")
    which, start, end = which[order], start[order], end[order]
    if len(which) > MOST_STRETCHES:
        which, start, end = _in_cells(which, start, end, window)
    return Ribbon(
        title=title, titles=tuple(TITLES.values()), category=which, start_ns=window.ns(start), end_ns=window.ns(end)
    )


def _in_cells(which: Int64s, start: Int64s, end: Int64s, window: Window) -> tuple[Int64s, Int64s, Int64s]:
    """Return very many stretches as few: in each of equal cells, as wide as a pixel, those of a category together.

    So all of them add up as before, and none is off by more than a pixel.
    """
    edges = np.linspace(window.start_ps, window.end_ps, _CELLS + 1).astype(np.int64)
    keys = distinct(which)
    time_ps = np.stack(
        [overlap(Intervals(start[which == key], end[which == key]), edges[:-1], edges[1:]) for key in keys]
    )
    until = edges[:-1] + np.cumsum(time_ps, axis=0)
    category = np.tile(keys, _CELLS)
    cell_start, cell_end = (until - time_ps).T.reshape(-1), until.T.reshape(-1)
    some = cell_end > cell_start
    category, cell_start, cell_end = category[some], cell_start[some], cell_end[some]
    # What goes on in the next cell is one stretch.
    is_new = np.ones(len(category), np.bool_)
    is_new[1:] = (category[1:] != category[:-1]) | (cell_start[1:] > cell_end[:-1])
    first = np.flatnonzero(is_new)
    return category[first], cell_start[first], np.maximum.reduceat(cell_end, first)


def _parts(times: ActivityTimes, window: Window) -> Iterator[tuple[str, Intervals]]:
    """Yield each category and when it holds in the window; what no activity covers is all others."""
    inside = {activity: clipped(busy, window) for activity, busy in times.busy.items()}
    category_of = {activity: key for key, activities in CATEGORY_ACTIVITIES.items() for activity in activities}
    higher = EMPTY
    for activity, covered in ActivityTimes(times.priority, inside, times.start, times.end, times.origin).covered():
        if activity in category_of:
            yield category_of[activity], difference(covered, higher)
        higher = covered
    whole = Intervals(np.array([window.start_ps]), np.array([window.end_ps]))
    yield "all_others", difference(whole, higher)


def clipped(flat: Intervals, window: Window) -> Intervals:
    """Return what of a flat set lies in the window."""
    first = np.searchsorted(flat.end, window.start_ps, side="right")
    last = np.searchsorted(flat.start, window.end_ps)
    near = Intervals(flat.start[first:last], flat.end[first:last])
    return intersection(near, Intervals(np.array([window.start_ps]), np.array([window.end_ps])))


def longest_places(ribbon: Ribbon, codes: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[int, int, int]]:
    """Return, for each code, the longest stretch of its categories, and the time of all of them."""
    keys = tuple(TITLES)
    duration: Int64s = ribbon.end_ns - ribbon.start_ns
    places = {}
    for code, categories in codes.items():
        rows = np.flatnonzero(np.isin(ribbon.category, [keys.index(category) for category in categories]))
        if len(rows):
            longest = int(rows[np.argmax(duration[rows])])
            places[code] = int(ribbon.start_ns[longest]), int(ribbon.end_ns[longest]), int(duration[rows].sum())
    return places
