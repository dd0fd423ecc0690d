"""What an allocator held at its peak: the allocations of the capture that no deallocation has undone by then."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from tfperf.arrays import MOST, Int64s
from tfperf.sections.memory.data_types import type_name
from tfperf.sections.memory.events import AllocatorEvents, EventTexts, Float64s

Kind = Literal["tensor", "before the capture", "reserved"]
_SCOPE_PARTS = 3
_NUMBER = re.compile(r"_\d+(?=/|$)")
_Key = TypeVar("_Key", bound=tuple[str, ...])


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

    @property
    def rounding_bytes(self) -> int:
        """Return what the tensors got beyond what was asked for, as far as that is known."""
        spare = np.where(self.requested_bytes >= 0, self.each_bytes - self.requested_bytes, 0)
        return total_of(np.maximum(spare, 0) * self.count.astype(np.float64))

    def columns(self, peak_bytes: int) -> dict[str, list[object]]:
        """Return one row per group, None where there is nothing to say; percentages are of the peak."""
        texts = {
            "kind": self.kind,
            "op": self.op,
            "scope": self.scope,
            "shape": self.shape,
            "data_type": self.data_type,
            "region": self.region,
        }
        sizes = {
            "count": self.count.tolist(),
            "each_bytes": self.each_bytes.tolist(),
            "requested_bytes": [size if size >= 0 else None for size in self.requested_bytes.tolist()],
        }
        share = (self.total_bytes * (100.0 / peak_bytes)).tolist() if peak_bytes else [None] * len(self)
        return {
            **{key: [text or None for text in values] for key, values in texts.items()},
            **{key: _of_tensors(values, self.kind) for key, values in sizes.items()},
            "total_bytes": self.total_bytes.tolist(),
            "peak_percent": share,
        }


def _of_tensors(values: Sequence[int | None], kinds: Sequence[str]) -> list[object]:
    """Return the values of tensors, None of what is not a tensor."""
    return [value if kind == "tensor" else None for value, kind in zip(values, kinds, strict=True)]


def total_of(values: npt.NDArray[np.int64] | Float64s) -> int:
    """Return the sum; in float64, which is exact up to 8 PiB and does not wrap around in a hostile file."""
    return int(values.sum(dtype=np.float64))


def tensors_at(events: AllocatorEvents, peak: int, texts: EventTexts) -> Alive:
    """Return what was allocated up to the peak (a row of the events) and not freed until then, grouped.

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
    rows = alive.rows(first[largest])
    tensor: tuple[Kind, ...] = ("tensor",)
    return Alive(
        kind=tensor * len(first),
        op=_texts_at(rows.op, texts.op),
        shape=_texts_at(rows.shape, texts.shape),
        data_type=_type_names(rows.data_type.tolist()),
        region=_texts_at(rows.region, texts.region),
        count=count[largest],
        each_bytes=rows.size,
        requested_bytes=rows.requested,
        total_bytes=total[largest],
    )


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


def _texts_at(index: Int64s, texts: tuple[str, ...]) -> tuple[str, ...]:
    # The index -1 takes what stands last: an empty text.
    return tuple(np.array([*texts, ""], object)[index].tolist())


def _type_names(numbers: list[int]) -> tuple[str, ...]:
    names = {number: type_name(number) for number in set(numbers)}
    return tuple(names[number] for number in numbers)


def with_unknown(tensors: Alive, before_bytes: int, reserved_bytes: int) -> Alive:
    """Add what no allocation of the capture explains, and what is reserved, where they belong by size."""
    alive = tensors
    extra: tuple[tuple[Kind, int], ...] = (("before the capture", before_bytes), ("reserved", reserved_bytes))
    for kind, size in extra:
        alive = _with_row(alive, kind, size) if size > 0 else alive
    return alive


def _with_row(alive: Alive, kind: Kind, size: int) -> Alive:
    row = int(np.searchsorted(-alive.total_bytes, -size))
    op, shape, data_type, region = (
        (*texts[:row], "", *texts[row:]) for texts in (alive.op, alive.shape, alive.data_type, alive.region)
    )
    return Alive(
        kind=(*alive.kind[:row], kind, *alive.kind[row:]),
        op=op,
        shape=shape,
        data_type=data_type,
        region=region,
        count=np.insert(alive.count, row, 1),
        each_bytes=np.insert(alive.each_bytes, row, size),
        requested_bytes=np.insert(alive.requested_bytes, row, -1),
        total_bytes=np.insert(alive.total_bytes, row, size),
    )


# --- sums ---


def by_op(alive: Alive, peak_bytes: int) -> dict[str, list[object]]:
    """Add up tensors of one shape and type whose ops differ only in numbers at the end of a part, as layers do."""
    patterns = {op: _NUMBER.sub("_*", op) for op in set(alive.op)}
    groups: defaultdict[tuple[str, str, str, str], list[int]] = defaultdict(list)
    rows = zip(alive.kind, alive.op, alive.shape, alive.data_type, strict=True)
    for row, (kind, op, shape, data_type) in enumerate(rows):
        groups[kind, patterns[op], shape, data_type].append(row)
    names = {key: _common_name([alive.op[row] for row in members]) for key, members in groups.items()}
    sums = _sums(alive, {(key[0], names[key], *key[2:]): members for key, members in groups.items()})
    kinds, ops, shapes, types = zip(*sums, strict=True) if sums else ((), (), (), ())
    texts = {"op": ops, "shape": shapes, "data_type": types}
    return {
        "kind": [*kinds],
        **{key: [text or None for text in values] for key, values in texts.items()},
        **_sum_columns(peak_bytes, kinds, list(sums.values())),
    }


def _common_name(ops: list[str]) -> str:
    """Return the name of ops that differ in numbers only, those that differ as `*`."""
    parts = zip(*(op.split("/") for op in set(ops)), strict=True)
    return "/".join(part[0] if len(set(part)) == 1 else _NUMBER.sub("_*", part[0]) for part in parts)


def by_scope(alive: Alive, peak_bytes: int) -> dict[str, list[object]]:
    """Add up tensors by the first parts of their scope."""
    groups: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for row, (kind, scope) in enumerate(zip(alive.kind, alive.scope, strict=True)):
        groups[kind, "/".join(scope.split("/", _SCOPE_PARTS)[:_SCOPE_PARTS])].append(row)
    sums = _sums(alive, groups)
    kinds, scopes = zip(*sums, strict=True) if sums else ((), ())
    return {
        "kind": [*kinds],
        "scope": [text or None for text in scopes],
        **_sum_columns(peak_bytes, kinds, list(sums.values())),
    }


def _sums(alive: Alive, groups: Mapping[_Key, list[int]]) -> dict[_Key, tuple[int, int]]:
    """Return count and bytes of each group of rows, the largest first."""
    counts, totals = alive.count.tolist(), alive.total_bytes.tolist()
    sums = {key: (sum(counts[row] for row in rows), sum(totals[row] for row in rows)) for key, rows in groups.items()}
    return dict(sorted(sums.items(), key=lambda item: (-item[1][1], item[0])))


def _sum_columns(peak_bytes: int, kinds: Sequence[str], sums: list[tuple[int, int]]) -> dict[str, list[object]]:
    return {
        "count": _of_tensors([count for count, _ in sums], kinds),
        "total_bytes": [total for _, total in sums],
        "peak_percent": [100.0 * total / peak_bytes if peak_bytes else None for _, total in sums],
    }
