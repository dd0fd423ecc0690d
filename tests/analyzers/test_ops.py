from __future__ import annotations

from pathlib import Path

import pytest
from builders import Plane, event, host, line, plane, ref, trace_of

from tfperf.analyzers import ops
from tfperf.sections.ops.analysis import OpTable

US = 1_000_000


def rows(table: OpTable | None) -> list[tuple[str, str, int, float, float]]:
    """(name, type, occurrences, total us, self us)"""
    assert table is not None
    columns = zip(table.names, table.types, table.occurrences, table.total_ps / US, table.self_ps / US, strict=True)
    return [(name, kind, int(count), float(total), float(own)) for name, kind, count, total, own in columns]


def test_host_ops_nest_and_are_sorted_by_self_time(tmp_path: Path) -> None:
    made = plane(
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
    assert rows(ops.analyze(trace_of(tmp_path, made)).host) == [
        ("d/MatMul", "MatMul", 2, 55, 55),
        ("Iterator::Root::Map", "Dataset", 1, 30, 30),
        ("Iterator::Root", "Dataset", 1, 50, 20),
    ]


def gpu() -> Plane:
    """Two kernels of one op, spelled as old and as new writers do; a copy without op, a kernel without op."""
    return plane(
        "/device:GPU:0",
        line(
            "Stream #1(Compute)", event("sgemm", 0, 10, **{"level 0": ref("d/MatMul:MatMul")}),
            event("sgemm", 10, 10, tf_op=ref("d/MatMul:MatMul")), event("bias", 20, 4, tf_op="d/MatMul:MatMul"),
            event("lonely", 24, 6), id=1,
        ),
        line("Stream #2(MemcpyH2D)", event("MemcpyH2D", 0, 8), id=2),
        line("TensorFlow Ops", event("MatMul", 0, 24), id=-559038734),
    )  # fmt: skip


def test_kernels_are_summed_by_the_op_that_launched_them(tmp_path: Path) -> None:
    found = ops.analyze(trace_of(tmp_path, gpu())).device
    assert rows(found) == [
        ("d/MatMul", "MatMul", 2, 24, 24),
        ("MemcpyH2D", "MemcpyH2D", 1, 8, 8),
        ("lonely", "kernel without op", 1, 6, 6),
    ]
    assert found is not None
    assert found.columns()["cumulative_self_percent"] == pytest.approx([100 * 24 / 38, 100 * 32 / 38, 100.0])


def test_tensorflow_counts_only_kernels_with_an_op(tmp_path: Path) -> None:
    found = ops.analyze(trace_of(tmp_path, gpu(), links=True, instants=True), "tensorflow")
    assert rows(found.device) == [("d/MatMul", "MatMul", 2, 24, 24)]


def test_tpu_ops_nest(tmp_path: Path) -> None:
    made = plane(
        "/device:TPU:0", line("XLA Ops", event("while.1", 0, 100), event("fusion.2", 10, 60), id=1),
        name_stats={"while.1": {"hlo_category": "while"}, "fusion.2": {"hlo_category": ref("convolution fusion")}},
    )  # fmt: skip
    assert rows(ops.analyze(trace_of(tmp_path, made)).device) == [
        ("fusion.2", "convolution fusion", 1, 60, 60),
        ("while.1", "while", 1, 100, 40),
    ]


def test_hosts_are_added_up(tmp_path: Path) -> None:
    one = ops.analyze(trace_of(tmp_path, host(event("A:A", 0, 10), event("B:B", 10, 15))))
    two = ops.analyze(trace_of(tmp_path, host(event("A:A", 0, 10))))
    assert rows(ops.combine([one, two]).host) == [("A", "A", 2, 20, 20), ("B", "B", 1, 15, 15)]
    assert ops.combine([one, two]).device is None


def test_a_device_with_derived_lines_only_has_no_ops(tmp_path: Path) -> None:
    made = plane("/device:GPU:0", line("TensorFlow Ops", event("MatMul", 0, 24), id=-559038734))
    assert rows(ops.analyze(trace_of(tmp_path, made)).device) == []


def columns(table: OpTable | None) -> dict[str, list[object]]:
    assert table is not None
    return table.columns()


def two_streams() -> Plane:
    """Kernels that overlap for 10 us: busy from 10 to 40 and from 60 to 80."""
    return plane(
        "/device:GPU:0",
        line("Stream #1", event("a", 10, 20, tf_op="m/A:A"), event("a", 60, 20, tf_op="m/A:A"), id=1),
        line("Stream #2", event("b", 20, 20, tf_op="m/B:B"), id=2),
    )


def test_idle_is_the_time_in_which_no_stream_works(tmp_path: Path) -> None:
    found = ops.analyze(trace_of(tmp_path, host(event("x", 0, 100)), two_streams())).device
    assert rows(found) == [("m/A", "A", 2, 40, 40), ("m/B", "B", 1, 20, 20)]
    assert found is not None
    assert (found.idle_ps, found.time_ps) == (50 * US, 100 * US)  # not 100 - 60
    assert columns(found)["self_with_idle_percent"] == [40, 20]
    assert columns(found)["average_self_ms"] == [0.02, 0.02]


def test_idle_of_several_gpus_is_summed(tmp_path: Path) -> None:
    busy = plane("/device:GPU:1", line("Stream #1", event("a", 0, 95, tf_op="m/A:A"), id=1))
    found = ops.analyze(trace_of(tmp_path, host(event("x", 0, 100)), two_streams(), busy)).device
    assert rows(found) == [("m/A", "A", 3, 135, 135), ("m/B", "B", 1, 20, 20)]
    assert found is not None
    assert (found.idle_ps, found.time_ps, found.places) == ((50 + 5) * US, 200 * US, 2)


def test_idle_as_tensorflow_has_it_is_the_window_less_the_sum(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, host(event("x", 0, 100)), two_streams(), links=True, instants=True)
    found = ops.analyze(trace, "tensorflow").device
    assert found is not None
    assert (found.idle_ps, found.time_ps) == (10 * US, 70 * US)  # 10 to 80, less 60


def test_idle_of_host_threads_lies_between_their_ops(tmp_path: Path) -> None:
    made = plane(
        "/host:CPU",
        line("a", event("A:A", 10, 10), event("B:B", 50, 10), event("no op", 90, 10)),
        line("b", event("A:A", 0, 10)),
    )
    found = ops.analyze(trace_of(tmp_path, made)).host
    assert (found.idle_ps, found.time_ps, found.places) == (30 * US, 60 * US, 2)


def test_memory_events_are_no_runs_of_the_op_that_allocates(tmp_path: Path) -> None:
    made = host(event("d/A:A", 0, 10), event("MemoryAllocation", 2, 1, tf_op="d/A"))
    assert rows(ops.analyze(trace_of(tmp_path, made)).host) == [("d/A", "A", 1, 10, 10)]


def test_copies_and_memsets_are_named_by_their_kind(tmp_path: Path) -> None:
    made = plane("/device:GPU:0", line(
        "Stream #1", event("MemcpyD2H", 0, 3), event("Memset", 3, 2), event("MemcpyH2D", 5, 1, tf_op="x/Copy:_Send"),
        id=1,
    ))  # fmt: skip
    assert rows(ops.analyze(trace_of(tmp_path, made)).device) == [
        ("MemcpyD2H", "MemcpyD2H", 1, 3, 3),
        ("Memset", "Memset", 1, 2, 2),
        ("x/Copy", "_Send", 1, 1, 1),
    ]


def test_share_on_tensor_cores(tmp_path: Path) -> None:
    """`odd_gemm` may run anywhere, so nothing is known of its op; a copy is no kernel."""
    made = plane("/device:GPU:0", line(
        "Stream #1", event("volta_h884gemm", 0, 30, tf_op="a/MatMul:MatMul"),
        event("EigenMetaKernel", 30, 10, tf_op="a/MatMul:MatMul"), event("odd_gemm", 40, 9, tf_op="b/MatMul:MatMul"),
        event("EigenMetaKernel", 50, 8, tf_op="c/Mul:Mul"), event("MemcpyH2D", 60, 7, tf_op="d/X:_Send"), id=1,
    ))  # fmt: skip
    found = columns(ops.analyze(trace_of(tmp_path, made)).device)
    assert dict(zip(found["op_name"], found["tensor_core_percent"], strict=True)) == {
        "a/MatMul": 75,
        "b/MatMul": None,
        "c/Mul": 0,
        "d/X": None,
    }


def test_kernels_are_eager_if_python_launched_them(tmp_path: Path) -> None:
    made = plane("/host:CPU", line(
        "python", event("EagerExecute", 0, 10, is_func=0), event("launch", 2, 2, correlation_id=1),
        event("launch", 20, 2, correlation_id=2),
    ))  # fmt: skip
    gpu = plane("/device:GPU:0", line(
        "Stream #1", event("k", 5, 3, tf_op="a/A:A", correlation_id=1),
        event("k", 25, 2, tf_op="b/B:B", correlation_id=2), event("k", 30, 1, tf_op="c/C:C", correlation_id=3), id=1,
    ))  # fmt: skip
    assert columns(ops.analyze(trace_of(tmp_path, made, gpu)).device)["execution"] == ["eager", "function", None]


def test_an_op_of_xla_is_shown_under_both_names(tmp_path: Path) -> None:
    """Two HLO ops of one framework op are two rows; one of another program is a third."""
    made = plane("/device:GPU:0", line(
        "Stream #1",
        event("fusion_1", 0, 5, hlo_op="fusion.1", hlo_module="jit_f", tf_op="m/dense/MatMul:MatMul"),
        event("fusion_2", 5, 4, hlo_op="fusion.2", hlo_module="jit_f", tf_op="m/dense/MatMul:MatMul"),
        event("fusion_1", 9, 3, hlo_op="fusion.1", hlo_module="jit_g", tf_op="m/dense/MatMul:MatMul"), id=1,
    ))  # fmt: skip
    found = columns(ops.analyze(trace_of(tmp_path, made)).device)
    assert found["op_name"] == ["m/dense/MatMul"] * 3
    assert list(zip(found["hlo_op"], found["hlo_module"], strict=True)) == [
        ("fusion.1", "jit_f"), ("fusion.2", "jit_f"), ("fusion.1", "jit_g"),
    ]  # fmt: skip


def test_ops_of_a_tpu_bear_the_framework_s_name_where_it_is_known(tmp_path: Path) -> None:
    made = plane(
        "/device:TPU:0", line("XLA Ops", event("fusion.2", 10, 60), id=1),
        name_stats={"fusion.2": {"hlo_category": "convolution fusion", "tf_op": "m/dense/MatMul:MatMul"}},
    )  # fmt: skip
    found = ops.analyze(trace_of(tmp_path, made, host(event("x", 0, 100)))).device
    assert rows(found) == [("m/dense/MatMul", "MatMul", 1, 60, 60)]
    assert found is not None
    assert (found.keys[0].hlo_op, found.idle_ps) == ("fusion.2", 40 * US)


def test_hosts_with_devices_are_added_up(tmp_path: Path) -> None:
    one = ops.analyze(trace_of(tmp_path, host(event("x", 0, 100)), two_streams()))
    two = ops.analyze(trace_of(tmp_path, host(event("x", 0, 50), event("B:B", 0, 10)), plane(
        "/device:GPU:0", line("Stream #1", event("b", 10, 30, tf_op="m/B:B"), id=1),
    )))  # fmt: skip
    found = ops.combine([one, two])
    assert rows(found.device) == [("m/B", "B", 2, 50, 50), ("m/A", "A", 2, 40, 40)]
    assert found.device is not None
    assert (found.device.idle_ps, found.device.time_ps) == ((50 + 20) * US, 150 * US)
    assert columns(found.device)["rank"] == [1, 2]
    assert columns(found.device)["self_percent"] == pytest.approx([100 * 50 / 90, 100 * 40 / 90])


def test_an_op_is_a_function_s_only_if_it_is_on_every_host(tmp_path: Path) -> None:
    def ran(**stats: int) -> ops.Ops:
        return ops.analyze(trace_of(tmp_path, host(event("A:A", 0, 10, **stats))))

    eager, function, unknown = ran(is_eager=1), ran(is_eager=0), ran()
    found = [columns(ops.combine([function, other]).host)["execution"] for other in (eager, function, unknown)]
    assert found == [["eager"], ["function"], [None]]


def test_idle_of_many_threads_may_exceed_an_int64(tmp_path: Path) -> None:
    far = 13 * 86_400e6
    threads = (line(f"t{at}", event("A:A", 0, 1), event("A:A", far - 1, 1), id=at + 1) for at in range(10))
    found = ops.analyze(trace_of(tmp_path, plane("/host:CPU", *threads))).host
    assert found.idle_ps is not None
    assert found.idle_ps > 1 << 63
    assert columns(found)["self_with_idle_percent"] == [pytest.approx(100 * 2 / far)]


def test_a_copy_that_does_not_say_where_to_is_no_kernel(tmp_path: Path) -> None:
    """As in the table of kernels: its time counts neither for nor against tensor cores."""
    trace = trace_of(tmp_path, plane("/device:GPU:0", line("Stream #1", event("Memcpy", 0, 5), event("gemm", 5, 5))))
    device = ops.analyze(trace).device
    assert device is not None
    assert dict(zip(device.names, device.types, strict=True)) == {"Memcpy": "Memcpy", "gemm": "kernel without op"}
