"""Perfetto's trace format: packets of track descriptors, names, and starts and ends of slices, compressed.

Each group is a sequence of packets with its own interned names and texts. Packets are built in batches, each compressed
into one packet of packets, so batches can be built in parallel.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import NO_NUMBERS, Bools, Int32s, Int64s, Uint8s
from tfperf.export.timeline.host_timeline import Counter, EncodeJob, GroupIds, Track, TrackGroup
from tfperf.export.timeline.tracks import start_end_order
from tfperf.formats.wire.encode import Cells, below, beside, constant, fixed64, one_varint, prefixed, sums, varint
from tfperf.formats.wire.event_columns import StatKind
from tfperf.formats.wire.schema import Messages, Schema, fields_of

_MESSAGES: Messages = {
    "ProcessDescriptor": "pid 1 int32, process_name 6 bytes",
    "ThreadDescriptor": "pid 1 int32, tid 2 int64, thread_name 5 bytes",
    "CounterDescriptor": "unit 3 int32, unit_name 6 bytes",
    "TrackDescriptor": (
        "uuid 1 uint64, parent_uuid 5 uint64, name 2 bytes, process 3 ProcessDescriptor, thread 4 ThreadDescriptor, "
        "counter 8 CounterDescriptor, child_ordering 11 int32, sibling_order_rank 12 int32, "
        "sibling_merge_behavior 15 int32, process_ordering 19 int32, thread_ordering 20 int32"
    ),
    # Names and texts, which events refer to by number.
    "InternedText": "iid 1 uint64, text 2 bytes",
    "InternedData": (
        "event_categories 1 []InternedText, event_names 2 []InternedText, debug_annotation_names 3 []InternedText, "
        "debug_annotation_string_values 29 []InternedText"
    ),
    # Arguments are called "debug annotations" in this format.
    "DebugAnnotation": (
        "name_iid 1 uint64, uint_value 3 uint64, int_value 4 int64, double_value 5 double, string_value_iid 17 uint64"
    ),
    "TrackEvent": (
        "category_iids 3 uint64, debug_annotations 4 []DebugAnnotation, type 9 int32, name_iid 10 uint64, "
        "track_uuid 11 uint64, counter_value 30 int64, flow_ids 47 []fixed64, terminating_flow_ids 48 []fixed64"
    ),
    "TracePacket": (
        "timestamp 8 uint64, trusted_packet_sequence_id 10 uint32, track_event 11 TrackEvent, "
        "interned_data 12 InternedData, sequence_flags 13 uint32, compressed_packets 50 bytes, "
        "track_descriptor 60 TrackDescriptor"
    ),
    "Trace": "packet 1 []TracePacket",
}

message_class = Schema("tfperf.perfetto", _MESSAGES, syntax="proto2").message_class


def tag(message_name: str, field: str) -> bytes:
    """Return the protobuf tag of a field: its number and wire type."""
    numbers = {name: (number, kind.removeprefix("[]")) for name, number, kind, _ in fields_of(_MESSAGES[message_name])}
    number, kind = numbers[field]
    wire_type = 1 if kind in ("double", "fixed64") else 2 if kind == "bytes" or kind[0].isupper() else 0
    return one_varint(number << 3 | wire_type)


BATCH = 1 << 17  # maximum number of packets

START, END, INSTANT = 1, 2, 3  # numbers of the format

_NS_PER_US = 1000
_LEVEL = 1  # names repeat so much that a higher level gains little

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
    StatKind.INT: "int_value",
    StatKind.UNSIGNED: "uint_value",
    StatKind.REAL: "double_value",
    StatKind.TEXT: "string_value_iid",
    StatKind.BYTES: "uint_value",
}
_TAG_OF_KIND = np.array(
    [list(tag("DebugAnnotation", _VALUE_OF_KIND[kind]).ljust(2, b"\0")) for kind in StatKind], np.uint8
)


def head() -> bytes:
    """Return the first packet of a file, which orders processes and threads by rank."""
    trace = message_class("Trace")()
    root = trace.packet.add(trusted_packet_sequence_id=1).track_descriptor
    root.uuid, root.process_ordering, root.thread_ordering = 0, _BY_RANK, _BY_RANK
    return bytes(trace.SerializeToString())


def tail(_event_count: int) -> bytes:
    """Return the end of the file, which is empty."""
    return b""


def encode_jobs(groups: Iterable[TrackGroup], sequence: int = 1, track: int = 1) -> Iterator[EncodeJob]:
    """Yield jobs that encode the packets of groups, in order; `sequence` and `track` are the first free numbers."""
    for group in groups:
        ids = GroupIds(sequence, track, group.ticks_per_us)
        yield partial(_descriptors, group, ids)
        yield partial(_texts, group, ids)
        for batch in _batches(group, ids):
            yield partial(_events, batch)
        for position, counter in enumerate(group.counters):
            yield partial(_counter, counter, ids, track + 1 + len(group.tracks) + position)
        sequence, track = sequence + 1, track + track_count(group)


def track_count(group: TrackGroup) -> int:
    """Return the number of track numbers that a group uses."""
    return 1 + len(group.tracks) + len(group.counters)


def _compressed(trace: memoryview | bytes) -> bytes:
    data = zlib.compress(trace, _LEVEL)
    inner = _COMPRESSED_TAG + one_varint(len(data))
    return b"".join((_PACKET_TAG, one_varint(len(inner) + len(data)), inner, data))


def _descriptors(group: TrackGroup, ids: GroupIds) -> bytes:
    """Describe the process and its tracks: threads, extra tracks of events that do not nest on them, counters."""
    trace = message_class("Trace")()
    process = trace.packet.add(trusted_packet_sequence_id=ids.group, sequence_flags=_CLEARED).track_descriptor
    process.uuid, process.name, process.child_ordering = ids.track, _utf8(group.title), _EXPLICIT
    process.sibling_order_rank = process.process.pid = ids.group
    process.process.process_name = _utf8(group.title)
    thread = ids.track
    for rank, shown in enumerate(group.tracks, 1):
        track = trace.packet.add(trusted_packet_sequence_id=ids.group).track_descriptor
        track.uuid, track.name, track.sibling_order_rank = ids.track + rank, _utf8(shown.name), rank
        if shown.extra:
            track.parent_uuid, track.sibling_merge_behavior = thread, _NO_MERGE
        else:
            thread = track.uuid
            track.parent_uuid, track.child_ordering = ids.track, _EXPLICIT
            track.thread.pid, track.thread.tid = ids.group, track.uuid
            track.thread.thread_name = _utf8(shown.name)
    for rank, counter in enumerate(group.counters, 1 + len(group.tracks)):
        track = trace.packet.add(trusted_packet_sequence_id=ids.group).track_descriptor
        track.uuid, track.name, track.parent_uuid = ids.track + rank, _utf8(counter.name), ids.track
        track.sibling_order_rank, track.sibling_merge_behavior = rank, _NO_MERGE
        if counter.unit == "bytes":
            track.counter.unit = _BYTES_UNIT
        else:
            track.counter.unit_name = _utf8(counter.unit)
    return _compressed(trace.SerializeToString())


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _texts(group: TrackGroup, ids: GroupIds) -> bytes:
    """Number the names and texts of the group's events: their indices plus 1."""
    arguments = group.arguments
    trace = message_class("Trace")()
    data = trace.packet.add(trusted_packet_sequence_id=ids.group, sequence_flags=_NEEDED).interned_data
    data.event_categories.add(iid=1, text=_utf8(group.category))
    texts = arguments.value[arguments.kind == StatKind.TEXT]
    _intern(data.event_names, group.names, group.name)
    _intern(data.debug_annotation_names, arguments.labels, arguments.label(slice(None)))
    _intern(data.debug_annotation_string_values, arguments.texts, texts)
    return _compressed(trace.SerializeToString())


