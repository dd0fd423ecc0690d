"""Programs of XLA as bytes, by hand.

program(computation("main", instruction(1, "a", "parameter", shape(F32, 8))))
"""

from __future__ import annotations

from collections.abc import Iterable

from protobytes import field, message

F32, F64, S32, TUPLE, BF16, FP8 = 11, 12, 4, 13, 16, 20


def shape(kind: int, *dims: int, parts: Iterable[bytes] = (), layout: bytes = b"") -> bytes:
    """A `ShapeProto`."""
    made = message(field(2, kind), *(field(3, dim) for dim in dims), *(field(4, part) for part in parts))
    return made + (field(5, layout) if layout else b"")


def layout(*minor_to_major: int, tiles: Iterable[Iterable[int]] = ()) -> bytes:
    """A `LayoutProto`."""
    made = message(*(field(1, dim) for dim in minor_to_major))
    return made + message(*(field(6, message(*(field(1, size) for size in tile))) for tile in tiles))


def instruction(  # noqa: PLR0913, PLR0917
    number: int,
    name: str,
    opcode: str,
    of: bytes,
    operands: Iterable[int] = (),
    calls: Iterable[int] = (),
    extra: bytes = b"",
) -> bytes:
    """A `HloInstructionProto`; `extra` are further fields."""
    return message(
        field(1, name.encode()),
        field(2, opcode.encode()),
        field(3, of),
        field(35, number),
        *(field(36, operand) for operand in operands),
        *(field(38, call) for call in calls),
        extra,
    )


def computation(name: str, *instructions: bytes, number: int = 1, root: int = 1) -> bytes:
    """A `HloComputationProto`."""
    return message(
        field(1, name.encode()), *(field(2, each) for each in instructions), field(5, number), field(6, root)
    )


def module(*computations: bytes, entry: int = 1, extra: bytes = b"") -> bytes:
    """A `HloModuleProto`."""
    made = message(field(1, b"jit_step"), field(2, b"main"), *(field(3, each) for each in computations))
    return made + field(5, 7) + field(6, entry) + extra


def program(*computations: bytes, entry: int = 1, extra: bytes = b"", buffers: bytes = b"") -> bytes:
    """A `HloProto`; `extra` are further fields of the module."""
    return field(1, module(*computations, entry=entry, extra=extra)) + (field(3, buffers) if buffers else b"")


def scheduled(**orders: Iterable[int]) -> bytes:
    """The schedule of a module, as its `extra`: `scheduled(c1=[3, 1])` orders computation 1 by ids of instructions."""
    made = (
        message(field(1, int(key[1:])), field(2, message(*(field(1, number) for number in order))))
        for key, order in orders.items()
    )
    return field(7, message(*(field(1, sequence) for sequence in made)))


# --- buffer assignments ---
ALLOCATE, FREE, SHARE = 0, 1, 2
PARAMETER, LIVE_OUT, CONSTANT, THREAD, COLOR = 5, 7, 12, 3, 8


def value(number: int, size: int, instruction_id: int, *index: int) -> bytes:
    """A `LogicalBufferProto`."""
    place = message(*(field(3, each) for each in index), field(4, instruction_id))
    return field(1, message(field(1, number), field(2, size), field(3, place)))


def allocation(size: int, *values: int, **kinds: int) -> bytes:
    """A `BufferAllocationProto` of these values."""
    numbers = {"parameter": PARAMETER, "live_out": LIVE_OUT, "constant": CONSTANT, "thread": THREAD, "space": COLOR}
    assigned = (field(9, message(field(1, each))) for each in values)
    return field(3, message(field(2, size), *(field(numbers[kind], at) for kind, at in kinds.items()), *assigned))


def heap_trace(*events: tuple[int, ...]) -> bytes:
    """A `HeapSimulatorTrace` of (kind, value) or (SHARE, value, value)."""
    made = (
        message(field(1, kind), field(2, number), *(field(5, other) for other in shared))
        for kind, number, *shared in events
    )
    return field(4, message(*(field(1, each) for each in made)))


def named(op_name: str, line: int) -> bytes:
    """The op and line of an instruction, as its `extra`."""
    return field(7, message(field(2, op_name.encode()), field(3, b"train.py"), field(4, line)))


def vector(size: int) -> bytes:
    """The shape of a vector of 32-bit floats."""
    return shape(F32, size, layout=layout(0))
