"""Idle time of devices and hosts, and its causes; times in microseconds, steps of 100 us."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from builders import Event, Line, Plane, event, gpu, host, host_of, line, marks, plane, read_back, trace_of
from places import TRACES
from tpu_twin import tpu_twin

from tfperf.analysis.registry import Host
from tfperf.base.arrays import overlap
from tfperf.sections.idle.analysis import CAUSE_TEXTS, CAUSES, MOST_GAPS, Idle, combine, narrow
from tfperf.trace.read import read_host

US = 1_000_000
CALL = "EagerKernelExecute"


def analyzed(tmp_path: Path, *planes: Plane) -> Idle:
    idle: Idle = host_of(trace_of(tmp_path, *planes), "idle")["idle"]
    for device in idle.devices:
        assert (sum(device.time_ps.values()) + device.busy_ps).tolist() == device.window_ps.tolist()
        assert all((times >= 0).all() for times in device.time_ps.values())
    return idle


def cpu(*main: Event, more: tuple[Line, ...] = (), steps: int = 1) -> Plane:
    """A main thread with marked steps of 100 us."""
    return plane("/host:CPU", line("python", *marks(steps), *main, id=1), *more)


def kernel(start: float, duration: float, id: int = 0) -> Event:
    return event("gemm", start, duration, **({"correlation_id": id} if id else {}))


def with_streams(*streams: tuple[Event, ...]) -> Plane:
    return plane("/device:GPU:0", *(line(f"Stream #{id}", *events, id=id) for id, events in enumerate(streams, 1)))


def times(idle: Idle, device: int = 0) -> dict[str, float]:
    """Microseconds by cause in all windows of a device."""
    time_ps = idle.devices[device].time_ps
    return {cause: int(time_ps[cause].sum()) / US for cause in CAUSES if time_ps[cause].any()}


def longest(idle: Idle) -> tuple[float, float, str, str | None, str | None]:
    gap = idle.gaps[0]
    return gap.start_ps / US, gap.duration_ps / US, gap.cause, gap.thread, gap.event


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
    steps = [event("train", 0, 600, step_num=0), *(event("train", 500 + 100 * n, 100, step_num=n) for n in range(1, 5))]
    work = [event(CALL, 0, 1000), event("tf.function-graph_building", 0, 500)]
    kernels = [kernel(500, 100), *(kernel(510 + 100 * n, 90) for n in range(1, 5))]
    idle = analyzed(tmp_path, host(*steps, *work), gpu(*kernels))
    assert idle.percents["compile"] == 0
    assert idle.gaps[0].cause == "compile"
    assert idle.gaps[0].flag
    assert idle.idle_percent == pytest.approx(10)


def test_a_device_that_recorded_nothing_or_only_moments_is_not_attributed(tmp_path: Path) -> None:
    idle = analyzed(tmp_path, cpu(event(CALL, 0, 50)), plane("/device:GPU:0"))
    assert (idle.devices, idle.idle_percent, idle.table.empty) == ((), None, True)
    trace = trace_of(tmp_path, cpu(event(CALL, 0, 50)), gpu(event("marker", 10, 0)), instants=True)
    assert trace.devices
    idle = host_of(trace, "idle")["idle"]
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
    device = gpu(kernel(10, 90), kernel(120, 80), kernel(260, 40))
    return host_of(trace_of(tmp_path, cpu(event(CALL, 0, 300), steps=3), device, links=True), "idle")


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
    return sorted(path for folder in folders for path in (TRACES / folder).rglob("*.xplane.pb"))


@pytest.mark.skipif(not TRACES.is_dir(), reason="the real traces are not here")
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
    idle: Idle = host_of(read_back(tmp_path, tpu_twin()), "idle")["idle"]
    (gap,) = (gap for gap in idle.gaps if gap.step == 1 and gap.cause == "synchronise")
    assert (gap.thread, gap.event) == ("python", "array.py:655 block_until_ready")
    launched = [gap for gap in idle.gaps if gap.cause == "launch"]
    assert len(launched) == 3
    assert idle.percents["unknown"] == 0.0


def test_without_steps_starting_and_stopping_the_profiler_are_no_time_of_the_program(tmp_path: Path) -> None:
    """Of 1,000 us, the first 300 and the last 500 are the profiler's own; of the rest, the device works 50."""
    python = host(event("$profiler.py:115 start_trace", 0, 300), event("$profiler.py:235 stop_trace", 500, 500))
    idle = analyzed(tmp_path, python, plane("/device:TPU:0", line("XLA Ops", event("op", 400, 50))))
    assert idle.without_steps
    assert idle.idle_percent == 75.0


