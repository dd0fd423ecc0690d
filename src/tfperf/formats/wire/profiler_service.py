"""The messages of TensorFlow's profiler server.

Names and numbers are those of `/tensorflow.ProfilerService` as TensorFlow 2.21 answers it; the messages live in a
package and a descriptor pool of their own. `xspace` is declared as bytes: a trace is passed on, not parsed.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError

from tfperf.formats.wire import schema

SERVICE = "tensorflow.ProfilerService"
OPTIONS_VERSION = 1
"""In version 1 of the options, an omitted level is zero, not TensorFlow's default."""

OVERHEAD_KEY = "tfperf-overhead-percent"
"""Trailing metadata with which `tfperf.serve` reports by how much profiling made steps longer."""

_MESSAGES: schema.Messages = {
    "ProfileOptions": (
        "include_dataset_ops 1 bool, host_tracer_level 2 uint32, device_tracer_level 3 uint32, "
        "python_tracer_level 4 uint32, version 5 uint32, device_type 6 int32, enable_hlo_proto 7 bool, "
        "start_timestamp_ns 8 uint64, duration_ms 9 uint64, repository_path 10 string, "
        "raise_error_on_start_failure 13 bool, session_id 14 string, override_hostname 15 string"
    ),
    "ProfileRequest": (
        "duration_ms 1 uint64, max_events 2 uint64, tools 3 []string, opts 4 ProfileOptions, "
        "repository_root 5 string, session_id 6 string, host_name 7 string, emit_xspace 9 bool"
    ),
    "ProfileResponse": "empty_trace 7 bool, xspace 8 bytes",
    "TerminateRequest": "session_id 1 string",
    "Empty": "",
}

message_class = schema.Schema("tfperf.service", _MESSAGES).message_class


def read_message(message_name: str, data: bytes) -> Any:
    """Parse one of the messages above; raises ValueError if the bytes are not one."""
    try:
        return message_class(message_name).FromString(data)
    except DecodeError as error:
        raise ValueError(f"not a {message_name}") from error
