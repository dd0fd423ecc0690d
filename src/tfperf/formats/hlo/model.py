"""An XLA program: a module, its computations, their instructions, and shapes.

Parts refer to each other by position: an operand is a position in its computation, a called computation a position in
the module. `link` converts ids or names to positions, and checks that all exist and that operands and calls have no
cycle.

A program has tens of thousands of these objects, so they are hidden from the garbage collector (`gc=False`), which
would otherwise traverse them repeatedly during reading. They cannot refer to themselves.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
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
"""Bits per element; opaque values are pointers. Smaller elements take a byte in memory unless the layout packs them."""
POINTER_BYTES = 8
UNKNOWN = -1
"""A dynamic dimension."""
MOST_DIMS = 64
MOST_LEVELS = 100
"""Maximum nesting of shapes, as in protobuf."""


class ProgramError(TfperfError):
    """A program cannot be read: not an XLA program, damaged, or structurally invalid."""


class Shape(Struct, frozen=True, dict=True):
    """An array of a type, or a tuple of shapes (`type` is "tuple").

    Dynamic dimensions have their bound; their actual sizes are stored after the elements, 4 bytes per dimension.
    `layout` is minor to major, or empty if the program has none.
    """

    type: str
    dims: tuple[int, ...] = ()
    layout: tuple[int, ...] = ()
    tiles: tuple[tuple[int, ...], ...] = ()
    memory_space: int = 0
    element_bits: int = 0
    """Bits per element in its layout; 0: those of its type, in whole bytes."""
    parts: tuple[Shape, ...] = ()
    dynamic: tuple[bool, ...] = ()
    """Whether each dimension is dynamic; empty: none is."""

    @property
    def is_tuple(self) -> bool:
        """Return whether it is a tuple of shapes."""
        return self.type == "tuple"

    @cached_property
    def is_known(self) -> bool:
        """Return whether all dimensions are known."""
        return UNKNOWN not in self.dims and all(part.is_known for part in self.parts)

    @cached_property
    def elements(self) -> int:
        """Return the number of elements in all arrays; raise ProgramError if a dimension is unknown."""
        if self.parts:
            return sum(part.elements for part in self.parts)
        if self.is_tuple:
            return 0
        if UNKNOWN in self.dims:
            raise ProgramError(f"the size of {self} is unknown: it has a dynamic dimension")
        return math.prod(self.dims)

    @cached_property
    def bytes(self) -> int:
        """Return the bytes of all elements, without padding; raise ProgramError if a dimension is unknown."""
        if self.is_tuple:
            return sum(part.bytes for part in self.parts)
        bits = self.element_bits or max(BITS[self.type], 8 if self.type != "token" else 0)
        lengths = 4 * len(self.dims) if any(self.dynamic) else 0
        return (self.elements * bits + 7) // 8 + lengths

    @cached_property
    def operand_bytes(self) -> int:
        """Return the bytes that an instruction reads of such an operand; of a tuple, those of a table of pointers."""
        return POINTER_BYTES * len(self.parts) if self.is_tuple else self.bytes

    def leaves(self) -> Iterator[Shape]:
        """Yield the arrays of a nested tuple; an array yields itself."""
        if not self.is_tuple:
            yield self
        for part in self.parts:
            yield from part.leaves()

    def __str__(self) -> str:
        """Return XLA's notation: `f32[8,128]{1,0}`."""
        return self._text

    @cached_property
    def _text(self) -> str:
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
    """A source line and its function; empty and 0 if unknown."""

    file: str = ""
    line: int = 0
    function: str = ""

    def __str__(self) -> str:
        """Return `file:line`, or empty if the file is unknown."""
        return f"{self.file}:{self.line}" if self.file and self.line else self.file


class OpMetadata(Struct, frozen=True, gc=False):
    """The origin of an instruction: the framework op and the user's source line."""

    op_type: str = ""
    op_name: str = ""
    stack: tuple[Frame, ...] = ()
    """Innermost frame first; empty if the program has no stacks."""
    deduplicated_name: str = ""
    """The instruction with equal code that represents this one."""

    @property
    def source(self) -> Frame:
        """Return the innermost frame."""
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
    """Contracting, batch and group dimensions of a dot."""

    lhs_contracting: tuple[int, ...] = ()
    rhs_contracting: tuple[int, ...] = ()
    lhs_batch: tuple[int, ...] = ()
    rhs_batch: tuple[int, ...] = ()
    rhs_group: tuple[int, ...] = ()
    """Dimensions that select the group in a product of groups (`ragged-dot`)."""


class ConvolutionDims(Struct, frozen=True, gc=False):
    """Dimension numbers of a convolution's input, kernel and output."""

    input_batch: int = 0
    input_feature: int = 0
    input_spatial: tuple[int, ...] = ()
    kernel_input_feature: int = 0
    kernel_output_feature: int = 0
    kernel_spatial: tuple[int, ...] = ()
    output_batch: int = 0
    output_feature: int = 0
    output_spatial: tuple[int, ...] = ()


