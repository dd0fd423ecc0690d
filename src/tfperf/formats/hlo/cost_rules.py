"""Cost rules by opcode: XLA's own cost analysis, and corrections for hardware.

The default for bytes is all operands and results. A tuple operand counts as a table of pointers, because instructions
do not traverse it; a tuple result counts as its arrays.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Struct

from tfperf.formats.hlo.model import DotDims, Instruction, Shape, WindowDim


class Work(Struct, frozen=True, gc=False):
    """The known cost of an instruction or computation, and the number of its instructions with unknown cost."""

    flops: int = 0
    transcendentals: int = 0
    bytes: int = 0
    matrix_flops: int = 0
    unknown_flops: int = 0
    unknown_bytes: int = 0

    def times(self, count: int) -> Work:
        """Return the work of `count` runs."""
        moved, matrix = self.bytes * count, self.matrix_flops * count
        unknown = (self.unknown_flops, self.unknown_bytes) if count else (0, 0)
        return Work(self.flops * count, self.transcendentals * count, moved, matrix, *unknown)


NO_WORK = Work()
UNKNOWN_WORK = Work(unknown_flops=1, unknown_bytes=1)


def total_work(parts: Iterable[Work]) -> Work:
    """Return the sum of all parts."""
    flops = transcendentals = moved = matrix = unknown_flops = unknown_bytes = 0
    for part in parts:
        flops += part.flops
        transcendentals += part.transcendentals
        moved += part.bytes
        matrix += part.matrix_flops
        unknown_flops += part.unknown_flops
        unknown_bytes += part.unknown_bytes
    return Work(flops, transcendentals, moved, matrix, unknown_flops, unknown_bytes)


def largest_work(parts: Iterable[Work]) -> Work:
    """Return the maximum of each number."""
    rows = [(p.flops, p.transcendentals, p.bytes, p.matrix_flops, p.unknown_flops, p.unknown_bytes) for p in parts]
    return Work(*map(max, zip(*rows, strict=True)))


_OPERAND_BYTES = attrgetter("operand_bytes")


class Site(Struct, frozen=True, gc=False):
    """An instruction with its operands and callees."""

    instruction: Instruction
    operands: tuple[Shape, ...]
    called: tuple[Work, ...]
    """Cost of one run of each called computation."""

    @property
    def shape(self) -> Shape:
        """Return the shape of the result."""
        return self.instruction.shape

    @property
    def first(self) -> Shape:
        """Return the first array of the result; raise IndexError if it has none."""
        return self.shape if not self.shape.is_tuple else list(self.shape.leaves())[0]  # noqa: RUF015

    @property
    def operand_bytes(self) -> int:
        """Return the bytes of all operands."""
        return sum(map(_OPERAND_BYTES, self.operands))

    @property
    def default_bytes(self) -> int:
        """Return the bytes of all operands and results."""
        return self.operand_bytes + self.shape.bytes


def size_of(shape: Shape, dimension: int) -> int:
    """Return the size of a dimension; raise IndexError if it is missing or negative."""
    if dimension < 0:
        raise IndexError(dimension)
    return shape.dims[dimension]


Rule = Callable[[Site], Work]


def _matrix_work(site: Site, flops: int | None) -> Work:
    moved = site.default_bytes
    return Work(flops, bytes=moved, matrix_flops=flops) if flops is not None else Work(bytes=moved, unknown_flops=1)


def _dot_flops(site: Site) -> int:
    dims = site.instruction.dot
    if dims is None:
        raise IndexError("no dimension numbers")
    return 2 * site.shape.elements * math.prod(size_of(site.operands[0], at) for at in dims.lhs_contracting)


def convolution_flops(instruction: Instruction, image: Shape, kernel: Shape, result: Shape) -> int | None:
    """Return the FLOPs of a convolution, without padding and dilation; None if unknown."""
    dims = instruction.convolution
    if dims is None or len(instruction.window) != len(dims.input_spatial):
        raise IndexError("missing dimension numbers, or a wrong number of them")
    pairs = 1
    for at, dim in enumerate(instruction.window):
        sizes = (
            size_of(image, dims.input_spatial[at]),
            size_of(kernel, dims.kernel_spatial[at]),
            size_of(result, dims.output_spatial[at]),
        )
        count = valid_pairs(*sizes, dim)
        if count is None:
            return None
        pairs *= count
    channels = size_of(image, dims.input_feature) // max(instruction.feature_groups, 1)
    batch = size_of(image, dims.input_batch) // max(instruction.batch_groups, 1)
    return 2 * channels * size_of(result, dims.output_feature) * batch * pairs


def _repeated(site: Site, count: int, moved: int | None = None) -> Work:
    inside = site.called[0].times(max(count, 0))
    moved = site.default_bytes if moved is None else moved
    return Work(inside.flops, inside.transcendentals, moved, unknown_flops=inside.unknown_flops)


def _reduce_window(site: Site) -> Work:
    window, elements = site.instruction.window, site.first.elements
    count = (math.prod([dim.size for dim in window]) - 1) * elements
    wide = [at for at, dim in enumerate(window) if dim.size != 1]
    padded = [at for at, dim in enumerate(window) if dim.low or dim.high]
    if len(wide) == len(padded) == 1 and not site.shape.is_tuple:
        dim, length = window[wide[0]], size_of(site.shape, wide[0])
        if dim.low and dim.low == dim.high == length - 1 and dim.size == 2 * dim.low + 1:
            count = elements // length + length - 1  # a running sum
    return _repeated(site, count)


def _select_and_scatter(site: Site) -> Work:
    count, places = site.operands[1].elements, math.prod([dim.size for dim in site.instruction.window])
    inside = total_work((site.called[0].times(max(count * (places - 1), 0)), site.called[1].times(count)))
    return Work(inside.flops, inside.transcendentals, site.default_bytes, unknown_flops=inside.unknown_flops)


def _scatter(site: Site) -> Work:
    arrays = (len(site.operands) - 1) // 2
    updates = site.operands[arrays + 1 :]
    moved = 3 * sum(shape.bytes for shape in updates) + site.operands[arrays].bytes
    return _repeated(site, updates[0].elements, moved)


def _gather(site: Site) -> Work:
    return Work(bytes=2 * site.shape.bytes + site.operands[1].bytes)


def _start(site: Site) -> Work:
    """Count the operands and the second part of the result, which is the output."""
    return Work(bytes=site.operand_bytes + site.shape.parts[1].bytes)


def _named(names: str, rule: Rule) -> dict[str, Rule]:
    return dict.fromkeys(names.split(), rule)


UNCOUNTED = frozenset(
    ["parameter", "constant", "get-tuple-element", "bitcast", "after-all", "add-dependency", "domain"]
)
BODIES = frozenset(("call", "while", "conditional", "async-start"))
"""Opcodes that cost as much as their called computations."""
RULES: dict[str, Rule] = {
    **_named(
        "abs negate sign floor ceil round-nearest-afz round-nearest-even add subtract multiply divide maximum minimum "
        "remainder and or xor not shift-left shift-right-logical shift-right-arithmetic compare select clamp convert "
        "bitcast-convert is-finite reduce-precision popcnt count-leading-zeros real imag complex stochastic-convert "
        "all-reduce all-reduce-start",
        lambda site: Work(site.shape.elements, bytes=site.default_bytes),
    ),
    **_named(
        "exponential log logistic power sqrt cbrt rsqrt tanh sine cosine tan exponential-minus-one log-plus-one atan2 "
        "erf acos acosh asin asinh atanh sinh cosh rng rng-bit-generator",
        lambda site: Work(transcendentals=site.shape.elements, bytes=site.default_bytes),
    ),
    **_named(
        "copy transpose reshape broadcast pad concatenate reverse iota dynamic-reshape get-dimension-size "
        "set-dimension-size all-gather reduce-scatter all-to-all ragged-all-to-all collective-permute "
        "collective-broadcast infeed outfeed send recv send-done recv-done copy-start copy-done all-reduce-done "
        "all-gather-start all-gather-done collective-permute-start collective-permute-done async-update async-done "
        "optimization-barrier opt-barrier partition-id replica-id rng-get-and-update-state",
        lambda site: Work(bytes=site.default_bytes),
    ),
    "cholesky": lambda site: Work(
        site.operands[0].elements * site.operands[0].dims[-1] // 3,
        bytes=(site.operands[0].bytes + site.shape.bytes) // 2,  # reads half of the matrix
    ),
    "convolution": lambda site: _matrix_work(
        site, convolution_flops(site.instruction, site.operands[0], site.operands[1], site.shape)
    ),
    "dot": lambda site: _matrix_work(site, _dot_flops(site)),
    "dynamic-slice": _gather,
    "dynamic-update-slice": lambda site: Work(bytes=2 * site.operands[1].bytes + site.operands[2].bytes),
    "fft": lambda site: Work(
        8 * site.operands[0].elements * math.prod(n.bit_length() - 1 for n in site.instruction.fft_length if n > 0),
        bytes=site.default_bytes,
    ),
    "gather": _gather,
    "map": lambda site: _repeated(site, site.shape.elements),
    "reduce": lambda site: _repeated(site, site.operands[0].elements - site.first.elements),
    "reduce-window": _reduce_window,
    "scatter": _scatter,
    "select-and-scatter": _select_and_scatter,
    "slice": lambda site: Work(bytes=2 * site.shape.bytes),
    "sort": lambda site: Work(
        (count := site.operands[0].elements) * max(count - 1, 0).bit_length(), bytes=site.default_bytes
    ),
    "triangular-solve": lambda site: Work(
        2 * site.operands[0].dims[-1] * site.operands[1].elements,
        bytes=site.default_bytes - site.operands[0].bytes // 2,  # reads half of the matrix
    ),
    "tuple": lambda site: Work(bytes=site.shape.operand_bytes),
}
"""Opcode -> XLA's rule. Other opcodes are unknown, as in XLA."""
CORRECTED: dict[str, Rule] = {
    **_named(
        "send-done recv-done copy-done all-reduce-done all-gather-done collective-permute-done async-update async-done "
        "optimization-barrier opt-barrier",
        lambda _: NO_WORK,
    ),
    "all-gather-start": _start,
    "collective-permute-start": _start,
    # Its result also contains the operand and a state.
    "copy-start": lambda site: Work(bytes=2 * site.operand_bytes),
    "ragged-dot": lambda site: _matrix_work(site, _grouped_flops(site, site.instruction.dot)),
}
"""Opcode -> a rule that replaces XLA's: an asynchronous operation moves its data once, and each row is in one group."""


