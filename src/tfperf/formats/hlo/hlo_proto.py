"""Read XLA programs from protobuf: `HloProto`, `HloModuleProto` or `HloSnapshot`, distinguished by content."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cache
from operator import itemgetter
from typing import Any, Literal

import msgspec
import numpy as np
from google.protobuf.message import DecodeError
from msgspec import Struct

from tfperf.formats.hlo.messages import ALGORITHMS, ELEMENT_TYPES, OPERAND_PRECISIONS, XLA
from tfperf.formats.hlo.model import (
    BITS,
    MOST_DIMS,
    MOST_INSTRUCTIONS,
    UNKNOWN,
    BufferSizes,
    ConvolutionDims,
    DotDims,
    FoundComputation,
    FoundInstruction,
    Frame,
    Frames,
    Module,
    OpMetadata,
    ProductPrecision,
    ProgramError,
    ReplicaGroups,
    Shape,
    WindowDim,
    link,
)
from tfperf.formats.wire.schema import fields_of

_OPCODE = re.compile(rb"[a-z][a-z0-9-]*")
_MOST_RANKS = 1 << 16
_OPEN = -(1 << 63)
"""XLA's value for a dynamic dimension."""
_DISTRIBUTIONS = {1: "uniform", 2: "normal"}


def read_proto(data: bytes) -> Module:
    """Read a serialized `HloProto`, `HloModuleProto` or `HloSnapshot`; raise ProgramError if it is invalid."""
    for layers in (("HloProto",), (), ("HloSnapshot", "HloProto")):
        found = _unpack(data, layers)
        if found is not None:
            return _Reader(*found).module()
    raise ProgramError("not an XLA program (HloProto, HloModuleProto or HloSnapshot), or damaged")


def _unpack(data: bytes, layers: tuple[str, ...]) -> tuple[Any, bytes] | None:
    """Return the module and buffer assignment inside these messages, or None."""
    buffers = b""
    try:
        for layer in layers:
            message = XLA.message_class(layer).FromString(data)
            data = message.hlo if layer == "HloSnapshot" else message.hlo_module
            buffers = b"" if layer == "HloSnapshot" else message.buffer_assignment
        module = XLA.message_class("HloModule").FromString(data)
        if not module.computations:
            return None
        first = XLA.message_class("HloComputation").FromString(module.computations[0])
        head = XLA.message_class("HloInstruction").FromString(first.instructions[0]) if first.instructions else None
    except DecodeError:
        return None
    return (module, buffers) if head is not None and _OPCODE.fullmatch(head.opcode) else None


