from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from builders import Event, Plane, event, host, host_of, line, plane, ref, trace_of
from places import SHARED
from synthetic_tpu import F_OPS, Offload, offload_tpu

import tfperf
from tfperf.sections.ops.analysis import OpTable
from tfperf.trace.host.activities import Attribution
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.read import read_host

OFFLOAD = SHARED / "traces" / "tpu_v6e"
US = 1_000_000


def device_ops(trace: HostTrace, attribution: Attribution = "corrected") -> OpTable:
    table = host_of(trace, "ops", attribution=attribution)["ops"].device
    assert isinstance(table, OpTable)
    return table


def rows(table: OpTable) -> list[tuple[str, str, int, float, float]]:
    """(name, type, occurrences, total us, self us)"""
    columns = zip(table.names, table.types, table.occurrences, table.total_ps / US, table.self_ps / US, strict=True)
    return [(name, kind, int(count), float(total), float(self_us)) for name, kind, count, total, self_us in columns]


def stream(*events: Event) -> Plane:
    """A GPU with one stream."""
    return plane("/device:GPU:0", line("Stream #1", *events, id=1))


# --- kernels and copies ---


def gpu() -> Plane:
    """Two kernels of one op, spelled as old and as new writers do; a copy without op, a kernel without op."""
    return plane(
        "/device:GPU:0",
        line(
            "Stream #1(Compute)",
            event("sgemm", 0, 10, **{"level 0": ref("d/MatMul:MatMul")}),
            event("sgemm", 10, 10, tf_op=ref("d/MatMul:MatMul")),
            event("bias", 20, 4, tf_op="d/MatMul:MatMul"),
            event("lonely", 24, 6),
            id=1,
        ),
        line("Stream #2(MemcpyH2D)", event("MemcpyH2D", 0, 8), id=2),
        line("TensorFlow Ops", event("MatMul", 0, 24), id=-559038734),
    )


def test_kernels_are_summed_by_the_op_that_launched_them(tmp_path: Path) -> None:
    table = device_ops(trace_of(tmp_path, gpu()))
    assert rows(table) == [
        ("d/MatMul", "MatMul", 3, 24, 24),
        ("MemcpyH2D", "MemcpyH2D", 1, 8, 8),
        ("lonely", "kernel without op", 1, 6, 6),
    ]
    assert table.columns()["count_of"] == ["kernels", "runs", "runs"]
    assert table.columns()["cumulative_self_percent"] == pytest.approx([100 * 24 / 38, 100 * 32 / 38, 100.0])


def test_the_mean_of_an_op_is_of_its_runs(tmp_path: Path) -> None:
    """Two kernels of one name in the only run of the op: TensorFlow counts two, and halves the mean."""
    thread = host(event("d/MatMul:MatMul", 0, 9), *(event("launch", at, 1, correlation_id=at) for at in (1, 2)))
    kernels = stream(*(event("sgemm", 10 * at, 10, tf_op="d/MatMul:MatMul", correlation_id=at) for at in (1, 2)))
    trace = trace_of(tmp_path, thread, kernels, links=True, instants=True)
    columns = device_ops(trace).columns()
    assert (columns["occurrences"], columns["average_self_ms"], columns["count_of"]) == ([1], [0.02], ["runs"])
    theirs = device_ops(trace, "tensorflow").columns()
    assert (theirs["occurrences"], theirs["average_self_ms"], theirs["count_of"]) == ([2], [0.01], ["kernels"])


def test_tensorflow_counts_only_kernels_with_an_op(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, gpu(), links=True, instants=True)
    assert rows(device_ops(trace, "tensorflow")) == [("d/MatMul", "MatMul", 2, 24, 24)]


def test_a_device_with_derived_lines_only_has_no_ops(tmp_path: Path) -> None:
    derived = plane("/device:GPU:0", line("TensorFlow Ops", event("MatMul", 0, 24), id=-559038734))
    assert rows(device_ops(trace_of(tmp_path, derived))) == []


def test_copies_and_memsets_are_named_by_their_kind(tmp_path: Path) -> None:
    copies = stream(event("MemcpyD2H", 0, 3), event("Memset", 3, 2), event("MemcpyH2D", 5, 1, tf_op="x/Copy:_Send"))
    assert rows(device_ops(trace_of(tmp_path, copies))) == [
        ("MemcpyD2H", "MemcpyD2H", 1, 3, 3),
        ("Memset", "Memset", 1, 2, 2),
        ("x/Copy", "_Send", 1, 1, 1),
    ]


