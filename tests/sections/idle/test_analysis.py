"""Idle time of devices and hosts together; times in microseconds, steps of 100 us."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from builders import Event, Plane, event, host, host_of, line, plane, trace_of
from places import ROOT
from tpu_twin import tpu_twin

from tfperf.analysis.registry import Host
from tfperf.base.arrays import overlap
from tfperf.sections.idle.analysis import CAUSE_TEXTS, MOST_GAPS, Idle, combine, narrow
from tfperf.trace.read import read_host

US = 1_000_000

SHARED = ROOT.parent / "shared" / "traces"

CALL = "EagerKernelExecute"


def analyzed(tmp_path: Path, *planes: Plane) -> Idle:
    idle: Idle = host_of(trace_of(tmp_path, *planes), "idle")["idle"]
    return idle


def gpu(*events: Event, number: int = 0) -> Plane:
    return plane(f"/device:GPU:{number}", line("Stream #1(Compute)", *events))


def cpu(*main: Event) -> Plane:
    return plane("/host:CPU", line("python", event("train", 0, 100, step_num=0), *main))


def kernel(start: float, duration: float) -> Event:
    return event("gemm", start, duration)


def test_shares_are_of_the_step_and_of_the_idle_time(tmp_path: Path) -> None:
    """One gap of 65 us: 40 of input, 20 of Python, 5 of launching."""
    fetch = event("IteratorGetNextOp::DoCompute", 30, 40)
    idle = analyzed(tmp_path, cpu(fetch, event(CALL, 70, 30)), gpu(kernel(0, 10), kernel(75, 25)))
    assert idle.idle_percent == pytest.approx(65)
    assert idle.ranked == ("input", "python", "launch")
    assert idle.table["cause"].tolist() == [CAUSE_TEXTS[cause].title for cause in idle.ranked]
    assert idle.columns()["step_percent"] == pytest.approx([40, 20, 5])
    assert idle.columns()["idle_percent"] == pytest.approx([100 * 40 / 65, 100 * 20 / 65, 100 * 5 / 65])
    assert idle.columns()["gaps"] == [1, 1, 1]
    (gap,) = idle.gaps
    assert (gap.cause, gap.cause_ps, gap.duration_ps) == ("input", 40 * US, 65 * US)


def test_several_devices_are_averaged(tmp_path: Path) -> None:
    """GPU 0 waits 50 of 100 us, GPU 1 waits 20."""
    idle = analyzed(tmp_path, cpu(event(CALL, 0, 100)), gpu(kernel(50, 50)), gpu(kernel(10, 80), number=1))
    assert [device.percent() for device in idle.devices] == pytest.approx([50, 20])
    assert idle.idle_percent == pytest.approx(35)
    assert idle.percents["launch"] == pytest.approx(35)


def test_a_device_without_work_in_steps_is_no_part_of_averages(tmp_path: Path) -> None:
    idle = analyzed(tmp_path, cpu(event(CALL, 0, 100)), gpu(kernel(20, 80)), gpu(kernel(150, 5), number=1))
    assert [device.use for device in idle.uses] == ["works", "outside"]
    assert [gap.device for gap in idle.gaps] == ["/device:GPU:0"]
    assert (idle.gap_count, idle.columns()["gaps"]) == (1, [1])
    assert idle.idle_percent == pytest.approx(20)


def test_flagged_steps_count_in_no_share_but_are_listed(tmp_path: Path) -> None:
    """Five steps; the first takes six times as long, idle while it compiles."""
    marks = [event("train", 0, 600, step_num=0), *(event("train", 500 + 100 * n, 100, step_num=n) for n in range(1, 5))]
    work = [event(CALL, 0, 1000), event("tf.function-graph_building", 0, 500)]
    kernels = [kernel(500, 100), *(kernel(510 + 100 * n, 90) for n in range(1, 5))]
    idle = analyzed(tmp_path, plane("/host:CPU", line("python", *marks, *work)), gpu(*kernels))
    assert idle.percents["compile"] == 0
    assert idle.gaps[0].cause == "compile"
    assert idle.gaps[0].flag
    assert idle.idle_percent == pytest.approx(10)


def test_the_result_of_a_host_without_device_is_empty(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, cpu(event(CALL, 0, 50)), plane("/device:GPU:0"))
    idle: Idle = host_of(trace, "idle")["idle"]
    assert (idle.devices, idle.idle_percent, idle.table.empty) == ((), None, True)


def test_a_device_that_recorded_only_moments_is_not_attributed(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, cpu(event(CALL, 0, 50)), gpu(event("marker", 10, 0)), instants=True)
    assert trace.devices
    idle: Idle = host_of(trace, "idle")["idle"]
    assert (idle.devices, idle.gaps, idle.idle_percent) == ((), (), None)


# --- hosts ---
def test_hosts_are_averaged_over_devices_and_their_gaps_ranked_together(tmp_path: Path) -> None:
    fetch = event("IteratorGetNextOp::DoCompute", 0, 40)
    first = analyzed(tmp_path, cpu(fetch, event(CALL, 40, 60)), gpu(kernel(40, 60)))
    second = analyzed(tmp_path, cpu(event(CALL, 0, 100)), gpu(kernel(0, 30), kernel(80, 20)))
    idle = combine([second, first])
    assert [gap.duration_ps / US for gap in idle.gaps] == [50, 40]
    assert [idle.percents["launch"], idle.percents["input"]] == pytest.approx([25, 20])
    assert combine([first]) is first


def test_one_host_without_steps_makes_shares_of_captures(tmp_path: Path) -> None:
    with_steps = analyzed(tmp_path, cpu(event(CALL, 0, 100)), gpu(kernel(0, 30)))
    without_steps = analyzed(tmp_path, gpu(kernel(0, 30)))
    assert combine([with_steps, without_steps]).without_steps == without_steps.without_steps != ""
    assert combine([with_steps, without_steps]).no_main_thread


def test_only_the_longest_gaps_of_all_hosts_are_listed(tmp_path: Path) -> None:
    """Each of two hosts has 600 gaps; those of the second are longer."""
    short, long = (
        analyzed(tmp_path, cpu(event(CALL, 0, 100)), gpu(*(kernel(0.15 * at, 0.15 - gap) for at in range(600))))
        for gap in (0.05, 0.1)
    )
    idle = combine([short, long])
    assert idle.gap_count == short.gap_count + long.gap_count > MOST_GAPS
    assert len(idle.gaps) == MOST_GAPS
    assert [gap.duration_ps for gap in idle.gaps] == sorted(
        (gap.duration_ps for part in (short, long) for gap in part.gaps), reverse=True
    )[:MOST_GAPS]


# --- fewer steps ---
def three_steps(tmp_path: Path) -> Host:
    """Three steps of 100 us, in which the device is idle for 10, 20 and 60."""
    marks = [event("train", 100 * step, 100, step_num=step) for step in range(3)]
    kernels = [kernel(10, 90), kernel(120, 80), kernel(260, 40)]
    main = plane("/host:CPU", line("python", *marks, event(CALL, 0, 300)))
    return host_of(trace_of(tmp_path, main, gpu(*kernels), links=True), "idle")


def test_idle_time_over_fewer_steps(tmp_path: Path) -> None:
    host = three_steps(tmp_path)
    assert host["idle"].idle_percent == pytest.approx(30)
    first_two = host["steps"].only(np.array([0, 1]))
    idle = narrow(host["idle"], host["steps"], first_two)
    assert idle.idle_percent == pytest.approx(15)
    assert idle.columns()["per_step_ms"] == pytest.approx([0.015])
    assert idle.gaps == host["idle"].gaps


def test_the_windows_of_attribution_tensorflow_are_not_its_steps(tmp_path: Path) -> None:
    trace = three_steps(tmp_path).trace
    host = host_of(trace, "idle", attribution="tensorflow")
    assert narrow(host["idle"], host["steps"], host["steps"].only(np.array([], np.int64))) is host["idle"]


# --- real traces ---
def shared(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (SHARED / folder).rglob("*.xplane.pb"))


@pytest.mark.skipif(not SHARED.is_dir(), reason="the real traces are not here")
@pytest.mark.parametrize("path", shared("keras_rtx5000", "keras_t4", "gpu_8xV100_worker", "jax_mi300x"), ids=str)
def test_real_traces_add_up_and_agree_with_device_time(path: Path) -> None:
    host = host_of(read_host(path), "idle")
    if not host.trace.devices:
        assert not host["idle"].devices
        return
    steps = host["steps"].steps
    for idle, device in zip(host["idle"].devices, host.device_times, strict=True):
        assert (sum(idle.time_ps.values()) + idle.busy_ps).tolist() == idle.window_ps.tolist()
        assert all((times >= 0).all() for times in idle.time_ps.values())
        start, end = (steps.start_ps, steps.end_ps) if len(steps) else np.array([[device.start_ps], [device.end_ps]])
        assert idle.window_ps.tolist() == (end - start).tolist()
        assert idle.busy_ps.tolist() == overlap(device.busy, start, end).tolist()
    assert all(0 < gap.cause_ps <= gap.duration_ps for gap in host["idle"].gaps)


def test_idle_time_before_a_run_of_a_tpu_is_that_of_what_enqueued_it(tmp_path: Path) -> None:
    """The chip's clock is 0.4 ms behind: by it alone, runs would begin before they are called."""
    path = tmp_path / "tpu.xplane.pb"
    path.write_bytes(tpu_twin())
    idle: Idle = host_of(read_host(path), "idle")["idle"]
    (gap,) = (gap for gap in idle.gaps if gap.step == 1 and gap.cause == "synchronise")
    assert (gap.thread, gap.event) == ("python", "$array.py:655 block_until_ready")
    launched = [gap for gap in idle.gaps if gap.cause == "launch"]
    assert len(launched) == 3
    assert idle.percents["unknown"] == 0.0


