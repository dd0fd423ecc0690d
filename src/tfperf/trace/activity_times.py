"""When each activity of a host happens: flat intervals, on the time axis of its steps.

`corrected` keeps real time: windows of steps are disjoint, and an event counts in the windows that it overlaps.
`tensorflow` gives each group (step) a stretch of its own, since there an event counts only in the step it is linked to,
whenever it ran.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tfperf.arrays import NO_NUMBERS, Int64s, distinct, lookup
from tfperf.intervals import EMPTY, Intervals, covers, union, union_all, union_sorted
from tfperf.trace.activities import PRIORITY, TPU_PRIORITY, Activity, Codes, device_codes, host_codes, tpu_activity
from tfperf.trace.device_time import OP_LINES
from tfperf.trace.group_spans import GroupSpans, has_device_plane, host_markers
from tfperf.trace.host_trace import HostTrace


class ActivityTimes(NamedTuple):
    """Flat intervals per activity, and the windows of the steps on the same time axis."""

    priority: tuple[Activity, ...]
    busy: dict[Activity, Intervals]
    start: Int64s
    end: Int64s
    origin: Int64s
    """Where the stretch of time of each window starts (for real time, the window itself)."""


def corrected_times(trace: HostTrace, start: Int64s, end: Int64s) -> ActivityTimes:
    """Return what happens in real time, for step windows [start, end)."""
    codes = host_codes(trace, "corrected", has_device=bool(trace.devices))[trace.name]
    if trace.devices:
        codes[trace.stat("correlation_id").event] = Activity.KERNEL_LAUNCH
    parts: dict[Activity, list[Intervals]] = {}
    for line in trace.host_lines:
        _add_line(parts, trace, codes, slice(line.start, line.stop))
    if trace.device_kind == "gpu":
        on_device = device_codes(trace, "corrected")
        for line in (line for plane in trace.devices for line in trace.device_lines(plane)):
            _add_line(parts, trace, on_device, slice(line.start, line.stop))
    busy = {activity: union_all(sets) for activity, sets in parts.items()}
    return ActivityTimes(PRIORITY["corrected"], busy, start, end, origin=start)


def tpu_times(trace: HostTrace, plane: int, start: Int64s, end: Int64s) -> ActivityTimes:
    """Return what happens on one TPU core, for its step windows.

    If no op is an infeed, the time in which the host waits for input and the core is idle counts as input.
    """
    parts: dict[Activity, list[Intervals]] = {}
    codes = _tpu_codes(trace)
    for line in (line for line in trace.lines if line.plane == plane and line.name in OP_LINES):
        _add_line(parts, trace, codes, slice(line.start, line.stop))
    if Activity.WAIT_INPUT not in parts:
        waits = host_codes(trace, "corrected", has_device=True) == Activity.WAIT_INPUT
        rows = trace.host_events(waits)
        parts[Activity.WAIT_WHILE_IDLE] = [union(trace.start_ps[rows], trace.end_ps[rows])]
    busy = {activity: union_all(sets) for activity, sets in parts.items()}
    return ActivityTimes(TPU_PRIORITY, busy, start, end, origin=start)


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
    """Add the activities of one line; its rows are sorted by start."""
    of_line, start, end = codes[rows], trace.start_ps[rows], trace.end_ps[rows]
    for code in np.flatnonzero(np.bincount(of_line, minlength=1)).tolist():
        if code != Activity.NONE:
            which = of_line == code
            parts.setdefault(Activity(code), []).append(union_sorted(start[which], end[which]))


def grouped_times(trace: HostTrace, group: Int64s, spans: GroupSpans) -> ActivityTimes:
    """Return what happens in each group, as TensorFlow attributes it, on stretched time."""
    rows, codes = _grouped_events(trace, group, spans)
    order = np.argsort(spans.group)
    place = lookup(spans.group[order], group[rows])
    rows, codes, place = rows[place >= 0], codes[place >= 0], place[place >= 0]
    first, last = spans.start[order].copy(), spans.end[order].copy()
    np.minimum.at(first, place, trace.start_ps[rows])
    np.maximum.at(last, place, trace.end_ps[rows])
    shift = np.concatenate(([0], np.cumsum(last - first + 1)[:-1])) - first
    start, end = trace.start_ps[rows] + shift[place], trace.end_ps[rows] + shift[place]
    busy = {Activity(code): union(start[codes == code], end[codes == code]) for code in distinct(codes).tolist()}
    busy = _with_instants(busy, start, end, codes, stops=last + shift)
    back = np.argsort(order)
    start, end = spans.start + shift[back], spans.end + shift[back]
    return ActivityTimes(PRIORITY["tensorflow"], busy, start, end, origin=(first + shift)[back])


def _grouped_events(trace: HostTrace, group: Int64s, spans: GroupSpans) -> tuple[Int64s, Codes]:
    """Return the rows that TensorFlow types, and their activities."""
    has_device = has_device_plane(trace)
    codes = host_codes(trace, "tensorflow", has_device=has_device)[trace.name]
    correlated = trace.has_stat("correlation_id")
    if has_device:
        by_copy = (codes == Activity.HOST_TO_DEVICE) | (codes == Activity.HOST_TO_HOST) | (codes == Activity.NONE)
        codes[correlated & ~by_copy] = Activity.KERNEL_LAUNCH
    codes[host_markers(trace, group)] = Activity.NONE
    counted = trace.on_host & (group >= 0)
    if has_device:
        on_device = device_codes(trace, "tensorflow")
        for line in (line for plane in trace.devices for line in trace.device_lines(plane)):
            of_line = slice(line.start, line.stop)
            codes[of_line] = on_device[of_line]
            counted[of_line] = correlated[of_line] & (group[of_line] >= 0)
    rows = np.flatnonzero(counted & (codes != Activity.NONE))
    if has_device:
        rows = rows[np.isin(group[rows], spans.device_groups)]
    return rows, codes[rows]


def _with_instants(
    busy: dict[Activity, Intervals], start: Int64s, end: Int64s, codes: Codes, *, stops: Int64s
) -> dict[Activity, Intervals]:
    """Let events of zero duration raise the state as TensorFlow's sweep does.

    There an instant switches the state to its activity, and nothing switches it back until the next event of equal or
    higher priority starts. So it acts like an event that lasts until then (or until its group ends), unless
    something of equal or higher priority is going on at that moment.
    """
    instant = end == start
    if not instant.any():
        return busy
    stretched, higher, higher_start = dict(busy), EMPTY, NO_NUMBERS
    for activity in PRIORITY["tensorflow"]:
        which = codes == activity
        higher_start = np.sort(np.concatenate((higher_start, start[which & ~instant])))
        higher = union_all([higher, busy.get(activity, EMPTY)])
        at = distinct(start[which & instant])
        at = at[~covers(higher, at)]
        if len(at):
            following = np.searchsorted(higher_start, at, side="right")
            next_start = np.append(higher_start, np.iinfo(np.int64).max)[following]
            group_end = stops[np.minimum(np.searchsorted(stops, at), len(stops) - 1)]
            stretch = union(at, np.minimum(next_start, group_end))
            stretched[activity] = union_all([busy.get(activity, EMPTY), stretch])
            higher = union_all([higher, stretch])
    return stretched
