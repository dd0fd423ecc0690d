"""Devices: what they have, and how they spend the capture. Times in microseconds."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import event, host, host_of, line, plane, trace_of

from tfperf.sections.kernels.devices import any_has, compute_capability, has_tensor_cores
from tfperf.trace.host_trace import Plane

US = 1_000_000


def gpu(stats: dict[str, int | float | str]) -> Plane:
    return Plane(id=0, name="/device:GPU:0", kind="gpu", stats=stats, event_count=1)


@pytest.mark.parametrize(
    ("stats", "capability", "has"),
    [
        ({"compute_cap_major": 6, "compute_cap_minor": 1}, (6, 1), False),
        ({"compute_cap_major": 9, "compute_cap_minor": 0}, (9, 0), True),
        ({"compute_cap_major": 9, "compute_cap_minor": 0, "device_vendor": "Nvidia"}, (9, 0), True),
        ({"compute_cap_major": 9, "compute_cap_minor": 4, "device_vendor": "AMD"}, (0, 0), True),
        ({"compute_cap_major": 9, "compute_cap_minor": 0, "device_vendor": "AMD"}, (0, 0), None),
        ({"compute_cap_major": "x", "compute_cap_minor": 2.5}, (0, 0), None),
        ({}, (0, 0), None),
    ],
)
def test_which_devices_have_tensor_cores(
    stats: dict[str, int | float | str], capability: tuple[int, int], has: bool | None
) -> None:
    assert compute_capability(gpu(stats)) == capability
    assert has_tensor_cores(gpu(stats)) is has


@pytest.mark.parametrize(
    ("answers", "answer"), [([], None), ([False], False), ([False, None], None), ([None, True, False], True)]
)
def test_one_device_with_tensor_cores_is_enough(answers: list[bool | None], answer: bool | None) -> None:
    assert any_has(answers) is answer


def test_compute_copies_alone_and_idle_are_the_capture(tmp_path: Path) -> None:
    """Kernels 0-20 and 10-40 on two streams, a copy 30-60, the host until 100."""
    streams = [
        line("Stream #1", event("a", 0, 20), id=1),
        line("Stream #2", event("b", 10, 30), id=2),
        line("Stream #3", event("MemcpyH2D", 30, 30), id=3),
    ]
    trace = trace_of(tmp_path, host(event("f", 0, 100)), plane("/device:GPU:0", *streams))
    (device,) = host_of(trace, "kernels")["kernels"].devices
    assert (device.host, device.device) == (trace.host, "GPU:0")
    assert (device.compute_ps, device.copies_alone_ps, device.idle_ps) == (40 * US, 20 * US, 40 * US)
    assert (device.wall_ps, device.kernel_sum_ps, device.copies_ps) == (100 * US, 50 * US, 30 * US)
