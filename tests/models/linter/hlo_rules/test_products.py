"""What matrix products are rounded up to."""

from __future__ import annotations

import pytest
from hlo_modules import op
from hlo_rule_builders import named, parameter, rules_in

from tfperf.formats.hlo.model import DotDims, FoundInstruction

PLAIN = DotDims((1,), (0,))


def dotted(left: str, right: str, of: str, dims: DotDims = PLAIN) -> list[FoundInstruction]:
    operands = [parameter("a", left), parameter("b", right, 1)]
    return [*operands, op("d", "dot", of, "a", "b", dot=dims, metadata=named("jit(f)/dot"))]


@pytest.mark.parametrize(
    ("instructions", "rules"),
    [
        (
            dotted("f32[1000,100,100]", "f32[1000,100,100]", "f32[1000,100,100]", DotDims((2,), (1,), (0,), (0,))),
            ["TPU-MM-3"],
        ),
        (dotted("f32[2048,2048]", "f32[2048,10]", "f32[2048,10]"), []),  # 12.8 or 1.6 times as large, and small
    ],
)
def test_padding_counts_where_it_is_large(instructions: list[FoundInstruction], rules: list[str]) -> None:
    assert rules_in(*instructions) == rules