def _intern(target: Any, texts: Sequence[str], index: Int32s | Int64s) -> None:
    used = np.zeros(len(texts), np.bool_)
    used[index] = True
    for number in np.flatnonzero(used).tolist():
        target.add(iid=number + 1, text=_utf8(texts[number]))


class _Batch(Struct, frozen=True):
    """Marks of a group; starts and instants belong to rows `start` to `stop`, in this order."""

    group: TrackGroup
    ids: GroupIds
    marks: Marks
    track: Int64s
    start: int
    stop: int


def _batches(group: TrackGroup, ids: GroupIds) -> Iterator[_Batch]:
    marks = marks_of_tracks(group.tracks, group.start, group.end)
    track = group.track_of_row
    start = 0
    for at in range(0, len(marks.kind), BATCH):
        part = Marks(marks.event[at : at + BATCH], marks.kind[at : at + BATCH])
        stop = start + int((part.kind != END).sum())
        yield _Batch(group, ids, part, track[part.event] + ids.track + 1, start, stop)
        start = stop


def _events(batch: _Batch) -> bytes:
    """Return the events of a batch. Start and end are both truncated to nanoseconds, which preserves nesting."""
    group, (event, kind) = batch.group, batch.marks
    is_start, count = kind != END, len(kind)
    time = np.where(is_start, group.start[event], group.end[event])
    all_repeated = [_annotations(batch, is_start)]
    for flow_tag, ends in ((_FLOW, group.leaving), (_TERMINATING_FLOW, group.arriving)):
        first, last = np.searchsorted(ends.row, (batch.start, batch.stop)).tolist()
        arrows = np.zeros(count, np.int64)
        arrows[is_start] = np.bincount(ends.row[first:last] - batch.start, minlength=batch.stop - batch.start)
        all_repeated.append((arrows, beside(constant(flow_tag, last - first), fixed64(ends.arrow[first:last]))))
    repeated = [part for part in all_repeated if len(part[1].size)]
    label = beside(constant(_CATEGORY + _NAME, count), varint(group.name[event] + 1)).only(is_start)
    fields = beside(constant(_TYPE, count), varint(kind), constant(_TRACK, count), varint(batch.track), label)
    extra = sum((sums(counts, items) for counts, items in repeated), np.zeros(count, np.int64))
    heads = _packets(time, batch.ids, prefixed(_TRACK_EVENT, fields, extra), extra)
    return _compressed(below(heads, *repeated) if repeated else heads.to_bytes())


