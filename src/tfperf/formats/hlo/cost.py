"""What instructions of a program compute and move, by their shapes.

Two countings. `xla` is that of XLA itself (`hlo_cost_analysis`): a loop once, the library's calls unknown. `corrected`
is what the hardware has to do: calls into libraries where their work can be told, a loop as often as the program says,
the rows of a table that a gather reads instead of the whole, and nothing twice where an operation has a start and an
end. What neither knows stays unknown.
"""

from __future__ import annotations

from functools import cached_property
from typing import Literal

from msgspec import Struct

from tfperf.formats.hlo.cost_rules import (
    BODIES,
    CORRECTED,
    RULES,
    UNCOUNTED,
    UNKNOWN_WORK,
    Site,
    Work,
    as_operand,
    largest_work,
    library_work,
    total_work,
    trip_count,
)
from tfperf.formats.hlo.model import Computation, Instruction, Module, ProgramError

Counting = Literal["xla", "corrected"]


class Cost(Struct, frozen=True, gc=False):
    """What an instruction or a computation does in one run; in `corrected`, whatever runs inside of it included.

    None is unknown: some of it cannot be told. `work` has the part that is known.
    """

    work: Work

    @property
    def flops(self) -> int | None:
        """Return the operations on numbers, multiplication and addition apart; comparisons and integers count too."""
        return None if self.work.unknown_flops else self.work.flops

    @property
    def matrix_flops(self) -> int | None:
        """Return those flops that belong to dots and convolutions, calls into libraries included."""
        return None if self.work.unknown_flops else self.work.matrix_flops

    @property
    def transcendentals(self) -> int | None:
        """Return the values of functions such as exp and tanh, which are no flops."""
        return None if self.work.unknown_flops else self.work.transcendentals

    @property
    def bytes(self) -> int | None:
        """Return what is read and written, if nothing stays in a cache."""
        return None if self.work.unknown_bytes else self.work.bytes


class ModuleCost(Struct, frozen=True, dict=True):
    """The costs of a module: of each instruction of each computation, and of whole computations, by position."""

    module: Module
    instructions: tuple[tuple[Cost, ...], ...]
    computations: tuple[Cost, ...]

    @property
    def entry(self) -> Cost:
        """Return what a run of the program does."""
        return self.computations[self.module.entry_at]

    @cached_property
    def by_name(self) -> dict[str, Cost]:
        """Return the cost of each instruction by its name."""
        return {name: self.instructions[at][place] for name, (at, place) in self.module.by_name.items()}


def cost_of(module: Module, counting: Counting = "corrected") -> ModuleCost:
    """Return the cost of each instruction of a module.

    Raises ProgramError where an instruction lacks what its opcode needs.
    """
    corrected = counting == "corrected"
    reads = FusionReads(module, corrected=corrected)
    works: list[tuple[Work, ...]] = [()] * len(module.computations)
    totals = [Work()] * len(module.computations)
    for at in module.callees_first:
        computation = module.computations[at]
        works[at] = tuple([_work(each, computation, totals, reads) for each in computation.instructions])
        totals[at] = total_work(works[at])
    return ModuleCost(module, tuple(tuple(map(Cost, each)) for each in works), tuple(map(Cost, totals)))


def _work(instruction: Instruction, computation: Computation, totals: list[Work], reads: FusionReads) -> Work:
    opcode = instruction.opcode
    if opcode in UNCOUNTED:
        return Work()
    instructions = computation.instructions
    shapes = tuple([instructions[at].shape for at in instruction.operands])
    site = Site(instruction, shapes, tuple([totals[call] for call in instruction.calls]))
    if not instruction.shape.is_known or not all(shape.is_known for shape in shapes):
        return UNKNOWN_WORK
    try:
        if opcode == "fusion":
            inside, moved = site.called[0], reads.bytes_of(instruction)
            return Work(inside.flops, inside.transcendentals, moved, inside.matrix_flops, inside.unknown_flops)
        if opcode in BODIES:
            return _body(site, corrected=reads.corrected)
        if opcode == "custom-call":
            return library_work(site) if reads.corrected else UNKNOWN_WORK
        rule = (CORRECTED.get(opcode) if reads.corrected else None) or RULES.get(opcode)
        return rule(site) if rule is not None else Work(bytes=site.default_bytes, unknown_flops=1)
    except IndexError as error:
        lost = f"instruction {instruction.name[:200]!r} lacks what a {opcode[:40]} needs"
        raise ProgramError(lost) from error


def _body(site: Site, *, corrected: bool) -> Work:
    """Return the cost of what calls computations: of all of them, or of the largest where one is chosen."""
    if not site.called:
        raise IndexError("no computation")
    if site.instruction.opcode == "conditional":
        return largest_work(site.called)
    once = total_work(site.called)
    if site.instruction.opcode != "while" or not corrected:
        return once
    times = trip_count(site.instruction)
    return once.times(times) if times is not None else total_work((once, UNKNOWN_WORK))


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
    if root.opcode not in ("tuple", "dynamic-update-slice"):
        return None
    total = 0
    for each in computation.operands_of(root) if root.opcode == "tuple" else (root,):
        if each.opcode == "dynamic-update-slice":  # the rest of the array stays as it is
            total += as_operand(computation.instructions[each.operands[1]].shape)
        else:
            total += each.shape.bytes
    return total
