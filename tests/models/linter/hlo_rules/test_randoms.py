"""Random numbers, which compiled programs draw by arithmetic."""

from __future__ import annotations

from hlo_modules import op
from hlo_rule_builders import named, parameter, rules_in


def test_random_numbers_are_told_once_for_each_scope() -> None:
    names = [
        "jit(f)/drop/jit(_threefry)/add",
        "jit(f)/drop/jit(_threefry)/while/xor",
        "jit(f)/other/jit(_threefry)/add",
    ]
    draws = [op(f"n{at}", "add", "u32[8]", "x", "x", metadata=named(name)) for at, name in enumerate(names)]
    normal = op("r", "rng", "f32[8]", "x", "x", distribution="normal", metadata=named("noise/random_bits"))
    assert rules_in(parameter("x", "u32[8]"), *draws, normal) == ["TPU-RN-3", "TPU-RN-3", "TPU-RN-2"]
