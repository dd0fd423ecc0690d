from __future__ import annotations

from typing import Any

import pytest

from tfperf.sections.roofline.bounds import Work, attainable_flops, judge, ridge_point, time_by_bound
from tfperf.trace.device.device_peaks import DevicePeaks

PEAKS = DevicePeaks(teraflops={"bf16": 100.0, "fp32": 10.0}, memory_gb_per_second=1000.0)
SECOND = 10**12


def test_the_ridge_is_peak_over_bandwidth() -> None:
    assert ridge_point(PEAKS, "bf16") == 100  # 100e12 / 1000e9
    assert ridge_point(PEAKS, "fp32") == 10
    assert ridge_point(PEAKS, "fp8") is None
    assert ridge_point(DevicePeaks(teraflops={"bf16": 1.0}), "bf16") is None


def test_below_the_ridge_memory_sets_what_can_be_attained() -> None:
    assert attainable_flops(PEAKS, "bf16", 20.0) == 20e12  # 20 flop/byte x 1e12 byte/s
    assert attainable_flops(PEAKS, "bf16", 500.0) == 100e12
    assert attainable_flops(PEAKS, None, 500.0) is None


def test_a_gemm_of_the_mi300x() -> None:
    mi300x = DevicePeaks(teraflops={"bf16": 1307.4}, memory_gb_per_second=5300.0)
    # 2 x 4096^3 operations and 3 matrices of 2 bytes in 149.76 us
    work = Work(flops=2.0 * 4096**3, bytes=3 * 2.0 * 4096**2, time_ps=149_760_000, precision="bf16")
    assert work.intensity == pytest.approx(1365.3, abs=0.1)
    assert work.tflops_per_second == pytest.approx(917.7, abs=0.1)
    assert work.gb_per_second == pytest.approx(672.2, abs=0.1)
    assert ridge_point(mi300x, "bf16") == pytest.approx(246.7, abs=0.1)
    judged = judge(work, mi300x)
    assert judged.bound == "compute"
    assert judged.compute_percent == pytest.approx(70.2, abs=0.1)
    assert judged.roofline_percent == pytest.approx(70.2, abs=0.1)
    assert judged.memory_percent == pytest.approx(12.7, abs=0.1)


@pytest.mark.parametrize(
    ("flops", "bytes", "precision", "expected"),
    [
        pytest.param(5e12, 0.5e12, "bf16", ("memory", 5, 50, 50), id="10 flop/byte"),
        pytest.param(0, 0.6e12, None, ("memory", None, 60, 60), id="no operations need no peak of arithmetic"),
        pytest.param(1e12, 2e12, "fp32", ("memory", 10, 200, 200), id="more than the peak stays"),
        pytest.param(29e12, 0.01e12, "bf16", ("latency", 29, 1, 29), id="far from both peaks"),
        pytest.param(30e12, 0.01e12, "bf16", ("compute", 30, 1, 30), id="near enough to a peak"),
    ],
)
def test_the_nearest_peak_is_the_bound(
    flops: float, bytes: float, precision: Any, expected: tuple[str, float | None, float, float]
) -> None:
    judged = judge(Work(flops=flops, bytes=bytes, time_ps=SECOND, precision=precision), PEAKS)
    shares = (judged.compute_percent, judged.memory_percent, judged.roofline_percent)
    assert (judged.bound, *(share and round(share, 6) for share in shares)) == expected


def test_what_is_faster_than_32_bit_can_be_is_tf32() -> None:
    ampere = DevicePeaks(teraflops={"fp32": 19.5, "tf32": 156.0}, memory_gb_per_second=2039.0)
    work = Work(flops=78e12, bytes=0.01e12, time_ps=SECOND, precision="fp32")
    assert judge(work, ampere).compute_percent == 50
    assert judge(work, PEAKS).compute_percent == 780, "no peak is known that fits"


@pytest.mark.parametrize(
    "work",
    [
        Work(flops=None, bytes=1e12, time_ps=SECOND, precision="bf16"),
        Work(flops=1e12, bytes=None, time_ps=SECOND, precision="bf16"),
        Work(flops=1e12, bytes=0, time_ps=SECOND, precision="bf16"),
        Work(flops=1e12, bytes=1e12, time_ps=SECOND, precision="fp8"),
        Work(flops=1e12, bytes=1e12, time_ps=SECOND, precision=None),
        Work(flops=1e12, bytes=1e12, time_ps=0, precision="bf16"),
    ],
)
def test_what_is_unknown_is_never_bound_by_memory(work: Work) -> None:
    assert judge(work, PEAKS).bound is None


def test_without_peaks_nothing_is_judged() -> None:
    judged = judge(Work(flops=1e12, bytes=1e12, time_ps=SECOND, precision="fp32"), DevicePeaks())
    assert (judged.bound, judged.compute_percent, judged.memory_percent, judged.roofline_percent) == (None,) * 4


def test_shares_of_time() -> None:
    assert time_by_bound({"memory": 60, "compute": 30, None: 10}) == {"memory": 60, "compute": 30, "unknown": 10}
    assert time_by_bound({}) == {}
