"""Calls of the CUDA and HIP APIs: their kinds and labels, and which events are calls."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import event, gpu, line, plane, trace_of

from tfperf.trace.host.api_calls import api_calls, api_kind, api_label


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cuLaunchKernel", "launch"),
        ("hipExtModuleLaunchKernel", "launch"),
        ("cuGraphLaunch (CudaGraph:2)", "graph launch"),
        ("cuGraphInstantiateWithFlags (CudaGraph:2)", "build graph"),
        ("cuLaunchHostFunc", "host function"),
        ("hipMemcpyDtoDAsync", "copy"),
        ("cuMemcpyDtoHAsync_v2", "copy"),
        ("cuMemcpyDtoH_v2", "synchronize"),
        ("hipMemcpyHtoD", "copy"),
        ("cuMemsetD32Async", "fill"),
        ("cuStreamSynchronize", "synchronize"),
        ("hipDeviceSynchronize", "synchronize"),
        ("cudaEventSynchronize", "synchronize"),
        ("cuMemAlloc_v2", "allocate"),
        ("cuMemHostAlloc", "allocate"),
        ("hipMalloc", "allocate"),
        ("cuMemFreeHost", "free"),
        ("hipFree", "free"),
        ("cuModuleLoadData", "load code"),
        ("hipStreamWaitEvent", "other"),
        ("custom_kernel", None),
        ("MemcpyH2D", None),
        ("curious", None),
    ],
)
def test_kinds(name: str, kind: str | None) -> None:
    assert api_kind(name) == kind


def test_calls_are_api_functions_and_events_that_launch_device_work(tmp_path: Path) -> None:
    """CUPTI names a launch after its kernel; the same name without an id is not a call."""
    main = line(
        "python/1",
        event("fusion_1", 0, 5, correlation_id=1),
        event("fusion_1", 10, 5),
        event("MemcpyH2D", 20, 5, correlation_id=2),
        event("cuGraphLaunch (CudaGraph:2)", 30, 5, correlation_id=3),
        event("cuStreamSynchronize", 40, 5),
    )
    work = gpu(*(event("fusion_1", 50 + at, 1, correlation_id=at) for at in (1, 2, 3)))
    trace = trace_of(tmp_path, plane("/host:CPU", main), work)
    calls = api_calls(trace)
    assert [api_label(trace.names[name]) for name in trace.name[calls.rows].tolist()] == [
        "(kernel launch)",
        "MemcpyH2D",
        "cuGraphLaunch",
        "cuStreamSynchronize",
    ]
    assert {kind: len(calls.of(kind)) for kind in ("launch", "copy", "graph launch", "synchronize", "free")} == {
        "launch": 1,
        "copy": 1,
        "graph launch": 1,
        "synchronize": 1,
        "free": 0,
    }
