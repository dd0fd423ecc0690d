"""Memory in use during a step, by allocator."""

from __future__ import annotations

import numpy as np

from tfperf.base.arrays import Int64s
from tfperf.report.step_picture import MemoryCurve
from tfperf.sections.timeline.window import Window
from tfperf.trace.host_trace import HostTrace

_MOST_ALLOCATORS = 3
_MOST_POINTS = 400
_IMPOSSIBLE_BYTES = 1 << 53


class MemoryInUse:
    """What each allocator of a host has in use over time."""

    def __init__(self, trace: HostTrace) -> None:
        memory = trace.memory
        names, allocator = trace.allocators
        used = memory.number("bytes_allocated", -1)
        used = np.where(used >= 0, used + np.maximum(memory.number("bytes_reserved", 0), 0), -1)
        is_sound = (allocator >= 0) & (used >= 0) & (used < _IMPOSSIBLE_BYTES)
        rows = np.flatnonzero(is_sound)
        order = rows[np.lexsort((memory.start_ps[rows], allocator[rows]))]
        bounds = np.searchsorted(allocator[order], np.arange(len(names) + 1)).tolist()
        self._allocators = [
            (name, memory.start_ps[order[start:stop]], used[order[start:stop]])
            for name, start, stop in zip(names, bounds, bounds[1:], strict=False)
            if stop > start
        ]

    def curves(self, window: Window) -> tuple[MemoryCurve, ...]:
        """Return the curves of those allocators that have most in use in the window; constant ones come last."""
        found = [self._curve(window, *each) for each in self._allocators]
        curves = sorted((curve for curve in found if curve is not None), key=lambda each: -int(each.used_bytes.max()))
        return tuple(curves[:_MOST_ALLOCATORS])

    @staticmethod
    def _curve(window: Window, name: str, time_ps: Int64s, used: Int64s) -> MemoryCurve | None:
        first = max(int(np.searchsorted(time_ps, window.start_ps, side="right")) - 1, 0)
        last = int(np.searchsorted(time_ps, window.end_ps))
        if last <= first:
            return None
        time_ns, used = window.ns(time_ps[first:last]), used[first:last]
        if len(used) > _MOST_POINTS:
            # Of each stretch, the time of its start and its largest value stay.
            starts = np.linspace(0, len(used), _MOST_POINTS, endpoint=False).astype(np.int64)
            time_ns, used = time_ns[starts], np.maximum.reduceat(used, starts)
        return MemoryCurve(name, time_ns, used)
