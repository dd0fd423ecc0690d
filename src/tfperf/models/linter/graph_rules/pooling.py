"""Rules about pooling: what its batch and features are rounded up to, and gradients of maxima."""

from __future__ import annotations

from msgspec.structs import replace

from tfperf.models.linter.graph_rules.convolutions import usual_batch
from tfperf.models.linter.op_graph import ELEMENTWISE, FORWARD, OPEN, POOL_GRADIENTS, POOLS, OpGraph
from tfperf.models.linter.padding import (
    Dims,
    PaddedTensor,
    both_orders,
    convolution_multiples,
    in_layouts,
    with_multiples,
)
from tfperf.models.linter.rule import Ledger
from tfperf.models.linter.shared_rules import POOLING, max_pool_gradient

_BETWEEN = ELEMENTWISE | {"FusedBatchNormV3"}
"""Ops that may stand between a pooling and its convolution."""
_POOLING_BESIDE = replace(POOLING, how="batch and features are rounded up as the convolution beside it")


def check_pooling(graph: OpGraph, ledger: Ledger) -> None:
    """TPU-PL-1 and TPU-PL-2: rounding up in pooling, as the convolution beside it has it, and gradients of maxima."""
    batch, _ = usual_batch(graph)
    is_beside = _beside_convolutions(graph)
    for index in graph.of(POOLS, POOL_GRADIENTS):
        name = graph.name_of(index)
        where = {"ops": (name,), "op_type": graph.op(index)}
        if graph.op(index).startswith("MaxPool") and "Grad" in graph.op(index):
            ledger.judge(name)
            ledger.add(max_pool_gradient(where))
        data = 1 if graph.op(index).startswith("AvgPool") and "Grad" in graph.op(index) else 0
        given, output = graph.input_shape(index, data), graph.known(index)
        if given is None or -1 in given or output is None:
            ledger.cannot(name, OPEN)
            continue
        ledger.judge(name)
        beside = batch if is_beside[index] else 0
        tensors = tuple(
            _pooled(graph, index, role, dims, beside) for role, dims in (("input", given), ("result", output))
        )
        (_POOLING_BESIDE if beside else POOLING).check(ledger, tensors, where)


def _pooled(graph: OpGraph, index: int, role: str, dims: Dims, batch: int) -> PaddedTensor:
    """Return the padding in the layout of convolutions of a batch size; in either, where that is 0."""
    places, size = graph.batch_and_features(index, len(dims)), graph.element_bytes(index)
    if not batch:
        return both_orders(role, dims, size, places)
    of_dim = dict(zip(places, convolution_multiples(batch), strict=True))
    return in_layouts(role, [with_multiples(dims, of_dim)], size)


def _beside_convolutions(graph: OpGraph) -> list[bool]:
    """Tell which nodes a convolution feeds or reads, with nothing but elementwise ops between; one pass each way."""
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
