"""What the profiler writes about a kernel or a copy in one text, the occupancy that follows from it, and short names.

`kernel_details` of today is `regs:32 static_shared:1024 dynamic_shared:0 grid:8,1,1 block:256,1,1 occ_pct:50`; files of
2020 to 2022 have one `shm:` for both kinds of shared memory; on AMD it is `group_mem:`, and there are no registers.
Copies have `memcpy_details` in three spellings. Everything here works on distinct texts, never on events.
"""

from __future__ import annotations

import re
from functools import lru_cache
from math import prod
from typing import NamedTuple

from msgspec import Struct

from tfperf.base.arrays import MOST

Dim = tuple[int, int, int]


class KernelDetails(NamedTuple):
    """How a kernel was launched; None where the text does not say.

    `shared_bytes` is static and dynamic shared memory of a block together, and may be all that is known of the two.
    """

    grid: Dim | None = None
    block: Dim | None = None
    registers: int | None = None
    static_shared_bytes: int | None = None
    dynamic_shared_bytes: int | None = None
    shared_bytes: int | None = None
    occupancy_percent: float | None = None


class CopyDetails(NamedTuple):
    """What is known of a copy; `source` and `destination` are kinds of memory (`pageable`, `pinned`, `device`)."""

    size_bytes: int | None = None
    source: str = ""
    destination: str = ""
    is_async: bool | None = None


NO_DETAILS = KernelDetails()
NO_COPY = CopyDetails()
_MEMORY = {"pageable": "pageable", "pinned": "pinned", "device": "device", "array": "device"}


def parse_kernel(text: str) -> KernelDetails:
    """Read `kernel_details` in any of its spellings."""
    fields = _fields(text)
    static, dynamic = _number(fields.get("static_shared")), _number(fields.get("dynamic_shared"))
    shared = static + dynamic if static is not None and dynamic is not None else None
    if shared is None:
        shared = _number(fields.get("shm", fields.get("group_mem")))
    percent = fields.get("occ_pct", "")  # 0 where writers could not work it out
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
    """Read `memcpy_details` or `memset_details`.

    A size of 0 means unknown: a copy that takes time moves something, and some writers put 0 where they know nothing.
    """
    fields = _fields(text)
    is_async = {"0": False, "1": True}.get(fields.get("async", ""))
    size = _number(fields.get("size", fields.get("num_bytes")))
    source, destination = (_MEMORY.get(fields.get(key, "").lower(), "") for key in ("kind_src", "kind_dst"))
    return CopyDetails(size or None, source, destination, is_async)


def _fields(text: str) -> dict[str, str]:
    """Return the `key:value` tokens; a token with no colon or several tells nothing."""
    tokens = (token.partition(":") for token in text.split())
    return {key: value for key, _, value in tokens if value and ":" not in value}


def _number(text: str | None) -> int | None:
    """Return a whole number that can be true, else None."""
    if text is None or not text.isascii() or not text.isdigit() or len(text) > len(str(MOST)):
        return None
    return int(text) if int(text) < MOST else None


def _dim(text: str | None) -> Dim | None:
    sizes = [size for size in map(_number, (text or "").split(",")) if size]
    return (sizes[0], sizes[1], sizes[2]) if len(sizes) == 3 and text and text.count(",") == 2 else None


# --- occupancy ---


class _Limits(Struct, frozen=True):
    """What one multiprocessor can hold (CUDA programming guide, technical specifications per compute capability)."""

    warps: int
    blocks: int
    shared_bytes: int
    reserved_bytes: int
    """Shared memory that the system keeps of each block."""
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
    """Return the theoretical occupancy in percent: resident warps / the most that a multiprocessor holds.

    As CUDA's occupancy calculator has it: blocks are limited by their number, by warps, by registers (handed out to a
    warp in units, from the quarter of the multiprocessor that runs it) and by shared memory. None for a device whose
    limits are not in the table, for a block that it cannot run, and where the details do not say enough.
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
