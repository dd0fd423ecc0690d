"""The rules of GPUs on compiled programs: a finding and a counter-example for each."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hlo_modules import NHWC, computation, module, op
from hlo_rule_builders import dotted, judged, named, parameter
from hlo_rule_builders import rules_in as rules_of

from tfperf.formats.hlo.model import ConvolutionDims, DotDims, FoundInstruction, WindowDim

rules_in = partial(rules_of, device="gpu")
CONFIG = (
    '{"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],'
    '"rhs_contracting_dimensions":["0"],"lhs_batch_dimensions":[],"rhs_batch_dimensions":[]}}}'
)


def test_sizes_of_a_product_are_held_against_the_multiple_of_its_type() -> None:
    """N = 1001 in 16 bit: to 1008. The result of 4096 x 1008 numbers has 8.3 MB."""
    product = dotted("bf16[4096,512]", "bf16[512,1001]", "bf16[4096,1001]")
    (violation,) = judged(module(computation("main", *product)), "gpu").violations
    assert (violation.rule, violation.level) == ("GPU-MM-1", "medium")
    assert violation.what == "N = 1001 (to 1008): tensor cores require multiples of 8 in bfloat16"
    assert violation.wasted_bytes == 2 * 7 * (512 + 4096)
    assert [tensor.least.dims for tensor in violation.tensors] == [(4096, 512), (512, 1001), (4096, 1001)]


@pytest.mark.parametrize(
    ("instructions", "rules"),
    [
        (dotted("bf16[4096,512]", "bf16[512,1000]", "bf16[4096,1000]"), []),
        (dotted("f32[64,12]", "f32[12,20]", "f32[64,20]"), []),  # multiples of 4
        (dotted("f32[64,12]", "f32[12,10]", "f32[64,10]"), ["GPU-MM-1"]),
        (dotted("f32[64,12]", "f32[12,10]", "f32[64,10]", name=""), []),  # the compiler made it
        (dotted("s32[64,12]", "s32[12,10]", "s32[64,10]"), []),  # no tensor cores for these
        (dotted("f32[64,1]", "f32[1,64]", "f32[64,64]"), []),  # a dimension of 1 is exempt
        (dotted("f32[4,64]", "f32[64,64]", "f32[4,64]"), ["GPU-BT-1"]),
        (dotted("f32[9,4,64]", "f32[9,64,64]", "f32[9,4,64]", DotDims((2,), (1,), (0,), (0,))), []),  # of a batch
        (dotted("f32[64,64]", "f32[64,64]", "f32[64,64]", DotDims((7,), (0,))), []),  # not its dimensions
        (dotted("f32[64,64]", "f32[64,64]", "f32[64,64]", DotDims((-9,), (0,))), []),
    ],
)
def test_products(instructions: list[FoundInstruction], rules: list[str]) -> None:
    assert rules_in(*instructions) == rules


@pytest.mark.parametrize(("config", "rules"), [(CONFIG, ["GPU-MM-1"]), ("{}", []), ("", [])])
def test_calls_into_libraries_say_what_they_sum_over(config: str, rules: list[str]) -> None:
    call: dict[str, Any] = {"target": "__cublas$gemm", "backend_config": config, "metadata": named("jit(f)/dot")}
    operands = [parameter("a", "f16[64,12]"), parameter("b", "f16[12,16]", 1)]
    assert rules_in(*operands, op("d", "custom-call", "f16[64,16]", "a", "b", **call)) == rules


def convolved(image: str, kernel: str, of: str, dims: ConvolutionDims = NHWC, **fields: Any) -> list[FoundInstruction]:
    made: dict[str, Any] = {"window": (WindowDim(3), WindowDim(3)), "metadata": named("jit(f)/conv")}
    operands = [parameter("i", image), parameter("k", kernel, 1)]
    return [*operands, op("c", "convolution", of, "i", "k", **{**made, "convolution": dims, **fields})]


@pytest.mark.parametrize(
    ("instructions", "rules"),
    [
        (convolved("f16[32,32,32,16]", "f16[3,3,16,32]", "f16[32,32,32,32]"), []),
        (convolved("f16[32,32,32,3]", "f16[3,3,3,32]", "f16[32,32,32,32]"), ["GPU-CV-2"]),
        (convolved("f16[32,32,32,12]", "f16[3,3,12,32]", "f16[32,32,32,32]"), ["GPU-CV-1"]),
        (convolved("f16[32,32,32,12]", "f16[3,3,1,12]", "f16[32,32,32,12]", feature_groups=12), []),
        (convolved("f16[32,32,32,1]", "f16[3,3,1,32]", "f16[32,32,32,32]"), []),
        (convolved("f16[1,32,32,16]", "f16[3,3,16,32]", "f16[1,32,32,32]"), ["GPU-BT-1"]),
        (convolved("f16[32,32,32,3]", "f16[3,3,3,32]", "f16[32,32,32,32]", metadata=named("")), []),
        (convolved("f16[32,32,32,3]", "f16[3,3,3,8]", "f16[8,8,8,8]", metadata=named("transpose(jvp())/conv")), []),
        (convolved("f16[32,32,32,3]", "f16[3,3,3,8]", "f16[8,8,8,8]", ConvolutionDims(-9, 3, (1, 2))), []),
    ],
)
def test_convolutions(instructions: list[FoundInstruction], rules: list[str]) -> None:
    assert rules_in(*instructions) == rules


NCHW = ConvolutionDims(0, 1, (2, 3), 1, 0, (2, 3), 0, 1, (2, 3))


def test_channels_that_do_not_lie_side_by_side_are_found_by_the_layout() -> None:
    """How dimensions are numbered says nothing: NCHW may lie in memory as NHWC."""
    kernel, result = "f16[32,16,3,3]", "f16[32,32,32,32]"
    assert rules_in(*convolved("f16[32,16,32,32]{3,2,1,0}", kernel, result, NCHW)) == ["GPU-LY-1"]
    assert rules_in(*convolved("f16[32,16,32,32]{1,3,2,0}", kernel, result, NCHW)) == []
    assert rules_in(*convolved("f32[32,16,32,32]{3,2,1,0}", kernel, result, NCHW)) == []
    assert rules_in(*convolved("f16[32,16,32,32]", kernel, result, NCHW)) == []


def transposed(*, size: int = 32, name: str = "", target: str = "__cudnn$convForward") -> list[FoundInstruction]:
    shape = f"f32[32,{size},{size},16]"
    call: dict[str, Any] = {"convolution": NHWC, "metadata": named("jit(f)/conv"), "window": (WindowDim(3),) * 2}
    call |= {"target": target} if target else {}
    return [
        parameter("x", f"f32[32,16,{size},{size}]"),
        parameter("k", "f32[3,3,16,16]", 1),
        op("t", "transpose", shape, "x", dimensions=(0, 2, 3, 1), metadata=named(name)),
        op("c", "custom-call" if target else "convolution", shape, "t", "k", **call),
    ]


def test_transposes_beside_calls_of_a_gpu_are_conversions_whoever_made_them() -> None:
    (violation,) = judged(module(computation("main", *transposed())), "gpu").violations
    assert (violation.rule, violation.moved_bytes) == ("GPU-LY-2", 2 * 4 * 32 * 32 * 32 * 16)
    assert rules_in(*transposed(size=8)) == []
    assert rules_in(*transposed(target="")) == []  # for a CPU
    assert rules_in(*transposed(target="", name="jit(f)/transpose")) == ["GPU-LY-2"]  # as the program asks
    assert rules_in(*transposed(target="f")) == []


def test_sizes_that_are_not_known_are_counted() -> None:
    product = dotted("f32[?,12]", "f32[12,10]", "f32[?,10]")
    assert judged(module(computation("main", *product)), "gpu").unknown == {"d": "a dimension is unknown"}
