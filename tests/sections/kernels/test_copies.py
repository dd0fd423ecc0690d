"""Copies by device and kind. Times in microseconds."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import Event, Plane, event, host_of, line, plane, ref, trace_of

from tfperf.sections.kernels.copies import Copies


def gpu(*events: Event, number: int = 0) -> Plane:
    return plane(f"/device:GPU:{number}", line("Stream #1", *events))


def copies_of(tmp_path: Path, *planes: Plane) -> tuple[Copies, ...]:
    copies: tuple[Copies, ...] = host_of(trace_of(tmp_path, *planes), "kernels")["kernels"].copies
    return copies


def test_copies_by_device_and_kind(tmp_path: Path) -> None:
    """10 us for 50 000 bytes and 10 us for 30 000: 4 GB/s."""
    pageable = "kind_src:pageable kind_dst:device size:{} dest:0 async:1"
    first = gpu(
        event("MemcpyH2D", 0, 10, memcpy_details=ref(pageable.format(50000))),
        event("MemcpyH2D", 10, 10, memcpy_details=ref(pageable.format(30000))),
        event("MemcpyD2H", 20, 4, memcpy_details=ref("kind_src:device kind_dst:pinned size:8000 dest:0 async:1")),
        event("MemcpyP2P", 30, 4, memcpy_details=ref("size:16000 dest:1 async:1")),
        event("Memset", 40, 2, memset_details=ref("kind:device num_bytes:4000 async:1")),
    )
    second = gpu(
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
    (copies,) = copies_of(tmp_path, gpu(event(name, 0, 5, memcpy_details=ref(details))))
    assert copies.kind == kind