def test_without_steps_starting_and_stopping_the_profiler_are_no_time_of_the_program(tmp_path: Path) -> None:
    """Of 1,000 us, the first 300 and the last 500 are the profiler's own; of the rest, the device works 50."""
    python = line(
        "python", event("$profiler.py:115 start_trace", 0, 300), event("$profiler.py:235 stop_trace", 500, 500)
    )
    tpu = plane("/device:TPU:0", line("XLA Ops", event("op", 400, 50)))
    idle: Idle = host_of(trace_of(tmp_path, plane("/host:CPU", python), tpu), "idle")["idle"]
    assert idle.without_steps
    assert idle.idle_percent == 75.0


STEP = host(event("train", 0, 100, step_num=0), event("EagerKernelExecute", 0, 100))


def numbered(number: int, *events: Event) -> Plane:
    return plane(f"/device:GPU:{number}", line("Stream #1", *events))


def all_uses() -> tuple[Plane, ...]:
    """GPU 0 computes for 30 us and copies for 10 in the step, GPU 1 only copies; the others do neither in it."""
    return (
        STEP,
        numbered(0, event("gemm", 10, 30), event("MemcpyH2D", 50, 10)),
        numbered(1, event("MemcpyH2D", 50, 10), event("gemm", 150, 10)),
        numbered(2, event("gemm", 150, 10)),
        numbered(3, event("MemcpyH2D", 150, 10)),
        numbered(4),
    )


