"""What the host sends, in shapes that are mostly padding."""

from __future__ import annotations

import pytest
from hlo_modules import op
from hlo_rule_builders import parameter, rules_in


@pytest.mark.parametrize(
    ("shape", "result", "rules"),
    [
        ("f32[32,32,32,3]", "f32[1]", ["TPU-RS-2"]),
        ("f32[32,32,32,3]", "f32[32,32,32,3]", []),  # a result takes it over
        ("f32[200000,3]", "f32[1]", []),  # weights have two dimensions
        (f"f32[{2**62},{2**62},100]", "f32[1]", []),  # 104 for 100 is little, however large the rest
    ],
)
def test_inputs_are_judged_and_weights_are_not(shape: str, result: str, rules: list[str]) -> None:
    assert rules_in(parameter("x", shape), op("n", "negate", result, "x")) == rules
