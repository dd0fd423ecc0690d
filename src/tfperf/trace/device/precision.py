"""Whether a kernel computes in 16 bit or in 32, judged by what the trace holds. This is the one place that decides.

The evidence, best first; what comes first decides.

1. The name of the kernel, where it says types of floating-point numbers (`half`, `bf16`, `float`), the instruction
   (`h884`, `s16816`), or the letter of the libraries for products (`hgemm`, `sgemm`, Tensile's `BBS`). If it says 16
   bit and 32, it is 16 bit: the others are accumulators, statistics, or the other side of a cast.
2. The types of the op's inputs, where the profiler recorded them (TensorFlow 2.2, stat `shape`) and any is a
   floating-point number. They come second, since an op may read other types than it computes in: random numbers in 16
   bit have seeds in int32, and a cast to 16 bit reads 32.
3. Integers, in the name or among the inputs: work on integers counts as 32 bit.

A kernel with none of these is unknown: it is never taken for 32 bit. 16 bit stands for 16 and fewer (8-bit products on
tensor cores), 32 bit for 32 and more.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

Bits = Literal[0, 16, 32]
"""0: unknown."""

# Patterns are texts, compiled at their first use: a job without a GPU needs none of them. All are of lower case.
_SIXTEEN = (
    r"(?<![a-z])half[248]?(?![a-z])|\dhalf"  # the second form is that of mangled names
    r"|(?<![a-z0-9])(?:nv_)?b?f(?:p|loat)?16(?!\d)|(?<=f16|f32)b?f16|bfloat16"
    r"|(?<![a-z])(?:[hs]884|h1688|[hs]16816|h?gmma_f16)(?!\d)|(?:volta|turing)_(?:\w*_)?s1688"
    r"|(?<![a-z])h(?:gemm|gemv|cudnn|trsm)"
    r"|(?<![a-z])(?:e4m3|e5m2|f(?:p|loat)?8|u?int8|i8816|i16832|imma)(?!\d)|nvjet_[htq]"
    r"|(?<![a-z])short(?![a-z])|(?<![a-z])u?int16(?!\d)"  # how kernels that only move 16-bit numbers call them
)
_THIRTY_TWO = (
    r"(?<![a-z])float[234]?(?![a-z0-9])|(?<![a-z])double[24]?(?![a-z0-9])|(?<![a-z0-9])t?fp?(?:32|64)(?!\d)"
    r"|(?<![a-z])[sdcz](?:gemm|gemv|cudnn|trsm)|(?<![a-z])[sd]1688(?!\d)|complex"
)
"""Outside of Volta and Turing, `s1688` is the instruction for TF32."""
_INTEGERS = r"(?<![a-z])(?:int|long|char|bool)(?![a-z])|dt_u?int|dt_bool"
_TENSILE = r"cijk_[a-z]+_[a-z]+_([a-z])"
_TENSILE_BITS: dict[str, Bits] = {"h": 16, "b": 16, "i": 16, "f": 16, "s": 32, "d": 32, "c": 32, "z": 32, "x": 32}
_INPUT_TYPE = r"([a-z]+\d*)\["
_READ = 8192


@lru_cache(maxsize=4096)
def bits_of_name(kernel: str) -> Bits:
    """Return what the name of a kernel says of floating-point numbers."""
    name = kernel[:_READ].lower()
    if (tensile := re.search(_TENSILE, name)) is not None:
        return _TENSILE_BITS.get(tensile.group(1), 0)
    return 16 if re.search(_SIXTEEN, name) else 32 if re.search(_THIRTY_TWO, name) else 0


@lru_cache(maxsize=4096)
def names_integers(kernel: str) -> bool:
    """Tell whether a kernel's name says that it works on integers, by its template arguments or types of TensorFlow.

    What stands in the parameters are sizes.
    """
    name = kernel[:_READ].lower().replace("(anonymous namespace)", "").partition("(")[0]
    _, _, arguments = name.partition("<")
    return re.search(_INTEGERS, arguments or (name if "dt_" in name else "")) is not None


@lru_cache(maxsize=4096)
def bits_of_inputs(shapes: str) -> Bits:
    """Return what the types of inputs say of floating-point numbers: `(half[4,8];int32[])` is 16."""
    types = re.findall(_INPUT_TYPE, shapes[:_READ].lower())
    if any(re.fullmatch("half|b?float16|float8.*", kind) for kind in types):
        return 16
    return 32 if any(re.fullmatch(r"float(?:32|64)?|double|complex\d*", kind) for kind in types) else 0


@lru_cache(maxsize=4096)
def are_integers(shapes: str) -> bool:
    """Tell whether the types of inputs are recorded, and none is a floating-point number."""
    return bool(re.findall(_INPUT_TYPE, shapes[:_READ].lower())) and not bits_of_inputs(shapes)
