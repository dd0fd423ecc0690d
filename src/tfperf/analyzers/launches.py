"""Launching kernels: what it costs the host, how long kernels wait after it, and whether they are worth it.

A call on the host and the kernels it starts carry the same `correlation_id`; ids are unique on a host, also over
several devices. One call may start many kernels (a CUDA graph); then its delay is that of the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tfperf.arrays import NO_NUMBERS, Bools, Int64s, capped_sum, distinct, median, percentile
from tfperf.intervals import Intervals, overlap, union_sorted
from tfperf.trace.device_time import device_label
from tfperf.trace.device_work import DeviceWork, device_work
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.steps import Steps
from tfperf.units import PS_PER_MS

TINY_PS = 10_000_000
"""A kernel shorter than this (10 us) takes about as long as launching it."""
_PS_PER_US = 1e6


class Spread(NamedTuple):
    """Median, 95th percentile and maximum, in picoseconds; None where there is nothing to measure."""

    median_ps: float | None = None
    p95_ps: float | None = None
    max_ps: float | None = None


@dataclass(frozen=True)
class DeviceLaunches:
    """The kernels of one device, and the calls that launched them."""

    host: str
    device: str
    kernels: int
    kernel_ps: int
    tiny_kernels: int
    tiny_ps: int
    launches: int
    """Calls on the host that launched at least one of these kernels."""
    unmatched_kernels: int
    """Kernels whose call is not in the trace, or not the only one with its id."""
    delay: Spread
    """From the end of the call to the begin of its first kernel; negative where the kernel begins earlier."""
    queued: Spread
    """The part of the delay in which the stream was busy with earlier work."""
    unqueued: int
    """Calls whose kernel did not wait for earlier work: the stream had run dry."""
    call: Spread
    """How long the calls take."""
    early: int
    """Calls that had not returned when their kernel began, which is normal."""
    before: int
    """Kernels that begin before their call does: the clocks of host and device disagree."""
    shorter_than_call: int
    """Kernels shorter than their own call, of calls that launch a single kernel."""
    single: int
    """Calls that launch a single kernel."""
    kernels_per_step: float | None
    launches_per_step: float | None
    call_ps_per_step: float | None

    @property
    def tiny_percent(self) -> float | None:
        """Return the part of the kernels that is shorter than 10 us."""
        return _percent(self.tiny_kernels, self.kernels)

    @property
    def unqueued_percent(self) -> float | None:
        """Return the part of the calls whose kernel found the stream idle; None if no call is known."""
        return _percent(self.unqueued, self.launches)


@dataclass(frozen=True)
class Launches:
    """One entry per device of each host."""

    devices: tuple[DeviceLaunches, ...]

    @property
    def busiest(self) -> DeviceLaunches | None:
        """Return the device with the most kernels, None without kernels."""
        return max(self.devices, key=lambda own: own.kernels, default=None)

    def columns(self) -> dict[str, list[object]]:
        """Return one row per device; times in the unit that the key names."""
        spreads = {"delay": "delay", "queued": "queued", "call": "call"}
        found: dict[str, list[object]] = {
            key: [getattr(own, key) for own in self.devices]
            for key in ("host", "device", "kernels", "launches", "unmatched_kernels", "kernels_per_step",
                        "launches_per_step", "early", "before")
        }  # fmt: skip
        for key, field in spreads.items():
            for part in ("median", "p95", "max"):
                values = [getattr(getattr(own, field), f"{part}_ps") for own in self.devices]
                found[f"{key}_{part}_us"] = [None if value is None else value / _PS_PER_US for value in values]
        found["step_calls_ms"] = [_scaled(own.call_ps_per_step, PS_PER_MS) for own in self.devices]
        found["unqueued_percent"] = [own.unqueued_percent for own in self.devices]
        found["tiny_kernel_percent"] = [own.tiny_percent for own in self.devices]
        found["tiny_time_percent"] = [_percent(own.tiny_ps, own.kernel_ps) for own in self.devices]
        found["shorter_than_call_percent"] = [_percent(own.shorter_than_call, own.single) for own in self.devices]
        return found


def analyze(trace: HostTrace, steps: Steps, work: DeviceWork | None = None) -> Launches:
    """Match kernels with the calls that launched them, device by device; `work` saves finding it again."""
    work = work or device_work(trace)
    kernels = np.flatnonzero(~work.moves)
    planes = distinct(work.plane[kernels]).tolist() if len(kernels) else []
    calls = _calls(trace)
    windows = _windows(steps)
    busy = {line: _busy(trace, line) for line in distinct(work.line[kernels]).tolist()} if planes else {}
    return Launches(tuple(
        _of_device(trace, work, kernels[work.plane[kernels] == plane], calls, busy, windows) for plane in planes
    ))  # fmt: skip


def combine(parts: list[Launches]) -> Launches:
    """Return the devices of all hosts."""
    return Launches(tuple(own for part in parts for own in part.devices))


def _scaled(value: float | None, unit: float) -> float | None:
    return None if value is None else value / unit


def _percent(part: float, whole: float) -> float | None:
    return 100.0 * part / whole if whole else None


def _busy(trace: HostTrace, line: int) -> Intervals:
    rows = slice(trace.lines[line].start, trace.lines[line].stop)
    return union_sorted(trace.start_ps[rows], trace.end_ps[rows])


def _windows(steps: Steps) -> tuple[Int64s, Int64s]:
    counted = steps.averaged & (np.array(steps.kinds, object) == steps.headline_kind)
    return steps.start_ps[counted], steps.end_ps[counted]


def _calls(trace: HostTrace) -> tuple[Int64s, Int64s]:
    """Return ids, ascending, and the rows of the host's calls; an id that several calls carry tells nothing."""
    stat = trace.stat("correlation_id")
    mine = trace.on_host[stat.event] & (stat.value != 0)
    order = np.argsort(stat.value[mine], kind="stable")
    ids, rows = stat.value[mine][order], stat.event[mine][order].astype(np.int64)
    alone = np.ones(len(ids), np.bool_)
    alone[1:] &= ids[1:] != ids[:-1]
    alone[:-1] &= ids[1:] != ids[:-1]
    return ids[alone], rows[alone]


