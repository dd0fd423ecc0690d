"""Ops as stacks of names."""

from __future__ import annotations

import pytest

from tfperf.report.flame_tree import Stack
from tfperf.sections.ops.analysis import KERNEL_WITHOUT_OP, OpKey, Tallies, Tally
from tfperf.sections.ops.groups import (
    BACKWARD,
    COPIES,
    FORWARD,
    INPUT,
    NO_OP,
    NO_SCOPE,
    StackedBy,
    added_up,
    scope_chart,
    stacker,
)

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


@pytest.mark.parametrize(
    ("by", "stacks"),
    [
        (
            "scope",
            [
                ("model", "dense", "MatMul"),
                ("model", "out", "MatMul"),
                ("gradient_tape", "model", "dense", "MatMul"),
                (NO_SCOPE, "Cast"),
            ],
        ),
        (
            "layer",
            [
                ("dense", FORWARD, "MatMul"),
                ("out", FORWARD, "MatMul"),
                ("dense", BACKWARD, "MatMul"),
                (NO_SCOPE, FORWARD, "Cast"),
            ],
        ),
    ],
)
def test_stacks_are_scopes_or_layer_and_pass(by: StackedBy, stacks: list[Stack]) -> None:
    without_scopes = [
        (INPUT, "Root", "Batch", "Map"),
        (NO_OP, "void gemm<a/b>"),
        (COPIES, "MemcpyH2D"),
        (NO_OP, "fusion.3"),
    ]
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
