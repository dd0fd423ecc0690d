"""Bytes to columns: the only place that knows how the decoder (`ptars`, protobuf to Arrow) is called.

A plane gives a `PlaneHeader` (names and plane-level facts) and a stream of `EventBatch` (events and their wanted stats,
as numpy columns). Batches are bounded in bytes, so that memory does not grow with the file: several small lines share a
batch, a large line is cut into several. A cut needs the border between two events; `_border` proposes one, and the
decoder proves it: a piece parses to its very end only if it ends on a border.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import ptars
import pyarrow as pa

from tfperf.errors import TraceFormatError
from tfperf.intervals import Int64s, distinct
from tfperf.wire import schema
from tfperf.wire.source import PlaneSpan, Source, Span, walk_plane

BATCH_BYTES = 1 << 25

Int32s = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class PlaneHeader:
    """Names and facts of a plane. Metadata ids are the file's own and may be any int64."""

    id: int
    name: str
    event_ids: Int64s
    event_names: list[str]
    event_display_names: list[str]
    event_stats: dict[str, dict[int, int | str]]
    """Wanted stats of event metadata: stat name -> index into `event_ids` -> value."""
    stat_names: dict[int, str]
    stats: dict[str, int | float | str]


@dataclass(frozen=True, slots=True)
class StatColumn:
    """One stat of a batch: which events carry it (ascending indices), and its values.

    `value` is int64: a number (a uint64 keeps its bits), or for a text an index into `texts`.
    """

    event: Int32s
    value: Int64s
    texts: list[str] | None


@dataclass(frozen=True, slots=True)
class LineInfo:
    """A line (thread, stream) as the file names it."""

    id: int
    name: str
    timestamp_ns: int


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Events of one or more lines; `line_stop[i]` is where the events of `lines[i]` end in the columns."""

    lines: tuple[LineInfo, ...]
    line_stop: tuple[int, ...]
    metadata_id: Int64s
    offset_ps: Int64s
    duration_ps: Int64s
    aggregated: npt.NDArray[np.bool_]
    stats: dict[str, StatColumn]
    continued: bool
    """True: the first line is the one that the batch before ended with."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The stats to decode: by name, as numbers or as texts. All others are skipped unread.

    `only_on` narrows a stat to events whose name matches: a stat that nearly every event carries is costly.
    """

    numbers: frozenset[str]
    texts: frozenset[str]
    only_on: Mapping[str, re.Pattern[str]] = field(default_factory=dict)


@lru_cache(maxsize=1)
def _handlers() -> Mapping[str, Any]:
    pool = ptars.HandlerPool([schema.descriptor("XSpace").file])
    return {name: pool.get_for_message(schema.descriptor(name)) for name in ("Lines", "Line", "PlaneHeader", "Stat")}


def _decode(source: Source, message: str, payload: bytes, position: int) -> Any:
    """Decode one serialized message into an Arrow record batch of one row."""
    offsets = pa.py_buffer(np.array([0, len(payload)], np.int32))
    array = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(payload)])
    try:
        return _handlers()[message].array_to_record_batch(array)
    except ValueError as error:
        raise source.damaged(position, f"no valid {message}") from error


def _numpy(array: Any) -> Any:
    """Return a column of numbers without copying it (`to_numpy` would import pandas)."""
    dtype = np.dtype(str(array.type).replace("double", "float64"))
    values = array.buffers()[1]
    return np.frombuffer(values, dtype)[array.offset : array.offset + len(array)] if len(array) else np.empty(0, dtype)


def _texts(array: Any) -> list[str]:
    """Return a binary array as text; invalid UTF-8 becomes U+FFFD."""
    return [value.decode("utf-8", "replace") for value in array.to_pylist()]


def _offsets(array: Any) -> Int32s:
    """Return where the items of a list or binary array begin, and where the last ends."""
    if not len(array):
        return np.zeros(1, np.int32)
    return np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]


def _items(lists: Any) -> Any:
    """Return the items of all lists, one after the other (`flatten` would import Arrow's compute module)."""
    offsets = _offsets(lists)
    return lists.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))


