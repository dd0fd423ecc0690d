"""Read a trace file's planes: headers, and events and stats as batches of columns; check that it is an XSpace.

Wanted stats are selected from millions of serialized XStats by a few bytes of each. Bytes of another message may parse
as an XSpace, because protobuf skips unknown fields: `check_planes` rejects them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from itertools import islice
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError
from msgspec import Struct

from tfperf.base.arrays import Bools, Float64s, Int32s, Int64s, Uint8s, distinct, distinct_index
from tfperf.base.process import forked
from tfperf.formats.wire import decoder, schema
from tfperf.formats.wire.event_columns import (
    EventColumns,
    Line,
    Stat,
    StatKind,
    StatRows,
    StatType,
    is_derived,
    merge_stats,
)
from tfperf.formats.wire.other_formats import is_text
from tfperf.formats.wire.trace_file import PlaneSpan, SpaceSpans, Span, TraceFile, fields, walk_plane

PLANE_NAMES = ("/host:", "/device:", "/tfperf:", "#Chip", "Task Environment", "Host CPUs", "Host Threads", "Syscalls")
"""Prefixes of plane names from TensorFlow, JAX, other users of XProf, and tfperf's captures."""
BATCH_BYTES = 1 << 22
_FORKED_BYTES = 1 << 24
"""Minimum bytes of lines for which a second process pays off."""
_OWN_SHARE = 0.45
"""Share read by the original process: less than half, because it also joins all events."""
_LONG_HEADER = 1 << 26
_LARGEST_TABLE = 1 << 16
_CORE_DETAILS = "core_details"
"""A TPU plane's stat that contains a message."""
_TAIL, _LONG_TAIL = 1 << 11, 1 << 14
_GUESSES = 4
_EVENT = (
    rb"\x22[\x80-\xff]{0,3}[\x03-\x7f]"  # an event and its length
    rb"\x08[\x80-\xff]{0,9}[\x00-\x7f]"  # its metadata id
    rb"[\x10\x28]"  # its offset, or its count: distinguishes it from a stat
)
_TABLE_SIZE = 1 << 14
_STORED: Mapping[StatType, tuple[StatKind, ...]] = {
    "number": (StatKind.INT, StatKind.UNSIGNED),
    "real": (StatKind.REAL,),
    "text": (StatKind.TEXT,),
}
_SPACE_FIELDS = frozenset({1, 2, 3, 4})
_PLANE_FIELDS = frozenset({-1, 2, 3, 4, 5, 6})
"""Declared fields of a plane; negative: a number."""
_MOST_FIELDS = 10_000


def line_groups(lines: tuple[Span, ...], limit: int) -> Iterator[tuple[int, int] | Span]:
    """Group adjacent lines into byte ranges with tags; yield a line longer than `limit` alone, as a span."""
    start = stop = -1
    for line in lines:
        large = line.stop - line.start > limit
        if start >= 0 and (large or line.tag != stop or line.stop - start > limit):
            yield start, stop
            start = -1
        if large:
            yield line
        else:
            start, stop = (line.tag if start < 0 else start), line.stop
    if start >= 0:
        yield start, stop


def line_pieces(file: TraceFile, line: Span, limit: int) -> Iterator[tuple[int, bytes]]:
    """Yield (position, bytes) of a line in pieces of whole fields, up to `limit` bytes if possible."""
    position = line.start
    while line.stop - position > limit:
        payload = file.read(position, position + limit)
        length = _guessed_border(payload)
        if not length:  # find the last complete field; one longer than `limit` is its own piece
            for _, span in fields(file, position, line.stop):
                if span.stop - position > limit:
                    length = length or span.stop - position
                    break
                length = span.stop - position
        yield position, payload[:length] if length <= limit else file.read(position, position + length)
        position += length
    if position < line.stop:
        yield position, file.read(position, line.stop)


def _guessed_border(payload: bytes) -> int:
    """Return the start of the last event, or 0 if all guesses were wrong."""
    outline = schema.message_class("LineOutline")
    for place in reversed(_event_starts(payload, _TAIL) or _event_starts(payload, _LONG_TAIL)):
        try:
            outline.FromString(payload[:place])
        except DecodeError:
            continue
        return place
    return 0


