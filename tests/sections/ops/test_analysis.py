from __future__ import annotations

from pathlib import Path

from builders import event, host, host_of, line, plane, trace_of

from tfperf.sections.ops.analysis import Ops, OpTable, combine
from tfperf.trace.host_trace import HostTrace

US = 1_000_000


def ops_of(trace: HostTrace) -> Ops:
    ops: Ops = host_of(trace, "ops")["ops"]
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
    assert rows(ops_of(trace_of(tmp_path, threads)).host) == [
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
    table = ops_of(trace_of(tmp_path, threads)).host
    assert (table.idle_ps, table.time_ps, table.places) == (30 * US, 60 * US, 2)


def test_memory_events_are_no_runs_of_the_op_that_allocates(tmp_path: Path) -> None:
    thread = host(event("d/A:A", 0, 10), event("MemoryAllocation", 2, 1, tf_op="d/A"))
    assert rows(ops_of(trace_of(tmp_path, thread)).host) == [("d/A", "A", 1, 10, 10)]


def test_without_a_device_there_is_one_side(tmp_path: Path) -> None:
    ops = ops_of(trace_of(tmp_path, host(event("A:A", 0, 10))))
    assert (len(ops.device), ops.device.places) == (0, 0)
    assert ops.sides == (ops.host,)


def test_a_device_without_host_ops_is_the_only_side(tmp_path: Path) -> None:
    gpu = plane("/device:GPU:0", line("Stream #1", event("a", 10, 20, tf_op="m/A:A"), id=1))
    ops = ops_of(trace_of(tmp_path, gpu))
    assert ops.sides == (ops.device,)


def test_hosts_are_added_up(tmp_path: Path) -> None:
    first = ops_of(trace_of(tmp_path, host(event("A:A", 0, 10), event("B:B", 10, 15))))
    second = ops_of(trace_of(tmp_path, host(event("A:A", 0, 10))))
    both = combine([first, second])
    assert rows(both.host) == [("A", "A", 2, 20, 20), ("B", "B", 1, 15, 15)]
    assert (len(both.device), both.device.places) == (0, 0)


def test_a_host_without_a_device_adds_nothing_to_the_devices(tmp_path: Path) -> None:
    gpu = plane("/device:GPU:0", line("Stream #1", event("a", 10, 20, tf_op="m/A:A"), id=1))
    both = combine([ops_of(trace_of(tmp_path, gpu)), ops_of(trace_of(tmp_path, host(event("A:A", 0, 10))))])
    assert rows(both.device) == [("m/A", "A", 1, 20, 20)]
    assert rows(both.host) == [("A", "A", 1, 10, 10)]
