"""What an op of TensorFlow computes and moves in one run, by the shapes of its inputs.

Only what these shapes tell is stated. Attributes (strides, padding, transposes) are not in the trace, so:

- *Products.* Which dimensions are contracted is known if sizes leave one way only; else the kernel's name may say
  which operand is transposed (`nn`, `nt`, `tn`, as cuBLAS calls it, for matrices that lie the other way round).
- *Convolutions.* The kernel, and the gradient of the result in the backward pass, give the operations of all three
  products of a layer: forward, and the gradients of input and kernel. Inputs of any one op are too few, so ops of one
  layer are put together (`Layers`). Windows count whole, also where they reach over the border, as TensorFlow counts.
- *Batch norm, softmax.* Operations for each element, as their formulas have them; see `_PER_ELEMENT`.
- *Elementwise ops.* One operation for each element of the result; `exp`, `tanh` and the like are none. Casts and
  comparisons count too.

Everything else is unknown, and stays so. Bytes are those of inputs and results, once each: an upper bound where caches
serve, as for programs of XLA.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from math import prod
from typing import NamedTuple

from msgspec import Struct

from tfperf.formats.hlo.products import Product
from tfperf.sections.roofline.op_shapes import Tensor, broadcast, bytes_of
from tfperf.trace.device.device_peaks import Precision

Inputs = tuple[Tensor | None, ...]


class OpWork(Struct, frozen=True, kw_only=True):
    """Operations of one run, those in products, bytes, and the peak for its numbers. None: unknown."""

    flops: int
    matrix_flops: int = 0
    bytes: int | None
    precision: Precision | None
    product: Product | None = None


class OpShapes(NamedTuple):
    """What a trace tells about an op: its name and type, its inputs, an equation (Einsum), and its kernels' names."""

    name: str
    type: str
    inputs: Inputs
    equation: str = ""
    kernels: tuple[str, ...] = ()


# --- products of matrices ---

_PRODUCTS = frozenset({"MatMul", "_FusedMatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"})
_TRANSPOSED = {"nn": (1, 0), "tn": (1, 1), "nt": (0, 0), "tt": (0, 1)}
"""Which dimensions of a and b are summed over: libraries take matrices by columns, so they get b first."""
_LETTERS = r"(?<![a-z0-9])([nt][nt])(?![a-z0-9])"


def _contracted(a: Tensor, b: Tensor, kernels: Iterable[str]) -> tuple[int, int] | None:
    """Return which of the last two dimensions of each operand is summed over; None if that is not known."""
    ways = [(i, j) for i, j in _TRANSPOSED.values() if a.dims[i - 2] == b.dims[j - 2]]
    results = {(a.dims[-1 - i], b.dims[-1 - j], a.dims[i - 2]) for i, j in ways}
    if len(results) == 1:
        return ways[0]
    named = {letters for kernel in kernels for letters in re.findall(_LETTERS, kernel.lower().replace("_", " "))}
    way = _TRANSPOSED[named.pop()] if len(named) == 1 else None
    return way if way in ways else None


def _matrix_product(op: OpShapes) -> OpWork | None:
    a, b = (*op.inputs, None, None)[:2]
    if a is None or b is None or a.type != b.type or min(len(a.dims), len(b.dims)) < 2:
        return None
    batch, way = broadcast(a.dims[:-2], b.dims[:-2]), _contracted(a, b, op.kernels)
    if batch is None or way is None:
        return None
    product = Product(a.dims[-1 - way[0]], b.dims[-1 - way[1]], a.dims[way[0] - 2], prod(batch))
    result = Tensor(a.type, (product.times, product.m, product.n))
    tensors = [tensor for tensor in op.inputs if tensor is not None]
    return _product_work(op, product.flops, bytes_of(*tensors, result), product)


def _einsum(op: OpShapes) -> OpWork | None:
    """Return the work of a product of two tensors whose letters stand once in each."""
    match = re.fullmatch(r"([A-Za-z]+),([A-Za-z]+)->([A-Za-z]*)", op.equation.replace(" ", ""))
    a, b = (*op.inputs, None, None)[:2]
    if match is None or a is None or b is None or len(op.inputs) != 2:
        return None
    sizes: dict[str, int] = {}
    for letters, tensor in ((match[1], a), (match[2], b)):
        pairs = list(zip(letters, tensor.dims, strict=False))
        if len(letters) != len(tensor.dims) or any(sizes.setdefault(letter, size) != size for letter, size in pairs):
            return None
    sets = [set(letters) for letters in match.groups()]
    if any(len(letters) != len(found) for letters, found in zip(match.groups(), sets, strict=True)):
        return None
    # A letter of one operand alone that is not in the result is summed away before: then this is no product of sizes.
    if (sets[0] ^ sets[1]) - sets[2] or sets[2] - sets[0] - sets[1]:
        return None
    of = {
        "batch": sets[0] & sets[1] & sets[2],
        "k": (sets[0] & sets[1]) - sets[2],
        "m": sets[0] - sets[1],
        "n": sets[1] - sets[0],
    }
    size = {key: prod(sizes[letter] for letter in letters) for key, letters in of.items()}
    product = Product(size["m"], size["n"], size["k"], size["batch"])
    result = Tensor(a.type, tuple(sizes[letter] for letter in match[3]))
    return _product_work(op, product.flops, bytes_of(a, b, result), product)


