"""What the job ran on, from the planes of a trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import event, gpu, host, host_of, plane, result_of, trace_of

from tfperf.formats.wire.capture_plane import CAPTURE_PLANE


@pytest.mark.parametrize(
    ("stats", "model"),
    [
        ({"compute_cap_major": 7, "compute_cap_minor": 5}, "Nvidia GPU (Turing, compute capability 7.5)"),
        ({"compute_cap_major": 7, "compute_cap_minor": 0}, "Nvidia GPU (Volta, compute capability 7.0)"),
        ({"compute_cap_major": 8, "compute_cap_minor": 9}, "Nvidia GPU (Ada Lovelace, compute capability 8.9)"),
        ({"compute_cap_major": 9, "compute_cap_minor": 4, "device_vendor": "AMD"}, "AMD GPU"),
        ({"gpu_device_name": "H200"}, "H200"),
        ({"device_type_string": "TPU v6 Lite"}, "TPU v6e"),
        ({"device_type_string": "TPU v99"}, "TPU v99"),
        ({}, ""),
    ],
)
def test_device_models(tmp_path: Path, stats: dict[str, Any], model: str) -> None:
    working = gpu(event("k", 0, 5), **stats, core_count=48, memory_size=7)
    found = result_of(tmp_path, "environment", working, plane("/device:GPU:1"))
    assert (found.device_type, found.device_model, found.device_count, found.idle_devices) == ("GPU", model, 1, 1)
    assert (found.device_cores, found.device_memory_bytes) == (48, 7)


def test_a_job_without_a_device_runs_on_the_cpu(tmp_path: Path) -> None:
    assert result_of(tmp_path, "environment", host(event("A:A", 0, 5))).device_type == "CPU"


@pytest.mark.parametrize(
    ("events", "name", "varies_us", "shown"),
    [
        (300, "inner", 0, 20.0),  # 320 events of up to 1 us in 1 ms: a third of the time
        (100, "inner", 0, 0.0),  # 12 % of the time, less than the 17 % by which steps are longer
        (100, "$inner", 0, 20.0),  # frames of Python take up to 3 us
        (0, "inner", 0, 0.0),
        (300, "inner", 60, 0.0),  # steps of 40 to 160 us
    ],
)
def test_overhead_is_what_recording_can_cost_and_noise_cannot_be(
    tmp_path: Path, events: int, name: str, varies_us: float, shown: float
) -> None:
    """Steps of 100 us that are 20 % longer than before the capture, as it says."""
    made = []
    for number in range(10):
        start = 100 * number + (varies_us if number % 4 == 1 else 0) - (varies_us if number % 4 == 2 else 0)
        made += [event("train", start, 100 * (number + 1) - start, step_num=number), event("MatMul:MatMul", start, 1)]
    made += [event(name, 3 * number, 1) for number in range(events)]
    job = host_of(trace_of(tmp_path, host(*made), plane(CAPTURE_PLANE, stats={"overhead_percent": 20.0})), "steps")
    job.analyze(["environment"])
    assert job["environment"].overhead_beyond_noise(job["steps"].steps) == shown
