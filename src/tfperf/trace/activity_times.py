"""The activities of a host on one timeline: for each activity, the flat intervals in which it happens.

`corrected` keeps real time: windows of steps are disjoint, and an event counts in the windows that it overlaps.
`tensorflow` gives each group (step) a stretch of its own, since there an event counts only in the step it is linked to,
whenever it ran.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tfperf.arrays import Int64s, distinct
from tfperf.intervals import EMPTY, Intervals, covers, union, union_all, union_sorted
from tfperf.trace.activities import (
    PRIORITY,
    TPU_PRIORITY,
    Activity,
    Codes,
    device_codes,
    host_rules,
    tpu_activity,
)  # fmt: skip
from tfperf.trace.device_time import OP_LINES
from tfperf.trace.group_spans import GroupSpans, has_device_plane, host_markers
from tfperf.trace.host_trace import HostTrace


@dataclass(frozen=True)
class ActivityTimes:
    """Flat intervals per activity, and the windows of the steps on the same time axis."""

    priority: tuple[Activity, ...]
    busy: dict[Activity, Intervals]
    begin: Int64s
    end: Int64s
    starts: Int64s
    """Where the stretch of time of each window begins (for real time, the window itself)."""


def corrected_times(trace: HostTrace, begin: Int64s, end: Int64s) -> ActivityTimes:
    """Return what happens in real time, for step windows [begin, end)."""
    gpu = trace.device_kind == "gpu"
    rules = host_rules(trace, "corrected", has_device=bool(trace.devices))
    codes = rules.by_name[trace.name]
    if rules.launches:
        launch = trace.stat("correlation_id").event
        codes[launch] = Activity.KERNEL_LAUNCH
    parts: dict[Activity, list[Intervals]] = {}
    for line in trace.host_lines:
        _add_line(parts, trace, codes, slice(line.start, line.stop))
    if gpu:
        on_device = device_codes(trace, "corrected")
        for line in (line for plane in trace.devices for line in trace.device_lines(plane)):
            _add_line(parts, trace, on_device, slice(line.start, line.stop))
    return ActivityTimes(
        PRIORITY["corrected"], {kind: union_all(sets) for kind, sets in parts.items()}, begin, end, begin
    )


def tpu_times(trace: HostTrace, plane: int, begin: Int64s, end: Int64s) -> ActivityTimes:
    """Return what happens on one TPU core, for its step windows.

    If no op is an infeed, the time in which the host waits for input and the core is idle counts as input.
    """
    parts: dict[Activity, list[Intervals]] = {}
    codes = _tpu_codes(trace)
    for line in (line for line in trace.lines if line.plane == plane and line.name in OP_LINES):
        _add_line(parts, trace, codes, slice(line.start, line.stop))
    if Activity.WAIT_INPUT not in parts:
        waits = host_rules(trace, "corrected", has_device=True).by_name == Activity.WAIT_INPUT
        rows = trace.host_events(waits)
        parts[Activity.WAIT_WHILE_IDLE] = [union(trace.start_ps[rows], trace.end_ps[rows])]
    return ActivityTimes(TPU_PRIORITY, {kind: union_all(sets) for kind, sets in parts.items()}, begin, end, begin)


def _tpu_codes(trace: HostTrace) -> Codes:
    """Return the activity of every event by its HLO category, which stands on the event or on its name."""
    by_name = np.full(len(trace.names), Activity.COMPUTE_32, np.uint8)
    for name, category in trace.name_stat("hlo_category").items():
        by_name[name] = tpu_activity(str(category))
    codes = by_name[trace.name]
    stat = trace.stat("hlo_category")
    if len(stat.event):
        codes[stat.event] = np.array([tpu_activity(text) for text in stat.texts], np.uint8)[stat.value]
    return codes


def _add_line(parts: dict[Activity, list[Intervals]], trace: HostTrace, codes: Codes, rows: slice) -> None:
    """Add the activities of one line; its rows are sorted by begin."""
    mine, begin, end = codes[rows], trace.start_ps[rows], trace.end_ps[rows]
    for code in np.flatnonzero(np.bincount(mine, minlength=1)).tolist():
        if code != Activity.NONE:
            which = mine == code
            parts.setdefault(Activity(code), []).append(union_sorted(begin[which], end[which]))


def grouped_times(trace: HostTrace, group: Int64s, spans: GroupSpans) -> ActivityTimes:
    """Return what happens in each group, as TensorFlow attributes it, on stretched time."""
    has_device = has_device_plane(trace)
    rows, codes = _grouped_events(trace, group, spans, has_device=has_device)
    order = np.argsort(spans.group)
    keys = spans.group[order]
    place = np.minimum(np.searchsorted(keys, group[rows]), max(len(keys) - 1, 0))
    inside = keys[place] == group[rows] if len(keys) else np.zeros(len(rows), np.bool_)
    rows, codes, place = rows[inside], codes[inside], place[inside]
    first, last = spans.start[order].copy(), spans.end[order].copy()
    np.minimum.at(first, place, trace.start_ps[rows])
    np.maximum.at(last, place, trace.end_ps[rows])
    shift = np.concatenate(([0], np.cumsum(last - first + 1)[:-1])) - first
    begin, end = trace.start_ps[rows] + shift[place], trace.end_ps[rows] + shift[place]
    busy = {Activity(code): union(begin[codes == code], end[codes == code]) for code in distinct(codes).tolist()}
    busy = _with_instants(busy, begin, end, codes, stops=last + shift)
    back = np.argsort(order)
    return ActivityTimes(
        PRIORITY["tensorflow"], busy, spans.start + shift[back], spans.end + shift[back], (first + shift)[back]
    )


def _grouped_events(trace: HostTrace, group: Int64s, spans: GroupSpans, *, has_device: bool) -> tuple[Int64s, Codes]:
    """Return the rows that TensorFlow types, and their activities."""
    rules = host_rules(trace, "tensorflow", has_device=has_device)
    codes = rules.by_name[trace.name]
    correlated = trace.has_stat("correlation_id")
    if rules.launches:
        by_copy = (codes == Activity.HOST_TO_DEVICE) | (codes == Activity.HOST_TO_HOST) | (codes == Activity.NONE)
        codes[correlated & ~by_copy] = Activity.KERNEL_LAUNCH
    codes[host_markers(trace, group)] = Activity.NONE
    counted = trace.on_host & (group >= 0)
    if has_device:
        on_device = device_codes(trace, "tensorflow")
        for line in (line for plane in trace.devices for line in trace.device_lines(plane)):
            own = slice(line.start, line.stop)
            codes[own] = on_device[own]
            counted[own] = correlated[own] & (group[own] >= 0)
    rows = np.flatnonzero(counted & (codes != Activity.NONE))
    if has_device:
        rows = rows[np.isin(group[rows], spans.device_groups)]
    return rows, codes[rows]


def _with_instants(
    busy: dict[Activity, Intervals], begin: Int64s, end: Int64s, codes: Codes, *, stops: Int64s
) -> dict[Activity, Intervals]:
    """Let events of zero duration raise the state as TensorFlow's sweep does.

    There an instant switches the state to its activity, and nothing switches it back until the next event of equal or
    higher priority begins. So it acts like an event that lasts until then (or until its group ends), unless
    something of equal or higher priority is going on at that moment.
    """
    instant = end == begin
    if not instant.any():
        return busy
    stretched, higher, higher_begin = dict(busy), EMPTY, np.empty(0, np.int64)
    for activity in PRIORITY["tensorflow"]:
        mine = codes == activity
        higher_begin = np.sort(np.concatenate((higher_begin, begin[mine & ~instant])))
        higher = union_all([higher, busy.get(activity, EMPTY)])
        at = distinct(begin[mine & instant])
        at = at[~covers(higher, at)]
        if len(at):
            following = np.searchsorted(higher_begin, at, side="right")
            next_begin = np.append(higher_begin, np.iinfo(np.int64).max)[following]
            group_end = stops[np.minimum(np.searchsorted(stops, at), len(stops) - 1)]
            stretch = union(at, np.minimum(next_begin, group_end))
            stretched[activity] = union_all([busy.get(activity, EMPTY), stretch])
            higher = union_all([higher, stretch])
    return stretched