def _event_starts(payload: bytes, tail: int) -> list[int]:
    """Return the last positions in the payload's tail that look like the start of an event."""
    return [match.start() for match in re.compile(_EVENT).finditer(payload, max(len(payload) - tail, 1))][-_GUESSES:]


class PlaneHeader(Struct, frozen=True):
    """Names and facts of a plane. Metadata ids are specific to the file and can be any int64."""

    id: int
    name: str
    event_ids: Int64s
    event_names: list[str]
    event_display_names: list[str]
    event_stats: dict[str, dict[int, int | float | str]]
    """Wanted stats of event metadata: stat name -> index into `event_ids` -> value."""
    stat_names: dict[int, str]
    carried_stats: frozenset[str]
    """Stat names of the plane itself and of event metadata."""
    stats: dict[str, int | float | str]


def read_header(file: TraceFile, span: PlaneSpan, wanted: WantedStats) -> tuple[PlaneHeader, PlaneSpan]:
    """Read a plane's header; return also its span, walked again if the header contained lines."""
    if sum(stop - start for start, stop in span.header) > _LONG_HEADER:
        span = walk_plane(file, span.start, span.stop, every_field=True)
    row = _header_row(file, span)
    if len(row.column("lines")[0]):
        span = walk_plane(file, span.start, span.stop, every_field=True)
        row = _header_row(file, span)
    events = decoder.items(row.column("event_metadata"))
    stat_items = decoder.items(row.column("stat_metadata"))
    stat_names = decoder.texts(stat_items.field("value").field("name"))
    names = dict(zip(stat_items.field("key").to_pylist(), stat_names, strict=True))
    metadata = events.field("value")
    serialized = SerializedStats(file, metadata.field("stats"), span.start)
    stats = _plane_stats(decoder.items(row.column("stats")), names)
    return PlaneHeader(
        id=int(row.column("id")[0].as_py()),
        name=row.column("name")[0].as_py().decode("utf-8", "replace"),
        event_ids=decoder.numbers(events.field("key")),
        event_names=decoder.texts(metadata.field("name")),
        event_display_names=decoder.texts(metadata.field("display_name")),
        event_stats={name: stat.by_event() for name, stat in wanted_stats(serialized, names, wanted).items()},
        stat_names=names,
        carried_stats=serialized.named(names)[0] | stats.keys(),
        stats=stats,
    ), span


def _header_row(file: TraceFile, span: PlaneSpan) -> Any:
    size = sum(stop - start for start, stop in span.header)
    if size > schema.LARGEST_MESSAGE:
        raise file.damaged(span.start, f"a plane with {size} bytes of names and stats")
    return decoder.decode(file, "PlaneHeader", file.read_all(span.header), span.start)


def _plane_stats(stats: Any, names: Mapping[int, str]) -> dict[str, int | float | str]:
    facts: dict[str, int | float | str] = {}
    for stat in stats.to_pylist():
        name = names.get(stat.pop("metadata_id"), "")
        for arm, value in stat.items():
            if value is None or not name:
                continue
            if arm == "ref_value":
                value = names.get(value, "")
            if name == _CORE_DETAILS and isinstance(value, bytes):
                with suppress(DecodeError):
                    details = schema.message_class("CoreDetails").FromString(value)
                    facts |= {field.name: getattr(details, field.name) for field in details.DESCRIPTOR.fields}
                continue
            facts[name] = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    return facts


def read_events(
    file: TraceFile, span: PlaneSpan, header: PlaneHeader, wanted: WantedStats, *, plane: int = 0
) -> Iterator[EventColumns]:
    """Yield the events of a plane in batches of about `BATCH_BYTES`.

    An event's `name` indexes `header.event_names`; its length means no name. `plane` is the plane's index in the trace.
    Where allowed, a copy of this process decodes part of a large plane, because the decoder holds the GIL.
    """
    stats_of: dict[Callable[[Sequence[str]], Bools], list[str]] = {}
    for stat, accepted in wanted.only_on.items():
        stats_of.setdefault(accepted, []).append(stat)
    event_names = [*header.event_names, ""]
    allowed = [(frozenset(stats), accepted(event_names)) for accepted, stats in stats_of.items()]
    names = _Names.of(header.event_ids)
    reader = _EventReader(file=file, header=header, wanted=wanted, allowed=allowed, names=names, plane=plane)
    size = sum(line.stop - line.start for line in span.lines)
    if size < _FORKED_BYTES or not file.can_reopen:
        yield from reader.batches(span)
        return
    start, stop = span.lines[0].start, span.lines[-1].stop
    border = start + int(_OWN_SHARE * (stop - start))
    with forked(partial(reader.batches_of_copy, span, border)) as others:
        yield from reader.batches(span, end=border)
        batches = others()
    yield from reader.batches(span, border) if batches is None else batches


