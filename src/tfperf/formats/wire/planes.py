"""The planes of a trace file: what is decoded at once, their headers, and their events as batches of columns."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from msgspec import Struct

from tfperf.base.arrays import Bools, Int32s, Int64s
from tfperf.base.forked import forked
from tfperf.formats.wire import decoder, schema
from tfperf.formats.wire.event_columns import EventColumns, Line, Stat, is_derived
from tfperf.formats.wire.stats import Narrowed, SerializedStats, WantedStats, all_stats, wanted_stats
from tfperf.formats.wire.trace_file import PlaneSpan, SpaceSpans, Span, TraceFile, fields, walk_plane

_TAIL, _LONG_TAIL = 1 << 11, 1 << 14
_GUESSES = 4
_EVENT = (
    rb"\x22[\x80-\xff]{0,3}[\x03-\x7f]"  # an event and its length
    rb"\x08[\x80-\xff]{0,9}[\x00-\x7f]"  # its metadata id
    rb"[\x10\x28]"  # its offset, or how often it happened: what tells it from a stat
)


def line_groups(lines: tuple[Span, ...], limit: int) -> Iterator[tuple[int, int] | Span]:
    """Group neighbouring lines into byte ranges (tags included); a line longer than `limit` comes alone, as a span."""
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
    """Iterate over (position, bytes) of a line in pieces of whole fields, each as long as `limit` allows."""
    position = line.start
    while line.stop - position > limit:
        payload = file.read(position, position + limit)
        length = _guessed_border(payload) or _last_border(file, position, position + limit, line.stop) - position
        yield position, payload[:length] if length <= limit else file.read(position, position + length)
        position += length
    if position < line.stop:
        yield position, file.read(position, line.stop)


def _guessed_border(payload: bytes) -> int:
    """Return where the last event starts, or 0 if the guesses were wrong."""
    outline = schema.message_class("LineOutline")
    for place in reversed(_event_starts(payload, _TAIL) or _event_starts(payload, _LONG_TAIL)):
        try:
            outline.FromString(payload[:place])
        except DecodeError:
            continue
        return place
    return 0


def _event_starts(payload: bytes, tail: int) -> list[int]:
    """Return the last places in the tail of the payload that look like the start of an event."""
    return [match.start() for match in re.compile(_EVENT).finditer(payload, max(len(payload) - tail, 1))][-_GUESSES:]


def _last_border(file: TraceFile, position: int, limit: int, stop: int) -> int:
    """Walk from field to field to the last border before `limit`; a field longer than that is a piece by itself."""
    border = position
    for _, span in fields(file, position, stop):
        if span.stop > limit:
            return border if border > position else span.stop
        border = span.stop
    return border


PLANE_NAMES = ("/host:", "/device:", "/tfperf:", "#Chip", "Task Environment", "Host CPUs", "Host Threads", "Syscalls")
"""How the names of planes start that TensorFlow, JAX, other users of XProf, and captures of tfperf write."""
BATCH_BYTES = 1 << 22
_FORKED_BYTES = 1 << 24
"""Of the lines of a plane, so that a second process pays."""
_OWN_SHARE = 0.45
"""Of a plane that a copy of the process reads too: less than half, since all events are put together here."""
_LONG_HEADER = 1 << 26
_LARGEST_TABLE = 1 << 16
_CORE_DETAILS = "core_details"
"""The stat of a TPU's plane that holds a message."""


def check_planes(file: TraceFile, space: SpaceSpans, names: Sequence[str]) -> None:
    """Raise TraceFormatError if the file is no XSpace after all; `names` are those of its planes."""
    if not any(name.startswith(PLANE_NAMES) for name in names):
        from tfperf.formats.wire.foreign import refuse_foreign  # a file of a profiler does not need it

        refuse_foreign(file, space, names)


class PlaneHeader(Struct, frozen=True):
    """Names and facts of a plane. Metadata ids are the file's own and may be any int64."""

    id: int
    name: str
    event_ids: Int64s
    event_names: list[str]
    event_display_names: list[str]
    event_stats: dict[str, dict[int, int | float | str]]
    """Wanted stats of event metadata: stat name -> index into `event_ids` -> value."""
    stat_names: dict[int, str]
    carried_stats: frozenset[str]
    """Names of stats of the plane itself and of event metadata."""
    stats: dict[str, int | float | str]


def read_header(file: TraceFile, span: PlaneSpan, wanted: WantedStats) -> tuple[PlaneHeader, PlaneSpan]:
    """Read the names and facts of a plane; return also its span, walked again if lines hid in the header."""
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
        event_stats={name: _values(stat) for name, stat in wanted_stats(serialized, names, wanted).items()},
        stat_names=names,
        carried_stats=serialized.named(names)[0] | stats.keys(),
        stats=stats,
    ), span


