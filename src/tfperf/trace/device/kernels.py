"""Kernels: launch details, occupancy, short names, precision, and use of tensor cores.

The current `kernel_details` is `regs:32 static_shared:1024 dynamic_shared:0 grid:8,1,1 block:256,1,1 occ_pct:50`; files
of 2020 to 2022 have one `shm:` for both kinds of shared memory; on AMD it is `group_mem:`, and there are no registers.
Copies have `memcpy_details` in three spellings. All functions work on distinct texts, not on events.
"""

from __future__ import annotations

import re
from functools import lru_cache
from math import prod
from typing import Literal, NamedTuple

from msgspec import Struct

from tfperf.base.arrays import MOST
from tfperf.formats.hlo.model import BITS

TINY_PS = 10_000_000
"""A kernel shorter than this (10 us) takes about as long as its launch."""
Dim = tuple[int, int, int]


class KernelDetails(NamedTuple):
    """Launch details of a kernel (None: unknown); `shared_bytes` is static plus dynamic shared memory of a block."""

    grid: Dim | None = None
    block: Dim | None = None
    registers: int | None = None
    static_shared_bytes: int | None = None
    dynamic_shared_bytes: int | None = None
    shared_bytes: int | None = None
    occupancy_percent: float | None = None


class CopyDetails(NamedTuple):
    """Details of a copy; `source` and `destination` are kinds of memory (`pageable`, `pinned`, `device`)."""

    size_bytes: int | None = None
    source: str = ""
    destination: str = ""
    is_async: bool | None = None


NO_DETAILS = KernelDetails()
NO_COPY = CopyDetails()
_MEMORY = {"pageable": "pageable", "pinned": "pinned", "device": "device", "array": "device"}


def parse_kernel(text: str) -> KernelDetails:
    """Parse `kernel_details` in any of its spellings."""
    fields = _fields(text)
    static, dynamic = _number(fields.get("static_shared")), _number(fields.get("dynamic_shared"))
    shared = static + dynamic if static is not None and dynamic is not None else None
    if shared is None:
        shared = _number(fields.get("shm", fields.get("group_mem")))
    percent = fields.get("occ_pct", "")  # 0 if the writer could not determine it
    is_percent = re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,20})?", percent)
    return KernelDetails(
        grid=_dim(fields.get("grid")),
        block=_dim(fields.get("block")),
        registers=_number(fields.get("regs")),
        static_shared_bytes=static,
        dynamic_shared_bytes=dynamic,
        shared_bytes=shared,
        occupancy_percent=float(percent) if is_percent and 0 < float(percent) <= 100 else None,
    )


def parse_copy(text: str) -> CopyDetails:
    """Parse `memcpy_details` or `memset_details`; size 0 means unknown: every copy moves data."""
    fields = _fields(text)
    is_async = {"0": False, "1": True}.get(fields.get("async", ""))
    size = _number(fields.get("size", fields.get("num_bytes")))
    source, destination = (_MEMORY.get(fields.get(key, "").lower(), "") for key in ("kind_src", "kind_dst"))
    return CopyDetails(size or None, source, destination, is_async)


def _fields(text: str) -> dict[str, str]:
    tokens = (token.partition(":") for token in text.split())
    return {key: value for key, _, value in tokens if value and ":" not in value}


def _number(text: str | None) -> int | None:
    if text is None or not text.isascii() or not text.isdigit() or len(text) > len(str(MOST)):
        return None
    return int(text) if int(text) < MOST else None


def _dim(text: str | None) -> Dim | None:
    sizes = [size for size in map(_number, (text or "").split(",")) if size]
    return (sizes[0], sizes[1], sizes[2]) if len(sizes) == 3 and text and text.count(",") == 2 else None


# --- occupancy ---


class _Limits(Struct, frozen=True):
    """Capacity of one multiprocessor (CUDA programming guide, technical specifications per compute capability)."""

    warps: int
    blocks: int
    shared_bytes: int
    reserved_bytes: int
    """Shared memory that the system reserves per block."""
    shared_unit: int