def _packets(time: Int64s, ids: GroupIds, track_event: Cells, extra: Int64s | int = 0) -> Cells:
    per_ns, rest = divmod(ids.ticks_per_us, _NS_PER_US)
    time_ns = time // per_ns if per_ns else time * (_NS_PER_US // rest)
    head = constant(_SEQUENCE + one_varint(ids.group) + _FLAGS + one_varint(_NEEDED) + _TIMESTAMP, len(time_ns))
    return prefixed(_PACKET_TAG, beside(head, varint(time_ns), track_event), extra)


_Repeated = tuple[Int64s, Cells]  # number of values per mark, and all values in order


def _annotations(batch: _Batch, is_start: Bools) -> _Repeated:
    arguments = batch.group.arguments
    items = slice(int(arguments.stop[batch.start]), int(arguments.stop[batch.stop]))
    counts = np.zeros(len(is_start), np.int64)
    counts[is_start] = np.diff(arguments.stop[batch.start : batch.stop + 1])
    kind, value = arguments.kind[items], arguments.value[items]
    is_real, is_text = kind == StatKind.REAL, kind == StatKind.TEXT
    number = np.where(is_text, value + 1, value)
    tags = _TAG_OF_KIND[kind]
    tag_cells = Cells.of(tags, tags != 0, (tags != 0).sum(axis=1))
    values = [varint(np.where(is_real, 0, number)).only(~is_real)]
    if is_real.any():
        values.append(fixed64(value).only(is_real))
    body = beside(constant(_ANNOTATION_NAME, len(kind)), varint(arguments.label(items) + 1), tag_cells, *values)
    return counts, prefixed(_ANNOTATION, body)


def _counter(counter: Counter, ids: GroupIds, track: int) -> bytes:
    head = _TYPE + one_varint(_COUNTER) + _TRACK + one_varint(track) + _COUNTER_VALUE
    fields = beside(constant(head, len(counter.value)), varint(counter.value))
    return _compressed(_packets(counter.time, ids, prefixed(_TRACK_EVENT, fields)).to_bytes())


class Marks(NamedTuple):
    """Events on tracks in order: `kind` for the event in row `event`."""

    event: Int64s
    kind: Uint8s


def marks_of_tracks(tracks: Sequence[Track], start: Int64s, end: Int64s) -> Marks:
    """Return the marks of all tracks in sequence; starts and instants are in row order."""
    parts = [Marks(NO_NUMBERS, np.empty(0, np.uint8))]
    for extra, run in groupby(tracks, lambda track: track.extra):
        # Single tracks, or a run of extra ones, which may be numerous.
        for block in [[*run]] if extra else [[track] for track in run]:
            first, stop = block[0].start, block[-1].stop
            if extra:
                lane = np.repeat(np.arange(len(block)), [track.stop - track.start for track in block])
                order = start_end_order(lane, start[first:stop], end[first:stop])
                marks = Marks(order % len(lane), np.where(order < len(lane), START, END).astype(np.uint8))
            else:
                marks = nested_marks(start[first:stop], end[first:stop])
            parts.append(Marks(marks.event + first, marks.kind))
    return Marks(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def nested_marks(start: Int64s, end: Int64s) -> Marks:
    """Return the marks of one track whose events nest; rows are sorted by start, the longer first.

    At equal times, ends come first (the inner before the outer), then starts (the outer before the inner), then
    instants. So the position of a mark is the number of marks of earlier rows plus the number of earlier ends.
    """
    is_slice = end > start
    slices, instants = np.flatnonzero(is_slice), np.flatnonzero(~is_slice)
    starts, slice_ends, moments = start[slices], end[slices], start[instants]
    ends = np.sort(slice_ends)
    number, count = np.arange(len(slices)), 2 * len(slices) + len(instants)
    depth = number - np.searchsorted(ends, starts, side="right")
    place_of_start = 2 * number - depth + np.searchsorted(moments, starts, side="left")
    started = np.searchsorted(starts, slice_ends, side="left")
    place_of_end = 2 * started - depth - 1 + np.searchsorted(moments, slice_ends, side="left")
    marks_before = np.searchsorted(starts, moments, side="right") + np.searchsorted(ends, moments, side="right")
    place_of_instant = marks_before + np.arange(len(instants))
    event, kind = np.empty(count, np.int64), np.empty(count, np.uint8)
    event[place_of_start], kind[place_of_start] = slices, START
    event[place_of_end], kind[place_of_end] = slices, END
    event[place_of_instant], kind[place_of_instant] = instants, INSTANT
    return Marks(event, kind)