def _product_work(op: OpShapes, flops: int, moved: int | None, product: Product | None = None) -> OpWork:
    precision = next((each.precision for each in op.inputs if each is not None and each.precision), None)
    if precision == "fp32" and any("tf32" in kernel.lower() for kernel in op.kernels):
        precision = "tf32"
    return OpWork(flops=flops, matrix_flops=flops, bytes=moved, precision=precision, product=product)


# --- convolutions ---

_FORWARD = frozenset({"Conv2D", "Conv3D", "DepthwiseConv2dNative"})
_OF_INPUT = frozenset({"Conv2DBackpropInput", "Conv3DBackpropInputV2", "DepthwiseConv2dNativeBackpropInput"})
_OF_KERNEL = frozenset({"Conv2DBackpropFilter", "Conv3DBackpropFilterV2", "DepthwiseConv2dNativeBackpropFilter"})
CONVOLUTIONS = _FORWARD | _OF_INPUT | _OF_KERNEL


class _Parts(NamedTuple):
    """The tensors of a convolution's layer that one of its ops reads."""

    image: Tensor | None = None
    kernel: Tensor | None = None
    gradient: Tensor | None = None

    def agrees(self, other: _Parts) -> bool:
        """Tell whether two ops may be of one run of one layer: what both read is equal, and something is."""
        pairs = [(one, two) for one, two in zip(self, other, strict=True) if one is not None and two is not None]
        return bool(pairs) and all(one == two for one, two in pairs)


def _parts(op: OpShapes) -> _Parts:
    first, second, third = (*op.inputs, None, None, None)[:3]
    if op.type in _FORWARD:
        return _Parts(image=first, kernel=second)
    return _Parts(kernel=second, gradient=third) if op.type in _OF_INPUT else _Parts(image=first, gradient=third)


def _layer(op: OpShapes) -> str:
    """Return the name that the forward op of a convolution's layer has."""
    if op.type in _FORWARD:
        return op.name
    path = re.sub(r"(^|/)(?:gradient_tape|gradients)(?:_\d+)?/", r"\1", op.name).rpartition("/")[0]
    return path.removesuffix("_grad")


class Layers:
    """The convolutions of a trace by layer, so that what one op does not read is taken from another one."""

    def __init__(self, ops: Iterable[OpShapes]) -> None:
        self._of_layer: dict[str, list[_Parts]] = {}
        for op in ops:
            if op.type in CONVOLUTIONS:
                self._of_layer.setdefault(_layer(op), []).append(_parts(op))

    def completed(self, op: OpShapes) -> _Parts:
        """Return what the op reads, and what others of its layer do; None where they do not tell, or disagree."""
        own = _parts(op)
        others = [parts for parts in self._of_layer.get(_layer(op), ()) if parts.agrees(own)]
        found = []
        for at, tensor in enumerate(own):
            values = {parts[at] for parts in others} - {None} if tensor is None else {tensor}
            found.append(values.pop() if len(values) == 1 else None)
        return _Parts(*found)


def _convolution(op: OpShapes, layers: Layers) -> OpWork | None:
    """Return the work of a convolution: for each element of the result, the kernel's window of each input channel."""
    parts = layers.completed(op)
    kernel, gradient = parts.kernel, parts.gradient
    if kernel is None or gradient is None or len(kernel.dims) != len(gradient.dims) or len(kernel.dims) < 3:
        return None
    *window, inputs, outputs = kernel.dims
    is_depthwise = op.type.startswith("Depthwise")
    if (inputs * outputs if is_depthwise else outputs) not in gradient.dims[1:]:
        return None
    flops = 2 * gradient.elements * prod(window) * (1 if is_depthwise else inputs)
    moved = None if parts.image is None else bytes_of(parts.image, kernel, gradient)
    return _product_work(op, flops, moved)


# --- other ops ---