def decoded_lines(
    file: TraceFile, span: PlaneSpan, first: int = 0, end: int = sys.maxsize
) -> Iterator[tuple[Any, int, bool]]:
    """Yield (lines or a piece of one, position, whether the piece continues a line), for positions in [first, end)."""
    for group in line_groups(span.lines, BATCH_BYTES):
        start, stop = (group.start, group.stop) if isinstance(group, Span) else group
        if start >= end:
            break
        if isinstance(group, Span) and stop > first:
            for position, payload in line_pieces(file, group, BATCH_BYTES):
                if position >= end:
                    break
                if position >= first:
                    row = decoder.decode(file, "Line", payload, position)
                    yield row.to_struct_array(), position, position > group.start
        elif start >= first:
            rows = decoder.decode(file, "Lines", file.read(start, stop), start)
            yield decoder.items(rows.column("lines")), start, False


class _Names(Struct, frozen=True):
    """Mapping of metadata ids to names: `ids` ascend, `position` has each one's name index."""

    ids: Int64s
    position: Int64s
    table: Int64s | None
    """Position by id from 0; the last entry is for all larger ids. None if ids are negative or large."""

    @staticmethod
    def of(event_ids: Int64s) -> _Names:
        """Build the lookup; if an id has several names, the last wins."""
        position = np.argsort(event_ids, kind="stable")
        ids = event_ids[position]
        if not len(ids) or ids[0] < 0 or ids[-1] >= max(_LARGEST_TABLE, 64 * len(ids)):
            return _Names(ids, position, None)
        table = np.full(int(ids[-1]) + 2, len(ids))
        table[ids] = position
        return _Names(ids, position, table)

    def of_events(self, metadata_id: Int64s) -> Int64s:
        """Return the name index of each event; ids without metadata get the number of names."""
        if not len(self.ids):
            return np.zeros(len(metadata_id), np.int64)
        if self.table is not None:
            most = len(self.table) - 1
            return self.table[np.where((metadata_id >= 0) & (metadata_id < most), metadata_id, most)]
        place = np.maximum(np.searchsorted(self.ids, metadata_id, side="right") - 1, 0)
        return np.where(self.ids[place] == metadata_id, self.position[place], len(self.ids))


class _EventReader(Struct, frozen=True):
    """Constant state while one plane's events are read."""

    file: TraceFile
    header: PlaneHeader
    wanted: WantedStats
    allowed: list[tuple[frozenset[str], Bools]]
    """Narrowed stats, and the names on which they are read; the last entry is for events without a name."""
    names: _Names
    plane: int

    def batches(self, span: PlaneSpan, first: int = 0, end: int = sys.maxsize) -> Iterator[EventColumns]:
        """Yield the batches of a plane with positions in [first, end)."""
        for lines, position, continued in decoded_lines(self.file, span, first, end):
            yield self.columns(lines, position, continued=continued)

    def batches_of_copy(self, span: PlaneSpan, first: int) -> Iterator[EventColumns]:
        """Yield them from `first` in a copy of the process."""
        self.file.reopen()
        return self.batches(span, first)

    def columns(self, lines: Any, position: int, *, continued: bool = False) -> EventColumns:
        """Convert decoded lines to columns."""
        lists = lines.field("events")
        events = decoder.decode_all(self.file, "Event", decoder.items(lists), position)
        name = self.names.of_events(decoder.numbers(events.column("metadata_id")))
        serialized = SerializedStats(self.file, events.column("stats"), position)
        narrowed = [Narrowed(stats, allowed, name) for stats, allowed in self.allowed]
        if self.wanted.every:
            stats, every = all_stats(serialized, self.header.stat_names, self.wanted, narrowed)
        else:
            stats, every = wanted_stats(serialized, self.header.stat_names, self.wanted, narrowed), None
        carried, nameless = serialized.named(self.header.stat_names)
        bounds = (decoder.offsets(lists) - decoder.offsets(lists)[0]).tolist()
        names, display_names = (decoder.texts(lines.field(key)) for key in ("name", "display_name"))
        ids, timestamps = (lines.field(key).to_pylist() for key in ("id", "timestamp_ns"))
        # The step line's id is stored as int32 or as the equivalent unsigned number.
        ids = [number - (1 << 32) if is_derived(number - (1 << 32)) else number for number in ids]
        columns = (ids, names, bounds[:-1], bounds[1:], display_names, timestamps)
        return EventColumns(
            lines=tuple(Line(self.plane, *values) for values in zip(*columns, strict=True)),
            name=name,
            start_ps=decoder.numbers(events.column("offset_ps")),
            duration_ps=decoder.numbers(events.column("duration_ps")),
            aggregated=decoder.numbers(events.column("num_occurrences")) != 0,
            stats=stats,
            every=every,
            continued=continued,
            stat_names=carried,
            nameless_stats=nameless,
        )


