"""Families of kernels and HLO ops: attention, products, convolutions and so on, by which device time is summed.

The family of an HLO op is that of its program: of its opcode, of the target of a library call, or of what a fusion
computes. A library runs kernels of its own for one op, so a kernel that only moves data is a copy, whatever its op.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache
from typing import Literal

from tfperf.trace.device.kernels import short_name
from tfperf.trace.event_names import is_collective_kernel

Family = Literal[
    "attention",
    "product",
    "convolution",
    "normalization",
    "reduction",
    "elementwise",
    "copy",
    "collective",
    "sort, gather, scatter",
    "other",
]

_OPS: dict[Family, str] = {
    "attention": r"fmha|flash|sdpa|attention|attn|(?<![a-z])mha|dot_do_o|convert_dq_to",
    "convolution": r"conv(?!er[ts])|fprop|(?<![a-z])[wd]grad|winograd|im\d?[de]?\d?2col|igemm|[sh]cudnn|fft2d_"
    r"|miopensp3",
    "product": r"gemm|gemv|nvjet|cijk|matmul|cutlass|xmma|cublas|splitk_?reduc|(?<![a-z])(?:dot|mm|einsum)(?![a-z])",
}
"""Names of the work for which a library has kernels of many kinds."""
_MOVES = (
    r"nchw_?to_?nhwc|nhwc_?to_?nchw|addpadding|padinput|batched_transpose|swapdimension|shufflein|flip_?filter|memcpy"
    r"|fillbuffer|fill_?kernel|copydevice|copy_?kernel|init_device_workspace|repeatbuffer"
    r"|tensor(?:broadcasting|slicing|stridingslicing|padding|shuffling|reverse|concatenation|reshaping|chipping)op"
    r"|^(?:loop|input|wrapped)(?:_(?:copy|transpose|slice|concatenate|broadcast|pad|reverse|iota|reshape|dynamic|update))"
    r"+(?:_fusion)?(?:_\d+)?$"
)
"""Kernels that change nothing but the place of numbers."""
_NAMES: dict[Family, str] = {
    "other": r"random|philox|redzone",
    "normalization": r"softmax|normaliz|(?:batch|layer|group|rms|instance)_?norm|(?<![a-z])(?:bn_[fb]|ln_|lrn|norm_f)",
    "sort, gather, scatter": r"sort|scatter|gather|top_?k|onehot|embedding",
    "reduction": r"reduc|scan|pool|arg_?m(?:ax|in)|biasgrad|biasaddgrad|cleanupsegments|cumsum|(?<![a-z])(?:sum|mean)",
    "elementwise": r"eigenmetakernel|elementwise|pointwise|^(?:loop|wrapped)_|bias|relu|gelu|activation|apply|adam"
    r"|(?<!broad)cast|dropout|convert|unary|binary|(?<![a-z])(?:add|sub|mul|div|exp|tanh|max|select)(?![a-z])",
    "copy": r"transpose|concat|slice|broadcast|copy|reshape|(?<![a-z])(?:pad|tile|fill|memset)",
}
_LONGEST = 4096


@lru_cache(maxsize=4096)
def family_of_kernel(kernel: str, op_type: str = "", hlo_op: str = "", of_op: Family | None = None) -> Family:
    """Return the family of a kernel, by its name and its op.

    Args:
        kernel: Its name, as recorded.
        op_type: The type of the framework's op; empty if unknown.
        hlo_op: The name of the HLO op if XLA compiled it, else empty.
        of_op: The family of the HLO op in its program; None if unknown.
    """
    name = short_name(kernel)[:_LONGEST].lower()
    if is_collective_kernel(kernel) or of_op == "collective":
        return "collective"
    if re.search(_MOVES, name):
        return "copy"
    if re.search(_OPS["attention"], name):
        return "attention"
    if of_op is not None:
        return of_op
    found = _first_of(_OPS, (hlo_op or op_type).lower()) or _first_of({**_OPS, **_NAMES}, name)
    # What XLA fuses with a product or convolution has its framework op, so the type says nothing there.
    return found or (None if hlo_op else _first_of(_NAMES, op_type.lower())) or "other"


def _first_of(patterns: dict[Family, str], text: str) -> Family | None:
    return next((family for family, pattern in patterns.items() if re.search(pattern, text)), None)


_EXCHANGES = ("all-reduce", "all-gather", "all-to-all", "reduce-scatter", "collective-", "ragged-all-to-all")
_COPIES = frozenset((
    "copy", "transpose", "reshape", "broadcast", "pad", "concatenate", "reverse", "slice", "dynamic-slice",
    "dynamic-update-slice", "dynamic-reshape", "copy-start", "copy-done",
))  # fmt: skip
_SORTS = frozenset(("sort", "gather", "scatter"))
_REDUCTIONS = frozenset(("reduce", "reduce-window", "select-and-scatter"))
_OTHERS = frozenset((
    "fft", "cholesky", "triangular-solve", "rng", "rng-bit-generator", "rng-get-and-update-state", "partition-id",
    "replica-id", "infeed", "outfeed", "send", "recv", "send-done", "recv-done",
))  # fmt: skip
_NOTHING = frozenset((
    "parameter", "constant", "get-tuple-element", "tuple", "bitcast", "iota", "after-all", "fusion", "custom-call",
    "while", "call", "conditional", "async-start", "async-update", "async-done", "optimization-barrier",
))  # fmt: skip
"""Opcodes that say nothing about the work."""
_SCALES = frozenset(("rsqrt", "exponential", "divide", "sqrt"))


def family_of_opcodes(opcodes: Collection[str], root: str = "", target: str = "") -> Family | None:
    """Return the family of an HLO op; None if its opcodes say nothing.

    Args:
        opcodes: Its opcode, and for a fusion those of all instructions inside.
        root: The opcode of the result of a fusion; a reduction that scales what it reduced is a normalization.
        target: The target of a custom call.
    """
    if any(opcode.startswith(_EXCHANGES) for opcode in opcodes):
        return "collective"
    if target:
        return _first_of({**_OPS, **_NAMES}, target.lower())
    inside = {*opcodes} - _NOTHING
    if not inside:
        return None
    if "convolution" in inside:
        return "convolution"
    if inside & {"dot", "ragged-dot"}:
        return "product"
    if inside & _SORTS:
        return "sort, gather, scatter"
    if inside & _REDUCTIONS:
        scales = root not in (*_REDUCTIONS, "tuple", "") and inside & _SCALES and "reduce" in inside
        return "normalization" if scales else "reduction"
    if inside <= _COPIES:
        return "copy"
    return "other" if inside <= _OTHERS | _COPIES else "elementwise"
