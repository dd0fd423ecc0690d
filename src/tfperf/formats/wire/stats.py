"""Stats: picks the wanted ones out of millions of serialized XStats by looking at a few bytes of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from tfperf.base.arrays import Bools, Float64s, Int32s, Int64s, Uint8s, distinct, distinct_index
from tfperf.formats.wire import decoder
from tfperf.formats.wire.event_columns import Stat, StatKind, StatRows, StatType, merge_stats
from tfperf.formats.wire.trace_file import TraceFile

_TABLE_SIZE = 1 << 14
_STORED: Mapping[StatType, tuple[StatKind, ...]] = {
    "number": (StatKind.INT, StatKind.UNSIGNED),
    "real": (StatKind.REAL,),
    "text": (StatKind.TEXT,),
}


class WantedStats(Struct, frozen=True):
    """The stats to decode by name, and what they are; all others are skipped unread.

    The type of a "guess" is the one that the file stores. `only_on` narrows a stat to events of some names: it tells of
    a list of names which they are. A stat that nearly every event carries is costly. `every` decodes all stats besides,
    as one table.
    """

    types: Mapping[str, StatType | Literal["guess"]]
    only_on: Mapping[str, Callable[[Sequence[str]], Bools]] = MappingProxyType({})
    every: bool = False


class Narrowed(Struct, frozen=True):
    """Stats that are read only on events of some names: `allowed` tells for each name, `name` is that of each event."""

    stats: frozenset[str]
    allowed: Bools
    name: Int32s

    def allows(self, owner: Int32s) -> Bools:
        """Tell for each of these events whether the stats are read on it."""
        return np.asarray(self.allowed[self.name[owner]], np.bool_)


class SerializedStats(Struct, frozen=True, dict=True):
    """Serialized XStats, a list for each event; `position` is where in the file they come from."""

    file: TraceFile
    lists: Any
    position: int

    @cached_property
    def flat(self) -> Any:
        """Return the stats of all events, one after the other."""
        return decoder.items(self.lists)

    @cached_property
    def owners(self) -> Int32s:
        """Return the index of the list that each stat is in."""
        return np.repeat(np.arange(len(self.lists), dtype=np.int32), np.diff(decoder.offsets(self.lists)))

    @cached_property
    def ids(self) -> npt.NDArray[np.int16]:
        """Return the metadata id of each stat where it is below 2^14, else -1."""
        return _stat_ids(self.flat)

    def named(self, names: Mapping[int, str]) -> tuple[frozenset[str], int]:
        """Return which of `names` the stats carry, and how many stats have an id below 2^14 that has no name.

        Where some ids cannot be read, all names count as carried.
        """
        if not len(self.flat):
            return frozenset(), 0
        present = np.zeros(_TABLE_SIZE + 1, np.bool_)
        present[self.ids] = True
        carried = {key: names.get(key, "") for key in np.flatnonzero(present[:-1]).tolist()}
        nameless = [key for key, name in carried.items() if not name]
        count = int(np.count_nonzero(np.isin(self.ids, nameless))) if nameless else 0
        return frozenset(filter(None, names.values() if present[-1] else carried.values())), count


def wanted_stats(
    serialized: SerializedStats, names: Mapping[int, str], wanted: WantedStats, narrowed: Sequence[Narrowed] = ()
) -> dict[str, Stat]:
    """Pick the wanted stats; `names` maps the metadata ids of the plane to stat names."""
    ids = {key: name for key, name in names.items() if name in wanted.types}
    if not ids or not len(serialized.flat):
        return {}
    chosen, owner = _choose(serialized, ids, narrowed)
    if not len(chosen):
        return {}
    flat = decoder.take(serialized.flat, chosen)
    # Which stat it is was known before, but for the ids that had to be decoded.
    has_unknown = bool((serialized.ids[chosen] < 0).any())
    return _columns(_decoded(serialized, flat, owner), flat, names, wanted, narrowed if has_unknown else ())


def all_stats(
    serialized: SerializedStats, names: Mapping[int, str], wanted: WantedStats, narrowed: Sequence[Narrowed] = ()
) -> tuple[dict[str, Stat], StatRows]:
    """Return the wanted stats as `wanted_stats` does, and every stat; references become the texts they stand for."""
    flat = serialized.flat
    rows = _decoded(serialized, flat, serialized.owners)
    ids, which = distinct_index(rows.key)
    listed = np.array([names.get(key, "") in wanted.types for key in ids.tolist()], np.bool_)
    chosen = np.flatnonzero(listed[which])
    columns = _columns(rows.only(chosen), decoder.take(flat, chosen), names, wanted, narrowed)
    kind = _kinds(flat)
    value = np.where(kind == StatKind.REAL, rows.real.view(np.int64), rows.number)
    is_text, is_blob = np.flatnonzero(kind == StatKind.TEXT), kind == StatKind.BYTES
    texts, value[is_text] = _texts(decoder.take(rows.strings, is_text), rows.refs[is_text], names)
    value[is_blob] = rows.sizes[is_blob]
    keys = tuple(names.get(key, "") for key in ids.tolist())
    return columns, StatRows(rows.owner, which.astype(np.int32), kind, value, keys, texts)


class _Rows(Struct, frozen=True):
    """Decoded stats: the list that each is in, its metadata id, and what its arms hold (0 where they hold nothing)."""

    owner: Int32s
    key: Int64s
    number: Int64s
    real: Float64s
    refs: Int64s
    sizes: Int32s
    """Lengths of values that are bytes."""
    strings: Any
    blobs: Any

    def only(self, rows: Int64s) -> _Rows:
        """Return these rows alone."""
        texts = {name: decoder.take(getattr(self, name), rows) for name in ("strings", "blobs")}
        return _Rows(
            **texts, **{name: getattr(self, name)[rows] for name in self.__struct_fields__ if name not in texts}
        )


def _decoded(serialized: SerializedStats, flat: Any, owner: Int32s) -> _Rows:
    rows = decoder.decode_all(serialized.file, "Stat", flat, serialized.position)
    signed, unsigned = (decoder.numbers(rows.column(arm)) for arm in ("int64_value", "uint64_value"))
    return _Rows(
        owner=owner,
        key=decoder.numbers(rows.column("metadata_id")),
        number=signed | unsigned.view(np.int64),
        real=decoder.numbers(rows.column("double_value")),
        refs=decoder.numbers(rows.column("ref_value")).view(np.int64),
        sizes=np.diff(decoder.offsets(rows.column("bytes_value"))),
        strings=rows.column("str_value"),
        blobs=rows.column("bytes_value"),
    )


def _choose(serialized: SerializedStats, ids: Mapping[int, str], narrowed: Sequence[Narrowed]) -> tuple[Int64s, Int32s]:
    """Return which of all stats may be wanted, and the index of the list that each is in."""
    groups = {name: group for group, only in enumerate(narrowed, 2) for name in only.stats}
    group_of = np.zeros(_TABLE_SIZE + 1, np.uint8)
    for stat_id, name in ids.items():
        if 0 <= stat_id < _TABLE_SIZE:
            group_of[stat_id] = groups.get(name, 1)
    group_of[-1] = 1  # an id that must be decoded to be known
    group = group_of[serialized.ids]
    chosen = np.flatnonzero(group)
    owner = serialized.owners[chosen]
    if not narrowed:
        return chosen, owner
    # The first group is allowed on all names.
    allowed = np.stack([np.ones(len(narrowed[0].allowed), np.bool_), *(only.allowed for only in narrowed)])
    keep = allowed[group[chosen] - 1, narrowed[0].name[owner]]
    return chosen[keep], owner[keep]


def _stat_ids(flat: Any) -> npt.NDArray[np.int16]:
    """Read the metadata id of each serialized XStat; return ids below 2^14, and -1 where that fails.

    An XStat starts with tag 0x08 and the id as a varint; anything else must be decoded to be known.
    """
    ends, data = decoder.offsets(flat), decoder.bytes_of(flat)
    start, length, last = ends[:-1], np.diff(ends), len(data) - 1
    first, second = data[np.minimum(start, last)], data[np.minimum(start + 1, last)]
    plain = (first == 0x08) & (length > 2)
    key = np.where(plain & (second < 0x80), second, np.int16(-1))
    longer = np.flatnonzero(plain & (second >= 0x80) & (length > 3))
    third = data[start[longer] + 2]
    high = third.astype(np.int16) << 7
    key[longer] = np.where(third < 0x80, (second[longer] & 0x7F) | high, np.int16(-1))
    return key


def _columns(
    rows: _Rows, flat: Any, names: Mapping[int, str], wanted: WantedStats, narrowed: Sequence[Narrowed]
) -> dict[str, Stat]:
    ids: dict[str, list[int]] = {}
    for stat_id in distinct(rows.key).tolist():
        ids.setdefault(names.get(stat_id, ""), []).append(stat_id)
    columns = {}
    for name, same in ids.items():
        if name not in wanted.types:
            continue
        # `numpy.isin` takes longer to choose its way than comparing with one takes.
        which = (rows.key == same[0] if len(same) == 1 else np.isin(rows.key, same)).nonzero()[0]
        for only in narrowed:
            if name in only.stats:
                which = which[only.allows(rows.owner[which])]
        if (kind := wanted.types[name]) != "guess":
            columns[name] = _column(rows, which, kind, names)
            continue
        # Numbers, real numbers and texts apart, as the tags of the values tell; bytes are omitted.
        kinds = _kinds(decoder.take(flat, which))
        typed = ((kind, which[np.isin(kinds, stored)]) for kind, stored in _STORED.items())
        if parts := [_column(rows, some, kind, names) for kind, some in typed if len(some)]:
            columns[name] = merge_stats(parts)
    return columns


def _column(rows: _Rows, which: Int64s, kind: StatType, names: Mapping[int, str]) -> Stat:
    owner, number = rows.owner[which], rows.number[which]
    if kind == "number":
        return Stat(owner, number)
    if kind == "real":
        real = np.where(number != 0, number.astype(np.float64), rows.real[which])
        return Stat(owner, real.view(np.int64), "real")
    if kind == "bytes":
        values = [value.decode("latin-1") for value in decoder.take(rows.blobs, which).to_pylist()]
        texts = tuple(dict.fromkeys(values))
        place = {text: index for index, text in enumerate(texts)}
        return Stat(owner, np.array([place[value] for value in values], np.int64), "bytes", texts)
    texts, value = _texts(decoder.take(rows.strings, which), rows.refs[which], names)
    return Stat(owner, value, "text", texts)


def _texts(strings: Any, refs: Int64s, names: Mapping[int, str]) -> tuple[tuple[str, ...], Int64s]:
    """Return distinct texts and the index of each value in them; a reference is the name of a stat metadata."""
    distinct_refs, value = distinct_index(refs)
    texts = [names.get(ref, "") if ref else "" for ref in distinct_refs.tolist()]
    ends = decoder.offsets(strings)
    if ends[-1] > ends[0]:
        encoded = strings.dictionary_encode()
        of_string = decoder.numbers(encoded.indices).astype(np.int64) + len(texts)
        value = np.where(refs != 0, value, of_string)
        texts += decoder.texts(encoded.dictionary)
    return tuple(texts), value


_KIND_OF_TAG = np.full(256, StatKind.INT, np.uint8)
"""The tag of a value, of its field number and wire type, tells which arm it is; INT where there is none."""
_KIND_OF_TAG[[0x11, 0x18, 0x32]] = StatKind.REAL, StatKind.UNSIGNED, StatKind.BYTES
_KIND_OF_TAG[[0x2A, 0x38]] = StatKind.TEXT
_LONGEST_VARINT, _ID_TAG = 10, 0x08


def _kinds(flat: Any) -> Uint8s:
    """Return the kind of each stat by the tag of its value, since a value of zero does not tell its arm.

    The value stands behind the id of the stat, or first where the id is 0 and therefore omitted.
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
