"""An XLA program as a graph with inlined fusions and calls, so that producers and readers are adjacent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

from msgspec import Struct

from tfperf.formats.hlo.model import BITS, Instruction, Module, ProgramError, Shape

OPEN = "a dimension is unknown"
_BYTE = 8
_PUT_IN = ("fusion", "call")
_BODIES = ("while", "conditional")
_MOST_PUT_IN, _TIMES = 200_000, 8
"""Limit for the instructions and operands that inlining may add, and for their multiple of the program's: compilers
call a fusion once, but a malicious program can double at each level."""
_MOST_STEPS, _STEPS_OF_NODE = 1_000_000, 50
"""Limits for the links that rules may follow, per graph and additionally per node."""
_DEEPEST = 100
PASSED = frozenset(("bitcast", "reshape", "convert", "copy", "get-tuple-element", "broadcast"))
"""Opcodes that do not change values, which edges skip."""


class HloNode(Struct, frozen=True):
    """An instruction, its operand nodes, and the instruction with an event: itself, or its fusion."""

    instruction: Instruction
    operands: tuple[int, ...]
    runs_in: str
    is_fused: bool
    reducer: str  # opcode with which a reduction combines two values


class HloGraph:
    """The entry of a program, or the body of a loop or branch."""

    def __init__(self, module: Module, at: int, *, is_entry: bool) -> None:
        self.module, self.is_entry = module, is_entry
        self.nodes: list[HloNode] = []
        self._steps_left = _MOST_STEPS
        self.root = self._walk(at, None, "", 0)

    def _walk(self, at: int, arguments: tuple[int, ...] | None, fusion: str, depth: int) -> int:
        """Append the nodes of a computation, and return its root node."""
        computation = self.module.computations[at]
        self._steps_left += _STEPS_OF_NODE * len(computation.instructions)
        if depth > _DEEPEST:
            raise ProgramError(f"{self.module.name[:200]!r} has fusions or calls over {_DEEPEST} levels deep")
        here = [0] * len(computation.instructions)  # the node of each instruction
        for place in _operands_first(computation.instructions):
            instruction = computation.instructions[place]
            operands = tuple([here[operand] for operand in instruction.operands])
            if instruction.opcode == "parameter" and arguments is not None and instruction.parameter < len(arguments):
                here[place] = arguments[instruction.parameter]
            elif instruction.opcode in _PUT_IN and instruction.calls:
                inside = fusion or (instruction.name if instruction.opcode == "fusion" else "")
                here[place] = self._walk(instruction.calls[0], operands, inside, depth + 1)
            elif instruction.opcode == "get-tuple-element" and operands and self._part(operands[0], instruction) >= 0:
                here[place] = self._part(operands[0], instruction)
            else:
                reducer = ""
                if instruction.opcode in ("reduce", "reduce-window") and instruction.calls:
                    reducer = self.module.computations[instruction.calls[0]].root_instruction.opcode
                self.nodes.append(HloNode(instruction, operands, fusion or instruction.name, bool(fusion), reducer))
                here[place] = len(self.nodes) - 1
        return here[computation.root]

    def _part(self, of: int, instruction: Instruction) -> int:
        """Return the node of a tuple element; -1 if the tuple is not a list of nodes."""
        node = self.nodes[of]
        is_there = node.instruction.opcode == "tuple" and instruction.tuple_index < len(node.operands)
        return node.operands[instruction.tuple_index] if is_there else -1

    @cached_property
    def users(self) -> list[list[int]]:
        """Return the users of each node."""
        found: list[list[int]] = [[] for _ in self.nodes]
        for index, node in enumerate(self.nodes):
            for operand in dict.fromkeys(node.operands):
                found[operand].append(index)
        return found

    def readers(self, index: int) -> list[int]:
        """Return the users of a node, skipping opcodes that do not change values."""
        return self._through(index, lambda node: self.users[node])

    def sources(self, index: int) -> list[int]:
        """Return the operands of a node, skipping opcodes that do not change values."""
        return self._through(index, lambda node: self.nodes[node].operands)

    def follow(self, links: int) -> None:
        """Count links that a rule follows; raises ProgramError above the limit."""
        self._steps_left -= links
        if self._steps_left < 0:
            raise ProgramError(
                f"{self.module.name[:200]!r} has too many edges between its HLO ops: skip rules with --ignore"
            )

    def _through(self, index: int, following: Callable[[int], Sequence[int]]) -> list[int]:
        """Return the distinct neighbors of a node, skipping opcodes that do not change values."""
        found, waiting, seen = [], list(following(index)), set[int]()
        while waiting:
            node = waiting.pop()
            self.follow(1)
            if node not in seen:
                seen.add(node)
                if self.nodes[node].instruction.opcode in PASSED:
                    waiting += following(node)
                else:
                    found.append(node)
        return found


def _operands_first(instructions: Sequence[Instruction]) -> Sequence[int]:
    """Return instruction positions in topological order, which `link` has verified to exist."""
    operands = [each.operands for each in instructions]
    if all(not each or max(each) < place for place, each in enumerate(operands)):
        return range(len(operands))
    found: list[int] = []
    done = [False] * len(operands)
    for start in range(len(operands)):
        waiting = [start]
        while waiting:
            place = waiting[-1]
            missing = [] if done[place] else [operand for operand in operands[place] if not done[operand]]
            if missing:
                waiting += missing
                continue
            waiting.pop()
            if not done[place]:
                done[place] = True
                found.append(place)
    return found


def graphs_of_program(module: Module) -> Iterator[HloGraph]:
    """Yield graphs of the entry and of loop and branch bodies. Sizes are counted first: ProgramError if too large."""
    bodies = {
        call
        for computation in module.computations
        for instruction in computation.instructions
        if instruction.opcode in _BODIES
        for call in instruction.calls
    }
    own = [sum(1 + len(each.operands) for each in computation.instructions) for computation in module.computations]
    sizes = [0] * len(own)
    for at in module.callees_first:
        put_in = (each for each in module.computations[at].instructions if each.opcode in _PUT_IN and each.calls)
        sizes[at] = own[at] + sum(sizes[each.calls[0]] for each in put_in)
    most = _MOST_PUT_IN + _TIMES * sum(own)
    if sizes[module.entry_at] + sum(sizes[body] for body in bodies) > most:
        raise ProgramError(f"{module.name[:200]!r} expands to more than the maximum of {most:,} HLO ops and operands")
    yield HloGraph(module, module.entry_at, is_entry=True)
    for at in sorted(bodies):
        yield HloGraph(module, at, is_entry=False)


class Place(Struct, frozen=True):
    """A node of a graph that a rule checks."""

    graph: HloGraph
    index: int

    @property
    def node(self) -> HloNode:
        """The instruction, with its operands and its timed instruction."""
        return self.graph.nodes[self.index]

    @property
    def instruction(self) -> Instruction:
        """The instruction."""
        return self.node.instruction

    @property
    def name(self) -> str:
        """Name of the source op; empty for an instruction that the compiler generated."""
        return self.instruction.metadata.op_name

    @property
    def where(self) -> dict[str, Any]:
        """The `Violation` fields that identify the op."""
        return {
            "ops": (self.name or self.instruction.name,),
            "op_type": self.instruction.opcode,
            "source_line": str(self.instruction.metadata.source),
            "runs_in": self.node.runs_in,
        }

    def operand(self, number: int) -> Shape | None:
        """Return the shape of an operand; None if it is missing, unknown or a tuple."""
        operands = self.node.operands
        shape = self.graph.nodes[operands[number]].instruction.shape if number < len(operands) else None
        return None if shape is None or shape.is_tuple or not shape.is_known else shape


def element_bytes(shape: Shape) -> int:
    """Return the bytes of an element; 1 if several share a byte."""
    return max(BITS.get(shape.type, _BYTE) // _BYTE, 1)
