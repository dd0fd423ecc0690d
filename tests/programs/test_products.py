"""The sizes of products and convolutions, and which of them suit matrix units of GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hlo_modules import of_one, op
from msgspec.structs import replace

from tfperf.programs.library_calls import sizes_of
from tfperf.programs.model import ConvolutionDims, DotDims, WindowDim
from tfperf.programs.products import Product, off_multiple, product_of, rounded_up

NHWC = ConvolutionDims(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))
IMAGE, KERNEL, MADE = "f16[8,32,32,3]", "f16[3,3,3,64]", "f16[8,32,32,64]"
GEMM = (
    '{"gemm_backend_config":{"dot_dimension_numbers":'
    '{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}}}'
)


def sizes(opcode: str, result: str, *operands: str, **fields: Any) -> Mapping[str, int]:
    names = [chr(97 + at) for at in range(len(operands))]
    inside = of_one(op("r", opcode, result, *names, **fields), *operands).entry
    made = inside.instructions[inside.root]
    return sizes_of(made, [operand.shape for operand in inside.operands_of(made)])


def test_a_product_has_three_sizes_and_a_batch() -> None:
    """M = 4 x 7 rows of the left, N = 9 columns of the right, K = 5; twice, for the batch."""
    dims = DotDims((3,), (1,), (0,), (0,))
    assert product_of((2, 4, 7, 5), (2, 5, 9), dims) == Product(28, 9, 5, 2)
    assert Product(28, 9, 5, 2).flops == 2 * 28 * 9 * 5 * 2


def test_dimensions_that_an_operand_does_not_have() -> None:
    assert product_of((4, 5), (5, 9), DotDims((2,), (0,), (), ())) is None
    assert product_of((4, 5), (5, 9), DotDims((), (), (), ())) is None
    assert product_of((4, 5), (5, 9), DotDims((-100,), (0,), (), ())) is None
    assert product_of((4, 5), (5, 9), DotDims((1,), (0,), (), (-100,))) is None


@pytest.mark.parametrize(
    ("opcode", "fields"),
    [
        ("dot", {"dot": DotDims((1,), (0,), (), ())}),
        ("custom-call", {"target": "__cublas$gemm", "backend_config": GEMM}),
    ],
)
def test_a_product_in_a_program(opcode: str, fields: dict[str, Any]) -> None:
    assert sizes(opcode, "f16[100,7]", "f16[100,33]", "f16[33,7]", **fields) == {"M": 100, "N": 7, "K": 33}


@pytest.mark.parametrize(
    ("kind", "result", "operands"),
    [
        ("Forward", MADE, (IMAGE, KERNEL)),
        ("BackwardInput", IMAGE, (MADE, KERNEL)),
        ("BackwardFilter", KERNEL, (IMAGE, MADE)),
    ],
)
def test_a_convolution_and_its_gradients_have_the_same_channels(
    kind: str, result: str, operands: tuple[str, str]
) -> None:
    fields = {"target": f"__cudnn$conv{kind}", "convolution": NHWC, "window": (WindowDim(3), WindowDim(3))}
    found = sizes("custom-call", f"({result},u8[1024])", *operands, **fields)
    assert found == {"input channels": 3, "output channels": 64}


@pytest.mark.parametrize(
    ("opcode", "operands", "fields"),
    [
        ("add", ("f16[9]", "f16[9]"), {}),
        ("custom-call", ("f16[9]", "f16[9]"), {"target": "__cublas$gemm"}),  # which dimensions is not said
        ("custom-call", ("f16[9]", "f16[9]"), {"target": "__cudnn$convForward", "convolution": NHWC}),
        (
            "custom-call",
            (IMAGE, KERNEL),
            {"target": "__cudnn$convForward", "convolution": replace(NHWC, input_feature=-9)},
        ),
        ("custom-call", ("f16[9]",), {"target": "__cudnn$convForward", "convolution": NHWC}),
    ],
)
def test_what_has_no_sizes(opcode: str, operands: tuple[str, ...], fields: dict[str, Any]) -> None:
    assert sizes(opcode, "f16[9]", *operands, **fields) == {}


def test_sizes_off_a_multiple_and_the_next_one() -> None:
    assert off_multiple({"M": 1, "N": 8, "K": 33}, 8) == {"K": 33}
    assert (rounded_up(33, 8), rounded_up(40, 8)) == (40, 40)
