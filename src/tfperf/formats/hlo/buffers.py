"""Contents of a program's memory when it is fullest, from the compiler's buffer assignment.

The compiler reserves allocations for the whole program. Each holds one value, or many that replace each other: XLA
records when these are allocated and freed (`HeapSimulatorTrace`), in program order. An allocation with such a record
contributes the values alive when most of its bytes are in use, and the rest as `unused`. Another one contributes its
largest value, or only its size if it can hold several temporaries. Sizes therefore add up to the planned memory.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Literal

from google.protobuf.message import DecodeError
from msgspec import Struct

from tfperf.formats.hlo.messages import XLA
from tfperf.formats.hlo.model import Instruction, Module, OpMetadata, Shape

Kind = Literal["parameter", "output", "temporary", "constant", "unused", "others"]
MOST_BUFFERS = 500
MOST_POINTS = 1000
_FREE, _SHARE = 1, 2
"""Kinds of `HeapEvent`; 0 allocates."""


class Buffer(Struct, frozen=True, gc=False, kw_only=True):
    """A value in memory. `unused`: space that no value needs at the peak. `others`: the sum of smaller values.

    `first` and `last` are positions in program order, counted in instructions that allocate; None: it stays for the
    whole run of the program.
    """

    kind: Kind
    bytes: int
    padding_bytes: int | None = None
    """Bytes beyond the elements of its shape, because of tiles or alignment; None if unknown."""
    is_reused: bool = False
    """Whether a result of the program reuses the memory of this parameter (donation)."""
    instruction: str = ""
    opcode: str = ""
    framework_op: str = ""
    source: str = ""
    shape: str = ""
    first: int | None = None
    last: int | None = None


class Plan(Struct, frozen=True, kw_only=True):
    """Memory of a program in one memory space.

    `live` has a point for at most `MOST_POINTS` instructions in program order: position, name and bytes in use, the
    largest of each interval; empty if the program does not record it. Memory that stays for the whole run is included.
    """

    buffers: tuple[Buffer, ...]
    """The largest first."""
    total_bytes: int
    live: tuple[tuple[int, str, int], ...] = ()

    @property
    def donatable_bytes(self) -> int:
        """Return the bytes of results that could reuse the memory of parameters with the same shape, but do not."""
        free = Counter(each.shape for each in self.buffers if each.kind == "parameter" and not each.is_reused)
        total = 0
        for each in self.buffers:
            if each.kind == "output" and each.shape and free[each.shape]:
                free[each.shape] -= 1
                total += each.bytes
        return total

    def cut(self, most: int) -> Plan:
        """Return the plan with the `most` largest buffers and the sum of the others."""
        if len(self.buffers) <= most:
            return self
        rest = sum(each.bytes for each in self.buffers[most:])
        buffers = (*self.buffers[:most], Buffer(kind="others", bytes=rest))
        return Plan(buffers=_largest_first(buffers), total_bytes=self.total_bytes, live=self.live)


def read_plans(serialized: bytes, module: Module, name_of_space: Callable[[int], str]) -> dict[str, Plan]:
    """Return the plan per memory space of a serialized `HloProto`, which is also in `module`.

    Spaces with the same name share a plan. Empty if the program has no buffer assignment, or an invalid one.
    """
    try:
        assignment = XLA.message_class("PlanProto").FromString(serialized).buffer_assignment
    except DecodeError:
        return {}
    values = _values(assignment.logical_buffers, module)
    heaps = _heaps(assignment, values)
    spaces = defaultdict[str, list[int]](list)
    allocations = assignment.buffer_allocations
    for at, each in enumerate(allocations):
        if each.size > 0 and not each.is_thread_local:
            spaces[name_of_space(each.color)].append(at)
    return {
        name: _plan(module, {at: allocations[at] for at in chosen}, values, heaps) for name, chosen in spaces.items()
    }


class _Value(Struct, gc=False):
    """A logical buffer: a part of the result of an instruction."""

    computation: int
    instruction: Instruction
    index: tuple[int, ...]
    bytes: int


def _values(logical_buffers: Sequence[Any], module: Module) -> dict[int, _Value]:
    wanted = {each.defined_at.instruction_id for each in logical_buffers}
    every = ((number, at, place) for at, ids in enumerate(module.ids) for place, number in enumerate(ids))
    by_id = {number: (at, place) for number, at, place in every if number in wanted}
    found = {}
    for each in logical_buffers:
        place = each.defined_at
        name = place.instruction_name.decode("utf-8", "replace")
        at = module.by_name.get(name) if name else by_id.get(place.instruction_id)
        if at is not None:
            instruction = module.computations[at[0]].instructions[at[1]]
            found[each.id] = _Value(at[0], instruction, tuple(place.shape_index), max(each.size, 0))
    return found


class _Heap(Struct):
    """Values of one allocation over the program: peak, values alive then with their memory, and bytes over time."""

    peak_bytes: int
    alive: Sequence[tuple[int, int, int, int]]
    """(value, bytes, first position, last position) at the peak."""
    live: Sequence[tuple[str, int]]
    """Instruction and largest bytes in use, by position."""


def _heaps(assignment: Any, values: Mapping[int, _Value]) -> dict[int, _Heap]:
    """Return the heap of each allocation whose record is whole; if it has several, the one with the highest peak."""
    owner = {
        each.logical_buffer_id: at
        for at, allocation in enumerate(assignment.buffer_allocations)
        for each in allocation.assigned
    }
    heaps: dict[int, _Heap] = {}
    for trace in assignment.heap_simulator_traces:
        by_allocation = defaultdict[int, list[Any]](list)
        for event in trace.events:
            by_allocation[owner.get(event.buffer_id, -1)].append(event)
        for at, events in by_allocation.items():
            heap = _simulated(events, values) if at >= 0 else None
            if heap is None or heap.peak_bytes > assignment.buffer_allocations[at].size:
                continue
            if at not in heaps or heap.peak_bytes > heaps[at].peak_bytes:
                heaps[at] = heap
    return heaps


def _simulated(events: Iterable[Any], values: Mapping[int, _Value]) -> _Heap | None:
    """Return the heap of one allocation; None if its events contradict each other."""
    record = _Record(values)
    for number, event in enumerate(events):
        if event.kind == _FREE:
            is_sound = record.free(number, event.buffer_id)
        else:
            block = event.share_with_canonical_id if event.kind == _SHARE else event.buffer_id
            is_sound = event.buffer_id in values and record.allocate(number, event.buffer_id, block)
        if not is_sound:
            return None
    return record.heap() if record.live else None


class _Record:
    """State of an allocation after some of its events. A block is the memory of the value that first used it.

    A value that shares the block of another keeps it in use; of several, the last one is its content.
    """

    def __init__(self, values: Mapping[int, _Value]) -> None:
        self._values = values
        self._block_of: dict[int, int] = {}
        self._users: dict[int, set[int]] = {}
        self._spans: dict[int, tuple[int, int | None]] = {}
        """First event of a value, and the event that frees it."""
        self._positions: dict[int, tuple[int, int | None]] = {}
        """First and last position of a block."""
        self._used = self._peak_bytes = self._peak = 0
        self.live: list[tuple[str, int]] = []

    def allocate(self, number: int, value: int, block: int) -> bool:
        """Start a value in a block: its own, or one that exists. Return whether this is possible."""
        block = self._block_of.get(block, block)
        if value in self._block_of or (block != value and block not in self._users):
            return False
        name = self._values[value].instruction.name
        if not self.live or self.live[-1][0] != name:
            self.live.append((name, self._used))
        users = self._users.setdefault(block, set())
        if not users:
            self._used += self._values[block].bytes
            self._positions.setdefault(block, (len(self.live) - 1, None))
        users.add(value)
        self._block_of[value], self._spans[value] = block, (number, None)
        self.live[-1] = (name, max(self.live[-1][1], self._used))
        if self._used > self._peak_bytes:
            self._peak_bytes, self._peak = self._used, number
        return True

    def free(self, number: int, value: int) -> bool:
        """End a value. Return whether it was in use."""
        block = self._block_of.get(value)
        if block is None or value not in self._users[block]:
            return False
        self._users[block].remove(value)
        self._spans[value] = (self._spans[value][0], number)
        if not self._users[block]:
            self._used -= self._values[block].bytes
            self._positions[block] = (self._positions[block][0], len(self.live) - 1)
        return True

    def heap(self) -> _Heap:
        """Return the values in use at the first peak."""
        content = {
            self._block_of[value]: value
            for value, (start, end) in self._spans.items()  # in order of their starts
            if start <= self._peak and (end is None or end > self._peak)
        }
        alive = []
        for block, value in content.items():
            first, last = self._positions[block]
            alive.append((value, self._values[block].bytes, first, len(self.live) - 1 if last is None else last))
        return _Heap(self._peak_bytes, alive, self.live)


def _plan(
    module: Module, allocations: Mapping[int, Any], values: Mapping[int, _Value], heaps: Mapping[int, _Heap]
) -> Plan:
    total = sum(each.size for each in allocations.values())
    buffers: list[Buffer] = []
    for at, each in allocations.items():
        kind: Kind = "output" if each.maybe_live_out else "temporary"
        if each.is_entry_computation_parameter:
            kind = "parameter"
        elif each.is_constant:
            kind = "constant"
        heap = heaps.get(at)
        if heap is None:
            known = [values[part.logical_buffer_id] for part in each.assigned if part.logical_buffer_id in values]
            is_own = kind == "parameter"  # its allocation may also hold a result
            value = max(known, key=lambda each: (is_own and each.instruction.opcode == kind, each.bytes), default=None)
            if value is not None and len(known) > 1 and kind == "temporary" and value.bytes < each.size:
                value = None  # several values at a time: which ones is not recorded
            buffers.append(
                _buffer(module, kind, value, each.size, is_reused=kind == "parameter" and each.maybe_live_out)
            )
            continue
        buffers += [
            _buffer(module, kind, values[value], size, first=first, last=last)
            for value, size, first, last in heap.alive
        ]
        if each.size > heap.peak_bytes:
            buffers.append(Buffer(kind="unused", bytes=each.size - heap.peak_bytes))
    traced = [at for at in allocations if at in heaps]
    live: tuple[tuple[int, str, int], ...] = ()
    if traced:
        main = max(traced, key=lambda at: allocations[at].size)
        others = total - allocations[main].size
        points = [(at, name, others + used) for at, (name, used) in enumerate(heaps[main].live)]
        width = -(-len(points) // MOST_POINTS)
        live = tuple(max(points[start : start + width], key=itemgetter(2)) for start in range(0, len(points), width))
    return Plan(buffers=_largest_first(buffers), total_bytes=total, live=live).cut(MOST_BUFFERS)


def _buffer(module: Module, kind: Kind, value: _Value | None, size: int, **facts: Any) -> Buffer:
    if value is None:
        return Buffer(kind=kind, bytes=size, **facts)
    instruction = value.instruction
    shape: Shape | None = instruction.shape
    for part in value.index:
        shape = shape.parts[part] if shape is not None and 0 <= part < len(shape.parts) else None
    is_array = shape is not None and not shape.is_tuple and shape.is_known
    origin = _origin(module, value.computation, instruction, value.index)
    return Buffer(
        kind=kind,
        bytes=size,
        padding_bytes=max(size - shape.bytes, 0) if shape is not None and is_array else None,
        instruction=instruction.name,
        opcode=instruction.opcode,
        framework_op=origin.op_name,
        source=str(origin.source),
        shape="" if shape is None else str(shape),
        **facts,
    )


def _origin(module: Module, computation: int, instruction: Instruction, index: tuple[int, ...]) -> OpMetadata:
    """Return the op that a value was compiled from: for a fusion, of this result; for a copy, of what it copies."""
    inside = module.computations[computation]
    while instruction.opcode in _COPIES and not instruction.metadata.op_name and instruction.operands:
        instruction = inside.instructions[instruction.operands[0]]
    if instruction.opcode == "fusion" and instruction.calls:
        fused = module.computations[instruction.calls[0]]
        root = fused.root_instruction
        if root.opcode == "tuple" and index and 0 <= index[0] < len(root.operands):
            root = fused.instructions[root.operands[index[0]]]
        if root.metadata.op_name:
            return root.metadata
    return instruction.metadata


_COPIES = frozenset({"copy", "copy-start", "copy-done", "bitcast", "transpose", "reshape", "convert"})


def _largest_first(buffers: Iterable[Buffer]) -> tuple[Buffer, ...]:
    return tuple(sorted(buffers, key=lambda each: -each.bytes))
