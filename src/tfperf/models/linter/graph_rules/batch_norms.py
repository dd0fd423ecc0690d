"""The rule about batch norms that are written as many ops."""

from __future__ import annotations

from collections.abc import Iterator

from tfperf.models.linter.op_graph import FOLLOWED, REDUCTIONS, OpGraph
from tfperf.models.linter.rule import Ledger, Violation

_FUSED = frozenset((
    "FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3", "FusedBatchNormGrad", "FusedBatchNormGradV2",
    "FusedBatchNormGradV3",
))  # fmt: skip
_ADDS = ("AddV2", "Add")
_VARIABLES = ("ReadVariableOp", "VariableV2", "Variable", "_Arg", "Placeholder", "Const", "ResourceGather")
_THROUGH = FOLLOWED | {"Squeeze", "Reshape", "ExpandDims"}


def batch_norm_scopes(graph: OpGraph) -> dict[str, int]:
    """Return the name scopes that hold a batch norm of many ops, with the op that tells: its Rsqrt."""
    found: dict[str, int] = {}
    for index in _roots(graph):
        before = graph.source(index, 0)
        variance = _variance(graph, before) if before >= 0 and graph.op(before) in _ADDS else -1
        users = {graph.op(user) for user, _ in graph.users(index)}
        if variance >= 0 and "Mul" in users and _is_over_batch(graph, variance, before):
            found.setdefault(_scope(graph, index), index)
    return found


def _roots(graph: OpGraph) -> Iterator[int]:
    return graph.of(frozenset(("Rsqrt",)))


def _scope(graph: OpGraph, index: int) -> str:
    """Return the scope of a layer: the name without the op and without `batchnorm`, which TensorFlow puts around."""
    return graph.name_of(index).rpartition("/")[0].removesuffix("batchnorm").rstrip("/")


def _variance(graph: OpGraph, add: int) -> int:
    """Return what epsilon is added to; -1 if no input is a constant or scalar."""
    sources = [graph.source(add, place) for place in (0, 1)]
    scalar = [place for place in (0, 1) if graph.input_shape(add, place) == ()]
    if len(scalar) != 1:
        return -1
    at = sources[1 - scalar[0]]
    return graph.origin(at, _THROUGH) if at >= 0 else -1


def _is_over_batch(graph: OpGraph, variance: int, add: int) -> bool:
    """Tell whether a variance is one of each feature over the batch, or kept by a variable: not one of each example."""
    if graph.op(variance) in REDUCTIONS:
        given, axes = graph.input_shape(variance, 0), graph.constant_input(variance, 1)
        return given is not None and axes is not None and 0 in [axis % len(given) for axis in axes if given]
    dims = graph.known(add)
    return graph.op(variance) in _VARIABLES and dims is not None and sum(size != 1 for size in dims) == 1


def check_batch_norms(graph: OpGraph, ledger: Ledger) -> None:
    """TPU-BN-1: batch norms of many ops, once for each layer."""
    for index in graph.of(_FUSED):
        ledger.judge(graph.name_of(index))
    for scope, index in batch_norm_scopes(graph).items():
        ledger.judge(graph.name_of(index))
        trained = graph.op(_variance(graph, graph.source(index, 0))) in REDUCTIONS
        ledger.add(
            Violation(
                rule="TPU-BN-1",
                level="medium",
                ops=(scope or graph.name_of(index),),
                op_type="batch norm",
                what=(
                    "a batch norm of many ops: "
                    + ("mean, variance, Rsqrt and products" if trained else "Rsqrt, products and sums of its variables")
                ),
                advice=(
                    "use the fused op: tf.raw_ops.FusedBatchNormV3, or tf.compat.v1.nn.fused_batch_norm in old code. "
                    "BatchNormalization of Keras 3 has no such argument: there it takes a layer of your own"
                ),
                unless=(
                    "the input has not 4 or 5 dimensions, or is not of 16 or 32 bit; in inference the ops are few, and "
                    "are fused"
                ),
                certainty="exact",
            )
        )
