"""Kernels of devices, streams and hosts together. Times in microseconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import Event, Plane, event, host, host_of, line, logdir_of, plane, ref, space, trace_of

from tfperf.sections.kernels.analysis import Kernels, combine
from tfperf.trace.host.activities import Attribution
from tfperf.trace.read import read_host

US = 1_000_000


def kernel(name: str, start: float, duration: float, op: str = "a/MatMul:MatMul") -> Event:
    return event(name, start, duration, tf_op=ref(op))


def gpu(*events: Event, number: int = 0, **stats: Any) -> Plane:
    return plane(f"/device:GPU:{number}", line("Stream #1", *events), stats=stats)


def kernels_of(tmp_path: Path, *planes: Plane, attribution: Attribution = "corrected") -> Kernels:
    trace = trace_of(tmp_path, *planes, links=attribution == "tensorflow")
    kernels: Kernels = host_of(trace, "kernels", attribution=attribution)["kernels"]
    return kernels


def rows(kernels: Kernels, *keys: str) -> list[tuple[Any, ...]]:
    columns = kernels.columns()
    return list(zip(*(columns[key] for key in keys), strict=True))


def test_devices_and_streams_share_rows(tmp_path: Path) -> None:
    """Two streams at the same time, and a second device: 40 us of kernels, ranked by the sum."""
    two_streams = plane(
        "/device:GPU:0",
        line("Stream #1", kernel("a", 0, 10), kernel("b", 20, 15), id=1),
        line("Stream #2", kernel("a", 5, 10), id=2),
        line("TensorFlow Ops", event("x", 0, 90), id=-559038734),
    )
    kernels = kernels_of(tmp_path, two_streams, gpu(kernel("a", 0, 5), number=1))
    assert rows(kernels, "kernel", "occurrences", "total_us") == [("a", 3, 25), ("b", 1, 15)]
    assert kernels.table["percent"].tolist() == pytest.approx([62.5, 37.5])
    first, second = kernels.devices
    assert (first.compute_ps, first.kernel_sum_ps) == (30 * US, 35 * US)  # 0-15 and 20-35
    assert first.kernel_sum_ps + second.kernel_sum_ps == kernels.whole_ps
    assert first.compute_ps + first.copies_alone_ps + first.idle_ps == first.wall_ps


def test_by_name_adds_up_launches(tmp_path: Path) -> None:
    events = kernel("void f<int>(int)", 0, 10), kernel("void f<float>(float)", 10, 20), kernel("g", 30, 10)
    assert kernels_of(tmp_path, gpu(*events)).by_name() == {
        "kernel": ["f", "g"],
        "occurrences": [2, 1],
        "total_ms": [0.03, 0.01],
        "percent": [75.0, 25.0],
    }


def test_ops_that_miss_tensor_cores(tmp_path: Path) -> None:
    """`a` never uses them; `b` does in one of its kernels; of `c` the name does not tell; `d` could not."""
    kernels = kernels_of(
        tmp_path,
        gpu(
            kernel("volta_sgemm_128x64_nt", 0, 30),
            kernel("splitKreduce_kernel", 30, 10),
            kernel("ampere_fp16_s16816gemm_fp16_64x64", 40, 20, op="b:MatMul"),
            kernel("splitKreduce_kernel", 60, 5, op="b:MatMul"),
            kernel("matmul_kernel", 70, 8, op="c:MatMul"),
            kernel("relu_kernel", 80, 7, op="d:Relu"),
            compute_cap_major=8,
            compute_cap_minor=0,
        ),
    )
    assert kernels.missed_tensor_cores() == {"a/MatMul": 40 * US}
    assert kernels.time_by_tensor_cores_ps(True) == 20 * US
    assert kernels.time_by_tensor_cores_ps(None) == 8 * US
    assert kernels.time_by_tensor_cores_ps(False) == 52 * US
    assert kernels.has_tensor_cores is True


def test_hosts_are_merged(tmp_path: Path) -> None:
    """The same kernel on two hosts is one row: counts and times add up, least of least, most of most."""
    events = {"one": [kernel("k", 0, 10), kernel("k", 20, 30)], "two": [kernel("k", 0, 15), kernel("x", 20, 60)]}
    logdir = logdir_of(tmp_path, **{name: space(gpu(*events[name])) for name in events})
    parts = [host_of(read_host(next(logdir.rglob(f"{name}.xplane.pb")), name), "kernels")["kernels"] for name in events]
    kernels = combine(parts)
    keys = ("kernel", "occurrences", "total_us", "min_us", "max_us")
    assert rows(kernels, *keys) == [("x", 1, 60, 60, 60), ("k", 3, 55, 10, 30)]
    assert [(device.host, device.device) for device in kernels.devices] == [("one", "GPU:0"), ("two", "GPU:0")]
    assert [device.host for device in kernels.launches] == ["one", "two"]


def test_the_result_of_a_host_without_device_is_empty(tmp_path: Path) -> None:
    kernels = host_of(trace_of(tmp_path, host(event("f", 0, 10))), "kernels")["kernels"]
    assert (len(kernels), kernels.devices, kernels.has_tensor_cores, kernels.table.empty) == (0, (), None, True)


def test_a_host_without_device_tells_nothing_about_tensor_cores(tmp_path: Path) -> None:
    old = kernels_of(tmp_path, gpu(kernel("k", 0, 10), compute_cap_major=6, compute_cap_minor=1))
    assert old.has_tensor_cores is False
    assert combine([old, kernels_of(tmp_path, host(event("f", 0, 10)))]).has_tensor_cores is False


def test_devices_may_run_no_kernels(tmp_path: Path) -> None:
    kernels = kernels_of(tmp_path, gpu(event("MemcpyH2D", 0, 10)))
    assert (len(kernels), kernels.launches, kernels.has_tensor_cores) == (0, (), None)
    assert all(values == [] for values in kernels.columns().values())
    assert kernels.by_name()["kernel"] == []
    assert len(combine([kernels, kernels])) == 0


@pytest.mark.parametrize("attribution", ["corrected", "tensorflow"])
def test_nonsense_does_no_harm(tmp_path: Path, attribution: Attribution) -> None:
    duration = 12 * 86400 * 1e6  # each lasts 12 days
    first = event("", 0, duration, kernel_details="\0 :::", tf_op=":", memcpy_details="size:" + "9" * 400)
    second = event("Memcpy\x1b[2J", 0, duration, memcpy_details="size:9" + "0" * 17)
    streams = [line(f"Stream #{number}", first, second, id=number) for number in range(1, 13)]
    stats = {"compute_cap_major": "x", "compute_cap_minor": 2.5}
    kernels = kernels_of(tmp_path, plane("/device:GPU:0", *streams, stats=stats), attribution=attribution)
    assert kernels.whole_ps <= 1 << 62
    assert [copies.kind for copies in kernels.copies] == ["Unknown"]
    assert kernels.devices[0].wall_ps == kernels.devices[0].compute_ps
