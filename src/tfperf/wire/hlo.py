"""Compiled XLA programs that a profile carries, in the plane `/host:metadata`: which op each instruction comes from."""

from __future__ import annotations

from google.protobuf.message import DecodeError
from msgspec import Struct

from tfperf.wire.schema import message_class
from tfperf.wire.trace_file import PlaneSpan, TraceFile

PROGRAM_PLANE = "/host:metadata"
HLO_PROTO = "Hlo Proto"
"""The stat that holds a program."""


class Instruction(Struct, frozen=True):
    """An HLO instruction: its opcode, and the op of the framework that it was compiled from."""

    opcode: str
    op_name: str
    op_type: str


class Program(Struct, frozen=True):
    """A compiled module: its name, and its instructions by name."""

    module: str
    instructions: dict[str, Instruction]


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


def parse_program(serialized: bytes) -> Program | None:
    """Return a program, or None for bytes that are not a program."""
    proto = message_class("HloProto")()
    try:
        proto.ParseFromString(serialized)
    except DecodeError:
        return None
    instructions = {
        _text(item.name): Instruction(_text(item.opcode), _text(item.metadata.op_name), _text(item.metadata.op_type))
        for computation in proto.hlo_module.computations
        for item in computation.instructions
    }
    return Program(_text(proto.hlo_module.name), instructions)


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")
