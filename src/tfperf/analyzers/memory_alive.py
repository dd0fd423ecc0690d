"""What an allocator held at its peak: the allocations of the capture that no deallocation has undone by then."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt

from tfperf.analyzers.memory_rows import AllocatorEvents, EventTexts, Float64s
from tfperf.arrays import MOST, Int64s

Kind = Literal["tensor", "before the capture", "reserved"]

_TYPES = (
    "", "float32", "float64", "int32", "uint8", "int16", "int8", "string", "complex64", "int64", "bool", "qint8",
    "quint8", "qint32", "bfloat16", "qint16", "quint16", "uint16", "complex128", "float16", "resource", "variant",
    "uint32", "uint64", "float8_e5m2", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e4m3b11fnuz", "float8_e5m2fnuz",
    "int4", "uint4", "int2", "uint2", "float4_e2m1fn",
)  # fmt: skip
"""By number of TensorFlow's DataType; a reference to a type has 100 more."""
_REFERENCE = 100
_SCOPE_PARTS = 3
_NUMBER = re.compile(r"_\d+(?=/|$)")
_Key = TypeVar("_Key", bound=tuple[str, ...])


@dataclass(frozen=True)
class Alive:
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

    @property
    def rounding_bytes(self) -> int:
        """Return what the tensors got beyond what was asked for, as far as that is known."""
        asked = self.requested_bytes >= 0
        spare = np.where(asked, self.each_bytes - self.requested_bytes, 0)
        return total_of(np.maximum(spare, 0) * self.count.astype(np.float64))

    def columns(self, peak_bytes: int) -> dict[str, list[object]]:
        """Return one row per group, None where there is nothing to say; percentages are of the peak."""
        is_tensor = [kind == "tensor" for kind in self.kind]
        texts = {
            "kind": self.kind, "op": self.op, "scope": self.scope, "shape": self.shape, "data_type": self.data_type,
            "region": self.region,
        }  # fmt: skip
        sizes = {
            "count": self.count.tolist(), "each_bytes": self.each_bytes.tolist(),
            "requested_bytes": [size if size >= 0 else None for size in self.requested_bytes.tolist()],
        }  # fmt: skip
        share = (self.total_bytes * (100.0 / peak_bytes)).tolist() if peak_bytes else [None] * len(self)
        return {
            **{key: [text or None for text in values] for key, values in texts.items()},
            **{
                key: [value if known else None for value, known in zip(values, is_tensor, strict=True)]
                for key, values in sizes.items()
            },
            "total_bytes": self.total_bytes.tolist(),
            "peak_percent": share,
        }


def total_of(values: npt.NDArray[np.int64] | Float64s) -> int:
    """Return the sum; in float64, which is exact up to 8 PiB and does not wrap around in a hostile file."""
    return int(values.sum(dtype=np.float64))


def tensors_at(events: AllocatorEvents, peak: int, texts: EventTexts) -> Alive:
    """Return what was allocated up to the peak and not freed until then, grouped; -1 is the text ''.

    An address is alive if the last that happened to it was an allocation, so addresses may be used again.
    """
    address = events.address[: peak + 1]
    order = np.argsort(address, kind="stable")
    is_last = np.append(address[order[1:]] != address[order[:-1]], True)
    last = order[is_last]
    alive = events.rows(last[events.allocates[last] & (address[last] != 0) & (events.size[last] >= 0)])
    first, count = _groups(alive)
    total = np.minimum(count * alive.size[first].astype(np.float64), MOST).astype(np.int64)
    largest = np.argsort(-total, kind="stable")
    first, count, total = first[largest], count[largest], total[largest]
    own = alive.rows(first)
    tensor: tuple[Kind, ...] = ("tensor",)
    return Alive(
        tensor * len(first), _named(own.op, texts.op), _named(own.shape, texts.shape),
        _type_names(own.data_type.tolist()), _named(own.region, texts.region),
        count, own.size, own.requested, total,
    )  # fmt: skip


def _groups(alive: AllocatorEvents) -> tuple[Int64s, Int64s]:
    """Return the first of each group of equal allocations, and how many there are of each."""
    described = (alive.shape << 32) | (alive.op & 0xFFFFFFFF)
    typed = (alive.region << 32) | (alive.data_type & 0xFFFFFFFF)
    keys = (described, typed, alive.size, alive.requested)
    order = np.lexsort(keys)
    differs = np.zeros(len(order), np.bool_)
    differs[:1] = True
    for key in keys:
        differs[1:] |= key[order[1:]] != key[order[:-1]]
    starts = np.flatnonzero(differs)
    return order[starts], np.diff(np.append(starts, len(order)))


