"""The roofline model: bounds of work on a device.

Work performs `flops` operations and moves `bytes` to or from device memory in some time. Its intensity is flops per
byte. Below the ridge point (peak / bandwidth) work is memory-bound, above it compute-bound. Work that reaches neither
bound is latency-bound: it waits for launches, for latency, or has too few blocks.
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
"""Work that reaches less than this share of both peaks is latency-bound."""


class Work(Struct, frozen=True, kw_only=True):
    """Operations, bytes and picoseconds of work, summed over its runs; None if unknown."""

    flops: float | None
    bytes: float | None
    time_ps: int
    precision: Precision | None
    """Number format with a peak on the device; None if there is no peak or the format is unknown."""
    is_least: bool = False
    """Whether the work may be more, so that the bound is unknown."""

    @property
    def intensity(self) -> float | None:
        """Return operations per byte; None if either is unknown, or no bytes are moved."""
        return self.flops / self.bytes if self.flops is not None and self.bytes else None

    @property
    def tflops_per_second(self) -> float | None:
        """Return 10^12 operations per second; None if unknown or without time."""
        return _rate(self.flops, self.time_ps)

    @property
    def gb_per_second(self) -> float | None:
        """Return 10^9 bytes per second; None if unknown or without time."""
        rate = _rate(self.bytes, self.time_ps)
        return None if rate is None else 1000.0 * rate


class Judged(Struct, frozen=True, kw_only=True):
    """Shares of the device peaks that work reaches; None if unknown."""

    bound: Bound | None = None
    compute_percent: float | None = None
    """Share of the peak for its number format. Values above 100 mean a wrong peak or count, and are kept."""
    memory_percent: float | None = None
    """Share of the bandwidth. Bytes are an upper bound, so values above 100 are possible with caches."""
    roofline_percent: float | None = None
    """Share of the rate that its intensity permits."""


def ridge_point(peaks: DevicePeaks, precision: Precision | None) -> float | None:
    """Return the intensity (flop/byte) above which work is compute-bound; None if a peak is unknown."""
    peak, bandwidth = peaks.flops_per_second(precision), peaks.bytes_per_second
    return None if peak is None or bandwidth is None else peak / bandwidth


def attainable_flops(peaks: DevicePeaks, precision: Precision | None, intensity: float) -> float | None:
    """Return the maximum operations per second at an intensity; None if a peak is unknown."""
    peak, bandwidth = peaks.flops_per_second(precision), peaks.bytes_per_second
    return None if peak is None or bandwidth is None else min(peak, intensity * bandwidth)


def judge(work: Work, peaks: DevicePeaks) -> Judged:
    """Return the bound of work, and its shares of the peaks."""
    flops, moved = _per_second(work.flops, work.time_ps), _per_second(work.bytes, work.time_ps)
    fp32 = peaks.flops_per_second("fp32")
    is_faster = flops is not None and fp32 is not None and flops > fp32
    if work.precision == "fp32" and "tf32" in peaks.teraflops and is_faster:
        work = replace(work, precision="tf32")  # faster than the 32-bit peak, so on tensor cores
    compute = _percent(flops, peaks.flops_per_second(work.precision))
    memory = _percent(moved, peaks.bytes_per_second)
    intensity = work.intensity
    possible = None if intensity is None else attainable_flops(peaks, work.precision, intensity)
    # Without operations, no compute peak is required.
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
    """Return the share of time per bound in percent, `unknown` for work without a known bound."""
    whole = sum(times.values())
    return {bound or "unknown": 100.0 * time_ps / whole for bound, time_ps in times.items()} if whole else {}
