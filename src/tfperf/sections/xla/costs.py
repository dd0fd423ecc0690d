"""What instructions of a program compute and move in one run, and in which numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from tfperf.trace.device.device_peaks import Precision

if TYPE_CHECKING:
    from tfperf.formats.hlo.cost import ModuleCost
    from tfperf.formats.hlo.model import Instruction, Module

CONTAINERS = frozenset({"while", "call", "conditional"})
"""What runs other instructions, which have events and costs of their own."""
_PRECISIONS: dict[str, Precision] = {"f64": "fp64", "f32": "fp32", "f16": "fp16", "bf16": "bf16"}
_PRECISIONS |= dict.fromkeys(("s8", "u8"), "int8")


class OpCost(Struct, frozen=True):
    """Of one run: operations, those in products of matrices and convolutions, bytes, and numbers. None: unknown."""

    flops: float | None = None
    matrix_flops: float | None = None
    bytes: float | None = None
    precision: Precision | None = None


class ProgramCosts:
    """The costs of a program; empty if they cannot be worked out."""

    def __init__(self, module: Module) -> None:
        from tfperf.formats.hlo.cost import cost_of
        from tfperf.formats.hlo.model import ProgramError

        try:
            self._costs: ModuleCost | None = cost_of(module)
        except ProgramError:
            self._costs = None
        self._module = module
        self._types = _matrix_types(module, self._costs) if self._costs else []

    def of(self, computation: int, place: int) -> OpCost:
        """Return the cost of an instruction, by its position."""
        instruction = self._module.computations[computation].instructions[place]
        if self._costs is None or instruction.opcode in CONTAINERS:
            return OpCost()
        cost = self._costs.instructions[computation][place]
        flops, matrix, moved = (
            None if each is None else float(each) for each in (cost.flops, cost.matrix_flops, cost.bytes)
        )
        if matrix:
            return OpCost(
                flops, matrix, moved, precision_of(_type_of(self._module, instruction, computation, self._types))
            )
        # What is no product of matrices runs on the vector units, which have one peak for all numbers of up to 32 bits.
        wide = any(leaf.type in ("f64", "c128") for leaf in instruction.shape.leaves())
        return OpCost(flops, matrix, moved, "fp64" if wide else "fp32")


def precision_of(element_type: str) -> Precision | None:
    """Return the peak that a product of matrices of such elements is held against; None if devices state none."""
    return "fp8" if element_type.startswith("f8") else _PRECISIONS.get(element_type)


def _matrix_types(module: Module, costs: ModuleCost) -> list[str]:
    """Return for each computation the type of elements that most of its products of matrices work on; empty: none."""
    types = [""] * len(module.computations)
    for at in module.callees_first:
        most = 0
        for instruction, cost in zip(module.computations[at].instructions, costs.instructions[at], strict=True):
            if (cost.matrix_flops or 0) > most:
                most = cost.matrix_flops or 0
                types[at] = _type_of(module, instruction, at, types)
    return types


def _type_of(module: Module, instruction: Instruction, computation: int, types: list[str]) -> str:
    """Return the type of what an instruction with products of matrices multiplies."""
    inner = next((types[call] for call in instruction.calls if types[call]), "")
    if inner or not instruction.operands:
        return inner
    return module.computations[computation].instructions[instruction.operands[0]].shape.type
