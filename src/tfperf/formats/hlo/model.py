"""A program of XLA: a module, its computations, their instructions, and shapes.

One part refers to another by position: an operand is the position of an instruction in its own computation, a called
computation that of a computation in the module. Readers find ids (arbitrary numbers) or names instead; `link` replaces
them, and checks that every position exists and that neither operands nor calls form a circle. `Frames` are the stacks
of source lines that a program holds once, and instructions name by a number.

A program has tens of thousands of these objects, so they are hidden from the garbage collector (`gc=False`), which
would go through all of them again and again while a program is read. They cannot refer to themselves.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from msgspec import Struct

from tfperf.base.errors import TfperfError

BITS: dict[str, int] = {
    **dict.fromkeys(("s1", "u1"), 1),
    **dict.fromkeys(("s2", "u2"), 2),
    **dict.fromkeys(("s4", "u4", "f4e2m1fn"), 4),
    **dict.fromkeys(("pred", "s8", "u8", "f8e5m2", "f8e4m3", "f8e4m3fn", "f8e4m3b11fnuz", "f8e3m4"), 8),
    **dict.fromkeys(("f8e5m2fnuz", "f8e4m3fnuz", "f8e8m0fnu"), 8),
    **dict.fromkeys(("s16", "u16", "f16", "bf16"), 16),
    **dict.fromkeys(("s32", "u32", "f32"), 32),
    **dict.fromkeys(("s64", "u64", "f64", "c64"), 64),
    "c128": 128,
    "token": 0,
    "opaque": 64,
}
"""Bits of an element of each type; an opaque value is a pointer. In memory, less than 8 are stored in a byte of their
own, unless the layout packs them."""
POINTER_BYTES = 8
UNKNOWN = -1
"""A dimension that the program leaves open."""
MOST_DIMS = 64
MOST_LEVELS = 100
"""How deep shapes may nest: as deep as protobuf parses them."""


class ProgramError(TfperfError):
    """A program cannot be read: not one of XLA, damaged, or of an impossible structure."""


class Shape(Struct, frozen=True, dict=True):
    """An array of a type, or a tuple of shapes (`type` is then "tuple").

    Dynamic dimensions have their bound; their real lengths stand behind the elements, 4 bytes for each dimension.
    `layout` is minor to major, empty where the program states none.
    """

    type: str
    dims: tuple[int, ...] = ()
    layout: tuple[int, ...] = ()
    tiles: tuple[tuple[int, ...], ...] = ()
    memory_space: int = 0
    element_bits: int = 0
    """Bits that an element takes by its layout; 0: those of its type, in whole bytes."""
    parts: tuple[Shape, ...] = ()
    dynamic: tuple[bool, ...] = ()
    """Which dimensions may be smaller than stated; empty: none."""

    @property
    def is_tuple(self) -> bool:
        """Tell whether it is a tuple of shapes."""
        return self.type == "tuple"

    @cached_property
    def is_known(self) -> bool:
        """Tell whether all dimensions are known."""
        return UNKNOWN not in self.dims and all(part.is_known for part in self.parts)

    @cached_property
    def elements(self) -> int:
        """Return the number of elements; of a tuple, that of all its arrays.

        Raises ProgramError if a dimension is unknown.
        """
        if self.parts:
            return sum(part.elements for part in self.parts)
        if self.is_tuple:
            return 0
        if UNKNOWN in self.dims:
            raise ProgramError(f"the size of {self} is not known: it has an open dimension")
        return math.prod(self.dims)

    @cached_property
    def bytes(self) -> int:
        """Return the bytes of its elements without padding; of a tuple, those of all its arrays.

        Raises ProgramError if a dimension is unknown.
        """
        if self.is_tuple:
            return sum(part.bytes for part in self.parts)
        bits = self.element_bits or max(BITS[self.type], 8 if self.type != "token" else 0)
        lengths = 4 * len(self.dims) if any(self.dynamic) else 0
        return (self.elements * bits + 7) // 8 + lengths

    def leaves(self) -> Iterator[Shape]:
        """Iterate over the arrays of a tuple, those of inner tuples too; an array yields itself."""
        if not self.is_tuple:
            yield self
        for part in self.parts:
            yield from part.leaves()

    def __str__(self) -> str:
        """Return it as XLA writes it: `f32[8,128]{1,0}`."""
        if self.is_tuple:
            return f"({', '.join(map(str, self.parts))})"
        bounds = self.dynamic or (False,) * len(self.dims)
        dims = ",".join(
            "?" if dim == UNKNOWN else f"<={dim}" if bound else str(dim)
            for dim, bound in zip(self.dims, bounds, strict=False)
        )
        extra = "".join(f"({','.join(map(str, tile))})" for tile in self.tiles)
        extra = f"T{extra}" if extra else ""
        extra += f"E({self.element_bits})" if self.element_bits else ""
        extra += f"S({self.memory_space})" if self.memory_space else ""
        layout = ",".join(map(str, self.layout)) + (f":{extra}" if extra else "")
        return f"{self.type}[{dims}]{{{layout}}}" if layout else f"{self.type}[{dims}]"


class Frame(Struct, frozen=True, gc=False):
    """A place in a source file, and the function that it is in; empty and 0 where unknown."""

    file: str = ""
    line: int = 0
    function: str = ""

    def __str__(self) -> str:
        """Return `file:line`; empty if the file is unknown."""
        return f"{self.file}:{self.line}" if self.file and self.line else self.file


class OpMetadata(Struct, frozen=True, gc=False):
    """Where an instruction comes from: the op of the framework, and the line of the user's program."""

    op_type: str = ""
    op_name: str = ""
    stack: tuple[Frame, ...] = ()
    """The innermost place first; empty where the program states none."""
    deduplicated_name: str = ""
    """The instruction of equal code that stands for this one."""

    @property
    def source(self) -> Frame:
        """Return the innermost place."""
        return self.stack[0] if self.stack else _NOWHERE


