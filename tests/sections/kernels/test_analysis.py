"""Kernels by op and launch, devices, copies, launches and precision. Times in microseconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import (
    Event,
    Plane,
    event,
    gpu,
    host,
    host_of,
    line,
    logdir_of,
    marks,
    plane,
    programs,
    read_back,
    ref,
    result_of,
    rows_of,
    space,
    trace_of,
    u64,
)
from hlo_builders import F32, computation, instruction, program, shape
from msgspec.structs import astuple
from protobytes import field, message

from tfperf.sections.kernels.analysis import (
    DeviceLaunches,
    DevicePrecision,
    Kernels,
    any_has,
    combine,
    compute_capability,
    has_tensor_cores,
)
from tfperf.trace import host_trace
from tfperf.trace.host.activities import Attribution
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.read import read_host

US = 1_000_000
TURING = {"compute_cap_major": 7, "compute_cap_minor": 5}


def kernel(name: str, start: float, duration: float, op: str = "a/MatMul:MatMul") -> Event:
    return event(name, start, duration, **({"tf_op": ref(op)} if op else {}))


def kernels_of(tmp_path: Path, *planes: Plane, attribution: Attribution = "corrected") -> Kernels:
    kernels: Kernels = result_of(tmp_path, "kernels", *planes, attribution=attribution)
    return kernels


def rows(kernels: Kernels, *keys: str) -> list[tuple[Any, ...]]:
    return rows_of(kernels.columns(), *keys)


def test_devices_and_streams_share_rows(tmp_path: Path) -> None:
    """Two streams at the same time, and a second device: 40 us of kernels, ranked by the sum."""
    two_streams = plane(
        "/device:GPU:0",
        line("Stream #1", kernel("a", 0, 10), kernel("b", 20, 15), id=1),
        line("Stream #2", kernel("a", 5, 10), id=2),
        line("TensorFlow Ops", event("x", 0, 90), id=-559038734),
    )
    kernels = kernels_of(tmp_path, two_streams, gpu(kernel("a", 0, 5), number=1))
    assert rows(kernels, "kernel", "occurrences", "total_us") == [("a", 3, 25), ("b", 1, 15)]
    assert kernels.table["percent"].tolist() == pytest.approx([62.5, 37.5])
    first, second = kernels.devices
    assert (first.compute_ps, first.kernel_sum_ps) == (30 * US, 35 * US)  # 0-15 and 20-35
    assert first.kernel_sum_ps + second.kernel_sum_ps == kernels.whole_ps
    assert first.compute_ps + first.copies_alone_ps + first.idle_ps == first.wall_ps


def test_by_name_adds_up_launches(tmp_path: Path) -> None:
    events = kernel("void f<int>(int)", 0, 10), kernel("void f<float>(float)", 10, 20), kernel("g", 30, 10)
    assert kernels_of(tmp_path, gpu(*events)).by_name() == {
        "kernel": ["f", "g"],
        "occurrences": [2, 1],
        "total_ms": [0.03, 0.01],
        "percent": [75.0, 25.0],
        "mean_us": [15.0, 10.0],
        "median_us": [15.0, 10.0],
        "stdev_us": [pytest.approx(50**0.5), None],  # of 10 and 20: the root of (25 + 25) / 1
    }


def test_median_and_standard_deviation(tmp_path: Path) -> None:
    """Runs of 10, 20, 60 and 30 us on two devices: median 25, mean 30, squared differences 400 + 100 + 900 + 0."""
    first, second = gpu(kernel("k", 0, 10), kernel("k", 20, 20)), gpu(kernel("k", 0, 60), kernel("k", 70, 30), number=1)
    one = kernels_of(tmp_path, first, second)
    assert rows(one, "median_us", "stdev_us") == [(25, pytest.approx((1400 / 3) ** 0.5))]
    # Two hosts with the same runs have the same median; with others, it is unknown. The deviation adds up exactly.
    keys = ("median_us", "stdev_us", "occurrences")
    assert rows(combine([one, one]), *keys) == [(25, pytest.approx((2800 / 7) ** 0.5), 8)]
    other = kernels_of(tmp_path, gpu(kernel("k", 0, 50)))
    # Of 10, 20, 60, 30 and 50: mean 34, squared differences 576 + 196 + 676 + 16 + 256 = 1720.
    assert rows(combine([one, other]), *keys) == [(None, pytest.approx((1720 / 4) ** 0.5), 5)]
    assert combine([one, other]).by_name()["median_us"] == [None]
    assert combine([one, other]).by_name()["stdev_us"] == [pytest.approx((1720 / 4) ** 0.5)]


def test_api_calls_by_function_and_thread(tmp_path: Path) -> None:
    """Steps from 0 to 100 and 100 to 200; a synchronization inside an op in each, and one after all steps."""
    launching = line(
        "pool/1",
        event("Where:Where", 10, 60),
        event("cuStreamSynchronize", 20, 40),
        event("gemm", 80, 5, correlation_id=1),
        event("cuStreamSynchronize", 120, 20),
        id=2,
    )
    other = line("pool/2", event("cuStreamSynchronize", 250, 30), id=3)
    main = line("python", *marks(2), id=1)
    kernels = kernels_of(
        tmp_path, plane("/host:CPU", main, launching, other), gpu(event("gemm", 90, 5, correlation_id=1))
    )
    sync, launch = kernels.api_calls
    assert (sync.call, sync.kind, sync.thread, sync.threads, sync.count) == (
        "cuStreamSynchronize",
        "synchronize",
        "pool",
        2,
        3,
    )
    assert (sync.total_ps, sync.median_ps, sync.max_ps) == (90 * US, 30 * US, 40 * US)
    assert (sync.steps, sync.in_steps, sync.in_steps_ps, sync.outside) == (2, 2, 60 * US, 1)
    assert (sync.caller, launch.caller) == ("Where:Where", None)
    assert (launch.call, launch.kind, launch.count, launch.total_ps) == ("(kernel launch)", "launch", 1, 5 * US)
    assert kernels_of(tmp_path, gpu(kernel("k", 0, 5))).api_calls == ()


def test_families_add_up_kernels_and_programs_decide(tmp_path: Path) -> None:
    """A cast in a fusion is elementwise by its program; without the program its name does not show it."""
    array = shape(F32, 8)
    fused = computation(
        "f", instruction(1, "p", "parameter", array), instruction(2, "c", "convert", array, [1]), number=2, root=2
    )
    fusion = instruction(2, "fusion.1", "fusion", array, [1], calls=[2])
    made = program(computation("main", instruction(1, "p", "parameter", array), fusion, root=2), fused)
    cast = event("fusion_1", 50, 5, hlo_op=ref("fusion.1"), hlo_module=ref("jit_step"), program_id=7)
    events = kernel("nvjet_sm90_tst", 0, 20), kernel("volta_sgemm_nn", 20, 10), kernel("nchwToNhwcKernel", 30, 10), cast
    host = host_of(trace_of(tmp_path, gpu(*events), programs(id_7=made)), "xla", "kernels")
    assert host["kernels"].by_family(host["xla"].ops) == {
        "family": ["product", "copy", "elementwise"],
        "occurrences": [2, 1, 1],
        "total_ms": [0.03, 0.01, 0.005],
        "percent": pytest.approx([100 * 30 / 45, 100 * 10 / 45, 100 * 5 / 45]),
        "kernel": ["nvjet_sm90_tst", "nchwToNhwcKernel", "fusion_1"],
    }
    assert host["kernels"].by_family()["family"] == ["product", "copy", "other"]


def test_ops_that_miss_tensor_cores(tmp_path: Path) -> None:
    """`a` never uses them; `b` does in one of its kernels; of `c` the name does not tell; `d` could not."""
    kernels = kernels_of(
        tmp_path,
        gpu(
            kernel("volta_sgemm_128x64_nt", 0, 30),
            kernel("splitKreduce_kernel", 30, 10),
            kernel("ampere_fp16_s16816gemm_fp16_64x64", 40, 20, op="b:MatMul"),
            kernel("splitKreduce_kernel", 60, 5, op="b:MatMul"),
            kernel("matmul_kernel", 70, 8, op="c:MatMul"),
            kernel("relu_kernel", 80, 7, op="d:Relu"),
            compute_cap_major=8,
            compute_cap_minor=0,
        ),
    )
    assert kernels.missed_tensor_cores() == {"a/MatMul": 40 * US}
    assert kernels.time_by_tensor_cores_ps(True) == 20 * US
    assert kernels.time_by_tensor_cores_ps(None) == 8 * US
    assert kernels.time_by_tensor_cores_ps(False) == 52 * US
    assert kernels.has_tensor_cores is True


def test_hosts_are_merged(tmp_path: Path) -> None:
    """The same kernel on two hosts is one row: counts and times add up, least of least, most of most."""
    events = {"one": [kernel("k", 0, 10), kernel("k", 20, 30)], "two": [kernel("k", 0, 15), kernel("x", 20, 60)]}
    logdir = logdir_of(tmp_path, **{name: space(gpu(*events[name])) for name in events})
    parts = [host_of(read_host(next(logdir.rglob(f"{name}.xplane.pb")), name), "kernels")["kernels"] for name in events]
    kernels = combine(parts)
    keys = ("kernel", "occurrences", "total_us", "min_us", "max_us")
    assert rows(kernels, *keys) == [("x", 1, 60, 60, 60), ("k", 3, 55, 10, 30)]
    assert [(device.host, device.device) for device in kernels.devices] == [("one", "GPU:0"), ("two", "GPU:0")]
    assert [device.host for device in kernels.launches] == ["one", "two"]


def test_the_result_of_a_host_without_device_is_empty(tmp_path: Path) -> None:
    kernels = kernels_of(tmp_path, host(event("f", 0, 10)))
    assert (len(kernels), kernels.devices, kernels.has_tensor_cores, kernels.table.empty) == (0, (), None, True)
    old = kernels_of(tmp_path, gpu(kernel("k", 0, 10), compute_cap_major=6, compute_cap_minor=1))
    assert old.has_tensor_cores is combine([old, kernels]).has_tensor_cores is False


def test_devices_may_run_no_kernels(tmp_path: Path) -> None:
    kernels = kernels_of(tmp_path, host(*marks(1), call(1, 0)), gpu(event("MemcpyH2D", 0, 10)))
    assert (len(kernels), kernels.launches, kernels.has_tensor_cores) == (0, (), None)
    assert kernels.precision == ()
    assert all(values == [] for values in kernels.columns().values())
    assert kernels.by_name()["kernel"] == []
    assert len(combine([kernels, kernels])) == 0


@pytest.mark.parametrize("attribution", ["corrected", "tensorflow"])
def test_nonsense_does_no_harm(tmp_path: Path, attribution: Attribution) -> None:
    duration = 12 * 86400 * 1e6  # each lasts 12 days
    first = event("", 0, duration, kernel_details="\0 :::", tf_op=":", memcpy_details="size:" + "9" * 400)
    second = event("Memcpy\x1b[2J", 0, duration, memcpy_details="size:9" + "0" * 17)
    streams = [line(f"Stream #{number}", first, second, id=number) for number in range(1, 13)]
    stats = {"compute_cap_major": "x", "compute_cap_minor": 2.5}
    kernels = kernels_of(tmp_path, plane("/device:GPU:0", *streams, stats=stats), attribution=attribution)
    assert kernels.whole_ps <= 1 << 62
    assert [copies.kind for copies in kernels.copies] == ["Unknown"]
    assert kernels.devices[0].wall_ps == kernels.devices[0].compute_ps


# --- a kernel by op and launch is one row ---


DETAILS = "regs:32 static_shared:1024 dynamic_shared:0 grid:{},1,1 block:256,1,1 occ_pct:50"
OLD_DETAILS = "regs:32 shm:4096 grid:{},1,1 block:256,1,1"


def launched(name: str, start: float, duration: float, op: str = "a/MatMul:MatMul", grid: int = 8) -> Event:
    """A kernel as writers of today note it."""
    return event(name, start, duration, tf_op=ref(op), kernel_details=ref(DETAILS.format(grid)))


def launched_2020(name: str, start: float, duration: float, op: str, grid: int = 8) -> Event:
    stats = {"level 0": ref(op), "kernel_details": ref(OLD_DETAILS.format(grid)), "group_id": 0}
    return event(name, start, duration, **stats)


def test_a_row_is_a_kernel_an_op_and_a_launch(tmp_path: Path) -> None:
    gemms = launched("gemm", 0, 10), launched("gemm", 10, 20), launched("gemm", 30, 5, grid=4)
    others = launched("gemm", 40, 4, op="b/MatMul:MatMul"), launched("bias", 50, 3)
    kernels = kernels_of(tmp_path, gpu(*gemms, *others))
    keys = ("rank", "kernel", "op_name", "grid_dim", "occurrences", "total_us", "mean_us", "min_us", "max_us")
    assert rows(kernels, *keys) == [
        (1, "gemm", "a/MatMul", "8,1,1", 2, 30, 15, 10, 20),
        (2, "gemm", "a/MatMul", "4,1,1", 1, 5, 5, 5, 5),
        (3, "gemm", "b/MatMul", "8,1,1", 1, 4, 4, 4, 4),
        (4, "bias", "a/MatMul", "8,1,1", 1, 3, 3, 3, 3),
    ]
    sizes = ("registers_per_thread", "static_shared_bytes", "dynamic_shared_bytes", "shared_bytes", "block_dim")
    assert rows(kernels, *sizes, "occupancy_percent")[0] == (32, 1024, 0, 1024, "256,1,1", 50.0)


def test_kernels_without_details_or_op_count_and_copies_do_not(tmp_path: Path) -> None:
    events = [event("lonely", 0, 10), event("ncclAllReduce", 10, 5), event("MemcpyH2D", 20, 9)]
    kernels = kernels_of(tmp_path, gpu(*events))
    keys = ("kernel_name", "op_name", "grid_dim", "registers_per_thread", "shared_bytes", "occupancy_percent")
    assert rows(kernels, *keys, "is_op_tensor_core_eligible") == [
        ("lonely", None, None, None, None, None, None),
        ("ncclAllReduce", None, None, None, None, None, None),
    ]


def test_xla_shows_both_ops(tmp_path: Path) -> None:
    ops = {"hlo_op": ref("gemm_fusion_dot.1"), "hlo_module": ref("jit_f"), "tf_op": ref("model/dense/MatMul:MatMul")}
    kernels = kernels_of(tmp_path, gpu(event("gemm_fusion_dot_1", 0, 10, **ops)))
    keys = ("op_name", "op_type", "hlo_op", "hlo_module", "is_op_tensor_core_eligible", "is_kernel_using_tensor_core")
    assert rows(kernels, *keys) == [("model/dense/MatMul", "MatMul", "gemm_fusion_dot.1", "jit_f", True, None)]


def test_old_files_hold_shared_memory_as_one_number(tmp_path: Path) -> None:
    """32 registers, 256 threads and 4 KiB on a Volta: eight blocks fit."""
    volta = gpu(launched_2020("k", 0, 10, "a/b:Relu"), compute_cap_major=7, compute_cap_minor=0)
    keys = ("static_shared_bytes", "dynamic_shared_bytes", "shared_bytes", "occupancy_percent", "op_type")
    assert rows(kernels_of(tmp_path, volta), *keys) == [(None, None, 4096, 100.0, "Relu")]


def test_occupancy_is_unknown_where_devices_differ(tmp_path: Path) -> None:
    """Both hold all of 32 registers; of 64, one holds 32 of 64 warps, the other 32 of 48."""
    few_registers, many_registers = (OLD_DETAILS.replace("regs:32", f"regs:{count}").format(8) for count in (32, 64))
    for details, percent in ((few_registers, 100.0), (many_registers, None)):
        run = event("k", 0, 10, kernel_details=ref(details))
        devices = [gpu(run, number=minor, compute_cap_major=8, compute_cap_minor=minor) for minor in (0, 6)]
        assert rows(kernels_of(tmp_path, *devices), "occurrences", "occupancy_percent") == [(2, percent)]


def test_an_einsum_is_judged_by_its_equation(tmp_path: Path) -> None:
    product = event("sgemm", 0, 20, tf_op=ref("e0:Einsum"), equation=ref("ab,bc->ac"))
    transpose = event("sgemm", 20, 10, tf_op=ref("e1:Einsum"), equation=ref("ab->ba"))
    kernels = kernels_of(tmp_path, host(*marks(1)), gpu(product, transpose, **TURING))
    assert rows(kernels, "is_op_tensor_core_eligible") == [(True,), (False,)]
    assert kernels.precision[0].most_eligible_percent == 20


# --- as TensorFlow's own profiler adds them up ---


def tensorflow_rows(trace: HostTrace, *keys: str, attribution: Attribution = "tensorflow") -> list[tuple[Any, ...]]:
    return rows(host_of(trace, "kernels", attribution=attribution)["kernels"], *keys)


def test_kernels_with_details_count_in_whole_nanoseconds(tmp_path: Path) -> None:
    """Two of 1.0009 us are 2 us there; without details a kernel does not count."""
    lonely = event("lonely", 20, 5, tf_op=ref("a:Relu"))
    trace = trace_of(tmp_path, gpu(launched("s884", 0, 1.0009), launched("s884", 10, 1.0009), lonely), links=True)
    keys = ("kernel_name", "op_name", "total_us", "is_kernel_using_tensor_core", "is_op_tensor_core_eligible")
    assert tensorflow_rows(trace, *keys, "grid_dim", "registers_per_thread", "shared_bytes") == [
        ("s884", "a/MatMul", 2.0, True, True, "8,1,1", 32, 1024)
    ]


def test_tensorflow_of_2020_cannot_read_launches_and_merges_them(tmp_path: Path) -> None:
    """Its grammar of names knows no `-`; its list of kernels knows no s884 of Turing."""
    op = "a/MaxPool-0-Transpose:Transpose"
    first, second = (launched_2020("turing_fp16_s884gemm", 10 * at, 5, op, grid=8 + at) for at in (0, 1))
    trace = trace_of(tmp_path, gpu(first, second), links=True)
    keys = ("op_name", "occurrences", "grid_dim", "block_dim", "registers_per_thread", "shared_bytes")
    assert tensorflow_rows(trace, *keys, "is_kernel_using_tensor_core") == [(op, 2, "1,1,1", "1,1,1", 0, 0, False)]
    corrected = ("op_name", "occurrences", "grid_dim", "is_kernel_using_tensor_core")
    assert tensorflow_rows(trace, *corrected, attribution="corrected") == [
        ("a/MaxPool-0-Transpose", 1, "8,1,1", True),
        ("a/MaxPool-0-Transpose", 1, "9,1,1", True),
    ]


def test_tensorflow_of_today_reads_neither_shm_nor_level_0(tmp_path: Path) -> None:
    stats = {"level 0": ref("a:MatMul"), "kernel_details": ref(OLD_DETAILS.format(8))}
    trace = trace_of(tmp_path, gpu(event("k", 0, 5, **stats)), links=True)
    assert tensorflow_rows(trace, "op_name", "grid_dim", "shared_bytes") == [(None, "8,1,1", 0)]


def metadata_plane() -> bytes:
    """A program with id 7, whose `dot.1` was made from `model/dense/MatMul`."""
    source = field(7, message(field(1, b"MatMul"), field(2, b"model/dense/MatMul")))
    dot = field(2, message(field(1, b"dot.1"), field(2, b"dot"), source))
    program = field(1, message(field(1, b"jit_f"), field(3, message(field(1, b"main"), dot))))
    stat = field(5, message(field(1, 1), field(6, program)))
    event_name = field(4, message(field(1, 7), field(2, message(field(2, b"jit_f(7)"), stat))))
    stat_name = field(5, message(field(1, 1), field(2, message(field(1, 1), field(2, b"Hlo Proto")))))
    return field(1, message(field(2, b"/host:metadata"), event_name, stat_name))


@pytest.mark.parametrize(
    ("attribution", "expected"),
    [
        ("tensorflow", [("model/dense/MatMul", None, True), (None, None, False)]),
        ("corrected", [("model/dense/MatMul", "dot.1", True), ("loop.9", "loop.9", False)]),
    ],
)
def test_programs_name_the_op_of_an_hlo_op(
    tmp_path: Path, attribution: Attribution, expected: list[tuple[Any, ...]]
) -> None:
    first, second = (
        event("k", 10 * at, 9 - at, hlo_op=ref(f"main::{op}"), program_id=7, kernel_details=ref(DETAILS.format(8)))
        for at, op in enumerate(("dot.1", "loop.9"))
    )
    trace = read_back(tmp_path, space(gpu(first, second)) + metadata_plane(), links=True)
    keys = ("op_name", "hlo_op", "is_op_tensor_core_eligible")
    assert tensorflow_rows(trace, *keys, attribution=attribution) == expected


def test_kernels_are_ordered_by_total_then_name_then_launch(tmp_path: Path) -> None:
    events = launched("b", 0, 5), launched("a", 10, 5, grid=10), launched("a", 20, 5, grid=9), launched("c", 30, 6)
    trace = trace_of(tmp_path, gpu(*events), links=True)
    assert tensorflow_rows(trace, "kernel", "grid_dim") == [
        ("c", "8,1,1"),
        ("a", "9,1,1"),
        ("a", "10,1,1"),
        ("b", "8,1,1"),
    ]


# --- devices and their copies ---


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
    device = host_trace.Plane(id=0, name="/device:GPU:0", kind="gpu", stats=stats, event_count=1)
    assert compute_capability(device) == capability
    assert has_tensor_cores(device) is has


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
    copies = kernels_of(tmp_path, first, second).copies
    assert [(row.device, row.kind, row.count, row.total_bytes, row.gb_per_second, row.memory) for row in copies] == [
        ("GPU:0", "H2D", 2, 80000, 4.0, "pageable"),
        ("GPU:0", "D2H", 1, 8000, 2.0, "pinned"),
        ("GPU:0", "P2P", 1, 16000, 4.0, None),
        ("GPU:0", "Memset", 1, 4000, 2.0, None),
        ("GPU:1", "D2D", 2, None, 1.0, None),
        ("GPU:1", "Unknown", 1, None, None, None),
    ]
    assert [row.mean_bytes for row in copies] == [40000, 8000, 16000, 4000, 2000, None]


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
    (copies,) = kernels_of(tmp_path, gpu(event(name, 0, 5, memcpy_details=ref(details)))).copies
    assert copies.kind == kind


# --- calls on the host and the kernels they launch ---


def call(id: int, start: float, duration: float = 5) -> Event:
    return event("cuLaunchKernel", start, duration, correlation_id=u64(id))


def called(id: int, start: float, duration: float) -> Event:
    return event("k", start, duration, correlation_id=u64(id))


def launches(tmp_path: Path, *planes: Plane) -> DeviceLaunches:
    (device,) = kernels_of(tmp_path, *planes).launches
    return device


def test_delay_and_queue(tmp_path: Path) -> None:
    """Calls end at 5, 15 and 97; the second kernel waits 20 of its 25 us for the first, the third finds it idle."""
    stream = gpu(called(1, 10, 25), called(2, 40, 20), called(3, 100, 8))
    device = launches(tmp_path, host(call(1, 0), call(2, 10), call(3, 92)), stream)
    assert (device.kernels, device.launches, device.unmatched_kernels) == (3, 3, 0)
    assert astuple(device.delay) == pytest.approx((5 * US, (5 + 0.9 * 20) * US, 25 * US))  # 3, 5, 25
    assert device.queued.max_ps == 20 * US
    assert device.unqueued_percent == pytest.approx(200 / 3)
    assert device.call.median_ps == 5 * US
    assert (device.early, device.before) == (0, 0)


def test_other_streams_make_no_queue(tmp_path: Path) -> None:
    streams = [line("Stream #1", called(1, 10, 100), id=1), line("Stream #2", called(2, 50, 10), id=2)]
    device = launches(tmp_path, host(call(1, 0), call(2, 10)), plane("/device:GPU:0", *streams))
    assert device.queued.max_ps == 0


def test_a_kernel_may_start_before_its_call_returns_but_not_before_it_starts(tmp_path: Path) -> None:
    stream = gpu(called(1, 3, 10), called(2, 15, 10))
    device = launches(tmp_path, host(call(1, 0), call(2, 20)), stream)
    assert (device.early, device.before) == (1, 1)
    assert device.delay.median_ps == -6 * US  # -2 and -10: not hidden


def test_devices_share_ids_and_have_their_own_rows(tmp_path: Path) -> None:
    calls = host(call(1, 0), call(2, 10), call(3, 20))
    first = gpu(called(1, 10, 5))
    second = gpu(called(2, 20, 5), called(3, 30, 5), number=1)
    devices = kernels_of(tmp_path, calls, first, second).launches
    assert [(device.device, device.kernels, device.launches) for device in devices] == [
        ("GPU:0", 1, 1),
        ("GPU:1", 2, 2),
    ]


def test_a_graph_launches_many_kernels(tmp_path: Path) -> None:
    """One call of 5 us, three kernels: its delay is that of the first, and none is compared with the call."""
    stream = gpu(called(7, 10, 2), called(7, 13, 2), called(7, 16, 2), called(8, 40, 10))
    device = launches(tmp_path, host(call(7, 0), call(8, 30)), stream)
    assert (device.kernels, device.launches, device.unmatched_kernels) == (4, 2, 0)
    assert device.delay.max_ps == 5 * US
    assert device.shorter_than_call_percent == 0


def test_ids_that_identify_no_call_are_left_out(tmp_path: Path) -> None:
    """Id 1 is used twice on the host, 0 is none, 9 has no call, and large ones count as any other."""
    large = (1 << 64) - 3
    calls = host(call(1, 0), call(1, 10), call(0, 20), call(large, 30))
    stream = gpu(*(called(id, 50 + 10 * at, 5) for at, id in enumerate((1, 0, 9, large))))
    device = launches(tmp_path, calls, stream)
    assert (device.kernels, device.launches, device.unmatched_kernels) == (4, 1, 3)
    assert device.delay.median_ps == 45 * US


def test_tiny_kernels(tmp_path: Path) -> None:
    """75 % of the kernels, 30 % of the time; the second and the fourth are shorter than their calls."""
    calls = host(call(1, 0, 2), call(2, 40), call(3, 80), call(4, 120, 8))
    kernels = (called(at + 1, 10 + 40 * at, duration) for at, duration in enumerate((4, 2, 28, 6)))
    device = launches(tmp_path, calls, gpu(*kernels))
    assert device.tiny_kernel_percent == 75.0
    assert device.tiny_time_percent == 30.0
    assert device.shorter_than_call_percent == 50.0
    assert (device.kernel.median_ps, device.kernel.max_ps) == (5 * US, 28 * US)


def test_per_step(tmp_path: Path) -> None:
    """Steps of 100 us with 2, 2, 2 and 3 calls; copies are no kernels."""
    calls, kernels = [], []
    for step in range(4):
        for at in range(2 + (step == 3)):
            calls.append(call(10 * step + at + 1, 100 * step + 10 * at, 4))
            kernels.append(called(10 * step + at + 1, 100 * step + 30 + 10 * at, 5))
        kernels.append(event("MemcpyH2D", 100 * step + 80, 5, correlation_id=u64(10 * step + 9)))
    device = launches(tmp_path, host(*marks(4), *calls), gpu(*kernels))
    assert (device.kernels, device.kernels_per_step, device.launches_per_step) == (9, 2, 2)
    assert device.call_ps_per_step == 8 * US


def test_without_calls_nothing_is_known_of_them(tmp_path: Path) -> None:
    device = launches(tmp_path, gpu(event("k", 0, 5)))
    assert (device.launches, device.unmatched_kernels) == (0, 1)
    assert (device.delay.median_ps, device.unqueued_percent) == (None, None)
    assert (device.kernels_per_step, device.launches_per_step, device.call_ps_per_step) == (None, None, None)


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
    kernels = (called(at + 1, 100 + 10 * at, 5) for at in range(len(threads)))
    device = launches(tmp_path, plane("/host:CPU", *lines), gpu(*kernels))
    assert device.thread_mode == mode


def test_threads_that_launch_nothing_are_no_evidence_of_the_default(tmp_path: Path) -> None:
    """Ops of the CPU run on the pool `Compute` in every mode."""
    lines = line("tf_Compute/5", event("a:Cast", 0, 5), id=1), line("python", call(1, 10), id=2)
    device = launches(tmp_path, plane("/host:CPU", *lines), gpu(called(1, 20, 5)))
    assert device.thread_mode is None


# --- compute by precision, and what 16 bit could make faster; steps of 100 us ---


ADD = "m/Add:Add"


def precision(tmp_path: Path, device: Plane) -> DevicePrecision:
    """The device in one step."""
    (of_device,) = kernels_of(tmp_path, host(*marks(1)), device).precision
    return of_device


def compute_us(device: DevicePrecision) -> list[float]:
    return [(device.total_ps(part) or 0) / US for part in ("compute_16", "compute_32", "compute_unknown")]


def test_compute_in_steps_by_precision(tmp_path: Path) -> None:
    """16 bit from 0 to 20; 32 bit from 10 to 40 beside it, 20 alone; unknown from 90 on, 10 in the step."""
    streams = [
        line("Stream #1", kernel("hgemm", 0, 20), kernel("fusion", 90, 30), id=1),
        line("Stream #2", kernel("sgemm", 10, 30), id=2),
    ]
    device = precision(tmp_path, plane("/device:GPU:0", *streams, stats=TURING))
    assert (device.steps, device.averaged.total_ps) == (1, 100 * US)
    assert compute_us(device) == [20, 20, 10]


def test_products_in_32_bit_are_eligible(tmp_path: Path) -> None:
    """Of the step, 40 us: not what is in 16 bit, on tensor cores (TF32), of another op, a copy, or outside."""
    kernels = (
        kernel("volta_sgemm_128x64_nn", 0, 40),
        kernel("hgemm", 40, 5),
        kernel("cutlass_80_tensorop_s1688gemm", 45, 5),
        kernel("sgemm", 50, 5, ADD),
        kernel("MemcpyH2D", 55, 5),
        kernel("sgemm", 200, 50),
    )
    device = precision(tmp_path, gpu(*kernels, **TURING))
    assert (device.eligible_percent, device.most_eligible_percent) == (40, 40)


def test_what_may_be_eligible_widens_the_range(tmp_path: Path) -> None:
    """20 us surely; 10 of unknown precision, and 5 of a kernel whose op is unknown."""
    kernels = kernel("sgemm", 0, 20), kernel("fusion", 20, 10), kernel("sgemm", 30, 5, ""), kernel("fusion", 40, 9, ADD)
    device = precision(tmp_path, gpu(*kernels, **TURING))
    assert (device.eligible_percent, device.most_eligible_percent) == (20, 35)


AMPERE = {"compute_cap_major": 8, "compute_cap_minor": 0, "core_count": 108, "clock_rate": 1_410_000}
"""19.5 TFLOP/s in 32 bit."""
BF16 = 16


@pytest.mark.parametrize(
    ("kind", "duration_us", "most_percent"),
    [
        (F32, 50, 50.0),  # 2 * 512^3 operations in 50 us are 5.4 TFLOP/s
        (BF16, 50, 0.0),  # the program says 16 bit
        (F32, 5, 0.0),  # 54 TFLOP/s are more than 32 bit can do
    ],
)
def test_the_program_or_the_rate_shows_what_a_name_does_not(
    tmp_path: Path, kind: int, duration_us: float, most_percent: float
) -> None:
    contracting = field(30, message(field(1, 1), field(2, 0)))
    parameters = [instruction(number, f"p{number}", "parameter", shape(kind, 512, 512)) for number in (1, 2)]
    dot = instruction(3, "dot.1", "dot", shape(kind, 512, 512), [1, 2], extra=contracting)
    made = programs(id_7=program(computation("main", *parameters, dot, root=3)))
    stats = {"hlo_op": ref("dot.1"), "hlo_module": ref("jit_step"), "program_id": 7, "correlation_id": 1}
    calling = host(*marks(1), event("dot.1", 1, 5), call(1, 2, 1))
    device = gpu(event("gemm_fusion_dot_1", 10, duration_us, **stats), **AMPERE)
    (of_device,) = kernels_of(tmp_path, calling, device, made).precision
    assert (of_device.eligible_percent, of_device.most_eligible_percent) == (0.0, most_percent)


def test_a_device_without_tensor_cores_gains_nothing_that_is_known(tmp_path: Path) -> None:
    device = precision(tmp_path, gpu(kernel("sgemm", 0, 20), compute_cap_major=6, compute_cap_minor=1))
    assert (device.eligible_percent, device.most_eligible_percent) == (None, None)
    assert compute_us(device) == [0, 20, 0]


def test_without_steps_there_are_no_shares(tmp_path: Path) -> None:
    (device,) = kernels_of(tmp_path, gpu(kernel("sgemm", 0, 20), **TURING)).precision
    assert (device.steps, device.eligible_percent) == (0, None)
