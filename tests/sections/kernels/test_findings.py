"""When there is advice on kernels, and when not. Times in microseconds."""

from __future__ import annotations

from pathlib import Path

from builders import Event, Plane, event, host, host_of, line, plane, ref, trace_of, u64

from tfperf.report.model import Finding
from tfperf.sections.kernels.section import kernel_findings

VOLTA = {"compute_cap_major": 7, "compute_cap_minor": 0}
PASCAL = {"compute_cap_major": 6, "compute_cap_minor": 1}


def gpu(*events: Event, stats: dict[str, int] = VOLTA) -> Plane:
    return plane("/device:GPU:0", line("Stream #1", *events), stats=stats)


def advice(tmp_path: Path, *planes: Plane) -> dict[str, Finding]:
    """The advice by its codes."""
    return {
        finding.code: finding for finding in kernel_findings(host_of(trace_of(tmp_path, *planes), "kernels")["kernels"])
    }


def test_without_device_there_is_none(tmp_path: Path) -> None:
    assert advice(tmp_path, host(event("f", 0, 10))) == {}


def test_small_kernels_that_find_the_stream_idle(tmp_path: Path) -> None:
    calls = host(*(event("cuLaunch", 20 * at, 5, correlation_id=u64(at + 1)) for at in range(10)))
    small = [event("k", 20 * at + 8, 4, correlation_id=u64(at + 1)) for at in range(10)]
    found = advice(tmp_path, calls, gpu(*small))
    assert "100.0% of its kernels take less than 10 us, and 100.0% start on" in found["small_kernels"].text
    queued = [event("k", 300 + 4 * at, 4, correlation_id=u64(at + 1)) for at in range(10)]
    assert "small_kernels" not in advice(tmp_path, calls, gpu(event("big", 0, 300), *queued))


def test_the_device_with_the_most_kernels_is_judged(tmp_path: Path) -> None:
    """GPU 0 has one small kernel; GPU 1 has two of 50 us."""
    calls = host(*(event("cuLaunch", 100 * at, 5, correlation_id=u64(at + 1)) for at in range(3)))
    small = gpu(event("k", 8, 4, correlation_id=u64(1)))
    large = [event("k", 100 * at + 8, 50, correlation_id=u64(at + 1)) for at in (1, 2)]
    assert "small_kernels" not in advice(tmp_path, calls, small, plane("/device:GPU:1", line("Stream #1", *large)))


def test_products_without_tensor_cores(tmp_path: Path) -> None:
    product = event("volta_sgemm_128x64_nt", 0, 9, tf_op=ref("a/b:MatMul"))
    other = event("relu", 10, 81, tf_op=ref("c:Relu"))
    assert "10.0% of kernel time is in ops" in advice(tmp_path, gpu(product, other))["no_tensor_cores"].text
    assert "no_tensor_cores" not in advice(tmp_path, gpu(product, other, event("relu", 91, 9)))
    assert "no_tensor_cores" not in advice(tmp_path, gpu(product, other, stats=PASCAL))
    assert "no_tensor_cores" not in advice(tmp_path, gpu(product, other, stats={}))


def test_slow_copies_to_the_device(tmp_path: Path) -> None:
    """2 MiB in 1 ms is 2.1 GB/s; the same in a tenth of the time is not slow, and small ones are only overhead."""
    large = ref(f"size:{2 << 20} dest:0 async:1")
    slow = advice(tmp_path, gpu(event("MemcpyH2D", 0, 1000, memcpy_details=large), event("k", 1000, 1000)))
    assert next(iter(slow)) == "slow_copies"
    assert "take 50.0% of the capture (2.1 GB/s;" in slow["slow_copies"].text
    fast = gpu(event("MemcpyH2D", 0, 100, memcpy_details=large), event("k", 100, 100))
    assert "slow_copies" not in advice(tmp_path, fast)
    small = gpu(event("MemcpyH2D", 0, 100, memcpy_details=ref("size:4")), event("k", 100, 100))
    assert "slow_copies" not in advice(tmp_path, small)


def test_copies_from_pageable_memory(tmp_path: Path) -> None:
    pageable = ref("kind_src:pageable kind_dst:device size:400000 dest:0 async:1")
    found = advice(tmp_path, gpu(event("MemcpyH2D", 0, 50, memcpy_details=pageable), event("k", 50, 100)))
    assert "8 GB/s, from pageable memory" in found["slow_copies"].text


def test_slow_copies_count_where_no_kernel_runs(tmp_path: Path) -> None:
    large = ref(f"size:{2 << 20} dest:0 async:1")
    assert list(advice(tmp_path, gpu(event("MemcpyH2D", 0, 1000, memcpy_details=large)))) == ["slow_copies"]


def test_a_kernel_that_stands_out(tmp_path: Path) -> None:
    assert list(advice(tmp_path, gpu(event("a", 0, 50), event("b", 50, 50)))) == ["one_kernel"]
    assert advice(tmp_path, gpu(event("a", 0, 40), event("b", 40, 30), event("c", 70, 30))) == {}
