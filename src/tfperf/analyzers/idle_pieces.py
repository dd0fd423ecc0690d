"""The idle time of one device, cut into gaps at the edges of windows, and each gap split by cause (see `idle.py`)."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import numpy as np

from tfperf.arrays import NO_NUMBERS, Bools, Int64s
from tfperf.intervals import overlap
from tfperf.trace.device_time import DeviceTime, work_lines
from tfperf.trace.host_state import HostStates
from tfperf.trace.host_state_names import State
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.launch_links import LaunchLinks

Cause = Literal["input", "compile", "synchronise", "copy", "launch", "python", "host_compute", "unknown"]
CAUSES: tuple[Cause, ...] = get_args(Cause)
"""In the order in which they are shown where they are equal."""

LATE_PS = 100_000_000
"""A launch takes some microseconds to reach the device; after 100 it is not the launch that takes the time."""

_CAUSE_OF: dict[State, Cause] = {
    State.INPUT: "input", State.COMPILE: "compile", State.COPY: "copy", State.LAUNCH: "launch",
    State.COMPUTE: "host_compute", State.EXECUTOR: "launch", State.SYNC: "synchronise", State.CALL: "launch",
    State.PYTHON: "python", State.OTHER: "host_compute", State.NONE: "launch",
}  # fmt: skip
"""A call that launched device work launches, whatever its name says."""
CAUSE_OF_STATE = np.array([CAUSES.index(_CAUSE_OF[state]) for state in State], np.int64)
LAUNCH, UNKNOWN = CAUSES.index("launch"), CAUSES.index("unknown")


class Windows(NamedTuple):
    """Disjoint windows in time order, and which of them count in averages."""

    start: Int64s
    end: Int64s
    counted: Bools


class Pieces(NamedTuple):
    """Gaps of one device cut at windows; from `called` on, the call that launched the next work counts."""

    window: Int64s
    start: Int64s
    end: Int64s
    called: Int64s
    launch: Int64s
    """Host row of the call that launched the next work, -1 where the trace does not tell."""
    before: Int64s
    """Device rows around the gap, -1 at the ends of the capture."""
    after: Int64s
    gap_end: Int64s
    """Where the gap ends, beyond the window if need be."""
    time: Int64s
    """Picoseconds: a row per cause, a column per piece."""


def work_rows(trace: HostTrace, plane: int) -> Int64s:
    """Return the rows of what a device did, in row order."""
    return np.concatenate([NO_NUMBERS, *(np.arange(line.start, line.stop) for line in work_lines(trace, plane))])


def pieces_of(
    trace: HostTrace, device: DeviceTime, windows: Windows, rows: Int64s, links: LaunchLinks, states: HostStates
) -> Pieces:
    """Cut the idle time of a device at windows, and attribute each piece."""
    first = min(device.start_ps, int(windows.start.min()))
    last = max(device.end_ps, int(windows.end.max()))
    begin, end = np.append(first, device.busy.end), np.append(device.busy.start, last)
    from_window = np.searchsorted(windows.end, begin, side="right")
    count = np.where(end > begin, np.maximum(np.searchsorted(windows.start, end) - from_window, 0), 0)
    gap = np.repeat(np.arange(len(begin)), count)
    window = np.repeat(from_window - np.cumsum(count) + count, count) + np.arange(len(gap))
    piece_begin = np.maximum(begin[gap], windows.start[window])
    piece_end = np.minimum(end[gap], windows.end[window])
    keep = piece_end > piece_begin
    gap, window, piece_begin, piece_end = gap[keep], window[keep], piece_begin[keep], piece_end[keep]
    before, after = _around(trace, rows, begin[gap], end[gap])
    launch = np.where(after >= 0, links.of(np.maximum(after, 0)), -1)
    own = np.maximum(launch, 0)
    called = np.where(launch >= 0, np.clip(trace.start_ps[own], piece_begin, piece_end), piece_end)
    made = Pieces(window, piece_begin, piece_end, called, launch, before, after, end[gap], NO_NUMBERS)
    return made._replace(time=_attribute(trace, made, begin[gap], states, device.plane))


def _around(trace: HostTrace, rows: Int64s, begin: Int64s, end: Int64s) -> tuple[Int64s, Int64s]:
    """Return the device rows that end where gaps begin and that begin where gaps end, -1 where there is none."""
    by_end = rows[np.argsort(trace.end_ps[rows], kind="stable")]
    by_begin = rows[np.argsort(trace.start_ps[rows], kind="stable")]
    left = np.searchsorted(trace.end_ps[by_end], begin, side="right") - 1
    right = np.searchsorted(trace.start_ps[by_begin], end)
    ended, begun = by_end[np.maximum(left, 0)], by_begin[np.minimum(right, len(rows) - 1)]
    return (
        np.where((left >= 0) & (trace.end_ps[ended] == begin), ended, -1),
        np.where((right < len(rows)) & (trace.start_ps[begun] == end), begun, -1),
    )


def _attribute(trace: HostTrace, cut: Pieces, gap_begin: Int64s, states: HostStates, plane: int) -> Int64s:
    """Return the time of each cause (rows) in each piece (columns); the columns add up to the pieces."""
    time = np.zeros((len(CAUSES), len(cut.start)), np.int64)
    covered = np.zeros(len(cut.start), np.int64)
    for state, until in states.until(plane):
        so_far = overlap(until, cut.start, cut.called)
        time[CAUSE_OF_STATE[state]] += so_far - covered
        covered = so_far
    time[UNKNOWN] += cut.called - cut.start - covered
    own = np.maximum(cut.launch, 0)
    returned = np.where(cut.launch >= 0, np.clip(trace.end_ps[own], cut.called, cut.end), cut.end)
    is_late = (cut.launch >= 0) & (cut.gap_end - np.maximum(trace.end_ps[own], gap_begin) > LATE_PS)
    until_there = np.where(is_late, returned, cut.end)
    cause = np.where(cut.launch >= 0, CAUSE_OF_STATE[states.code[own]], LAUNCH)
    np.add.at(time, (cause, np.arange(len(cause))), until_there - cut.called)
    time[UNKNOWN] += cut.end - until_there
    return time
