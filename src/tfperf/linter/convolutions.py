"""Rules about convolutions and pooling: what their batch and features are rounded up to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from tfperf.linter.op_graph import (
    CONVOLUTIONS,
    ELEMENTWISE,
    FORWARD,
    INPUT_GRADIENTS,
    KERNEL_GRADIENTS,
    POOL_GRADIENTS,
    POOLS,
    OpGraph,
)
from tfperf.linter.padding import (
    LANES,
    LARGE_BATCH,
    MIB,
    SUBLANES,
    Dims,
    PaddedTensor,
    convolution_multiples,
    in_layouts,
    with_multiples,
)
from tfperf.linter.rule import Ledger, Violation, worst
from tfperf.units import format_bytes

OPEN = "a dimension of its tensors is not known; give the batch size with --batch, or save it with fixed shapes"
_NEAR_LARGE = 48
"""From this batch size on, rounding up to the larger layout may cost less."""


class Parts(NamedTuple):
    """The tensors of a convolution; None for one whose dimensions are not all known."""

    activation: Dims | None
    kernel: Dims | None
    result: Dims | None


def parts(graph: OpGraph, index: int) -> Parts:
    """Return the activation (what the forward convolution reads), kernel and result of any convolution."""
    op = graph.op(index)
    output, first, last = graph.known(index), _input(graph, index, 0), _input(graph, index, 2)
    if op in FORWARD:
        return Parts(first, _input(graph, index, 1), output)
    if op in INPUT_GRADIENTS:
        return Parts(output, _input(graph, index, 1), last)
    return Parts(first, output, last)


def _input(graph: OpGraph, index: int, place: int) -> Dims | None:
    dims = graph.input_shape(index, place)
    return None if dims is None or -1 in dims else dims


def usual_batch(graph: OpGraph) -> tuple[int, dict[int, int]]:
    """Return the batch size that most convolutions have (of several, the largest; 0 without any), and all counts."""
    found: Counter[int] = Counter()
    for index in graph.of(CONVOLUTIONS):
        activation = parts(graph, index).activation
        if activation:
            found[activation[graph.batch_and_features(index, len(activation))[0]]] += 1
    most = max(found.values(), default=0)
    return max((size for size, count in found.items() if count == most), default=0), dict(found)


def check_convolutions(graph: OpGraph, ledger: Ledger) -> None:
    """TPU-CV-1 and TPU-CV-2: rounding up in each convolution, and batch sizes that suit neither layout."""
    batch, sizes = usual_batch(graph)
    for index in graph.of(CONVOLUTIONS):
        found = parts(graph, index)
        if None in found:
            ledger.cannot(graph.name_of(index), OPEN)
            continue
        ledger.judge(graph.name_of(index))
        tensors = (*_activations(graph, index, batch, found), _kernel(graph, index, found.kernel or ()))
        wasteful = tensors if tensors[-1].padded_bytes >= MIB else tensors[:-1]
        if any(tensor.least.ratio > 1.0 for tensor in wasteful):
            ledger.add(_padded(graph, index, batch, tensors, wasteful))
    _check_batch_sizes(graph, ledger, batch, sizes)


def _activations(graph: OpGraph, index: int, batch: int, found: Parts) -> Iterator[PaddedTensor]:
    multiples = convolution_multiples(batch, kernel_gradient=graph.op(index) in KERNEL_GRADIENTS)
    for role, dims in (("activation", found.activation or ()), ("result", found.result or ())):
        of_dim = dict(zip(graph.batch_and_features(index, len(dims)), multiples, strict=True))
        yield in_layouts(role, [with_multiples(dims, of_dim)], graph.element_bytes(index))


def _kernel(graph: OpGraph, index: int, dims: Dims) -> PaddedTensor:
    """Return the padding of a kernel: which of its features lie along the lanes is decided by what is around it."""
    inner, outer = len(dims) - 2, len(dims) - 1
    layouts = (with_multiples(dims, {inner: a, outer: b}) for a, b in ((SUBLANES, LANES), (LANES, SUBLANES)))
    return in_layouts("kernel", layouts, graph.element_bytes(index))


def _padded(
    graph: OpGraph, index: int, batch: int, tensors: tuple[PaddedTensor, ...], wasteful: tuple[PaddedTensor, ...]
) -> Violation:
    multiples = convolution_multiples(batch, kernel_gradient=graph.op(index) in KERNEL_GRADIENTS)
    largest = max(wasteful, key=lambda tensor: tensor.wasted_bytes)
    first = ""
    features = graph.batch_and_features(index, len(largest.least.dims))[1]
    if largest.role == "activation" and largest.least.dims[features] <= _FEW_CHANNELS:
        first = (
            f"; {largest.least.dims[features]} channels at the input: space-to-depth on the host is the usual remedy"
        )
    return Violation(
        rule="TPU-CV-1",
        level=worst([tensor.level for tensor in wasteful]),
        ops=(graph.name_of(index),),
        op_type=graph.op(index),
        what=padding_text(largest, f"batch to a multiple of {multiples[0]}, features of {multiples[1]}"),
        advice=_multiples_advice(batch, multiples) + first,
        unless="the compiler may choose otherwise where the neighbours of the convolution ask for it",
        tensors=tensors,
    )


_FEW_CHANNELS = 4


def _multiples_advice(batch: int, multiples: tuple[int, int]) -> str:
    usual = f"the batch size ({batch} in most convolutions)"
    return f"make {usual} a multiple of {multiples[0]}, and features of {multiples[1]}"


def padding_text(tensor: PaddedTensor, how: str) -> str:
    """Say what a tensor is rounded up to, and what that costs."""
    least, most = tensor.least, tensor.most
    ratio = f"{least.ratio:.2f}" if least.padded == most.padded else f"{least.ratio:.2f} to {most.ratio:.2f}"
    shapes = f"{shape_text(least.dims)} becomes {shape_text(least.padded)}"
    return f"{tensor.role} {shapes} ({how}): {ratio} times as large, {format_bytes(tensor.wasted_bytes)} of padding"


def shape_text(dims: Dims) -> str:
    """Return dimensions as people write them: `784x128`."""
    return "x".join(map(str, dims)) or "scalar"


def _check_batch_sizes(graph: OpGraph, ledger: Ledger, batch: int, sizes: dict[int, int]) -> None:
    is_near = _NEAR_LARGE <= batch < LARGE_BATCH
    if not is_near and len(sizes) < 2:
        return
    names = [graph.name_of(index) for index in graph.of(CONVOLUTIONS) if None not in parts(graph, index)]
    totals = [_total_bytes(graph, size) for size in (batch if batch < LARGE_BATCH else 1, LARGE_BATCH)]
    layouts = ("below 64 (batch to 8, features to 128)", "of 64 and more (batch to 128, features to 8)")
    chosen = layouts[batch >= LARGE_BATCH]
    cheaper = layouts[totals[1] < totals[0]]
    counts = ", ".join(f"{size} in {count}" for size, count in sorted(sizes.items()))
    ledger.add(
        Violation(
            rule="TPU-CV-2",
            level="medium" if cheaper != chosen else "info",
            ops=tuple(names),
            op_type="Conv2D",
            what=(
                f"batch sizes of convolutions: {counts}. The layout {layouts[0]} takes {format_bytes(totals[0])}, that "
                f"{layouts[1]} {format_bytes(totals[1])}; the compiler takes the one {chosen}"
            ),
            advice=(
                f"choose a batch size for the layout {cheaper}"
                if len(sizes) < 2
                else "use one batch size in all of them"
            ),
            unless="other batch sizes are there on purpose, and take little time",
        )
    )


def _total_bytes(graph: OpGraph, batch: int) -> int:
    """Return what activations and results of all convolutions take in the layout of this usual batch size."""
    known = ((index, parts(graph, index)) for index in graph.of(CONVOLUTIONS))
    return sum(
        tensor.padded_bytes
        for index, found in known
        if None not in found
        for tensor in _activations(graph, index, batch, found)
    )


def check_pooling(graph: OpGraph, ledger: Ledger) -> None:
    """TPU-PL-1 and TPU-PL-2: rounding up in pooling, as the convolution beside it has it, and gradients of maxima."""
    batch, _ = usual_batch(graph)
    for index in graph.of(POOLS, POOL_GRADIENTS):
        name = graph.name_of(index)
        _check_max_gradient(graph, ledger, index)
        data = 1 if graph.op(index).startswith("AvgPool") and "Grad" in graph.op(index) else 0
        given, output = graph.input_shape(index, data), graph.known(index)
        if given is None or -1 in given or output is None:
            ledger.cannot(name, OPEN)
            continue
        ledger.judge(name)
        beside = batch if _beside_convolution(graph, index) else 0
        tensors = tuple(
            _pooled(graph, index, role, dims, beside) for role, dims in (("input", given), ("result", output))
        )
        largest = max(tensors, key=lambda tensor: tensor.wasted_bytes)
        if largest.least.ratio > 1.0:
            where = "as the convolution beside it" if beside else "to 8 and 128, or to 128 and 8"
            ledger.add(
                Violation(
                    rule="TPU-PL-1",
                    level=worst([tensor.level for tensor in tensors]),
                    ops=(name,),
                    op_type=graph.op(index),
                    what=padding_text(largest, f"batch and features are rounded up {where}"),
                    advice="make batch and features multiples of 8 or 128, as for the convolutions beside it",
                    unless="the neighbours of the pooling ask for another layout",
                    tensors=tensors,
                )
            )


def _pooled(graph: OpGraph, index: int, role: str, dims: Dims, batch: int) -> PaddedTensor:
    first, features = graph.batch_and_features(index, len(dims))
    choices = [convolution_multiples(batch)] if batch else [(SUBLANES, LANES), (LANES, SUBLANES)]
    layouts = (with_multiples(dims, {first: a, features: b}) for a, b in choices)
    return in_layouts(role, layouts, graph.element_bytes(index))


def _beside_convolution(graph: OpGraph, index: int) -> bool:
    """Tell whether a convolution feeds a pooling, or reads it, with nothing but elementwise ops between."""
    before, after, seen = [graph.source(index, 0)], [index], {index}
    while before:
        at = before.pop()
        if at >= 0 and graph.op(at) in FORWARD:
            return True
        if at >= 0 and at not in seen and graph.op(at) in ELEMENTWISE | {"FusedBatchNormV3"}:
            seen.add(at)
            before += [graph.source(at, place) for place in range(len(graph.nodes[at].inputs))]
    while after:
        for user, _ in graph.users(after.pop()):
            if graph.op(user) in FORWARD:
                return True
            if user not in seen and graph.op(user) in ELEMENTWISE | {"FusedBatchNormV3"}:
                seen.add(user)
                after.append(user)
    return False


def _check_max_gradient(graph: OpGraph, ledger: Ledger, index: int) -> None:
    if graph.op(index).startswith("MaxPool") and "Grad" in graph.op(index):
        ledger.judge(graph.name_of(index))
        ledger.add(
            Violation(
                rule="TPU-PL-2",
                level="info",
                ops=(graph.name_of(index),),
                op_type=graph.op(index),
                what="the gradient of max pooling scatters to where the maxima were; that of average pooling does not",
                advice="try average pooling, or a convolution with strides, if the gradient shows in a profile",
                unless="accuracy needs the maxima: this changes the model",
            )
        )