def _bytes_of(array: Any) -> npt.NDArray[np.uint8]:
    data = array.buffers()[2]
    return np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)


def _take(array: Any, rows: npt.NDArray[np.intp]) -> Any:
    """Return the binary array with only these rows (Arrow's own `take` would import its compute module)."""
    offsets = _offsets(array)
    length = np.diff(offsets)[rows]
    stops = np.concatenate(([0], np.cumsum(length, dtype=np.int64)))
    place = np.arange(stops[-1]) + np.repeat(offsets[:-1][rows] - stops[:-1], length)
    buffers = pa.py_buffer(stops.astype(np.int32)), pa.py_buffer(_bytes_of(array)[place])
    return pa.Array.from_buffers(pa.binary(), len(rows), [None, *buffers])


def read_header(source: Source, span: PlaneSpan, wanted: Wanted) -> tuple[PlaneHeader, PlaneSpan]:
    """Read the names and facts of a plane; return also its span, walked again if lines hid in the header."""
    row = _header_row(source, span)
    if len(row.column("lines")[0]):
        span = walk_plane(source, span.start, span.stop, every_field=True)
        row = _header_row(source, span)
    events = _items(row.column("event_metadata"))
    stat_items = _items(row.column("stat_metadata"))
    names = dict(zip(stat_items.field("key").to_pylist(), _texts(stat_items.field("value").field("name")), strict=True))
    metadata = events.field("value")
    return PlaneHeader(
        id=int(row.column("id")[0].as_py()),
        name=row.column("name")[0].as_py().decode("utf-8", "replace"),
        event_ids=_numpy(events.field("key")),
        event_names=_texts(metadata.field("name")),
        event_display_names=_texts(metadata.field("display_name")),
        event_stats=_metadata_stats(source, metadata.field("stats"), names, wanted),
        stat_names=names,
        stats=_plane_stats(_items(row.column("stats")), names),
    ), span


def _header_row(source: Source, span: PlaneSpan) -> Any:
    payload = b"".join(source.read(start, stop) for start, stop in span.header)
    return _decode(source, "PlaneHeader", payload, span.start)


def _plane_stats(stats: Any, names: dict[int, str]) -> dict[str, int | float | str]:
    found: dict[str, int | float | str] = {}
    for stat in stats.to_pylist():
        name = names.get(stat.pop("metadata_id"), "")
        for arm, value in stat.items():
            if value is None or not name:
                continue
            if arm == "ref_value":
                value = names.get(value, "")
            found[name] = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    return found


def _metadata_stats(
    source: Source, lists: Any, names: dict[int, str], wanted: Wanted
) -> dict[str, dict[int, int | str]]:
    """Return the wanted stats that stand on event metadata (constant for all events of that name)."""
    found: dict[str, dict[int, int | str]] = {}
    for name, column in _wanted_stats(source, lists, names, wanted).items():
        values = column.value.tolist()
        shown = [column.texts[value] for value in values] if column.texts is not None else values
        found[name] = dict(zip(column.event.tolist(), shown, strict=True))
    return found


def read_events(source: Source, span: PlaneSpan, header: PlaneHeader, wanted: Wanted) -> Iterator[EventBatch]:
    """Iterate over the events of a plane in batches of about `BATCH_BYTES`."""
    reader = _EventReader(source, header.stat_names, wanted, _allowed_ids(header, wanted))
    for tag, stop in _small_batches(span.lines):
        if isinstance(tag, Span):
            yield from reader.large_line(tag)
        else:
            rows = _decode(source, "Lines", source.read(tag, stop), tag)
            yield reader.batch(_items(rows.column("lines")))


def _allowed_ids(header: PlaneHeader, wanted: Wanted) -> dict[str, Int64s]:
    """Return, for each narrowed stat, the ids of the event metadata that may carry it."""
    return {
        stat: np.array(
            [
                key
                for key, name in zip(header.event_ids.tolist(), header.event_names, strict=True)
                if pattern.match(name)
            ],
            np.int64,
        )
        for stat, pattern in wanted.only_on.items()
    }