class WindowDim(Struct, frozen=True, gc=False):
    """A dimension of a window; padding may be negative."""

    size: int = 1
    stride: int = 1
    low: int = 0
    high: int = 0
    window_dilation: int = 1
    base_dilation: int = 1
    reversed: bool = False


class DotDims(Struct, frozen=True, gc=False):
    """Which dimensions of its operands a dot sums over, and which are batches."""

    lhs_contracting: tuple[int, ...] = ()
    rhs_contracting: tuple[int, ...] = ()
    lhs_batch: tuple[int, ...] = ()
    rhs_batch: tuple[int, ...] = ()


class ConvolutionDims(Struct, frozen=True, gc=False):
    """Which dimension of a convolution is what: of its input, its kernel and its output."""

    input_batch: int = 0
    input_feature: int = 0
    input_spatial: tuple[int, ...] = ()
    kernel_input_feature: int = 0
    kernel_output_feature: int = 0
    kernel_spatial: tuple[int, ...] = ()
    output_batch: int = 0
    output_feature: int = 0
    output_spatial: tuple[int, ...] = ()


class Instruction(Struct, frozen=True, gc=False):
    """An instruction; what its opcode does not have keeps its default."""

    opcode: str
    shape: Shape
    name: str = ""
    operands: tuple[int, ...] = ()
    """Positions in the computation."""
    calls: tuple[int, ...] = ()
    """Positions of computations in the module, in XLA's order: a loop calls its body, then its condition."""
    metadata: OpMetadata = OpMetadata()
    dimensions: tuple[int, ...] = ()
    window: tuple[WindowDim, ...] = ()
    dot: DotDims | None = None
    convolution: ConvolutionDims | None = None
    feature_groups: int = 1
    batch_groups: int = 1
    slices: tuple[tuple[int, int, int], ...] = ()
    """For each dimension: start, limit, stride."""
    padding: tuple[tuple[int, int, int], ...] = ()
    """For each dimension: low, high, and between two elements."""
    slice_sizes: tuple[int, ...] = ()
    """Of a gather or dynamic-slice."""
    fft_length: tuple[int, ...] = ()
    parameter: int = 0
    """Which parameter of its computation it is, if it is one."""
    tuple_index: int = 0
    direction: str = ""
    """Of a comparison: EQ, NE, GE, GT, LE, LT."""
    distribution: str = ""
    """Of random numbers: uniform or normal."""
    fusion_kind: str = ""
    target: str = ""
    """What a custom call calls."""
    backend_config: str = ""
    """Whatever the compiler keeps here: mostly JSON."""


