"""What the job ran on, from the planes of a trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import event, host, host_of, iterator_call, line, plane, trace_of

from tfperf.sections.environment.analysis import HostEnvironment
from tfperf.trace.host_trace import HostTrace
from tfperf.wire.capture_plane import CAPTURE_PLANE


def environment(trace: HostTrace) -> HostEnvironment:
    described: HostEnvironment = host_of(trace, "environment")["environment"]
    return described


@pytest.mark.parametrize(
    ("stats", "model"),
    [
        ({"compute_cap_major": 7, "compute_cap_minor": 5}, "Nvidia GPU (Turing, compute capability 7.5)"),
        ({"compute_cap_major": 7, "compute_cap_minor": 0}, "Nvidia GPU (Volta, compute capability 7.0)"),
        ({"compute_cap_major": 8, "compute_cap_minor": 9}, "Nvidia GPU (Ada Lovelace, compute capability 8.9)"),
        ({"compute_cap_major": 9, "compute_cap_minor": 4, "device_vendor": "AMD"}, "AMD GPU"),
        ({"gpu_device_name": "H200"}, "H200"),
        ({}, ""),
    ],
)
def test_device_models(tmp_path: Path, stats: dict[str, Any], model: str) -> None:
    gpu = plane(
        "/device:GPU:0", line("Stream #1", event("k", 0, 5), id=1), stats={**stats, "core_count": 48, "memory_size": 7}
    )
    described = environment(trace_of(tmp_path, gpu, plane("/device:GPU:1")))
    assert (described.device_type, described.device_model, described.device_count, described.idle_devices) == (
        "GPU",
        model,
        1,
        1,
    )
    assert (described.device_cores, described.device_memory_bytes) == (48, 7)


def test_a_job_without_a_device_runs_on_the_cpu(tmp_path: Path) -> None:
    assert environment(trace_of(tmp_path, host(event("A:A", 0, 5)))).device_type == "CPU"


def test_what_a_capture_adds(tmp_path: Path) -> None:
    stated = plane(CAPTURE_PLANE, stats={"cpu_model": "EPYC", "cpu_affinity": 4, "tensorflow_version": "2.21.0"})
    described = environment(trace_of(tmp_path, host(event("A:A", 0, 5)), stated))
    assert (described.cores, described.facts.cpu_model) == (4.0, "EPYC")
    assert described.facts.tensorflow_version == "2.21.0"


def test_without_it_cores_are_those_that_tf_data_counts(tmp_path: Path) -> None:
    described = environment(trace_of(tmp_path, host(iterator_call("Root", 0, 10, 1, cpu_budget=2))))
    assert (described.cores, described.facts.tensorflow_version) == (2.0, None)
