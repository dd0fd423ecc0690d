"""Ops of hosts and devices: their tables, sums over hosts, runs and idle time. Times in microseconds."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import Event, Plane, event, gpu, host, host_of, line, plane, read_back, ref, result_of, rows_of, trace_of
from hypothesis import given
from hypothesis import strategies as st
from job_environment import run_tensorflow
from places import TRACES
from synthetic_tpu import F_OPS, Offload, offload_tpu

from tfperf.analysis.load import load
from tfperf.base.patterns import Pattern
from tfperf.sections.ops.analysis import OpKey, Ops, OpTable, Tallies, Tally, combine, op_runs
from tfperf.trace.device.device_work import device_work
from tfperf.trace.host.activities import Attribution

US = 1_000_000
OFFLOAD = TRACES / "tpu_v6e"


def ops_of(tmp_path: Path, *planes: Plane, attribution: Attribution = "corrected") -> Ops:
    ops: Ops = result_of(tmp_path, "ops", *planes, attribution=attribution)
    return ops


def rows(table: OpTable) -> list[tuple[str, str, int, float, float]]:
    """(name, type, occurrences, total us, self us)"""
    columns = zip(table.names, table.types, table.occurrences, table.total_ps / US, table.self_ps / US, strict=True)
    return [(name, kind, int(count), float(total), float(self_us)) for name, kind, count, total, self_us in columns]


def test_host_ops_nest_and_are_sorted_by_self_time(tmp_path: Path) -> None:
    threads = plane(
        "/host:CPU",
        line(
            "a",
            event("wrapper", 0, 100),
            event("Iterator::Root", 0, 50),
            event("Iterator::Root::Map", 10, 30),
            event("d/MatMul:MatMul", 60, 25),
        ),
        line("b", event("d/MatMul:MatMul", 0, 30)),
    )
    assert rows(ops_of(tmp_path, threads).host) == [
        ("d/MatMul", "MatMul", 2, 55, 55),
        ("Iterator::Root::Map", "Dataset", 1, 30, 30),
        ("Iterator::Root", "Dataset", 1, 50, 20),
    ]


def test_idle_of_host_threads_lies_between_their_ops(tmp_path: Path) -> None:
    threads = plane(
        "/host:CPU",
        line("a", event("A:A", 10, 10), event("B:B", 50, 10), event("no op", 90, 10)),
        line("b", event("A:A", 0, 10)),
    )
    table = ops_of(tmp_path, threads).host
    assert (table.idle_ps, table.time_ps, table.places) == (30 * US, 60 * US, 2)


def test_memory_events_are_no_runs_of_the_op_that_allocates(tmp_path: Path) -> None:
    thread = host(event("d/A:A", 0, 10), event("MemoryAllocation", 2, 1, tf_op="d/A"))
    assert rows(ops_of(tmp_path, thread).host) == [("d/A", "A", 1, 10, 10)]


def test_without_ops_of_a_device_or_of_the_host_there_is_one_side(tmp_path: Path) -> None:
    of_host = ops_of(tmp_path, host(event("A:A", 0, 10)))
    assert (len(of_host.device), of_host.device.places, of_host.sides) == (0, 0, (of_host.host,))
    of_device = ops_of(tmp_path, gpu(event("a", 10, 20, tf_op="m/A:A")))
    assert of_device.sides == (of_device.device,)


def test_hosts_are_added_up(tmp_path: Path) -> None:
    first = ops_of(tmp_path, host(event("A:A", 0, 10), event("B:B", 10, 15)))
    second = ops_of(tmp_path, host(event("A:A", 0, 10)))
    both = combine([first, second])
    assert rows(both.host) == [("A", "A", 2, 20, 20), ("B", "B", 1, 15, 15)]
    assert (len(both.device), both.device.places) == (0, 0)


def test_a_host_without_a_device_adds_nothing_to_the_devices(tmp_path: Path) -> None:
    device = gpu(event("a", 10, 20, tf_op="m/A:A"))
    both = combine([ops_of(tmp_path, device), ops_of(tmp_path, host(event("A:A", 0, 10)))])
    assert rows(both.device) == [("m/A", "A", 1, 20, 20)]
    assert rows(both.host) == [("A", "A", 1, 10, 10)]


CONV, RELU = "m/conv/Conv2D:Conv2D", "m/Relu:Relu"


def with_line_of_ops(*kernels: Event, ops: tuple[Event, ...]) -> Plane:
    return plane("/device:GPU:0", line("Stream #1", *kernels), line("TensorFlow Ops", *ops, id=-559038734))


def kernel(start: float, id: int, op: str = CONV, name: str = "gemm", **stats: str) -> Event:
    return event(name, start, 2, tf_op=op, **({"correlation_id": id} if id else {}), **stats)


def launch(start: float, id: int) -> Event:
    return event("cuLaunchKernel", start, 1, correlation_id=id)


def runs(tmp_path: Path, *planes: Plane) -> dict[str, tuple[int, bool]]:
    """op -> (runs, whether these are known)"""
    trace = trace_of(tmp_path, *planes)
    work = device_work(trace)
    found = op_runs(trace, work)
    return {
        op.hlo_op or op.name: (count, known)
        for op, count, known in zip(work.ops, found.runs.tolist(), found.is_known.tolist(), strict=True)
    }


def test_an_op_ran_as_often_as_the_host_says(tmp_path: Path) -> None:
    """Two runs of an op that launches the same kernel twice; right after them, no other op runs."""
    thread = host(
        event("ExecutorState::Process", 0, 40),
        event(CONV, 0, 10), launch(1, 1), launch(4, 2),
        event(CONV, 20, 10), launch(21, 3), launch(24, 4),
    )  # fmt: skip
    kernels = gpu(*(kernel(50 + 5 * id, id) for id in (1, 2, 3, 4)))
    assert runs(tmp_path, thread, kernels) == {"m/conv/Conv2D": (2, True)}


def test_calls_may_be_recorded_beside_the_threads_that_make_them(tmp_path: Path) -> None:
    """Two threads run the same HLO op at nearly the same time; each has a line of calls with another id."""
    threads = (
        plane("/host:CPU", line("a", event("conv.1", 0, 10), event("conv.1", 30, 10), id=101),
              line("b", event("conv.1", 5, 10), event("conv.1", 38, 10), id=102)),
        plane("/host:CUPTI", line("calls/1", launch(1, 1), launch(2, 2), launch(31, 3), id=1),
              line("calls/2", launch(12, 4), launch(39, 5), launch(45, 6), id=2)),
    )  # fmt: skip
    kernels = gpu(*(kernel(50 + 5 * id, id, hlo_op="conv.1", hlo_module="jit_f") for id in range(1, 7)))
    assert runs(tmp_path, *threads, kernels) == {"conv.1": (4, True)}


def test_in_an_executor_calls_for_one_op_that_follow_each_other_are_one_run(tmp_path: Path) -> None:
    """Conv2D launches two kernels in each run; its first run ends where Relu follows, the next with the executor."""
    thread = host(
        event("ExecutorState::Process", 0, 10), launch(1, 1), launch(2, 2), launch(3, 3), launch(4, 4), launch(5, 5),
        event("ExecutorState::Process", 20, 10), launch(21, 6), launch(22, 7),
    )  # fmt: skip
    ops = {1: CONV, 2: CONV, 3: RELU, 4: CONV, 5: CONV, 6: CONV, 7: CONV}
    kernels = (kernel(50 + 5 * id, id, op) for id, op in ops.items())
    assert runs(tmp_path, thread, gpu(*kernels)) == {"m/conv/Conv2D": (3, True), "m/Relu": (1, True)}


def test_the_order_of_launches_counts_where_streams_take_turns(tmp_path: Path) -> None:
    """Relu runs between the kernels of one run of Conv2D, so the line of ops splits that run."""
    thread = host(event("ExecutorState::Process", 0, 10), launch(1, 1), launch(2, 2), launch(3, 3))
    kernels = (kernel(50, 1), kernel(60, 2), kernel(55, 3, RELU))
    derived = (event(CONV, 50, 2), event(RELU, 55, 2), event(CONV, 60, 2))
    assert runs(tmp_path, thread, with_line_of_ops(*kernels, ops=derived)) == {
        "m/conv/Conv2D": (1, True),
        "m/Relu": (1, True),
    }


def test_python_runs_one_op_at_a_time(tmp_path: Path) -> None:
    thread = host(*(item for n in range(3) for item in (event("EagerExecute", 10 * n, 9), launch(10 * n + 1, n + 1))))
    assert runs(tmp_path, thread, gpu(*(kernel(50 + n, n) for n in (1, 2, 3)))) == {"m/conv/Conv2D": (3, True)}


def test_a_call_of_a_graph_runs_each_op_once(tmp_path: Path) -> None:
    thread = host(event("ExecutorState::Process", 0, 10), launch(1, 1), launch(2, 2))
    kernels = [kernel(50 + at, 1 + at // 3, (CONV, RELU, CONV)[at % 3]) for at in range(6)]
    assert runs(tmp_path, thread, gpu(*kernels)) == {"m/conv/Conv2D": (2, True), "m/Relu": (2, True)}


def test_without_calls_the_line_of_ops_of_the_device_counts(tmp_path: Path) -> None:
    kernels = (kernel(0, 0), kernel(2, 0), kernel(10, 0))
    derived = (event(CONV, 0, 4), event(CONV, 10, 2))
    assert runs(tmp_path, with_line_of_ops(*kernels, ops=derived)) == {"m/conv/Conv2D": (2, True)}


def test_without_any_evidence_kernels_are_counted_and_that_is_said(tmp_path: Path) -> None:
    thread = host(event("train", 0, 5), launch(1, 1), launch(2, 2), launch(3, 3))
    kernels = gpu(*(kernel(50 + n, n) for n in (1, 2, 3)))
    assert runs(tmp_path, thread, kernels) == {"m/conv/Conv2D": (3, False)}


def test_kernels_of_lost_calls_count_by_their_order_on_the_stream(tmp_path: Path) -> None:
    """The capture starts after the calls of the first two kernels, which are one run."""
    thread = host(event("ExecutorState::Process", 0, 10), launch(1, 3), launch(2, 4))
    kernels = gpu(kernel(20, 1), kernel(22, 2), kernel(50, 3), kernel(52, 4))
    assert runs(tmp_path, thread, kernels) == {"m/conv/Conv2D": (2, True)}


def test_an_op_of_which_most_calls_are_lost_is_not_counted_by_the_others(tmp_path: Path) -> None:
    thread = host(event("ExecutorState::Process", 0, 10), launch(1, 4))
    kernels = gpu(kernel(20, 1), kernel(22, 2), kernel(30, 3), kernel(50, 4))
    assert runs(tmp_path, thread, kernels) == {"m/conv/Conv2D": (4, False)}


def test_a_device_without_work_has_no_ops(tmp_path: Path) -> None:
    assert runs(tmp_path, gpu(event("gemm", 0, 5))) == {}


# --- kernels and copies ---


def kernels_and_copy() -> Plane:
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
    table = ops_of(tmp_path, kernels_and_copy()).device
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
    kernels = gpu(*(event("sgemm", 10 * at, 10, tf_op="d/MatMul:MatMul", correlation_id=at) for at in (1, 2)))
    keys = ("occurrences", "average_self_ms", "count_of")
    assert rows_of(ops_of(tmp_path, thread, kernels).device.columns(), *keys) == [(1, 0.02, "runs")]
    theirs = ops_of(tmp_path, thread, kernels, attribution="tensorflow").device
    assert rows_of(theirs.columns(), *keys) == [(2, 0.01, "kernels")]


def test_tensorflow_counts_only_kernels_with_an_op(tmp_path: Path) -> None:
    table = ops_of(tmp_path, kernels_and_copy(), attribution="tensorflow").device
    assert rows(table) == [("d/MatMul", "MatMul", 2, 24, 24)]


def test_a_device_with_derived_lines_only_has_no_ops(tmp_path: Path) -> None:
    derived = plane("/device:GPU:0", line("TensorFlow Ops", event("MatMul", 0, 24), id=-559038734))
    assert rows(ops_of(tmp_path, derived).device) == []


def test_copies_and_memsets_are_named_by_their_kind(tmp_path: Path) -> None:
    copies = gpu(event("MemcpyD2H", 0, 3), event("Memset", 3, 2), event("MemcpyH2D", 5, 1, tf_op="x/Copy:_Send"))
    assert rows(ops_of(tmp_path, copies).device) == [
        ("MemcpyD2H", "MemcpyD2H", 1, 3, 3),
        ("Memset", "Memset", 1, 2, 2),
        ("x/Copy", "_Send", 1, 1, 1),
    ]


def test_a_copy_that_does_not_say_where_to_is_no_kernel(tmp_path: Path) -> None:
    """As in the table of kernels: its time counts neither for nor against tensor cores."""
    table = ops_of(tmp_path, gpu(event("Memcpy", 0, 5), event("gemm", 5, 5))).device
    assert dict(zip(table.names, table.types, strict=True)) == {"Memcpy": "Memcpy", "gemm": "kernel without op"}


def test_an_op_of_xla_is_shown_under_both_names(tmp_path: Path) -> None:
    """Two HLO ops of one framework op are two rows; one of another program is a third."""
    kernels = gpu(
        event("fusion_1", 0, 5, hlo_op="fusion.1", hlo_module="jit_f", tf_op="m/dense/MatMul:MatMul"),
        event("fusion_2", 5, 4, hlo_op="fusion.2", hlo_module="jit_f", tf_op="m/dense/MatMul:MatMul"),
        event("fusion_1", 9, 3, hlo_op="fusion.1", hlo_module="jit_g", tf_op="m/dense/MatMul:MatMul"),
    )
    columns = ops_of(tmp_path, kernels).device.columns()
    assert rows_of(columns, "op_name", "hlo_op", "hlo_module") == [
        ("m/dense/MatMul", "fusion.1", "jit_f"),
        ("m/dense/MatMul", "fusion.2", "jit_f"),
        ("m/dense/MatMul", "fusion.1", "jit_g"),
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
    table = ops_of(tmp_path, host(event("x", 0, 100)), two_streams()).device
    assert rows(table) == [("m/A", "A", 2, 40, 40), ("m/B", "B", 1, 20, 20)]
    assert (table.idle_ps, table.time_ps) == (50 * US, 100 * US)  # not 100 - 60
    assert table.columns()["self_with_idle_percent"] == [40, 20]
    assert table.columns()["average_self_ms"] == [0.02, 0.02]


def test_idle_of_several_gpus_is_summed(tmp_path: Path) -> None:
    busy = gpu(event("a", 0, 95, tf_op="m/A:A"), number=1)
    table = ops_of(tmp_path, host(event("x", 0, 100)), two_streams(), busy).device
    assert rows(table) == [("m/A", "A", 3, 135, 135), ("m/B", "B", 1, 20, 20)]
    assert (table.idle_ps, table.time_ps, table.places) == ((50 + 5) * US, 200 * US, 2)


def test_a_gpu_that_only_copies_is_not_in_means_over_devices(tmp_path: Path) -> None:
    copies = gpu(event("MemcpyH2D", 0, 15), number=1)
    table = ops_of(tmp_path, host(event("x", 0, 100)), two_streams(), copies).device
    assert (table.idle_ps, table.time_ps, table.places) == (50 * US, 100 * US, 1)
    assert table.columns()["device_mean_ms"] == [0.04, 0.02, 0.015]
    alone = ops_of(tmp_path, host(event("x", 0, 100)), copies).device
    assert (alone.idle_ps, alone.places) == (85 * US, 1)


def test_idle_as_tensorflow_has_it_is_the_window_less_the_sum(tmp_path: Path) -> None:
    table = ops_of(tmp_path, host(event("x", 0, 100)), two_streams(), attribution="tensorflow").device
    assert (table.idle_ps, table.time_ps) == (10 * US, 70 * US)  # 10 to 80, less 60


# --- tensor cores, and how ops were run ---


def test_share_on_tensor_cores(tmp_path: Path) -> None:
    """`odd_gemm` may run anywhere, so nothing is known of its op; a copy is no kernel."""
    kernels = gpu(
        event("volta_h884gemm", 0, 30, tf_op="a/MatMul:MatMul"),
        event("EigenMetaKernel", 30, 10, tf_op="a/MatMul:MatMul"),
        event("odd_gemm", 40, 9, tf_op="b/MatMul:MatMul"),
        event("EigenMetaKernel", 50, 8, tf_op="c/Mul:Mul"),
        event("MemcpyH2D", 60, 7, tf_op="d/X:_Send"),
    )
    columns = ops_of(tmp_path, kernels).device.columns()
    expected = {"a/MatMul": 75, "b/MatMul": None, "c/Mul": 0, "d/X": None}
    assert dict(rows_of(columns, "op_name", "tensor_core_percent")) == expected


def test_kernels_are_eager_if_python_launched_them(tmp_path: Path) -> None:
    thread = host(
        event("EagerExecute", 0, 10, is_func=0),
        event("launch", 2, 2, correlation_id=1),
        event("launch", 20, 2, correlation_id=2),
    )
    kernels = gpu(
        event("k", 5, 3, tf_op="a/A:A", correlation_id=1),
        event("k", 25, 2, tf_op="b/B:B", correlation_id=2),
        event("k", 30, 1, tf_op="c/C:C", correlation_id=3),
    )
    columns = ops_of(tmp_path, thread, kernels).device.columns()
    assert columns["execution"] == ["eager", "function", None]


# --- TPU cores ---


def test_tpu_ops_nest(tmp_path: Path) -> None:
    core = plane(
        "/device:TPU:0",
        line("XLA Ops", event("while.1", 0, 100), event("fusion.2", 10, 60), id=1),
        name_stats={"while.1": {"hlo_category": "while"}, "fusion.2": {"hlo_category": ref("convolution fusion")}},
    )
    assert rows(ops_of(tmp_path, core).device) == [
        ("fusion.2", "convolution fusion", 1, 60, 60),
        ("while.1", "while", 1, 100, 40),
    ]


def test_ops_of_a_tpu_bear_the_framework_s_name_where_it_is_known(tmp_path: Path) -> None:
    core = plane(
        "/device:TPU:0",
        line("XLA Ops", event("fusion.2", 10, 20), event("fusion.2", 50, 20), id=1),
        name_stats={"fusion.2": {"hlo_category": "convolution fusion", "tf_op": "m/dense/MatMul:MatMul"}},
    )
    table = ops_of(tmp_path, core, host(event("x", 0, 100))).device
    assert rows(table) == [("m/dense/MatMul", "MatMul", 2, 40, 40)]
    assert (table.keys[0].hlo_op, table.idle_ps) == ("fusion.2", 20 * US)  # from the first to the last op


def test_ops_of_tpu_programs_are_apart_and_zero_lengths_count(tmp_path: Path) -> None:
    """Two chips, each with one run of `jit__psum` and some of `jit_f`, in which the issue of a copy takes no time."""
    device = host_of(read_back(tmp_path, offload_tpu()), "ops")["ops"].device
    pairs = zip(device.keys, device.occurrences.tolist(), strict=True)
    counts = {(key.hlo_module, key.hlo_op or key.name): count for key, count in pairs}
    assert {counts["jit_f", name] for name, _, _ in F_OPS} == {2 * Offload().runs}
    assert counts["jit__psum", "all-reduce"] == device.places == 2
    columns: dict[str, Any] = device.columns()
    assert columns["device_mean_ms"] == [value / 2 for value in columns["self_ms"]]


@pytest.mark.skipif(not OFFLOAD.is_dir(), reason="the real TPU profile is not here")
def test_ops_of_the_real_tpu_profile_are_those_of_xprof() -> None:
    """XProf names programs by their ids; only one here has several instructions."""
    device = load(OFFLOAD / "offload" / "tpu.xplane.pb", sections=["ops"])["ops"].device
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


# --- tables ---


def test_columns(tmp_path: Path) -> None:
    """A runs twice, 10 us each, around B once for 5 us; 5 us between the runs of A are idle."""
    thread = host(event("m/A:A", 0, 10), event("m/B:B", 2, 5), event("m/A:A", 15, 10))
    table = ops_of(tmp_path, thread).host
    assert table.columns() == {
        "rank": [1, 2],
        "op_name": ["m/A", "m/B"],
        "op_type": ["A", "B"],
        "occurrences": [2, 1],
        "count_of": ["runs", "runs"],
        "total_ms": [0.02, 0.005],
        "average_ms": [0.01, 0.005],
        "self_ms": [0.015, 0.005],
        "device_mean_ms": [0.015, 0.005],
        "average_self_ms": [0.0075, 0.005],
        "self_percent": [75, 25],
        "cumulative_self_percent": [75, 100],
        "self_with_idle_percent": [60, 20],
        "execution": [None, None],
        "tensor_core_percent": [None, None],
        "hlo_op": [None, None],
        "hlo_module": [None, None],
    }
    assert list(table.table["self_ms"]) == [0.015, 0.005]


def test_rows_that_are_left_out_leave_ranks_and_shares(tmp_path: Path) -> None:
    table = ops_of(tmp_path, host(event("a/A:A", 0, 15), event("b/B:B", 20, 5))).host
    kept = table.columns(np.array([False, True]))
    assert (kept["rank"], kept["op_name"], kept["self_percent"]) == ([2], ["b/B"], [25])
    assert table.columns(np.array([False, False]))["rank"] == []


@pytest.mark.parametrize(("pattern", "matches"), [("m/a", True), ("MatM", True), ("dot", True), ("other", False)])
def test_patterns_are_looked_for_in_name_type_and_hlo_op(tmp_path: Path, pattern: str, matches: bool) -> None:
    table = ops_of(tmp_path, gpu(event("k", 0, 5, hlo_op="dot.1", tf_op="m/a/Mat:MatMul"))).device
    assert table.matching([Pattern(pattern)]).tolist() == [matches]


def test_any_of_several_patterns_is_enough_and_none_matches_all(tmp_path: Path) -> None:
    table = ops_of(tmp_path, host(event("a/A:A", 0, 15), event("b/B:B", 20, 5))).host
    assert table.matching([Pattern("^b/"), Pattern("nothing")]).tolist() == [False, True]
    assert table.matching([]).all()


def test_eager_once_is_eager_and_a_function_only_what_always_is_one() -> None:
    sums = Tallies()
    for name, flags in {"eager": (0, 1, -1), "function": (0, 0), "unknown": (0, -1)}.items():
        for flag in flags:
            sums.add(OpKey(name, ""), Tally(execution=flag))
    table = sums.table("host", idle_ps=None, time_ps=None, places=1)
    expected = {"eager": "eager", "function": "function", "unknown": None}
    assert dict(zip(table.names, table.columns()["execution"], strict=True)) == expected
    assert table.columns()["self_with_idle_percent"] == [None] * 3
    assert table.idle_share is None


def test_hosts_with_devices_are_added_up(tmp_path: Path) -> None:
    first = ops_of(tmp_path, host(event("x", 0, 100)), two_streams())
    device = gpu(event("b", 10, 30, tf_op="m/B:B"))
    second = ops_of(tmp_path, host(event("x", 0, 50), event("B:B", 0, 10)), device)
    table = combine([first, second]).device
    assert rows_of(table.columns(), "rank", "op_name", "occurrences", "self_ms", "self_percent") == [
        (1, "m/B", 2, 0.05, pytest.approx(100 * 50 / 90)),
        (2, "m/A", 2, 0.04, pytest.approx(100 * 40 / 90)),
    ]
    assert (table.idle_ps, table.time_ps, table.places) == ((50 + 20) * US, 150 * US, 2)


def test_an_op_is_a_function_s_only_if_it_is_on_every_host(tmp_path: Path) -> None:
    def ran(**stats: int) -> Ops:
        return ops_of(tmp_path, host(event("A:A", 0, 10, **stats)))

    function, eager, unknown = ran(is_eager=0), ran(is_eager=1), ran()
    tables = [combine([function, other]).host for other in (eager, function, unknown)]
    assert [table.columns()["execution"] for table in tables] == [["eager"], ["function"], [None]]


def test_idle_of_many_threads_may_exceed_an_int64(tmp_path: Path) -> None:
    far = 13 * 86_400e6
    threads = (line(f"t{n}", event("A:A", 0, 1), event("A:A", far - 1, 1), id=n + 1) for n in range(10))
    table = ops_of(tmp_path, plane("/host:CPU", *threads)).host
    assert table.idle_ps is not None
    assert table.idle_ps > 1 << 63
    assert table.columns()["self_with_idle_percent"] == [pytest.approx(100 * 2 / far)]


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from((0, 1, -1)), st.booleans(), st.integers(0, 1 << 61)),
        min_size=1,
    )
)
def test_ops_under_one_key_are_added_up_as_their_events_would_be(rows: list[tuple[str, int, bool, int]]) -> None:
    """The largest sum is 2^62, as everywhere."""
    ops, sums = Tallies(), Tallies()
    for number, (key, flag, counts_kernels, time_ps) in enumerate(rows):
        tally = Tally(occurrences=1, self_ps=time_ps, execution=flag, counts_kernels=counts_kernels)
        ops.add(OpKey(f"{key}{number}", ""), tally)
        sums.add(OpKey(key, ""), tally)
    single, expected = (each.table("host", idle_ps=7, time_ps=9, places=2) for each in (ops, sums))
    found = single.under([key._replace(name=key.name[0]) for key in single.keys])
    assert found.occurrences.sum() == len(rows)
    largest = {key.name: self_ps for key, self_ps in zip(found.keys, found.self_ps.tolist(), strict=True)}
    assert largest == {key.name: self_ps for key, self_ps in zip(expected.keys, expected.self_ps.tolist(), strict=True)}
    by_name = {key.name: row for row, key in enumerate(found.keys)}
    order = [by_name[key.name] for key in expected.keys]
    assert found.execution[order].tolist() == expected.execution.tolist()
    assert found.counts_kernels[order].tolist() == expected.counts_kernels.tolist()
    assert (found.idle_ps, found.time_ps, found.places) == (7, 9, 2)
    assert found.self_ps.tolist() == sorted(found.self_ps.tolist(), reverse=True)


# --- against TensorFlow itself: a function compiled by XLA for the CPU, in another process ---


_CAPTURE = """
import sys
import tensorflow as tf