class _Reader:
    """Reads one module; parts with equal bytes are decoded once."""

    def __init__(self, module: Any, buffers: bytes) -> None:
        self._module, self._buffers = module, buffers
        self._frames = _frames(module.stack_frame_index)
        self._parse = XLA.message_class("HloInstruction").FromString
        fields: dict[str, _Field] = {
            **_PLAIN,
            "opcode": ("opcode", cache(lambda value: value.decode() if _OPCODE.fullmatch(value) else "")),
            "shape": ("shape", _Decoded("Shape", _shape).__getitem__),
            "metadata": ("metadata", _Decoded("OpMetadata", self._metadata).__getitem__),
            "window": ("window", _Decoded("Window", _window).__getitem__),
        }
        self._fields = {descriptor: fields[descriptor.name] for descriptor in XLA.descriptor("HloInstruction").fields}

    def module(self) -> Module:
        name = _text(self._module.name)
        try:
            found = self._computations()
            buffers = _buffer_sizes(self._buffers) if self._buffers else None
        except DecodeError as error:
            raise ProgramError(
                f"the program {name[:200]!r} is damaged: {' '.join(str(error).split())[:200]}"
            ) from error
        entry: Any = self._module.entry_computation_id
        if not any(each.key == entry for each in found):
            entry_name = _text(self._module.entry_computation_name)
            entry = next((each.key for each in found if each.name == entry_name), entry)
        entries = self._module.input_output_alias.entries
        aliases = {tuple(each.output_shape_index): each.parameter_number for each in entries}
        ids = tuple(tuple([each.key for each in computation.instructions]) for computation in found)
        facts = {"id": self._module.id, "aliases": aliases, "buffers": buffers, "ids": ids}
        return link(name, found, entry, **facts)

    def _computations(self) -> list[FoundComputation]:
        found, count = [], 0
        for serialized in self._module.computations:
            computation = XLA.message_class("HloComputation").FromString(serialized)
            count += len(computation.instructions)
            if count > MOST_INSTRUCTIONS:
                raise ProgramError(f"the program has more than the maximum of {MOST_INSTRUCTIONS:,} instructions")
            instructions = [self._instruction(each) for each in computation.instructions]
            root = computation.root_id
            if root == 0 and instructions and all(each.key != root for each in instructions):
                root = instructions[-1].key
            found.append(FoundComputation(computation.id, _text(computation.name), instructions, root))
        return found

    def _instruction(self, serialized: bytes) -> FoundInstruction:
        item = self._parse(serialized)
        fields: dict[str, Any] = {}
        for descriptor, value in item.ListFields():  # only fields that are set: looking at all takes longer
            name, convert = self._fields[descriptor]
            fields[name] = convert(value)
        if not fields.get("opcode"):
            raise ProgramError(f"instruction {_text(item.name)[:200]!r} has no opcode: {_text(item.opcode)[:200]!r}")
        if "shape" not in fields:
            raise ProgramError(f"instruction {_text(item.name)[:200]!r} has no shape")
        return FoundInstruction(fields.pop("id", 0), fields, fields.pop("operands", ()), fields.pop("calls", ()))

    def _metadata(self, item: Any) -> OpMetadata:
        stack = _stack(self._frames, item)
        return OpMetadata(_text(item.op_type), _text(item.op_name), stack, _text(item.deduplicated_name))


class _Decoded(dict[bytes, Any]):
    """Converted messages by their serialized bytes, each converted when it is first looked up."""

    def __init__(self, message: str, convert: Callable[[Any], Any]) -> None:
        super().__init__()
        self._parse, self._convert = XLA.message_class(message).FromString, convert

    def __missing__(self, serialized: bytes) -> Any:
        found = self[serialized] = self._convert(self._parse(serialized))
        return found


def _frames(index: Any) -> Frames:
    return Frames(
        [_text(name) for name in index.file_names],
        [_text(name) for name in index.function_names],
        [(place.file_name_id, place.function_name_id, place.line) for place in index.file_locations],
        [(frame.file_location_id, frame.parent_frame_id) for frame in index.stack_frames],
    )


def _stack(frames: Frames, metadata: Any) -> tuple[Frame, ...]:
    stack = frames.stack(metadata.stack_frame_id)
    if not stack and metadata.source_file:
        stack = (Frame(_text(metadata.source_file), metadata.source_line),)
    return stack


def read_sources(serialized: bytes) -> dict[str, str]:
    """Return the source lines (`file:line`) of the instructions of a serialized `HloProto`; empty for other bytes."""
    try:
        module = XLA.message_class("SourcesProto").FromString(serialized).hlo_module
    except DecodeError:
        return {}
    frames = _frames(module.stack_frame_index)
    stacks = {
        _text(item.name): _stack(frames, item.metadata)
        for computation in module.computations
        for item in computation.instructions
    }
    return {name: str(stack[0]) for name, stack in stacks.items() if stack}


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace") if value else ""


_items = itemgetter(slice(None))
"""Slicing a protobuf list into a Python list takes a third of the time of `list`."""


