"""Each idle moment of a device has one cause; times in microseconds, steps of 100 us."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from builders import Event, Line, Plane, event, line, plane, trace_of

from tfperf.analyzers import idle, step_breakdown
from tfperf.analyzers.idle import Gap, Idle
from tfperf.analyzers.idle_pieces import CAUSES
from tfperf.intervals import overlap
from tfperf.trace.device_time import device_times
from tfperf.trace.find_steps import find_steps
from tfperf.trace.host_state_names import State, state_of
from tfperf.trace.read import read_host

US = 1_000_000
SHARED = Path(__file__).parents[3] / "shared" / "traces"
CALL = "EagerKernelExecute"


def analyzed(tmp_path: Path, *planes: Plane) -> Idle:
    trace = trace_of(tmp_path, *planes)
    found = idle.analyze(trace, find_steps(trace))
    assert_adds_up(found)
    return found


def assert_adds_up(found: Idle) -> None:
    for own in found.devices:
        assert (sum(own.time_ps.values()) + own.busy_ps).tolist() == own.window_ps.tolist()
        assert all((times >= 0).all() for times in own.time_ps.values())


def gpu(*streams: tuple[Event, ...], number: int = 0) -> Plane:
    return plane(f"/device:GPU:{number}", *(line(f"Stream #{n}(Compute)", *own, id=n + 1)
                                            for n, own in enumerate(streams)))  # fmt: skip


def cpu(*main: Event, more: tuple[Line, ...] = (), steps: int = 1) -> Plane:
    """A main thread with marked steps of 100 us."""
    marks = [event("train", 100 * n, 100, step_num=n) for n in range(steps)]
    return plane("/host:CPU", line("python", *marks, *main, id=1), *more)


def kernel(begin: float, duration: float, id: int = 0) -> Event:
    return event("gemm", begin, duration, **({"correlation_id": id} if id else {}))


def times(found: Idle, device: int = 0) -> dict[str, float]:
    """Microseconds by cause in all windows of a device."""
    own = found.devices[device].time_ps
    return {cause: int(own[cause].sum()) / US for cause in CAUSES if own[cause].any()}


def longest(found: Idle) -> tuple[float, float, str, str, str]:
    gap: Gap = found.gaps[0]
    return gap.start_ps / US, gap.length_ps / US, gap.cause, gap.thread, gap.event


def test_waiting_for_input_names_the_consumer_thread(tmp_path: Path) -> None:
    """Fetch 0 to 40, then the call; the device works from 50."""
    fetch = line("tf_data_iterator_get_next/7", event("IteratorGetNextOp::DoCompute", 0, 40), id=2)
    found = analyzed(tmp_path, cpu(event(CALL, 0, 100), more=(fetch,)), gpu((kernel(50, 50),)))
    assert times(found) == {"input": 40, "launch": 10}
    assert longest(found) == (0, 50, "input", "tf_data_iterator_get_next/7", "IteratorGetNextOp::DoCompute")
    assert found.idle_percent == pytest.approx(50)
    assert found.percent("input") == pytest.approx(40)


def test_python_between_calls(tmp_path: Path) -> None:
    """The main thread is in a call from 60 on; before that a callback runs."""
    frame = event("$callbacks.py:10 on_batch_end", 5, 50)
    found = analyzed(tmp_path, cpu(frame, event(CALL, 60, 40)), gpu((kernel(70, 30),)))
    assert times(found) == {"python": 60, "launch": 10}
    assert longest(found)[2:] == ("python", "python", "$callbacks.py:10 on_batch_end")


def test_tracing_and_compiling(tmp_path: Path) -> None:
    tracing = event("tf.function-graph_building", 10, 30)
    found = analyzed(tmp_path, cpu(event(CALL, 0, 100), tracing), gpu((kernel(50, 50),)))
    assert times(found) == {"compile": 30, "launch": 20}
    assert longest(found)[2:] == ("compile", "python", "tf.function-graph_building")


def test_synchronising_counts_only_while_no_thread_is_at_work(tmp_path: Path) -> None:
    """The main thread waits from 50 to 100; meanwhile an op runs on another thread for 20 us."""
    op = line("tf_Compute/1", event("Where:Where", 60, 20), id=2)
    found = analyzed(tmp_path, cpu(event(CALL, 0, 100), event("cuStreamSynchronize", 50, 50), more=(op,)),
                     gpu((kernel(0, 50),)))  # fmt: skip
    assert times(found) == {"synchronise": 30, "host_compute": 20}
    assert longest(found)[3:] == ("python", "cuStreamSynchronize")


def test_a_thread_that_waits_for_the_device_does_nothing_else(tmp_path: Path) -> None:
    """An op that only waits for the device is no host compute."""
    op = line("tf_Compute/1", event("NonMax:NonMax", 50, 50), event("cuCtxSynchronize", 60, 40), id=2)
    found = analyzed(tmp_path, cpu(event(CALL, 0, 100), more=(op,)), gpu((kernel(0, 50),)))
    assert times(found) == {"host_compute": 10, "synchronise": 40}


def test_copying_to_the_device(tmp_path: Path) -> None:
    """The copy call runs from 10 to 40, the device copies from 30 to 40 and computes from 60, launched at 55."""
    calls = line("tf_Compute/1", event("MemcpyH2D", 10, 30, correlation_id=1),
                 event("cuLaunchKernel", 55, 3, correlation_id=2), id=2)  # fmt: skip
    copies = event("MemcpyH2D", 30, 10, correlation_id=1)
    found = analyzed(tmp_path, cpu(event(CALL, 0, 100), more=(calls,)), gpu((kernel(60, 40, 2),), (copies,)))
    # 0 to 10 and 40 to 55 in the call alone, 55 to 60 launched.
    assert times(found) == {"copy": 20, "launch": 30}
    assert found.gaps[0].launched_before_ps == 20 * US
    assert found.gaps[0].after == "MemcpyH2D"


def test_gaps_between_kernels_that_were_launched_before_are_launching(tmp_path: Path) -> None:
    """Both launches are over at 10; that the main thread is in Python at 60 did not make the device wait."""
    calls = (event("cuLaunchKernel", 0, 5, correlation_id=1), event("cuLaunchKernel", 5, 5, correlation_id=2))
    found = analyzed(
        tmp_path, cpu(event(CALL, 0, 20), *calls), gpu((kernel(10, 50, 1), kernel(65, 35, 2)))
    )  # fmt: skip
    assert times(found) == {"launch": 15}
    assert [gap.launched_before_ps for gap in found.gaps] == [10 * US, 60 * US]


def test_work_that_begins_long_after_its_launch_waited_for_something_unknown(tmp_path: Path) -> None:
    """A step of 400 us; the launch ends at 10, the kernel begins at 300: the host is not what it waits for."""
    calls = (event("train", 0, 400, step_num=0), event(CALL, 0, 400), event("cuLaunchKernel", 5, 5, correlation_id=1))
    found = analyzed(tmp_path, plane("/host:CPU", line("python", *calls)), gpu((kernel(300, 100, 1),)))
    assert times(found) == {"launch": 10, "unknown": 290}


def test_an_op_around_a_launch_prepares_it_and_one_without_computes(tmp_path: Path) -> None:
    ops = line(
        "tf_Compute/1", event("ExecutorState::Process", 0, 100), event("Gather:Gather", 10, 20),
        event("Mul:Mul", 40, 20), event("cuLaunchKernel", 55, 2, correlation_id=1), id=2,
    )  # fmt: skip
    found = analyzed(tmp_path, cpu(event(CALL, 0, 100), more=(ops,)), gpu((kernel(60, 40, 1),)))
    assert times(found) == {"launch": 40, "host_compute": 20}
    assert longest(found)[2:] == ("launch", "tf_Compute/1", "ExecutorState::Process")


def test_two_causes_in_one_gap_are_split_and_the_larger_names_it(tmp_path: Path) -> None:
    fetch = event("IteratorGetNextOp::DoCompute", 30, 40)
    found = analyzed(tmp_path, cpu(fetch, event(CALL, 70, 30)), gpu((kernel(0, 10), kernel(75, 25))))
    assert times(found) == {"input": 40, "python": 20, "launch": 5}
    (gap,) = found.gaps
    assert (gap.cause, gap.cause_ps, gap.length_ps) == ("input", 40 * US, 65 * US)
    assert found.columns()["cause"] == ["input", "python", "launch"]
    assert found.columns()["step_percent"] == pytest.approx([40, 20, 5])
    assert found.columns()["gaps"] == [1, 1, 1]


def test_a_device_is_busy_while_any_stream_is(tmp_path: Path) -> None:
    """Kernels 0 to 30 and 20 to 50, a copy 60 to 70, a kernel 65 to 90: idle 50 to 60 and 90 to 100."""
    copies = event("MemcpyD2H", 60, 10)
    found = analyzed(tmp_path, cpu(event(CALL, 0, 100)),
                     gpu((kernel(0, 30), kernel(65, 25)), (kernel(20, 30),), (copies,)))  # fmt: skip
    assert [(gap.start_ps / US, gap.length_ps / US) for gap in found.gaps] == [(50, 10), (90, 10)]
    assert (found.gaps[0].before, found.gaps[0].after) == ("gemm", "MemcpyD2H")


def test_background_threads_of_tfdata_keep_nobody(tmp_path: Path) -> None:
    """While the main thread is in Python, tf.data prepares: on a thread of its own, and on one it shares."""
    own = line("tf_data_private_threadpool/1", event("ExecutorState::Process", 0, 50), event("Decode:Decode", 5, 40),
               id=2)  # fmt: skip
    pipeline = line("tf_data_iterator_resource/2", event("Iterator::Root::Prefetch::Map", 0, 50),
                    event("InstantiatedCapturedFunction::RunAsync", 0, 50, id=77), id=3)  # fmt: skip
    shared = line("tf_Compute/3", event("ExecutorState::Process", 0, 50, id=77), event("Crop:Crop", 5, 40), id=4)
    host = cpu(event(CALL, 50, 50), more=(own, pipeline, shared))
    found = analyzed(tmp_path, host, gpu((kernel(60, 40),)))
    assert times(found) == {"python": 50, "launch": 10}


def test_gaps_are_cut_at_the_edges_of_steps(tmp_path: Path) -> None:
    """The device idles from 80 to 130; what comes before the first step and after the last is in none."""
    calls = [event(CALL, 0, 90), event(CALL, 110, 90)]
    found = analyzed(tmp_path, cpu(*calls, steps=2), gpu((kernel(-0.0, 80), kernel(130, 70), kernel(220, 5))))
    assert [(gap.step, gap.start_ps / US, gap.length_ps / US) for gap in found.gaps[:2]] == [
        (1, 100, 30),
        (0, 80, 20),
    ]
    assert times(found)["python"] == 20  # 90 to 110


def test_without_any_host_event_the_cause_is_unknown(tmp_path: Path) -> None:
    found = analyzed(tmp_path, gpu((kernel(0, 10), kernel(60, 40))))
    assert times(found) == {"unknown": 50}
    assert (found.gaps[0].thread, found.gaps[0].event, found.gaps[0].step) == ("", "", None)
    assert found.no_main_thread
    assert found.without_steps


def test_markers_alone_do_not_tell_python_from_unknown(tmp_path: Path) -> None:
    """A profile with markers only (host tracer level 1) shows no call, so nothing tells when there is none."""
    found = analyzed(tmp_path, cpu(), gpu((kernel(50, 50),)))
    assert times(found) == {"unknown": 50}


def test_without_steps_the_capture_is_one_window(tmp_path: Path) -> None:
    found = analyzed(tmp_path, plane("/host:CPU", line("python", event(CALL, 0, 30), event(CALL, 70, 30))),
                     gpu((kernel(10, 20), kernel(80, 20))))  # fmt: skip
    assert times(found) == {"python": 40, "launch": 20}  # 30 to 70; 0 to 10 and 70 to 80
    assert found.idle_percent == pytest.approx(60)


def test_a_profile_of_the_host_alone_has_nothing_to_attribute(tmp_path: Path) -> None:
    found = analyzed(tmp_path, cpu(event(CALL, 0, 50)), plane("/device:GPU:0"))
    assert (found.devices, found.gaps, found.idle_percent) == ((), (), None)
    assert found.hosts_without_device == ("host",)


def test_threads_that_launch_for_another_device_say_nothing_about_this_one(tmp_path: Path) -> None:
    """GPU 0 computes from 50, GPU 1 from 10. Thread b fetches for GPU 1 while GPU 0 waits for thread a."""
    a = line("a", event("Gather:Gather", 0, 40), event("cuLaunchKernel", 45, 5, correlation_id=1), id=2)
    b = line("b", event("cuLaunchKernel", 5, 5, correlation_id=2), event("IteratorGetNextOp::DoCompute", 10, 30), id=3)
    found = analyzed(
        tmp_path, cpu(event(CALL, 0, 100), more=(a, b)), gpu((kernel(50, 50, 1),)), gpu((kernel(10, 80, 2),), number=1)
    )
    assert times(found, 0) == {"host_compute": 40, "launch": 10}
    assert times(found, 1) == {"launch": 20}  # 0 to 10 and 90 to 100
    assert [own.percent() for own in found.devices] == pytest.approx([50, 20])
    assert found.idle_percent == pytest.approx(35)  # the average over devices
    assert found.percent("host_compute") == pytest.approx(20)


def test_a_device_without_work_in_steps_is_no_part_of_averages(tmp_path: Path) -> None:
    found = analyzed(tmp_path, cpu(event(CALL, 0, 100)), gpu((kernel(20, 80),)), gpu((kernel(150, 5),), number=1))
    assert [own.is_used for own in found.devices] == [True, False]
    assert found.idle_percent == pytest.approx(20)


def test_hosts_are_averaged_over_devices_and_their_gaps_ranked_together(tmp_path: Path) -> None:
    fetch = event("IteratorGetNextOp::DoCompute", 0, 40)
    first = analyzed(tmp_path, cpu(fetch, event(CALL, 40, 60)), gpu((kernel(40, 60),)))
    second = analyzed(tmp_path, cpu(event(CALL, 0, 100)), gpu((kernel(0, 30), kernel(80, 20))))
    alone = analyzed(tmp_path, cpu(event(CALL, 0, 100)))
    found = idle.combine([second, first, alone])
    assert found.hosts == 3
    assert found.hosts_without_device == ("host",)
    assert [gap.length_ps / US for gap in found.gaps] == [50, 40]
    assert [found.percent("launch"), found.percent("input")] == pytest.approx([25, 20])
    assert idle.combine([first]) is first


def test_flagged_steps_count_in_no_share_but_are_listed(tmp_path: Path) -> None:
    """Five steps; the first takes six times as long, idle while it compiles."""
    marks = [event("train", 0, 600, step_num=0), *(event("train", 500 + 100 * n, 100, step_num=n) for n in range(1, 5))]
    work = [event(CALL, 0, 1000), event("tf.function-graph_building", 0, 500)]
    kernels = [kernel(500, 100), *(kernel(510 + 100 * n, 90) for n in range(1, 5))]
    found = analyzed(tmp_path, plane("/host:CPU", line("python", *marks, *work)), gpu(tuple(kernels)))
    assert found.percent("compile") == 0
    assert found.gaps[0].cause == "compile"
    assert found.gaps[0].flag
    assert found.idle_percent == pytest.approx(10)


def test_only_the_longest_gaps_are_listed_but_all_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle, "MOST_GAPS", 2)
    kernels = tuple(kernel(begin, 5) for begin in (0, 10, 30, 60))  # gaps of 5, 15, 25, 35
    found = analyzed(tmp_path, cpu(event(CALL, 0, 100)), gpu(kernels))
    assert [gap.length_ps / US for gap in found.gaps] == [35, 25]
    assert found.gap_count == 4
    assert times(found) == {"launch": 80}


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("cuStreamSynchronize", State.SYNC),
        ("hipStreamSynchronize", State.SYNC),
        ("MemcpyD2H", State.SYNC),
        ("cuMemcpyDtoHAsync_v2", State.SYNC),
        ("$ops.py:395 numpy", State.SYNC),
        ("cuEventQuery", State.NONE),
        ("MemcpyH2D", State.COPY),
        ("cuMemcpyHtoDAsync_v2", State.COPY),
        ("IteratorGetNext/_1:_Send", State.COPY),
        ("hipMemcpyDtoDAsync", State.LAUNCH),
        ("cuLaunchKernel", State.LAUNCH),
        ("hipModuleLaunchKernel", State.LAUNCH),
        ("cuModuleLoadData", State.COMPILE),
        ("PJRT_LoadedExecutable_Execute", State.LAUNCH),
        ("PjitFunction(f)", State.CALL),
        ("EagerExecute: MatMul", State.CALL),
        ("MemoryAllocation", State.NONE),
        ("Iterator::Root::Prefetch", State.NONE),
        ("MatMul:MatMul", State.COMPUTE),
        ("", State.OTHER),
        ("\x1b[31m" * 1000, State.OTHER),
    ],
)
def test_names_tell_states(name: str, state: State) -> None:
    assert state_of(name) == state


def test_input_wait_and_idle_agree_with_the_breakdown(tmp_path: Path) -> None:
    """Device time is the same in both, so idle is what the breakdown gives to the host."""
    fetch = line("tf_data_iterator_get_next/7", event("IteratorGetNextOp::DoCompute", 0, 40), id=2)
    planes = (cpu(event(CALL, 0, 90), more=(fetch,)), gpu((kernel(30, 50),), (event("MemcpyD2H", 70, 20),)))
    trace = trace_of(tmp_path, *planes)
    steps = find_steps(trace)
    found, parts = idle.analyze(trace, steps).devices[0], step_breakdown.analyze(trace, steps).time_ps
    device = parts["device_compute"] + parts["output"] + parts["device_to_device"] + parts["device_collectives"]
    assert found.busy_ps.tolist() == device.tolist()
    assert found.time_ps["input"].tolist() == parts["input_wait"].tolist() == [30 * US]


NAMES = (
    "IteratorGetNextOp::DoCompute", "MemcpyH2D", "A:A", "ExecutorState::Process", CALL, "cuStreamSynchronize", "other",
    "tf.function-graph_building",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(15))
def test_causes_add_up_for_random_events(tmp_path: Path, seed: int) -> None:
    """Compared with a count of moments: idle is where no kernel is, input where a fetch is and no launch began."""
    random = np.random.default_rng(seed)

    def some(count: int, names: tuple[str, ...], longest: int) -> list[Event]:
        begins = sorted(random.integers(0, 380, count).tolist())
        return [event(str(random.choice(names)), begin, int(random.integers(1, longest))) for begin in begins]

    threads = [line(f"tf_Compute/{n}", *some(12, NAMES, 40), id=n + 2) for n in range(3)]
    kernels = [some(15, ("gemm", "MemcpyH2D"), 20) for _ in range(2)]
    trace = trace_of(tmp_path, cpu(*some(6, (CALL,), 50), more=tuple(threads), steps=4), gpu(*map(tuple, kernels)))
    steps = find_steps(trace)
    found = idle.analyze(trace, steps)
    assert_adds_up(found)
    (own,) = found.devices
    assert sum(gap.length_ps for gap in found.gaps) == own.idle_ps.sum()
    moments = np.arange(400)
    busy, fetching = np.zeros((2, 400), np.bool_)
    for item in kernels[0] + kernels[1]:
        busy |= (moments >= item.start_us) & (moments < item.start_us + item.duration_us)
    for item in (item for thread in threads for item in thread.events if item.name == NAMES[0]):
        fetching |= (moments >= item.start_us) & (moments < item.start_us + item.duration_us)
    whole = own.window_ps.sum() // US
    assert own.busy_ps.sum() // US == busy[:whole].sum()
    assert own.time_ps["input"].sum() // US == (fetching & ~busy)[:whole].sum()


# --- real traces ---


def shared(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (SHARED / folder).rglob("*.xplane.pb"))


@pytest.mark.skipif(not SHARED.is_dir(), reason="the real traces are not here")
@pytest.mark.parametrize("path", shared("keras_rtx5000", "keras_t4", "gpu_8xV100_worker", "jax_mi300x"), ids=str)
def test_real_traces_add_up_and_agree_with_device_time(path: Path) -> None:
    trace = read_host(path)
    steps = find_steps(trace)
    found = idle.analyze(trace, steps)
    assert_adds_up(found)
    assert bool(found.devices) == bool(trace.devices)
    for own, device in zip(found.devices, device_times(trace), strict=True):
        begin, end = (steps.start_ps, steps.end_ps) if len(steps) else np.array([[device.start_ps], [device.end_ps]])
        assert (end - begin - own.idle_ps).tolist() == overlap(device.busy, begin, end).tolist()
    assert all(0 < gap.cause_ps <= gap.length_ps for gap in found.gaps)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the real traces are not here")
def test_real_jobs_wait_for_what_their_batch_size_suggests() -> None:
    """Small batches leave the device waiting for launches; the same model with large ones much less."""
    shares = {}
    for size in (8, 512):
        trace = read_host(next(path for path in shared("keras_rtx5000") if f"gpu_bs{size}-" in str(path)))
        found = idle.analyze(trace, find_steps(trace))
        assert found.ranked[0] == "launch"
        assert found.percent("unknown") == 0
        shares[size] = found.percent("launch")
    assert shares[8] > 2 * shares[512]


@pytest.mark.skipif(not SHARED.is_dir(), reason="the real traces are not here")
def test_a_real_worker_waits_for_input_longest() -> None:
    """BERT on a worker of a cluster: the one device at work in the step waits for its next batch; nobody's Python."""
    trace = read_host(shared("gpu_8xV100_worker")[0])
    found = idle.analyze(trace, find_steps(trace))
    (used,) = found.averaged
    gap = next(gap for gap in found.gaps if gap.device == used.device)
    assert (gap.cause, gap.event) == ("input", "IteratorGetNextAsOptionalOp::DoCompute")
    assert gap.thread.startswith("tf_data_iterator_get_next_as_optional")
    assert gap.length_ps > 10 * sorted(other.length_ps for other in found.gaps if other.device == used.device)[-2]
    assert found.no_main_thread
    assert found.percent("python") == 0
