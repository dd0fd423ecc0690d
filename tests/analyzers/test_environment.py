from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import event, host, line, plane, trace_of
from tfperf.analyzers import environment

from tfperf.trace.find_steps import find_steps


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
)  # fmt: skip
def test_device_models(tmp_path: Path, stats: dict[str, Any], model: str) -> None:
    gpu = plane(
        "/device:GPU:0", line("Stream #1", event("k", 0, 5), id=1), stats={**stats, "core_count": 48, "memory_size": 7}
    )
    found = environment.analyze(trace_of(tmp_path, gpu, plane("/device:GPU:1")))
    assert (found.device_type, found.device_model, found.device_count, found.idle_devices) == ("GPU", model, 1, 1)
    assert (found.device_cores, found.device_memory_bytes, found.planes) == (48, 7, 2)


def test_a_cpu_job_says_what_it_cannot_tell(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, host(event("A:A", 0, 5), event("bad", 7, -1)))
    assert environment.analyze(trace).device_type == "CPU"
    said = " ".join(environment.gaps(trace, find_steps(trace)))
    for words in ("no step marker", "no device is in the trace", "1 event(s) with impossible times"):
        assert words in said


def test_empty_planes_and_files_are_named(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, plane("/host:CPU"), plane("/device:GPU:0"))
    said = " ".join(environment.gaps(trace, find_steps(trace)))
    assert "the file holds no events" in said
    assert "/device:GPU:0" in said