def test_a_copy_that_does_not_say_where_to_is_no_kernel(tmp_path: Path) -> None:
    """As in the table of kernels: its time counts neither for nor against tensor cores."""
    table = device_ops(trace_of(tmp_path, stream(event("Memcpy", 0, 5), event("gemm", 5, 5))))
    assert dict(zip(table.names, table.types, strict=True)) == {"Memcpy": "Memcpy", "gemm": "kernel without op"}


def test_an_op_of_xla_is_shown_under_both_names(tmp_path: Path) -> None:
    """Two HLO ops of one framework op are two rows; one of another program is a third."""
    kernels = stream(
        event("fusion_1", 0, 5, hlo_op="fusion.1", hlo_module="jit_f", tf_op="m/dense/MatMul:MatMul"),
        event("fusion_2", 5, 4, hlo_op="fusion.2", hlo_module="jit_f", tf_op="m/dense/MatMul:MatMul"),
        event("fusion_1", 9, 3, hlo_op="fusion.1", hlo_module="jit_g", tf_op="m/dense/MatMul:MatMul"),
    )
    columns = device_ops(trace_of(tmp_path, kernels)).columns()
    assert columns["op_name"] == ["m/dense/MatMul"] * 3
    assert list(zip(columns["hlo_op"], columns["hlo_module"], strict=True)) == [
        ("fusion.1", "jit_f"),
        ("fusion.2", "jit_f"),
        ("fusion.1", "jit_g"),
    ]


# --- idle ---


def two_streams() -> Plane:
    """Kernels that overlap for 10 us: busy from 10 to 40 and from 60 to 80."""
    return plane(
        "/device:GPU:0",
        line("Stream #1", event("a", 10, 20, tf_op="m/A:A"), event("a", 60, 20, tf_op="m/A:A"), id=1),
        line("Stream #2", event("b", 20, 20, tf_op="m/B:B"), id=2),
    )


def test_idle_is_the_time_in_which_no_stream_works(tmp_path: Path) -> None:
    table = device_ops(trace_of(tmp_path, host(event("x", 0, 100)), two_streams()))
    assert rows(table) == [("m/A", "A", 2, 40, 40), ("m/B", "B", 1, 20, 20)]
    assert (table.idle_ps, table.time_ps) == (50 * US, 100 * US)  # not 100 - 60
    assert table.columns()["self_with_idle_percent"] == [40, 20]
    assert table.columns()["average_self_ms"] == [0.02, 0.02]


def test_idle_of_several_gpus_is_summed(tmp_path: Path) -> None:
    busy = plane("/device:GPU:1", line("Stream #1", event("a", 0, 95, tf_op="m/A:A"), id=1))
    table = device_ops(trace_of(tmp_path, host(event("x", 0, 100)), two_streams(), busy))
    assert rows(table) == [("m/A", "A", 3, 135, 135), ("m/B", "B", 1, 20, 20)]
    assert (table.idle_ps, table.time_ps, table.places) == ((50 + 5) * US, 200 * US, 2)


def test_idle_as_tensorflow_has_it_is_the_window_less_the_sum(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, host(event("x", 0, 100)), two_streams(), links=True, instants=True)
    table = device_ops(trace, "tensorflow")
    assert (table.idle_ps, table.time_ps) == (10 * US, 70 * US)  # 10 to 80, less 60


# --- tensor cores, and how ops were run ---


def test_share_on_tensor_cores(tmp_path: Path) -> None:
    """`odd_gemm` may run anywhere, so nothing is known of its op; a copy is no kernel."""
    kernels = stream(
        event("volta_h884gemm", 0, 30, tf_op="a/MatMul:MatMul"),
        event("EigenMetaKernel", 30, 10, tf_op="a/MatMul:MatMul"),
        event("odd_gemm", 40, 9, tf_op="b/MatMul:MatMul"),
        event("EigenMetaKernel", 50, 8, tf_op="c/Mul:Mul"),
        event("MemcpyH2D", 60, 7, tf_op="d/X:_Send"),
    )
    columns = device_ops(trace_of(tmp_path, kernels)).columns()
    assert dict(zip(columns["op_name"], columns["tensor_core_percent"], strict=True)) == {
        "a/MatMul": 75,
        "b/MatMul": None,
        "c/Mul": 0,
        "d/X": None,
    }


