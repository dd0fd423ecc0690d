from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from builders import Plane, event, gpu, host, line, plane, ref, trace_of

from tfperf.base.arrays import Intervals, group_equal, group_sums
from tfperf.trace.device.device_work import DeviceOp, DeviceTime, computing, device_times, device_work
from tfperf.trace.host.activities import Activity
from tfperf.trace.host_trace import HostTrace


def ops_of(trace: HostTrace) -> list[DeviceOp | None]:
    """The op of each event, in the order of the trace."""
    work = device_work(trace)
    return [work.ops[at] if at >= 0 else None for at in work.op.tolist()]


def test_the_op_is_named_in_different_stats(tmp_path: Path) -> None:
    made = gpu(
        event("k", 0, 5, tf_op=ref("a/MatMul:MatMul")),
        event("k", 10, 5, **{"level 0": ref("b/Conv2D:Conv2D")}),
        event("k", 20, 5, hlo_op=ref("fusion.1"), hlo_module=ref("jit_f")),
        event("k", 30, 5),
        event("k", 40, 5, tf_op=ref("XlaModule:#hlo_module=f#")),
    )
    assert ops_of(trace_of(tmp_path, made)) == [
        DeviceOp("a/MatMul", "MatMul"),
        DeviceOp("b/Conv2D", "Conv2D"),
        DeviceOp("fusion.1", "HLO op", "fusion.1", "jit_f"),
        None,
        None,
    ]


def test_the_annotation_names_the_op_where_nothing_else_does(tmp_path: Path) -> None:
    """Its first name, without what is behind #; a copy on an edge of the graph has none."""
    made = gpu(
        event("k", 0, 5, annotation=ref("a/MatMul:MatMul#shape=(float[2])#::#edge_name=e#")),
        event("k", 10, 5, annotation=ref("outer/Add:AddV2::inner")),
        event("k", 20, 5, annotation=ref("#edge_name=e#")),
    )
    assert ops_of(trace_of(tmp_path, made)) == [DeviceOp("a/MatMul", "MatMul"), DeviceOp("outer/Add", "AddV2"), None]


def test_every_recorded_event_has_a_row(tmp_path: Path) -> None:
    """Two devices, copies, a fill; derived lines and the host have none."""
    one = plane(
        "/device:GPU:0",
        line("Stream #1", event("k", 0, 5), event("Memset", 10, 5), id=1),
        line("Stream #2", event("MemcpyD2H", 0, 5), id=2),
        line("TensorFlow Ops", event("x", 0, 9), id=-559038734),
    )
    trace = trace_of(tmp_path, host(event("f", 0, 100)), one, gpu(event("ncclAllReduce", 20, 5), number=1))
    work = device_work(trace)
    assert [trace.names[at] for at in trace.name[work.rows]] == ["k", "Memset", "MemcpyD2H", "ncclAllReduce"]
    assert [trace.planes[at].name[-1] for at in work.plane] == ["0", "0", "0", "1"]
    assert [trace.lines[at].name for at in work.line] == ["Stream #1", "Stream #1", "Stream #2", "Stream #1"]
    assert work.moves.tolist() == [False, True, True, False]
    assert work.is_memset.tolist() == [False, True, False, False]
    assert work.activity[2:].tolist() == [Activity.DEVICE_TO_HOST, Activity.COLLECTIVES]


def test_no_gpu_no_work(tmp_path: Path) -> None:
    work = device_work(trace_of(tmp_path, host(event("f", 0, 10))))
    assert (len(work.rows), len(work.moves), work.ops) == (0, 0, ())


@pytest.mark.parametrize("largest", [3, 1 << 61])
def test_equal_rows_come_together(largest: int) -> None:
    """As `numpy.unique` does it; large numbers do not fit into one and go another way."""
    rng = np.random.default_rng(1)
    columns = [rng.integers(-largest, largest, 500), rng.integers(-1, 3, 500)]
    columns[0][::3] = columns[0][0]
    order, starts = group_equal(columns)
    expected = np.unique(np.stack(columns, axis=1), axis=0)
    assert np.array_equal(np.stack([column[order[starts]] for column in columns], axis=1), expected)
    assert sorted(order.tolist()) == list(range(500))


def test_sums_per_group_are_exact_until_they_are_impossible() -> None:
    column = np.array([1, 0, 1, 1], np.int64)
    assert list(group_sums(np.array([5, 7, 1, (1 << 53) + 1], np.int64), [column])) == [
        ([0], (1, 7, 7, 7)),
        ([1], (3, (1 << 53) + 7, 1, (1 << 53) + 1)),
    ]
    ((_, sums),) = group_sums(np.full(4, 1 << 61, np.int64), [np.zeros(4, np.int64)])
    assert sums == (4, 1 << 62, 1 << 61, 1 << 61)
    assert list(group_sums(np.empty(0, np.int64), [np.empty(0, np.int64)])) == []


# --- when a device is busy, with several streams, devices and copies beside kernels. Times in microseconds ---

US = 1_000_000


def times(tmp_path: Path, *planes: Plane) -> tuple[DeviceTime, ...]:
    return device_times(trace_of(tmp_path, *planes))


