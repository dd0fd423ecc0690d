"""What an allocator held at its peak: the allocations of the capture that no deallocation has undone by then."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import asdict

from tfperf.base.arrays import MOST, Float64s, Int64s, group_equal
from tfperf.base.units import percent
from tfperf.sections.memory.events import AllocatorEvents, EventTexts
from tfperf.trace.name_patterns import star, starred

Kind = Literal["tensor", "before the capture", "before the capture or of unknown size", "reserved", "other tensors"]
_SCOPE_PARTS = 3
_NUMBER = re.compile(r"_\d+(?=/|$)")
_NAMES_BY_NUMBER = (
    "float32 float64 int32 uint8 int16 int8 string complex64 int64 bool qint8 quint8 qint32 bfloat16 qint16 quint16 "
    "uint16 complex128 float16 resource variant uint32 uint64 float8_e5m2 float8_e4m3fn float8_e4m3fnuz "
    "float8_e4m3b11fnuz float8_e5m2fnuz int4 uint4 int2 uint2 float4_e2m1fn"
)
"""TensorFlow's data types (`DataType` of types.proto) from 1 on."""
_TYPE_NAMES = ("", *_NAMES_BY_NUMBER.split())
_REFERENCE = 100
"""A reference to a type has as many more."""


class Alive(Struct, frozen=True, kw_only=True):
    """What one allocator held at its peak: one row per op, shape, type, region and size, the largest sum first.

    `each_bytes` is the size of one, as allocated; `requested_bytes` what the op asked for (-1: unknown).
    """

    kind: tuple[Kind, ...]
    op: tuple[str, ...]
    shape: tuple[str, ...]
    data_type: tuple[str, ...]
    region: tuple[str, ...]
    count: Int64s
    each_bytes: Int64s
    requested_bytes: Int64s
    total_bytes: Int64s

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.op)

    @property
    def scope(self) -> tuple[str, ...]:
        """Return the name scope of each op: its name without the last part."""
        return tuple(op.rpartition("/")[0] for op in self.op)

    def columns(self, peak_bytes: int) -> dict[str, list[object]]:
        """Return one row per group, None where there is nothing to say; percentages are of the peak."""
        texts = ("kind", "op", "scope", "shape", "data_type", "region")
        is_tensor = np.array([kind == "tensor" for kind in self.kind], np.bool_)
        sizes = {key: np.where(is_tensor, getattr(self, key), -1) for key in ("count", "each_bytes", "requested_bytes")}
        share = (self.total_bytes * (100.0 / peak_bytes)).tolist() if peak_bytes else [None] * len(self)
        return {
            **{key: [text or None for text in getattr(self, key)] for key in texts},
            **{key: [size if size >= 0 else None for size in values.tolist()] for key, values in sizes.items()},
            "total_bytes": self.total_bytes.tolist(),
            "peak_percent": share,
        }


def total_of(values: npt.NDArray[np.int64] | Float64s) -> int:
    """Return the sum; in float64, which is exact up to 8 PiB and does not wrap around in a hostile file."""
    return int(values.sum(dtype=np.float64))


def tensors_at(events: AllocatorEvents, peak: int, texts: EventTexts) -> tuple[Alive, int]:
    """Return what was allocated up to the peak (a row of the events) and not freed until then, grouped.

    With it, how many more allocations are alive whose size is unknown. An address is alive if the last that happened to
    it was an allocation, so addresses may be used again.
    """
    address = events.address[: peak + 1]
    order = np.argsort(address, kind="stable")
    is_last = np.append(address[order[1:]] != address[order[:-1]], True)
    last = order[is_last]
    is_alive, is_sized = events.allocates[last] & (address[last] != 0), events.size[last] >= 0
    alive = events.rows(last[is_alive & is_sized])
    described = (alive.shape << 32) | (alive.op & 0xFFFFFFFF)
    typed = (alive.region << 32) | (alive.data_type & 0xFFFFFFFF)
    order, starts = group_equal((alive.requested, alive.size, typed, described))
    first, count = order[starts], np.diff(np.append(starts, len(order)))
    total = np.minimum(count * alive.size[first].astype(np.float64), MOST).astype(np.int64)
    largest = np.argsort(-total, kind="stable")
    rows = alive.rows(first[largest])
    tensor: tuple[Kind, ...] = ("tensor",)
    tensors = Alive(
        kind=tensor * len(first),
        op=_texts_at(rows.op, texts.op),
        shape=_texts_at(rows.shape, texts.shape),
        data_type=tuple(type_name(number) for number in rows.data_type.tolist()),
        region=_texts_at(rows.region, texts.region),
        count=count[largest],
        each_bytes=rows.size,
        requested_bytes=rows.requested,
        total_bytes=total[largest],
    )
    return tensors, int((is_alive & ~is_sized).sum())


def _texts_at(index: Int64s, texts: tuple[str, ...]) -> tuple[str, ...]:
    # The index -1 takes what stands last: an empty text.
    return tuple(np.array([*texts, ""], object)[index].tolist())