class WantedStats(Struct, frozen=True):
    """The stats to decode, by name and type; others are skipped unread.

    The type "guess" uses the stored one. `only_on` narrows a stat to events with some names: it maps a list of names to
    booleans. A stat on nearly every event is costly. `every` also decodes all stats as one table.
    """

    types: Mapping[str, StatType | Literal["guess"]]
    only_on: Mapping[str, Callable[[Sequence[str]], Bools]] = MappingProxyType({})
    every: bool = False


class Narrowed(Struct, frozen=True):
    """Stats read only on events with some names: `allowed` is by name, `name` has each event's name."""

    stats: frozenset[str]
    allowed: Bools
    name: Int64s

    def allows(self, owner: Int32s) -> Bools:
        """Return whether the stats are read on each of these events."""
        return np.asarray(self.allowed[self.name[owner]], np.bool_)


class SerializedStats(Struct, frozen=True, dict=True):
    """Serialized XStats, a list per event; `position` is their place in the file."""

    file: TraceFile
    lists: Any
    position: int

    @cached_property
    def flat(self) -> Any:
        """Return the stats of all events, concatenated."""
        return decoder.items(self.lists)

    @cached_property
    def owners(self) -> Int32s:
        """Return the list index of each stat."""
        return np.repeat(np.arange(len(self.lists), dtype=np.int32), np.diff(decoder.offsets(self.lists)))

    @cached_property
    def ids(self) -> npt.NDArray[np.int16]:
        """Return the metadata id of each stat if it is below 2^14, else -1."""
        return _stat_ids(self.flat)

    def named(self, names: Mapping[int, str]) -> tuple[frozenset[str], int]:
        """Return the used names, or all if some ids are unreadable, and the number of nameless ids below 2^14."""
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
    """Select the wanted stats; `names` maps the plane's metadata ids to stat names."""
    ids = {key: name for key, name in names.items() if name in wanted.types}
    if not ids or not len(serialized.flat):
        return {}
    chosen, owner = _choose(serialized, ids, narrowed)
    if not len(chosen):
        return {}
    flat = decoder.take(serialized.flat, chosen)
    # Types are known, except for ids that had to be decoded.
    has_unknown = bool((serialized.ids[chosen] < 0).any())
    return _columns(_decoded(serialized, flat, owner), flat, names, wanted, narrowed if has_unknown else ())


