"""The idle time of one device: gaps, cut at the edges of step windows, and the causes of each.

A gap is a stretch of time in which the device neither computes nor copies. Each piece of it is split exactly:

1. What ends a gap is the next work of the device, and `correlation_id` tells which call launched it. From the start of
   that call on, the gap is that call's: a launch, a copy, or a copy back (waiting for a result). Gaps between kernels
   that were all launched before are launching too: the device takes that long from one to the next.
2. If the work starts more than `LATE_PS` after its call ended, the device waited for something itself (another stream,
   another device); which, the trace does not record: unknown.
3. Before that call, what the host does counts, one state at a time (`trace/host_state.py`).
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, replace

from tfperf.base.arrays import Bools, Int64s, overlap, ranges
from tfperf.sections.idle.tables import CAUSES, Cause
from tfperf.trace.device.device_time import DeviceTime, work_rows
from tfperf.trace.host.host_state import HostStates, State
from tfperf.trace.host.launches import LaunchLinks
from tfperf.trace.host_trace import HostTrace

LATE_PS = 100_000_000
"""A launch takes some microseconds to reach the device; after 100 it is not the launch that takes the time."""

_CAUSE_OF: dict[State, Cause] = {
    State.INPUT: "input",
    State.COMPILE: "compile",
    State.COPY: "copy",
    State.LAUNCH: "launch",
    State.COMPUTE: "host_compute",
    State.EXECUTOR: "launch",
    State.SYNC: "synchronise",
    State.CALL: "launch",
    State.PYTHON: "python",
    State.OTHER: "host_compute",
    State.NONE: "launch",
}
"""A call that launched device work launches, whatever its name says."""
CAUSE_OF_STATE = np.array([CAUSES.index(_CAUSE_OF[state]) for state in State], np.int64)
LAUNCH, UNKNOWN = CAUSES.index("launch"), CAUSES.index("unknown")


class Windows(Struct, frozen=True):
    """Disjoint windows in time order, and which of them count in averages."""

    start_ps: Int64s
    end_ps: Int64s
    counted: Bools


class DeviceGaps(Struct, frozen=True, kw_only=True):
    """The gaps of one device, cut at the edges of windows, as columns of equal length.

    Times are int64 picoseconds on the clock of the host.
    """

    device: DeviceTime
    window: Int64s
    """Index of the window that holds the piece."""
    start_ps: Int64s
    end_ps: Int64s
    gap_start_ps: Int64s
    """Start and end of the whole gap, which may lie beyond the window."""
    gap_end_ps: Int64s
    launch: Int64s
    """Host row of the call that launched the next work, -1 where it is unknown."""
    called_ps: Int64s
    """From here on, that call counts; `end_ps` where it is unknown."""
    before: Int64s
    """Device rows around the gap, -1 at the ends of the capture."""
    after: Int64s
    time_ps: Int64s
    """A row per cause, a column per piece; columns add up to the duration of the piece."""

    @property
    def duration_ps(self) -> Int64s:
        """Return the duration of each piece."""
        return self.end_ps - self.start_ps

    def only(self, pieces: Int64s) -> DeviceGaps:
        """Return some of the pieces."""
        columns = {key: column[..., pieces] for key, column in asdict(self).items() if key != "device"}
        return replace(self, **columns)


def gaps_of(
    trace: HostTrace, device: DeviceTime, windows: Windows, links: LaunchLinks, states: HostStates
) -> DeviceGaps:
    """Cut the idle time of a device at windows, and split each piece by cause."""
    first = min(device.start_ps, int(windows.start_ps.min()))
    last = max(device.end_ps, int(windows.end_ps.max()))
    gap_start, gap_end = np.append(first, device.busy.end), np.append(device.busy.start, last)
    first_window = np.searchsorted(windows.end_ps, gap_start, side="right")
    count = np.where(gap_end > gap_start, np.maximum(np.searchsorted(windows.start_ps, gap_end) - first_window, 0), 0)
    gap = np.repeat(np.arange(len(gap_start)), count)
    window = ranges(first_window, count)
    start = np.maximum(gap_start[gap], windows.start_ps[window])
    end = np.minimum(gap_end[gap], windows.end_ps[window])
    keep = end > start
    gap, window, start, end = gap[keep], window[keep], start[keep], end[keep]
    gap_start, gap_end = gap_start[gap], gap_end[gap]
    before, after = _around(trace, work_rows(trace, device.plane), gap_start, gap_end)
    # What the host does meanwhile is on its own clock, which a gap is too short to drift against.
    ahead = trace.on_host_clock(device.plane, start) - start
    start, end, gap_start, gap_end = start + ahead, end + ahead, gap_start + ahead, gap_end + ahead
    launch = np.where(after >= 0, links.of(np.maximum(after, 0)), -1)
    called = np.where(launch >= 0, np.clip(trace.start_ps[np.maximum(launch, 0)], start, end), end)
    pieces = DeviceGaps(
        device=device,
        window=window,
        start_ps=start,
        end_ps=end,
        gap_start_ps=gap_start,
        gap_end_ps=gap_end,
        launch=launch,
        called_ps=called,
        before=before,
        after=after,
        time_ps=np.zeros((len(CAUSES), len(start)), np.int64),
    )
    return replace(pieces, time_ps=_time_by_cause(trace, pieces, states))


def _around(trace: HostTrace, rows: Int64s, gap_start: Int64s, gap_end: Int64s) -> tuple[Int64s, Int64s]:
    """Return the device rows that end where gaps start and that start where gaps end, -1 where there is none."""
    by_end = rows[np.argsort(trace.end_ps[rows], kind="stable")]
    by_start = rows[np.argsort(trace.start_ps[rows], kind="stable")]
    left = np.searchsorted(trace.end_ps[by_end], gap_start, side="right") - 1
    right = np.searchsorted(trace.start_ps[by_start], gap_end)
    before, after = by_end[np.maximum(left, 0)], by_start[np.minimum(right, len(rows) - 1)]
    return (
        np.where((left >= 0) & (trace.end_ps[before] == gap_start), before, -1),
        np.where((right < len(rows)) & (trace.start_ps[after] == gap_end), after, -1),
    )


def _time_by_cause(trace: HostTrace, pieces: DeviceGaps, states: HostStates) -> Int64s:
    """Return the time of each cause (rows) in each piece (columns)."""
    time = pieces.time_ps.copy()
    covered = np.zeros(len(pieces.window), np.int64)
    for state, until in states.until(pieces.device.plane):
        covered_so_far = overlap(until, pieces.start_ps, pieces.called_ps)
        time[CAUSE_OF_STATE[state]] += covered_so_far - covered
        covered = covered_so_far
    time[UNKNOWN] += pieces.called_ps - pieces.start_ps - covered
    is_launched, call = pieces.launch >= 0, np.maximum(pieces.launch, 0)
    returned = np.where(is_launched, np.clip(trace.end_ps[call], pieces.called_ps, pieces.end_ps), pieces.end_ps)
    is_late = is_launched & (pieces.gap_end_ps - np.maximum(trace.end_ps[call], pieces.gap_start_ps) > LATE_PS)
    call_end = np.where(is_late, returned, pieces.end_ps)
    cause = np.where(is_launched, CAUSE_OF_STATE[states.code[call]], LAUNCH)
    time[cause, np.arange(len(cause))] += call_end - pieces.called_ps
    time[UNKNOWN] += pieces.end_ps - call_end
    return time
