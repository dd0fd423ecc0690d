"""Compiled XLA programs in a profile: the plane `/host:metadata` holds them, `tfperf.formats.hlo` parses them."""

from __future__ import annotations

from google.protobuf.message import DecodeError

from tfperf.formats.wire.schema import message_class
from tfperf.formats.wire.trace_file import PlaneSpan, TraceFile

PROGRAM_PLANE = "/host:metadata"
HLO_PROTO = "Hlo Proto"
"""The stat that holds a program."""


def read_programs(file: TraceFile, span: PlaneSpan) -> dict[int, bytes]:
    """Return the serialized programs of the plane by program id; none if it cannot be parsed."""
    plane = message_class("XPlane")()
    try:
        plane.ParseFromString(file.read_all(span.header))
    except DecodeError:
        return {}
    names = {entry.key: entry.value.name.decode("utf-8", "replace") for entry in plane.stat_metadata}
    programs: dict[int, bytes] = {}
    for entry in plane.event_metadata:
        stats = {names.get(stat.metadata_id, ""): stat for stat in entry.value.stats}
        if HLO_PROTO in stats:
            stat = stats.get("program_id")
            program_id = int(stat.int64_value or stat.uint64_value) if stat is not None else entry.key
            signed = program_id - (1 << 64) if program_id >= 1 << 63 else program_id
            programs[signed] = stats[HLO_PROTO].bytes_value
    return programs
