"""The rule about slices and concatenations: pieces that do not end where tiles end."""

from __future__ import annotations

from collections.abc import Iterator

from tfperf.models.linter.hlo_rules.place import Place
from tfperf.models.linter.padding import LANES, MIB, SUBLANES
from tfperf.models.linter.rule import Ledger, Violation


def check_piece(place: Place, ledger: Ledger) -> None:
    """TPU-CS-1: cuts that a program asks for, of 1 MiB or more, along a dimension that is padded."""
    instruction = place.instruction
    whole = instruction.shape if instruction.opcode == "concatenate" else place.operand(0)
    if not place.name or whole is None or whole.is_tuple or whole.bytes < MIB:
        return
    ledger.judge(instruction.name)
    multiples = {len(whole.dims) - 2: SUBLANES, len(whole.dims) - 1: LANES}
    for axis, boundary in _boundaries(place):
        multiple = multiples.get(axis, 1)
        if boundary % multiple:
            ledger.add(
                Violation(
                    rule="TPU-CS-1",
                    level="medium",
                    what=f"{whole} is cut along dimension {axis} at {boundary}, no multiple of {multiple}",
                    advice=f"cut along a dimension that is not padded, or at multiples of {multiple}",
                    unless="the compiler fuses the cut into what reads it",
                    moved_bytes=whole.bytes,
                    **place.where,
                )
            )
            return


def _boundaries(place: Place) -> Iterator[tuple[int, int]]:
    """Yield dimensions, and where the whole is cut along them."""
    instruction = place.instruction
    if instruction.opcode == "concatenate" and instruction.dimensions:
        axis, end = instruction.dimensions[0], 0
        for number in range(len(place.node.operands) - 1):
            piece = place.operand(number)
            if piece is None or axis >= len(piece.dims):
                return
            end += piece.dims[axis]
            yield axis, end
        return
    whole = place.operand(0)
    for axis, (start, limit, _) in enumerate(instruction.slices):
        if whole is not None and axis < len(whole.dims):
            yield from ((axis, at) for at in (start, limit) if 0 < at < whole.dims[axis])