MATRIX_CALLS = frozenset(("__cublas$gemm", "__cublas$lt$matmul", "__cublas$lt$matmul$f8", "__cublas$lt$matmul$mx"))
"""Targets of matrix products, also on AMD devices."""
TE_CALLS = frozenset(("te_gemm_ffi", "te_gemm_v2_ffi", "te_grouped_gemm_ffi"))
"""Targets of Transformer Engine's products: the left matrix, its scales, the right matrix, its scales."""
GROUPED_CALL = "__cublas$lt$groupedMatmul"
"""Target of a product of groups: rows select their matrix by group."""
CONVOLUTION_CALLS = frozenset(
    f"__cudnn$conv{kind}"
    for kind in ("Forward", "ForwardGraph", "BiasActivationForward", "BackwardInput", "BackwardFilter")
)
KERNEL_CALL = "tpu_custom_call"
"""A TPU kernel embedded in the program, such as one of Pallas."""
# Patterns are strings, compiled at their first use, because a program for a GPU needs none of them.
_PRODUCT_NAME = r"(?i)matmul|gemm|(?<![a-z])dot(?![a-z])|(?<![a-z])mm(?![a-z])"
_VMEM = r'"memory_space":"1"[^{}]{0,500}?"size":"(\d{1,18})"'
_FLOATS = ("f32", "bf16", "f16", "f8e5m2", "f8e4m3fn")
_MOST_TIMES = 1 << 63


