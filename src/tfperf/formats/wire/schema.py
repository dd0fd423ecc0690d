"""Schemas of XSpace and TensorFlow's profiler server as tables, built into separate protobuf descriptors.

Field numbers are those of `xplane.proto` (the published profiler format) and of `/tensorflow.ProfilerService` in
TensorFlow 2.21. The descriptor pools and packages are separate, so that TensorFlow's copies can be loaded in the same
process. XSpace has two views of the same bytes:

- full messages (`XSpace`, ...), for writing test traces and for reading plane-level facts;
- projections (`Line`, `Event`, `Stat`, ...) that omit fields or keep nested messages as bytes. The decoder skips
  omitted fields.

Projections declare text as bytes: a name with invalid UTF-8 must not make a whole trace unreadable. The server's
`xspace` is bytes, because traces are passed on without parsing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

PACKAGE = "tfperf.formats.wire"
LARGEST_MESSAGE = (1 << 31) - 1
"""Limit of protobuf and of 32-bit offsets, in bytes."""

Messages = Mapping[str, str]
"""message -> fields as `name number type`: "[]" is repeated, a capital letter a message, a last word a oneof."""

MESSAGES: Messages = {
    "XStat": (
        "metadata_id 1 int64, double_value 2 double value, uint64_value 3 uint64 value, int64_value 4 int64 value, "
        "str_value 5 bytes value, bytes_value 6 bytes value, ref_value 7 uint64 value"
    ),
    "XEvent": (
        "metadata_id 1 int64, offset_ps 2 int64 data, num_occurrences 5 int64 data, duration_ps 3 int64, "
        "stats 4 []XStat"
    ),
    "XLine": (
        "id 1 int64, display_id 10 int64, name 2 bytes, display_name 11 bytes, timestamp_ns 3 int64, "
        "duration_ps 9 int64, events 4 []XEvent"
    ),
    "XEventMetadata": (
        "id 1 int64, name 2 bytes, metadata 3 bytes, display_name 4 bytes, stats 5 []XStat, child_id 6 []int64"
    ),
    "XStatMetadata": "id 1 int64, name 2 bytes, description 3 bytes",
    "EventMetadataEntry": "key 1 int64, value 2 XEventMetadata",
    "StatMetadataEntry": "key 1 int64, value 2 XStatMetadata",
    "XPlane": (
        "id 1 int64, name 2 bytes, lines 3 []XLine, event_metadata 4 []EventMetadataEntry, "
        "stat_metadata 5 []StatMetadataEntry, stats 6 []XStat"
    ),
    "XSpace": "planes 1 []XPlane, errors 2 []bytes, warnings 3 []bytes, hostnames 4 []bytes",
    # Messages in byte stats of TPUs.
    "CoreDetails": (
        "device_ordinal 2 int64, core_num 3 int64, local_chip_id 4 int64, global_chip_id 5 int64, "
        "global_core_id 6 int64, is_sparse_core 7 bool"
    ),
    "MemoryAccesses": "accesses 1 []MemoryAccess",
    "MemoryAccess": "operation 1 int64, space 2 int64, bytes 3 int64",
    # Projections: the same bytes, fewer columns.
    "Event": "metadata_id 1 int64, offset_ps 2 int64, duration_ps 3 int64, stats 4 []bytes, num_occurrences 5 int64",
    "Line": "id 1 int64, name 2 bytes, timestamp_ns 3 int64, events 4 []bytes, display_name 11 bytes",
    "Lines": "lines 3 []Line",
    "NumericStat": (
        "metadata_id 1 int64, double_value 2 double value, uint64_value 3 uint64 value, int64_value 4 int64 value, "
        "ref_value 7 uint64 value"
    ),
    "NumericEvent": (
        "metadata_id 1 int64, offset_ps 2 int64 data, num_occurrences 5 int64 data, duration_ps 3 int64, "
        "stats 4 []NumericStat"
    ),
    "NumericLine": (
        "id 1 int64, display_id 10 int64, name 2 bytes, display_name 11 bytes, timestamp_ns 3 int64, "
        "duration_ps 9 int64, events 4 []NumericEvent"
    ),
    "NumericLines": "lines 3 []NumericLine",
    "LineOutline": "",
    "LinesOutline": "lines 3 []LineOutline",
    "Stat": (
        "metadata_id 1 int64, double_value 2 double, uint64_value 3 uint64, int64_value 4 int64, str_value 5 bytes, "
        "bytes_value 6 bytes, ref_value 7 uint64"
    ),
    "EventMetadata": "name 2 bytes, display_name 4 bytes, stats 5 []bytes",
    "StatMetadata": "name 2 bytes",
    "EventMetadataItem": "key 1 int64, value 2 EventMetadata",
    "StatMetadataItem": "key 1 int64, value 2 StatMetadata",
    "PlaneHeader": (
        "id 1 int64, name 2 bytes, lines 3 []bytes, event_metadata 4 []EventMetadataItem, "
        "stat_metadata 5 []StatMetadataItem, stats 6 []XStat"
    ),
}


def fields_of(message: str) -> Iterator[tuple[str, int, str, list[str]]]:
    """Yield (name, number, type, oneof if any) of a message's fields."""
    for field in filter(None, message.split(", ")):
        name, number, kind, *oneof = field.split()
        yield name, int(number), kind, oneof