_NO_OPERATION = frozenset(
    {
        "Exp",
        "Expm1",
        "Log",
        "Log1p",
        "Tanh",
        "Sigmoid",
        "Sqrt",
        "Rsqrt",
        "Erf",
        "Sin",
        "Cos",
        "Pow",
        "Softplus",
        "Selu",
        "Elu",
        "Gelu",
        "Floor",
        "Round",
        "Rint",
        "Ceil",
    }
)
_UNARY = frozenset({"Relu", "Relu6", "LeakyRelu", "Neg", "Square", "Abs", "Sign", "Reciprocal", "Inv"})
_BINARY = frozenset(
    {"Add", "AddV2", "Sub", "Mul", "RealDiv", "Maximum", "Minimum", "ReluGrad", "Relu6Grad", "LeakyReluGrad", "BiasAdd"}
)
_TO_BOOL = frozenset(
    {
        "Greater",
        "GreaterEqual",
        "Less",
        "LessEqual",
        "Equal",
        "NotEqual",
        "LogicalAnd",
        "LogicalOr",
        "LogicalNot",
        "IsNan",
        "IsInf",
        "IsFinite",
    }
)
_SELECT = frozenset({"Select", "SelectV2"})
_MOVES = frozenset({"Transpose"})
_PER_ELEMENT = {
    # mean: 1; x - mean, squared, summed: 3; times scale, plus offset: 2
    "FusedBatchNorm": 6,
    # x - mean, divided by the deviation, times dy, summed; dy summed: 5; dx by its formula: 4
    "FusedBatchNormGrad": 9,
    # maximum, difference, sum, quotient or difference
    "Softmax": 4,
    "LogSoftmax": 4,
    # difference, square
    "SquaredDifference": 2,
    # dy * y * (1 - y), and dy * (1 - y * y)
    "SigmoidGrad": 3,
    "TanhGrad": 3,
}
"""Operations for each element, where it is not one."""
_VERSION = re.compile(r"V\d$")
_CONVERSION = (
    r"TensorConversionOp<(?:\w+::)*(half|bfloat16|float|double|bool|int|long|unsigned char|signed char)\b"
    r"|\bCast_GPU_DT_[A-Z0-9]+_DT_([A-Z0-9]+)_kernel"
)
"""What a cast puts out: in Eigen's kernels, and in those that TensorFlow generates."""
_C_TYPES = {"int": "int32", "long": "int64", "unsigned char": "uint8", "signed char": "int8"}


def _elementwise(op: OpShapes) -> OpWork | None:
    tensors = [tensor for tensor in op.inputs if tensor is not None]
    kind = _VERSION.sub("", op.type) if op.type not in ("AddV2", "SelectV2") else op.type
    if not tensors or len(tensors) != len(op.inputs):
        return None
    if kind in ("FusedBatchNorm", "FusedBatchNormGrad"):
        return _batch_norm(kind, tensors)
    if kind in _MOVES:
        return _known(0, tensors, tensors[0])
    if kind == "AddN":
        dims = {tensor.dims for tensor in tensors}
        return _known((len(tensors) - 1) * tensors[0].elements, tensors, tensors[0]) if len(dims) == 1 else None
    shape = _result_shape(kind, tensors)
    result_type = _result_type(op, kind, tensors)
    if shape is None or not result_type:
        return None
    result = Tensor(result_type, shape)
    return _known(_operations(kind) * result.elements, tensors, result)


def _result_shape(kind: str, tensors: Sequence[Tensor]) -> tuple[int, ...] | None:
    """Return the shape of an elementwise op's result; a bias is as long as a dimension of what it is added to."""
    if kind == "BiasAdd":
        is_bias = len(tensors) == 2 and len(tensors[1].dims) == 1 and tensors[1].dims[0] in tensors[0].dims
        return tensors[0].dims if is_bias else None
    return broadcast(*(tensor.dims for tensor in tensors))


def _operations(kind: str) -> int:
    return 0 if kind in _NO_OPERATION else _PER_ELEMENT.get(kind, 1)


def _result_type(op: OpShapes, kind: str, tensors: Sequence[Tensor]) -> str:
    """Return the type of an elementwise op's result; empty if the op is none, or its type is not known."""
    if kind == "Cast":
        pairs = (pair for kernel in op.kernels for pair in re.findall(_CONVERSION, kernel))
        named = {(of_eigen or generated).lower() for of_eigen, generated in pairs}
        found = named.pop() if len(named) == 1 else ""
        return _C_TYPES.get(found, found)
    if kind in _TO_BOOL:
        return "bool"
    if kind in _SELECT:
        return tensors[-1].type
    is_known = kind in _NO_OPERATION | _UNARY | _BINARY or kind in _PER_ELEMENT
    return tensors[0].type if is_known else ""


def _batch_norm(kind: str, tensors: Sequence[Tensor]) -> OpWork | None:
    """Return the work of a batch norm in training; its running mean is an empty input then, unless it is averaged."""
    is_training = kind.endswith("Grad") or (len(tensors) == 5 and tensors[3].elements == 0)
    return _known(_PER_ELEMENT[kind] * tensors[0].elements, tensors, tensors[0]) if is_training else None


def _known(flops: int, inputs: Sequence[Tensor], result: Tensor) -> OpWork:
    is_wide = any(tensor.type in ("double", "complex128") for tensor in (*inputs, result))
    return OpWork(flops=flops, bytes=bytes_of(*inputs, result), precision="fp64" if is_wide else "fp32")


def work_of(op: OpShapes, layers: Layers) -> OpWork | None:
    """Return the work of one run of an op; None if its inputs do not tell."""
    if op.type in _PRODUCTS:
        return _matrix_product(op)
    if op.type in ("Einsum", "XlaEinsum"):
        return _einsum(op)
    return _convolution(op, layers) if op.type in CONVOLUTIONS else _elementwise(op)
