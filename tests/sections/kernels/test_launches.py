"""Calls on the host and the kernels they launch. Times in microseconds."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import Event, Line, Plane, event, host, host_of, line, plane, trace_of, u64

from tfperf.sections.kernels.analysis import DeviceLaunches

US = 1_000_000


def call(id: int, start: float, duration: float = 5) -> Event:
    return event("cuLaunchKernel", start, duration, correlation_id=u64(id))


def kernel(id: int, start: float, duration: float) -> Event:
    return event("k", start, duration, correlation_id=u64(id))


def gpu(*lines: Line, number: int = 0) -> Plane:
    return plane(f"/device:GPU:{number}", *lines)


def launches_of(tmp_path: Path, *planes: Plane) -> tuple[DeviceLaunches, ...]:
    launches: tuple[DeviceLaunches, ...] = host_of(trace_of(tmp_path, *planes), "kernels")["kernels"].launches
    return launches


def test_delay_and_queue(tmp_path: Path) -> None:
    """Calls end at 5, 15 and 97; the second kernel waits 20 of its 25 us for the first, the third finds it idle."""
    stream = line("Stream #1", kernel(1, 10, 25), kernel(2, 40, 20), kernel(3, 100, 8))
    (device,) = launches_of(tmp_path, host(call(1, 0), call(2, 10), call(3, 92)), gpu(stream))
    assert (device.kernels, device.launches, device.unmatched_kernels) == (3, 3, 0)
    assert list(device.delay) == pytest.approx([5 * US, (5 + 0.9 * 20) * US, 25 * US])  # 3, 5, 25
    assert device.queued.max_ps == 20 * US
    assert device.unqueued_percent == pytest.approx(200 / 3)
    assert device.call.median_ps == 5 * US
    assert (device.early, device.before) == (0, 0)


def test_other_streams_make_no_queue(tmp_path: Path) -> None:
    streams = [line("Stream #1", kernel(1, 10, 100), id=1), line("Stream #2", kernel(2, 50, 10), id=2)]
    (device,) = launches_of(tmp_path, host(call(1, 0), call(2, 10)), gpu(*streams))
    assert device.queued.max_ps == 0


def test_a_kernel_may_start_before_its_call_returns_but_not_before_it_starts(tmp_path: Path) -> None:
    stream = line("Stream #1", kernel(1, 3, 10), kernel(2, 15, 10))
    (device,) = launches_of(tmp_path, host(call(1, 0), call(2, 20)), gpu(stream))
    assert (device.early, device.before) == (1, 1)
    assert device.delay.median_ps == -6 * US  # -2 and -10: not hidden


def test_devices_share_ids_and_have_their_own_rows(tmp_path: Path) -> None:
    calls = host(call(1, 0), call(2, 10), call(3, 20))
    first = gpu(line("Stream #1", kernel(1, 10, 5)))
    second = gpu(line("Stream #1", kernel(2, 20, 5), kernel(3, 30, 5)), number=1)
    devices = launches_of(tmp_path, calls, first, second)
    assert [(device.device, device.kernels, device.launches) for device in devices] == [
        ("GPU:0", 1, 1),
        ("GPU:1", 2, 2),
    ]


def test_a_graph_launches_many_kernels(tmp_path: Path) -> None:
    """One call of 5 us, three kernels: its delay is that of the first, and none is compared with the call."""
    stream = line("Stream #1", kernel(7, 10, 2), kernel(7, 13, 2), kernel(7, 16, 2))
    (device,) = launches_of(tmp_path, host(call(7, 0)), gpu(stream))
    assert (device.kernels, device.launches, device.unmatched_kernels) == (3, 1, 0)
    assert device.delay.max_ps == 5 * US
    assert device.shorter_than_call_percent is None


def test_ids_that_identify_no_call_are_left_out(tmp_path: Path) -> None:
    """Id 1 is used twice on the host, 0 is none, 9 has no call, and large ones count as any other."""
    large = (1 << 64) - 3
    calls = host(call(1, 0), call(1, 10), call(0, 20), call(large, 30))
    stream = line("Stream #1", *(kernel(id, 50 + 10 * at, 5) for at, id in enumerate((1, 0, 9, large))))
    (device,) = launches_of(tmp_path, calls, gpu(stream))
    assert (device.kernels, device.launches, device.unmatched_kernels) == (4, 1, 3)
    assert device.delay.median_ps == 45 * US


def test_tiny_kernels(tmp_path: Path) -> None:
    """Three of 4 us and one of 28: 75 % of the kernels, 30 % of the time; two are shorter than their call of 5."""
    calls = host(call(1, 0), call(2, 40), call(3, 80, 2), call(4, 120))
    stream = line("Stream #1", *(kernel(at + 1, 10 + 40 * at, duration) for at, duration in enumerate((4, 4, 4, 28))))
    (device,) = launches_of(tmp_path, calls, gpu(stream))
    assert device.tiny_kernel_percent == 75.0
    assert device.tiny_time_percent == 30.0
    assert device.shorter_than_call_percent == 50.0


def test_per_step(tmp_path: Path) -> None:
    """Steps of 100 us with 2, 2, 2 and 3 calls; copies are no kernels."""
    steps, calls, kernels = [], [], []
    for step in range(4):
        steps.append(event("train", 100 * step, 100, step_num=step))
        for at in range(2 + (step == 3)):
            calls.append(call(10 * step + at + 1, 100 * step + 10 * at, 4))
            kernels.append(kernel(10 * step + at + 1, 100 * step + 30 + 10 * at, 5))
        kernels.append(event("MemcpyH2D", 100 * step + 80, 5, correlation_id=u64(10 * step + 9)))
    (device,) = launches_of(tmp_path, host(*steps, *calls), gpu(line("Stream #1", *kernels)))
    assert (device.kernels, device.kernels_per_step, device.launches_per_step) == (9, 2, 2)
    assert device.call_ps_per_step == 8 * US


def test_without_calls_nothing_is_known_of_them(tmp_path: Path) -> None:
    (device,) = launches_of(tmp_path, gpu(line("Stream #1", event("k", 0, 5))))
    assert (device.launches, device.unmatched_kernels) == (0, 1)
    assert (device.delay.median_ps, device.unqueued_percent) == (None, None)
    assert (device.kernels_per_step, device.launches_per_step, device.call_ps_per_step) == (None, None, None)


def test_no_kernels_no_rows(tmp_path: Path) -> None:
    assert launches_of(tmp_path, host(call(1, 0)), gpu(line("Stream #1", event("MemcpyH2D", 0, 5)))) == ()


def test_durations_of_kernels(tmp_path: Path) -> None:
    stream = line("Stream #1", *(event("k", 100 * at, duration) for at, duration in enumerate((4, 2, 30))))
    (device,) = launches_of(tmp_path, gpu(stream))
    assert (device.kernel.median_ps, device.kernel.max_ps) == (4 * US, 30 * US)


@pytest.mark.parametrize(
    ("threads", "mode"),
    [
        (("tf_gpu_private_0/77", "tf_Compute/5"), "gpu_private"),
        (("tf_gpu_shared/77",), "gpu_shared"),
        (("tf_Compute/5", "python"), "global"),
        (("python",), None),
    ],
)
def test_the_threads_tell_the_thread_mode(tmp_path: Path, threads: tuple[str, ...], mode: str | None) -> None:
    """Each thread launches a kernel."""
    lines = [line(name, call(at + 1, 10 * at), id=at + 1) for at, name in enumerate(threads)]
    kernels = line("Stream #1", *(kernel(at + 1, 100 + 10 * at, 5) for at in range(len(threads))))
    (device,) = launches_of(tmp_path, plane("/host:CPU", *lines), gpu(kernels))
    assert device.thread_mode == mode


def test_threads_that_launch_nothing_are_no_evidence_of_the_default(tmp_path: Path) -> None:
    """Ops of the CPU run on the pool `Compute` in every mode."""
    lines = line("tf_Compute/5", event("a:Cast", 0, 5), id=1), line("python", call(1, 10), id=2)
    (device,) = launches_of(tmp_path, plane("/host:CPU", *lines), gpu(line("Stream #1", kernel(1, 20, 5))))
    assert device.thread_mode is None
