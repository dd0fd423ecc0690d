"""Convolutions and pooling: padding of batch and features, and gradients of maxima."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from tfperf.base.units import format_bytes
from tfperf.formats.models.dtypes import Dims
from tfperf.formats.models.op_graph import OpGraph
from tfperf.models.linter.graph import (
    CONVOLUTIONS,
    ELEMENTWISE,
    FORWARD,
    INPUT_GRADIENTS,
    KERNEL_GRADIENTS,
    OPEN,
    POOL_GRADIENTS,
    POOLS,
    place,
)
from tfperf.models.linter.padding import (
    LARGE_BATCH,
    MIB,
    Level,
    PaddedTensor,
    both_orders,
    convolution_multiples,
    in_layouts,
    padding_text,
    with_multiples,
)
from tfperf.models.linter.program import Place, element_bytes
from tfperf.models.linter.rule import BOTH, TPU_NOTES, Ledger, Rule, Topic, worst

CONVOLUTION = Rule(
    id="TPU-CV-1",
    title="Padding of a convolution",
    device="tpu",
    level="high, medium, info",
    reads=BOTH,
    when=(
        "batch or features of activation, result or a large kernel are rounded up: to 128 and 8 if most have a "
        "batch of at least 64, otherwise to 8 and 128; reversed in gradients of kernels"
    ),
    advice="make batch and features multiples of these; for an input with 3 channels, use space-to-depth on the host",
    unless="the compiler may choose another layout if neighbors of the convolution require it",
    says="For activations, batch and feature dimensions are padded to multiples of 8 or 128.",
    source=TPU_NOTES,
)
BATCH_SIZES = Rule(
    id="TPU-CV-2",
    title="Batch sizes unsuitable for both layouts",
    device="tpu",
    level="medium, info",
    reads=("graph",),
    when="the usual batch is 48 to 63, or convolutions have several batch sizes",
    advice="choose the batch size for the smaller layout, and use it in all convolutions",
    unless="other batch sizes are intended, and take little time",
    says="XLA tracks the most common batch size of the convolutions in the module.",
    source=TPU_NOTES,
)
POOLING = Rule(
    id="TPU-PL-1",
    title="Padding of pooling",
    device="tpu",
    level="high, medium, info",
    reads=BOTH,
    when="batch or features of its input or result are rounded up, as in the previous or next convolution",
    advice="make batch and features multiples of 8 or 128, as for the adjacent convolutions",
    unless="neighbors of the pooling require another layout",
    says="The layout of pooling usually matches the convolutions that feed it or read it.",
    source=TPU_NOTES,
)
MAX_GRADIENT = Rule(
    id="TPU-PL-2",
    title="Gradient of max pooling",
    device="tpu",
    level="info",
    reads=BOTH,
    when="a gradient of max pooling",
    advice="try average pooling",
    unless="the model needs max pooling for its accuracy (this changes the model)",
    says="The gradient of tf.nn.max_pool may be slower than that of tf.nn.avg_pool.",
    source=TPU_NOTES,
)
_EITHER_LAYOUT = "batch and features are rounded up to 8 and 128, or to 128 and 8"
_SCATTERS = (
    "the gradient of max pooling scatters to the positions of the maxima; the gradient of average pooling does not"
)
_TRY = "try average pooling, or a convolution with strides, if the gradient takes time in a profile"
_NEAR_LARGE = 48  # batch size from which rounding up to the larger layout may cost less
_FEW_CHANNELS = 4
_LAYOUTS = ("below 64 (batch to 8, features to 128)", "of 64 or more (batch to 128, features to 8)")
_BETWEEN = ELEMENTWISE | {"FusedBatchNormV3"}  # ops that may occur between a pooling and its convolution


class Parts(NamedTuple):
    """The tensors of a convolution."""

    activation: Dims
    kernel: Dims
    result: Dims


def parts(graph: OpGraph, index: int) -> Parts | None:
    """Return activation (input of the forward convolution), kernel and result; None if a dimension is unknown."""
    output = graph.known(index)
    first, second, last = (graph.input_shape(index, at) for at in range(3))
    if graph.op(index) in FORWARD:
        found = first, second, output
    elif graph.op(index) in INPUT_GRADIENTS:
        found = output, second, last
    else:
        found = first, output, last
    known = [dims for dims in found if dims is not None and -1 not in dims]
    return Parts(*known) if len(known) == len(found) else None


def usual_batch(graph: OpGraph) -> tuple[int, dict[int, int]]:
    """Return the batch size of most convolutions (the largest of several, 0 without any), and all counts."""
    found: Counter[int] = Counter()
    for index in graph.of(CONVOLUTIONS):
        activation = graph.known(index) if graph.op(index) in INPUT_GRADIENTS else graph.input_shape(index, 0)
        if activation and -1 not in activation:
            found[activation[graph.batch_and_features(index, len(activation))[0]]] += 1
    most = max(found.values(), default=0)
    return max((size for size, count in found.items() if count == most), default=0), dict(found)


def _check_convolutions(graph: OpGraph, ledger: Ledger) -> None:
    batch, sizes = usual_batch(graph)
    for index in graph.of(CONVOLUTIONS):
        found = parts(graph, index)
        if found is None:
            ledger.cannot(graph.name_of(index), OPEN)
            continue
        ledger.judge(graph.name_of(index))
        # The ops around a kernel determine which of its features are on the lanes.
        kernel = both_orders("kernel", found.kernel, graph.element_bytes(index))
        activations = _activations(graph, index, batch, found)
        wasteful = [*activations, kernel] if kernel.padded_bytes >= MIB else activations
        if any(tensor.least.ratio > 1.0 for tensor in wasteful):
            _add_padding(graph, ledger, index, batch, [*activations, kernel], wasteful)
    if _NEAR_LARGE <= batch < LARGE_BATCH or len(sizes) > 1:
        _add_batch_sizes(graph, ledger, batch, sizes)


def _activations(graph: OpGraph, index: int, batch: int, found: Parts) -> list[PaddedTensor]:
    multiples = convolution_multiples(batch, kernel_gradient=graph.op(index) in KERNEL_GRADIENTS)
    size = graph.element_bytes(index)
    return [
        in_layouts(
            role,
            [with_multiples(dims, dict(zip(graph.batch_and_features(index, len(dims)), multiples, strict=True)))],
            size,
        )
        for role, dims in (("activation", found.activation), ("result", found.result))
    ]


def _add_padding(
    graph: OpGraph, ledger: Ledger, index: int, batch: int, tensors: list[PaddedTensor], wasteful: list[PaddedTensor]
) -> None:
    to_batch, to_features = convolution_multiples(batch, kernel_gradient=graph.op(index) in KERNEL_GRADIENTS)
    largest = max(wasteful, key=lambda tensor: tensor.wasted_bytes)
    advice = (
        f"make the batch size ({batch} in most convolutions) a multiple of {to_batch}, and features of {to_features}"
    )
    channels = largest.least.dims[graph.batch_and_features(index, len(largest.least.dims))[1]]
    if largest.role == "activation" and channels <= _FEW_CHANNELS:
        advice += f"; input with {channels} channels: the usual fix is space-to-depth on the host"
    what = padding_text(largest, f"batch to a multiple of {to_batch}, features of {to_features}")
    level = worst([tensor.level for tensor in wasteful])
    ledger.add(CONVOLUTION.found(place(graph, index), level, what, advice=advice, tensors=tuple(tensors)))


def _add_batch_sizes(graph: OpGraph, ledger: Ledger, batch: int, sizes: dict[int, int]) -> None:
    known = [(index, found) for index in graph.of(CONVOLUTIONS) if (found := parts(graph, index)) is not None]
    totals = [
        sum(tensor.padded_bytes for index, found in known for tensor in _activations(graph, index, size, found))
        for size in (batch if batch < LARGE_BATCH else 1, LARGE_BATCH)
    ]
    chosen, cheaper = _LAYOUTS[batch >= LARGE_BATCH], _LAYOUTS[totals[1] < totals[0]]
    counts = ", ".join(f"{size} in {count}" for size, count in sorted(sizes.items()))
    what = (
        f"batch sizes of convolutions: {counts}. The layout {_LAYOUTS[0]} takes {format_bytes(totals[0])}, the "
        f"layout {_LAYOUTS[1]} {format_bytes(totals[1])}; the compiler uses the one {chosen}"
    )
    advice = "use one batch size in all of them" if len(sizes) > 1 else f"choose a batch size for the layout {cheaper}"
    level: Level = "medium" if cheaper != chosen else "info"
    where = {"ops": tuple(graph.name_of(index) for index, _ in known), "op_type": "Conv2D"}
    ledger.add(BATCH_SIZES.found(where, level, what, advice=advice))


def _check_pooling(graph: OpGraph, ledger: Ledger) -> None:
    batch, _ = usual_batch(graph)
    is_beside = _beside_convolutions(graph)
    for index in graph.of(POOLS, POOL_GRADIENTS):
        name, where = graph.name_of(index), place(graph, index)
        is_gradient = "Grad" in graph.op(index)
        if is_gradient and graph.op(index).startswith("MaxPool"):
            ledger.judge(name)
            ledger.add(MAX_GRADIENT.found(where, "info", _SCATTERS, advice=_TRY))
        given = graph.input_shape(index, int(is_gradient and graph.op(index).startswith("AvgPool")))
        output = graph.known(index)
        if given is None or -1 in given or output is None:
            ledger.cannot(name, OPEN)
            continue
        ledger.judge(name)
        beside = batch if is_beside[index] else 0
        tensors = [_pooled(graph, index, role, dims, beside) for role, dims in (("input", given), ("result", output))]
        how = "batch and features are rounded up, as in the adjacent convolution" if beside else _EITHER_LAYOUT
        ledger.add_padding(POOLING, where, tensors, how, least=(1.0, 0))


def _pooled(graph: OpGraph, index: int, role: str, dims: Dims, batch: int) -> PaddedTensor:
    """Return the padding in the convolution layout of a batch size; in either layout if it is 0."""
    places, size = graph.batch_and_features(index, len(dims)), graph.element_bytes(index)
    if not batch:
        return both_orders(role, dims, size, places)
    of_dim = dict(zip(places, convolution_multiples(batch), strict=True))
    return in_layouts(role, [with_multiples(dims, of_dim)], size)


def _beside_convolutions(graph: OpGraph) -> list[bool]:
    """Return which nodes a convolution feeds or reads through elementwise ops only; one pass per direction."""
    gives, reads = [False] * len(graph.nodes), [False] * len(graph.nodes)
    for index, node in enumerate(graph.nodes):
        gives[index] = node.op in FORWARD or (node.op in _BETWEEN and any(gives[at] for at, _ in node.inputs))
    for index in reversed(range(len(graph.nodes))):
        node = graph.nodes[index]
        if node.op in FORWARD or (node.op in _BETWEEN and reads[index]):
            for source, _ in node.inputs:
                reads[source] = True
    fed = [bool(node.inputs) and gives[node.inputs[0][0]] for node in graph.nodes]
    return [one or other for one, other in zip(fed, reads, strict=True)]


def is_forward(at: Place) -> bool:
    """Return whether a convolution comes from the program and is not a gradient."""
    names = f"{at.name} {at.instruction.metadata.op_type}"
    dilated = any(dim.base_dilation > 1 for dim in at.instruction.window)
    return bool(at.name) and not dilated and "transpose(" not in names and "Backprop" not in names


def _check_convolution(at: Place, ledger: Ledger) -> None:
    """Check forward convolutions; gradients have the same tensors, and programs do not identify them reliably."""
    dims, result, operand = at.instruction.convolution, at.instruction.shape, at.operand(0)
    if dims is None or operand is None or result.is_tuple or not is_forward(at):
        return
    ledger.judge(at.instruction.name)
    tensors = [
        both_orders(role, shape.dims, element_bytes(shape), batch_and_features)
        for role, shape, batch_and_features in (
            ("activation", operand, (dims.input_batch, dims.input_feature)),
            ("result", result, (dims.output_batch, dims.output_feature)),
        )
    ]
    advice = "make batch and features multiples of 8 and 128"
    ledger.add_padding(CONVOLUTION, at.where, tensors, _EITHER_LAYOUT, advice=advice)


def _check_windows(at: Place, ledger: Ledger) -> None:
    """Check windows over at least two dimensions that come from the program."""
    operand, result, window = at.operand(0), at.instruction.shape, at.instruction.window
    others = [number for number, dim in enumerate(window) if dim.size <= 1]
    is_pooling = len(others) >= 2 and len(window) - len(others) >= 2
    if not at.name or not is_pooling or operand is None or result.is_tuple or len(operand.dims) != len(window):
        return
    ledger.judge(at.instruction.name)
    tensors = [
        both_orders(role, shape.dims, element_bytes(shape), (others[0], others[-1]))
        for role, shape in (("input", operand), ("result", result))
    ]
    ledger.add_padding(POOLING, at.where, tensors, _EITHER_LAYOUT, least=(1.0, 0))


def _check_max_gradient(at: Place, ledger: Ledger) -> None:
    """Check gradients of max pooling, including those that the compiler has rewritten."""
    metadata = at.instruction.metadata
    is_named = "select_and_scatter" in metadata.op_name or metadata.op_type == "MaxPoolGrad"
    if at.instruction.opcode == "select-and-scatter" or is_named:
        ledger.judge(at.instruction.name)
        ledger.add(MAX_GRADIENT.found(at.where, "info", _SCATTERS, advice=_TRY))


TOPIC = Topic(
    rules=(CONVOLUTION, BATCH_SIZES, POOLING, MAX_GRADIENT),
    check_graph=(_check_convolutions, _check_pooling),
    check_program={
        "convolution": _check_convolution,
        "reduce-window": _check_windows,
        "select-and-scatter": _check_max_gradient,
        "scatter": _check_max_gradient,
    },
)
