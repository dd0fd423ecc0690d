"""The part of Perfetto's trace format that tfperf writes, as tables, built into protobuf descriptors of our own.

Field numbers are those of Perfetto's published format; package and pool are our own, so that Perfetto's classes can be
loaded in the same process. Unlike the schema of profiles this is proto2, as Perfetto's is: a number that is zero is
written, and repeated numbers are not packed (its reader takes no packed ones here).

Text is declared as bytes, as in the schema of profiles. Events, of which there are millions, are not made with these
classes but written by `wire/encode.py`, which needs the tags of their fields.
"""

from __future__ import annotations

from tfperf.formats.wire.encode import one_varint
from tfperf.formats.wire.schema import Messages, Schema, fields_of

_MESSAGES: Messages = {
    "ProcessDescriptor": "pid 1 int32, process_name 6 bytes",
    "ThreadDescriptor": "pid 1 int32, tid 2 int64, thread_name 5 bytes",
    "CounterDescriptor": "unit 3 int32",
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
    # An argument is a "debug annotation" there.
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
    """Return the bytes that precede the value of a field: its number and how it is stored."""
    numbers = {name: (number, kind.removeprefix("[]")) for name, number, kind, _ in fields_of(_MESSAGES[message_name])}
    number, kind = numbers[field]
    wire_type = 1 if kind in ("double", "fixed64") else 2 if kind == "bytes" or kind[0].isupper() else 0
    return one_varint(number << 3 | wire_type)
