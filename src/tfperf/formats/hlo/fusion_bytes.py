"""What a fusion reads and writes: its inner results stay in registers, and of a parameter only what is used is read."""

from __future__ import annotations

from tfperf.formats.hlo.cost_rules import as_operand
from tfperf.formats.hlo.model import Computation, Instruction, Module

_XLA_CONSTANT, _CONSTANT = 1, 8
"""Elements up to which a constant inside a fusion is a part of the code: XLA's number, and that of GPUs."""


class FusionReads:
    """Bytes of fusions of one module; what a computation reads of its parameters is worked out once."""

    def __init__(self, module: Module, *, corrected: bool) -> None:
        self.corrected = corrected
        self._module = module
        self._reads: dict[int, tuple[int, ...]] = {}
        self._kept: dict[int, tuple[int, int | None]] = {}
        self._of_operands: dict[int, dict[int, int]] = {}

    def bytes_of(self, fusion: Instruction) -> int:
        """Return what a fusion moves; raises IndexError if it calls nothing."""
        at = fusion.calls[0]
        if at not in self._kept:
            computation = self._module.computations[at]
            largest = _CONSTANT if self.corrected else _XLA_CONSTANT
            constants = sum(
                each.shape.bytes
                for each in computation.instructions
                if each.opcode == "constant" and each.shape.elements > largest
            )
            self._kept[at] = sum(self._read(at)) + constants, _written(computation)
        moved, written = self._kept[at]
        return moved + (fusion.shape.bytes if written is None else written)

    def _read(self, at: int) -> tuple[int, ...]:
        """Return the bytes that a computation reads of each of its parameters.

        Fusions inside of it were costed before, so that what those read is known.
        """
        if at not in self._reads:
            computation = self._module.computations[at]
            self._reads[at] = tuple([self._read_of(computation, place) for place in computation.parameters])
        return self._reads[at]

    def _read_of(self, computation: Computation, place: int) -> int:
        total, waiting, seen = 0, [place], {place}
        while waiting:
            place = waiting.pop()
            if computation.instructions[place].shape.is_tuple:
                users = computation.users[place]
                parts = [user for user in users if computation.instructions[user].opcode == "get-tuple-element"]
                waiting += [part for part in parts if part not in seen]
                seen.update(parts)
            else:
                total += self._read_of_array(computation, place)
        return total

    def _read_of_array(self, computation: Computation, place: int) -> int:
        whole = computation.instructions[place].shape.bytes
        users = [computation.instructions[user] for user in computation.users[place]]
        if self.corrected:
            if place == computation.root:
                return whole
            if users and all(each.opcode == "gather" and each.operands[0] == place for each in users):
                return sum(each.shape.bytes for each in users)
        total = 0
        others = False
        for user in users:
            first = user.operands[0] == place
            if user.opcode == "fusion":
                total += self._read_by_fusion(user, place)
            elif user.opcode == "slice" or (user.opcode == "dynamic-slice" and first):
                total += user.shape.bytes
            elif user.opcode in ("broadcast", "reshape"):
                total += whole
            elif not (user.opcode == "dynamic-update-slice" and first):
                others = True
        return total + whole * others

    def _read_by_fusion(self, fusion: Instruction, place: int) -> int:
        """Return what a fusion reads of one of its operands; that of all is worked out together."""
        if id(fusion) not in self._of_operands:
            computation = self._module.computations[fusion.calls[0]]
            by_number = {
                computation.instructions[at].parameter: read
                for at, read in zip(computation.parameters, self._read(fusion.calls[0]), strict=True)
            }
            of_operands = self._of_operands[id(fusion)] = dict.fromkeys(fusion.operands, 0)
            for number, operand in enumerate(fusion.operands):
                of_operands[operand] += by_number.get(number, 0)
        return self._of_operands[id(fusion)][place]


def _written(computation: Computation) -> int | None:
    """Return what a fusion writes by the end of its computation; None: all of its result."""
    root = computation.root_instruction
    if root.opcode == "tuple":
        return sum(_result(computation.instructions[at], computation) for at in root.operands)
    return _update(root, computation) if root.opcode == "dynamic-update-slice" else None


def _result(instruction: Instruction, computation: Computation) -> int:
    if instruction.opcode == "dynamic-update-slice":
        return _update(instruction, computation)
    return instruction.shape.bytes


def _update(instruction: Instruction, computation: Computation) -> int:
    """Return what is written where the rest of an array stays as it is."""
    return as_operand(computation.instructions[instruction.operands[1]].shape)
