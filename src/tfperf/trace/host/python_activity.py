"""Python data in tfperf captures: pauses of the garbage collector, and CPU time of a thread."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Float64s, Int64s, Intervals, overlap
from tfperf.formats.wire.capture_plane import CPU_LINE, PAUSES_LINE, RECORD_STATS
from tfperf.formats.wire.event_columns import NO_STAT, join_columns
from tfperf.formats.wire.planes import PlaneHeader, WantedStats, read_events
from tfperf.formats.wire.trace_file import PlaneSpan, TraceFile

_WANTED = WantedStats({name: "text" if name == "place" else "number" for name in RECORD_STATS})
_LONGEST_PS = 1 << 60
_PS_PER_NS = 1000


class Pauses(Struct, frozen=True, eq=False):
    """Runs of the garbage collector in order; `places` are the Python lines that ran, such as `a.py:12 clean`."""

    start_ps: Int64s
    end_ps: Int64s
    generation: Int64s
    places: tuple[str, ...]


class CpuTimes(Struct, frozen=True, eq=False):
    """Intervals in order: how long a thread ran in each, and how long it was ready but had no core."""

    start_ps: Int64s
    end_ps: Int64s
    cpu_ps: Int64s
    queued_ps: Int64s

    @property
    def ready_ps(self) -> Int64s:
        """Return how long the thread was running or ready, which excludes waiting."""
        return np.asarray(np.minimum(self.cpu_ps + self.queued_ps, self.end_ps - self.start_ps), np.int64)

    def within(self, times: Intervals, start_ps: Int64s, end_ps: Int64s) -> tuple[Float64s, Float64s]:
        """Return the least and most time that the thread was ready in `times`, per window: partial intervals are
        uncertain.
        """
        inside, ready = overlap(times, self.start_ps, self.end_ps), self.ready_ps
        least = np.maximum(ready - (self.end_ps - self.start_ps - inside), 0)
        spread = [
            self._until(times, inside, amount, end_ps) - self._until(times, inside, amount, start_ps)
            for amount in (least, np.minimum(ready, inside))
        ]
        return spread[0], spread[1]

    def _until(self, times: Intervals, inside: Int64s, amount: Int64s, moment: Int64s) -> Float64s:
        """Return how much of `amount`, spread evenly over the part of each interval inside `times`, comes before."""
        before = np.concatenate(([0], np.cumsum(amount)))
        piece = np.searchsorted(self.start_ps, moment, side="right") - 1
        at = np.maximum(piece, 0)
        part = overlap(times, self.start_ps[at], np.minimum(moment, self.end_ps[at])) / np.maximum(inside[at], 1)
        return np.asarray(np.where(piece < 0, 0.0, before[at] + amount[at] * part), np.float64)


class PythonActivity(Struct, frozen=True, eq=False):
    """Python data of a capture; None: not recorded."""

    pauses: Pauses | None = None
    cpu: CpuTimes | None = None
    """CPU times of the thread that used the most CPU: the main thread, or the one that started the profile."""


def read_activity(file: TraceFile, span: PlaneSpan, header: PlaneHeader) -> PythonActivity:
    """Read the lines of a capture's plane, whose times count from the start of the session."""
    columns = join_columns([*read_events(file, span, header, _WANTED)])

    def stat(name: str) -> Int64s:
        found, values = columns.stats.get(name, NO_STAT), np.zeros(len(columns.name), np.int64)
        values[found.event] = found.value
        return values

    pauses, threads = None, list[CpuTimes]()
    is_sane = (np.abs(columns.start_ps) < _LONGEST_PS) & (columns.duration_ps > 0)
    is_sane &= columns.duration_ps < _LONGEST_PS
    for line in columns.lines:
        rows = np.flatnonzero(is_sane[line.start : line.stop]) + line.start
        rows = rows[np.argsort(columns.start_ps[rows], kind="stable")]
        start = columns.start_ps[rows]
        # An interval ends when the next one begins at the latest, even in a damaged file.
        end = np.minimum(start + columns.duration_ps[rows], np.append(start[1:], 2 * _LONGEST_PS))
        if line.name == PAUSES_LINE:
            texts = columns.stats.get("place", NO_STAT).texts or ("",)
            places = tuple(texts[place] for place in stat("place")[rows].tolist())
            pauses = Pauses(start, end, stat("generation")[rows], places)
        elif line.name.startswith(CPU_LINE) and len(rows):
            cpu, queued = (np.clip(stat(name)[rows] * _PS_PER_NS, 0, end - start) for name in ("cpu_ns", "queued_ns"))
            threads.append(CpuTimes(start, end, cpu, queued))
    return PythonActivity(pauses, max(threads, key=lambda times: int(times.cpu_ps.sum()), default=None))
