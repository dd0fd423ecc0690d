"""Stats: picks the wanted ones out of millions of serialized XStats by looking at a few bytes of each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from tfperf.arrays import NO_NUMBERS, Bools, Int32s, Int64s, Uint8s, distinct
from tfperf.wire import decoder
from tfperf.wire.trace_file import TraceFile

_TABLE_SIZE = 1 << 14


@dataclass(frozen=True, slots=True)
class Stat:
    """One stat: the rows that carry it (ascending) and its values; for a text, indices into `texts`."""

    event: Int32s
    value: Int64s
    texts: tuple[str, ...] = ()

    def text(self, position: int) -> str:
        """Return the text of the stat at this position of `event`."""
        return self.texts[int(self.value[position])]


NO_STAT = Stat(np.empty(0, np.int32), NO_NUMBERS)


@dataclass(frozen=True, slots=True)
class StatRows:
    """Every stat of every event, one row per stat, ordered by event.

    `event` is the row of the event, `key` an index into `keys`. What `value` is depends on `kind` (a `StatKind`): a
    number, the bits of a uint64 or of a float64, an index into `texts`, or how many bytes there are.
    """

    event: Int32s
    key: Int32s
    kind: Uint8s
    value: Int64s
    keys: tuple[str, ...]
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StatColumn:
    """One stat of a batch: which events carry it (ascending indices), and its values.

    `value` is int64: a number (a uint64 keeps its bits, a real number those of a float64), or for a text an index into
    `texts`.
    """

    event: Int32s
    value: Int64s
    texts: list[str] | None


Barred = Sequence[tuple[frozenset[str], Bools]]
"""Stats, and for each list whether to skip them."""


@dataclass(frozen=True, slots=True)
class WantedStats:
    """The stats to decode: by name, as whole numbers, texts or real numbers. All others are skipped unread.

    `only_on` narrows stats to events whose name matches: a stat that nearly every event carries is costly. `every`
    decodes all stats besides, as one table.
    """

    numbers: frozenset[str]
    texts: frozenset[str]
    only_on: Mapping[re.Pattern[str], frozenset[str]] = field(default_factory=dict)
    reals: frozenset[str] = frozenset()
    every: bool = False

    @property
    def names(self) -> frozenset[str]:
        """Return the names of all stats that are decoded one by one."""
        return self.numbers | self.texts | self.reals


class StatKind(IntEnum):
    """How a stat is stored, and so what its value means."""

    INT = 0
    UNSIGNED = 1
    REAL = 2
    TEXT = 3
    BYTES = 4


@dataclass(frozen=True, slots=True)
class EveryStat:
    """All stats of a batch, one row each: the index of the event, the metadata id of the stat, and its value.

    `value` is int64: a number, the bits of a uint64 or of a float64, an index into `texts`, or a length in bytes.
    """

    event: Int32s
    key: Int64s
    kind: Uint8s
    value: Int64s
    texts: list[str]


def wanted_stats(
    source: TraceFile,
    lists: Any,
    names: dict[int, str],
    wanted: WantedStats,
    *,
    position: int,
    barred: Barred = (),
) -> dict[str, StatColumn]:
    """Pick the wanted stats out of list<bytes of XStat>; `barred` tells, for narrowed stats, which lists to skip.

    `names` maps the metadata ids of the plane to stat names; `position` is where in the file the lists come from.
    """
    flat = decoder.items(lists)
    ids = _listed(names, wanted)
    if not ids or not len(flat):
        return {}
    chosen, owner = _choose(lists, flat, ids, barred)
    if not len(chosen):
        return {}
    return _columns(_decode(source, decoder.take(flat, chosen), owner, position), names, wanted, barred)


def all_stats(
    source: TraceFile, lists: Any, names: dict[int, str], wanted: WantedStats, *, position: int, barred: Barred = ()
) -> tuple[dict[str, StatColumn], EveryStat]:
    """Return the wanted stats as `wanted_stats` does, and every stat; references become the texts they stand for."""
    flat = decoder.items(lists)
    owner = np.repeat(np.arange(len(lists), dtype=np.int32), np.diff(decoder.offsets(lists)))
    rows = _decode(source, flat, owner, position)
    known, which = np.unique(rows.key, return_inverse=True)
    listed = np.isin(known, list(_listed(names, wanted)))
    columns = _columns(rows.only(np.flatnonzero(listed[which.reshape(-1)])), names, wanted, barred)
    return columns, _every(rows, _kinds(flat), names)


def _listed(names: dict[int, str], wanted: WantedStats) -> dict[int, str]:
    listed = wanted.names
    return {key: name for key, name in names.items() if name in listed}


@dataclass(frozen=True, slots=True)
class _Rows:
    """Decoded stats: the list that each is in, its metadata id, and what its arms hold (0 where they hold nothing)."""

    owner: Int32s
    key: Int64s
    number: Int64s
    real: npt.NDArray[np.float64]
    refs: Int64s
    strings: Any
    sizes: Int32s
    """Lengths of values that are bytes."""

    def only(self, rows: npt.NDArray[np.intp]) -> _Rows:
        """Return these rows alone."""
        return _Rows(
            self.owner[rows], self.key[rows], self.number[rows], self.real[rows], self.refs[rows],
            decoder.take(self.strings, rows), self.sizes[rows],
        )  # fmt: skip


def _decode(source: TraceFile, flat: Any, owner: Int32s, position: int) -> _Rows:
    rows = decoder.decode_all(source, "Stat", flat, position)
    signed, unsigned = (decoder.numbers(rows.column(arm)) for arm in ("int64_value", "uint64_value"))
    return _Rows(
        owner, decoder.numbers(rows.column("metadata_id")), signed | unsigned.view(np.int64),
        decoder.numbers(rows.column("double_value")), decoder.numbers(rows.column("ref_value")).view(np.int64),
        rows.column("str_value"), np.diff(decoder.offsets(rows.column("bytes_value"))),
    )  # fmt: skip


def _choose(lists: Any, flat: Any, ids: dict[int, str], barred: Barred) -> tuple[npt.NDArray[np.intp], Int32s]:
    """Return which items of `flat` may be wanted, and the index of the list that each is in."""
    key, known = _stat_ids(flat)
    table = np.zeros(_TABLE_SIZE, np.bool_)
    small = {stat_id: name for stat_id, name in ids.items() if 0 <= stat_id < _TABLE_SIZE}
    table[list(small)] = True
    chosen = np.flatnonzero(table[key] | ~known)
    owner = _owners(lists, chosen)
    keep = np.ones(len(chosen), np.bool_)
    for stats, skipped in barred:
        narrowed = np.zeros(_TABLE_SIZE, np.bool_)
        narrowed[[stat_id for stat_id, name in small.items() if name in stats]] = True
        mine = np.flatnonzero(narrowed[key[chosen]] & known[chosen])
        keep[mine] = ~skipped[owner[mine]]
    return chosen[keep], owner[keep]


def _owners(lists: Any, flat_indices: npt.NDArray[np.intp]) -> Int32s:
    """Return which list each flattened item came from."""
    ends = decoder.offsets(lists)
    found = np.searchsorted(ends, flat_indices + ends[0], side="right") - 1
    return np.asarray(found, np.int32)


def _stat_ids(flat: Any) -> tuple[npt.NDArray[np.int16], Bools]:
    """Read the metadata id of each serialized XStat; return ids below 2^14, and whether that succeeded.

    An XStat begins with tag 0x08 and the id as a varint; anything else must be decoded to be known.
    """
    ends, data = decoder.offsets(flat), decoder.bytes_of(flat)
    start, length, last = ends[:-1], np.diff(ends), len(data) - 1
    first, second = data[np.minimum(start, last)], data[np.minimum(start + 1, last)]
    plain = (first == 0x08) & (length > 2)
    known = plain & (second < 0x80)
    key = (second & 0x7F).astype(np.int16)
    longer = np.flatnonzero(plain & (second >= 0x80) & (length > 3))
    third = data[start[longer] + 2]
    key[longer] |= (third & 0x7F).astype(np.int16) << 7
    known[longer] = third < 0x80
    return key, known


def _columns(rows: _Rows, names: dict[int, str], wanted: WantedStats, barred: Barred) -> dict[str, StatColumn]:
    ids: dict[str, list[int]] = {}
    for stat_id in distinct(rows.key).tolist():
        ids.setdefault(names.get(stat_id, ""), []).append(stat_id)
    columns = {}
    for name, same in ids.items():
        which = np.flatnonzero(np.isin(rows.key, same))
        for stats, skipped in barred:
            if name in stats:
                which = which[~skipped[rows.owner[which]]]
        if name in wanted.numbers:
            columns[name] = StatColumn(rows.owner[which], rows.number[which], None)
        elif name in wanted.reals:
            number = rows.number[which]
            real = np.where(number != 0, number.astype(np.float64), rows.real[which])
            columns[name] = StatColumn(rows.owner[which], real.view(np.int64), None)
        elif name in wanted.texts:
            texts, value = _text_column(decoder.take(rows.strings, which), rows.refs[which], names)
            columns[name] = StatColumn(rows.owner[which], value, texts)
    return columns


def _text_column(strings: Any, refs: Int64s, names: dict[int, str]) -> tuple[list[str], Int64s]:
    """Return distinct texts and the index of each value in them; a reference is the name of a stat metadata."""
    found, ref_index = np.unique(refs, return_inverse=True)
    texts = [names.get(ref, "") if ref else "" for ref in found.tolist()]
    value = ref_index.reshape(-1).astype(np.int64)
    ends = decoder.offsets(strings)
    if ends[-1] > ends[0]:
        encoded = strings.dictionary_encode()
        own = decoder.numbers(encoded.indices).astype(np.int64) + len(texts)
        value = np.where(refs != 0, value, own)
        texts += decoder.texts(encoded.dictionary)
    return texts, value


def _every(rows: _Rows, kind: Uint8s, names: dict[int, str]) -> EveryStat:
    value = np.where(kind == StatKind.REAL, rows.real.view(np.int64), rows.number)
    is_text, is_blob = np.flatnonzero(kind == StatKind.TEXT), kind == StatKind.BYTES
    texts, value[is_text] = _text_column(decoder.take(rows.strings, is_text), rows.refs[is_text], names)
    value[is_blob] = rows.sizes[is_blob]
    return EveryStat(rows.owner, rows.key, kind, value, texts)


_KIND_OF_TAG = np.full(256, StatKind.INT, np.uint8)
"""The tag of a value, of its field number and wire type, tells which arm it is; INT where there is none."""
_KIND_OF_TAG[[0x11, 0x18, 0x2A, 0x32, 0x38]] = (
    StatKind.REAL, StatKind.UNSIGNED, StatKind.TEXT, StatKind.BYTES, StatKind.TEXT,
)  # fmt: skip
_LONGEST_VARINT, _ID_TAG = 10, 0x08


def _kinds(flat: Any) -> Uint8s:
    """Return the kind of each stat by the tag of its value, since a value of zero does not tell its arm.

    The value stands behind the id of the stat, or first where the id is 0 and therefore left out.
    """
    ends, data = decoder.offsets(flat), decoder.bytes_of(flat)
    start, last = ends[:-1].astype(np.int64), len(data) - 1
    has_id = data[np.minimum(start, last)] == _ID_TAG
    place, more = start + 1, has_id
    for _ in range(_LONGEST_VARINT):
        more = more & (data[np.minimum(place, last)] >= 0x80)
        if not more.any():
            break
        place = place + more
    place = np.where(has_id, place + 1, start)
    return np.where(place < ends[1:], _KIND_OF_TAG[data[np.minimum(place, last)]], StatKind.INT).astype(np.uint8)
