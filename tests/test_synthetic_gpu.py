"""The synthetic profile of two GPUs holds the numbers that its docstring states."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import pytest
from builders import logdir_of
from synthetic_gpu import synthetic_gpu

import tfperf


@pytest.fixture(scope="module")
def analysis(tmp_path_factory: pytest.TempPathFactory) -> tfperf.Analysis:
    return tfperf.load(logdir_of(tmp_path_factory.mktemp("gpu"), synthetic=synthetic_gpu()))


def test_its_bytes_are_the_same_in_every_process() -> None:
    script = "import hashlib, synthetic_gpu; print(hashlib.sha256(synthetic_gpu.synthetic_gpu()).hexdigest())"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "1"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == hashlib.sha256(synthetic_gpu()).hexdigest()


def test_categories_of_each_step(analysis: tfperf.Analysis) -> None:
    table = analysis["steps"].table
    assert list(table.step_name) == [f"train {n}" for n in range(6)]
    assert list(table.averaged) == [True] * 6
    assert list(1000 * table.step_time_ms) == pytest.approx([1000, 1000, 1000, 1100, 1000, 1000])
    assert list(1000 * table.device_compute_ms) == pytest.approx([420, 420, 420, 520, 420, 420])
    same = {
        "device_collectives_ms": 80,
        "output_ms": 40,
        "input_wait_ms": 200,
        "host_to_device_ms": 80,
        "kernel_launch_ms": 10,
        "host_compute_ms": 50,
        "all_others_ms": 120,
    }
    assert {key: list(1000 * table[key]) for key in same} == {key: pytest.approx([us] * 6) for key, us in same.items()}


def test_where_the_time_of_each_device_goes(analysis: tfperf.Analysis) -> None:
    rows = [
        (use.device, use.compute_ps / 1e6, use.copies_ps / 1e6, use.idle_ps / 1e6, use.wall_ps / 1e6)
        for use in analysis["kernels"].devices
    ]
    assert rows == [("GPU:0", 3100, 720, 2280, 6100), ("GPU:1", 2980, 600, 2520, 6100)]


def test_what_each_device_waits_for(analysis: tfperf.Analysis) -> None:
    causes = {"input": 200, "launch": 20, "copy": 10, "host_compute": 30, "python": 100}
    for device, synchronize in zip(analysis["idle"].devices, (20, 60), strict=True):
        waited_us = {cause: (ps / 1e6).tolist() for cause, ps in device.time_ps.items() if ps.any()}
        assert waited_us == {cause: [us] * 6 for cause, us in {**causes, "synchronise": synchronize}.items()}


def test_the_straggling_kernel_is_the_longest_of_its_row(analysis: tfperf.Analysis) -> None:
    table = analysis["kernels"].table
    rows = [tuple(row) for row in table[["op_name", "occurrences", "total_us", "min_us", "max_us"]].to_numpy()]
    assert rows == [
        ("model/dense/MatMul", 12, 3700, 300, 400),
        ("model/dense/Relu", 12, 1200, 100, 100),
        ("Adam/CollectiveReduceV2", 12, 1180, 80, 200),
    ]
    assert list(table.grid_dim) == ["64,2,1", "128,1,1", "24,1,1"]
    assert list(table.shared_bytes) == [16384, 0, 81920]


def test_copies_by_device_and_kind(analysis: tfperf.Analysis) -> None:
    rows = [
        (copy.device, copy.kind, copy.memory, copy.count, copy.total_bytes, copy.gb_per_second)
        for copy in analysis["kernels"].copies
    ]
    assert rows == [
        ("GPU:0", "H2D", "pinned", 6, 4_800_000, 10.0),
        ("GPU:0", "D2H", "pageable", 6, 240_000, 1.0),
        ("GPU:1", "H2D", "pageable", 6, 4_800_000, 8.0),
    ]


def test_peaks_of_the_allocators(analysis: tfperf.Analysis) -> None:
    rows = [
        (allocator.name, allocator.peak_bytes, allocator.peak_percent, allocator.start_bytes)
        for allocator in analysis["memory"].allocators
    ]
    assert rows == [("GPU_1_bfc", 4_300_000, 43.0, 1_000_000), ("GPU_0_bfc", 3_800_000, 38.0, 1_000_000)]


def test_the_pipeline_waits_for_its_map(analysis: tfperf.Analysis) -> None:
    pipeline = analysis["tfdata"].main
    assert pipeline is not None
    waited_us = {stage.name: stage.blocked_ps / 1e6 for stage in pipeline.stages}
    assert waited_us == {"Map": 960, "BatchV2": 240, "Root": 0}
