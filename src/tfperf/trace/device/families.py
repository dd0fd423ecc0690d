"""Families of kernels and HLO ops: attention, products, convolutions and so on, by which device time is summed.

The family of an HLO op is that of its program: of its opcode, of the target of a library call, or of what a fusion
computes. A library runs kernels of its own for one op, so a kernel that only moves data is a copy, whatever its op.
"""

from __future__ import annotations

import re
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
    "attention": "fmha flash sdpa attention attn _mha dot_do_o _dq_to_",
    "convolution": "conv fprop _wgrad _dgrad winograd im_col im_d_col igemm scudnn hcudnn fft_d_",
    "product": "gemm gemv nvjet cijk matmul cutlass xmma cublas splitkreduc splitk_reduc _dot_ _mm_ _einsum_",
}
"""Parts of the names of work for which a library has kernels of many kinds; `_` matches what is not a letter."""
_NAMES: dict[Family, str] = {
    "other": "random philox redzone",
    "normalization": "softmax normaliz batchnorm batch_norm layernorm layer_norm groupnorm group_norm rmsnorm rms_norm "
    "instance_norm _bn_f _bn_b _ln_ _lrn _norm_f _norm_b",
    "sort, gather, scatter": "sort scatter gather topk top_k onehot embedding",
    "reduction": "reduc scan pool argmax argmin biasgrad biasaddgrad cleanupsegments cumsum _sum _mean",
    "elementwise": "eigenmetakernel elementwise pointwise _loop_ _wrapped_ bias relu gelu activation apply adam "
    "dropout _cast unary binary _add_ _sub_ _mul_ _div_ _exp_ _tanh_ _max_ _select_",
    "copy": "transpose concat slice broadcast copy reshape _pad _tile _fill _memset",
}
_MOVES = (
    "nchwtonhwc nhwctonchw nchw_to_nhwc nhwc_to_nchw addpadding padinput batched_transpose swapdimension shufflein "
    "flip_filter memcpy fillbuffer fill_kernel copydevice copy_kernel copybuffer init_device_workspace repeatbuffer "
    "tensorbroadcastingop tensorslicingop tensorstridingslicingop tensorpaddingop tensorshufflingop tensorreverseop "
    "tensorconcatenationop tensorreshapingop tensorchippingop"
)
"""Kernels that change nothing but the place of numbers."""
_FUSIONS = frozenset(("loop", "input", "wrapped"))
_MOVING = frozenset((
    "copy", "transpose", "slice", "concatenate", "broadcast", "pad", "reverse", "iota", "reshape", "dynamic", "update",
    "fusion",
))  # fmt: skip
"""XLA names a fusion after its kind and the opcodes of its results, such as `loop_dynamic_update_slice_fusion_3`."""
_LONGEST = 4096


def family_of_kernel(kernel: str, op_type: str = "", hlo_op: str = "", of_op: Family | None = None) -> Family:
    """Return the family of a kernel, by its name and its op.

    Args:
        kernel: Its name, as recorded.
        op_type: The type of the framework's op; empty if unknown.
        hlo_op: The name of the HLO op if XLA compiled it, else empty.
        of_op: The family of the HLO op in its program; None if unknown.
    """
    if of_op == "collective":
        return of_op
    return _whatever_its_op(kernel) or of_op or _by_parts(kernel, op_type, hlo_op)


@lru_cache(maxsize=4096)
def _whatever_its_op(kernel: str) -> Family | None:
    if is_collective_kernel(kernel):
        return "collective"
    name = _letters(short_name(kernel))
    first, *others = name.strip("_").split("_")
    if any(part in name for part in _MOVES.split()) or (first in _FUSIONS and _MOVING.issuperset(others)):
        return "copy"
    return _family_in(name, "attention")


@lru_cache(maxsize=4096)
def _by_parts(kernel: str, op_type: str, hlo_op: str) -> Family:
    name = _letters(short_name(kernel))
    # What XLA fuses with a product or convolution has its framework op, so the type says nothing there.
    return (
        _family_in(_letters(hlo_op or op_type), *_OPS)
        or _family_in(name, *_OPS, *_NAMES)
        or (None if hlo_op else _family_in(_letters(op_type), *_NAMES))
        or "other"
    )


def _letters(text: str) -> str:
    """Return a name in lower case, with `_` for each group of other characters, before and behind it too.

    To convert is to cast: it must not look like a convolution.
    """
    return f"_{re.sub('[^a-z]+', '_', text[:_LONGEST].lower())}_".replace("conver", "_cast")


def _family_in(text: str, *families: Family) -> Family | None:
    """Return the first of these families with a part that the text contains."""
    return next((each for each in families if any(part in text for part in _PARTS[each])), None)


_PARTS = {family: parts.split() for family, parts in (_OPS | _NAMES).items()}
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


@lru_cache(maxsize=4096)
def family_of_opcodes(opcodes: frozenset[str], root: str = "", target: str = "") -> Family | None:
    """Return the family of an HLO op; None if its opcodes say nothing.

    Args:
        opcodes: Its opcode, and for a fusion those of all instructions inside.
        root: The opcode of the result of a fusion; a reduction that scales what it reduced is a normalization.
        target: The target of a custom call.
    """
    if any(opcode.startswith(_EXCHANGES) for opcode in opcodes):
        return "collective"
    if target:
        return _family_in(_letters(target), *_OPS, *_NAMES)
    inside = opcodes - _NOTHING
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