class Computation(Struct, frozen=True, dict=True):
    """Instructions, one of which is the root: its result is that of the computation."""

    name: str
    instructions: tuple[Instruction, ...]
    root: int
    """The position of the root."""

    @property
    def root_instruction(self) -> Instruction:
        """Return the root."""
        return self.instructions[self.root]

    def operands_of(self, instruction: Instruction) -> tuple[Instruction, ...]:
        """Return the operands of an instruction of this computation."""
        return tuple(self.instructions[at] for at in instruction.operands)

    @cached_property
    def users(self) -> tuple[tuple[int, ...], ...]:
        """Return for each instruction the positions of those that have it as an operand, each once."""
        found: list[list[int]] = [[] for _ in self.instructions]
        for at, instruction in enumerate(self.instructions):
            for operand in dict.fromkeys(instruction.operands):
                found[operand].append(at)
        return tuple(map(tuple, found))

    @cached_property
    def parameters(self) -> tuple[int, ...]:
        """Return the positions of the parameters, in order of their numbers."""
        found = (at for at, each in enumerate(self.instructions) if each.opcode == "parameter")
        return tuple(sorted(found, key=lambda at: self.instructions[at].parameter))


HOST_MEMORY = 5
"""The memory space of a host's memory in layouts, `S(5)`; 0 is the main memory of the device that a program runs on."""


class BufferSizes(Struct, frozen=True):
    """Memory of one space that a program takes while it runs, in bytes, by the compiler's plan."""

    parameters: int = 0
    aliased: int = 0
    """The part of the parameters whose memory results take over."""
    outputs: int = 0
    """Results that are not written into the memory of a parameter."""
    temporaries: int = 0
    constants: int = 0

    @property
    def total(self) -> int:
        """Return all of it."""
        return self.parameters + self.outputs + self.temporaries + self.constants

    def plus(self, other: BufferSizes) -> BufferSizes:
        """Return both added up."""
        return BufferSizes(*(getattr(self, name) + getattr(other, name) for name in self.__struct_fields__))


class Module(Struct, frozen=True, dict=True):
    """A program."""

    name: str
    computations: tuple[Computation, ...]
    entry_at: int
    """The position of the computation that a run starts with."""
    callees_first: tuple[int, ...]
    """The positions of all computations, each after those that it calls."""
    id: int = 0
    aliases: Mapping[tuple[int, ...], int] = {}
    """By the place of an array in the result of the entry: the parameter whose memory it takes over."""
    buffers: Mapping[int, BufferSizes] | None = None
    """By memory space, from `BufferAssignmentProto`; None: the program states none."""

    @cached_property
    def aliased_parameters(self) -> frozenset[int]:
        """Return the parameters of the entry whose memory a result takes over."""
        return frozenset(self.aliases.values())

    @property
    def entry(self) -> Computation:
        """Return the computation that a run starts with."""
        return self.computations[self.entry_at]

    @cached_property
    def by_name(self) -> dict[str, tuple[int, int]]:
        """Return where each instruction is: the positions of its computation, and in that; names are used once."""
        return {
            instruction.name: (at, place)
            for at, computation in enumerate(self.computations)
            for place, instruction in enumerate(computation.instructions)
        }


_NOWHERE = Frame()


MOST_INSTRUCTIONS = 2_000_000
MOST_CALL_LEVELS = 1_000
"""How deep computations may call each other; compilers nest some tens."""


class FoundInstruction(Struct, gc=False):
    """An instruction whose operands and called computations are still ids or names."""

    key: Hashable
    fields: dict[str, Any]
    """Those of `Instruction`, but for operands and calls."""
    operands: Sequence[Hashable]
    calls: Sequence[Hashable]


class FoundComputation(Struct):
    """A computation as it was read."""

    key: Hashable
    name: str
    instructions: Sequence[FoundInstruction]
    root: Hashable