def library_work(site: Site) -> Work:
    """Return the work of a custom call with a known target; raise IndexError if its operands do not match."""
    target = site.instruction.target
    flops = None
    if target in MATRIX_CALLS:
        dims = _stated(site.instruction, "gemm_backend_config", "dot_dimension_numbers")
        depth = _whole_numbers(dims.get("lhs_contracting_dimensions")) if isinstance(dims, dict) else None
        if depth:
            flops = 2 * site.first.elements * math.prod(size_of(site.operands[0], at) for at in depth)
    elif target in TE_CALLS:
        flops = _te_flops(site)
    elif target == GROUPED_CALL:
        flops = _grouped_flops(site, _grouped_dims(site.instruction))
    elif target in CONVOLUTION_CALLS:
        flops = convolution_flops(site.instruction, *roles_of(site.instruction, site.operands))
    elif is_attention(target):
        attention = attention_of(site.instruction, site.operands)
        flops = None if attention is None else attention.flops
    elif (product := kernel_product(site.instruction, site.operands)) is not None:
        leaves = [leaf for shape in (*site.operands, site.shape) for leaf in shape.leaves()]
        in_hbm = sum(leaf.bytes for leaf in leaves if not leaf.memory_space)
        return Work(product.flops, bytes=in_hbm, matrix_flops=product.flops)
    if flops is None:
        return UNKNOWN_WORK
    results = list(site.shape.leaves())
    if len(results) > 1 and results[-1].type in ("s8", "u8") and len(results[-1].dims) == 1:
        results.pop()  # the workspace of the call
    return Work(flops, bytes=site.operand_bytes + sum(each.bytes for each in results), matrix_flops=flops)


