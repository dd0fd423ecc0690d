"""What convolutions are rounded up to: forward ones that a program asks for."""

from __future__ import annotations

from typing import Any

import pytest
from hlo_modules import op
from hlo_rule_builders import named, parameter, rules_in

from tfperf.formats.hlo.model import ConvolutionDims, FoundInstruction, WindowDim

NHWC = ConvolutionDims(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))
IMAGE, KERNEL = "f32[32,32,32,16]", "f32[3,3,16,16]"


def convolved(of: str = IMAGE, name: str = "jit(f)/conv", op_type: str = "", **fields: Any) -> list[FoundInstruction]:
    made: dict[str, Any] = {
        "window": (WindowDim(3), WindowDim(3)),
        "convolution": NHWC,
        "metadata": named(name, op_type),
    }
    return [
        parameter("x", "f32[1]"),
        op("i", "broadcast", IMAGE, "x"),
        op("k", "broadcast", KERNEL, "x"),
        op("c", "convolution", of, "i", "k", **{**made, **fields}),
    ]


@pytest.mark.parametrize(
    ("instructions", "rules"),
    [
        (convolved(), ["TPU-CV-1"]),
        (convolved(name=""), []),
        (convolved(name="jit(f)/transpose(jvp())/conv"), []),
        (convolved(op_type="Conv2DBackpropFilter"), []),
        (convolved(window=(WindowDim(3, base_dilation=2), WindowDim(3))), []),
    ],
)
def test_forward_convolutions_are_judged(instructions: list[FoundInstruction], rules: list[str]) -> None:
    assert rules_in(*instructions) == rules