def with_unknown(tensors: Alive, rest_bytes: int, reserved_bytes: int, *, are_all_sized: bool) -> Alive:
    """Add what no tensor of known size explains, and what is reserved, where they belong by size.

    The rest was there before the capture; if allocations of unknown size are alive, it holds them too.
    """
    alive = tensors
    rest: Kind = "before the capture" if are_all_sized else "before the capture or of unknown size"
    extra: tuple[tuple[Kind, int], ...] = ((rest, rest_bytes), ("reserved", reserved_bytes))
    for kind, size in extra:
        if size > 0:
            alive = _with_row(alive, kind, size, requested_bytes=-1)
    return alive


def shorten(alive: Alive, most: int) -> Alive:
    """Return the first rows, and one for all other tensors, as large as they are together."""
    is_kept = np.array([row < most or kind != "tensor" for row, kind in enumerate(alive.kind)], np.bool_)
    if is_kept.all():
        return alive
    rest, rows = ~is_kept, np.flatnonzero(is_kept).tolist()
    requested = alive.requested_bytes[rest]
    is_known = bool((requested >= 0).all())
    requested_bytes = total_of(requested * alive.count[rest].astype(np.float64)) if is_known else -1
    kept: dict[str, Any] = {
        key: tuple(values[row] for row in rows) if isinstance(values, tuple) else values[is_kept]
        for key, values in asdict(alive).items()
    }
    return _with_row(Alive(**kept), "other tensors", total_of(alive.total_bytes[rest]), requested_bytes=requested_bytes)


def _with_row(alive: Alive, kind: Kind, size: int, *, requested_bytes: int) -> Alive:
    """Add a row for what is no single tensor where it belongs by its size."""
    row = int(np.searchsorted(-alive.total_bytes, -size))
    added = {"kind": kind, "count": 1, "each_bytes": size, "requested_bytes": requested_bytes, "total_bytes": size}
    columns: dict[str, Any] = {}
    for key, values in asdict(alive).items():
        value = added.get(key, "")
        is_text = isinstance(values, tuple)
        columns[key] = (*values[:row], value, *values[row:]) if is_text else np.insert(values, row, value)
    return Alive(**columns)


def type_name(number: int) -> str:
    """Return the name of a TensorFlow data type; an empty text for none."""
    plain = number - _REFERENCE if number > _REFERENCE else number
    return _TYPE_NAMES[plain] if 0 <= plain < len(_TYPE_NAMES) else f"type {number}"


def by_op(alive: Alive, peak_bytes: int) -> dict[str, list[object]]:
    """Add up tensors of one shape and type whose ops differ only in numbers at the end of a part, as layers do."""
    rows = op_keys(alive)
    ops: defaultdict[tuple[str, ...], set[str]] = defaultdict(set)
    for row, op in zip(rows, alive.op, strict=True):
        ops[row].add(op)
    names = {key: starred(members, _NUMBER) for key, members in ops.items()}
    keys = [(row[0], names[row], *row[2:]) for row in rows]
    return _sums(alive, peak_bytes, ("kind", "op", "shape", "data_type"), keys)


def op_keys(alive: Alive) -> list[tuple[str, ...]]:
    """Return of each row what those that `by_op` adds up have in common."""
    return list(zip(alive.kind, map(_pattern, alive.op), alive.shape, alive.data_type, strict=True))


@lru_cache(maxsize=100_000)
def _pattern(op: str) -> str:
    """Return an op with stars for numbers; hosts of a run have the same ops."""
    return _NUMBER.sub(star, op)


def by_scope(alive: Alive, peak_bytes: int) -> dict[str, list[object]]:
    """Add up tensors by the first parts of their scope."""
    return _sums(alive, peak_bytes, ("kind", "scope"), scope_keys(alive))


def scope_keys(alive: Alive) -> list[tuple[str, ...]]:
    """Return of each row what those that `by_scope` adds up have in common."""
    scopes = ("/".join(scope.split("/", _SCOPE_PARTS)[:_SCOPE_PARTS]) for scope in alive.scope)
    return list(zip(alive.kind, scopes, strict=True))


def _sums(
    alive: Alive, peak_bytes: int, names: tuple[str, ...], keys: Sequence[tuple[str, ...]]
) -> dict[str, list[object]]:
    """Add up rows of equal keys (whose parts are columns of these names), the largest sum first."""
    counts, totals = Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()
    for key, count, total in zip(keys, alive.count.tolist(), alive.total_bytes.tolist(), strict=True):
        counts[key] += count
        totals[key] += total
    ordered = sorted(totals, key=lambda key: (-totals[key], key))
    return {
        **{name: [key[at] or None for key in ordered] for at, name in enumerate(names)},
        "count": [counts[key] if key[0] == "tensor" else None for key in ordered],
        "total_bytes": [totals[key] for key in ordered],
        "peak_percent": [percent(totals[key], peak_bytes) for key in ordered],
    }
