"""Frames of the Python tracer: which function runs when, and inside which other one.

Frames nest in time on the line of their thread, among the events of TensorFlow, which do not count here: what a
function calls in TensorFlow is its own time. A frame that is open when the capture starts or ends is clipped to it;
one that is open all the time is not recorded.
"""

from __future__ import annotations

import re
from typing import Literal

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import MOST, Bools, Int64s, Intervals, distinct_index, union
from tfperf.trace.event_names import is_python_frame, mask
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.nesting import own_parts, parents, self_time

_PROFILER = re.compile(r"\$(?:profiler|profiler_v2)\.py:\d+ (start|stop)(?:_trace)?$")


def profiler_times(trace: HostTrace, which: Literal["start", "stop"]) -> Intervals:
    """Return when a call of JAX or TensorFlow starts or stops the profiler; only the Python tracer records it."""
    matches = (_PROFILER.match(name) for name in trace.names)
    rows = trace.host_events(np.array([match is not None and match[1] == which for match in matches], np.bool_))
    return union(trace.start_ps[rows], trace.end_ps[rows])


class PythonFrames(Struct, frozen=True, kw_only=True):
    """The frames of a host, one for each call, by line and in the order of their start.

    `rows` are rows of the trace, `name` indexes its names, `line` its lines, and `parent` these frames: the one that
    called it, -1 for none. Times are in picoseconds on the clock of the trace.
    """

    rows: Int64s
    name: Int64s
    line: Int64s
    parent: Int64s
    start: Int64s
    end: Int64s

    def __len__(self) -> int:
        """Return how many frames there are."""
        return len(self.rows)

    @property
    def self_ps(self) -> Int64s:
        """Return the time of each frame without the frames that it calls."""
        return self_time(self.end - self.start, self.parent)

    def own_parts(self) -> tuple[Int64s, Int64s, Int64s]:
        """Return when each frame is the innermost of its thread: frame, start and end of each part."""
        return own_parts(self.start, self.end, self.parent, np.ones(len(self), np.bool_))

    def spans(self, group: Int64s) -> tuple[Int64s, Int64s, Int64s]:
        """Return when a frame of each group is open on a thread, whatever it calls: group, start and end.

        What calls itself counts once. `group` has a number for each frame.
        """
        keys, key = distinct_index(self.line * (int(group.max()) + 1) + group)
        low = int(self.start.min())
        opened, closed, times = self.start - low, self.end - low, None
        size = int(closed.max()) + 1
        if len(keys) * size >= MOST:  # times of a damaged file: by their ranks, these numbers stay small
            times, rank = distinct_index(np.concatenate((opened, closed)))
            opened, closed = np.split(rank, 2)
            size = len(times)
        # One after the other, so that no time of one key reaches into the next.
        opened, closed = key * size + opened, key * size + closed
        order = np.argsort(opened, kind="stable")
        reach = np.maximum.accumulate(closed[order])
        begins = np.concatenate(([True], opened[order][1:] > reach[:-1]))
        last = np.append(np.flatnonzero(begins)[1:], len(self)) - 1
        outer, stop = order[begins], reach[last] % size
        return group[outer], self.start[outer], low + (stop if times is None else times[stop])


def frame_names(trace: HostTrace) -> Bools:
    """Tell which names of the trace are frames."""
    return mask(trace.names, is_python_frame)


def python_frames(trace: HostTrace) -> PythonFrames | None:
    """Return the frames of all threads of a host; None if the Python tracer recorded nothing."""
    if not any(map(is_python_frame, trace.names)):
        return None
    rows = trace.host_events(frame_names(trace))
    if not len(rows):
        return None
    return PythonFrames(
        rows=rows,
        name=trace.name[rows].astype(np.int64),
        line=trace.line_of[rows].astype(np.int64),
        parent=parents(trace, rows),
        start=trace.start_ps[rows],
        end=trace.end_ps[rows],
    )
