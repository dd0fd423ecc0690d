"""Tensor cores: which kernels run on them, and which ops could, judged by names alone.

A profile does not record which units a kernel uses. Names of the libraries' kernels often tell (the instruction's
shape, `tensorop`, `simt`, ...), sometimes they do not: then the answer is None, unknown. On AMD the same question is
about matrix cores (MFMA). The rules of TensorFlow's own profiler, old and new, are kept beside for its attribution.
"""

from __future__ import annotations

import re
from functools import lru_cache

# --- kernels ---

# Patterns are texts, compiled at their first use: a job without a GPU needs none of them.
_USES = (
    r"(?:^|[^a-z0-9])(?:[a-z]+\d+_)?[chisdzb](?:884|1688|8816|16816|16832|16864|161616|168128|168256)(?!\d)"
    r"|tensor_?op|gmma|tcgen05|warpgroupsize|nvjet|(?<![a-z])tensor\d+x\d+x\d+"
    r"|(?<![a-z])(?:u|w|h|i|q|d|b|utc|utch|utcq)mma(?![a-z])"
    r"|(?<![a-z])sm(?:7[05]|8[069]|90|1[02]\d)_(?:mma_|\d+x\d+x\d+_)|(?<![a-z])sm\d+_sparse_mma"
    r"|xmma_sparse|dgrad_1x1_stride_2x2|first_layer_wgrad_kernel|conv2d_c1_k1"
    r"|cijk_\w*_mi[1-9]\d*x|igemm_\w*gtcx|xdl|mfma"
)
"""On tensor cores: `s16816gemm` and the like name the instruction and its shape, as does `tensor16x8x8`."""
_DOES_NOT = (
    r"(?<![a-z])(?:simt|ffma|dfma|hfma2?)(?![a-z])|opclasssimt|universalfma"
    r"|(?:kepler|maxwell|pascal|volta|turing|ampere|hopper)_(?:fp16_)?[shc](?:gemm|cudnn)"
    r"|(?:kepler|maxwell|pascal|volta|turing)_(?:fp16_)?[dz](?:gemm|cudnn)"
    r"|(?:im|ex)plicit_convolve_|gemv|gemmsn_|gemm_?k1_|(?:wgrad|dgrad)_\w*engine|grouped_direct_kernel|im\d?[de]?\d?2col"
    r"|offsetskernel|splitk_?reduce|gemm_pointers|depthwise|winograd_nonfused|generatewinograd"
    r"|nchwtonhwc|nhwctonchw|eigenmetakernel|miopensp3asm|(?:^|[^a-z])nccl"
)
_MAY = (
    r"gemm|matmul|cijk_|xmma|fprop|wgrad|dgrad|implicit_gemm|convolution|conv[123]d|conv1x1|direct_group|winograd"
    r"|cudnn_generated|attention|attn|flash|fmha|sdpa|(?<![a-z])mha|cutlass|(?<![a-z])ck(?:_tile)?::"
    r"|(?<![a-z])dot(?:_general)?(?![a-z])|mosaic|lstm|gru_|persistrnn|rnn_"
)
"""Work that runs on tensor cores or does not, and nothing in the name says which (Triton's `gemm_fusion_dot`)."""
_READ = 8192


@lru_cache(maxsize=4096)
def uses_tensor_cores(kernel: str) -> bool | None:
    """Tell whether a kernel of this name runs on tensor cores; None if the name does not tell."""
    name = kernel[:_READ].lower()
    if re.search(_DOES_NOT, name):
        return False
    return True if re.search(_USES, name) else None if re.search(_MAY, name) else False


# --- ops ---

_TYPES = (
    r"_?(?:Fused|FusedBatch|Batch|Quantized|_MklFused)?(?:MatMul|MatMulV[2-9])"
    r"|_?(?:Fused|Quantized)?Conv[23]D(?:Backprop(?:Filter|Input)(?:V[2-9])?|V[2-9])?"
    r"|DepthwiseConv2dNative(?:Backprop(?:Filter|Input))?|CudnnRNN\w*|XlaDot(?:V2)?|XlaConv(?:V2)?"
    r"|dot_general|conv_general_dilated"
)
_HLO = r"gemm|(?:^|[_.-])(?:dot|convolution|matmul)(?![a-z])|cublas|cudnn-(?:conv|fmha)|fmha"


def is_op_eligible(name: str, op_type: str, hlo_op: str = "", opcode: str = "", equation: str = "") -> bool | None:
    """Tell whether an op's work is of the kind that tensor cores do: products of matrices and convolutions.

    For an op that XLA compiled, the HLO op decides, since one op of the framework becomes several of them, such as a
    convolution and the transposes around it. None where neither tells.
    """
    is_type = re.compile(_TYPES).fullmatch
    if not hlo_op:
        if op_type == "Einsum":
            return is_product(equation) if equation else None
        return None if not name or op_type in ("", "Unknown") else is_type(op_type) is not None
    if opcode in ("dot", "convolution") or re.search(_HLO, hlo_op):
        return True
    if opcode == "custom-call" or (not opcode and hlo_op.startswith("custom-call")):
        return True if is_type(op_type) or is_type(name.rpartition("/")[2]) else None
    return False


def is_product(equation: str) -> bool:
    """Tell whether the equation of an Einsum is a product of two tensors."""
    left, arrow, right = equation.partition("->")
    return bool(arrow) and "->" not in right and left.count(",") == 1


# --- as TensorFlow's profiler has it ---

_THEIR_KERNELS = (
    r"16816|c1688|conv1x1|conv2d_c1_k1|dgrad_1x1_stride_2x2|direct_group|first_layer_wgrad_kernel|h1688|h884|hmma|i16832"
    r"|i8816|s884|s1688|xmma_(?:(?:warp_specialized_)?implicit_)?gemm|xmma_sparse_(?:conv|gemm)"
)
_THEIR_OLD_KERNELS = r"(?:volta_(?:fp16_)?[ihs]884|turing_(?:fp16_)?[ihs]1688)|.*(?:hmma|xmma)"
_THEIR_OPS = (
    r"(?:(?:Conv2D|DepthwiseConv2dNative)(?:Backprop(?:Filter|Input))?|Conv3D|(?:/|Fused)MatMul|/CudnnRNN|XlaDot(?:V2)?)\Z"
    r"|BatchMatMul|CudnnRNN(?:V|Forward|Backprop)"
)


def tensorflow_kernel(kernel: str, *, old: bool) -> bool:
    """Tell what TensorFlow says of a kernel; `old` is its list of 2.2 to 2.4."""
    return bool(re.match(_THEIR_OLD_KERNELS, kernel, re.DOTALL) if old else re.search(_THEIR_KERNELS, kernel))


def tensorflow_op(name: str) -> bool:
    """Tell what TensorFlow says of an op, which it judges by its name, not its type."""
    return re.search(_THEIR_OPS, name) is not None