def in_us(device: DeviceTime) -> tuple[float, float, float, float]:
    """Compute, copies alone, idle, wall."""
    return device.compute.total() / US, device.copies_alone_ps / US, device.idle_ps / US, device.wall_ps / US


def test_streams_are_united_and_copies_beside_kernels_hide(tmp_path: Path) -> None:
    """Kernels 10-30 and 20-50 overlap; a copy 40-60 has 10 us for itself; the host is there from 0 to 100."""
    each = (event("a", 10, 20), event("b", 20, 30), event("MemcpyH2D", 40, 20))
    streams = [line(f"Stream #{number}", made, id=number) for number, made in enumerate(each, 1)]
    (device,) = times(tmp_path, host(event("f", 0, 100)), plane("/device:GPU:0", *streams))
    assert in_us(device) == (40, 10, 50, 100)
    assert (device.kernel_sum_ps, device.copies.total()) == (50 * US, 20 * US)


def test_compute_copies_and_idle_always_add_up(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    lines = [
        line(
            f"Stream #{n}",
            *(
                event(str(rng.choice(["k", "MemcpyD2H", "Memset"])), float(at), float(length))
                for at, length in zip(rng.integers(0, 900, 40), rng.integers(1, 60, 40), strict=True)
            ),
            id=n + 1,
        )
        for n in range(5)
    ]
    (device,) = times(tmp_path, host(event("f", 0, 1000)), plane("/device:GPU:0", *lines))
    assert device.compute.total() + device.copies_alone_ps + device.idle_ps == device.wall_ps == 1000 * US
    assert device.kernel_sum_ps > device.compute.total()


def test_each_device_has_the_whole_capture(tmp_path: Path) -> None:
    """Two devices, one of which only copies; an empty plane is no device."""
    planes = (gpu(event("k", 50, 100)), gpu(event("MemcpyD2D", 250, 50), number=1), plane("/device:GPU:2"))
    one, other = times(tmp_path, *planes)
    assert (one.name, in_us(one)) == ("/device:GPU:0", (100, 0, 150, 250))
    assert (other.name, in_us(other)) == ("/device:GPU:1", (0, 50, 200, 250))


def test_devices_compute_in_the_capture_or_in_steps(tmp_path: Path) -> None:
    planes = (gpu(event("k", 50, 100)), gpu(event("MemcpyD2D", 250, 50), number=1), gpu(event("k", 200, 9), number=2))
    one, copying, other = devices = times(tmp_path, *planes)
    assert computing(devices) == (one, other)
    assert computing(devices, Intervals(np.array([140 * US]), np.array([190 * US]))) == (one,)
    assert computing((copying,)) == (copying,)


def test_collectives_are_not_compute(tmp_path: Path) -> None:
    """An all-reduce 20-60 overlaps a kernel 10-30 for 10 us, and a copy 50-70 for 10 us."""
    each = (
        event("k", 10, 20),
        event("ncclDevKernel_AllReduce_Sum_f32_RING_LL(Args)", 20, 40),
        event("MemcpyH2D", 50, 20),
    )
    streams = [line(f"Stream #{number}", made, id=number) for number, made in enumerate(each, 1)]
    (device,) = times(tmp_path, host(event("f", 0, 100)), plane("/device:GPU:0", *streams))
    assert in_us(device) == (20, 10, 40, 100)
    assert (device.collectives.total(), device.collectives_alone_ps) == (40 * US, 30 * US)
    assert device.kernel_sum_ps == 60 * US


def test_derived_lines_are_no_work(tmp_path: Path) -> None:
    derived = line("TensorFlow Ops", event("MatMul", 0, 100), id=-559038734)
    (device,) = times(tmp_path, plane("/device:GPU:0", line("Stream #1", event("k", 10, 10), id=1), derived))
    assert in_us(device) == (10, 0, 90, 100)


def test_copies_and_fills_of_any_spelling_are_no_kernels(tmp_path: Path) -> None:
    names = ["MemcpyUnknown", "Memset (Device)", "hipMemsetAsync", "Memcpy HtoD (Pageable -> Device)", "MEMCPYDTOH"]
    made = [event(name, 10 * at, 10) for at, name in enumerate(names)]
    (device,) = times(tmp_path, gpu(*made, event("memcopy_fusion", 60, 10)))
    assert in_us(device) == (10, 50, 10, 70)


def test_a_tpu_computes_on_its_op_lines(tmp_path: Path) -> None:
    """Ops nest, so their sum means nothing; other lines repeat them."""
    tpu = plane(
        "/device:TPU:0",
        line("XLA Modules", event("m", 0, 100), id=1),
        line("XLA Ops", event("while", 10, 50), event("fusion", 20, 10), event("copy", 65, 5), id=2),
    )
    (device,) = times(tmp_path, tpu)
    assert in_us(device) == (55, 0, 5, 60)  # from the first to the last op: starting the profiler is no idle time
    assert device.kernel_sum_ps == 55 * US


def test_a_device_without_any_duration_has_no_capture(tmp_path: Path) -> None:
    """Events of no duration are not kept, so nothing is."""
    (device,) = times(tmp_path, gpu(event("marker", 10, 0)))
    assert in_us(device) == (0, 0, 0, 0)
    assert times(tmp_path, host(event("f", 0, 10)), plane("/device:GPU:0")) == (), "no device"