def _shape(item: Any) -> Shape:
    kind = ELEMENT_TYPES.get(item.element_type)
    if kind is None:
        raise ProgramError(f"a shape has the unknown element type {item.element_type}")
    dims = tuple([UNKNOWN if dim == _OPEN else dim for dim in item.dimensions])
    if len(dims) > MOST_DIMS or any(dim < UNKNOWN or (dim == UNKNOWN and _OPEN not in item.dimensions) for dim in dims):
        raise ProgramError(f"a shape has invalid dimensions: {str(dims)[:200]}")
    dynamic = tuple(item.is_dynamic_dimension)
    dynamic = dynamic if any(dynamic) and len(dynamic) == len(dims) and UNKNOWN not in dims else ()
    layout, parts = item.layout, tuple(map(_shape, item.tuple_shapes))
    if max(len(layout.minor_to_major), len(layout.tiles), *(len(tile.dimensions) for tile in layout.tiles)) > MOST_DIMS:
        raise ProgramError(f"a shape has an invalid layout with {len(layout.tiles):,} tiles")
    tiles = tuple([tuple(tile.dimensions) for tile in layout.tiles])
    bits = layout.element_size_in_bits
    if not 0 <= bits <= 128:
        raise ProgramError(f"an element of a shape takes {bits} bits")
    return Shape(kind, dims, tuple(layout.minor_to_major), tiles, layout.memory_space, bits, parts, dynamic)


def _window(item: Any) -> tuple[WindowDim, ...]:
    return tuple(
        WindowDim(
            each.size,
            each.stride or 1,
            each.padding_low,
            each.padding_high,
            each.window_dilation or 1,
            each.base_dilation or 1,
            each.window_reversal,
        )
        for each in item.dimensions
    )


def _record(kind: type, message: str) -> Callable[[Any], Any]:
    """Return a converter of messages to structs with the fields declared in `XLA`; repeated ones become tuples."""
    names = [name for name, *_ in fields_of(XLA.messages[message])]

    def made(item: Any) -> Any:
        values = (getattr(item, name) for name in names)
        return kind(*(value if isinstance(value, int) else tuple(value) for value in values))

    return made


def _buffer_sizes(serialized: bytes) -> dict[int, BufferSizes]:
    """Sum allocations per memory space by the first matching rule; live-out parameters are reused by results."""
    sizes: dict[int, BufferSizes] = {}
    for each in XLA.message_class("BufferAssignment").FromString(serialized).buffer_allocations:
        if each.is_thread_local or not each.size:
            continue
        if each.is_entry_computation_parameter:
            own = BufferSizes(parameters=each.size, aliased=each.size if each.maybe_live_out else 0)
        elif each.is_constant:
            own = BufferSizes(constants=each.size)
        elif each.maybe_live_out:
            own = BufferSizes(outputs=each.size)
        else:
            own = BufferSizes(temporaries=each.size)
        sizes[each.color] = sizes.get(each.color, BufferSizes()).plus(own)
    return sizes


def _groups(items: Any) -> ReplicaGroups:
    sizes = {len(each.replica_ids) for each in items}
    members = tuple(rank for each in items for rank in each.replica_ids)
    return ReplicaGroups(len(items), *((sizes.pop(), members) if len(sizes) == 1 else ()))


def _iota_groups(item: Any) -> ReplicaGroups | None:
    """Return the groups of a device list: ranks in order, reshaped, transposed, and cut into groups."""
    iota = item.iota_replica_group_list
    count, size = iota.num_replica_groups, iota.num_devices_per_group
    if not count:
        return None
    dims, axes = [*iota.iota_reshape_dims], [*iota.iota_transpose_perm]
    is_whole = 0 < count * size == math.prod(dims) <= _MOST_RANKS and len(dims) <= MOST_DIMS
    if not is_whole or sorted(axes) != [*range(len(dims))][: len(axes)] or len(axes) not in (0, len(dims)):
        return ReplicaGroups(count, size)
    ranks = np.arange(count * size).reshape(dims).transpose(axes or None)
    return ReplicaGroups(count, size, tuple(ranks.ravel().tolist()))