STEP = cpu(event(CALL, 0, 100))


def all_uses() -> tuple[Plane, ...]:
    """GPU 0 computes for 30 us and copies for 10 in the step, GPU 1 only copies; the others do neither in it."""
    return (
        STEP,
        gpu(kernel(10, 30), event("MemcpyH2D", 50, 10)),
        gpu(event("MemcpyH2D", 50, 10), kernel(150, 10), number=1),
        gpu(kernel(150, 10), number=2),
        gpu(event("MemcpyH2D", 150, 10), number=3),
        gpu(number=4),
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
    working, waiting = analyzed(tmp_path, STEP, gpu(kernel(0, 90))), analyzed(tmp_path, STEP, *all_uses()[3:])
    assert len(waiting.averaged) == 2
    both = combine([working, waiting])
    assert (len(both.listed), len(both.averaged), len(both.gaps), both.gap_count) == (4, 1, 1, 1)
    assert both.idle_percent == pytest.approx(10)


# --- what the host does ---
def test_waiting_for_input(tmp_path: Path) -> None:
    """Fetch 0 to 40, then the call; the device works from 50."""
    fetch = line("tf_data_iterator_get_next/7", event("IteratorGetNextOp::DoCompute", 0, 40), id=2)
    idle = analyzed(tmp_path, cpu(event(CALL, 0, 100), more=(fetch,)), gpu(kernel(50, 50)))
    assert times(idle) == {"input": 40, "launch": 10}
    assert longest(idle) == (0, 50, "input", "tf_data_iterator_get_next/7", "IteratorGetNextOp::DoCompute")
    assert idle.gaps[0].thread_name == "tf_data_iterator_get_next"


def test_python_between_calls(tmp_path: Path) -> None:
    """The main thread is in a call from 60 on; before that a callback runs."""
    frame = event("$callbacks.py:10 on_batch_end", 5, 50)
    idle = analyzed(tmp_path, cpu(frame, event(CALL, 60, 40)), gpu(kernel(70, 30)))
    assert times(idle) == {"python": 60, "launch": 10}
    assert longest(idle)[2:] == ("python", "python", "callbacks.py:10 on_batch_end")


def test_tracing_and_compiling(tmp_path: Path) -> None:
    tracing = event("tf.function-graph_building", 10, 30)
    idle = analyzed(tmp_path, cpu(event(CALL, 0, 100), tracing), gpu(kernel(50, 50)))
    assert times(idle) == {"compile": 30, "launch": 20}
    assert longest(idle)[2:] == ("compile", "python", "tf.function-graph_building")


def test_synchronising_counts_only_while_no_thread_is_at_work(tmp_path: Path) -> None:
    """The main thread waits from 50 to 100; meanwhile an op runs on another thread for 20 us."""
    op = line("tf_Compute/1", event("Where:Where", 60, 20), id=2)
    main = (event(CALL, 0, 100), event("cuStreamSynchronize", 50, 50))
    idle = analyzed(tmp_path, cpu(*main, more=(op,)), gpu(kernel(0, 50)))
    assert times(idle) == {"synchronise": 30, "host_compute": 20}
    assert longest(idle)[3:] == ("python", "cuStreamSynchronize")


def test_a_thread_that_waits_for_the_device_does_nothing_else(tmp_path: Path) -> None:
    """An op that only waits for the device is no host compute."""
    op = line("tf_Compute/1", event("NonMax:NonMax", 50, 50), event("cuCtxSynchronize", 60, 40), id=2)
    idle = analyzed(tmp_path, cpu(event(CALL, 0, 100), more=(op,)), gpu(kernel(0, 50)))
    assert times(idle) == {"host_compute": 10, "synchronise": 40}


def waited(idle: Idle) -> float:
    return int(idle.devices[0].waited_ps.sum()) / US


@pytest.mark.parametrize(
    ("wait", "launch", "lost"),
    [
        ((0, 60), 70, 35),  # idle from 40 to 75, and the wait took longer than that
        ((30, 50), 70, 20),  # a wait of 20 delays the launch by at most 20
        ((50, 60), 70, 10),  # the device was idle before the wait
        ((0, 35), 70, 0),  # the wait ends before the device is idle
        ((80, 90), 70, 0),  # it begins after the launch
    ],
)
def test_idle_time_after_calls_that_wait(tmp_path: Path, wait: tuple[int, int], launch: int, lost: int) -> None:
    """Kernels from 0 to 40 and from 75 on; the thread waits, and launches the second one."""
    calls = (
        event("cuStreamSynchronize", wait[0], wait[1] - wait[0]),
        event("cuLaunchKernel", launch, 3, correlation_id=2),
    )
    second = line("tf_Compute/1", *calls, id=2)
    kernels = gpu(kernel(0, 40, 1), kernel(75, 25, 2))
    assert waited(analyzed(tmp_path, cpu(event(CALL, 0, 100), more=(second,)), kernels)) == lost
    # The launch of another thread does not depend on the wait.
    apart = line("tf_Compute/1", calls[0], id=2), line("tf_Compute/2", calls[1], id=3)
    assert waited(analyzed(tmp_path, cpu(event(CALL, 0, 100), more=apart), kernels)) == 0


def test_several_waits_before_a_launch_add_up(tmp_path: Path) -> None:
    """Waits of 5 and 10 us in a gap from 20 to 80 cost 15 us; a copy from 40 to 45 ends the first gap."""
    waits = (
        event("cuStreamSynchronize", 50, 5),
        event("hipDeviceSynchronize", 60, 10),
        event("cuEventSynchronize", 62, 5),
    )
    calls = line("t/1", event("gemm", 5, 1, correlation_id=1), *waits, event("gemm", 75, 1, correlation_id=2), id=2)
    idle = analyzed(tmp_path, cpu(more=(calls,)), gpu(kernel(10, 10, 1), event("MemcpyD2H", 40, 5), kernel(80, 20, 2)))
    assert waited(idle) == 15
    assert idle.waited_percent == pytest.approx(15)


def test_an_op_around_a_launch_prepares_it_and_one_without_computes(tmp_path: Path) -> None:
    ops = line(
        "tf_Compute/1",
        event("ExecutorState::Process", 0, 100),
        event("Gather:Gather", 10, 20),
        event("Mul:Mul", 40, 20),
        event("cuLaunchKernel", 55, 2, correlation_id=1),
        id=2,
    )
    idle = analyzed(tmp_path, cpu(event(CALL, 0, 100), more=(ops,)), gpu(kernel(60, 40, 1)))
    assert times(idle) == {"launch": 40, "host_compute": 20}
    assert longest(idle)[2:] == ("launch", "tf_Compute/1", "ExecutorState::Process")


def test_background_threads_of_tfdata_keep_nobody(tmp_path: Path) -> None:
    """While the main thread is in Python, tf.data prepares: on a thread of its own, and on one it shares."""
    private = line(
        "tf_data_private_threadpool/1", event("ExecutorState::Process", 0, 50), event("Decode:Decode", 5, 40), id=2
    )
    pipeline = line(
        "tf_data_iterator_resource/2",
        event("Iterator::Root::Prefetch::Map", 0, 50),
        event("InstantiatedCapturedFunction::RunAsync", 0, 50, id=77),
        id=3,
    )
    shared = line("tf_Compute/3", event("ExecutorState::Process", 0, 50, id=77), event("Crop:Crop", 5, 40), id=4)
    idle = analyzed(tmp_path, cpu(event(CALL, 50, 50), more=(private, pipeline, shared)), gpu(kernel(60, 40)))
    assert times(idle) == {"python": 50, "launch": 10}


def test_threads_that_launch_for_another_device_say_nothing_about_this_one(tmp_path: Path) -> None:
    """GPU 0 computes from 50, GPU 1 from 10. Thread b fetches for GPU 1 while GPU 0 waits for thread a."""
    a = line("a", event("Gather:Gather", 0, 40), event("cuLaunchKernel", 45, 5, correlation_id=1), id=2)
    b = line("b", event("cuLaunchKernel", 5, 5, correlation_id=2), event("IteratorGetNextOp::DoCompute", 10, 30), id=3)
    devices = gpu(kernel(50, 50, 1)), gpu(kernel(10, 80, 2), number=1)
    idle = analyzed(tmp_path, cpu(event(CALL, 0, 100), more=(a, b)), *devices)
    assert times(idle, 0) == {"host_compute": 40, "launch": 10}
    assert times(idle, 1) == {"launch": 20}  # 0 to 10 and 90 to 100


def test_without_any_host_event_the_cause_is_unknown(tmp_path: Path) -> None:
    idle = analyzed(tmp_path, gpu(kernel(0, 10), kernel(60, 40)))
    assert times(idle) == {"unknown": 50}
    (gap,) = idle.gaps
    assert (gap.cause, gap.thread, gap.thread_name, gap.event, gap.step) == ("unknown", None, None, None, None)
    assert gap.launched_before_ps is None
    assert idle.no_main_thread
    assert idle.without_steps


def test_markers_alone_do_not_tell_python_from_unknown(tmp_path: Path) -> None:
    """A profile with markers only (host tracer level 1) shows no call, so nothing tells when there is none."""
    assert times(analyzed(tmp_path, cpu(), gpu(kernel(50, 50)))) == {"unknown": 50}


# --- the call that ends a gap ---
def test_copying_to_the_device(tmp_path: Path) -> None:
    """The copy call runs from 10 to 40, the device copies from 30 to 40 and computes from 60, launched at 55."""
    calls = line(
        "tf_Compute/1",
        event("MemcpyH2D", 10, 30, correlation_id=1),
        event("cuLaunchKernel", 55, 3, correlation_id=2),
        id=2,
    )
    copies = event("MemcpyH2D", 30, 10, correlation_id=1)
    idle = analyzed(tmp_path, cpu(event(CALL, 0, 100), more=(calls,)), with_streams((kernel(60, 40, 2),), (copies,)))
    # 0 to 10 and 40 to 55 in the call alone, 55 to 60 launched.
    assert times(idle) == {"copy": 20, "launch": 30}


def test_gaps_between_kernels_that_were_launched_before_are_launching(tmp_path: Path) -> None:
    """Both launches are over at 10; that the main thread is in Python at 60 did not make the device wait."""
    calls = (event("cuLaunchKernel", 0, 5, correlation_id=1), event("cuLaunchKernel", 5, 5, correlation_id=2))
    idle = analyzed(tmp_path, cpu(event(CALL, 0, 20), *calls), gpu(kernel(10, 50, 1), kernel(65, 35, 2)))
    assert times(idle) == {"launch": 15}


def test_work_that_starts_long_after_its_launch_waited_for_something_unknown(tmp_path: Path) -> None:
    """A step of 400 us; the launch ends at 10, the kernel starts at 300: the host is not what it waits for."""
    calls = (event("train", 0, 400, step_num=0), event(CALL, 0, 400), event("cuLaunchKernel", 5, 5, correlation_id=1))
    idle = analyzed(tmp_path, host(*calls), gpu(kernel(300, 100, 1)))
    assert times(idle) == {"launch": 10, "unknown": 290}


# --- windows ---
def test_a_device_is_busy_while_any_stream_is(tmp_path: Path) -> None:
    """Kernels 0 to 30 and 20 to 50, a copy 60 to 70, a kernel 65 to 90: idle 50 to 60 and 90 to 100."""
    streams = (kernel(0, 30), kernel(65, 25)), (kernel(20, 30),), (event("MemcpyD2H", 60, 10),)
    idle = analyzed(tmp_path, cpu(event(CALL, 0, 100)), with_streams(*streams))
    assert [(gap.start_ps / US, gap.duration_ps / US) for gap in idle.gaps] == [(50, 10), (90, 10)]


def test_gaps_are_cut_at_the_edges_of_steps(tmp_path: Path) -> None:
    """The device idles from 80 to 130; what comes before the first step and after the last is in none."""
    calls = [event(CALL, 0, 90), event(CALL, 110, 90)]
    idle = analyzed(tmp_path, cpu(*calls, steps=2), gpu(kernel(0, 80), kernel(130, 70), kernel(220, 5)))
    assert [(gap.step, gap.start_ps / US, gap.duration_ps / US) for gap in idle.gaps[:2]] == [(1, 100, 30), (0, 80, 20)]
    assert times(idle)["python"] == 20  # 90 to 110


def test_without_steps_the_capture_is_one_window(tmp_path: Path) -> None:
    idle = analyzed(tmp_path, host(event(CALL, 0, 30), event(CALL, 70, 30)), gpu(kernel(10, 20), kernel(80, 20)))
    assert times(idle) == {"python": 40, "launch": 20}  # 30 to 70; 0 to 10 and 70 to 80
    assert idle.idle_percent == pytest.approx(60)


def test_input_wait_and_idle_agree_with_the_breakdown(tmp_path: Path) -> None:
    """Device time is the same in both, so idle is what the breakdown gives to the host."""
    fetch = line("tf_data_iterator_get_next/7", event("IteratorGetNextOp::DoCompute", 0, 40), id=2)
    planes = (cpu(event(CALL, 0, 90), more=(fetch,)), with_streams((kernel(30, 50),), (event("MemcpyD2H", 70, 20),)))
    host = host_of(trace_of(tmp_path, *planes), "idle")
    (device,), parts = host["idle"].devices, host["steps"].time_ps
    device_ps = parts["device_compute"] + parts["output"] + parts["device_to_device"] + parts["device_collectives"]
    assert device.busy_ps.tolist() == device_ps.tolist()
    assert device.time_ps["input"].tolist() == parts["input_wait"].tolist() == [30 * US]


NAMES = (
    "IteratorGetNextOp::DoCompute",
    "MemcpyH2D",
    "A:A",
    "ExecutorState::Process",
    CALL,
    "cuStreamSynchronize",
    "other",
    "tf.function-graph_building",
)


@pytest.mark.parametrize("seed", range(15))
def test_causes_add_up_for_random_events(tmp_path: Path, seed: int) -> None:
    """Compared with a count of moments: idle is where no kernel is, input where a fetch is and no launch started."""
    random = np.random.default_rng(seed)

    def some(count: int, names: tuple[str, ...], longest: int) -> list[Event]:
        starts = sorted(random.integers(0, 380, count).tolist())
        return [event(str(random.choice(names)), start, int(random.integers(1, longest))) for start in starts]

    threads = [line(f"tf_Compute/{at}", *some(12, NAMES, 40), id=at + 2) for at in range(3)]
    streams = [some(15, ("gemm", "MemcpyH2D"), 20) for _ in range(2)]
    main = cpu(*some(6, (CALL,), 50), more=tuple(threads), steps=4)
    idle = analyzed(tmp_path, main, with_streams(*map(tuple, streams)))
    (device,) = idle.devices
    assert sum(gap.duration_ps for gap in idle.gaps) == (device.window_ps - device.busy_ps).sum()
    moments = np.arange(400)
    is_busy, is_fetching = np.zeros((2, 400), np.bool_)
    for work in streams[0] + streams[1]:
        is_busy |= (moments >= work.start_us) & (moments < work.start_us + work.duration_us)
    for fetch in (item for thread in threads for item in thread.events if item.name == NAMES[0]):
        is_fetching |= (moments >= fetch.start_us) & (moments < fetch.start_us + fetch.duration_us)
    end = device.window_ps.sum() // US
    assert device.busy_ps.sum() // US == is_busy[:end].sum()
    assert device.time_ps["input"].sum() // US == (is_fetching & ~is_busy)[:end].sum()


def test_the_work_around_a_gap_has_its_short_name(tmp_path: Path) -> None:
    before, after = event("void (anonymous namespace)::f<int>(int)", 0, 30), event("Memcpy HtoD (Pinned)", 60, 40)
    idle = analyzed(tmp_path, cpu(event(CALL, 0, 100)), with_streams((before,), (after,)))
    assert (idle.gaps[0].before, idle.gaps[0].after) == ("f", "Memcpy HtoD")
    alone = analyzed(tmp_path, cpu(event(CALL, 0, 100)), gpu(kernel(60, 40)))
    assert (alone.gaps[0].before, alone.gaps[0].after) == (None, "gemm")


def test_how_long_before_the_work_its_call_started(tmp_path: Path) -> None:
    """The copy, called at 10, starts at 30; both kernels were launched before 10."""
    copy = line("tf_Compute/1", event("MemcpyH2D", 10, 30, correlation_id=1), id=2)
    copied = event("MemcpyH2D", 30, 70, correlation_id=1)
    idle = analyzed(tmp_path, cpu(event(CALL, 0, 100), more=(copy,)), gpu(copied))
    assert [gap.launched_before_ps for gap in idle.gaps] == [20 * US]
    calls = (event("cuLaunchKernel", 0, 5, correlation_id=1), event("cuLaunchKernel", 5, 5, correlation_id=2))
    idle = analyzed(tmp_path, cpu(event(CALL, 0, 20), *calls), gpu(kernel(10, 50, 1), kernel(65, 35, 2)))
    assert [gap.launched_before_ps for gap in idle.gaps] == [10 * US, 60 * US]


def test_only_the_longest_gaps_are_listed_but_all_are_counted(tmp_path: Path) -> None:
    """Five more gaps than are listed, each a tenth of a nanosecond longer than the one before."""
    count = MOST_GAPS + 5
    starts = [at * 0.09 + at * at * 1e-6 for at in range(count + 1)]
    idle = analyzed(tmp_path, cpu(event(CALL, 0, 100)), gpu(*(kernel(start, 0.05) for start in starts)))
    durations = [gap.duration_ps for gap in idle.gaps]
    assert len(durations) == MOST_GAPS
    assert durations == sorted(durations, reverse=True)
    assert idle.gap_count > MOST_GAPS
    total_ps = sum(int(times.sum()) for times in idle.devices[0].time_ps.values())
    assert total_ps > sum(durations)


# --- the event of the host that was at work, while the device waits from 0 to 60 ---
def longest_beside(tmp_path: Path, *threads: Line) -> tuple[str, str | None, str | None]:
    return longest(analyzed(tmp_path, cpu(event(CALL, 0, 100), more=threads), gpu(kernel(60, 40))))[2:]


def test_the_thread_with_the_longest_work_for_the_cause_is_named(tmp_path: Path) -> None:
    short = line("tf_Compute/1", event("Short:Short", 0, 30), id=2)
    long = line("tf_Compute/2", event("Long:Long", 0, 40), id=3)
    assert longest_beside(tmp_path, short, long) == ("host_compute", "tf_Compute/2", "Long:Long")


def test_the_innermost_event_that_covers_half_as_much_tells_more(tmp_path: Path) -> None:
    """Inside 50 us of `Outer` are 30 us of `Inner`, and inside that 10 us of `Detail`, which is too little."""
    ops = [event("Outer:Outer", 0, 50), event("Inner:Inner", 10, 30), event("Detail:Detail", 15, 10)]
    assert longest_beside(tmp_path, line("tf_Compute/1", *ops, id=2))[2] == "Inner:Inner"


def test_events_of_other_causes_are_no_evidence(tmp_path: Path) -> None:
    """The gap is mostly a fetch of 35 us; an op runs for 60, but the fetch keeps the step."""
    name, fetch = "tf_data_iterator_get_next/7", "IteratorGetNextOp::DoCompute"
    threads = line(name, event(fetch, 0, 35), id=2), line("tf_Compute/1", event("Mul:Mul", 0, 60), id=3)
    assert longest_beside(tmp_path, *threads) == ("input", name, fetch)


def test_a_main_thread_in_no_event_is_still_named(tmp_path: Path) -> None:
    idle = analyzed(tmp_path, cpu(event(CALL, 60, 40)), gpu(kernel(70, 30)))
    assert longest(idle)[2:] == ("python", "python", "train")
    without_marker = line("python", event(CALL, 60, 40), id=1), line("other", event("other", 0, 1), id=2)
    idle = analyzed(tmp_path, plane("/host:CPU", *without_marker), gpu(kernel(70, 30)))
    assert longest(idle)[2:] == ("python", "python", None)