def test_every_listed_device_has_a_use(tmp_path: Path) -> None:
    uses = analyzed(tmp_path, *all_uses()).uses
    assert [(use.label, use.use, use.busy_percent, use.compute_percent) for use in uses] == [
        ("GPU:0", "works", 40, 30),
        ("GPU:1", "copies", 10, 0),
        ("GPU:2", "outside", 0, 0),
        ("GPU:3", "no kernel", 0, 0),
        ("GPU:4", "silent", None, None),
    ]


def test_averages_and_gaps_are_of_the_devices_that_work(tmp_path: Path) -> None:
    idle = analyzed(tmp_path, *all_uses())
    assert [device.device for device in idle.averaged] == ["/device:GPU:0"]
    assert idle.idle_percent == pytest.approx(60)
    assert {gap.device for gap in idle.gaps} == {"/device:GPU:0"}
    assert idle.gap_count == 3


def test_where_none_works_those_that_copy_count_else_all(tmp_path: Path) -> None:
    _, _, *others = all_uses()
    assert [device.device for device in analyzed(tmp_path, STEP, *others).averaged] == ["/device:GPU:1"]
    assert len(analyzed(tmp_path, STEP, *others[1:]).averaged) == 2


def test_devices_of_several_hosts_count_together(tmp_path: Path) -> None:
    """On one host nothing works in the step: alone its device counts, next to one that works it does not."""
    working, waiting = (
        analyzed(tmp_path, STEP, numbered(0, event("gemm", 0, 90))),
        analyzed(tmp_path, STEP, *all_uses()[3:]),
    )
    assert len(waiting.averaged) == 2
    both = combine([working, waiting])
    assert (len(both.listed), len(both.averaged), len(both.gaps), both.gap_count) == (4, 1, 1, 1)
    assert both.idle_percent == pytest.approx(10)
