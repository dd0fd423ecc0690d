from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from builders import event, host, host_of, line, plane, trace_of

from tfperf.analysis.registry import Grouping
from tfperf.base.patterns import Pattern
from tfperf.sections.ops.analysis import Ops, OpTable
from tfperf.sections.ops.groups import GroupTable, group_ops, is_backward
from tfperf.trace.host.activities import Attribution
from tfperf.trace.host_trace import HostTrace

US = 1_000_000


def ops_of(trace: HostTrace, attribution: Attribution = "corrected") -> Ops:
    ops: Ops = host_of(trace, "ops", attribution=attribution)["ops"]
    return ops


def host_ops(tmp_path: Path, **times: float) -> OpTable:
    """Host ops one after the other; `__` in a name stands for a slash, its type is the last part."""
    events, start = [], 0.0
    for name, duration in times.items():
        path = name.replace("__", "/")
        events.append(event(f"{path}:{path.rpartition('/')[2].rstrip('_0123456789')}", start, duration))
        start += duration
    return ops_of(trace_of(tmp_path, host(*events))).host


def self_us(groups: GroupTable) -> dict[str, int]:
    return {name: int(self_ps) // US for name, self_ps in zip(groups.names, groups.self_ps, strict=True)}


def test_types_add_up_what_they_hold(tmp_path: Path) -> None:
    groups = group_ops(host_ops(tmp_path, a__MatMul=30, b__MatMul=20, b__Add=25), "type")
    assert groups.columns() == {
        "side": ["host", "host"],
        "rank": [1, 2],
        "group": ["MatMul", "Add"],
        "ops": [2, 1],
        "occurrences": [2, 1],
        "total_ms": [0.05, 0.025],
        "self_ms": [0.05, 0.025],
        "forward_self_ms": [0.05, 0.025],
        "backward_self_ms": [0, 0],
        "self_percent": pytest.approx([200 / 3, 100 / 3]),
        "cumulative_self_percent": pytest.approx([200 / 3, 100]),
        "self_with_idle_percent": pytest.approx([200 / 3, 100 / 3]),
    }


def test_groups_of_equal_time_are_ordered_by_name(tmp_path: Path) -> None:
    assert group_ops(host_ops(tmp_path, b__Mul=5, a__Add=5), "type").names == ("Add", "Mul")


def test_a_scope_is_the_path_up_to_the_op(tmp_path: Path) -> None:
    groups = group_ops(host_ops(tmp_path, m__a__MatMul=5, m__a__BiasAdd=4, m__b__MatMul=3, Cast=2), "scope")
    assert self_us(groups) == {"m/a": 9, "m/b": 3, "(no scope)": 2}


def test_layers_lie_below_the_model_and_hold_their_backward_pass(tmp_path: Path) -> None:
    table = host_ops(
        tmp_path,
        StatefulPartitionedCall__net__dense__MatMul=10,
        replica_1__net__dense__MatMul=4,
        net__out__MatMul=9,
        gradient_tape__net__dense__MatMul__MatMul=20,
        gradient_tape__net__out__ReluGrad=8,
        adam__Mul=5,
        compile_loss__mse__Sub=3,
        compile_loss__mae__Sub=3,
        Cast=1,
    )
    groups = group_ops(table, "layer")
    assert self_us(groups) == {"dense": 34, "out": 17, "compile_loss": 6, "adam (optimizer)": 5, "(no scope)": 1}
    assert [int(time) // US for time in groups.backward_ps] == [20, 8, 0, 0, 0]


def test_without_a_model_around_them_layers_are_the_outermost_scopes(tmp_path: Path) -> None:
    table = host_ops(
        tmp_path, dense__MatMul=5, dense__BiasAdd=2, gradient_tape__dense__MatMul__MatMul_1=4, out__MatMul=1
    )
    assert self_us(group_ops(table, "layer")) == {"dense": 11, "out": 1}


def test_a_model_with_one_layer_is_known_by_its_name(tmp_path: Path) -> None:
    assert self_us(group_ops(host_ops(tmp_path, sequential_3__dense__MatMul=5), "layer")) == {"dense": 5}


def test_a_recurrent_layer_is_no_model(tmp_path: Path) -> None:
    table = host_ops(tmp_path, lstm__cell__MatMul=5, lstm__while__Less=4, lstm__other__Add=3)
    assert self_us(group_ops(table, "layer")) == {"lstm": 12}


@pytest.mark.parametrize("by", ["scope", "layer"])
def test_what_is_no_op_of_the_model_has_groups_of_its_own(tmp_path: Path, by: Grouping) -> None:
    gpu = plane(
        "/device:GPU:0",
        line(
            "Stream #1",
            event("a/b(c/d)", 0, 5),
            event("MemcpyH2D", 5, 4),
            event("Memset", 9, 3),
            event("k", 12, 2, hlo_op="copy.1"),
            event("Memcpy", 14, 1),
            id=1,
        ),
    )
    ops = ops_of(trace_of(tmp_path, gpu, host(event("Iterator::Root::Map", 0, 6))))
    assert ops.device is not None
    assert self_us(group_ops(ops.device, by)) == {"(no op)": 7, "(copies without op)": 8}
    assert self_us(group_ops(ops.host, by)) == {"(input pipeline)": 6}


def test_a_filter_keeps_shares_of_all_ops(tmp_path: Path) -> None:
    table = host_ops(tmp_path, a__MatMul=30, b__MatMul=20, b__Add=50)
    groups = group_ops(table, "type", table.matching([Pattern("^b/")]))
    assert groups.columns()["self_percent"] == [50, 20]
    assert len(group_ops(table, "layer", table.matching([Pattern("nothing")]))) == 0


def test_the_backward_pass_is_told_by_its_scope() -> None:
    assert is_backward("gradient_tape/m/d/MatMul/MatMul")
    assert is_backward("m/gradients/d/MatMul")
    assert is_backward("gradients_1/d/MatMul_grad/MatMul")
    assert not is_backward("gradients_of_x/d/MatMul")
    assert not is_backward("m/my_gradients/d/MatMul")


def test_huge_and_odd_names_are_grouped(tmp_path: Path) -> None:
    long = "a/" * 50_000 + "Op"
    trace = trace_of(tmp_path, host(event(f"{long}:Op", 0, 5), event("////:Op", 5, 4), event(":Op", 9, 4)))
    table = ops_of(trace).host
    for by in get_args(Grouping):
        groups = group_ops(table, by)
        assert int(groups.self_ps.sum()) == int(table.self_ps.sum())


def test_times_that_add_up_to_more_than_an_int64(tmp_path: Path) -> None:
    """Nine days, a thousand times over, on ten streams; numpy would wrap around."""
    days = 9 * 86_400e6
    streams = [
        line(f"Stream #{n}", *(event("k", 0, days, tf_op=f"m/{n}/A:A") for _ in range(1000)), id=n + 1)
        for n in range(10)
    ]
    trace = trace_of(tmp_path, plane("/device:GPU:0", *streams), links=True, instants=True)
    attributions: tuple[Attribution, ...] = ("corrected", "tensorflow")
    for attribution in attributions:
        table = ops_of(trace, attribution).device
        assert table is not None
        for by in get_args(Grouping):
            groups = group_ops(table, by)
            assert (groups.self_ps > 0).all()
            assert max(groups.self_ps.tolist()) <= 1.01 * groups.all_self_ps
        assert table.idle_share is not None
        assert 0 <= table.idle_share <= 1
