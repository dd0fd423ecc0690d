"""An instruction that a rule looks at, in the graph of its program."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from tfperf.formats.hlo.model import BITS, Instruction, Shape
from tfperf.models.linter.hlo_graph import HloGraph, HloNode

_BYTE = 8
OPEN = "a dimension is not known"


class Place(Struct, frozen=True):
    """A node of a graph."""

    graph: HloGraph
    index: int

    @property
    def node(self) -> HloNode:
        """The instruction, with its operands and what it runs in."""
        return self.graph.nodes[self.index]

    @property
    def instruction(self) -> Instruction:
        """The instruction."""
        return self.node.instruction

    @property
    def name(self) -> str:
        """The name of the op that it was compiled from; empty for what the compiler made."""
        return self.instruction.metadata.op_name

    @property
    def where(self) -> dict[str, Any]:
        """The fields of `Violation` that say which op it is."""
        return {
            "ops": (self.name or self.instruction.name,),
            "op_type": self.instruction.opcode,
            "source_line": str(self.instruction.metadata.source),
            "runs_in": self.node.runs_in,
        }

    def operand(self, number: int) -> Shape | None:
        """Return the shape of an operand; None if it has fewer, or this one is a tuple or is not known."""
        operands = self.node.operands
        shape = self.graph.nodes[operands[number]].instruction.shape if number < len(operands) else None
        return None if shape is None or shape.is_tuple or not shape.is_known else shape


def element_bytes(shape: Shape) -> int:
    """Return the bytes of an element; 1 where several share a byte."""
    return max(BITS.get(shape.type, _BYTE) // _BYTE, 1)