_Field = tuple[str, Callable[[Any], Any]]
"""A field of an `Instruction`, and the converter of its value."""
_PLAIN: dict[str, _Field] = {
    "name": ("name", _text),
    "parameter_number": ("parameter", int),
    "fusion_kind": ("fusion_kind", _text),
    "tuple_index": ("tuple_index", int),
    "dimensions": ("dimensions", lambda numbers: tuple(_items(numbers))),
    "convolution_dimension_numbers": ("convolution", _record(ConvolutionDims, "ConvolutionDimensions")),
    "slice_dimensions": ("slices", lambda items: tuple((each.start, each.limit, each.stride) for each in items)),
    "dynamic_slice_sizes": ("slice_sizes", tuple),
    "padding_config": (
        "padding",
        lambda item: tuple(
            (each.edge_padding_low, each.edge_padding_high, each.interior_padding) for each in item.dimensions
        ),
    ),
    "distribution": ("distribution", lambda number: _DISTRIBUTIONS.get(number, "")),
    "custom_call_target": ("target", _text),
    "dot_dimension_numbers": ("dot", _record(DotDims, "DotDimensions")),
    "ragged_dot_dimension_numbers": (
        "dot",
        lambda item: msgspec.structs.replace(
            _record(DotDims, "DotDimensions")(item.dot_dimension_numbers), rhs_group=tuple(item.rhs_group_dimensions)
        ),
    ),
    "fft_length": ("fft_length", tuple),
    "gather_slice_sizes": ("slice_sizes", tuple),
    "backend_config": ("backend_config", _text),
    "feature_group_count": ("feature_groups", int),
    "batch_group_count": ("batch_groups", int),
    "comparison_direction": ("direction", _text),
    "replica_groups": ("groups", _groups),
    "precision_config": (
        "precision",
        lambda item: ProductPrecision(
            tuple(OPERAND_PRECISIONS.get(each, "default") for each in item.operand_precision)
            if any(item.operand_precision)
            else (),
            ALGORITHMS.get(item.algorithm, ""),
        ),
    ),
    "collective_device_list": ("groups", lambda item: _iota_groups(item) or _groups(item.replica_groups)),
    "id": ("id", int),
    "operand_ids": ("operands", _items),
    "called_computation_ids": ("calls", _items),
}
"""Fields of the message; operands and calls are still ids."""


# --- number types: the element type in which an instruction computes ---

_PRODUCTS = (b"dot", b"convolution", b"ragged-dot")
_FLOATS = ("f", "bf", "c")
"""First letters of the floating-point and complex types."""


def read_number_types(serialized: bytes, names: Iterable[str]) -> dict[str, str]:
    """Return the number types of these instructions of a serialized `HloProto`, omitting unknown ones.

    The number type is that of the first operand of a matrix product or convolution, which may be inside a fusion. For
    other instructions it is the type of most elements that they read, floating-point if there is any, also as result
    (random numbers are computed from integers).
    """
    try:
        module = XLA.message_class("TypedProto").FromString(serialized).hlo_module
    except DecodeError:
        return {}
    computations = {each.id: each.instructions for each in module.computations}
    shapes, wanted, found = _Decoded("Shape", _shape), {*names}, dict[str, str]()

    @cache
    def operand_of_product(key: int) -> Any | None:
        """Return the first operand of the first product in a computation."""
        instructions = computations.get(key, ())
        first = next((item.operand_ids[0] for item in instructions if _is_product(item)), None)
        return next((item for item in instructions if item.id == first), None)

    for instructions in computations.values():
        here = [item for item in instructions if _text(item.name) in wanted]
        by_id = {item.id: item for item in instructions} if here else {}
        for item in here:
            ids = item.operand_ids[:1] if _is_product(item) else item.operand_ids
            fused = [each for each in map(operand_of_product, item.called_computation_ids) if each is not None][:1]
            read = fused or [by_id[each] for each in ids if each in by_id]
            try:
                kind = _most_frequent_type([shapes[each.shape] for each in read], shapes[item.shape])
            except (DecodeError, ProgramError):
                continue
            if kind:
                found[_text(item.name)] = kind
    return found


def _is_product(item: Any) -> bool:
    return item.opcode in _PRODUCTS and bool(item.operand_ids)