def _te_flops(site: Site) -> int | None:
    """Return the FLOPs of a product of Transformer Engine; None if a collective makes or takes a part of its arrays."""
    stated = _attributes(site.instruction)
    if len(site.operands) <= _MATRIX or stated.get("collective_op"):
        return None
    left, right, result = site.operands[0].elements, site.operands[2].elements, site.first.elements
    if site.instruction.target == "te_grouped_gemm_ffi":
        m, n, k = (stated.get(size, 0) for size in "MNK")
        return 2 * m * n * k if m * k == left else None
    flops = math.isqrt(4 * left * right * result)  # of M K, K N and M N
    return flops if flops * flops == 4 * left * right * result else None


def _grouped_flops(site: Site, dims: DotDims | None) -> int | None:
    """Return the FLOPs of a product of groups in which each row belongs to one group; None if unknown."""
    if dims is None or len(site.operands) < _MATRIX:
        return None
    product = product_of(site.operands[0].dims, site.operands[1].dims, dims)
    return None if product is None else product.flops


def _grouped_dims(instruction: Instruction) -> DotDims | None:
    stated = _stated(instruction, "grouped_gemm_backend_config", "ragged_dot_dimension_numbers")
    dims = _dot_dims(stated.get("dot_dimension_numbers")) if isinstance(stated, dict) else None
    groups = _whole_numbers(stated.get("rhs_group_dimensions", [])) if isinstance(stated, dict) else None
    return None if dims is None or groups is None else msgspec.structs.replace(dims, rhs_group=tuple(groups))


def kernel_product(instruction: Instruction, operands: Sequence[Shape]) -> Product | None:
    """Return the product of a TPU kernel if its name and shapes, the only evidence in the program, determine one."""
    name = f"{instruction.name} {instruction.metadata.op_name.rpartition('/')[2]}"
    shapes = (*operands, instruction.shape)
    if (
        instruction.target != KERNEL_CALL
        or len(operands) != 2
        or not all(shape.is_known and shape.type in _FLOATS for shape in shapes)
        or not re.search(_PRODUCT_NAME, name)
    ):
        return None
    return product_by_shapes(operands[0].dims, operands[1].dims, instruction.shape.dims)


