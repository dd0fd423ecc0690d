"""GPU rules: sizes that suit tensor cores, the layout of images, and tiny batches.

In compiled programs, products and convolutions are separate instructions, or calls of vendor libraries. Instructions
that the compiler generated without an op are not reported, except conversions of layouts, most of which are the
compiler's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tfperf.base.units import counted, format_bytes
from tfperf.formats.hlo.cost_rules import (
    ALIGNED_BYTES,
    CONVOLUTION_CALLS,
    MATRIX_CALLS,
    has_dims,
    off_multiple,
    product_dims,
    product_of,
    rounded_up,
)
from tfperf.formats.hlo.model import Instruction
from tfperf.formats.models.dtypes import Dims, shape_text
from tfperf.formats.models.op_graph import OpGraph
from tfperf.models.linter.graph import CONVOLUTIONS, FORWARD, MATMULS, OPEN, place
from tfperf.models.linter.padding import MIB, Level, PaddedTensor, in_layouts, with_multiples
from tfperf.models.linter.program import Place, element_bytes
from tfperf.models.linter.rule import BOTH, Ledger, Rule, Topic
from tfperf.models.linter.rules.convolutions import is_forward, parts
from tfperf.models.linter.rules.transposes import perm_of

_GUIDE = "NVIDIA, Matrix Multiplication Background User's Guide, and its guide to convolutional layers"
_CHANNELS = {
    "advice": "round channels up; pad an image of 3 channels to 4",
    "unless": "the type is float32 and TF32 is off, or the convolution takes a small part of the step",
    "says": "Choose channels as multiples of 8 in 16 bit, and of 4 in TF32.",
}
PRODUCT = Rule(
    id="GPU-MM-1",
    title="Matrix product sizes not aligned for tensor cores",
    device="gpu",
    level="medium, low, info",
    reads=BOTH,
    when="M, N or K is not a multiple of 8 (16 bit), 4 (float32), 2 (float64) or 16 (int8); 1 is exempt",
    advice="round the size up",
    unless="the type is float32 and TF32 is off, or the product takes a small part of the step",
    says="Tensor cores are fastest where dimensions are multiples of 16 bytes, on A100 of 128 bytes.",
    source=_GUIDE,
)
CHANNELS = Rule(
    id="GPU-CV-1",
    title="Channels not aligned for tensor cores",
    device="gpu",
    level="medium, low, info",
    reads=BOTH,
    when="input or output channels are even, but not a multiple of 8 (16 bit) or 4 (float32)",
    source=_GUIDE,
    **_CHANNELS,
)
ODD_CHANNELS = Rule(
    id="GPU-CV-2",
    title="Odd number of channels",
    device="gpu",
    level="medium, low, info",
    reads=BOTH,
    when="input or output channels are odd, and not 1",
    source=_GUIDE,
    **_CHANNELS,
)
LAYOUT = Rule(
    id="GPU-LY-1",
    title="Image layout",
    device="gpu",
    level="medium",
    reads=BOTH,
    when="a convolution in 16 bit has the layout NCHW",
    advice="use NHWC (channels_last) in 16 bit",
    unless="the GPU has no tensor cores, or a profile shows no layout conversion: measure both",
    says="Tensor cores read NHWC; other layouts are converted.",
    source=_GUIDE,
)
FLOAT_LAYOUT = Rule(
    id="GPU-LY-3",
    title="Image layout in float32",
    device="gpu",
    level="low",
    reads=("graph",),
    when="convolutions in float32 have the layout NHWC",
    advice="measure NCHW too (channels_first), or use 16 bit, which is fastest in NHWC",
    unless="TF32 is on (the default since Ampere), or TensorFlow's layout optimizer (on by default) or XLA chooses it",
    says="Found operation using NHWC data_format on GPU. Maybe NCHW is faster.",
    source="TensorFlow, tfprof, operation checker of the advisor",
)
CONVERSION = Rule(
    id="GPU-LY-2",
    title="Layout conversion",
    device="gpu",
    level="medium, info",
    reads=BOTH,
    when="a transpose between NHWC and NCHW is the input or output of a convolution",
    advice="keep images in one layout",
    unless="the compiler removes it; check a profile for Transpose",
    says="Tensor cores read NHWC; other layouts are converted.",
    source=_GUIDE,
)
TINY_BATCH = Rule(
    id="GPU-BT-1",
    title="Tiny batch",
    device="gpu",
    level="info",
    reads=BOTH,
    when="the batch of a convolution or the rows of a matrix product are fewer than 8",
    advice="use a larger batch, if memory and latency allow it",
    unless="results are needed one at a time, as in serving",
    says="Small dimensions leave tiles of a GPU empty (tile and wave quantization).",
    source=_GUIDE,
)
_LAYOUT_PERMS = ([0, 3, 1, 2], [0, 2, 3, 1], [0, 4, 1, 2, 3], [0, 2, 3, 4, 1])
_HALVES = ("float16", "bfloat16")
_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "int8": 1}
_MULTIPLES = {name: ALIGNED_BYTES // size for name, size in _BYTES.items()}
"""Elements per 16 bytes: tensor cores are fastest at multiples of it."""
_LEAST_BATCH = 8
_MOST_NAMED = 20
_TYPES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "s8": "int8", "u8": "int8"}
_FORWARD_CALLS = frozenset(target for target in CONVOLUTION_CALLS if "Backward" not in target)
_Where = Mapping[str, Any]


def _add_misaligned(
    ledger: Ledger, where: _Where, rule: Rule, dtype: str, odd: Mapping[str, int], tensors: Sequence[PaddedTensor]
) -> None:
    """Report sizes that are not multiples for tensor cores."""
    multiple = _MULTIPLES[dtype]
    is_large = max((tensor.padded_bytes for tensor in tensors), default=0) >= MIB
    sizes = ", ".join(f"{name} = {size} (to {rounded_up(size, multiple)})" for name, size in odd.items())
    casts = "the type is float32: it matters only with TF32 or mixed precision"
    ledger.add(
        rule.found(
            where,
            "info" if not is_large else "medium" if dtype in _HALVES else "low",
            f"{sizes}: tensor cores require multiples of {multiple} in {dtype}",
            advice=(f"round up to a multiple of {multiple} (preferably {8 * multiple}), for example with zero padding"),
            unless=casts if dtype == "float32" else "the product takes a small part of the step",
            tensors=tuple(tensors),
        )
    )


def _add_channels(
    ledger: Ledger, where: _Where, dtype: str, channels: tuple[int, int], tensors: Sequence[PaddedTensor], *, even: bool
) -> None:
    """Report channels that are not multiples for tensor cores; even numbers only if `even` is true."""
    sizes = dict(zip(("input channels", "output channels"), channels, strict=True))
    odd = {key: size for key, size in sizes.items() if size % _MULTIPLES[dtype]}
    uneven = {key: size for key, size in odd.items() if size % 2 and size > 1}
    if uneven:
        _add_misaligned(ledger, where, ODD_CHANNELS, dtype, uneven, tensors)
    elif odd and even:
        _add_misaligned(ledger, where, CHANNELS, dtype, odd, tensors)


def _add_layout(ledger: Ledger, where: _Where, layout: str, dtype: str) -> None:
    what = f"the layout is {layout} in {dtype}: tensor cores read NHWC"
    ledger.add(LAYOUT.found(where, "medium", what, certainty="exact"))


def _add_tiny_batch(ledger: Ledger, where: _Where, batch: int) -> None:
    if batch < _LEAST_BATCH:
        what = f"the batch is {batch}: too few rows to fill the tiles of a GPU"
        advice = f"use a batch of {_LEAST_BATCH} or more, if memory and latency allow it"
        ledger.add(TINY_BATCH.found(where, "info", what, advice=advice, certainty="exact"))


def _padded(role: str, dims: Dims, places: Sequence[int], multiple: int, size: int) -> PaddedTensor:
    """Return the padding of dimensions to a multiple; dimensions of size 1 are not padded."""
    of_dim = {at: multiple for at in places if dims[at] > 1}
    return in_layouts(role, [with_multiples(dims, of_dim)], size)


def _check_products(graph: OpGraph, ledger: Ledger) -> None:
    for index in graph.of(MATMULS - {"Einsum"}):
        left, right, output = graph.input_shape(index, 0), graph.input_shape(index, 1), graph.known(index)
        if output is None or left is None or right is None or -1 in (*left, *right) or len(output) < 2:
            ledger.cannot(graph.name_of(index), OPEN)
            continue
        dtype, size, where = graph.dtype(index), graph.element_bytes(index), place(graph, index)
        multiple = _MULTIPLES.get(dtype, 0)
        if not multiple or len(left) < 2:
            continue
        ledger.judge(graph.name_of(index))
        transposed = graph.flag(index, "transpose_a", "adj_x")
        sizes = {"M": output[-2], "N": output[-1], "K": left[-2] if transposed else left[-1]}
        if odd := off_multiple(sizes, multiple):
            tensors = [
                _padded(role, dims, range(max(len(dims) - 2, 0), len(dims)), multiple, size)
                for role, dims in (("operand", left), ("operand", right), ("result", output))
            ]
            _add_misaligned(ledger, where, PRODUCT, dtype, odd, tensors)
        if len(output) == 2:
            _add_tiny_batch(ledger, where, sizes["M"])


def _check_convolutions(graph: OpGraph, ledger: Ledger) -> None:
    floats = []
    for index in graph.of(CONVOLUTIONS):
        found, dtype, size = parts(graph, index), graph.dtype(index), graph.element_bytes(index)
        if found is None:
            ledger.cannot(graph.name_of(index), OPEN)
            continue
        if dtype not in _MULTIPLES:
            continue
        ledger.judge(graph.name_of(index))
        where, multiple = place(graph, index), _MULTIPLES[dtype]
        batch, features = graph.batch_and_features(index, len(found.activation))
        channels = found.activation[features], found.result[features]
        tensors = [
            in_layouts(role, [with_multiples(dims, {features: multiple})], size)
            for role, dims in (("activation", found.activation), ("result", found.result))
        ]
        _add_channels(ledger, where, dtype, channels, tensors, even="Depthwise" not in graph.op(index))
        if dtype in _HALVES and features == 1:
            _add_layout(ledger, where, graph.text(index, "data_format"), dtype)
        if graph.op(index) in FORWARD:
            _add_tiny_batch(ledger, where, found.activation[batch])
            floats += [index] if dtype == "float32" and features > 1 else []
    if floats:
        what = f"{counted(len(floats), 'convolution')} in float32 read NHWC: without TF32, NCHW may be faster"
        ledger.add(FLOAT_LAYOUT.found(place(graph, *floats[:_MOST_NAMED]), "low", what, certainty="weak"))


def _check_transposes(graph: OpGraph, ledger: Ledger) -> None:
    for index in graph.of(frozenset(("Transpose",))):
        perm, output = perm_of(graph, index), graph.known(index)
        if perm not in _LAYOUT_PERMS or output is None:
            continue
        ledger.judge(graph.name_of(index))
        beside = [graph.source(index, 0), *(user for user, _ in graph.users(index))]
        if any(at >= 0 and graph.op(at) in CONVOLUTIONS for at in beside):
            moved = 2 * in_layouts("", [with_multiples(output, {})], graph.element_bytes(index)).padded_bytes
            what = f"layout conversion next to a convolution: all of {shape_text(output)} is read and written"
            level: Level = "medium" if moved >= 2 * MIB else "info"
            advice = f"{CONVERSION.advice} from the input pipeline to the last convolution"
            fields = {"advice": advice, "moved_bytes": moved, "certainty": "exact"}
            ledger.add(CONVERSION.found(place(graph, index), level, what, **fields))


def check_of(instruction: Instruction) -> Callable[[Place, Ledger], None] | None:
    """Return the check of an instruction of a compiled program."""
    if instruction.opcode == "dot" or instruction.target in MATRIX_CALLS:
        return _check_dot
    if _is_convolution(instruction):
        return _check_convolution
    return _check_transpose if instruction.opcode == "transpose" else None


def _is_convolution(instruction: Instruction) -> bool:
    return instruction.opcode == "convolution" or instruction.target in CONVOLUTION_CALLS


def _check_dot(at: Place, ledger: Ledger) -> None:
    left, right, dims = at.operand(0), at.operand(1), product_dims(at.instruction)
    dtype = _TYPES.get(left.type, "") if left is not None else ""
    if left is None or right is None or dims is None or not dtype or not at.name:
        return
    product = product_of(left.dims, right.dims, dims)
    if product is None:
        return
    ledger.judge(at.instruction.name)
    if odd := off_multiple(product.sizes, _MULTIPLES[dtype]):
        batch = (product.times,) if product.times > 1 else ()
        places = (len(batch), len(batch) + 1)
        tensors = [
            _padded(role, (*batch, *of), places, _MULTIPLES[dtype], element_bytes(left))
            for role, of in (
                ("operand", (product.m, product.k)),
                ("operand", (product.k, product.n)),
                ("result", (product.m, product.n)),
            )
        ]
        _add_misaligned(ledger, at.where, PRODUCT, dtype, odd, tensors)
    if product.times == 1 and "transpose(" not in at.name:
        _add_tiny_batch(ledger, at.where, min(product.m, product.n))


def _check_convolution(at: Place, ledger: Ledger) -> None:
    """Check forward convolutions; gradients have the same channels."""
    instruction, dims, image = at.instruction, at.instruction.convolution, at.operand(0)
    # The first result of a call.
    result = next(instruction.shape.leaves(), instruction.shape)
    is_call = instruction.opcode == "custom-call"
    if dims is None or image is None or image.type not in _TYPES or not at.name:
        return
    if (instruction.target not in _FORWARD_CALLS) if is_call else not is_forward(at):
        return
    if not has_dims(image.dims, (dims.input_batch, dims.input_feature)):
        return
    if not has_dims(result.dims, [dims.output_feature]):
        return
    ledger.judge(instruction.name)
    dtype, multiple = _TYPES[image.type], _MULTIPLES[_TYPES[image.type]]
    channels = image.dims[dims.input_feature], result.dims[dims.output_feature]
    tensors = [
        _padded("activation", image.dims, [dims.input_feature], multiple, element_bytes(image)),
        _padded("result", result.dims, [dims.output_feature], multiple, element_bytes(result)),
    ]
    several = any(size > 1 and size % multiple for size in channels)
    _add_channels(ledger, at.where, dtype, channels, tensors, even=instruction.feature_groups == 1 and several)
    if dtype in _HALVES and image.layout and image.layout[0] != dims.input_feature:
        _add_layout(ledger, at.where, str(image), dtype)
    _add_tiny_batch(ledger, at.where, image.dims[dims.input_batch])


def _check_transpose(at: Place, ledger: Ledger) -> None:
    """Check a transpose of at least 1 MiB that feeds or reads a convolution.

    A transpose that the compiler generated counts next to a GPU library call, but not in a CPU program.
    """
    shape = at.instruction.shape
    ledger.judge(at.instruction.name)
    beside = [at.graph.nodes[near].instruction for near in (*at.graph.sources(at.index), *at.graph.readers(at.index))]
    convolutions = [each for each in beside if _is_convolution(each)]
    is_own = bool(at.name) and "conv" not in at.name
    if shape.is_tuple or shape.bytes < MIB or not any(is_own or each.target for each in convolutions):
        return
    moved = 2 * shape.bytes
    what = f"layout conversion next to a convolution: {format_bytes(moved)} are read and written, the result is {shape}"
    advice = f"{CONVERSION.advice} from the input to the last convolution (NHWC in 16 bit)"
    unless = "the program requests the op that it was compiled from, or it takes a small part of the step"
    fields = {"advice": advice, "unless": unless, "moved_bytes": moved, "certainty": "exact"}
    ledger.add(CONVERSION.found(at.where, "medium", what, **fields))


TOPIC = Topic(
    rules=(PRODUCT, CHANNELS, ODD_CHANNELS, LAYOUT, CONVERSION, FLOAT_LAYOUT, TINY_BATCH),
    check_graph=(_check_products, _check_convolutions, _check_transposes),
)
