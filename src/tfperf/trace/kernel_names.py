"""What the long name of a kernel comes down to."""

from __future__ import annotations

import re
from functools import lru_cache

# Patterns are texts, compiled at their first use: a job without a GPU needs none of them.
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
    """Return what tells a kernel from others: no return type, parameters, namespaces and most template arguments.

    `void tensorflow::functor::RowReduceKernel<float const*>(int)` is `RowReduceKernel`; of Eigen's one kernel for all
    element-wise work the number type and what is worked out are kept, of CUTLASS's the generated name inside, and of
    AMD's Tensile the kernel's tile.
    """
    text = name[:_LONGEST].removesuffix(".kd").strip()
    if (tensile := re.match(_TENSILE, text)) is not None:
        return tensile.group()
    base = _base(text)
    if base == "EigenMetaKernel":  # the number type of the result, and the first thing that is done to it
        arguments = text[: text.find(">(") + 1] or text
        kind = re.search(_EIGEN_TYPE, arguments)
        work = (match.group(1) or match.group(2) for match in re.finditer(_EIGEN_WORK, arguments))
        first = next((word for word in work if word not in _EIGEN_WRAPPERS), "")
        inside = ", ".join(part for part in (kind.group(1) if kind else "", first) if part)
        return f"EigenMetaKernel<{inside}>" if inside else base
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