def vmem_bytes(instructions: Iterable[Instruction]) -> int | None:
    """Return the maximum vector memory of these TPU instructions in bytes; None if unknown."""
    found = (int(size) for each in instructions for size in re.findall(_VMEM, each.backend_config))
    return max(found, default=None)


def product_dims(instruction: Instruction) -> DotDims | None:
    """Return the dimension numbers of a dot or a library call; None if unknown."""
    if instruction.dot is not None:
        return instruction.dot
    return _dot_dims(_stated(instruction, "gemm_backend_config", "dot_dimension_numbers"))


def _dot_dims(dims: Any) -> DotDims | None:
    keys = ("lhs_contracting", "rhs_contracting", "lhs_batch", "rhs_batch")
    stated = [dims.get(f"{key}_dimensions", []) if isinstance(dims, dict) else [] for key in keys]
    numbers = [_whole_numbers(each) for each in stated]
    if not numbers[0] or not numbers[1] or numbers[2] is None or numbers[3] is None:
        return None
    return DotDims(*(tuple(each or ()) for each in numbers))


def sizes_of(instruction: Instruction, operands: Sequence[Shape]) -> Mapping[str, int]:
    """Return M, N, K of a product or the channels of a convolution, as tiled by matrix units; empty if unknown."""
    if len(operands) < 2 or not all(shape.is_known for shape in (*operands[:2], instruction.shape)):
        return {}
    if instruction.opcode == "dot" or instruction.target in MATRIX_CALLS:
        dims = product_dims(instruction)
        product = None if dims is None else product_of(operands[0].dims, operands[1].dims, dims)
        return {} if product is None else product.sizes
    if instruction.target in CONVOLUTION_CALLS and instruction.convolution is not None:
        of, (image, _, made) = instruction.convolution, roles_of(instruction, operands)
        if has_dims(image.dims, [of.input_feature]) and has_dims(made.dims, [of.output_feature]):
            return {"input channels": image.dims[of.input_feature], "output channels": made.dims[of.output_feature]}
    return {}


def roles_of(instruction: Instruction, operands: Sequence[Shape]) -> tuple[Shape, Shape, Shape]:
    """Return image, kernel, result of a library call's forward convolution; raise IndexError without two operands."""
    one, other, result = operands[0], operands[1], next(instruction.shape.leaves(), instruction.shape)
    return {"__cudnn$convBackwardInput": (result, other, one), "__cudnn$convBackwardFilter": (one, result, other)}.get(
        instruction.target, (one, other, result)
    )


def trip_count(loop: Instruction) -> int | None:
    """Return the trip count of a loop if the compiler determined it, else None."""
    times = _whole_numbers([_stated(loop, "known_trip_count", "n")])
    return times[0] if times and times[0] < _MOST_TIMES else None


def _stated(instruction: Instruction, *keys: str) -> Any:
    """Return the value at a path of keys in an instruction's configuration, or None."""
    value = _decoded(instruction.backend_config)
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


@lru_cache(maxsize=64)  # rules repeat the request for each called computation
def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


def _whole_numbers(values: Any) -> list[int] | None:
    """Convert numbers, which protobuf's JSON writes as text; None if one is not a non-negative whole number."""
    if not isinstance(values, list):
        return None
    texts = [str(value) for value in values if isinstance(value, str | int)]
    if len(texts) != len(values) or not all(text.isascii() and text.isdigit() and len(text) < 20 for text in texts):
        return None
    return [int(text) for text in texts]


