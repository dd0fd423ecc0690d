"""When each activity is under way as TensorFlow attributes it: group by group, the groups end to end.

Groups are what TensorFlow's profiler takes for steps; old ones stored them, `group_by_links.py` finds them again.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import EMPTY, NO_NUMBERS, Int64s, Intervals, covers, distinct, lookup, union, union_all
from tfperf.formats.wire.event_columns import STEPS_LINE
from tfperf.trace.event_names import mask
from tfperf.trace.host.activities import PRIORITY, Activity, ActivityTimes, Codes, device_codes, host_codes
from tfperf.trace.host_trace import HostTrace


class GroupSpans(Struct, frozen=True):
    """One entry per group that has a step marker: its id and its span. `names` maps ids to step names."""

    group: Int64s
    start: Int64s
    end: Int64s
    names: dict[int, str]
    device_groups: Int64s
    """Groups with a marker on a device (empty without devices)."""


def has_device_plane(trace: HostTrace) -> bool:
    """Tell whether there is a GPU or TPU plane at all; TensorFlow counts an empty one as a device."""
    return any(plane.kind in ("gpu", "tpu") for plane in trace.planes)


def is_marker_name(name: str) -> bool:
    """Tell whether TensorFlow takes any grouped event of this name as a step marker."""
    return name.startswith(("train", "test", "TraceContext")) and "/" not in name


def host_markers(trace: HostTrace, group: Int64s) -> Int64s:
    """Return the rows of grouped host events that mark a step by their name or a step name."""
    rows = trace.host_events(mask(trace.names, is_marker_name))
    step_name = trace.stat("step_name")
    named = mask((*step_name.texts, ""), bool)
    named_rows = step_name.event[named[step_name.value]].astype(np.int64)
    both = distinct(np.concatenate((rows, named_rows[trace.on_host[named_rows]])))
    return np.asarray(both[group[both] >= 0], np.int64)


def group_spans(trace: HostTrace, group: Int64s) -> GroupSpans:
    """Return the span of each group: its longest host marker, unless the longest device marker sticks out of it."""
    host = host_markers(trace, group)
    device = _device_markers(trace, group)
    host_span = _longest(group[host], trace.start_ps[host], trace.end_ps[host])
    device_span = _longest(*device)
    device_groups = np.array(sorted(device_span), np.int64)
    allowed = device_span if has_device_plane(trace) else host_span
    spans = {}
    for key in sorted(allowed):
        on_host, on_device = host_span.get(key), device_span.get(key)
        if on_host and on_device and not (on_host[0] <= on_device[0] and on_device[1] <= on_host[1]):
            on_host = None
        spans[key] = on_host or on_device
    table = np.array([(key, *span) for key, span in spans.items() if span], np.int64).reshape(-1, 3)
    stat = trace.stat("step_name")
    names = {
        int(group[row]): stat.texts[value]
        for row, value in zip(stat.event.tolist(), stat.value.tolist(), strict=True)
        if stat.texts[value] and group[row] >= 0
    }
    return GroupSpans(table[:, 0], table[:, 1], table[:, 2], names, device_groups)


def _longest(group: Int64s, start: Int64s, end: Int64s) -> dict[int, tuple[int, int]]:
    """Return the longest span of each group, the first of equals."""
    order = np.lexsort((start, start - end, group))
    first = np.flatnonzero(np.concatenate(([True], np.diff(group[order]) != 0))) if len(group) else order
    rows = order[first]
    return dict(zip(group[rows].tolist(), zip(start[rows].tolist(), end[rows].tolist(), strict=True), strict=True))


_Spans = tuple[Int64s, Int64s, Int64s]
"""Group, start and end."""


def _device_markers(trace: HostTrace, group: Int64s) -> _Spans:
    """Return the step markers of devices: the stored step line, or what it would hold."""
    parts: list[_Spans] = [(NO_NUMBERS, NO_NUMBERS, NO_NUMBERS)]
    for plane in trace.devices:
        stored = [line for line in trace.device_lines(plane, derived=True) if line.id == STEPS_LINE]
        if stored:
            rows = np.concatenate([np.arange(line.start, line.stop) for line in stored])
            rows = rows[group[rows] >= 0]
            parts.append((group[rows], trace.start_ps[rows], trace.end_ps[rows]))
        else:
            parts.append(_derived_markers(trace, plane, group))
    groups, starts, ends = map(np.concatenate, zip(*parts, strict=True))
    return groups, starts, ends


def _derived_markers(trace: HostTrace, plane: int, group: Int64s) -> _Spans:
    """Merge neighbouring device events of one group; an event without a group takes that of the event before."""
    lines = [np.arange(line.start, line.stop) for line in trace.device_lines(plane)]
    rows = np.concatenate([NO_NUMBERS, *lines])
    rows = rows[np.lexsort((trace.duration_ps[rows], trace.start_ps[rows]))]
    last_grouped = np.maximum.accumulate(np.where(group[rows] >= 0, np.arange(len(rows)), -1))
    groups = group[rows[last_grouped[last_grouped >= 0]]]
    rows = rows[last_grouped >= 0]
    if not len(rows):
        return rows, rows, rows
    first = np.flatnonzero(np.concatenate(([True], np.diff(groups) != 0)))
    return groups[first], trace.start_ps[rows[first]], np.maximum.reduceat(trace.end_ps[rows], first)


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
