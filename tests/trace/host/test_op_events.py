"""Ops one by one, on threads and devices, with the time that each took itself."""

from __future__ import annotations

from pathlib import Path

from builders import PS_PER_US, event, host, line, plane, trace_of

from tfperf.trace.host.host_ops import OpEvents, device_op_events, host_op_events, host_ops
from tfperf.trace.host_trace import HostTrace


def rows(events: OpEvents) -> list[tuple[str, str, float, float]]:
    """Return name, type, start and own time (us) of each event."""
    starts, times = (events.start / PS_PER_US).tolist(), (events.self_ps / PS_PER_US).tolist()
    return [(*events.ops[op], start, time) for op, start, time in zip(events.op.tolist(), starts, times, strict=True)]


def job(folder: Path) -> HostTrace:
    ops = (
        event("net/call:PartitionedCall", 0, 100),
        event("net/dense/MatMul:_FusedMatMul", 10, 40),
        event("Iterator::Root", 60, 10, id=1),
        event("$train.py:1 f:Op", 70, 5),
        event("FunctionRun", 80, 10),
    )
    other = line("other", event("net/dense/MatMul:_FusedMatMul", 20, 7))
    return trace_of(folder, plane("/host:CPU", line("python", *ops), other))


def test_own_time_is_without_ops_inside(tmp_path: Path) -> None:
    # Elements of a pipeline are ops too, but none of a graph; frames of Python are none.
    assert rows(host_op_events(job(tmp_path))) == [
        ("net/call", "PartitionedCall", 0, 50),
        ("net/dense/MatMul", "_FusedMatMul", 10, 40),
        ("net/dense/MatMul", "_FusedMatMul", 20, 7),
    ]


def test_sums_are_those_of_the_table_of_ops(tmp_path: Path) -> None:
    trace = job(tmp_path)
    events, table = host_op_events(trace), host_ops(trace)
    for index, (name, kind) in enumerate(events.ops):
        mine = [place for place, op in enumerate(table.ops) if (op.name, op.type) == (name, kind)]
        of_op = events.op == index
        assert int(events.self_ps[of_op].sum()) == sum(int(table.self_ps[place]) for place in mine)
        assert int(of_op.sum()) == sum(int(table.count[place]) for place in mine)


def test_a_kernel_counts_when_it_was_launched(tmp_path: Path) -> None:
    launch = host(event("cuLaunchKernel", 10, 5, correlation_id=7))
    kernels = line(
        "Stream #1",
        event("gemm", 500, 30, correlation_id=7, tf_op="net/MatMul:MatMul"),
        event("relu", 600, 9, tf_op="net/Relu:Relu"),
        event("unknown", 700, 9),
    )
    events = device_op_events(trace_of(tmp_path, launch, plane("/device:GPU:0", kernels)))
    assert rows(events) == [("net/MatMul", "MatMul", 10, 30), ("net/Relu", "Relu", 600, 9)]
    assert (events.begin / PS_PER_US).tolist() == [500, 600]
    assert {*events.plane.tolist()} == {1}


def test_ops_of_a_tpu_core_without_a_name_of_the_framework_keep_their_own(tmp_path: Path) -> None:
    ops = line("XLA Ops", event("while.1", 0, 100), event("fusion.2", 10, 30), event("copy.3", 50, 5))
    names = {"while.1": {"tf_op": "net/while:While"}, "fusion.2": {"tf_op": "net/dense/MatMul:MatMul"}}
    core = plane("/device:TPU:0", ops, name_stats=names)
    # The loop is without what is in it, named or not.
    assert rows(device_op_events(trace_of(tmp_path, core))) == [
        ("net/while", "While", 0, 65),
        ("net/dense/MatMul", "MatMul", 10, 30),
        ("(no framework op)/copy.3", "", 50, 5),
    ]


def test_a_trace_without_ops(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, host(event("train", 0, 9)))
    assert rows(host_op_events(trace)) == rows(device_op_events(trace)) == []
