"""What each device did in the steps that count; times in microseconds, steps of 100 us."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import Event, Plane, event, host, host_of, line, plane, trace_of

from tfperf.sections.idle.analysis import Idle, combine

STEP = host(event("train", 0, 100, step_num=0), event("EagerKernelExecute", 0, 100))


def idle_of(tmp_path: Path, *planes: Plane) -> Idle:
    idle: Idle = host_of(trace_of(tmp_path, *planes), "idle")["idle"]
    return idle


def gpu(number: int, *events: Event) -> Plane:
    return plane(f"/device:GPU:{number}", line("Stream #1", *events))


def all_uses() -> tuple[Plane, ...]:
    """GPU 0 computes for 30 us and copies for 10 in the step, GPU 1 only copies; the others do neither in it."""
    return (
        STEP,
        gpu(0, event("gemm", 10, 30), event("MemcpyH2D", 50, 10)),
        gpu(1, event("MemcpyH2D", 50, 10), event("gemm", 150, 10)),
        gpu(2, event("gemm", 150, 10)),
        gpu(3, event("MemcpyH2D", 150, 10)),
        gpu(4),
    )


def test_every_listed_device_has_a_use(tmp_path: Path) -> None:
    uses = idle_of(tmp_path, *all_uses()).uses
    assert [(use.label, use.use) for use in uses] == [
        ("GPU:0", "works"),
        ("GPU:1", "copies"),
        ("GPU:2", "outside"),
        ("GPU:3", "no kernel"),
        ("GPU:4", "silent"),
    ]
    assert [(use.busy_percent, use.compute_percent) for use in uses] == [
        (40, 30),
        (10, 0),
        (0, 0),
        (0, 0),
        (None, None),
    ]


def test_averages_and_gaps_are_of_the_devices_that_work(tmp_path: Path) -> None:
    idle = idle_of(tmp_path, *all_uses())
    assert [device.device for device in idle.averaged] == ["/device:GPU:0"]
    assert idle.idle_percent == pytest.approx(60)
    assert {gap.device for gap in idle.gaps} == {"/device:GPU:0"}
    assert idle.gap_count == 3


def test_where_none_works_those_that_copy_count_else_all(tmp_path: Path) -> None:
    _, _, *others = all_uses()
    assert [device.device for device in idle_of(tmp_path, STEP, *others).averaged] == ["/device:GPU:1"]
    assert len(idle_of(tmp_path, STEP, *others[1:]).averaged) == 2


def test_devices_that_do_nothing_have_no_kernel_in_the_whole_capture(tmp_path: Path) -> None:
    assert [device.label for device in idle_of(tmp_path, *all_uses()).idle_devices] == ["GPU:3", "GPU:4"]


def test_devices_of_several_hosts_count_together(tmp_path: Path) -> None:
    """On one host nothing works in the step: alone its device counts, next to one that works it does not."""
    working, waiting = idle_of(tmp_path, STEP, gpu(0, event("gemm", 0, 90))), idle_of(tmp_path, STEP, *all_uses()[3:])
    assert len(waiting.averaged) == 2
    both = combine([working, waiting])
    assert (len(both.listed), len(both.averaged), len(both.gaps), both.gap_count) == (4, 1, 1, 1)
    assert both.idle_percent == pytest.approx(10)