_KIB = 1024
_LIMITS = {
    (6, 1): _Limits(64, 32, 96 * _KIB, 0, 256),
    (7, 0): _Limits(64, 32, 96 * _KIB, 0, 256),
    (7, 5): _Limits(32, 16, 64 * _KIB, 0, 256),
    (8, 0): _Limits(64, 32, 164 * _KIB, _KIB, 128),
    (8, 6): _Limits(48, 16, 100 * _KIB, _KIB, 128),
    (8, 9): _Limits(48, 24, 100 * _KIB, _KIB, 128),
    (9, 0): _Limits(64, 32, 228 * _KIB, _KIB, 128),
}
_REGISTERS, _SIDES, _REGISTER_UNIT = 65536, 4, 256


def occupancy(details: KernelDetails, capability: tuple[int, int]) -> float | None:
    """Return the theoretical occupancy in percent: resident warps / maximum of a multiprocessor.

    As in CUDA's occupancy calculator, blocks are limited by their number, warps, registers (allocated per warp in
    units, from the quarter of the multiprocessor that runs it) and shared memory. None for a device whose limits are
    not in the table, for a block that it cannot run, and if details are missing.
    """
    limits = _LIMITS.get(capability)
    if limits is None or details.block is None or details.registers is None or details.shared_bytes is None:
        return None
    threads = prod(details.block)
    if not 0 < threads <= 1024 or details.registers > 255:
        return None
    warps = -(-threads // 32)
    blocks = min(limits.blocks, limits.warps // warps)
    if details.registers:
        per_warp = -(-details.registers * 32 // _REGISTER_UNIT) * _REGISTER_UNIT
        blocks = min(blocks, _REGISTERS // _SIDES // per_warp * _SIDES // warps)
    needed = -(-(details.shared_bytes + limits.reserved_bytes) // limits.shared_unit) * limits.shared_unit
    if needed:
        blocks = min(blocks, limits.shared_bytes // needed)
    return 100.0 * blocks * warps / limits.warps if blocks else None


# --- names ---

# Patterns are strings, compiled at their first use, because a job without a GPU needs none of them.
_TENSILE = r"\w*?Cijk_\w*?_MT\d+x\d+x\d+(?:_MI\d+(?:x\d+)*)?"
_CUTLASS = r"cutlass(?:3x)?_\w+"
_EIGEN_TYPE = r"Eigen::Tensor<(?:(?:Eigen|std|tensorflow|tsl)::)?([\w ]+?)(?: const)?,"
_EIGEN_WORK = (
    r"\b(?:internal|functor|generator)::(\w+)"
    r"|Eigen::(Tensor(?:Conversion|Broadcasting|Slicing|StridingSlicing|Padding|Shuffling|Reverse|Concatenation|"
    r"Reshaping|Chipping|Reduction|TupleReducer|Generator|Select|CwiseNullary|Scan|ImagePatch|VolumePatch)Op)\b"
)
_EIGEN_WRAPPERS = {"EigenMetaKernel", "scalar_left", "scalar_right", "ComparisonName", "traits", "evaluator"}
_LONGEST = 4096


@lru_cache(maxsize=4096)
def short_name(name: str) -> str:
    """Return a kernel name without return type, parameters, namespaces and most template arguments.

    `void tensorflow::functor::RowReduceKernel<float const*>(int)` is `RowReduceKernel`. Eigen has one kernel for all
    element-wise work, so its number type and operation are kept; CUTLASS kernels keep the generated name inside,
    those of AMD's Composable Kernel the name of the kernel that their wrapper runs, and Tensile kernels their tile.
    """
    text = name[:_LONGEST].removesuffix(".kd").strip()
    if (tensile := re.match(_TENSILE, text)) is not None:
        return tensile.group()
    base = _base(text)
    if base == "EigenMetaKernel":  # the number type of the result, and the first operation on it
        arguments = text[: text.find(">(") + 1] or text
        kind = re.search(_EIGEN_TYPE, arguments)
        work = (match.group(1) or match.group(2) for match in re.finditer(_EIGEN_WORK, arguments))
        first = next((word for word in work if word not in _EIGEN_WRAPPERS), "")
        inside = ", ".join(part for part in (kind.group(1) if kind else "", first) if part)
        return f"EigenMetaKernel<{inside}>" if inside else base
    if base == "kentry":  # a wrapper of Composable Kernel
        inner = re.search(r"ck_tile::\w+Kernel\b", text)
        return inner.group().rpartition("::")[2] if inner else base
    inner = re.search(_CUTLASS, text) if base in ("Kernel", "Kernel2", "device_kernel") else None
    return inner.group() if inner else base or text


def _base(text: str) -> str:
    """Return the last part of the qualified name before its template arguments and its parameters."""
    text = text.removeprefix("void ").replace("(anonymous namespace)", "anonymous")
    kept, depth, after = [], 0, 0
    for bracket in re.finditer(r"[<>(]", text):
        at, sign = bracket.start(), bracket.group()
        if depth == 0:
            kept.append(text[after:at])
        if sign == "(" and depth == 0:
            break
        depth = max(depth + {"<": 1, ">": -1, "(": 0}[sign], 0)
        after = at + 1
    else:
        if depth == 0:
            kept.append(text[after:])
    return "".join(kept).rpartition("::")[2].strip()


# --- precision ---
# Evidence in order of priority:
# 1. The name of the kernel, if it contains floating-point types (`half`, `bf16`, `float`), the instruction (`h884`,
# `s16816`), or the letters of matrix product libraries (`hgemm`, `sgemm`, Tensile's `BBS`). A name with 16 and 32 bit
# is 16 bit: the others are accumulators, statistics, or the other side of a cast.
# 2. The number type of the HLO op in the compiled program (`read_number_types`): the operands of a product, else the
# type of most elements.
# 3. The input types of the op, if the profiler recorded them (TensorFlow 2.2, stat `shape`) and any is a floating-point
# type. They come after the name, because an op may read other types than it computes in: random numbers in 16 bit have
# seeds in int32, and a cast to 16 bit reads 32.
# 4. Integers, in the name or among the inputs: work on integers counts as 32 bit.
# A kernel with none of these is unknown, never 32 bit. 16 bit includes smaller types (8-bit products on
# tensor cores), 32 bit larger ones.

Bits = Literal[0, 16, 32]
"""0: unknown."""

# Lower-case patterns, compiled at their first use, as above.
_SIXTEEN = (
    r"(?<![a-z])half[248]?(?![a-z])|\dhalf"  # the second form is that of mangled names
    r"|(?<![a-z0-9])(?:nv_)?b?f(?:p|loat)?16(?!\d)|(?<=f16|f32)b?f16|bfloat16"
    r"|(?<![a-z])(?:[hs]884|h1688|[hs]16816|h?gmma_f16)(?!\d)|(?:volta|turing)_(?:\w*_)?s1688"
    r"|(?<![a-z])h(?:gemm|gemv|cudnn|trsm)"
    r"|(?<![a-z])(?:e4m3|e5m2|f(?:p|loat)?8|u?int8|i8816|i16832|imma)(?!\d)|nvjet_(?:sm\d+_)?[htq]"
    r"|(?<![a-z])short(?![a-z])|(?<![a-z])u?int16(?!\d)"  # names of kernels that only move 16-bit numbers
)
_THIRTY_TWO = (
    r"(?<![a-z])float[234]?(?![a-z0-9])|(?<![a-z])double[24]?(?![a-z0-9])|(?<![a-z0-9])t?fp?(?:32|64)(?!\d)"
    r"|(?<![a-z])[sdcz](?:gemm|gemv|cudnn|trsm)|(?<![a-z])[sd]1688(?!\d)|complex"
)
"""Except on Volta and Turing, `s1688` is the instruction for TF32."""
_INTEGERS = r"(?<![a-z])(?:int|long|char|bool)(?![a-z])|dt_u?int|dt_bool"
_TENSILE_TYPE = r"cijk_[a-z]+_[a-z]+_([a-z])"
_TENSILE_BITS: dict[str, Bits] = {"h": 16, "b": 16, "i": 16, "f": 16, "s": 32, "d": 32, "c": 32, "z": 32, "x": 32}
_INPUT_TYPE = r"([a-z]+\d*)\["
_READ = 8192


@lru_cache(maxsize=4096)
def bits_of_name(kernel: str) -> Bits:
    """Return the floating-point size in the name of a kernel."""
    name = kernel[:_READ].lower()
    if (tensile := re.search(_TENSILE_TYPE, name)) is not None:
        return _TENSILE_BITS.get(tensile.group(1), 0)
    return 16 if re.search(_SIXTEEN, name) else 32 if re.search(_THIRTY_TWO, name) else 0


def bits_of_type(element_type: str) -> Bits:
    """Return the size of a number type of HLO, such as `bf16`; 0 for an empty text."""
    if not element_type:
        return 0
    return 16 if BITS[element_type] <= 16 and element_type != "pred" else 32


@lru_cache(maxsize=4096)
def names_integers(kernel: str) -> bool:
    """Return whether a kernel's template arguments or TensorFlow types are integers; integer parameters are sizes."""
    name = kernel[:_READ].lower().replace("(anonymous namespace)", "").partition("(")[0]
    _, _, arguments = name.partition("<")
    return re.search(_INTEGERS, arguments or (name if "dt_" in name else "")) is not None


@lru_cache(maxsize=4096)
def bits_of_inputs(shapes: str) -> Bits:
    """Return the floating-point size of input types: `(half[4,8];int32[])` is 16."""
    types = re.findall(_INPUT_TYPE, shapes[:_READ].lower())
    if any(re.fullmatch("half|b?float16|float8.*", kind) for kind in types):
        return 16
    return 32 if any(re.fullmatch(r"float(?:32|64)?|double|complex\d*", kind) for kind in types) else 0


@lru_cache(maxsize=4096)
def are_integers(shapes: str) -> bool:
    """Return whether input types are recorded and none is a floating-point type."""
    return bool(re.findall(_INPUT_TYPE, shapes[:_READ].lower())) and not bits_of_inputs(shapes)


# --- kernels ---

# --- tensor cores ---
# A profile does not record which units a kernel uses. Names of library kernels often show it (the instruction's shape,
# `tensorop`, `simt`, ...); otherwise the result is None, unknown. On AMD the question is about matrix cores (MFMA). The
# rules of TensorFlow's own profiler, old and new, are implemented separately for its attribution.

# Most evidence is a part of the name: patterns, which take long to compile, have only the rest.
_USES = (
    "tensorop tensor_op tf32 gmma tcgen05 warpgroupsize nvjet xmma_sparse dgrad_1x1_stride_2x2 "
    "first_layer_wgrad_kernel conv2d_c1_k1 xdl mfma"
)
_USES_PATTERN = (
    r"(?<![a-z0-9])[chisdzb](?:884|1688|8816|161616|168(?:16|32|64|128|256))(?!\d)"
    r"|(?<![a-z])(?:tensor\d+x\d+x\d+|(?:[uwhiqdb]|utc[hq]?)mma(?![a-z])|sm\d+_sparse_mma"
    r"|sm(?:7[05]|8[069]|90|1[02]\d)_(?:mma_|\d+x\d+x\d+_))"
    r"|cijk_\w*_mi[1-9]\d*x|igemm_\w*gtcx"
)
"""Names like `s16816gemm` contain the instruction of tensor cores and its shape, as does `tensor16x8x8`."""
_DOES_NOT = (
    "opclasssimt universalfma implicit_convolve_ explicit_convolve_ gemv gemmsn_ gemmk1_ gemm_k1_ gemm_pointers "
    "grouped_direct_kernel offsetskernel splitkreduce splitk_reduce depthwise winograd_nonfused generatewinograd "
    "nchwtonhwc nhwctonchw eigenmetakernel miopensp3asm"
)
_DOES_NOT_PATTERN = (
    r"(?<![a-z])(?:nccl|(?:simt|ffma|dfma|hfma2?)(?![a-z]))"
    r"|(?:kepler|maxwell|pascal|volta|turing)_(?:fp16_)?[shcdz](?:gemm|cudnn)"
    r"|(?:ampere|hopper)_(?:fp16_)?[shc](?:gemm|cudnn)|[wd]grad_\w*engine|im\d?[de]?\d?2col"
)
_MAY = (
    "gemm matmul cijk_ xmma fprop wgrad dgrad convolution conv1d conv2d conv3d conv1x1 direct_group winograd "
    "cudnn_generated attention attn flash fmha sdpa cutlass mosaic lstm gru_ persistrnn rnn_"
)
_MAY_PATTERN = r"(?<![a-z])(?:mha|ck(?:_tile)?::|dot(?:_general)?(?![a-z]))"
"""Work that may run on tensor cores, if the name does not show it (Triton's `gemm_fusion_dot`)."""


@lru_cache(maxsize=4096)
def uses_tensor_cores(kernel: str) -> bool | None:
    """Return whether a kernel of this name runs on tensor cores; None if the name does not show it."""
    name = kernel[:_READ].lower()
    if _has(name, _DOES_NOT, _DOES_NOT_PATTERN):
        return False
    return True if _has(name, _USES, _USES_PATTERN) else None if _has(name, _MAY, _MAY_PATTERN) else False


def _has(name: str, parts: str, pattern: str) -> bool:
    return any(part in name for part in parts.split()) or re.search(pattern, name) is not None


# --- ops ---

_TYPES = (
    r"_?(?:Fused|FusedBatch|Batch|Quantized|_MklFused)?(?:MatMul|MatMulV[2-9])"
    r"|_?(?:Fused|Quantized)?Conv[23]D(?:Backprop(?:Filter|Input)(?:V[2-9])?|V[2-9])?"
    r"|DepthwiseConv2dNative(?:Backprop(?:Filter|Input))?|CudnnRNN\w*|XlaDot(?:V2)?|XlaConv(?:V2)?"
    r"|dot_general|conv_general_dilated"
)
_HLO = r"gemm|(?:^|[_.-])(?:dot|convolution|matmul)(?![a-z])|cublas|cudnn-(?:conv|fmha)|fmha"


@lru_cache(maxsize=4096)
def is_op_eligible(name: str, op_type: str, hlo_op: str = "", opcode: str = "", equation: str = "") -> bool | None:
    """Return whether an op can use tensor cores, as matrix products and convolutions can.

    For an op that XLA compiled, the HLO op decides, because one framework op becomes several HLO ops, such as a
    convolution and the transposes around it. None if neither shows it.
    """
    if not hlo_op:
        if op_type == "Einsum":
            return is_product(equation) if equation else None
        return None if not name or op_type in ("", "Unknown") else _computes_products(op_type)
    if opcode in ("dot", "convolution") or re.search(_HLO, hlo_op):
        return True
    if opcode == "custom-call" or (not opcode and hlo_op.startswith("custom-call")):
        return _computes_products(op_type) or _computes_products(name.rpartition("/")[2]) or None
    return False


def _computes_products(op_type: str) -> bool:
    return re.fullmatch(_TYPES, op_type) is not None


def is_product(equation: str) -> bool:
    """Return whether the equation of an Einsum is a product of two tensors."""
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
    """Return whether TensorFlow counts a kernel as using tensor cores; `old` is its list of 2.2 to 2.4."""
    return bool(re.match(_THEIR_OLD_KERNELS, kernel, re.DOTALL) if old else re.search(_THEIR_KERNELS, kernel))


def tensorflow_op(name: str) -> bool:
    """Return whether TensorFlow counts an op as eligible, by its name, not its type."""
    return re.search(_THEIR_OPS, name) is not None