class ReplicaGroups(Struct, frozen=True, gc=False):
    """The groups of replicas or partitions of a collective; no group: all of the program.

    `size` is the number of ranks per group, 0 if it differs; `members` are the ranks group by group, empty if unknown.
    """

    count: int = 0
    size: int = 0
    members: tuple[int, ...] = ()


NO_GROUPS = ReplicaGroups()


class ProductPrecision(Struct, frozen=True, gc=False):
    """The requested precision of a product."""

    operands: tuple[str, ...] = ()
    """Per operand: default, high or highest; empty if all are default."""
    algorithm: str = ""
    """Such as `dot_tf32_tf32_f32`; empty if the compiler chooses it."""

    @property
    def allows_tf32(self) -> bool:
        """Return whether XLA may round float32 operands to TF32, as it does by default."""
        return self.algorithm.startswith("dot_tf32") if self.algorithm else {*self.operands} <= {"default"}


DEFAULT_PRECISION = ProductPrecision()


class Instruction(Struct, frozen=True, gc=False):
    """An instruction; fields that its opcode does not use keep their defaults."""

    opcode: str
    shape: Shape
    name: str = ""
    operands: tuple[int, ...] = ()
    """Positions in the computation."""
    calls: tuple[int, ...] = ()
    """Positions in the module, in XLA's order: a loop calls its body, then its condition."""
    metadata: OpMetadata = OpMetadata()
    dimensions: tuple[int, ...] = ()
    window: tuple[WindowDim, ...] = ()
    dot: DotDims | None = None
    convolution: ConvolutionDims | None = None
    feature_groups: int = 1
    batch_groups: int = 1
    slices: tuple[tuple[int, int, int], ...] = ()
    """(start, limit, stride) per dimension."""
    padding: tuple[tuple[int, int, int], ...] = ()
    """(low, high, interior) per dimension."""
    slice_sizes: tuple[int, ...] = ()
    """For gather and dynamic-slice."""
    fft_length: tuple[int, ...] = ()
    parameter: int = 0
    """Its parameter number, if it is a parameter."""
    tuple_index: int = 0
    direction: str = ""
    """Comparison: EQ, NE, GE, GT, LE, LT."""
    distribution: str = ""
    """Random distribution: uniform or normal."""
    fusion_kind: str = ""
    target: str = ""
    backend_config: str = ""
    """Compiler-specific text, usually JSON."""
    groups: ReplicaGroups = NO_GROUPS
    precision: ProductPrecision = DEFAULT_PRECISION


class Computation(Struct, frozen=True, dict=True):
    """Instructions with a root, whose result is the computation's result."""

    name: str
    instructions: tuple[Instruction, ...]
    root: int

    @property
    def root_instruction(self) -> Instruction:
        """Return the root."""
        return self.instructions[self.root]

    def operands_of(self, instruction: Instruction) -> tuple[Instruction, ...]:
        """Return the operands of an instruction of this computation."""
        return tuple(self.instructions[at] for at in instruction.operands)

    @cached_property
    def users(self) -> tuple[tuple[int, ...], ...]:
        """Return the positions of the distinct users of each instruction."""
        found: list[list[int]] = [[] for _ in self.instructions]
        for at, instruction in enumerate(self.instructions):
            for operand in {*instruction.operands}:
                found[operand].append(at)
        return tuple(map(tuple, found))

    @cached_property
    def parameters(self) -> tuple[int, ...]:
        """Return the positions of the parameters by number."""
        found = (at for at, each in enumerate(self.instructions) if each.opcode == "parameter")
        return tuple(sorted(found, key=lambda at: self.instructions[at].parameter))


HOST_MEMORY = 5
"""The host's memory space in layouts, `S(5)`; 0 is the device's main memory."""


class BufferSizes(Struct, frozen=True):
    """Memory of a running program in one space, in bytes, as planned by the compiler."""

    parameters: int = 0
    aliased: int = 0
    """Parameters whose memory is reused by results."""
    outputs: int = 0
    """Results with their own memory."""
    temporaries: int = 0
    constants: int = 0

    @property
    def total(self) -> int:
        """Return the sum of all parts."""
        return self.parameters + self.outputs + self.temporaries + self.constants

    def plus(self, other: BufferSizes) -> BufferSizes:
        """Return the sum of both."""
        return BufferSizes(*(getattr(self, name) + getattr(other, name) for name in self.__struct_fields__))


class Module(Struct, frozen=True, dict=True):
    """A program."""

    name: str
    computations: tuple[Computation, ...]
    entry_at: int
    callees_first: tuple[int, ...]
    """Positions of all computations, callees before callers."""
    id: int = 0
    aliases: Mapping[tuple[int, ...], int] = {}
    """Index of an array in the entry's result -> the parameter whose memory it reuses."""
    buffers: Mapping[int, BufferSizes] | None = None
    """By memory space, from `BufferAssignmentProto`; None if the program has none."""
    ids: tuple[tuple[int, ...], ...] = ()
    """Ids of the instructions of each computation; empty if the program was not read from protobuf."""

    @cached_property
    def aliased_parameters(self) -> frozenset[int]:
        """Return the entry's parameters whose memory a result reuses."""
        return frozenset(self.aliases.values())

    @property
    def entry(self) -> Computation:
        """Return the entry computation."""
        return self.computations[self.entry_at]

    @cached_property
    def by_name(self) -> dict[str, tuple[int, int]]:
        """Return the positions of each instruction: its computation, and its place there. Names are unique."""
        return {
            instruction.name: (at, place)
            for at, computation in enumerate(self.computations)
            for place, instruction in enumerate(computation.instructions)
        }


