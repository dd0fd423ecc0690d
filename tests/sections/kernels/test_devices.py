"""Devices: what they have, how they spend the capture, and their copies. Times in microseconds."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import Event, event, host, host_of, line, plane, ref, trace_of
from builders import Plane as MadePlane

from tfperf.sections.kernels.analysis import Copies, any_has, compute_capability, has_tensor_cores
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


# --- copies by device and kind ---


def copying_gpu(*events: Event, number: int = 0) -> MadePlane:
    return plane(f"/device:GPU:{number}", line("Stream #1", *events))


def copies_of(tmp_path: Path, *planes: MadePlane) -> tuple[Copies, ...]:
    copies: tuple[Copies, ...] = host_of(trace_of(tmp_path, *planes), "kernels")["kernels"].copies
    return copies


def test_copies_by_device_and_kind(tmp_path: Path) -> None:
    """10 us for 50 000 bytes and 10 us for 30 000: 4 GB/s."""
    pageable = "kind_src:pageable kind_dst:device size:{} dest:0 async:1"
    first = copying_gpu(
        event("MemcpyH2D", 0, 10, memcpy_details=ref(pageable.format(50000))),
        event("MemcpyH2D", 10, 10, memcpy_details=ref(pageable.format(30000))),
        event("MemcpyD2H", 20, 4, memcpy_details=ref("kind_src:device kind_dst:pinned size:8000 dest:0 async:1")),
        event("MemcpyP2P", 30, 4, memcpy_details=ref("size:16000 dest:1 async:1")),
        event("Memset", 40, 2, memset_details=ref("kind:device num_bytes:4000 async:1")),
    )
    second = copying_gpu(
        event("MemcpyD2D", 0, 8),
        event("MemcpyD2D", 10, 2, memcpy_details=ref("size:2000")),
        event("MemcpyWhat", 20, 3, memcpy_details=ref("kind:Unknown size:0")),
        number=1,
    )
    rows = copies_of(tmp_path, first, second)
    assert [(row.device, row.kind, row.count, row.total_bytes, row.gb_per_second, row.memory) for row in rows] == [
        ("GPU:0", "H2D", 2, 80000, 4.0, "pageable"),
        ("GPU:0", "D2H", 1, 8000, 2.0, "pinned"),
        ("GPU:0", "P2P", 1, 16000, 4.0, None),
        ("GPU:0", "Memset", 1, 4000, 2.0, None),
        ("GPU:1", "D2D", 2, None, 1.0, None),
        ("GPU:1", "Unknown", 1, None, None, None),
    ]
    assert [row.mean_bytes for row in rows] == [40000, 8000, 16000, 4000, 2000, None]


@pytest.mark.parametrize(
    ("name", "details", "kind"),
    [
        ("MemcpyD2D", "kind:P2P size:8", "P2P"),
        ("MemcpyD2D", "kind:D2D size:8", "D2D"),
        ("MemcpyHtoH", "size:8", "H2H"),
        ("hipMemset", "num_bytes:8", "Memset"),
        ("Memcpy", "size:8", "Unknown"),
    ],
)
def test_names_and_details_tell_the_kind(tmp_path: Path, name: str, details: str, kind: str) -> None:
    (copies,) = copies_of(tmp_path, copying_gpu(event(name, 0, 5, memcpy_details=ref(details))))
    assert copies.kind == kind
