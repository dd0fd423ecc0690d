"""Bytes to columns: what a plane says about itself, and its events in batches.

A plane gives a `PlaneHeader` (names and plane-level facts) and a stream of `EventBatch` (events and their wanted stats,
as numpy columns). Batches are bounded in bytes, so that memory does not grow with the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tfperf.arrays import Int64s
from tfperf.wire import decoder
from tfperf.wire.batching import groups, pieces
from tfperf.wire.stats import EveryStat, StatColumn, WantedStats, all_stats, wanted_stats
from tfperf.wire.trace_file import PlaneSpan, Span, TraceFile, walk_plane

BATCH_BYTES = 1 << 22
_LONG_HEADER = 1 << 26
_LARGE_ID = 1 << 20


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
class LineInfo:
    """A line (thread, stream) as the file names it."""

    id: int
    own_name: str
    display_name: str
    timestamp_ns: int

    @property
    def name(self) -> str:
        """Return the name to show."""
        return self.display_name or self.own_name


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
    """True: the first line is the one that the batch before ended with, and is now known better."""
    every: EveryStat | None = None
    """All stats, where they are wanted."""


def read_header(source: TraceFile, span: PlaneSpan, wanted: WantedStats) -> tuple[PlaneHeader, PlaneSpan]:
    """Read the names and facts of a plane; return also its span, walked again if lines hid in the header."""
    if sum(stop - start for start, stop in span.header) > _LONG_HEADER:
        span = walk_plane(source, span.start, span.stop, every_field=True)
    row = _header_row(source, span)
    if len(row.column("lines")[0]):
        span = walk_plane(source, span.start, span.stop, every_field=True)
        row = _header_row(source, span)
    events = decoder.items(row.column("event_metadata"))
    stat_items = decoder.items(row.column("stat_metadata"))
    stat_names = decoder.texts(stat_items.field("value").field("name"))
    names = dict(zip(stat_items.field("key").to_pylist(), stat_names, strict=True))
    metadata = events.field("value")
    return PlaneHeader(
        id=int(row.column("id")[0].as_py()),
        name=row.column("name")[0].as_py().decode("utf-8", "replace"),
        event_ids=decoder.numbers(events.field("key")),
        event_names=decoder.texts(metadata.field("name")),
        event_display_names=decoder.texts(metadata.field("display_name")),
        event_stats=_metadata_stats(source, span, metadata.field("stats"), names, wanted),
        stat_names=names,
        stats=_plane_stats(decoder.items(row.column("stats")), names),
    ), span


def _header_row(source: TraceFile, span: PlaneSpan) -> Any:
    payload = b"".join(source.read(start, stop) for start, stop in span.header)
    return decoder.decode(source, "PlaneHeader", payload, span.start)


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
    source: TraceFile, span: PlaneSpan, lists: Any, names: dict[int, str], wanted: WantedStats
) -> dict[str, dict[int, int | str]]:
    """Return the wanted stats that stand on event metadata (constant for all events of that name)."""
    found: dict[str, dict[int, int | str]] = {}
    for name, column in wanted_stats(source, lists, names, wanted, position=span.start).items():
        values = column.value.tolist()
        shown = [column.texts[value] for value in values] if column.texts is not None else values
        found[name] = dict(zip(column.event.tolist(), shown, strict=True))
    return found


def read_events(source: TraceFile, span: PlaneSpan, header: PlaneHeader, wanted: WantedStats) -> Iterator[EventBatch]:
    """Iterate over the events of a plane in batches of about `BATCH_BYTES`."""
    reader = _EventReader(source, header.stat_names, wanted, _allowed_ids(header, wanted))
    for group in groups(span.lines, BATCH_BYTES):
        if isinstance(group, Span):
            yield from reader.large_line(group)
        else:
            start, stop = group
            rows = decoder.decode(source, "Lines", source.read(start, stop), start)
            yield reader.batch(decoder.items(rows.column("lines")), start)


Allowed = tuple[tuple[frozenset[str], Int64s], ...]
"""Narrowed stats, and the ids of the event metadata that may carry them."""


def _allowed_ids(header: PlaneHeader, wanted: WantedStats) -> Allowed:
    known = list(zip(header.event_ids.tolist(), header.event_names, strict=True))
    return tuple(
        (stats, np.array([key for key, name in known if pattern.match(name)], np.int64))
        for pattern, stats in wanted.only_on.items()
    )


@dataclass(frozen=True, slots=True)
class _EventReader:
    """What stays the same while the events of one plane are read."""

    source: TraceFile
    stat_names: dict[int, str]
    wanted: WantedStats
    allowed: Allowed

    def large_line(self, line: Span) -> Iterator[EventBatch]:
        """Decode one line piece by piece; later pieces carry on the line of the first."""
        info = None
        for position, payload in pieces(self.source, line, BATCH_BYTES):
            rows = decoder.decode(self.source, "Line", payload, position)
            batch = self.batch(rows.to_struct_array(), position, info)
            info = batch.lines[0]
            yield batch

    def batch(self, lines: Any, position: int, first: LineInfo | None = None) -> EventBatch:
        """Turn decoded lines into columns; `first` is the line that a piece carries on."""
        lists = lines.field("events")
        events = decoder.decode_all(self.source, "Event", decoder.items(lists), position)
        metadata_id = decoder.numbers(events.column("metadata_id"))
        infos = _line_infos(lines)
        stats, every = self._stats(events.column("stats"), metadata_id, position)
        return EventBatch(
            lines=(_carried_on(first, infos[0]),) if first else infos,
            line_stop=tuple((decoder.offsets(lists)[1:] - decoder.offsets(lists)[0]).tolist()),
            metadata_id=metadata_id,
            offset_ps=decoder.numbers(events.column("offset_ps")),
            duration_ps=decoder.numbers(events.column("duration_ps")),
            aggregated=decoder.numbers(events.column("num_occurrences")) != 0,
            stats=stats,
            continued=first is not None,
            every=every,
        )

    def _stats(self, lists: Any, metadata_id: Int64s, position: int) -> tuple[dict[str, StatColumn], EveryStat | None]:
        barred = [(stats, _none_of(metadata_id, ids)) for stats, ids in self.allowed]
        given = self.source, lists, self.stat_names, self.wanted
        if self.wanted.every:
            return all_stats(*given, position=position, barred=barred)
        return wanted_stats(*given, position=position, barred=barred), None


def _none_of(metadata_id: Int64s, ids: Int64s) -> npt.NDArray[np.bool_]:
    """Tell which numbers are none of the ids; those of a real file are small, and a table is faster than sorting."""
    most = int(ids.max(initial=0))
    if int(ids.min(initial=0)) < 0 or most >= _LARGE_ID:
        return np.isin(metadata_id, ids, invert=True)
    table = np.ones(most + 2, np.bool_)
    table[ids] = False
    return np.asarray(table[np.where((metadata_id >= 0) & (metadata_id <= most), metadata_id, most + 1)], np.bool_)


def _line_infos(lines: Any) -> tuple[LineInfo, ...]:
    names, shown = decoder.texts(lines.field("name")), decoder.texts(lines.field("display_name"))
    ids, timestamps = lines.field("id").to_pylist(), lines.field("timestamp_ns").to_pylist()
    return tuple(map(LineInfo, ids, names, shown, timestamps))


def _carried_on(first: LineInfo, more: LineInfo) -> LineInfo:
    """Return what is known of a line after one more piece: writers put some of its fields after the events."""
    return LineInfo(
        more.id or first.id,
        more.own_name or first.own_name,
        more.display_name or first.display_name,
        more.timestamp_ns or first.timestamp_ns,
    )
