"""Groups: which step an event belongs to as TensorFlow's profiler sees it, and the span of each group.

Files of TensorFlow 2.2 to 2.4 carry the group of each event; for later ones `grouping.py` works it out the same way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tfperf.arrays import Int64s
from tfperf.trace.event_names import mask
from tfperf.trace.host_trace import HostTrace
from tfperf.wire.event_columns import STEPS_LINE


@dataclass(frozen=True)
class GroupSpans:
    """One entry per group that has a step marker: its id and its span. `names` maps ids to step names."""

    group: Int64s
    start: Int64s
    end: Int64s
    names: dict[int, str]
    device_groups: Int64s
    """Groups with a marker on a device (empty without devices)."""


def stored_groups(trace: HostTrace) -> Int64s | None:
    """Return the stored group of each event (-1: none), or None if the file stores no groups."""
    return trace.number("group_id", -1) if len(trace.stat("group_id").event) else None


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
    named = np.array([bool(text) for text in step_name.texts], np.bool_)
    rest = step_name.event[named[step_name.value]].astype(np.int64) if len(named) else np.empty(0, np.int64)
    both = np.union1d(rows, rest[trace.on_host[rest]])
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
        h, d = host_span.get(key), device_span.get(key)
        spans[key] = h if h and (d is None or (h[0] <= d[0] and d[1] <= h[1])) else d
    table = np.array([(key, *span) for key, span in spans.items() if span], np.int64).reshape(-1, 3)
    return GroupSpans(table[:, 0], table[:, 1], table[:, 2], _step_names(trace, group), device_groups)


def _longest(group: Int64s, begin: Int64s, end: Int64s) -> dict[int, tuple[int, int]]:
    """Return the longest span of each group, the first of equals."""
    order = np.lexsort((begin, begin - end, group))
    first = np.flatnonzero(np.concatenate(([True], np.diff(group[order]) != 0))) if len(group) else order
    rows = order[first]
    return dict(zip(group[rows].tolist(), zip(begin[rows].tolist(), end[rows].tolist(), strict=True), strict=True))


def _device_markers(trace: HostTrace, group: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Return (group, begin, end) of device step markers: the stored step line, or what it would hold."""
    parts = []
    for plane in trace.devices:
        stored = [line for line in trace.device_lines(plane, derived=True) if line.id == STEPS_LINE]
        if stored:
            rows = np.concatenate([np.arange(line.start, line.stop) for line in stored])
            rows = rows[group[rows] >= 0]
            parts.append((group[rows], trace.start_ps[rows], trace.end_ps[rows]))
        else:
            parts.append(_derived_markers(trace, plane, group))
    if not parts:
        nothing = np.empty(0, np.int64)
        return nothing, nothing, nothing
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))  # type: ignore[return-value]


def _derived_markers(trace: HostTrace, plane: int, group: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Merge neighbouring device events of one group; an event without a group takes that of the event before."""
    lines = [np.arange(line.start, line.stop) for line in trace.device_lines(plane)]
    rows = np.concatenate(lines) if lines else np.empty(0, np.int64)
    rows = rows[np.lexsort((trace.duration_ps[rows], trace.start_ps[rows]))]
    last = np.maximum.accumulate(np.where(group[rows] >= 0, np.arange(len(rows)), -1))
    rows, last = rows[last >= 0], last[last >= 0]
    if not len(rows):
        return rows, rows, rows
    known = group[rows[last - (last[0] if len(last) else 0)]]
    starts = np.flatnonzero(np.concatenate(([True], np.diff(known) != 0)))
    return known[starts], trace.start_ps[rows[starts]], np.maximum.reduceat(trace.end_ps[rows], starts)


def _step_names(trace: HostTrace, group: Int64s) -> dict[int, str]:
    stat = trace.stat("step_name")
    return {
        int(group[row]): stat.texts[value]
        for row, value in zip(stat.event.tolist(), stat.value.tolist(), strict=True)
        if stat.texts[value] and group[row] >= 0
    }
