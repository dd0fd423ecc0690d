"""Reductions that could run together, and factors that could be fused into them."""

from __future__ import annotations

import pytest
from hlo_modules import computation, op
from hlo_rule_builders import MAX, SQUARE, SUM, ZERO, named, parameter, rules_in

from tfperf.formats.hlo.model import FoundInstruction


def reduced(name: str, of: str, operand: str, kind: str = "sum", scope: str = "f") -> FoundInstruction:
    return op(name, "reduce", of, operand, "zero", calls=[kind], metadata=named(f"{scope}/{name}"))


def test_a_softmax_is_no_chain() -> None:
    steps = [
        SQUARE, ZERO, reduced("m", "f32[1024]", "x", "max"), op("b", "broadcast", "f32[1024,1024]", "m"),
        op("d", "subtract", "f32[1024,1024]", "x", "b"), op("e", "exponential", "f32[1024,1024]", "d"),
        reduced("s", "f32[1024]", "e"),
    ]  # fmt: skip
    assert rules_in(*steps, called=[SUM, MAX]) == []


@pytest.mark.parametrize(
    ("scope", "after", "rules"),
    [
        ("jit(f)/std", "jit(f)/std", ["TPU-RD-2"]),
        ("jit(f)/jvp(bn)", "jit(f)/transpose(jvp(bn))", []),  # forward and backward
        ("batch_normalization_1/moments", "batch_normalization_1/moments", ["TPU-BN-1"]),
    ],
)
def test_a_variance_that_waits_for_its_mean(scope: str, after: str, rules: list[str]) -> None:
    steps = [
        SQUARE, ZERO, reduced("m", "f32[1024]", "x", scope=scope), op("b", "broadcast", "f32[1024,1024]", "m"),
        op("d", "subtract", "f32[1024,1024]", "x", "b"), op("q", "multiply", "f32[1024,1024]", "d", "d"),
        reduced("v", "f32[1024]", "q", scope=after),
    ]  # fmt: skip
    assert rules_in(*steps, called=[SUM]) == rules


@pytest.mark.parametrize(("own", "rules"), [("f", ["TPU-RD-1"]), ("", [])])
def test_sums_one_after_the_other_are_of_the_program(own: str, rules: list[str]) -> None:
    second = op("t", "reduce", "f32[]", "s", "zero", calls=["sum"], metadata=named(own and f"{own}/t"))
    assert rules_in(SQUARE, ZERO, reduced("s", "f32[1024]", "x"), second, called=[SUM]) == rules


def test_a_factor_in_the_same_fusion_is_no_finding() -> None:
    large, inside = "f32[1024,1024]", "f32[4,1024,1024]"
    sums = [parameter("p", inside), ZERO, reduced("s", large, "p"), op("m", "multiply", large, "s", "s")]
    assert rules_in(*sums, called=[SUM]) == ["TPU-RD-3"]
    fused = computation("fused", *sums)
    fusion = op("fusion", "fusion", large, "x", calls=["fused"])
    assert rules_in(parameter("x", inside), fusion, called=[SUM, fused]) == []