_NOWHERE = Frame()


MOST_INSTRUCTIONS = 2_000_000
MOST_CALL_LEVELS = 1_000
"""Maximum call depth; compilers nest some tens."""


class FoundInstruction(Struct, gc=False):
    """An instruction whose operands and callees are still ids or names."""

    key: Hashable
    fields: dict[str, Any]
    """Fields of `Instruction` except operands and calls."""
    operands: Sequence[Hashable]
    calls: Sequence[Hashable]


class FoundComputation(Struct):
    """A computation before linking."""

    key: Hashable
    name: str
    instructions: Sequence[FoundInstruction]
    root: Hashable


def link(name: str, found: Sequence[FoundComputation], entry: Hashable, **facts: Any) -> Module:
    """Return the module with fields `facts`; raise ProgramError for missing or cyclic references, or excessive size."""
    if not found:
        raise ProgramError(f"module {name[:200]!r} has no computations")
    count = sum(len(each.instructions) for each in found)
    if count > MOST_INSTRUCTIONS:
        raise ProgramError(f"the program has {count:,} instructions, more than the maximum of {MOST_INSTRUCTIONS:,}")
    places = _places([each.key for each in found], "computations")
    if entry not in places:
        raise ProgramError(f"the entry computation {entry!r} does not exist")
    computations = tuple(_computation(each, places) for each in found)
    calls = [[call for each in computation.instructions for call in each.calls] for computation in computations]
    order, level = _sources_first(calls, "computations call each other in a cycle")
    if max(level) > MOST_CALL_LEVELS:
        raise ProgramError(
            f"computations call each other {max(level):,} levels deep; the maximum is {MOST_CALL_LEVELS:,}"
        )
    return Module(name=name, computations=computations, entry_at=places[entry], callees_first=tuple(order), **facts)


def _computation(found: FoundComputation, computations: Mapping[Hashable, int]) -> Computation:
    where = f"computation {found.name[:200]!r}"
    places = _places([each.key for each in found.instructions], f"instructions in {where}")
    if found.root not in places:
        raise ProgramError(f"{where} has no root: its result is instruction {found.root!r}, which is not in it")
    linked: list[Instruction] = []
    is_sorted = True
    for each in found.instructions:
        try:
            operands = tuple([places[key] for key in each.operands]) if each.operands else ()
            calls = tuple([computations[key] for key in each.calls]) if each.calls else ()
        except KeyError as error:
            lost = f"instruction {str(each.fields.get('name', ''))[:200]!r} in {where}"
            raise ProgramError(f"{lost} refers to {error.args[0]!r}, which does not exist") from error
        is_sorted = is_sorted and (not operands or max(operands) < len(linked))
        linked.append(Instruction(operands=operands, calls=calls, **each.fields))
    if not is_sorted:
        _sources_first([each.operands for each in linked], f"instructions in {where} depend on each other in a cycle")
    return Computation(found.name, tuple(linked), places[found.root])


def _places(keys: Sequence[Hashable], what: str) -> dict[Hashable, int]:
    """Return the position of each key; raise ProgramError for a duplicate."""
    places = {key: at for at, key in enumerate(keys)}
    if len(places) < len(keys):
        twice = next(key for at, key in enumerate(keys) if places[key] != at)
        raise ProgramError(f"two {what} have the name or id {twice!r}")
    return places


def _sources_first(sources: Sequence[Sequence[int]], circle: str) -> tuple[list[int], list[int]]:
    """Return positions in topological order, and the depth of each; raise ProgramError(`circle`) for a cycle."""
    waits_for = [len(each) for each in sources]
    users: list[list[int]] = [[] for _ in sources]
    for at, each in enumerate(sources):
        for source in each:
            users[source].append(at)
    level = [0] * len(sources)
    order = [at for at, count in enumerate(waits_for) if not count]
    for at in order:  # grows during the loop
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
    """Stack tables: source frames stored once per module, numbered from 1; 0 is none."""

    def __init__(
        self,
        files: Sequence[str] = (),
        functions: Sequence[str] = (),
        places: Sequence[tuple[int, int, int]] = (),
        frames: Sequence[tuple[int, int]] = (),
    ) -> None:
        """`places` are (file, function, line); `frames` are (place, calling frame)."""
        self._files, self._functions, self._places, self._frames = files, functions, places, frames
        self._stacks: dict[int, tuple[Frame, ...]] = {}
        self._known: dict[int, Frame] = {}

    def stack(self, frame: int) -> tuple[Frame, ...]:
        """Return the places of a frame, innermost first; empty for a missing frame."""
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