def test_kernels_are_eager_if_python_launched_them(tmp_path: Path) -> None:
    thread = host(
        event("EagerExecute", 0, 10, is_func=0),
        event("launch", 2, 2, correlation_id=1),
        event("launch", 20, 2, correlation_id=2),
    )
    kernels = stream(
        event("k", 5, 3, tf_op="a/A:A", correlation_id=1),
        event("k", 25, 2, tf_op="b/B:B", correlation_id=2),
        event("k", 30, 1, tf_op="c/C:C", correlation_id=3),
    )
    columns = device_ops(trace_of(tmp_path, thread, kernels)).columns()
    assert columns["execution"] == ["eager", "function", None]


# --- TPU cores ---


def test_tpu_ops_nest(tmp_path: Path) -> None:
    core = plane(
        "/device:TPU:0",
        line("XLA Ops", event("while.1", 0, 100), event("fusion.2", 10, 60), id=1),
        name_stats={"while.1": {"hlo_category": "while"}, "fusion.2": {"hlo_category": ref("convolution fusion")}},
    )
    assert rows(device_ops(trace_of(tmp_path, core))) == [
        ("fusion.2", "convolution fusion", 1, 60, 60),
        ("while.1", "while", 1, 100, 40),
    ]


def test_ops_of_a_tpu_bear_the_framework_s_name_where_it_is_known(tmp_path: Path) -> None:
    core = plane(
        "/device:TPU:0",
        line("XLA Ops", event("fusion.2", 10, 20), event("fusion.2", 50, 20), id=1),
        name_stats={"fusion.2": {"hlo_category": "convolution fusion", "tf_op": "m/dense/MatMul:MatMul"}},
    )
    table = device_ops(trace_of(tmp_path, core, host(event("x", 0, 100))))
    assert rows(table) == [("m/dense/MatMul", "MatMul", 2, 40, 40)]
    assert (table.keys[0].hlo_op, table.idle_ps) == ("fusion.2", 20 * US)  # from the first to the last op


def test_ops_of_tpu_programs_are_apart_and_zero_lengths_count(tmp_path: Path) -> None:
    """Two chips, each with one run of `jit__psum` and some of `jit_f`, in which the issue of a copy takes no time."""
    (tmp_path / "tpu.xplane.pb").write_bytes(offload_tpu())
    device = host_of(read_host(tmp_path / "tpu.xplane.pb"), "ops")["ops"].device
    pairs = zip(device.keys, device.occurrences.tolist(), strict=True)
    counts = {(key.hlo_module, key.hlo_op or key.name): count for key, count in pairs}
    assert {counts["jit_f", name] for name, _, _ in F_OPS} == {2 * Offload().runs}
    assert counts["jit__psum", "all-reduce"] == device.places == 2
    columns: dict[str, Any] = device.columns()
    assert columns["device_mean_ms"] == [value / 2 for value in columns["self_ms"]]


@pytest.mark.skipif(not OFFLOAD.is_dir(), reason="the real TPU profile is not here")
def test_ops_of_the_real_tpu_profile_are_those_of_xprof() -> None:
    """XProf names programs by their ids; only one here has several instructions."""
    device = tfperf.load(OFFLOAD / "offload" / "tpu.xplane.pb", sections=["ops"])["ops"].device
    ours = {
        (key.hlo_module, key.hlo_op or key.name): (count, self_ps)
        for key, count, self_ps in zip(device.keys, device.occurrences.tolist(), device.self_ps.tolist(), strict=True)
    }
    modules = {"12190760917235803885": "jit_f", "9646411105960254074": "jit__psum"}
    with (OFFLOAD / "reference" / "xprof_hlo_stats.A.csv").open(newline="", encoding="utf-8") as file:
        theirs = {
            (modules.get(row["program_id"], "jit_broadcast_in_dim"), row["hlo_op_name"]): (
                int(float(row["occurrences"])),
                pytest.approx(1e6 * float(row["total_self_time"]), abs=1),
            )
            for row in csv.DictReader(file)
        }
    assert ours == theirs
    assert device.places == 4