def parts_of(messages: Messages, fields: Mapping[str, str]) -> dict[str, str]:
    """Select fields of messages: `{"Part of Whole": "name other=bytes"}` keeps numbers and types.

    Write `Whole` to keep its name, `name=type` to change a type. Raise KeyError for a missing field.
    """
    parts = {}
    for names, chosen in fields.items():
        part, _, whole = names.partition(" of ")
        declared = {name: (number, kind) for name, number, kind, _ in fields_of(messages[whole or part])}
        found = []
        for field in chosen.split():
            name, _, other_kind = field.partition("=")
            number, kind = declared[name]
            found.append(f"{name} {number} {other_kind or kind}")
        parts[part] = ", ".join(found)
    return parts


class Schema:
    """Descriptors and classes of some messages, built on first use."""

    def __init__(self, package: str, messages: Messages, *, syntax: str = "proto3") -> None:
        self._package, self.messages, self._syntax = package, messages, syntax

    @cached_property
    def _pool(self) -> Any:
        """Return a descriptor pool with only these messages."""
        package = self._package
        file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax=self._syntax)
        for message_name, fields in self.messages.items():
            message = file.message_type.add(name=message_name)
            for name, number, kind, oneof in fields_of(fields):
                label = "LABEL_REPEATED" if kind.startswith("[]") else "LABEL_OPTIONAL"
                kind = kind.removeprefix("[]")
                scalar = "MESSAGE" if kind[0].isupper() else kind.upper()
                field = message.field.add(name=name, number=number, label=label, type=f"TYPE_{scalar}")
                if kind[0].isupper():
                    field.type_name = f".{package}.{kind}"
                if oneof:
                    field.oneof_index = 0
                    if not message.oneof_decl:
                        message.oneof_decl.add(name=oneof[0])
        pool = descriptor_pool.DescriptorPool()
        pool.AddSerializedFile(file.SerializeToString())
        return pool

    def descriptor(self, message_name: str) -> Descriptor:
        """Return the descriptor of a message."""
        message: Descriptor = self._pool.FindMessageTypeByName(f"{self._package}.{message_name}")
        return message

    def message_class(self, message_name: str) -> Any:
        """Return the protobuf class of a message."""
        return message_factory.GetMessageClass(self.descriptor(message_name))


XSPACE = Schema(PACKAGE, MESSAGES)
descriptor, message_class = XSPACE.descriptor, XSPACE.message_class


SERVICE = "tensorflow.ProfilerService"
OPTIONS_VERSION = 1
"""In version 1 of the options, an omitted level is zero instead of TensorFlow's default."""

OVERHEAD_KEY = "tfperf-overhead-percent"
"""Trailing metadata in which `tfperf.serve` reports the profiling overhead."""

_SERVICE_MESSAGES: Messages = {
    "ProfileOptions": (
        "include_dataset_ops 1 bool, host_tracer_level 2 uint32, device_tracer_level 3 uint32, "
        "python_tracer_level 4 uint32, version 5 uint32, device_type 6 int32, enable_hlo_proto 7 bool, "
        "start_timestamp_ns 8 uint64, duration_ms 9 uint64, repository_path 10 string, "
        "advanced_configuration 12 []AdvancedEntry, "
        "raise_error_on_start_failure 13 bool, session_id 14 string, override_hostname 15 string"
    ),
    "AdvancedEntry": "key 1 string, value 2 AdvancedValue",
    "AdvancedValue": "string_value 1 string value, bool_value 2 bool value, int64_value 3 int64 value",
    "ProfileRequest": (
        "duration_ms 1 uint64, max_events 2 uint64, tools 3 []string, opts 4 ProfileOptions, "
        "repository_root 5 string, session_id 6 string, host_name 7 string, emit_xspace 9 bool"
    ),
    "ProfileResponse": "empty_trace 7 bool, xspace 8 bytes",
    "TerminateRequest": "session_id 1 string",
    "Empty": "",
}

PROFILER = Schema("tfperf.service", _SERVICE_MESSAGES)


def read_message(message_name: str, data: bytes) -> Any:
    """Parse one of the messages above; raise ValueError for invalid bytes."""
    try:
        return PROFILER.message_class(message_name).FromString(data)
    except DecodeError as error:
        raise ValueError(f"not a {message_name}") from error
