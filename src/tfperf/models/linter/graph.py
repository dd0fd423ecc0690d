"""Graph helpers for rules: groups of ops, places of findings, and propagation of the batch size."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tfperf.formats.models.dtypes import Dims
from tfperf.formats.models.op_graph import FOLLOWED, OpGraph

MATMULS = frozenset(("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum", "XlaDotV2"))
FORWARD = frozenset(("Conv2D", "Conv3D", "DepthwiseConv2dNative"))
INPUT_GRADIENTS = frozenset(
    ("Conv2DBackpropInput", "Conv3DBackpropInput", "Conv3DBackpropInputV2", "DepthwiseConv2dNativeBackpropInput")
)
KERNEL_GRADIENTS = frozenset(
    ("Conv2DBackpropFilter", "Conv3DBackpropFilter", "Conv3DBackpropFilterV2", "DepthwiseConv2dNativeBackpropFilter")
)
CONVOLUTIONS = FORWARD | INPUT_GRADIENTS | KERNEL_GRADIENTS
ACTIVATIONS = frozenset(("Relu", "Relu6", "Tanh", "Sigmoid", "Elu", "Selu", "LeakyRelu", "Softplus", "Softsign", "Erf"))
ELEMENTWISE = ACTIVATIONS | frozenset((
    "Add", "AddV2", "AddN", "Sub", "Mul", "RealDiv", "Div", "DivNoNan", "Maximum", "Minimum", "Pow", "Square", "Sqrt",
    "Rsqrt", "Exp", "Expm1", "Log", "Log1p", "Neg", "Abs", "Sign", "Reciprocal", "Inv", "SquaredDifference", "BiasAdd",
    "Select", "SelectV2", "Greater", "GreaterEqual", "Less", "LessEqual", "Equal", "NotEqual", "LogicalAnd",
    "LogicalOr", "LogicalNot", "Erfc", "ClipByValue", "Mod", "FloorMod", "Floor", "Ceil", "Round", "Rint", "IsFinite",
    "ReluGrad", "Relu6Grad", "TanhGrad", "SigmoidGrad", "EluGrad", "SeluGrad", "LeakyReluGrad", "SoftplusGrad",
    "SqrtGrad", "RsqrtGrad", "ReciprocalGrad", "InvGrad", "BroadcastTo", "ZerosLike", "OnesLike", "Xdivy", "Xlogy",
    *FOLLOWED,
))  # fmt: skip
REDUCTIONS: Mapping[str, str] = {
    "Sum": "sum", "Mean": "mean", "Max": "max", "Min": "min", "Prod": "prod", "All": "all", "Any": "any",
    "EuclideanNorm": "norm",
}  # fmt: skip
POOLS = frozenset(("MaxPool", "MaxPoolV2", "AvgPool", "MaxPool3D", "AvgPool3D"))
POOL_GRADIENTS = frozenset(
    ("MaxPoolGrad", "MaxPoolGradV2", "MaxPool3DGrad", "MaxPoolGradWithArgmax", "AvgPoolGrad", "AvgPool3DGrad")
)
OPEN = "a tensor dimension is unknown; pass the batch size with --batch, or save the model with fixed shapes"


def place(graph: OpGraph, *nodes: int) -> dict[str, Any]:
    """Return the `Violation` fields about nodes; the type comes from the first node."""
    return {"ops": tuple(map(graph.name_of, nodes)), "op_type": graph.op(nodes[0])}


def is_known(dims: Dims | None) -> bool:
    """Return whether all dimensions are known."""
    return dims is not None and -1 not in dims


_ARGUMENTS = frozenset(("_Arg", "Placeholder", "PlaceholderWithDefault", "IteratorGetNext", "InfeedDequeueTuple"))
_OF_FIRST_INPUT = (
    FORWARD
    | POOLS
    | POOL_GRADIENTS
    | MATMULS
    | {"FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3", "FusedBatchNormGradV3", "BiasAdd", "Squeeze"}
    | {"Softmax", "LogSoftmax", "ExpandDims", "_FusedConv2D", "_FusedMatMul", "ResizeBilinear"}
)
"""Ops with the same first dimension as their first input, if both are unknown."""


def with_batch(graph: OpGraph, batch: int) -> None:
    """Set the batch size in a graph and propagate it; a dimension that cannot be inferred stays unknown."""
    for index, node in enumerate(graph.nodes):
        if node.op in _ARGUMENTS:
            node.shapes = [_first(dims, batch) for dims in node.shapes]
        else:
            node.shapes = [_inferred(graph, index, dims) for dims in node.shapes]


def _first(dims: Dims | None, size: int) -> Dims | None:
    return (size, *dims[1:]) if dims and dims[0] == -1 else dims


def _inferred(graph: OpGraph, index: int, dims: Dims | None) -> Dims | None:
    node = graph.nodes[index]
    if dims is None or -1 not in dims or not node.inputs:
        return dims
    inputs = [graph.shape(*source) for source in node.inputs]
    if node.op == "Reshape":
        return _reshaped(inputs[0], graph.constant_input(index, 1), dims)
    if node.op == "Transpose":
        given, perm = inputs[0], graph.constant_input(index, 1)
        if given is None or perm is None or sorted(perm) != list(range(len(dims))) or len(given) != len(dims):
            return dims
        return tuple(given[at] for at in perm)
    if node.op == "Einsum":
        return _einsum(graph.text(index, "equation"), inputs, dims)
    if dims.count(-1) > 1 or dims[0] != -1:
        return dims
    return _first(dims, _first_size(graph, index, inputs, len(dims)))


def _first_size(graph: OpGraph, index: int, inputs: list[Dims | None], rank: int) -> int:
    """Return the first dimension of an output; -1 if it cannot be inferred from the inputs."""
    op, given = graph.op(index), inputs[0]
    first = given[0] if given else -1
    if op in REDUCTIONS:
        axes = graph.constant_input(index, 1)
        is_kept = given and axes is not None and 0 not in [axis % len(given) for axis in axes]
        return first if is_kept else -1
    if op in INPUT_GRADIENTS:
        return inputs[2][0] if len(inputs) > 2 and inputs[2] else -1
    if op in _OF_FIRST_INPUT:
        return -1 if graph.flag(index, "transpose_a", "adj_x") and rank == 2 else first
    if op == "ConcatV2":
        axis = graph.constant_input(index, len(inputs) - 1)
        return first if axis and axis[0] % rank else -1
    if op in ELEMENTWISE:
        # Dimensions of size 1 are broadcast.
        found = {dims[0] for dims in inputs if dims and len(dims) == rank} - {1}
        return found.pop() if len(found) == 1 else -1
    return -1


def _reshaped(given: Dims | None, wanted: list[int] | None, dims: Dims) -> Dims:
    """Return dimensions with as many elements as `given`; `wanted` is the requested shape, if known."""
    if wanted is not None and len(wanted) == len(dims):
        dims = tuple(asked if size == -1 else size for asked, size in zip(wanted, dims, strict=True))
    rest = math.prod(size for size in dims if size != -1)
    if dims.count(-1) != 1 or given is None or -1 in given or not rest or math.prod(given) % rest:
        return dims
    return tuple(math.prod(given) // rest if size == -1 else size for size in dims)


def _einsum(equation: str, inputs: list[Dims | None], dims: Dims) -> Dims:
    left, arrow, result = equation.replace(" ", "").partition("->")
    size_of: dict[str, int] = {}
    for letters, given in zip(left.split(","), inputs, strict=False):
        if given is not None and len(letters) == len(given):
            size_of |= {letter: size for letter, size in zip(letters, given, strict=True) if size != -1}
    if not arrow or len(result) != len(dims):
        return dims
    return tuple(size_of.get(letter, -1) if size == -1 else size for letter, size in zip(result, dims, strict=True))
