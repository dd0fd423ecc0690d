"""Kernels by op and launch, copies, and where the time of devices goes. Times in microseconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import Event, Plane, event, host, line, logdir_of, plane, ref, space, trace_of
from protobytes import field, message

from tfperf.analyzers import kernels
from tfperf.analyzers.kernels import Kernels
from tfperf.trace.activities import Attribution
from tfperf.trace.find_steps import find_steps
from tfperf.trace.read import read_host
from tfperf.trace.stat_names import DEFAULT, LINKS

US = 1_000_000
DETAILS = "regs:32 static_shared:1024 dynamic_shared:0 grid:{},1,1 block:256,1,1 occ_pct:50"
OLD_DETAILS = "regs:32 shm:4096 grid:{},1,1 block:256,1,1"


def launched(name: str, begin: float, length: float, op: str = "a/MatMul:MatMul", grid: int = 8) -> Event:
    """A kernel as writers of today note it."""
    return event(name, begin, length, tf_op=ref(op), kernel_details=ref(DETAILS.format(grid)))


def launched_2020(name: str, begin: float, length: float, op: str, grid: int = 8) -> Event:
    stats = {"level 0": ref(op), "kernel_details": ref(OLD_DETAILS.format(grid)), "group_id": 0}
    return event(name, begin, length, **stats)


def gpu(*events: Event, number: int = 0, **stats: Any) -> Plane:
    return plane(f"/device:GPU:{number}", line("Stream #1", *events), stats=stats)


def found(tmp_path: Path, *planes: Plane, attribution: Attribution = "corrected") -> Kernels:
    trace = trace_of(tmp_path, *planes, links=attribution == "tensorflow")
    return kernels.analyze(trace, find_steps(trace), attribution)


def rows(own: Kernels, *keys: str) -> list[tuple[Any, ...]]:
    columns: dict[str, list[Any]] = own.columns()
    return list(zip(*(columns[key] for key in keys), strict=True))


# --- rows ---


def test_a_row_is_a_kernel_an_op_and_a_launch(tmp_path: Path) -> None:
    own = found(tmp_path, gpu(
        launched("gemm", 0, 10), launched("gemm", 10, 20), launched("gemm", 30, 5, grid=4),
        launched("gemm", 40, 4, op="b/MatMul:MatMul"), launched("bias", 50, 3),
    ))  # fmt: skip
    keys = ("rank", "kernel", "op_name", "grid_dim", "occurrences", "total_us", "mean_us", "min_us", "max_us")
    assert rows(own, *keys) == [
        (1, "gemm", "a/MatMul", "8,1,1", 2, 30, 15, 10, 20), (2, "gemm", "a/MatMul", "4,1,1", 1, 5, 5, 5, 5),
        (3, "gemm", "b/MatMul", "8,1,1", 1, 4, 4, 4, 4), (4, "bias", "a/MatMul", "8,1,1", 1, 3, 3, 3, 3),
    ]  # fmt: skip
    sizes = ("registers_per_thread", "static_shared_bytes", "dynamic_shared_bytes", "shared_bytes", "block_dim")
    assert rows(own, *sizes, "occupancy_percent")[0] == (32, 1024, 0, 1024, "256,1,1", 50.0)
    assert own.table["percent"].sum() == pytest.approx(100)


def test_devices_and_streams_share_rows(tmp_path: Path) -> None:
    """Two streams at the same time, and a second device: 40 us of kernels, ranked by the sum."""
    one = plane(
        "/device:GPU:0", line("Stream #1", launched("a", 0, 10), launched("b", 20, 15), id=1),
        line("Stream #2", launched("a", 5, 10), id=2), line("TensorFlow Ops", event("x", 0, 90), id=-559038734),
    )  # fmt: skip
    own = found(tmp_path, one, gpu(launched("a", 0, 5), number=1))
    assert rows(own, "kernel", "occurrences", "total_us") == [("a", 3, 25), ("b", 1, 15)]
    first, second = own.devices
    assert (first.compute_ps, first.kernel_sum_ps) == (30 * US, 35 * US)  # 0-15 and 20-35
    assert first.kernel_sum_ps + second.kernel_sum_ps == int(own.total_ps.sum())
    assert first.compute_ps + first.copies_alone_ps + first.idle_ps == first.wall_ps


def test_kernels_without_details_or_op_count_and_copies_do_not(tmp_path: Path) -> None:
    own = found(tmp_path, gpu(event("lonely", 0, 10), event("ncclAllReduce", 10, 5), event("MemcpyH2D", 20, 9)))
    keys = ("kernel_name", "op_name", "grid_dim", "registers_per_thread", "shared_bytes", "occupancy_percent")
    assert rows(own, *keys, "is_op_tensor_core_eligible") == [
        ("lonely", None, None, None, None, None, None), ("ncclAllReduce", None, None, None, None, None, None),
    ]  # fmt: skip


def test_xla_shows_both_ops(tmp_path: Path) -> None:
    made = event("gemm_fusion_dot_1", 0, 10, hlo_op=ref("gemm_fusion_dot.1"), hlo_module=ref("jit_f"),
                 tf_op=ref("model/dense/MatMul:MatMul"))  # fmt: skip
    own = found(tmp_path, gpu(made))
    keys = ("op_name", "op_type", "hlo_op", "hlo_module", "is_op_tensor_core_eligible", "is_kernel_using_tensor_core")
    assert rows(own, *keys) == [("model/dense/MatMul", "MatMul", "gemm_fusion_dot.1", "jit_f", True, None)]


def test_old_files_tell_shared_memory_as_one_number(tmp_path: Path) -> None:
    """32 registers, 256 threads and 4 KiB on a Volta: eight blocks fit."""
    made = gpu(launched_2020("k", 0, 10, "a/b:Relu"), compute_cap_major=7, compute_cap_minor=0)
    own = found(tmp_path, made)
    keys = ("static_shared_bytes", "dynamic_shared_bytes", "shared_bytes", "occupancy_percent", "op_type")
    assert rows(own, *keys) == [(None, None, 4096, 100.0, "Relu")]


def test_occupancy_is_not_known_where_devices_differ(tmp_path: Path) -> None:
    made = [gpu(launched_2020("k", 0, 10, "a:Relu"), number=minor, compute_cap_major=8, compute_cap_minor=minor)
            for minor in (0, 6)]  # fmt: skip
    assert rows(found(tmp_path, *made), "occurrences", "occupancy_percent") == [(2, 100.0)]
    many = OLD_DETAILS.replace("regs:32", "regs:64").format(8)  # 32 of 64 warps, 32 of 48
    made = [gpu(event("k", 0, 10, kernel_details=ref(many)), number=minor, compute_cap_major=8, compute_cap_minor=minor)
            for minor in (0, 6)]  # fmt: skip
    assert rows(found(tmp_path, *made), "occurrences", "occupancy_percent") == [(2, None)]


def test_an_einsum_is_judged_by_its_equation(tmp_path: Path) -> None:
    made = [event("k", 10 * at, 5 - at, tf_op=ref(f"e{at}:Einsum"), equation=ref(text))
            for at, text in enumerate(("ab,bc->ac", "ab->ba"))]  # fmt: skip
    assert rows(found(tmp_path, gpu(*made)), "is_op_tensor_core_eligible") == [(True,), (False,)]


def test_by_name_adds_up_launches(tmp_path: Path) -> None:
    made = gpu(launched("void f<int>(int)", 0, 10), launched("void f<float>(float)", 10, 20), launched("g", 30, 10))
    assert found(tmp_path, made).by_name() == {
        "kernel": ["f", "g"], "occurrences": [2, 1], "total_ms": [0.03, 0.01], "percent": [75.0, 25.0],
    }  # fmt: skip


# --- tensor cores ---


def test_ops_that_miss_tensor_cores(tmp_path: Path) -> None:
    """`a` never uses them; `b` does in one of its kernels; of `c` the name does not tell; `d` could not."""
    own = found(tmp_path, gpu(
        launched("volta_sgemm_128x64_nt", 0, 30), launched("splitKreduce_kernel", 30, 10),
        launched("ampere_fp16_s16816gemm_fp16_64x64", 40, 20, op="b:MatMul"),
        launched("splitKreduce_kernel", 60, 5, op="b:MatMul"), launched("matmul_kernel", 70, 8, op="c:MatMul"),
        launched("relu_kernel", 80, 7, op="d:Relu"), compute_cap_major=8, compute_cap_minor=0,
    ))  # fmt: skip
    assert own.missed_tensor_cores() == {"a/MatMul": 40 * US}
    assert own.on_tensor_cores_ps() == (20 * US, 8 * US)
    assert own.has_tensor_cores is True


@pytest.mark.parametrize(
    ("stats", "has"),
    [({"compute_cap_major": 6, "compute_cap_minor": 1}, False), ({}, None),
     ({"compute_cap_major": 9, "compute_cap_minor": 0}, True),
     ({"compute_cap_major": 9, "compute_cap_minor": 4, "device_vendor": "AMD"}, True),
     ({"compute_cap_major": 9, "compute_cap_minor": 0, "device_vendor": "AMD"}, None)],
)  # fmt: skip
def test_which_devices_have_tensor_cores(tmp_path: Path, stats: dict[str, Any], has: bool | None) -> None:
    assert found(tmp_path, gpu(launched("k", 0, 5), **stats)).has_tensor_cores is has


# --- as TensorFlow has it ---


def test_tensorflow_counts_kernels_with_details_in_whole_nanoseconds(tmp_path: Path) -> None:
    """Two of 1.0009 us are 2 us there; without details a kernel does not count."""
    made = gpu(launched("s884", 0, 1.0009), launched("s884", 10, 1.0009), event("lonely", 20, 5, tf_op=ref("a:Relu")))
    own = found(tmp_path, made, attribution="tensorflow")
    keys = ("kernel_name", "op_name", "total_us", "is_kernel_using_tensor_core", "is_op_tensor_core_eligible")
    assert rows(own, *keys, "grid_dim", "registers_per_thread", "shared_bytes") == [
        ("s884", "a/MatMul", 2.0, True, True, "8,1,1", 32, 1024)
    ]  # fmt: skip


def test_tensorflow_of_2020_cannot_read_launches_and_merges_them(tmp_path: Path) -> None:
    """Its grammar of names knows no `-`; its list of kernels knows no s884 of Turing."""
    op = "a/MaxPool-0-Transpose:Transpose"
    made = gpu(
        launched_2020("turing_fp16_s884gemm", 0, 5, op), launched_2020("turing_fp16_s884gemm", 10, 5, op, grid=9)
    )
    own = found(tmp_path, made, attribution="tensorflow")
    keys = ("op_name", "occurrences", "grid_dim", "block_dim", "registers_per_thread", "shared_bytes")
    assert rows(own, *keys, "is_kernel_using_tensor_core") == [(op, 2, "1,1,1", "1,1,1", 0, 0, False)]
    assert rows(found(tmp_path, made), "op_name", "occurrences", "grid_dim", "is_kernel_using_tensor_core") == [
        ("a/MaxPool-0-Transpose", 1, "8,1,1", True), ("a/MaxPool-0-Transpose", 1, "9,1,1", True),
    ]  # fmt: skip


def test_tensorflow_of_today_reads_neither_shm_nor_level_0(tmp_path: Path) -> None:
    stats = {"level 0": ref("a:MatMul"), "kernel_details": ref(OLD_DETAILS.format(8))}
    own = found(tmp_path, gpu(event("k", 0, 5, **stats)), attribution="tensorflow")
    assert rows(own, "op_name", "grid_dim", "shared_bytes") == [(None, "8,1,1", 0)]


def metadata_plane() -> bytes:
    """A program with id 7, whose `dot.1` was made from `model/dense/MatMul`."""
    source = field(7, message(field(1, b"MatMul"), field(2, b"model/dense/MatMul")))
    dot = field(2, message(field(1, b"dot.1"), field(2, b"dot"), source))
    program = field(1, message(field(1, b"jit_f"), field(3, message(field(1, b"main"), dot))))
    stat = field(5, message(field(1, 1), field(6, program)))
    held = field(4, message(field(1, 7), field(2, message(field(2, b"jit_f(7)"), stat))))
    name = field(5, message(field(1, 1), field(2, message(field(1, 1), field(2, b"Hlo Proto")))))
    return field(1, message(field(2, b"/host:metadata"), held, name))


@pytest.mark.parametrize(
    ("attribution", "expected"),
    [("tensorflow", [("model/dense/MatMul", None, True), (None, None, False)]),
     ("corrected", [("model/dense/MatMul", "dot.1", True), ("loop.9", "loop.9", False)])],
)  # fmt: skip
def test_programs_name_the_op_of_an_hlo_op(
    tmp_path: Path, attribution: Attribution, expected: list[tuple[Any, ...]]
) -> None:
    details = ref(DETAILS.format(8))
    made = gpu(*(event("k", 10 * at, 9 - at, hlo_op=ref(f"main::{op}"), program_id=7, kernel_details=details)
                 for at, op in enumerate(("dot.1", "loop.9"))))  # fmt: skip
    path = tmp_path / "made.xplane.pb"
    path.write_bytes(space(made) + metadata_plane())
    trace = read_host(path, stats=DEFAULT | LINKS)
    own = kernels.analyze(trace, find_steps(trace), attribution)
    assert rows(own, "op_name", "hlo_op", "is_op_tensor_core_eligible") == expected


def test_tensorflow_sorts_by_total_then_name_then_launch(tmp_path: Path) -> None:
    made = gpu(launched("b", 0, 5), launched("a", 10, 5, grid=10), launched("a", 20, 5, grid=9), launched("c", 30, 6))
    own = found(tmp_path, made, attribution="tensorflow")
    assert rows(own, "kernel", "grid_dim") == [("c", "8,1,1"), ("a", "9,1,1"), ("a", "10,1,1"), ("b", "8,1,1")]


# --- copies ---


def test_copies_by_device_and_kind(tmp_path: Path) -> None:
    """10 us for 50 000 bytes and 10 us for 30 000: 4 GB/s."""
    pageable = "kind_src:pageable kind_dst:device size:{} dest:0 async:1"
    one = gpu(
        event("MemcpyH2D", 0, 10, memcpy_details=ref(pageable.format(50000))),
        event("MemcpyH2D", 10, 10, memcpy_details=ref(pageable.format(30000))),
        event("MemcpyD2H", 20, 4, memcpy_details=ref("kind_src:device kind_dst:pinned size:8000 dest:0 async:1")),
        event("MemcpyP2P", 30, 4, memcpy_details=ref("size:16000 dest:1 async:1")),
        event("Memset", 40, 2, memset_details=ref("kind:device num_bytes:4000 async:1")),
    )  # fmt: skip
    other = gpu(event("MemcpyD2D", 0, 8), event("MemcpyD2D", 10, 2, memcpy_details=ref("size:2000")),
                event("MemcpyWhat", 20, 3, memcpy_details=ref("kind:Unknown size:0")), number=1)  # fmt: skip
    own = found(tmp_path, one, other).copies
    assert [(row.device, row.kind, row.count, row.total_bytes, row.gb_per_second, row.memory) for row in own] == [
        ("GPU:0", "H2D", 2, 80000, 4.0, "pageable"), ("GPU:0", "D2H", 1, 8000, 2.0, "pinned"),
        ("GPU:0", "P2P", 1, 16000, 4.0, None), ("GPU:0", "Memset", 1, 4000, 2.0, None),
        ("GPU:1", "D2D", 2, None, 1.0, None), ("GPU:1", "Unknown", 1, None, None, None),
    ]  # fmt: skip
    assert (own[4].mean_bytes, own[5].mean_bytes) == (2000, None)


# --- hosts ---


def test_hosts_are_merged(tmp_path: Path) -> None:
    """The same kernel on two hosts is one row: counts and times add up, least of least, most of most."""
    made = {"one": [launched("k", 0, 10), launched("k", 20, 30)], "two": [launched("k", 0, 15), launched("x", 20, 60)]}
    logdir = logdir_of(tmp_path, **{name: space(gpu(*events)) for name, events in made.items()})
    parts = []
    for name in made:
        trace = read_host(next(logdir.rglob(f"{name}.xplane.pb")), name)
        parts.append(kernels.analyze(trace, find_steps(trace)))
    both = kernels.combine(parts)
    keys = ("kernel", "occurrences", "total_us", "min_us", "max_us")
    assert rows(both, *keys) == [("x", 1, 60, 60, 60), ("k", 3, 55, 10, 30)]
    assert [(own.host, own.device) for own in both.devices] == [("one", "GPU:0"), ("two", "GPU:0")]
    assert [own.host for own in both.launches.devices] == ["one", "two"]


# --- nothing, and nonsense ---


def test_without_a_gpu_there_are_no_kernels(tmp_path: Path) -> None:
    own = found(tmp_path, host(event("f", 0, 10)))
    assert (len(own), own.copies, own.devices, own.has_tensor_cores) == (0, (), (), None)
    assert all(values == [] for values in own.columns().values())
    assert own.by_name()["kernel"] == []
    assert len(kernels.combine([own, own])) == 0


@pytest.mark.parametrize("attribution", ["corrected", "tensorflow"])
def test_nonsense_does_no_harm(tmp_path: Path, attribution: Attribution) -> None:
    long = 12 * 86400 * 1e6  # each lasts 12 days
    first = event("", 0, long, kernel_details="\0 :::", tf_op=":", memcpy_details="size:" + "9" * 400)
    second = event("Memcpy\x1b[2J", 0, long, memcpy_details="size:9" + "0" * 17)
    lines = [line(f"Stream #{n}", first, second, id=n + 1) for n in range(12)]
    made = plane("/device:GPU:0", *lines, stats={"compute_cap_major": "x", "compute_cap_minor": 2.5})
    own = found(tmp_path, made, attribution=attribution)
    assert int(own.total_ps.sum()) <= 1 << 62
    assert [row.kind for row in own.copies] == ["Unknown"]
    assert own.devices[0].wall_ps == own.devices[0].compute_ps
