"""FLOPs and bytes of a program's instructions, computed from their shapes.

`xla` counts as XLA does (`hlo_cost_analysis`): a loop once, library calls as unknown. `corrected` counts the work of
the hardware: library calls with known work, loops by their trip count, only the gathered rows of a table, and
asynchronous operations once. Work that neither can compute is unknown.
"""

from __future__ import annotations

from functools import cached_property
from operator import attrgetter
from typing import Literal

from msgspec import Struct

from tfperf.formats.hlo.cost_rules import (
    BODIES,
    CORRECTED,
    NO_WORK,
    RULES,
    UNCOUNTED,
    UNKNOWN_WORK,
    Site,
    Work,
    largest_work,
    library_work,
    total_work,
    trip_count,
)
from tfperf.formats.hlo.model import Computation, Instruction, Module, ProgramError

Counting = Literal["xla", "corrected"]


class Cost(Struct, frozen=True, gc=False):
    """Cost of one run, including callees if `corrected`. None: partly unknown; `work` has the known part."""

    work: Work

    @property
    def flops(self) -> int | None:
        """Return the arithmetic operations: a multiply-add is two, and comparisons and integer operations count."""
        return None if self.work.unknown_flops else self.work.flops

    @property
    def matrix_flops(self) -> int | None:
        """Return the FLOPs of dots and convolutions, including library calls."""
        return None if self.work.unknown_flops else self.work.matrix_flops

    @property
    def transcendentals(self) -> int | None:
        """Return the number of transcendental results (exp, tanh), which are not counted as FLOPs."""
        return None if self.work.unknown_flops else self.work.transcendentals

    @property
    def bytes(self) -> int | None:
        """Return the bytes read and written, without any caching."""
        return None if self.work.unknown_bytes else self.work.bytes


class ModuleCost(Struct, frozen=True, dict=True):
    """The costs of all instructions and computations of a module, by position."""

    module: Module
    instructions: tuple[tuple[Cost, ...], ...]
    computations: tuple[Cost, ...]

    @property
    def entry(self) -> Cost:
        """Return the cost of one run of the program."""
        return self.computations[self.module.entry_at]

    @cached_property
    def by_name(self) -> dict[str, Cost]:
        """Return the cost of each instruction by name."""
        return {name: self.instructions[at][place] for name, (at, place) in self.module.by_name.items()}


def cost_of(module: Module, counting: Counting = "corrected") -> ModuleCost:
    """Return the cost of each instruction of a module; raise ProgramError if an instruction is incomplete."""
    corrected = counting == "corrected"
    reads = FusionReads(module, corrected=corrected)
    works: list[tuple[Work, ...]] = [()] * len(module.computations)
    totals = [Work()] * len(module.computations)
    for at in module.callees_first:
        computation = module.computations[at]
        works[at] = tuple([_work(each, computation, totals, reads) for each in computation.instructions])
        totals[at] = total_work(works[at])
    return ModuleCost(module, tuple(tuple(map(Cost, each)) for each in works), tuple(map(Cost, totals)))


_IS_KNOWN = attrgetter("is_known")


def _work(instruction: Instruction, computation: Computation, totals: list[Work], reads: FusionReads) -> Work:
    opcode = instruction.opcode
    if opcode in UNCOUNTED:
        return NO_WORK
    instructions = computation.instructions
    shapes = tuple([instructions[at].shape for at in instruction.operands])
    site = Site(instruction, shapes, tuple([totals[call] for call in instruction.calls]))
    if not instruction.shape.is_known or not all(map(_IS_KNOWN, shapes)):
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
        lost = f"instruction {instruction.name[:200]!r} has too little data for its opcode {opcode[:40]}"
        raise ProgramError(lost) from error


def _body(site: Site, *, corrected: bool) -> Work:
    """Return the cost of called computations: their sum, or the largest for a conditional."""
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
"""Maximum elements of a constant that is part of a fusion's code: in XLA, and on GPUs."""


class FusionReads:
    """Bytes moved by the fusions of one module; reads per parameter are cached by computation."""

    def __init__(self, module: Module, *, corrected: bool) -> None:
        self.corrected = corrected
        self._module = module
        self._reads: dict[int, tuple[int, ...]] = {}
        self._kept: dict[int, tuple[int, int | None]] = {}
        self._of_operands: dict[int, dict[int, int]] = {}

    def bytes_of(self, fusion: Instruction) -> int:
        """Return the bytes that a fusion moves; raise IndexError if it calls nothing."""
        at = fusion.calls[0]
        if at not in self._kept:
            computation = self._module.computations[at]
            largest = _CONSTANT if self.corrected else _XLA_CONSTANT
            constants = sum(
                each.shape.bytes
                for each in computation.instructions
                if each.opcode == "constant" and each.shape.elements > largest
            )
            self._kept[at] = sum(self._read(at)) + constants, _written(computation, corrected=self.corrected)
        moved, written = self._kept[at]
        return moved + (fusion.shape.bytes if written is None else written)

    def _read(self, at: int) -> tuple[int, ...]:
        """Return the bytes that a computation reads of each parameter; fusions inside it must be costed first."""
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
            touched, elements = _touched(computation, place), computation.instructions[place].shape.elements
            if touched is not None:
                return min(touched, elements) * whole // max(elements, 1)
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
        """Return the bytes that a fusion reads of one operand; all operands are computed together."""
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


def _touched(computation: Computation, place: int) -> int | None:
    """Return how many elements of an array its users access if all take parts or scatter into it, else None.

    They may do so by way of conversions, which are computed for these elements alone.
    """
    total, waiting = 0, [place]
    while waiting:
        of = waiting.pop()
        if of == computation.root or not computation.users[of]:
            return None
        for at in computation.users[of]:
            user = computation.instructions[at]
            number, arrays = user.operands.index(of), (len(user.operands) - 1) // 2
            if user.opcode in ("convert", "bitcast"):
                waiting.append(at)
            elif user.opcode in ("gather", "slice", "dynamic-slice") and number == 0:
                total += user.shape.elements
            elif user.opcode == "scatter" and number < arrays:
                total += computation.instructions[user.operands[arrays + 1 + number]].shape.elements
            else:
                return None
    return total


def _written(computation: Computation, *, corrected: bool) -> int | None:
    """Return the bytes that a fusion writes, or None for its whole result."""
    root = computation.root_instruction
    in_place = ("dynamic-update-slice", "scatter") if corrected else ("dynamic-update-slice",)
    if root.opcode != "tuple" and root.opcode not in in_place:
        return None
    total = 0
    for each in computation.operands_of(root) if root.opcode == "tuple" else (root,):
        if each.opcode == "dynamic-update-slice":  # updates its array in place
            total += computation.instructions[each.operands[1]].shape.operand_bytes
        elif each.opcode in in_place:
            # In place, as its operands (arrays, indices, updates) allow.
            total += sum(
                computation.instructions[at].shape.bytes for at in each.operands[len(each.operands) // 2 + 1 :]
            )
        else:
            total += each.shape.bytes
    return total