class _Matched(NamedTuple):
    """Calls with the first of their kernels, and how many each launched; `kernel` is an index into the kernels."""

    call: Int64s
    kernel: Int64s
    started: Int64s


def _match(trace: HostTrace, rows: Int64s, calls: tuple[Int64s, Int64s]) -> _Matched:
    ids, call_rows = calls
    if not len(ids) or not len(rows):
        return _Matched(NO_NUMBERS, NO_NUMBERS, NO_NUMBERS)
    wanted = trace.number_at("correlation_id", rows, 0)
    place = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    found = np.flatnonzero((ids[place] == wanted) & (wanted != 0))
    order = found[np.lexsort((trace.start_ps[rows[found]], place[found]))]
    first = np.flatnonzero(np.diff(place[order], prepend=-1) != 0)
    return _Matched(call_rows[place[order[first]]], order[first], np.diff(first, append=len(order)))


def _of_device(
    trace: HostTrace, work: DeviceWork, mine: Int64s, calls: tuple[Int64s, Int64s], busy: dict[int, Intervals],
    windows: tuple[Int64s, Int64s],
) -> DeviceLaunches:  # fmt: skip
    rows = work.rows[mine]
    duration = trace.duration_ps[rows]
    tiny = duration < TINY_PS
    found = _match(trace, rows, calls)
    begin, call_end = trace.start_ps[rows[found.kernel]], trace.end_ps[found.call]
    call_ps, before = trace.duration_ps[found.call], begin < trace.start_ps[found.call]
    queued = _queued(work.line[mine[found.kernel]], call_end, begin, busy)
    single = found.started == 1
    launches_per_step, call_ps_per_step = _calls_per_step(trace, found.call, windows)
    return DeviceLaunches(
        host=trace.host,
        device=device_label(trace.planes[int(work.plane[mine[0]])].name),
        kernels=len(rows),
        kernel_ps=capped_sum(duration),
        tiny_kernels=int(tiny.sum()),
        tiny_ps=capped_sum(duration[tiny]),
        launches=len(found.call),
        unmatched_kernels=len(rows) - int(found.started.sum()),
        delay=_spread(begin - call_end),
        queued=_spread(queued),
        unqueued=int((queued == 0).sum()),
        call=_spread(call_ps),
        early=int(((begin < call_end) & ~before).sum()),
        before=int(before.sum()),
        shorter_than_call=int((single & (duration[found.kernel] < call_ps)).sum()),
        single=int(single.sum()),
        kernels_per_step=_per_step(trace.start_ps[rows], None, windows),
        launches_per_step=launches_per_step,
        call_ps_per_step=call_ps_per_step,
    )


def _queued(line: Int64s, since: Int64s, begin: Int64s, busy: dict[int, Intervals]) -> Int64s:
    """Return how much of the time from the end of the call to the begin of the kernel its stream was busy."""
    queued = np.zeros(len(line), np.int64)
    for index, intervals in busy.items():
        mine: Bools = line == index
        queued[mine] = overlap(intervals, since[mine], begin[mine])
    return queued


def _spread(values: Int64s) -> Spread:
    return Spread(median(values), percentile(values, 0.95), float(values.max())) if len(values) else Spread()


def _calls_per_step(
    trace: HostTrace, call: Int64s, windows: tuple[Int64s, Int64s]
) -> tuple[float | None, float | None]:
    """Return the calls of a step and their time; not known where no call of the host is in the trace."""
    if not len(call):
        return None, None
    begin = trace.start_ps[call]
    return _per_step(begin, None, windows), _per_step(begin, trace.duration_ps[call], windows)


def _per_step(begin: Int64s, weight: Int64s | None, windows: tuple[Int64s, Int64s]) -> float | None:
    """Return the median over steps of how many events begin in a step, or of the sum of their weights.

    None without steps, and where all events lie outside of them: then they are not of these steps.
    """
    order = np.argsort(begin, kind="stable")
    first, last = (np.searchsorted(begin[order], edge) for edge in windows)
    if not (last > first).any():
        return None
    if weight is None:
        return median(last - first)
    sums = np.concatenate(([0], np.cumsum(weight[order])))
    return median(sums[last] - sums[first])
