"""Launching kernels: what it costs the host, how long kernels wait after it, and whether they are worth it.

One call may start many kernels (a CUDA graph); then its delay is that of the first.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Int64s, capped_sum, distinct, median, overlap, percentile, union_sorted
from tfperf.base.units import percent
from tfperf.trace.device.device_time import device_label
from tfperf.trace.device.device_work import DeviceWork
from tfperf.trace.host.launches import LaunchLinks, launch_links
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.steps.steps import Steps

TINY_PS = 10_000_000
"""A kernel shorter than this (10 us) takes about as long as launching it."""


ThreadMode = Literal["gpu_private", "gpu_shared", "global"]


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
    kernel: Spread
    """Duration of the kernels."""
    call: Spread
    """Duration of the calls."""
    thread_mode: ThreadMode | None
    """Whose threads launch the ops of GPUs (TF_GPU_THREAD_MODE); None: the names of threads do not tell."""
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
    links = launch_links(trace, np.sort(work.rows[kernels]))
    planes = work.plane[kernels]
    return tuple(_of_device(trace, work, kernels[planes == plane], links, steps) for plane in distinct(planes).tolist())


def _match(links: LaunchLinks, start_ps: Int64s, rows: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Return the calls (rows) that launched any of the kernels at `rows`, the first kernel of each, and how many."""
    call = links.of(rows)
    matched = np.flatnonzero(call >= 0)
    order = matched[np.lexsort((start_ps[rows[matched]], call[matched]))]
    first = np.flatnonzero(np.diff(call[order], prepend=-1) != 0)
    return call[order[first]], order[first], np.diff(first, append=len(order))


def _of_device(trace: HostTrace, work: DeviceWork, kernels: Int64s, links: LaunchLinks, steps: Steps) -> DeviceLaunches:
    """Describe the kernels of one device, which are indices into `work`."""
    rows = work.rows[kernels]
    duration = trace.duration_ps[rows]
    is_tiny = duration < TINY_PS
    call, first_kernel, kernel_count = _match(links, trace.start_ps, rows)
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
        kernel=_spread(duration),
        call=_spread(call_ps),
        thread_mode=thread_mode(trace, call),
        early=int(((start < call_end) & ~is_before).sum()),
        before=int(is_before.sum()),
        shorter_than_call_percent=percent(int((is_single & is_shorter).sum()), int(is_single.sum())),
        kernels_per_step=_per_step(trace.start_ps[rows], steps),
        launches_per_step=_per_step(call_start, steps) if len(call) else None,
        call_ps_per_step=_per_step(call_start, steps, call_ps) if len(call) else None,
    )


def thread_mode(trace: HostTrace, calls: Int64s) -> ThreadMode | None:
    """Return which threads TensorFlow runs ops of GPUs on, by the names of the host's threads.

    It names the pool of a GPU `gpu_private_0`, that of all GPUs `gpu_shared`, and makes them in these modes only. By
    default (`global`), ops of GPUs share the pool `Compute` with those of the CPU, and so launch from there.
    """
    names = {line.name.removeprefix("tf_") for line in trace.host_lines if line.stop > line.start}
    modes: tuple[ThreadMode, ...] = ("gpu_private", "gpu_shared")
    special = next((mode for mode in modes if any(name.startswith(mode) for name in names)), None)
    launching = {trace.lines[line].name for line in distinct(trace.line_of[calls]).tolist()}
    is_global = any(name.startswith("tf_Compute") for name in launching)
    return special or ("global" if is_global else None)


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
