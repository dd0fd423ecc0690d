"""For which part of a step accelerators compute."""

from __future__ import annotations

from pathlib import Path

from tfprof_builders import CPU, GPU, STREAMS, model, node, ran, run_metadata

from tfperf.models.tfprof.advise import UsedDevice, used_devices

OTHER = GPU.replace("GPU:0", "GPU:1")
NODES = [node(name, "A") for name in "abc"]


def test_kernels_that_overlap_add_up_for_utilization_and_not_for_busy(tmp_path: Path) -> None:
    records = {
        GPU: [ran("a", 100, 5), ran("b", 110, 5)],
        STREAMS: [ran("a", 120, 60), ran("b", 140, 60)],
        CPU: [ran("c", 1, 900)],
    }
    (used,) = used_devices(model(tmp_path, NODES, {3: run_metadata(records)}))
    assert used == UsedDevice(
        device=GPU.lower(), step=3, kernel_ms=0.12, step_ms=0.1, utilization_percent=120.0, busy_percent=80.0
    )


def test_each_device_has_the_last_step_with_kernels_of_it(tmp_path: Path) -> None:
    both = {GPU: [ran("a", 10, 5)], STREAMS: [ran("a", 10, 10), ran("b", 10, 30)], OTHER: [ran("b", 10, 5)]}
    one = {GPU: [ran("a", 10, 5)], STREAMS: [ran("a", 20, 10)]}
    devices = used_devices(model(tmp_path, NODES, {0: run_metadata(both), 1: run_metadata(one)}))
    assert [(each.device[-5:], each.step) for each in devices] == [("gpu:0", 1), ("gpu:1", 0)]
    assert [each.utilization_percent for each in devices] == [50.0, 100.0]


def test_devices_without_kernels_are_left_out(tmp_path: Path) -> None:
    assert used_devices(model(tmp_path, NODES, {0: run_metadata({GPU: [ran("a", 1, 5)], CPU: [ran("b", 1, 5)]})})) == []
    assert used_devices(model(tmp_path, NODES)) == []