def _small_batches(lines: tuple[Span, ...]) -> Iterator[tuple[int | Span, int]]:
    """Group neighbouring lines into byte ranges (tag, stop); a line too large for one comes alone, as its span."""
    start = stop = -1
    for line in lines:
        large = line.stop - line.start > BATCH_BYTES
        if start >= 0 and (large or line.tag != stop or line.stop - start > BATCH_BYTES):
            yield start, stop
            start = -1
        if large:
            yield line, line.stop
        else:
            start, stop = (line.tag if start < 0 else start), line.stop
    if start >= 0:
        yield start, stop


def _longest_piece(source: Source, payload: bytes, position: int, *, last: bool) -> tuple[Any, int]:
    """Decode as many whole events as the payload holds; return them and the bytes used."""
    if last:
        return _decode(source, "Line", payload, position), len(payload)
    limit = len(payload)
    for _ in range(64):
        limit = _border(payload, limit)
        if limit <= 0:
            break
        try:
            return _decode(source, "Line", payload[:limit], position), limit
        except TraceFormatError:
            continue
    raise source.damaged(position, "no border between events")


def _border(payload: bytes, limit: int) -> int:
    """Return the last place before `limit` that looks like the begin of an event followed by others, or 0."""
    candidate = payload.rfind(b"\x22", 0, limit)
    while candidate > 0:
        place, links = candidate, 0
        while place < len(payload) - 3 and payload[place] == 0x22 and payload[place + 1]:
            length, width = payload[place + 1], 2
            if length >= 0x80:
                length, width = (length & 0x7F) | (payload[place + 2] << 7), 3
            place, links = place + width + length, links + 1
        if links >= 1 and place >= len(payload) - 3:
            return candidate
        candidate = payload.rfind(b"\x22", 0, candidate)
    return 0


@dataclass(frozen=True, slots=True)
class _EventReader:
    """What stays the same while the events of one plane are read."""

    source: Source
    stat_names: dict[int, str]
    wanted: Wanted
    allowed: dict[str, Int64s]

    def large_line(self, line: Span) -> Iterator[EventBatch]:
        """Decode one line piece by piece; later pieces carry on the line of the first."""
        position, info = line.start, None
        while position < line.stop:
            payload = self.source.read(position, min(position + BATCH_BYTES, line.stop))
            last = position + len(payload) == line.stop
            rows, used = _longest_piece(self.source, payload, position, last=last)
            batch = self.batch(rows.to_struct_array(), info)
            info = batch.lines[0]
            yield batch
            position += used

    def batch(self, lines: Any, first: LineInfo | None = None) -> EventBatch:
        """Turn decoded lines into columns; `first` is the line that a piece carries on."""
        lists = lines.field("events")
        events = _items(lists)
        metadata_id = _numpy(events.field("metadata_id"))
        return EventBatch(
            lines=(first,) if first else _line_infos(lines),
            line_stop=tuple((_offsets(lists)[1:] - _offsets(lists)[0]).tolist()),
            metadata_id=metadata_id,
            offset_ps=_numpy(events.field("offset_ps")),
            duration_ps=_numpy(events.field("duration_ps")),
            aggregated=_numpy(events.field("num_occurrences")) != 0,
            stats=self._stats(events.field("stats"), metadata_id),
            continued=first is not None,
        )

    def _stats(self, lists: Any, metadata_id: Int64s) -> dict[str, StatColumn]:
        barred = {
            stat: ~np.isin(metadata_id, ids) if len(ids) else np.ones(len(metadata_id), np.bool_)
            for stat, ids in self.allowed.items()
        }
        return _wanted_stats(self.source, lists, self.stat_names, self.wanted, barred)


def _line_infos(lines: Any) -> tuple[LineInfo, ...]:
    names, shown = _texts(lines.field("name")), _texts(lines.field("display_name"))
    ids, timestamps = lines.field("id").to_pylist(), lines.field("timestamp_ns").to_pylist()
    return tuple(
        LineInfo(line_id, label or name, timestamp)
        for line_id, name, label, timestamp in zip(ids, names, shown, timestamps, strict=True)
    )


