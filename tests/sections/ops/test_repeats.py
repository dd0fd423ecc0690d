"""Ops of replicas and repeated layers as one row: whose sums are those of its ops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfperf.sections.ops.analysis import OpKey, OpTable, Tallies, Tally
from tfperf.sections.ops.groups import repeated_ops
from tfperf.trace.host.host_ops import EAGER, FUNCTION

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
    columns = repeats(table, keep=keep)
    return list(zip(*(columns[key] for key in keys), strict=True))


def test_two_replicas_of_two_layers_are_one_row_of_four_ops() -> None:
    """The layers take 1, 2, 3 and 4 ms; the loss 5, a third of all."""
    layers = [op(f"replica_{n % 2}/m/layer_{n // 2}/MatMul", n + 1) for n in range(4)]
    table = table_of(*layers, op("m/loss/MatMul", 5))
    found = rows(
        table, "rank", "op_name", "ops", "occurrences", "self_ms", "average_self_ms", "cumulative_self_percent"
    )
    assert found == [
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
    found = rows(table, "op_name", "hlo_op", "hlo_module", "ops")
    assert found == [
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