def link(name: str, found: Sequence[FoundComputation], entry: Hashable, **facts: Any) -> Module:
    """Return the module; `facts` are further fields of it.

    Raises ProgramError if something refers to what is not there, or to itself, if a computation has no root, or if
    there is more than fits.
    """
    if not found:
        raise ProgramError(f"module {name[:200]!r} holds no computations")
    count = sum(len(each.instructions) for each in found)
    if count > MOST_INSTRUCTIONS:
        raise ProgramError(f"the program has {count:,} instructions, more than the {MOST_INSTRUCTIONS:,} that are read")
    places = _places((each.key for each in found), "computations")
    if entry not in places:
        raise ProgramError(f"there is no computation {entry!r} for a run to start with")
    computations = tuple(_computation(each, places) for each in found)
    calls = [[call for each in computation.instructions for call in each.calls] for computation in computations]
    order, level = _sources_first(calls, "computations call each other in a circle")
    if max(level) > MOST_CALL_LEVELS:
        raise ProgramError(f"computations call each other {max(level):,} levels deep; {MOST_CALL_LEVELS:,} are read")
    return Module(name=name, computations=computations, entry_at=places[entry], callees_first=tuple(order), **facts)


def _computation(found: FoundComputation, computations: Mapping[Hashable, int]) -> Computation:
    where = f"computation {found.name[:200]!r}"
    places = _places((each.key for each in found.instructions), f"instructions in {where}")
    if found.root not in places:
        raise ProgramError(f"{where} has no root: its result is instruction {found.root!r}, which it does not hold")
    linked = []
    for each in found.instructions:
        try:
            operands = tuple([places[key] for key in each.operands]) if each.operands else ()
            calls = tuple([computations[key] for key in each.calls]) if each.calls else ()
        except KeyError as error:
            lost = f"instruction {str(each.fields.get('name', ''))[:200]!r} in {where}"
            raise ProgramError(f"{lost} refers to {error.args[0]!r}, which is not there") from error
        linked.append(Instruction(operands=operands, calls=calls, **each.fields))
    if any(operands and max(operands) >= at for at, operands in enumerate(each.operands for each in linked)):
        _sources_first([each.operands for each in linked], f"instructions in {where} need each other in a circle")
    return Computation(found.name, tuple(linked), places[found.root])


def _places(keys: Iterable[Hashable], what: str) -> dict[Hashable, int]:
    """Return the position of each key; raises ProgramError for one that occurs twice."""
    places: dict[Hashable, int] = {}
    for at, key in enumerate(keys):
        if places.setdefault(key, at) != at:
            raise ProgramError(f"two {what} have the name or id {key!r}")
    return places


def _sources_first(sources: Sequence[Sequence[int]], circle: str) -> tuple[list[int], list[int]]:
    """Return all positions, each after its sources, and how many levels of sources each has.

    Raises ProgramError with the text `circle` if that is impossible.
    """
    waits_for = [len(each) for each in sources]
    users: list[list[int]] = [[] for _ in sources]
    for at, each in enumerate(sources):
        for source in each:
            users[source].append(at)
    level = [0] * len(sources)
    order = [at for at, count in enumerate(waits_for) if not count]
    for at in order:  # grows while it is gone through
        for user in users[at]:
            level[user] = max(level[user], level[at] + 1)
            waits_for[user] -= 1
            if not waits_for[user]:
                order.append(user)
    if len(order) < len(sources):
        raise ProgramError(circle)
    return order, level


_MOST_FRAMES = 64


class Frames:
    """The tables of a module. All of them count from 1, and 0 is nothing."""

    def __init__(
        self,
        files: Sequence[str] = (),
        functions: Sequence[str] = (),
        places: Sequence[tuple[int, int, int]] = (),
        frames: Sequence[tuple[int, int]] = (),
    ) -> None:
        """`places` are file, function and line; `frames` are place and calling frame."""
        self._files, self._functions, self._places, self._frames = files, functions, places, frames
        self._stacks: dict[int, tuple[Frame, ...]] = {}
        self._known: dict[int, Frame] = {}

    def stack(self, frame: int) -> tuple[Frame, ...]:
        """Return the places of a frame, the innermost first; none for a frame that is not there."""
        if frame not in self._stacks:
            found: list[Frame] = []
            at = frame
            for _ in range(_MOST_FRAMES):
                if not 0 < at <= len(self._frames):
                    break
                place, at = self._frames[at - 1]
                if 0 < place <= len(self._places):
                    if place not in self._known:
                        file, function, line = self._places[place - 1]
                        self._known[place] = Frame(_item(self._files, file), line, _item(self._functions, function))
                    found.append(self._known[place])
            self._stacks[frame] = tuple(found)
        return self._stacks[frame]


def _item(texts: Sequence[str], number: int) -> str:
    return texts[number - 1] if 0 < number <= len(texts) else ""
