from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from builders import event, host, line, plane, ref, trace_of

from tfperf.base.arrays import group_equal, group_sums
from tfperf.trace.device.device_work import DeviceOp, device_work
from tfperf.trace.host.activities import Activity
from tfperf.trace.host_trace import HostTrace


def ops_of(trace: HostTrace) -> list[DeviceOp | None]:
    """The op of each event, in the order of the trace."""
    work = device_work(trace)
    return [work.ops[at] if at >= 0 else None for at in work.op.tolist()]


def test_the_op_is_named_in_different_stats(tmp_path: Path) -> None:
    made = plane(
        "/device:GPU:0",
        line(
            "Stream #1",
            event("k", 0, 5, tf_op=ref("a/MatMul:MatMul")),
            event("k", 10, 5, **{"level 0": ref("b/Conv2D:Conv2D")}),
            event("k", 20, 5, hlo_op=ref("fusion.1"), hlo_module=ref("jit_f")),
            event("k", 30, 5),
            event("k", 40, 5, tf_op=ref("XlaModule:#hlo_module=f#")),
        ),
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
    made = plane(
        "/device:GPU:0",
        line(
            "Stream #1",
            event("k", 0, 5, annotation=ref("a/MatMul:MatMul#shape=(float[2])#::#edge_name=e#")),
            event("k", 10, 5, annotation=ref("outer/Add:AddV2::inner")),
            event("k", 20, 5, annotation=ref("#edge_name=e#")),
        ),
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
    other = plane("/device:GPU:1", line("Stream #1", event("ncclAllReduce", 20, 5)))
    trace = trace_of(tmp_path, host(event("f", 0, 100)), one, other)
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
