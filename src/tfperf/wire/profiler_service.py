"""The messages of TensorFlow's profiler server, and a reply taken apart without copying the trace in it.

Names and numbers are those of `/tensorflow.ProfilerService` as TensorFlow 2.21 answers it; the messages live in a
package and a descriptor pool of their own. `xspace` is declared as bytes: a trace is passed on, not looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from google.protobuf import message_factory
from google.protobuf.message import DecodeError

from tfperf.errors import CaptureError
from tfperf.wire import schema

SERVICE = "tensorflow.ProfilerService"
OPTIONS_VERSION = 1
"""Version 1 of the options: levels that are left out are zero, not TensorFlow's defaults."""

OVERHEAD_KEY = "tfperf-overhead-percent"
"""Trailing metadata in which `tfperf.serve` tells by how much profiling made steps longer."""

_PACKAGE = "tfperf.service"
_MESSAGES: schema.Messages = {
    "ProfileOptions": {
        "include_dataset_ops": (1, "bool"),
        "host_tracer_level": (2, "uint32"),
        "device_tracer_level": (3, "uint32"),
        "python_tracer_level": (4, "uint32"),
        "version": (5, "uint32"),
        "device_type": (6, "int32"),
        "enable_hlo_proto": (7, "bool"),
        "start_timestamp_ns": (8, "uint64"),
        "duration_ms": (9, "uint64"),
        "repository_path": (10, "string"),
        "raise_error_on_start_failure": (13, "bool"),
        "session_id": (14, "string"),
        "override_hostname": (15, "string"),
    },
    "ProfileRequest": {
        "duration_ms": (1, "uint64"),
        "max_events": (2, "uint64"),
        "tools": (3, "[]string"),
        "opts": (4, "ProfileOptions"),
        "repository_root": (5, "string"),
        "session_id": (6, "string"),
        "host_name": (7, "string"),
        "emit_xspace": (9, "bool"),
    },
    "ProfileResponse": {"empty_trace": (7, "bool"), "xspace": (8, "bytes")},
    "TerminateRequest": {"session_id": (1, "string")},
    "Empty": {},
}
_XSPACE_TAG = 8 << 3 | 2
_EMPTY_TRACE_TAG = 7 << 3


@lru_cache(maxsize=1)
def _pool() -> Any:
    return schema.build_pool(_PACKAGE, _MESSAGES)


def message_class(message_name: str) -> Any:
    """Return the protobuf class of one of the messages above."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{_PACKAGE}.{message_name}"))


def read_message(message_name: str, data: bytes) -> Any:
    """Parse one of the messages above; raises ValueError if the bytes are none."""
    try:
        return message_class(message_name).FromString(data)
    except DecodeError as error:
        raise ValueError(f"no {message_name}") from error


@dataclass(frozen=True, slots=True)
class Reply:
    """A ProfileResponse: `xspace` is a view into the reply, None if the server sent no trace along."""

    empty_trace: bool
    xspace: memoryview | None


def split_reply(reply: bytes | memoryview) -> Reply:
    """Find the trace in a serialized ProfileResponse; raises CaptureError `bad_reply` if it is none."""
    view, position = memoryview(reply), 0
    empty, found = False, None
    while position < len(view):
        tag, position = _varint(view, position)
        value, position = _skip_value(view, position, tag & 7)
        if tag == _XSPACE_TAG:
            found = view[value:position]
        elif tag == _EMPTY_TRACE_TAG:
            empty = view[value] != 0
        if position > len(view):
            raise _bad(position)
    return Reply(empty, found)


def reply_head(size_bytes: int, *, empty_trace: bool) -> bytes:
    """Return what precedes a trace of that size in a serialized ProfileResponse: made apart, so as not to copy it."""
    head = bytearray(message_class("ProfileResponse")(empty_trace=empty_trace).SerializeToString())
    head.append(_XSPACE_TAG)
    while size_bytes > 0x7F:
        head.append(size_bytes & 0x7F | 0x80)
        size_bytes >>= 7
    head.append(size_bytes)
    return bytes(head)


def _skip_value(view: memoryview, position: int, wire_type: int) -> tuple[int, int]:
    """Return where the bytes of a field begin and end."""
    if wire_type == 0:
        return position, _varint(view, position)[1]
    if wire_type == 2:
        length, position = _varint(view, position)
        return position, position + length
    if wire_type in (1, 5):
        return position, position + (8 if wire_type == 1 else 4)
    raise _bad(position)


def _varint(view: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(view):
            break
        byte = view[position]
        value, position = value | (byte & 0x7F) << shift, position + 1
        if byte < 0x80:
            return value, position
    raise _bad(position)


def _bad(position: int) -> CaptureError:
    return CaptureError("bad_reply", f"the server's reply is damaged at byte {position}; try again")