def _most_frequent_type(operands: Sequence[Shape], result: Shape) -> str:
    """Return the type of most elements, of equally frequent ones the smallest; empty without arrays."""
    read, written = (
        [leaf for shape in shapes for leaf in shape.leaves() if leaf.type not in ("token", "opaque")]
        for shapes in (operands, [result])
    )
    floats = ([leaf for leaf in leaves if leaf.type.startswith(_FLOATS)] for leaves in (read, written))
    elements = Counter[str]()
    for leaf in next(filter(None, floats), read or written):
        elements[leaf.type] += leaf.elements if leaf.is_known else 0
    return min(elements, key=lambda kind: (-elements[kind], BITS[kind]), default="")


# --- the schedule: the order in which a program runs the instructions of its entry, loops and branches ---

Flow = Literal["", "loop", "branch", "call"]
"""How an instruction runs other computations: a loop first its condition, then its body; one of several; once."""
_FLOWS: dict[str, Flow] = {"while": "loop", "conditional": "branch", "call": "call", "async-start": "call"}
_WITHOUT_WORK = (
    *("parameter", "constant", "bitcast", "tuple", "get-tuple-element"),
    *("after-all", "add-dependency", "domain", "opt-barrier", "async-update"),
)
_OF_LIBRARIES = (
    *("custom-call", "convolution", "dot", "fft", "cholesky", "triangular-solve", "rng", "topk"),
    *("send", "recv", "all-", "reduce-scatter", "collective-", "ragged-all-to-all"),
)


class ScheduledOp(Struct, frozen=True, gc=False):
    """An instruction that may launch device work, or runs the computations `calls` (ids) as `flow` says.

    Instructions with equal `code` compute the same, so that XLA may compile one kernel for all of them.
    """

    name: str
    opcode: str
    code: Hashable
    flow: Flow = ""
    calls: tuple[int, ...] = ()
    target: str = ""
    """The function of a custom call."""
    is_library: bool = False
    """Whether a library or a kernel of the user's may do it, instead of a generated kernel or a copy."""


class Schedule(Struct, frozen=True):
    """The scheduled instructions of each computation, by its id."""

    entry: int
    computations: dict[int, tuple[ScheduledOp, ...]]


def read_schedule(serialized: bytes) -> Schedule | None:
    """Return the schedule of a serialized `HloProto`, or None for other bytes.

    A program without a schedule has its instructions in the order of the file, operands first.
    """
    try:
        module = XLA.message_class("ScheduledProto").FromString(serialized).hlo_module
    except DecodeError:
        return None
    computations = {each.id: each for each in module.computations}
    orders = {each.key: each.value.instruction_ids for each in module.schedule.sequences}
    found: dict[int, tuple[ScheduledOp, ...]] = {}
    waiting = [module.entry_computation_id]
    while waiting:
        key = waiting.pop()
        if key in found or key not in computations:
            continue
        instructions = computations[key].instructions
        if key in orders:
            by_id = {each.id: each for each in instructions}
            instructions = [by_id[each] for each in orders[key] if each in by_id]
        ops = (_scheduled(each, computations) for each in instructions)
        found[key] = tuple(op for op in ops if op.opcode not in _WITHOUT_WORK and not op.opcode.endswith("-done"))
        waiting += [call for op in found[key] if op.flow for call in op.calls]
    return Schedule(module.entry_computation_id, found)


def _scheduled(item: Any, computations: dict[int, Any]) -> ScheduledOp:
    opcode = item.opcode.decode("utf-8", "replace")
    name = item.name.decode("utf-8", "replace")
    flow = _FLOWS.get(opcode, "")
    if flow:
        # XLA lists the body of a loop before its condition.
        calls = item.called_computation_ids[::-1] if flow == "loop" else item.called_computation_ids
        return ScheduledOp(name, opcode, name, flow, tuple(calls))
    # The order of equal computations may differ, therefore they are compared as sorted.
    inner = [
        sorted((each.opcode, each.shape) for each in computations[call].instructions)
        for call in item.called_computation_ids
        if call in computations
    ]
    code = (opcode, item.shape, item.custom_call_target, item.fusion_kind, tuple(map(tuple, inner)))
    is_library = opcode.startswith(_OF_LIBRARIES) or item.fusion_kind == b"kCustom"
    target = item.custom_call_target.decode("utf-8", "replace")
    return ScheduledOp(name, opcode, code, target=target, is_library=is_library)
