"""What the instructions of a program are called: all that most questions about a trace ask of its programs.

Shapes, operands and the rest stay undecoded, which takes a fraction of the time of `hlo_proto.py`.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError
from msgspec import Struct

from tfperf.formats.hlo.messages import XLA


class NamedInstruction(Struct, frozen=True, gc=False):
    """An instruction: its opcode, and the op of the framework that it was compiled from."""

    opcode: str
    op_name: str
    op_type: str


class NamedProgram(Struct, frozen=True):
    """A program: its name, its instructions by name, and the numbers of the devices that it runs on (none: unknown)."""

    module: str
    instructions: dict[str, NamedInstruction]
    devices: tuple[int, ...] = ()


def read_names(serialized: bytes) -> NamedProgram | None:
    """Return the names in a serialized `HloProto`, or None for bytes that are none."""
    try:
        module = XLA.message_class("NamedProto").FromString(serialized).hlo_module
    except DecodeError:
        return None
    instructions = {
        _text(item.name): NamedInstruction(
            _text(item.opcode), _text(item.metadata.op_name), _text(item.metadata.op_type)
        )
        for computation in module.computations
        for item in computation.instructions
    }
    devices = {each for of_one in module.device_assignment.computation_devices for each in of_one.replica_device_ids}
    return NamedProgram(_text(module.name), instructions, tuple(sorted(devices)))


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")