weights = tf.Variable(tf.random.normal((256, 256)))

@tf.function(jit_compile=True)
def compiled(x):
    with tf.name_scope("hidden"):
        y = tf.linalg.matmul(x, weights)
    with tf.name_scope("loss"):
        return tf.reduce_sum(tf.tanh(y))

@tf.function
def interpreted(x):
    with tf.name_scope("plain"):
        return tf.linalg.matmul(x, weights)

x = tf.random.normal((256, 256))
compiled(x), interpreted(x)
tf.profiler.experimental.start(sys.argv[1])
for _ in range(3):
    compiled(x), interpreted(x)
tf.profiler.experimental.stop()
"""


@pytest.mark.tensorflow
@pytest.mark.skipif(sys.platform != "linux", reason="tensorflow-cpu is installed on Linux only")
def test_compiled_ops_are_shown_by_their_op_and_by_what_xla_calls_them(tmp_path: Path) -> None:
    run_tensorflow("-c", _CAPTURE, tmp_path)
    table = load(tmp_path, sections=["ops"])["ops"].host
    compiled = {key.name: key for key in table.keys if key.hlo_op}
    assert compiled["hidden/MatMul"].type == "MatMul"
    assert any(name.startswith("loss/") for name in compiled)
    assert all("compiled" in key.hlo_module for key in compiled.values())
    plain = [key for key in table.keys if key.name == "plain/MatMul"]
    assert [key.hlo_op for key in plain] == [""]
    assert "plain/MatMul" not in compiled
