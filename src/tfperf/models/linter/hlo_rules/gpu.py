"""The rules of GPUs on a compiled program: sizes that suit tensor cores, layouts that tensor cores read, tiny batches.

Products and convolutions are instructions of their own, or calls into the libraries of the vendor. What the compiler
made without an op of the program behind it is no finding; conversions of layouts are, since most are the compiler's.
"""

from __future__ import annotations

from tfperf.base.units import format_bytes
from tfperf.formats.hlo.library_calls import CONVOLUTION_CALLS, MATRIX_CALLS, product_dims
from tfperf.formats.hlo.model import Module, Shape
from tfperf.formats.hlo.products import has_dims, off_multiple, product_of
from tfperf.models.linter.hlo_graph import graphs_of_program
from tfperf.models.linter.hlo_rules.convolutions import is_forward
from tfperf.models.linter.hlo_rules.place import OPEN, Place, element_bytes
from tfperf.models.linter.padding import MIB, Dims, PaddedTensor, in_layouts, with_multiples
from tfperf.models.linter.rule import Ledger, Violation
from tfperf.models.linter.shared_rules import MULTIPLES, TINY_BATCH, channels_first, misaligned, tiny_batch

_TYPES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "s8": "int8", "u8": "int8"}
_HALVES = ("f16", "bf16")
_FORWARD_CALLS = frozenset(target for target in CONVOLUTION_CALLS if "Backward" not in target)


def check_gpu_program(module: Module, ledger: Ledger) -> None:
    """Apply the rules of GPUs to a compiled program; raises ProgramError for one that is too large."""
    for graph in graphs_of_program(module):
        for index, node in enumerate(graph.nodes):
            place, instruction = Place(graph, index), node.instruction
            is_product = instruction.opcode == "dot" or instruction.target in MATRIX_CALLS
            if not is_product and not _is_convolution(place) and instruction.opcode != "transpose":
                continue
            if not instruction.shape.is_known:
                ledger.cannot(instruction.name, OPEN)
            elif is_product:
                _check_product(place, ledger)
            elif _is_convolution(place):
                _check_convolution(place, ledger)
            else:
                _check_transpose(place, ledger)


def _is_convolution(place: Place) -> bool:
    return place.instruction.opcode == "convolution" or place.instruction.target in CONVOLUTION_CALLS


def _first(shape: Shape) -> Shape:
    """Return the array that an instruction computes: of a call, the first of its results."""
    return next(shape.leaves(), shape)


def _check_product(place: Place, ledger: Ledger) -> None:
    """GPU-MM-1 and GPU-BT-1."""
    left, right, dims = place.operand(0), place.operand(1), product_dims(place.instruction)
    dtype = _TYPES.get(left.type, "") if left is not None else ""
    if left is None or right is None or dims is None or not dtype or not place.name:
        return
    product = product_of(left.dims, right.dims, dims)
    if product is None:
        return
    ledger.judge(place.instruction.name)
    multiple = MULTIPLES[dtype]
    odd = off_multiple(product.sizes, multiple)
    if odd:
        batch = (product.times,) if product.times > 1 else ()
        multiples = {len(batch): multiple, len(batch) + 1: multiple}
        tensors = [
            _padded(role, (*batch, *of), multiples, element_bytes(left))
            for role, of in (
                ("operand", (product.m, product.k)),
                ("operand", (product.k, product.n)),
                ("result", (product.m, product.n)),
            )
        ]
        ledger.add(misaligned("GPU-MM-1", dtype, odd, multiple, tensors, place.where))
    if product.times == 1 and min(product.m, product.n) < TINY_BATCH and "transpose(" not in place.name:
        ledger.add(tiny_batch(min(product.m, product.n), place.where))


def _padded(role: str, dims: Dims, multiples: dict[int, int], size: int) -> PaddedTensor:
    of_dim = {place: multiple for place, multiple in multiples.items() if dims[place] > 1}
    return in_layouts(role, [with_multiples(dims, of_dim)], size)


def _check_convolution(place: Place, ledger: Ledger) -> None:
    """GPU-CV-1, GPU-CV-2, GPU-LY-1 and GPU-BT-1 of forward convolutions; gradients have the same channels."""
    instruction, dims = place.instruction, place.instruction.convolution
    image, result = place.operand(0), _first(place.instruction.shape)
    is_call = instruction.opcode == "custom-call"
    if dims is None or image is None or image.type not in _TYPES or not place.name:
        return
    if (instruction.target not in _FORWARD_CALLS) if is_call else not is_forward(place):
        return
    if not has_dims(image.dims, (dims.input_batch, dims.input_feature)):
        return
    if not has_dims(result.dims, [dims.output_feature]):
        return
    ledger.judge(instruction.name)
    dtype, multiple = _TYPES[image.type], MULTIPLES[_TYPES[image.type]]
    channels = {"input channels": image.dims[dims.input_feature], "output channels": result.dims[dims.output_feature]}
    odd = {key: size for key, size in channels.items() if size % multiple}
    uneven = {key: size for key, size in odd.items() if size % 2 and size > 1}
    tensors = [
        _padded("activation", image.dims, {dims.input_feature: multiple}, element_bytes(image)),
        _padded("result", result.dims, {dims.output_feature: multiple}, element_bytes(result)),
    ]
    if uneven:
        ledger.add(misaligned("GPU-CV-2", dtype, uneven, multiple, tensors, place.where))
    elif odd and instruction.feature_groups == 1 and any(size > 1 for size in odd.values()):
        ledger.add(misaligned("GPU-CV-1", dtype, odd, multiple, tensors, place.where))
    if image.type in _HALVES and image.layout and image.layout[0] != dims.input_feature:
        ledger.add(channels_first(str(image), dtype, place.where))
    if image.dims[dims.input_batch] < TINY_BATCH:
        ledger.add(tiny_batch(image.dims[dims.input_batch], place.where))


def _check_transpose(place: Place, ledger: Ledger) -> None:
    """GPU-LY-2: a transpose of 1 MiB or more that feeds a convolution, or reads one.

    One that the compiler made counts beside a call into a library of a GPU; those for a CPU do not.
    """
    shape = place.instruction.shape
    ledger.judge(place.instruction.name)
    beside = [*place.graph.sources(place.index), *place.graph.readers(place.index)]
    convolutions = [other for at in beside if _is_convolution(other := Place(place.graph, at))]
    is_own = bool(place.name) and "conv" not in place.name
    if shape.is_tuple or shape.bytes < MIB or not any(is_own or other.instruction.target for other in convolutions):
        return
    ledger.add(
        Violation(
            rule="GPU-LY-2",
            level="medium",
            what=f"layout conversion beside a convolution: {format_bytes(2 * shape.bytes)} are read and written, "
            f"the result is {shape}",
            advice="keep images in one layout from the input to the last convolution (NHWC in 16 bit)",
            unless="the op that it was compiled from is asked for, or it takes little of the step",
            moved_bytes=2 * shape.bytes,
            certainty="exact",
            **place.where,
        )
    )