# --- attention ---
# FLOPs as in the FlashAttention papers: the forward pass has two products (scores, and their sum of values), the
# backward pass five (the scores again, and the gradients of values, scores, queries and keys). Only the scores that the
# mask keeps are counted: about half of them with a causal mask. Masks by data, such as lengths of sequences, leave the
# work unknown.

_ATTENTION = re.compile(r"__cudnn\$f(?:mha|hma)|te_fused_attn_|Mha(?:Varlen)?(?:Fwd|Bwd)")
"""Targets of cuDNN (also as XLA once spelled them), Transformer Engine, and AITER."""
_ATTRIBUTE = r"\b(\w+) = (-?\d{1,18}|true|false)\b"
_RANK = 4
_Mask = Literal["none", "causal", "bottom right"]
"""A causal mask starts at the first key, or (bottom right) ends at the last."""


class Attention(NamedTuple):
    """Sizes of an attention call. A query reads the keys from `left` before to `right` after its own position."""

    heads: int
    """Query heads of all examples."""
    queries: int
    keys: int
    width: int
    """Elements of a query and of a key."""
    value_width: int
    left: int
    right: int
    shift: int
    """The position of the first query among the keys."""
    is_backward: bool

    @property
    def scores(self) -> int:
        """Return the number of pairs of a query and a key that the mask keeps, in one head."""
        low = self.queries - 1 + self.shift - self.left
        return _pairs(self.keys, self.queries, 1, 1, low, self.left + self.right + 1)

    @property
    def flops(self) -> int:
        """Return the number of multiplications and additions."""
        of_keys, of_values = (3, 2) if self.is_backward else (1, 1)
        return 2 * self.heads * self.scores * (of_keys * self.width + of_values * self.value_width)


def is_attention(target: str) -> bool:
    """Return whether a call of this target computes attention, forward or backward."""
    return _ATTENTION.match(target) is not None


def attention_of(instruction: Instruction, operands: Sequence[Shape]) -> Attention | None:
    """Return the sizes and mask of an attention call; None if its operands and configuration do not state them."""
    if instruction.target.startswith("__cudnn"):
        return _attention_of_cudnn(instruction, operands)
    numbers = _attributes(instruction)
    if instruction.target.startswith("te_"):
        return _attention_of_te(numbers, is_backward="backward" in instruction.target)
    return _attention_of_aiter(numbers, operands, is_backward="Bwd" in instruction.target)


def _attributes(instruction: Instruction) -> dict[str, int]:
    """Return the numbers in the configuration of a call by FFI, which XLA prints as attributes of MLIR."""
    return {
        key: value == "true" if value in ("true", "false") else int(value)
        for key, value in re.findall(_ATTRIBUTE, instruction.backend_config)
    }


def _attention_of_cudnn(instruction: Instruction, operands: Sequence[Shape]) -> Attention | None:
    config = _stated(instruction, "cudnn_fmha_backend_config")
    if not isinstance(config, dict) or [len(each.dims) for each in operands[:3]] != [_RANK] * 3:
        return None
    scores = config.get("intermediate_tensor_shape")
    sizes = _whole_numbers(scores.get("dimensions")) if isinstance(scores, dict) else None
    limits = _whole_numbers([config.get("sliding_window_length", 0), config.get("max_seg_per_batch", 1)])
    is_causal = config.get("is_causal_mask") is True or config.get("mask_type") == "CAUSAL"
    is_stated = is_causal or config.get("mask_type", "NO_MASK") == "NO_MASK"
    is_plain = is_stated and config.get("is_flash_attention") is True and config.get("is_paged_attention") is not True
    if sizes is None or len(sizes) != _RANK or limits is None or not is_plain:
        return None
    (batch, heads, queries, keys), (window, segments) = sizes, limits
    query, value = operands[0], operands[2]
    if query.elements != batch * heads * queries * query.dims[-1] or segments > 1 or (window and not is_causal):
        return None
    return _attention(
        (batch * heads, queries, keys, query.dims[-1], value.dims[-1]),
        "causal" if is_causal else "none",
        (window - 1, -1),  # it includes the query's own position
        is_backward="Backward" in instruction.target,
    )


