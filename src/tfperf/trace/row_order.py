"""The rows of a HostTrace: lines on one clock, one line per timeline, its events in the order of their starts."""

from __future__ import annotations

import numpy as np

from tfperf.arrays import Int64s
from tfperf.wire.event_columns import EventColumns, Line

LONGEST_PS = 1 << 60
"""13 days: no capture is longer, and sums and differences of a few such times still fit into an int64."""


def clock_zeros(stamps: set[int]) -> dict[int, int]:
    """Return for each timestamp (ns) of a line what to count it from, so that picoseconds fit into an int64.

    That is 0, or for a clock that counts from 1970 its earliest line. Lines further apart than any capture lasts are on
    different clocks; each of these counts from its own earliest line.
    """
    longest_ns = LONGEST_PS // 1000
    zero = 0 if all(abs(stamp) < longest_ns for stamp in stamps) else min(stamps)
    zeros = {}
    for stamp in sorted(stamps):
        zero = stamp if stamp - zero >= longest_ns else zero
        zeros[stamp] = zero
    return zeros


def put_on_clock(events: EventColumns, zeros: dict[int, int]) -> None:
    """Turn times that count from the timestamp of a line into times on the clock of the file, in place."""
    for line in events.lines:
        if line.stop > line.start:
            events.start_ps[line.start : line.stop] += (line.timestamp_ns - zeros[line.timestamp_ns]) * 1000


def in_order(events: EventColumns) -> EventColumns:
    """Return the events in the order that a HostTrace promises; lines of one plane with the same id are one."""
    lines = events.lines
    start, duration = events.start_ps, events.duration_ps
    rank: dict[tuple[int, int], int] = {}
    for line in lines:
        rank.setdefault((line.plane, line.id), len(rank))
    rows = [slice(line.start, line.stop) for line in lines]
    if len(rank) == len(lines) and all(_is_ordered(start[some], duration[some]) for some in rows):
        return events
    of_line = np.repeat(
        np.array([rank[line.plane, line.id] for line in lines], np.int64), [line.stop - line.start for line in lines]
    )
    return events.ordered(np.lexsort((-duration, start, of_line)), _merged(lines))


def _is_ordered(start: Int64s, duration: Int64s) -> bool:
    step = start[1:] - start[:-1]
    return bool(((step > 0) | ((step == 0) & (duration[1:] <= duration[:-1]))).all())


def _merged(lines: tuple[Line, ...]) -> tuple[Line, ...]:
    """Return one line for all with the same id on a plane, whose rows are neighbours by now."""
    same: dict[tuple[int, int], list[Line]] = {}
    for line in lines:
        same.setdefault((line.plane, line.id), []).append(line)
    merged, start = [], 0
    for parts in same.values():
        stop = start + sum(part.stop - part.start for part in parts)
        merged.append(parts[0]._replace(start=start, stop=stop))
        start = stop
    return tuple(merged)
