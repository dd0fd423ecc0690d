"""Ops of replicas and repeated layers as one row: whose sums are those of its ops."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from builders import Plane, event, gpu, host, line, plane, result_of, rows_of
from hypothesis import given
from hypothesis import strategies as st

from tfperf.analysis.registry import Grouping
from tfperf.base.patterns import Pattern
from tfperf.report.flame_tree import Stack
from tfperf.sections.ops.analysis import KERNEL_WITHOUT_OP, OpKey, Ops, OpTable, Tallies, Tally
from tfperf.sections.ops.groups import (
    BACKWARD,
    COPIES,
    FORWARD,
    INPUT,
    NO_OP,
    NO_SCOPE,
    GroupTable,
    ModelLayers,
    StackedBy,
    added_up,
    group_ops,
    is_backward,
    models_of,
    repeated_ops,
    scope_chart,
    stacker,
)
from tfperf.trace.host.activities import Attribution
from tfperf.trace.host.host_ops import EAGER, FUNCTION

US = 1_000_000


def ops_of(tmp_path: Path, *planes: Plane, attribution: Attribution = "corrected") -> Ops:
    ops: Ops = result_of(tmp_path, "ops", *planes, attribution=attribution)
    return ops


def host_ops(tmp_path: Path, **times: float) -> OpTable:
    """Host ops one after the other; `__` in a name stands for a slash, its type is the last part."""
    events, start = [], 0.0
    for name, duration in times.items():
        path = name.replace("__", "/")
        events.append(event(f"{path}:{path.rpartition('/')[2].rstrip('_0123456789')}", start, duration))
        start += duration
    return ops_of(tmp_path, host(*events)).host


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


def test_a_scope_is_read_without_transforms(tmp_path: Path) -> None:
    table = host_ops(
        tmp_path, **{"jit(f)/jvp(head)/dot": 5, "jit(f)/transpose(jvp(head))/dot": 4, "jit(f)/jvp()/mul": 3}
    )
    assert self_us(group_ops(table, "scope")) == {"jit(f)/head": 9, "jit(f)": 3}
    stack = stacker(table.keys, "scope")
    assert {stack(key) for key in table.keys} == {("jit(f)", "head", "dot"), ("jit(f)", "mul")}


KERAS_3 = (
    "sequential_1/dense_1/MatMul",
    "gradient_tape/sequential_1/dense_1_2/MatMul/MatMul",
    "sequential_1/head_1/Add",
)


@pytest.mark.parametrize(
    ("names", "layers"),
    [
        # Keras 3 enters the scopes of `dense`, `dense_1` and `head` twice.
        ((*KERAS_3, "adam/Square"), ["dense", "dense_1", "head", "adam (optimizer)"]),
        ((*KERAS_3, "compile_loss/mse/sub"), ["dense", "dense_1", "head", "compile_loss"]),
        (("sequential_1/conv2d_2_1/convolution", "sequential_1/resize/Add"), ["conv2d_2", "resize"]),
        # The number tells calls of one layer apart, or scopes of a program.
        (("m_1/head_1/Add", "m_1/head_3/Add", "sgd_1/Sub"), ["head_1", "head_3", "sgd_1 (optimizer)"]),
        # Nothing shows the version, or it is Keras 2, or JAX.
        (KERAS_3, ["dense_1", "dense_1_2", "head_1"]),
        (
            ("sequential_7/conv2d_7/Conv2D", "sequential_7/dense_11/MatMul", "Adam/mul"),
            ["conv2d_7", "dense_11", "Adam"],
        ),
        (("jit(f)/jvp(block_1)/dot_general", "jit(f)/adam/mul"), ["block_1", "adam (optimizer)"]),
    ],
)
def test_a_layer_of_keras_3_has_the_name_that_the_program_gave_it(names: tuple[str, ...], layers: list[str]) -> None:
    of_model = ModelLayers(OpKey(name, "") for name in names)
    assert [of_model.of(name).replace("Adam (optimizer)", "Adam") for name in names] == layers


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
    copies = event("MemcpyH2D", 5, 4), event("Memset", 9, 3), event("Memcpy", 14, 1)
    device = gpu(event("a/b(c/d)", 0, 5), event("k", 12, 2, hlo_op="copy.1"), *copies)
    ops = ops_of(tmp_path, device, host(event("Iterator::Root::Map", 0, 6)))
    assert self_us(group_ops(ops.device, by)) == {"(no op)": 7, "(copies without op)": 8}
    assert self_us(group_ops(ops.host, by)) == {"(input pipeline)": 6}


def test_a_filter_keeps_shares_of_all_ops(tmp_path: Path) -> None:
    table = host_ops(tmp_path, a__MatMul=30, b__MatMul=20, b__Add=50)
    groups = group_ops(table, "type", table.matching([Pattern("^b/")]))
    assert groups.columns()["self_percent"] == [50, 20]
    assert len(group_ops(table, "layer", table.matching([Pattern("nothing")]))) == 0


@pytest.mark.parametrize(
    ("name", "layer"),
    [  # Names of JAX 0.10 and 0.11.
        ("jit(train)/jvp(M)/mlp/dot_general", "mlp"),
        ("jit(train)/transpose(jvp(M))/mlp/transpose", "mlp"),
        ("jit(train)/jvp(block_3)/mlp/dot_general", "block_3"),
        ("jit(train)/transpose(jvp(head))/jit(take_along_axis)/scatter-add", "head"),
        ("jit(f)/vmap(transpose(vmap(jvp(head))))/cos", "head"),
        ("jit(train)/jvp(M)/while/body/closed_call/attn/dot_general", "attn"),
        ("jit(train)/transpose(jvp(M))/while/body/closed_call/checkpoint/rematted_computation/attn/tanh", "attn"),
        ("jit(train)/jvp(head)/cond/branch_0_fun/dot_general", "head"),
        ("jit(loss)/jvp(jit(log_softmax))/exp", "(no scope)"),
        ("jit(train)/transpose(jvp())/mul;jit(train)/transpose(jvp(head))/broadcast_in_dim", "(no scope)"),
        ("jit(train)/(transpose(jvp(head))/reduce_sum:transpose(jvp())/dot_general)", "head"),
        ("jit(train)/shard_map/psum", "(no scope)"),
        ("jit(train)/jvp(bhqk,bkhd->bqhd)/dot_general", "(no scope)"),
        ("jit(train)/transpose(jvp(head))/...ij, jk->...ik/dot_general", "head"),
        ("jit(train)/jvp(head)/ij,jk/dot_general", "head"),
        ("jit(train)/adam/sub", "adam (optimizer)"),
    ],
)
def test_scopes_of_jax_are_read_without_its_transforms(name: str, layer: str) -> None:
    scopes = (
        "jvp(M)/mlp",
        "jvp(M)/attn",
        "jvp(block_1)/mlp",
        "jvp(block_1)/attn",
        "jvp(block_3)/mlp",
        "jvp(block_3)/attn",
    )
    keys = [OpKey(f"jit(train)/{scope}/dot_general", "") for scope in scopes]
    assert models_of(keys) == {"M"}, "blocks are repeated layers"
    assert ModelLayers(keys).of(name) == layer


def test_the_backward_pass_is_told_by_its_scope() -> None:
    backward = (
        "gradient_tape/m/d/MatMul/MatMul",
        "m/gradients/d/MatMul",
        "gradients_1/d/MatMul_grad/MatMul",
        "jit(f)/transpose(jvp(m))/d/dot_general",
        "jit(f)/vmap(transpose(jvp()))/mul;jit(f)/vmap(jvp())/add",
    )
    others = (
        "gradients_of_x/d/MatMul",
        "m/my_gradients/d/MatMul",
        "jit(f)/jvp(m)/d/transpose",
        "a/b;transpose(jvp(a))/c",
    )
    assert [name for name in (*backward, *others) if is_backward(name)] == [*backward]


def test_huge_and_odd_names_are_grouped(tmp_path: Path) -> None:
    long = "a/" * 50_000 + "Op"
    table = ops_of(tmp_path, host(event(f"{long}:Op", 0, 5), event("////:Op", 5, 4), event(":Op", 9, 4))).host
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
    for attribution in get_args(Attribution):
        table = ops_of(tmp_path, plane("/device:GPU:0", *streams), attribution=attribution).device
        for by in get_args(Grouping):
            groups = group_ops(table, by)
            assert (groups.self_ps > 0).all()
            assert max(groups.self_ps.tolist()) <= 1.01 * groups.all_self_ps
        assert table.idle_share is not None
        assert 0 <= table.idle_share <= 1


# --- ops of replicas and repeated layers as one row: whose sums are those of its ops ---


PS_PER_MS = 10**9
SUMS = ("occurrences", "total_ms", "self_ms", "self_percent", "self_with_idle_percent")


def table_of(*ops: tuple[OpKey, Tally]) -> OpTable:
    sums = Tallies()
    for key, tally in ops:
        sums.add(key, tally)
    return sums.table("device", idle_ps=0, time_ps=100 * PS_PER_MS, places=1)


def op(name: str, self_ms: int, *, type: str = "MatMul", hlo_op: str = "", module: str = "") -> tuple[OpKey, Tally]:
    """An op that ran once."""
    tally = Tally(occurrences=1, total_ps=2 * self_ms * PS_PER_MS, self_ps=self_ms * PS_PER_MS, execution=FUNCTION)
    return OpKey(name, type, hlo_op, module), tally


def repeats(table: OpTable, *, keep: str = "") -> dict[str, Any]:
    kept = np.array([keep in name for name in table.names], np.bool_)
    columns = repeated_ops(table, kept)
    assert columns is not None
    return columns


def rows(table: OpTable, *keys: str, keep: str = "") -> list[tuple[Any, ...]]:
    return rows_of(repeats(table, keep=keep), *keys)


def test_two_replicas_of_two_layers_are_one_row_of_four_ops() -> None:
    """The layers take 1, 2, 3 and 4 ms; the loss 5, a third of all."""
    layers = [op(f"replica_{n % 2}/m/layer_{n // 2}/MatMul", n + 1) for n in range(4)]
    table = table_of(*layers, op("m/loss/MatMul", 5))
    keys = ("rank", "op_name", "ops", "occurrences", "self_ms", "average_self_ms", "cumulative_self_percent")
    assert rows(table, *keys) == [
        (1, "replica_*/m/layer_*/MatMul", 4, 4, 10, 2.5, pytest.approx(100 * 10 / 15)),
        (2, "m/loss/MatMul", 1, 1, 5, 5, pytest.approx(100)),
    ]
    assert repeats(table)["self_with_idle_percent"] == [10, 5]


def test_ops_of_different_type_stay_apart() -> None:
    table = table_of(op("m/layer_0/a", 3), op("m/layer_1/a", 2, type="Add"), op("m/layer_2/a", 1))
    assert rows(table, "op_name", "op_type", "ops") == [("m/layer_*/a", "MatMul", 2), ("m/layer_1/a", "Add", 1)]


def test_hlo_ops_must_be_of_one_kind_and_one_program() -> None:
    table = table_of(
        op("layer_0/dot", 9, hlo_op="fusion.3", module="step"),
        op("layer_1/dot", 8, hlo_op="fusion.8", module="step"),
        op("layer_2/dot", 3, hlo_op="copy.1", module="step"),
        op("layer_3/dot", 2, hlo_op="fusion.9", module="eval"),
    )
    assert rows(table, "op_name", "hlo_op", "hlo_module", "ops") == [
        ("layer_*/dot", "fusion.*", "step", 2),
        ("layer_2/dot", "copy.1", "step", 1),
        ("layer_3/dot", "fusion.9", "eval", 1),
    ]


def test_hlo_ops_of_one_op_stay_apart() -> None:
    """They differ in no layer; only in what XLA made of one."""
    table = table_of(op("layer_0/dot", 9, hlo_op="fusion.3"), op("layer_0/dot", 8, hlo_op="fusion.8"))
    assert repeated_ops(table, np.ones(2, np.bool_)) is None


def test_names_that_are_no_paths_have_no_layers() -> None:
    kernels = (op(f"void block/{n}/x", 1, type="kernel without op") for n in range(3))
    assert repeated_ops(table_of(*kernels), np.ones(3, np.bool_)) is None


def test_a_filter_leaves_ops_out_and_shares_stay_of_all() -> None:
    table = table_of(*(op(f"layer_{n}/MatMul", 10) for n in range(4)), *(op(f"layer_{n}/Add", 15) for n in range(4)))
    assert rows(table, "op_name", "ops", "self_percent", keep="Add") == [("layer_*/Add", 4, 60)]
    assert rows(table, "op_name", "ops", "rank", keep="MatMul") == [("layer_*/MatMul", 4, 1)]


def test_a_row_is_eager_if_one_of_its_ops_is_and_counts_kernels_too() -> None:
    first, (key, tally) = op("layer_0/A", 1), op("layer_1/A", 1)
    tally.execution, tally.counts_kernels = EAGER, True
    assert rows(table_of(first, (key, tally)), "execution", "count_of") == [("eager", "kernels")]


NAMES = st.from_regex(r"(replica_[0-3]/)?(m/)?(layer(_[0-3])?/)?(MatMul|Add)(_[0-1])?", fullmatch=True)
OPS = st.dictionaries(
    st.builds(OpKey, NAMES, st.sampled_from(["MatMul", "Add"]), st.sampled_from(["", "fusion.1", "fusion.2"])),
    st.builds(
        Tally,
        occurrences=st.integers(0, 10**6),
        total_ps=st.integers(0, 1 << 50),
        self_ps=st.integers(0, 1 << 50),
        kernel_ps=st.integers(0, 1 << 50),
    ),
)


@given(OPS)
def test_sums_are_those_of_the_ops(ops: dict[OpKey, Tally]) -> None:
    table = table_of(*ops.items())
    merged, single = repeated_ops(table, np.ones(len(table), np.bool_)), table.columns()
    if merged is None:
        return
    assert sum(merged["ops"]) == len(table)  # type: ignore[arg-type]
    assert len(merged["rank"]) < len(table)
    for key in SUMS:
        whole, parts = math.fsum(merged[key]), math.fsum(single[key])  # type: ignore[arg-type]
        assert whole == pytest.approx(parts), key
    types = dict(zip(single["op_name"], single["op_type"], strict=True))
    for name, type, count in zip(merged["op_name"], merged["op_type"], merged["ops"], strict=True):
        assert count != 1 or name in types
        assert type in ("MatMul", "Add")
    assert merged["self_ms"] == sorted(merged["self_ms"], reverse=True)  # type: ignore[type-var]


# --- ops as stacks of names ---


KEYS = (
    OpKey("model/dense/MatMul", "MatMul"),
    OpKey("model/out/MatMul", "MatMul"),
    OpKey("gradient_tape/model/dense/MatMul", "MatMul"),
    OpKey("Cast", "Cast"),
    OpKey("Iterator::Root::Batch::Map", "Dataset"),
    OpKey("void gemm<a/b>", KERNEL_WITHOUT_OP),
    OpKey("MemcpyH2D", "MemcpyH2D"),
    OpKey("fusion.3", "fusion", "fusion.3", "jit_step"),
)


SCOPES = [
    ("model", "dense", "MatMul"),
    ("model", "out", "MatMul"),
    ("gradient_tape", "model", "dense", "MatMul"),
    (NO_SCOPE, "Cast"),
]
LAYERS = [
    ("dense", FORWARD, "MatMul"),
    ("out", FORWARD, "MatMul"),
    ("dense", BACKWARD, "MatMul"),
    (NO_SCOPE, FORWARD, "Cast"),
]


@pytest.mark.parametrize(("by", "stacks"), [("scope", SCOPES), ("layer", LAYERS)])
def test_stacks_are_scopes_or_layer_and_pass(by: StackedBy, stacks: list[Stack]) -> None:
    input_stack = (INPUT, "Root", "Batch", "Map")
    without_scopes = [input_stack, (NO_OP, "void gemm<a/b>"), (COPIES, "MemcpyH2D"), (NO_OP, "fusion.3")]
    assert list(map(stacker(KEYS, by), KEYS)) == [*stacks, *without_scopes]


def test_equal_stacks_are_added_up() -> None:
    assert added_up([(("a",), 1), (("b",), 2), (("a",), 3)]) == {("a",): 4, ("b",): 2}


def test_the_chart_of_a_report_has_the_self_time_of_all_ops() -> None:
    sums = Tallies()
    for number, key in enumerate(KEYS, 1):
        sums.add(key, Tally(occurrences=1, self_ps=number * 10**9))
    chart = scope_chart(sums.table("host", idle_ps=0, time_ps=1, places=1), "a title", "data")
    assert chart.widths[0] == sum(chart.own) == 36
    assert chart.names[:2] == ("all", NO_OP)
    assert chart.level == "data"