_TE_MASKS: dict[int, _Mask] = {0: "none", 2: "causal", 4: "bottom right"}
"""`NVTE_Mask_Type` without the masks of padding."""


def _attention_of_te(numbers: Mapping[str, int], *, is_backward: bool) -> Attention | None:
    mask = _TE_MASKS.get(numbers.get("mask_type", -1))
    if mask is None or numbers.get("max_segments_per_seq", 1) > 1:
        return None
    heads = numbers.get("input_batch", 0) * numbers.get("attn_heads", 0)
    width = numbers.get("qk_head_dim", numbers.get("head_dim", 0))
    sizes = heads, numbers.get("q_max_seqlen", 0), numbers.get("kv_max_seqlen", 0), width
    window = numbers.get("window_size_left", -1), numbers.get("window_size_right", -1)
    return _attention((*sizes, numbers.get("v_head_dim", width)), mask, window, is_backward=is_backward)


def _attention_of_aiter(
    numbers: Mapping[str, int], operands: Sequence[Shape], *, is_backward: bool
) -> Attention | None:
    """Return the attention of query, key and value, which follow the gradient of the result in the backward pass."""
    arrays = [each.dims for each in operands[is_backward : 3 + is_backward]]
    if [len(dims) for dims in arrays] != [_RANK] * 3 or "is_causal" not in numbers:
        return None
    (batch, queries, heads, width), key, value = arrays
    has_lengths = any(each.type == "s32" and each.elements for each in operands)
    is_causal = bool(numbers["is_causal"])
    if key[:3] != value[:3] or key[3] != width or has_lengths or (is_causal and queries != key[1]):
        return None
    window = numbers.get("window_size_left", -1), numbers.get("window_size_right", -1)
    sizes = batch * heads, queries, key[1], width, value[3]
    return _attention(sizes, "causal" if is_causal else "none", window, is_backward=is_backward)


def _attention(
    sizes: tuple[int, int, int, int, int], mask: _Mask, window: tuple[int, int], *, is_backward: bool
) -> Attention | None:
    """Return an attention whose `window` is unlimited where it is negative; None if its mask has no known position."""
    _, queries, keys, *_ = sizes
    if min(sizes) < 1 or (mask == "none" and queries != keys and max(window) >= 0):
        return None
    left, right = (size if size >= 0 else queries + keys for size in window)
    shift = keys - queries if mask == "bottom right" else 0
    return Attention(*sizes, left, right if mask == "none" else 0, shift, is_backward)


ALIGNED_BYTES = 16
"""Tensor cores are fastest at sizes that are multiples of this (NVIDIA Deep Learning Performance guide)."""
Dims = Sequence[int]
_MATRIX = 2


class Product(NamedTuple):
    """Sizes of a matrix product: M and N of the result, the summed dimension K, and the number of products."""

    m: int
    n: int
    k: int
    times: int = 1

    @property
    def flops(self) -> int:
        """Return the number of multiplications and additions."""
        return 2 * self.m * self.n * self.k * self.times

    @property
    def sizes(self) -> Mapping[str, int]:
        """Return M, N and K by name."""
        return {"M": self.m, "N": self.n, "K": self.k}


def product_of(left: Dims, right: Dims, dims: DotDims) -> Product | None:
    """Return the product of two arrays; None if dimensions and operands do not match."""
    of_left = (*dims.lhs_contracting, *dims.lhs_batch)
    of_right = (*dims.rhs_contracting, *dims.rhs_batch, *dims.rhs_group)
    if not dims.lhs_contracting or not has_dims(left, of_left) or not has_dims(right, of_right):
        return None
    m, n = (
        math.prod(size for place, size in enumerate(sizes) if place not in others)
        for sizes, others in ((left, of_left), (right, of_right))
    )
    return Product(
        m, n, math.prod(left[at] for at in dims.lhs_contracting), math.prod(left[at] for at in dims.lhs_batch)
    )


