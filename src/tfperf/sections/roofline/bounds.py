"""What bounds work on a device: the roofline model, as arithmetic.

Work does `flops` operations and moves `bytes` to or from the device's memory in some time. Its intensity is flops per
byte. Below the ridge point (peak / bandwidth) memory is what bounds it, above it arithmetic. What reaches neither bound
waits for something else: launches, latency, too few blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.arrays import MOST
from tfperf.trace.device.device_peaks import DevicePeaks, Precision

Bound = Literal["compute", "memory", "latency"]
LOW_PERCENT = 30.0
"""Work that reaches less than this of both peaks is bound by neither."""


class Work(Struct, frozen=True, kw_only=True):
    """What some work amounts to: operations, bytes and picoseconds, all summed over its runs. None: unknown."""

    flops: float | None
    bytes: float | None
    time_ps: int
    precision: Precision | None
    """The numbers that it computes with, as the device has a peak for them; None: it has none, or they are unknown."""
    is_least: bool = False
    """Whether it may be more: then nothing tells what bounds it."""

    @property
    def intensity(self) -> float | None:
        """Return operations per byte; None where either is unknown, or nothing is moved."""
        return self.flops / self.bytes if self.flops is not None and self.bytes else None

    @property
    def tflops_per_second(self) -> float | None:
        """Return 10^12 operations per second; None where unknown, or where it takes no time."""
        return _rate(self.flops, self.time_ps)

    @property
    def gb_per_second(self) -> float | None:
        """Return 10^9 bytes per second; None where unknown, or where it takes no time."""
        rate = _rate(self.bytes, self.time_ps)
        return None if rate is None else 1000.0 * rate


class Judged(Struct, frozen=True, kw_only=True):
    """How near work comes to the peaks of its device; None: unknown."""

    bound: Bound | None = None
    compute_percent: float | None = None
    """Share of the peak for its numbers. More than 100 means that the peak or the count is wrong, and stays."""
    memory_percent: float | None = None
    """Share of the bandwidth. Bytes are an upper bound, so it can be more than 100 where caches serve."""
    roofline_percent: float | None = None
    """Share of what its intensity allows."""


def ridge_point(peaks: DevicePeaks, precision: Precision | None) -> float | None:
    """Return the intensity (flop/byte) from which arithmetic is what bounds; None where a peak is unknown."""
    peak, bandwidth = peaks.flops_per_second(precision), peaks.bytes_per_second
    return None if peak is None or bandwidth is None else peak / bandwidth


def attainable_flops(peaks: DevicePeaks, precision: Precision | None, intensity: float) -> float | None:
    """Return the most operations per second at an intensity; None where a peak is unknown."""
    peak, bandwidth = peaks.flops_per_second(precision), peaks.bytes_per_second
    return None if peak is None or bandwidth is None else min(peak, intensity * bandwidth)


def judge(work: Work, peaks: DevicePeaks) -> Judged:
    """Return what bounds work, and which share of the peaks it reaches."""
    flops, moved = _per_second(work.flops, work.time_ps), _per_second(work.bytes, work.time_ps)
    fp32 = peaks.flops_per_second("fp32")
    is_faster = flops is not None and fp32 is not None and flops > fp32
    if work.precision == "fp32" and "tf32" in peaks.teraflops and is_faster:
        work = replace(work, precision="tf32")  # what is faster than the peak in 32 bit uses tensor cores
    compute = _percent(flops, peaks.flops_per_second(work.precision))
    memory = _percent(moved, peaks.bytes_per_second)
    intensity = work.intensity
    possible = None if intensity is None else attainable_flops(peaks, work.precision, intensity)
    # Without operations no peak of arithmetic is needed.
    efficiency = memory if work.flops == 0 else _percent(flops, possible)
    return Judged(
        bound=_bound(work, peaks, compute, memory),
        compute_percent=compute,
        memory_percent=memory,
        roofline_percent=efficiency,
    )


def _bound(work: Work, peaks: DevicePeaks, compute: float | None, memory: float | None) -> Bound | None:
    intensity, ridge = work.intensity, ridge_point(peaks, work.precision)
    is_judged = not work.flops or not (compute is None or intensity is None or ridge is None)
    if work.is_least or memory is None or work.flops is None or not is_judged:
        return None
    if max(compute or 0.0, memory) < LOW_PERCENT:
        return "latency"
    is_below = intensity is not None and ridge is not None and intensity < ridge
    return "memory" if not work.flops or is_below else "compute"


def _per_second(amount: float | None, time_ps: int) -> float | None:
    return None if amount is None or not 0 < time_ps < MOST else amount / time_ps * 1e12


def _rate(amount: float | None, time_ps: int) -> float | None:
    return None if amount is None or not 0 < time_ps < MOST else amount / time_ps


def _percent(rate: float | None, peak: float | None) -> float | None:
    return None if rate is None or not peak else 100.0 * rate / peak


def time_by_bound(times: Mapping[Bound | None, int]) -> dict[str, float]:
    """Return which share of the time (percent) each bound has, `unknown` for what could not be judged."""
    whole = sum(times.values())
    return {bound or "unknown": 100.0 * time_ps / whole for bound, time_ps in times.items()} if whole else {}
