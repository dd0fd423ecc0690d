"""How much an instruction of a TPU reads and writes in each memory, as `memory_access_breakdown` states it."""

from __future__ import annotations

from google.protobuf.message import DecodeError

from tfperf.formats.wire.schema import message_class

HBM = 1
"""The main memory of the chip, as this stat numbers memories; layouts of programs have other numbers."""


def accessed_bytes(breakdown: str, space: int = HBM) -> int | None:
    """Return the bytes that one run reads and writes in a memory; `breakdown` is the stat, a byte for each character.

    0: it touches only other memories, as the start of a copy to the device does. None: the stat is damaged.
    """
    try:
        accesses = message_class("MemoryAccesses").FromString(breakdown.encode("latin-1")).accesses
    except (DecodeError, UnicodeEncodeError):
        return None
    sizes = [access.bytes for access in accesses if access.space == space]
    return sum(sizes) if all(size >= 0 for size in sizes) else None