def product_by_shapes(left: Dims, right: Dims, result: Dims) -> Product | None:
    """Return the product of two (possibly transposed) matrices with this result; None if ambiguous or impossible."""
    if not len(left) == len(right) == len(result) == _MATRIX:
        return None
    ways = [(i, j) for i in (0, 1) for j in (0, 1) if left[i] == right[j]]
    found = {Product(left[1 - i], right[1 - j], left[i]) for i, j in ways if (*result,) == (left[1 - i], right[1 - j])}
    return found.pop() if len(found) == 1 else None


def has_dims(sizes: Dims, places: Iterable[int]) -> bool:
    """Return whether an array has all these dimensions; a damaged program may name others, or negative ones."""
    return all(0 <= place < len(sizes) for place in places)


def off_multiple(sizes: Mapping[str, int], multiple: int) -> dict[str, int]:
    """Return the sizes above 1 that are not multiples."""
    return {name: size for name, size in sizes.items() if size > 1 and size % multiple}


def rounded_up(size: int, multiple: int) -> int:
    """Return the next multiple."""
    return -(-size // multiple) * multiple


_MOST_RESIDUES = 64


def valid_pairs(size: int, window: int, output: int, dim: WindowDim) -> int | None:
    """Count pairs of a window position and an output that read an element of the input.

    In dilated coordinates, window position k and output o read position `o * stride + k * window_dilation - low`. It is
    an element if it is a multiple of the base dilation within `size` elements. None if both the stride and the base
    dilation are large: real programs have no such window, and counting would take too long.
    """
    stride, dilation, base = dim.stride, dim.window_dilation, dim.base_dilation
    if min(stride, dilation, base) < 1 or min(size, window, output) < 1:
        return 0
    if base == 1:
        return _pairs(window, output, dilation, stride, dim.low, size)
    if stride == 1:
        # Solve for the output: with a reversed window, input elements take the role of outputs.
        return _pairs(window, size, dilation, base, dilation * (window - 1) - dim.low, output)
    if base > _MOST_RESIDUES:
        return None
    # The remainder of a window position determines which outputs may read an element.
    apart = math.gcd(stride, base)
    step = base // apart
    total = 0
    for first in range(min(base, window)):
        ahead = first * dilation - dim.low
        if ahead % apart:
            continue
        start = -(ahead // apart) * pow(stride // apart, -1, step) % step
        places, outputs = -(-(window - first) // base), max(-(-(output - start) // step), 0)
        total += _pairs(places, outputs, dilation * base, stride * step, -ahead - start * stride, size * base)
    return total


def _pairs(columns: int, rows: int, across: int, down: int, low: int, size: int) -> int:
    """Count k < `columns` and o < `rows` with 0 <= o * down + k * across - low < size."""
    return _below(columns, rows, across, down, low + size) - _below(columns, rows, across, down, low)


def _below(columns: int, rows: int, across: int, down: int, limit: int) -> int:
    """Count k < `columns` and o < `rows` with o * down + k * across < limit."""
    full = min(max((limit - 1 - (rows - 1) * down) // across + 1, 0), columns)
    some = min(max((limit - 1) // across + 1, 0), columns)
    count = some - full
    if count <= 0:
        return rows * full
    # Start at the last of these columns, so that the floors of a rising line are added.
    lowest = limit - 1 - (some - 1) * across
    return rows * full + _floor_sum(count, down, across, lowest) + count


def _floor_sum(count: int, divisor: int, slope: int, start: int) -> int:
    """Return the sum of (start + slope * i) // divisor for i < `count`; all arguments are non-negative."""
    total = 0
    while count:
        total += (count - 1) * count // 2 * (slope // divisor) + count * (start // divisor)
        slope, start = slope % divisor, start % divisor
        top = slope * count + start
        count, start, divisor, slope = top // divisor, top % divisor, slope, divisor
    return total