def _wanted_stats(
    source: Source,
    lists: Any,
    names: dict[int, str],
    wanted: Wanted,
    barred: Mapping[str, npt.NDArray[np.bool_]] | None = None,
) -> dict[str, StatColumn]:
    """Pick the wanted stats out of list<bytes of XStat>, by looking at the bytes of their metadata id only."""
    flat, barred = _items(lists), barred or {}
    ids = {key: name for key, name in names.items() if name in wanted.numbers or name in wanted.texts}
    if not ids or not len(flat):
        return {}
    key, known = _stat_ids(flat)
    table = np.zeros(1 << 14, np.uint8)
    for stat_id, name in ids.items():
        if 0 <= stat_id < 1 << 14:
            table[stat_id] = 2 if name in barred else 1
    code = np.where(known, table[key], 1)
    owner = _owners(lists, flat_indices := np.flatnonzero(code))
    keep = np.ones(len(flat_indices), np.bool_)
    for stat_id, name in ids.items():
        if name in barred and 0 <= stat_id < 1 << 14:
            mine = np.flatnonzero(key[flat_indices] == stat_id)
            keep[mine] = ~barred[name][owner[mine]] | ~known[flat_indices[mine]]
    chosen, owner = flat_indices[keep], owner[keep]
    if not len(chosen):
        return {}
    try:
        rows = _handlers()["Stat"].array_to_record_batch(_take(flat, chosen))
    except ValueError as error:
        raise source.damaged(0, "no valid XStat") from error
    return _stat_columns(rows, owner, names, wanted)


def _owners(lists: Any, flat_indices: npt.NDArray[np.intp]) -> Int32s:
    """Return which list each flattened item came from."""
    offsets = _offsets(lists)
    return (np.searchsorted(offsets, flat_indices + offsets[0], side="right") - 1).astype(np.int32)


def _stat_ids(flat: Any) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.bool_]]:
    """Read the metadata id of each serialized XStat; return ids below 2^14, and whether that succeeded.

    An XStat begins with tag 0x08 and the id as a varint; anything else must be decoded to be known.
    """
    offsets, data = _offsets(flat), _bytes_of(flat)
    start, length, last = offsets[:-1], np.diff(offsets), len(data) - 1
    first, second = data[np.minimum(start, last)], data[np.minimum(start + 1, last)]
    plain = (first == 0x08) & (length > 2)
    known = plain & (second < 0x80)
    key = (second & 0x7F).astype(np.int16)
    longer = np.flatnonzero(plain & (second >= 0x80) & (length > 3))
    third = data[start[longer] + 2]
    key[longer] |= (third & 0x7F).astype(np.int16) << 7
    known[longer] = third < 0x80
    return key, known


def _stat_columns(rows: Any, owner: Int32s, names: dict[int, str], wanted: Wanted) -> dict[str, StatColumn]:
    key, refs = _numpy(rows.column("metadata_id")), _numpy(rows.column("ref_value"))
    number = _numpy(rows.column("int64_value")) | _numpy(rows.column("uint64_value")).view(np.int64)
    columns = {}
    for stat_id in distinct(key).tolist():
        name, which = names.get(stat_id, ""), np.flatnonzero(key == stat_id)
        if name in wanted.numbers:
            columns[name] = StatColumn(owner[which], number[which], None)
        elif name in wanted.texts:
            texts, value = _text_column(_take(rows.column("str_value"), which), refs[which], names)
            columns[name] = StatColumn(owner[which], value, texts)
    return columns


def _text_column(strings: Any, refs: npt.NDArray[np.uint64], names: dict[int, str]) -> tuple[list[str], Int64s]:
    """Return distinct texts and the index of each value in them; a reference is the name of a stat metadata."""
    found, ref_index = np.unique(refs, return_inverse=True)
    texts = [names.get(ref, "") for ref in found.tolist()]
    value = ref_index.reshape(-1).astype(np.int64)
    if len(_offsets(strings)) > 1 and _offsets(strings)[-1] > _offsets(strings)[0]:
        encoded = strings.dictionary_encode()
        own = _numpy(encoded.indices).astype(np.int64) + len(texts)
        value = np.where(refs != 0, value, own)
        texts += _texts(encoded.dictionary)
    return texts, value
