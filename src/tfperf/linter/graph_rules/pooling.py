"""Rules about pooling: what its batch and features are rounded up to, and gradients of maxima."""

from __future__ import annotations

from msgspec.structs import replace

from tfperf.linter.graph_rules.convolutions import usual_batch
from tfperf.linter.op_graph import ELEMENTWISE, FORWARD, OPEN, POOL_GRADIENTS, POOLS, OpGraph
from tfperf.linter.padding import Dims, PaddedTensor, both_orders, convolution_multiples, in_layouts, with_multiples
from tfperf.linter.rule import Ledger
from tfperf.linter.shared_rules import POOLING, max_pool_gradient

_BETWEEN = ELEMENTWISE | {"FusedBatchNormV3"}
"""Ops that may stand between a pooling and its convolution."""
_POOLING_BESIDE = replace(POOLING, how="batch and features are rounded up as the convolution beside it")


def check_pooling(graph: OpGraph, ledger: Ledger) -> None:
    """TPU-PL-1 and TPU-PL-2: rounding up in pooling, as the convolution beside it has it, and gradients of maxima."""
    batch, _ = usual_batch(graph)
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
        beside = batch if _beside_convolution(graph, index) else 0
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


def _beside_convolution(graph: OpGraph, index: int) -> bool:
    """Tell whether a convolution feeds a pooling, or reads it, with nothing but elementwise ops between."""
    before, after, seen = [graph.source(index, 0)], [index], {index}
    while before:
        at = before.pop()
        if at >= 0 and graph.op(at) in FORWARD:
            return True
        if at >= 0 and at not in seen and graph.op(at) in _BETWEEN:
            seen.add(at)
            before += [graph.source(at, place) for place in range(len(graph.nodes[at].inputs))]
    while after:
        for user, _ in graph.users(after.pop()):
            if graph.op(user) in FORWARD:
                return True
            if user not in seen and graph.op(user) in _BETWEEN:
                seen.add(user)
                after.append(user)
    return False
