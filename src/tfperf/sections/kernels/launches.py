"""Launching kernels: what it costs the host, how long kernels wait after it, and whether they are worth it.

A call on the host and the kernels it starts carry the same `correlation_id`; ids are unique on a host, also over
several devices. One call may start many kernels (a CUDA graph); then its delay is that of the first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from msgspec import Struct

from tfperf.arrays import Int64s, capped_sum, distinct, lookup, median, overlap, percentile, union_sorted
from tfperf.sections.registry import percent
from tfperf.trace.device_time import device_label
from tfperf.trace.device_work import DeviceWork
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.steps import Steps

TINY_PS = 10_000_000
"""A kernel shorter than this (10 us) takes about as long as launching it."""


class Spread(NamedTuple):
    """Median, 95th percentile and maximum, in picoseconds; None where there is nothing to measure."""

    median_ps: float | None = None
    p95_ps: float | None = None
    max_ps: float | None = None


class DeviceLaunches(Struct, frozen=True, kw_only=True):
    """The kernels of one device, and the calls that launched them."""

    host: str
    device: str
    kernels: int
    tiny_kernel_percent: float | None
    """Kernels shorter than `TINY_PS`, of all kernels."""
    tiny_time_percent: float | None
    """Their time, of that of all kernels."""
    launches: int
    """Calls on the host that launched at least one of these kernels."""
    unmatched_kernels: int
    """Kernels whose call is not in the trace, or not the only one with its id."""
    delay: Spread
    """From the end of the call to the start of its first kernel; negative where the kernel starts earlier."""
    queued: Spread
    """The part of the delay in which the stream was busy with earlier work."""
    unqueued_percent: float | None
    """Calls whose kernel did not wait for earlier work (the stream had run dry), of all calls; None: no call."""
    call: Spread
    """Duration of the calls."""
    early: int
    """Calls that had not returned when their kernel started, which is normal."""
    before: int
    """Kernels that start before their call does: the clocks of host and device disagree."""
    shorter_than_call_percent: float | None
    """Kernels shorter than their own call, of those that a call launches alone."""
    kernels_per_step: float | None
    launches_per_step: float | None
    call_ps_per_step: float | None


def launches_of(trace: HostTrace, work: DeviceWork, steps: Steps) -> tuple[DeviceLaunches, ...]:
    """Match kernels with the calls that launched them, device by device; medians per step are over all of `steps`."""
    kernels = np.flatnonzero(~work.moves)
    calls = _calls(trace)
    planes = work.plane[kernels]
    return tuple(_of_device(trace, work, kernels[planes == plane], calls, steps) for plane in distinct(planes).tolist())


def _calls(trace: HostTrace) -> tuple[Int64s, Int64s]:
    """Return the ascending ids of calls of the host and their rows; an id that several carry identifies none."""
    stat = trace.stat("correlation_id")
    is_call = trace.on_host[stat.event] & (stat.value != 0)
    order = np.argsort(stat.value[is_call], kind="stable")
    ids, rows = stat.value[is_call][order], stat.event[is_call][order].astype(np.int64)
    is_unique = np.ones(len(ids), np.bool_)
    is_unique[1:] &= ids[1:] != ids[:-1]
    is_unique[:-1] &= ids[1:] != ids[:-1]
    return ids[is_unique], rows[is_unique]


def _match(trace: HostTrace, rows: Int64s, calls: tuple[Int64s, Int64s]) -> tuple[Int64s, Int64s, Int64s]:
    """Return the calls (rows) that launched any of the kernels at `rows`, the first kernel of each, and how many."""
    call_ids, call_rows = calls
    # No call has the id 0.
    place = lookup(call_ids, trace.number_at("correlation_id", rows, 0))
    matched = np.flatnonzero(place >= 0)
    order = matched[np.lexsort((trace.start_ps[rows[matched]], place[matched]))]
    first = np.flatnonzero(np.diff(place[order], prepend=-1) != 0)
    return call_rows[place[order[first]]], order[first], np.diff(first, append=len(order))


def _of_device(
    trace: HostTrace, work: DeviceWork, kernels: Int64s, calls: tuple[Int64s, Int64s], steps: Steps
) -> DeviceLaunches:
    """Describe the kernels of one device, which are indices into `work`."""
    rows = work.rows[kernels]
    duration = trace.duration_ps[rows]
    is_tiny = duration < TINY_PS
    call, first_kernel, kernel_count = _match(trace, rows, calls)
    start, call_end = trace.start_ps[rows[first_kernel]], trace.end_ps[call]
    call_start, call_ps = trace.start_ps[call], trace.duration_ps[call]
    is_before = start < call_start
    queued = _queued(trace, work.line[kernels[first_kernel]], call_end, start)
    is_single, is_shorter = kernel_count == 1, duration[first_kernel] < call_ps
    return DeviceLaunches(
        host=trace.host,
        device=device_label(trace.planes[int(work.plane[kernels[0]])].name),
        kernels=len(rows),
        tiny_kernel_percent=percent(int(is_tiny.sum()), len(rows)),
        tiny_time_percent=percent(capped_sum(duration[is_tiny]), capped_sum(duration)),
        launches=len(call),
        unmatched_kernels=len(rows) - int(kernel_count.sum()),
        delay=_spread(start - call_end),
        queued=_spread(queued),
        unqueued_percent=percent(int((queued == 0).sum()), len(call)),
        call=_spread(call_ps),
        early=int(((start < call_end) & ~is_before).sum()),
        before=int(is_before.sum()),
        shorter_than_call_percent=percent(int((is_single & is_shorter).sum()), int(is_single.sum())),
        kernels_per_step=_per_step(trace.start_ps[rows], steps),
        launches_per_step=_per_step(call_start, steps) if len(call) else None,
        call_ps_per_step=_per_step(call_start, steps, call_ps) if len(call) else None,
    )


def _queued(trace: HostTrace, line: Int64s, call_end: Int64s, start: Int64s) -> Int64s:
    """Return how much of the time from the end of the call to the start of its kernel the stream `line` was busy."""
    queued = np.zeros(len(line), np.int64)
    for stream in distinct(line).tolist():
        rows = slice(trace.lines[stream].start, trace.lines[stream].stop)
        busy = union_sorted(trace.start_ps[rows], trace.end_ps[rows])
        on_stream = line == stream
        queued[on_stream] = overlap(busy, call_end[on_stream], start[on_stream])
    return queued


def _spread(values: Int64s) -> Spread:
    return Spread(median(values), percentile(values, 0.95), float(values.max())) if len(values) else Spread()


def _per_step(start: Int64s, steps: Steps, weight: Int64s | None = None) -> float | None:
    """Return the median over steps of how many events start in a step, or of the sum of their weights.

    None without steps, and where all events lie outside of them: then they are not of these steps.
    """
    order = np.argsort(start, kind="stable")
    first, last = (np.searchsorted(start[order], edge) for edge in (steps.start_ps, steps.end_ps))
    if not (last > first).any():
        return None
    if weight is None:
        return median(last - first)
    sums = np.concatenate(([0], np.cumsum(weight[order])))
    return median(sums[last] - sums[first])