def all_stats(
    serialized: SerializedStats, names: Mapping[int, str], wanted: WantedStats, narrowed: Sequence[Narrowed] = ()
) -> tuple[dict[str, Stat], StatRows]:
    """Return the wanted stats like `wanted_stats`, and all stats; references become text."""
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
    """Decoded stats: list index, metadata id, and the value of each oneof arm (0 if unset)."""

    owner: Int32s
    key: Int64s
    number: Int64s
    real: Float64s
    refs: Int64s
    sizes: Int32s
    """Lengths of bytes values."""
    strings: Any
    blobs: Any

    def only(self, rows: Int64s) -> _Rows:
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
    """Return the stats that may be wanted, and their list indices."""
    groups = {name: group for group, only in enumerate(narrowed, 2) for name in only.stats}
    group_of = np.zeros(_TABLE_SIZE + 1, np.uint8)
    for stat_id, name in ids.items():
        if 0 <= stat_id < _TABLE_SIZE:
            group_of[stat_id] = groups.get(name, 1)
    group_of[-1] = 1  # an id that must be decoded
    group = group_of.take(serialized.ids, mode="wrap")
    chosen = np.flatnonzero(group)
    owner = serialized.owners[chosen]
    if not narrowed:
        return chosen, owner
    # The first group is allowed on all names.
    allowed = np.stack([np.ones(len(narrowed[0].allowed), np.bool_), *(only.allowed for only in narrowed)])
    place = (group[chosen] - 1) * np.intp(allowed.shape[1]) + narrowed[0].name.take(owner)
    keep = np.flatnonzero(allowed.take(place))
    return chosen[keep], owner[keep]


def _stat_ids(flat: Any) -> npt.NDArray[np.int16]:
    """Return each XStat's metadata id if it is a varint below 2^14 after tag 0x08, else -1: it must be decoded."""
    ends, data = decoder.offsets(flat), decoder.bytes_of(flat)
    start, length, last = ends[:-1], np.diff(ends), len(data) - 1
    first, second = data.take(np.minimum(start, last)), data.take(np.minimum(start + 1, last))
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
        # For one key, comparing is faster than `numpy.isin`.
        which = (rows.key == same[0] if len(same) == 1 else np.isin(rows.key, same)).nonzero()[0]
        for only in narrowed:
            if name in only.stats:
                which = which[only.allows(rows.owner[which])]
        if (kind := wanted.types[name]) != "guess":
            columns[name] = _column(rows, which, kind, names)
            continue
        # Separate numbers, reals and texts by value tags; bytes are omitted.
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
    """Return distinct texts and each value's index; a reference is the name of a stat metadata."""
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
"""Tag of a value (field number and wire type) -> its arm; INT if there is none."""
_KIND_OF_TAG[[0x11, 0x18, 0x32]] = StatKind.REAL, StatKind.UNSIGNED, StatKind.BYTES
_KIND_OF_TAG[[0x2A, 0x38]] = StatKind.TEXT
_LONGEST_VARINT, _ID_TAG = 10, 0x08


def _kinds(flat: Any) -> Uint8s:
    """Return the kinds by value tag (after the id, if not 0), since a decoded zero does not show its arm."""
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


def check_planes(file: TraceFile, space: SpaceSpans, names: Sequence[str]) -> None:
    """Raise TraceFormatError if the file is not an XSpace; `names` are its plane names.

    A known plane name is sufficient. Without one, every field must be declared, every text valid, and an item recorded.
    """
    if any(name.startswith(PLANE_NAMES) for name in names):
        return
    if names and not any(names):
        raise file.foreign("is not an XSpace: its planes have no names")
    problem = next(_contradictions(file, space, names), "")
    has_records = any(plane.lines for plane in space.planes) or space.errors or space.warnings
    if not problem and not has_records:
        problem = "its planes do not have names that profilers write, such as /host:CPU"
    if problem:
        raise file.foreign(f"is not an XSpace: {problem}")


def _contradictions(file: TraceFile, space: SpaceSpans, names: Sequence[str]) -> Iterator[str]:
    """Yield features that profilers never write."""
    if not all(map(_is_name, names)):
        yield "the names of its planes are not text"
    if not all(map(_is_name, (*space.errors, *space.warnings, *space.hostnames))):
        yield "its errors, warnings or host names are not text"
    for start, stop, declared in (
        (0, file.size, _SPACE_FIELDS),
        *((plane.start, plane.stop, _PLANE_FIELDS) for plane in space.planes),
    ):
        for number, span in islice(fields(file, start, stop), _MOST_FIELDS):
            if number not in declared:
                yield f"the field at byte {span.tag} of {file.size} is not an XSpace field"


def _is_name(text: str) -> bool:
    return "\ufffd" not in text and is_text(text.encode())