def _named(index: Int64s, texts: tuple[str, ...]) -> tuple[str, ...]:
    # The index -1 takes what stands last.
    return tuple(np.array([*texts, ""], object)[index].tolist())


def _type_names(numbers: list[int]) -> tuple[str, ...]:
    names = {number: type_name(number) for number in set(numbers)}
    return tuple(names[number] for number in numbers)


def type_name(number: int) -> str:
    """Return the name of a TensorFlow data type; an empty text for none."""
    base = number - _REFERENCE if number > _REFERENCE else number
    return _TYPES[base] if 0 <= base < len(_TYPES) else f"type {number}"


def with_unknown(known: Alive, before: int, stack: int) -> Alive:
    """Add what no allocation of the capture explains, and what is reserved, where they belong by size."""
    extra: tuple[tuple[Kind, int], ...] = (("before the capture", before), ("reserved", stack))
    for kind, size in extra:
        known = _with_row(known, kind, size) if size > 0 else known
    return known


def _with_row(known: Alive, kind: Kind, size: int) -> Alive:
    at = int(np.searchsorted(-known.total_bytes, -size))
    op, shape, data_type, region = (
        (*texts[:at], "", *texts[at:]) for texts in (known.op, known.shape, known.data_type, known.region)
    )
    count, each, requested, total = (
        np.insert(column, at, value)
        for column, value in (
            (known.count, 1), (known.each_bytes, size), (known.requested_bytes, -1), (known.total_bytes, size),
        )
    )  # fmt: skip
    return Alive(
        (*known.kind[:at], kind, *known.kind[at:]), op, shape, data_type, region, count, each, requested, total
    )


# --- sums ---


def by_op(alive: Alive, peak_bytes: int) -> dict[str, list[object]]:
    """Add up tensors of one shape and type whose ops differ only in numbers at the end of a part, as layers do."""
    patterns = {op: _NUMBER.sub("_*", op) for op in set(alive.op)}
    found: defaultdict[tuple[str, str, str, str], list[int]] = defaultdict(list)
    for row, (kind, op, shape, data_type) in enumerate(
        zip(alive.kind, alive.op, alive.shape, alive.data_type, strict=True)
    ):
        found[kind, patterns[op], shape, data_type].append(row)
    names = {key: _one_name([alive.op[row] for row in rows]) for key, rows in found.items()}
    sums = _sums(alive, {(*key[:1], names[key], *key[2:]): rows for key, rows in found.items()})
    kinds, ops, shapes, types = zip(*sums, strict=True) if sums else ((), (), (), ())
    texts = {"op": ops, "shape": shapes, "data_type": types}
    named = {key: [text or None for text in values] for key, values in texts.items()}
    return {"kind": [*kinds], **named, **_sum_columns(peak_bytes, kinds, list(sums.values()))}


def _one_name(ops: list[str]) -> str:
    """Return the name of ops that differ in numbers only, those that differ as `*`."""
    parts = zip(*(op.split("/") for op in set(ops)), strict=True)
    return "/".join(own[0] if len(set(own)) == 1 else _NUMBER.sub("_*", own[0]) for own in parts)


def by_scope(alive: Alive, peak_bytes: int) -> dict[str, list[object]]:
    """Add up tensors by the first parts of their scope."""
    found: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for row, (kind, scope) in enumerate(zip(alive.kind, alive.scope, strict=True)):
        found[kind, "/".join(scope.split("/", _SCOPE_PARTS)[:_SCOPE_PARTS])].append(row)
    sums = _sums(alive, found)
    kinds, scopes = zip(*sums, strict=True) if sums else ((), ())
    return {
        "kind": [*kinds], "scope": [text or None for text in scopes],
        **_sum_columns(peak_bytes, kinds, list(sums.values())),
    }  # fmt: skip


def _sums(alive: Alive, rows: Mapping[_Key, list[int]]) -> dict[_Key, tuple[int, int]]:
    """Return count and bytes of each group of rows, the largest first."""
    counts, totals = alive.count.tolist(), alive.total_bytes.tolist()
    sums = {key: (sum(counts[at] for at in group), sum(totals[at] for at in group)) for key, group in rows.items()}
    return dict(sorted(sums.items(), key=lambda item: (-item[1][1], item[0])))


def _sum_columns(peak_bytes: int, kinds: Sequence[str], sums: list[tuple[int, int]]) -> dict[str, list[object]]:
    return {
        "count": [count if kind == "tensor" else None for kind, (count, _) in zip(kinds, sums, strict=True)],
        "total_bytes": [total for _, total in sums],
        "peak_percent": [100.0 * total / peak_bytes if peak_bytes else None for _, total in sums],
    }
