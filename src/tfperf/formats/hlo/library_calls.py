"""What the configuration of an instruction tells: calls into libraries of the vendor, and how often a loop runs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from tfperf.formats.hlo.cost_rules import UNKNOWN_WORK, Site, Work, convolution_flops, size_of
from tfperf.formats.hlo.model import DotDims, Instruction, Shape
from tfperf.formats.hlo.products import Product, has_dims, product_by_shapes, product_of

MATRIX_CALLS = frozenset(("__cublas$gemm", "__cublas$lt$matmul", "__cublas$lt$matmul$f8"))
"""Matrix products; on AMD devices, too, they are called so."""
CONVOLUTION_CALLS = frozenset(
    f"__cudnn$conv{kind}"
    for kind in ("Forward", "ForwardGraph", "BiasActivationForward", "BackwardInput", "BackwardFilter")
)
KERNEL_CALL = "tpu_custom_call"
"""A kernel that the program brings along for a TPU, as those of Pallas."""
_PRODUCT_NAME = re.compile(r"matmul|gemm|(?<![a-z])dot(?![a-z])|(?<![a-z])mm(?![a-z])", re.IGNORECASE)
_VMEM = re.compile(r'"memory_space":"1"[^{}]{0,500}?"size":"(\d{1,18})"')
_FLOATS = ("f32", "bf16", "f16", "f8e5m2", "f8e4m3fn")
_MOST_TIMES = 1 << 63


def library_work(site: Site) -> Work:
    """Return the work of a custom call, as far as its target tells; raises IndexError if its operands do not fit."""
    target = site.instruction.target
    if target in MATRIX_CALLS:
        flops = _product_flops(site)
    elif target in CONVOLUTION_CALLS:
        flops = _convolution_flops(site)
    elif (product := kernel_product(site.instruction, site.operands)) is not None:
        leaves = [leaf for shape in (*site.operands, site.shape) for leaf in shape.leaves()]
        in_hbm = sum(leaf.bytes for leaf in leaves if not leaf.memory_space)
        return Work(product.flops, bytes=in_hbm, matrix_flops=product.flops)
    else:
        flops = None
    if flops is None:
        return UNKNOWN_WORK
    return Work(flops, bytes=site.operand_bytes + _result_bytes(site.shape), matrix_flops=flops)


def kernel_product(instruction: Instruction, operands: Sequence[Shape]) -> Product | None:
    """Return the product that a kernel of a TPU computes, if its name says so and its shapes leave one; else None.

    The program says nothing else of what a kernel computes. It reads its operands at least once.
    """
    name = f"{instruction.name} {instruction.metadata.op_name.rpartition('/')[2]}"
    shapes = (*operands, instruction.shape)
    if (
        instruction.target != KERNEL_CALL
        or len(operands) != 2
        or not all(shape.is_known and shape.type in _FLOATS for shape in shapes)
        or not _PRODUCT_NAME.search(name)
    ):
        return None
    return product_by_shapes(operands[0].dims, operands[1].dims, instruction.shape.dims)


def vmem_bytes(instructions: Iterable[Instruction]) -> int | None:
    """Return the most vector memory that one of the instructions of a TPU works in; None if none says so."""
    found = (int(size) for each in instructions for size in _VMEM.findall(each.backend_config))
    return max(found, default=None)


def product_dims(instruction: Instruction) -> DotDims | None:
    """Return which dimensions a product sums over: of a dot, or of a call into a library; None if that is not known."""
    if instruction.dot is not None:
        return instruction.dot
    dims = _inside(config_of(instruction), "gemm_backend_config", "dot_dimension_numbers")
    keys = ("lhs_contracting", "rhs_contracting", "lhs_batch", "rhs_batch")
    stated = [dims.get(f"{key}_dimensions", []) if isinstance(dims, dict) else [] for key in keys]
    numbers = [_whole_numbers(each) for each in stated]
    if not numbers[0] or not numbers[1] or numbers[2] is None or numbers[3] is None:
        return None
    return DotDims(*(tuple(each or ()) for each in numbers))


def sizes_of(instruction: Instruction, operands: Sequence[Shape]) -> Mapping[str, int]:
    """Return the sizes that tiles of matrix units cover, by name: M, N, K of a product, channels of a convolution.

    Empty for everything else, and where dimensions are not known. Fusions are not looked into.
    """
    if len(operands) < 2 or not all(shape.is_known for shape in (*operands[:2], instruction.shape)):
        return {}
    if instruction.opcode == "dot" or instruction.target in MATRIX_CALLS:
        dims = product_dims(instruction)
        product = None if dims is None else product_of(operands[0].dims, operands[1].dims, dims)
        return {} if product is None else product.sizes
    if instruction.target in CONVOLUTION_CALLS and instruction.convolution is not None:
        of, (image, _, made) = instruction.convolution, roles_of(instruction, operands)
        if has_dims(image.dims, [of.input_feature]) and has_dims(made.dims, [of.output_feature]):
            return {"input channels": image.dims[of.input_feature], "output channels": made.dims[of.output_feature]}
    return {}


def _product_flops(site: Site) -> int | None:
    dims = _inside(config_of(site.instruction), "gemm_backend_config", "dot_dimension_numbers")
    depth = _whole_numbers(dims.get("lhs_contracting_dimensions")) if isinstance(dims, dict) else None
    if not depth:
        return None
    return 2 * site.first.elements * math.prod(size_of(site.operands[0], at) for at in depth)


def _convolution_flops(site: Site) -> int | None:
    return convolution_flops(site.instruction, *roles_of(site.instruction, site.operands))


def roles_of(instruction: Instruction, operands: Sequence[Shape]) -> tuple[Shape, Shape, Shape]:
    """Return image, kernel and result of the forward convolution that a call into the library is, or is a gradient of.

    Raises IndexError if there are fewer than two operands.
    """
    one, other, result = operands[0], operands[1], next(instruction.shape.leaves(), instruction.shape)
    return {"__cudnn$convBackwardInput": (result, other, one), "__cudnn$convBackwardFilter": (one, result, other)}.get(
        instruction.target, (one, other, result)
    )


def _result_bytes(shape: Shape) -> int:
    """Return what a call writes: all results but its workspace, which is the last of several."""
    results = list(shape.leaves())
    if len(results) > 1 and results[-1].type in ("s8", "u8") and len(results[-1].dims) == 1:
        results.pop()
    return sum(each.bytes for each in results)


def trip_count(loop: Instruction) -> int | None:
    """Return how often a loop runs, where the compiler found out; None if not."""
    count = _inside(config_of(loop), "known_trip_count", "n")
    times = _whole_numbers([count])
    return times[0] if times and times[0] < _MOST_TIMES else None


def config_of(instruction: Instruction) -> Any:
    """Return what the compiler keeps with an instruction, if it is JSON; else None."""
    return _decoded(instruction.backend_config)


@lru_cache(maxsize=64)  # rules ask for it again wherever a computation is put in
def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


def _inside(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _whole_numbers(values: Any) -> list[int] | None:
    """Return numbers, which protobuf writes as text in JSON; None if something is no whole number from 0 on."""
    if not isinstance(values, list):
        return None
    texts = [str(value) for value in values if isinstance(value, str | int)]
    if len(texts) != len(values) or not all(text.isascii() and text.isdigit() and len(text) < 20 for text in texts):
        return None
    return [int(text) for text in texts]
