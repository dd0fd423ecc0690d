"""The sizes of products and convolutions, and which of them suit matrix units of GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hlo_modules import of_one, op
from msgspec.structs import replace

from tfperf.formats.hlo.cost_rules import (
    Product,
    kernel_product,
    off_multiple,
    product_by_shapes,
    product_of,
    rounded_up,
    sizes_of,
    vmem_bytes,
)
from tfperf.formats.hlo.model import ConvolutionDims, DotDims, OpMetadata, WindowDim

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


@pytest.mark.parametrize(
    ("left", "right", "result", "product"),
    [
        ((8, 5), (5, 3), (8, 3), Product(8, 3, 5)),
        ((5, 8), (5, 3), (8, 3), Product(8, 3, 5)),
        ((8, 5), (3, 5), (8, 3), Product(8, 3, 5)),
        ((4, 4), (4, 4), (4, 4), Product(4, 4, 4)),
        ((8, 5), (5, 3), (3, 8), None),
        ((8, 5), (5,), (8,), None),
        ((8, 5), (8, 5), (8, 5), None),
    ],
)
def test_shapes_tell_a_product(
    left: tuple[int, ...], right: tuple[int, ...], result: tuple[int, ...], product: Product | None
) -> None:
    assert product_by_shapes(left, right, result) == product


@pytest.mark.parametrize(
    ("name", "op_name", "target", "result", "is_product"),
    [
        ("matmul_optimized.1", "", "tpu_custom_call", "f32[8,3]", True),
        ("call.1", "jit(f)/gemm_kernel", "tpu_custom_call", "f32[8,3]", True),
        ("call.1", "jit(matmul)/pallas_call", "tpu_custom_call", "f32[8,3]", False),  # the function, not the kernel
        ("command.1", "", "tpu_custom_call", "f32[8,3]", False),
        ("matmul.1", "", "Cholesky", "f32[8,3]", False),
        ("matmul.1", "", "tpu_custom_call", "f32[8,5]", False),
        ("matmul.1", "", "tpu_custom_call", "s32[8,3]", False),
    ],
)
def test_a_kernel_is_a_product_only_if_its_name_and_shapes_say_so(
    name: str, op_name: str, target: str, result: str, is_product: bool
) -> None:
    """The kernel is not square: a sum of two square arrays has the shapes of a product, too."""
    made = op(name, "custom-call", result, "a", "b", target=target, metadata=OpMetadata(op_name=op_name))
    inside = of_one(made, "f32[8,5]", "f32[5,3]").entry
    call = inside.instructions[inside.root]
    found = kernel_product(call, [operand.shape for operand in inside.operands_of(call)])
    assert found == (Product(8, 3, 5) if is_product else None)


def test_the_vector_memory_of_a_program_is_that_of_the_instruction_that_works_in_most() -> None:
    config = (
        '{"scoped_memory_configs":[{"memory_space":"0","offset":"0","size":"67108864"}],'
        '"used_scoped_memory_configs":[{"memory_space":"1","offset":"0","size":"%d"}]}'
    )
    calls = [op(f"c{size}", "add", "f32[8]", "a", "b", backend_config=config % size) for size in (300, 4000)]
    instructions = [of_one(call, "f32[8]", "f32[8]").entry.root_instruction for call in calls]
    assert vmem_bytes(instructions) == 4000
    assert vmem_bytes([replace(each, backend_config="") for each in instructions]) is None
