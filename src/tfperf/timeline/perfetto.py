"""Perfetto's own format: packets of track descriptors, names, and begins and ends of slices, compressed.

Each group is a sequence of packets with names and texts of its own, which events refer to by number. Packets are made
in batches, and each batch is deflated into one packet of compressed packets, so batches can be made side by side.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tfperf.arrays import Bools, Int32s, Int64s, Uint8s
from tfperf.timeline.model import ArrowEnds, Counter, Group
from tfperf.timeline.tracks import END, Marks, marks_of_tracks
from tfperf.wire.encode import Cells, below, beside, constant, fixed64, prefixed, sums, varint
from tfperf.wire.event_columns import StatKind
from tfperf.wire.perfetto_schema import message_class, tag

BATCH = 1 << 17
"""Packets that are made at once."""

_LEVEL = 1
"""Of compression: names repeat so much that more effort gains little."""

_CLEARED, _NEEDED = 1, 2
_EXPLICIT, _NO_MERGE = 3, 2
_BY_RANK = 1
_BYTES_UNIT, _COUNTER = 3, 4

_PACKET_TAG, _COMPRESSED_TAG = tag("Trace", "packet"), tag("TracePacket", "compressed_packets")
_SEQUENCE, _FLAGS = tag("TracePacket", "trusted_packet_sequence_id"), tag("TracePacket", "sequence_flags")
_TIMESTAMP, _TRACK_EVENT = tag("TracePacket", "timestamp"), tag("TracePacket", "track_event")
_TYPE, _TRACK, _NAME = (tag("TrackEvent", field) for field in ("type", "track_uuid", "name_iid"))
_CATEGORY = tag("TrackEvent", "category_iids") + b"\x01"
_COUNTER_VALUE, _ANNOTATION = tag("TrackEvent", "counter_value"), tag("TrackEvent", "debug_annotations")
_FLOW, _TERMINATING_FLOW = tag("TrackEvent", "flow_ids"), tag("TrackEvent", "terminating_flow_ids")
_ANNOTATION_NAME = tag("DebugAnnotation", "name_iid")
_VALUE_OF_KIND = {
    StatKind.INT: "int_value", StatKind.UNSIGNED: "uint_value", StatKind.REAL: "double_value",
    StatKind.TEXT: "string_value_iid", StatKind.BYTES: "uint_value",
}  # fmt: skip
_TAG_OF_KIND = np.array(
    [list(tag("DebugAnnotation", _VALUE_OF_KIND[kind]).ljust(2, b"\0")) for kind in StatKind], np.uint8
)

Job = Callable[[], bytes]
"""Makes the bytes of some packets."""


class _Place(NamedTuple):
    """The numbers of a group: its sequence, which is its process too, and the first of its tracks (the process's)."""

    sequence: int
    track: int


def jobs(groups: Iterable[Group], sequence: int = 1, track: int = 1) -> Iterator[Job]:
    """Iterate over what makes the packets of groups, in order; `sequence` and `track` are the first numbers to use."""
    for group in groups:
        place = _Place(sequence, track)
        yield partial(_descriptors, group, place)
        yield partial(_texts, group, place)
        for batch in _batches(group, place):
            yield partial(_events, batch)
        for position, counter in enumerate(group.counters):
            yield partial(_counter, counter, place, track + 1 + len(group.tracks) + position)
        sequence, track = sequence + 1, track + track_count(group)


def track_count(group: Group) -> int:
    """Return how many track numbers a group takes."""
    return 1 + len(group.tracks) + len(group.counters)


def _compressed(trace: memoryview | bytes) -> bytes:
    """Return serialized packets as one packet that holds them compressed."""
    data = zlib.compress(trace, _LEVEL)
    inner = _COMPRESSED_TAG + _varint(len(data))
    return b"".join((_PACKET_TAG, _varint(len(inner) + len(data)), inner, data))


def _varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


def root() -> bytes:
    """Return the packet that a file begins with: processes and threads are shown in the order of their ranks."""
    trace = message_class("Trace")()
    root = trace.packet.add(trusted_packet_sequence_id=1).track_descriptor
    root.uuid, root.process_ordering, root.thread_ordering = 0, _BY_RANK, _BY_RANK
    data: bytes = trace.SerializeToString()
    return data


def _descriptors(group: Group, place: _Place) -> bytes:
    """Describe the process and its tracks: threads, what did not nest on them, counters."""
    trace = message_class("Trace")()
    packet = trace.packet.add(trusted_packet_sequence_id=place.sequence, sequence_flags=_CLEARED)
    process = packet.track_descriptor
    process.uuid, process.name, process.child_ordering = place.track, _utf8(group.title), _EXPLICIT
    process.sibling_order_rank = process.process.pid = place.sequence
    process.process.process_name = _utf8(group.title)
    thread = place.track
    for rank, shown in enumerate(group.tracks, 1):
        track = trace.packet.add(trusted_packet_sequence_id=place.sequence).track_descriptor
        track.uuid, track.name, track.sibling_order_rank = place.track + rank, _utf8(shown.name), rank
        if shown.extra:
            track.parent_uuid, track.sibling_merge_behavior = thread, _NO_MERGE
        else:
            thread = track.uuid
            track.parent_uuid, track.child_ordering = place.track, _EXPLICIT
            track.thread.pid, track.thread.tid = place.sequence, track.uuid
            track.thread.thread_name = _utf8(shown.name)
    for rank, counter in enumerate(group.counters, 1 + len(group.tracks)):
        track = trace.packet.add(trusted_packet_sequence_id=place.sequence).track_descriptor
        track.uuid, track.name, track.parent_uuid = place.track + rank, _utf8(counter.name), place.track
        track.sibling_order_rank, track.sibling_merge_behavior = rank, _NO_MERGE
        track.counter.unit = _BYTES_UNIT
    return _compressed(trace.SerializeToString())


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _texts(group: Group, place: _Place) -> bytes:
    """Give numbers to the names and texts that the events of the group use: their indices plus 1."""
    arguments = group.arguments
    trace = message_class("Trace")()
    packet = trace.packet.add(trusted_packet_sequence_id=place.sequence, sequence_flags=_NEEDED)
    data = packet.interned_data
    data.event_categories.add(iid=1, text=_utf8(group.category))
    keys = [*arguments.keys, *(f"{key} (bytes)" for key in arguments.keys)]
    texts = arguments.value[arguments.kind == StatKind.TEXT]
    _intern(data.event_names, group.names, group.name)
    _intern(data.debug_annotation_names, keys, _keys(arguments.key, arguments.kind, len(arguments.keys)))
    _intern(data.debug_annotation_string_values, arguments.texts, texts)
    return _compressed(trace.SerializeToString())


def _intern(target: Any, texts: Sequence[str], index: Int32s | Int64s) -> None:
    """Add those of the texts that are used, with their numbers."""
    used = np.zeros(len(texts), np.bool_)
    used[index] = True
    for number in np.flatnonzero(used).tolist():
        target.add(iid=number + 1, text=_utf8(texts[number]))


def _keys(key: Int32s, kind: Uint8s, count: int) -> Int64s:
    """Return the keys of arguments; of bytes only the number is known, which the key then says."""
    return np.asarray(key + count * (kind == StatKind.BYTES), np.int64)


class _Batch(NamedTuple):
    """Marks of a group; those that are no ends are of the rows from `start` to `stop`, in this order."""

    group: Group
    place: _Place
    marks: Marks
    track: Int64s
    start: int
    stop: int


def _batches(group: Group, place: _Place) -> Iterator[_Batch]:
    marks = marks_of_tracks(group.tracks, group.start_ps, group.end_ps)
    track = np.repeat(np.arange(len(group.tracks)), [shown.stop - shown.start for shown in group.tracks])
    start = 0
    for at in range(0, len(marks.kind), BATCH):
        part = Marks(marks.event[at : at + BATCH], marks.kind[at : at + BATCH])
        stop = start + int((part.kind != END).sum())
        yield _Batch(group, place, part, track[part.event] + place.track + 1, start, stop)
        start = stop


def _events(batch: _Batch) -> bytes:
    """Return the events of a batch. Begin and end are both cut to nanoseconds, so what nests still does."""
    group, (event, kind) = batch.group, batch.marks
    named = kind != END
    time = np.where(named, group.start_ps[event], group.end_ps[event]) // 1000
    annotations, leaving, arriving = (
        _annotations(batch, named),
        _flows(batch, named, _FLOW, group.leaving),
        _flows(batch, named, _TERMINATING_FLOW, group.arriving),
    )
    repeated = [part for part in (annotations, leaving, arriving) if len(part[1].size)]
    fields = beside(
        constant(_TYPE, len(kind)), varint(kind),
        constant(_TRACK, len(kind)), varint(batch.track),
        beside(constant(_CATEGORY + _NAME, len(kind)), varint(group.name[event] + 1)).only(named),
    )  # fmt: skip
    extra = sum((sums(counts, items) for counts, items in repeated), np.zeros(len(kind), np.int64))
    heads = _packets(time, batch.place, prefixed(_TRACK_EVENT, fields, extra), extra)
    return _compressed(below(heads, *repeated) if repeated else heads.to_bytes())


def _packets(time_ns: Int64s, place: _Place, track_event: Cells, extra: Int64s | int = 0) -> Cells:
    """Return the packets around events, with their lengths before them."""
    count = len(time_ns)
    body = beside(
        constant(_SEQUENCE + _varint(place.sequence) + _FLAGS + _varint(_NEEDED) + _TIMESTAMP, count),
        varint(time_ns), track_event,
    )  # fmt: skip
    return prefixed(_PACKET_TAG, body, extra)


_Repeated = tuple[Int64s, Cells]
"""How many each mark has, and all of them in order."""


def _annotations(batch: _Batch, named: Bools) -> _Repeated:
    arguments = batch.group.arguments
    items = slice(int(arguments.stop[batch.start]), int(arguments.stop[batch.stop]))
    counts = np.zeros(len(named), np.int64)
    counts[named] = np.diff(arguments.stop[batch.start : batch.stop + 1])
    kind, value = arguments.kind[items], arguments.value[items]
    key = _keys(arguments.key[items], kind, len(arguments.keys))
    is_real, is_text = kind == StatKind.REAL, kind == StatKind.TEXT
    number = np.where(is_text, value + 1, value)
    tags = _TAG_OF_KIND[kind]
    body = beside(
        constant(_ANNOTATION_NAME, len(kind)), varint(key + 1),
        Cells.of(tags, tags != 0, (tags != 0).sum(axis=1)),
        varint(np.where(is_real, 0, number)).only(~is_real),
        *([fixed64(value).only(is_real)] if is_real.any() else []),
    )  # fmt: skip
    return counts, prefixed(_ANNOTATION, body)


def _flows(batch: _Batch, named: Bools, tag: bytes, ends: ArrowEnds) -> _Repeated:
    first, last = np.searchsorted(ends.row, (batch.start, batch.stop)).tolist()
    counts = np.zeros(len(named), np.int64)
    counts[named] = np.bincount(ends.row[first:last] - batch.start, minlength=batch.stop - batch.start)
    return counts, beside(constant(tag, last - first), fixed64(ends.arrow[first:last]))


def _counter(counter: Counter, place: _Place, track: int) -> bytes:
    """Return the values of a counter."""
    head = _TYPE + _varint(_COUNTER) + _TRACK + _varint(track) + _COUNTER_VALUE
    fields = beside(constant(head, len(counter.value)), varint(counter.value))
    return _compressed(_packets(counter.time_ps // 1000, place, prefixed(_TRACK_EVENT, fields)).to_bytes())
