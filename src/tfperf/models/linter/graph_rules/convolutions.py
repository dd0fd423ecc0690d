"""Rules about convolutions: what their batch and features are rounded up to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from tfperf.base.units import format_bytes
from tfperf.models.linter.op_graph import CONVOLUTIONS, FORWARD, INPUT_GRADIENTS, KERNEL_GRADIENTS, OPEN, OpGraph
from tfperf.models.linter.padding import (
    LARGE_BATCH,
    MIB,
    Dims,
    PaddedTensor,
    both_orders,
    convolution_multiples,
    in_layouts,
    padding_text,
    with_multiples,
)
from tfperf.models.linter.rule import Ledger, Violation, worst

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
    return both_orders("kernel", dims, graph.element_bytes(index))


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