def _header_row(file: TraceFile, span: PlaneSpan) -> Any:
    size = sum(stop - start for start, stop in span.header)
    if size > schema.LARGEST_MESSAGE:
        raise file.damaged(span.start, f"a plane with {size} bytes of names and facts")
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
                facts.update(_core_details(value))
                continue
            facts[name] = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    return facts


def _core_details(serialized: bytes) -> dict[str, int]:
    """Return which core of a TPU a plane stands for, by the name of each number; none for bytes that do not say it."""
    try:
        details = schema.message_class("CoreDetails").FromString(serialized)
    except DecodeError:
        return {}
    return {field.name: getattr(details, field.name) for field in details.DESCRIPTOR.fields}


def _values(stat: Stat) -> dict[int, int | float | str]:
    values: list[Any] = (stat.value.view(np.float64) if stat.type == "real" else stat.value).tolist()
    shown = [stat.texts[value] for value in values] if stat.type in ("text", "bytes") else values
    return dict(zip(stat.event.tolist(), shown, strict=True))


def read_events(
    file: TraceFile, span: PlaneSpan, header: PlaneHeader, wanted: WantedStats, *, plane: int = 0
) -> Iterator[EventColumns]:
    """Iterate over the events of a plane in batches of about `BATCH_BYTES`.

    `name` of an event is its index in `header.event_names`, one behind them for an id without a name. `plane` is the
    place of the plane among those of the trace. Where that is allowed, a copy of this process decodes a part of a
    large plane, because the decoder lets no other thread run meanwhile.
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
    """Iterate over decoded lines, several or a piece of one, their position, and whether the piece continues a line.

    Only those whose position is from `first` to before `end`.
    """
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
    """How metadata ids map to names: `ids` ascend, and `position` is that of each one's name."""

    ids: Int64s
    position: Int32s
    table: Int32s | None
    """The position for each id from 0 on, and that of all larger ids; None where ids are negative or large."""

    @staticmethod
    def of(event_ids: Int64s) -> _Names:
        """Prepare to look up; of several names with an id the last counts."""
        position = np.argsort(event_ids, kind="stable").astype(np.int32)
        ids = event_ids[position]
        if not len(ids) or ids[0] < 0 or ids[-1] >= max(_LARGEST_TABLE, 64 * len(ids)):
            return _Names(ids, position, None)
        table = np.full(int(ids[-1]) + 2, len(ids), np.int32)
        table[ids] = position
        return _Names(ids, position, table)

    def of_events(self, metadata_id: Int64s) -> Int32s:
        """Return the index of each event's name; an id without metadata gets the number of names."""
        if not len(self.ids):
            return np.zeros(len(metadata_id), np.int32)
        if self.table is not None:
            most = len(self.table) - 1
            return self.table[np.where((metadata_id >= 0) & (metadata_id < most), metadata_id, most)]
        place = np.maximum(np.searchsorted(self.ids, metadata_id, side="right") - 1, 0)
        return np.where(self.ids[place] == metadata_id, self.position[place], np.int32(len(self.ids)))


class _EventReader(Struct, frozen=True):
    """What stays the same while the events of one plane are read."""

    file: TraceFile
    header: PlaneHeader
    wanted: WantedStats
    allowed: list[tuple[frozenset[str], Bools]]
    """Narrowed stats, and the names that they are read on; the last entry is that of events without a name."""
    names: _Names
    plane: int

    def batches(self, span: PlaneSpan, first: int = 0, end: int = sys.maxsize) -> Iterator[EventColumns]:
        """Iterate over the batches of a plane that start from `first` to before `end`."""
        for lines, position, continued in decoded_lines(self.file, span, first, end):
            yield self.columns(lines, position, continued=continued)

    def batches_of_copy(self, span: PlaneSpan, first: int) -> Iterator[EventColumns]:
        """Do the same from `first` on in a copy of the process."""
        self.file.reopen()
        return self.batches(span, first)

    def columns(self, lines: Any, position: int, *, continued: bool = False) -> EventColumns:
        """Turn decoded lines into columns."""
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
        return EventColumns(
            lines=self._lines(lines, (decoder.offsets(lists) - decoder.offsets(lists)[0]).tolist()),
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

    def _lines(self, lines: Any, bounds: list[int]) -> tuple[Line, ...]:
        names, display_names = (decoder.texts(lines.field(key)) for key in ("name", "display_name"))
        ids, timestamps = (lines.field(key).to_pylist() for key in ("id", "timestamp_ns"))
        # The id of the line of steps comes as int32 or as its unsigned form.
        ids = [number - (1 << 32) if is_derived(number - (1 << 32)) else number for number in ids]
        columns = (ids, names, bounds[:-1], bounds[1:], display_names, timestamps)
        return tuple(Line(self.plane, *values) for values in zip(*columns, strict=True))
