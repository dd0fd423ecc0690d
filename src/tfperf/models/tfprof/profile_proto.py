"""ProfileProto, tfprof's file with graph, runs and log."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.arrays import Int64s, lookup, ranges
from tfperf.formats.models.dtypes import Shapes
from tfperf.formats.models.graph_def import Graph, with_nhwc
from tfperf.formats.models.input_file import InputFile
from tfperf.formats.models.messages import TENSORFLOW
from tfperf.formats.wire.decoder import Decoder, items, numbers, offsets, texts
from tfperf.formats.wire.encode import Cells, below, beside, constant, prefixed, sums, varint
from tfperf.models.tfprof.model import Executions, Intervals, Model, sum_by
from tfperf.models.tfprof.op_log import stacks_of, string_table
from tfperf.models.tfprof.run_metadata import is_accelerator, is_all_streams

_LARGEST_SLOT = (1 << 16) - 1  # more than a hundred times the outputs of any TensorFlow op
_MOST_STEPS = 20_000


def read_profile(file: InputFile) -> Model:
    """Read a profile; raises TfprofInputError."""
    if not file.data:
        raise file.refused("is empty, but should be a tfprof profile (ProfileProto)")
    file.is_none_of_others()
    decoder = Decoder(file, 0, TENSORFLOW)
    profile = decoder.one("ProfileProto", file.data)
    pairs = items(profile.column("nodes"))
    if not len(pairs):
        raise file.damaged(0, "a profile without nodes")
    nodes = decoder.all("ProfileNode", pairs.field("value"), has_packed=True)
    names = texts(nodes.column("name"))
    if not all(names):
        raise file.damaged(0, "nodes without a name")
    file.named_once(names)
    order = np.array(sorted(range(len(names)), key=names.__getitem__), np.int64)
    place = np.empty(len(names), np.int64)
    place[order] = np.arange(len(names))
    ops, devices = texts(nodes.column("op")), texts(nodes.column("canonical_device"))
    type_lists = nodes.column("op_types")
    types: dict[str, int] = {}
    kind = np.array([types.setdefault(text, len(types)) for text in texts(items(type_lists))], np.int64)
    of_node = _owner(type_lists, place)
    by_node = np.lexsort((kind, of_node))
    input_of, index, source, slot = _inputs(nodes, place, numbers(pairs.field("key")))
    # The shape of an input is stated, or is the shape of its source output.
    shapes, row = _shapes_at(nodes.column("output_shapes"), place, source, slot)
    stated, stated_row = _shapes_at(nodes.column("input_shapes"), place, input_of, index)
    shapes = shapes.followed_by(stated).take(np.where(stated_row >= 0, len(shapes) + stated_row, row))
    all_devices, steps = _steps(file, nodes, place)
    if any(map(is_accelerator, devices)):
        steps = {step: replace(each, allocators=(file.source(),)) for step, each in steps.items()}
    stacks = stacks_of(file, nodes.column("trace").field("traces"), string_table(profile.column("id_to_string")))
    return Model(
        names=[names[number] for number in order.tolist()],
        ops=[ops[number] for number in order.tolist()],
        device=[devices[number] for number in order.tolist()],
        devices=all_devices,
        types=[*types],
        type_of=(of_node[by_node], kind[by_node]),
        shape=_shapes(nodes.column("shape")).take(order),
        float_ops=numbers(nodes.column("float_ops"))[order],
        input_of=input_of,
        input_source=source,
        input_shape=shapes,
        first_slot_shape=shapes,
        stacks=stacks.take(order),
        steps=steps,
        kernel=[""] * len(names),
        nhwc=[name for name, is_nhwc in zip(names, with_nhwc(nodes.column("attrs")).tolist(), strict=True) if is_nhwc],
    )


def _owner(lists: Any, place: Int64s) -> Int64s:
    return np.repeat(place, np.diff(offsets(lists)))


def _shapes(lists: Any) -> Shapes:
    """Return lists of numbers as shapes; an empty list is an unknown shape."""
    ends = offsets(lists).astype(np.int64)
    return Shapes(ends - ends[0], numbers(items(lists)).astype(np.int64), np.diff(ends) > 0)


def _inputs(nodes: Any, place: Int64s, ids: Int64s) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Return each input's node, index, source node and output index, in order of the nodes."""
    lists = nodes.column("inputs")
    pairs, of = items(lists), _owner(lists, place)
    by_id = np.argsort(ids)
    found = lookup(ids[by_id], numbers(pairs.field("value")))
    source = np.where(found >= 0, place[by_id[np.maximum(found, 0)]], -1)
    index = numbers(pairs.field("key"))
    order = np.lexsort((index, of))
    slots = nodes.column("src_output_index")
    slot_of = {
        (node, key): slot
        for node, key, slot in zip(
            _owner(slots, place).tolist(),
            numbers(items(slots).field("key")).tolist(),
            numbers(items(slots).field("value")).tolist(),
            strict=True,
        )
    }
    keys = numbers(pairs.field("value"))[order].tolist()
    slot = [slot_of.get(pair, 0) for pair in zip(of[order].tolist(), keys, strict=True)]
    clipped = np.clip(np.array(slot, np.int64), 0, _LARGEST_SLOT)
    return of[order], np.clip(index[order], 0, _LARGEST_SLOT), source[order], clipped


def _shapes_at(lists: Any, place: Int64s, node: Int64s, number: Int64s) -> tuple[Shapes, Int64s]:
    """Return the shapes of nodes by index, and the row for each node and index; -1 if there is none."""
    pairs = items(lists)
    shapes = _shapes(pairs.field("value").field("int64_values"))
    numbered = np.clip(numbers(pairs.field("key")), -1, _LARGEST_SLOT + 1)
    several = _LARGEST_SLOT + 3
    key = _owner(lists, place) * several + numbered + 1
    by_key = np.argsort(key, kind="stable")
    found = np.where(node >= 0, lookup(key[by_key], node * several + number + 1), -1)
    return shapes, np.where(found >= 0, by_key[np.maximum(found, 0)] if len(by_key) else -1, -1)


def _steps(file: InputFile, nodes: Any, place: Int64s) -> tuple[list[str], dict[int, Executions]]:
    """Return all devices, and the executions of each step."""
    lists = nodes.column("execs")
    pairs, of = items(lists), _owner(lists, place)
    step, execs = numbers(pairs.field("key")), pairs.field("value")
    count = len(of)
    number: dict[str, int] = {}
    accelerator, on_accelerator = _times(execs.field("accelerator_execs"), number)
    cpu, on_cpu = _times(execs.field("cpu_execs"), number)
    memory_lists = execs.field("memory_execs")
    owner, memory = _owner(memory_lists, np.arange(count)), items(memory_lists)
    names = ("requested_bytes", "peak_bytes", "residual_bytes", "output_bytes")
    sums = np.stack([sum_by(owner, numbers(memory.field(name)), count) for name in names])
    singles = [np.concatenate(columns) for columns in zip(on_accelerator, on_cpu, strict=True)]
    runs, started, ended = (
        numbers(execs.field(name)) for name in ("run_count", "all_start_micros", "latest_end_micros")
    )
    by_step, single_by_step = _groups(step, [of]), _groups(step[singles[0]], [])
    if len(by_step) > _MOST_STEPS or min(by_step, default=0) < 0:
        raise file.damaged(0, f"{len(by_step):,} steps, the first of them {min(by_step)}")
    none = np.zeros(0, np.int64)
    steps = {}
    for each, in_order in by_step.items():
        rows = in_order[np.append(np.diff(of[in_order]) > 0, True)]
        single = single_by_step.get(each, none)
        steps[each] = Executions(
            node=of[rows],
            runs=runs[rows],
            accelerator_micros=accelerator[rows],
            cpu_micros=cpu[rows],
            accelerator_nanos=1000 * accelerator[rows],
            cpu_nanos=1000 * cpu[rows],
            started=started[rows],
            ended=ended[rows],
            memory=sums[:, rows],
            intervals=Intervals(
                node=of[singles[0][single]],
                device=singles[1][single],
                start=singles[2][single],
                duration=singles[3][single],
            ),
        )
    return [*number], steps


def _groups(of: Int64s, then: Sequence[Int64s]) -> dict[int, Int64s]:
    """Return the rows of each value, ascending, in the order of `then`."""
    order = np.lexsort((*then, of))
    values, first = np.unique(of[order], return_index=True)
    return dict(zip(values.tolist(), np.split(order, first[1:]), strict=True)) if len(of) else {}


def _times(lists: Any, number: dict[str, int]) -> tuple[Int64s, tuple[Int64s, Int64s, Int64s, Int64s]]:
    """Return the summed durations of each entry, and single executions: entry, device, start, duration."""
    count = len(lists)
    pairs = items(lists)
    names = texts(pairs.field("key"))
    times = pairs.field("value").field("times")
    entry = _owner(times, _owner(lists, np.arange(count)))
    device = _owner(times, np.array([number.setdefault(name, len(number)) for name in names], np.int64))
    values = items(times).field("int64_values")
    ends, flat = offsets(values).astype(np.int64), numbers(items(values))
    is_pair = np.diff(ends) == 2
    first = ends[:-1][is_pair] - ends[0]
    start, duration = flat[first], flat[first + 1]
    return sum_by(entry[is_pair], duration, count), (entry[is_pair], device[is_pair], start, duration)


def profile_bytes(graph: Graph, model: Model) -> bytes:
    """Return a ProfileProto; `graph` is the original graph of the model.

    Memory is written as one record per node and step, because a model keeps sums.
    """
    place = {name: number for number, name in enumerate(model.names)}
    strings: dict[str, int] = {}
    traces = _traces(model, strings)
    types: list[list[str]] = [[] for _ in model.names]
    for owner, kind_of in zip(*(column.tolist() for column in model.type_of), strict=True):
        types[owner].append(model.types[kind_of])
    nodes: list[dict[str, Any]] = []
    for number, name in enumerate(model.names):
        nodes.append(
            {
                "name": name.encode(),
                "op": model.ops[number].encode(),
                "id": number,
                "shape": list(model.shape.dims(number)),
                "op_types": [kind.encode() for kind in types[number]],
                "canonical_device": model.device[number].encode(),
                "float_ops": int(model.float_ops[number]),
                "trace": {"traces": traces[number]},
            }
        )
    for own, name in enumerate(graph.names):
        first, stop = graph.output_first[own : own + 2].tolist()
        nodes[place[name]]["output_shapes"] = [
            _entry(slot - first, graph.output_shapes, slot) for slot in range(first, stop)
        ]
    _add_inputs(graph, [place[name] for name in graph.names], nodes)
    kind = TENSORFLOW.message_class("ProfileNode")
    pairs = [
        {"key": node["id"], "value": kind(**node).SerializeToString() + execs}
        for node, execs in zip(nodes, execution_bytes(model), strict=True)
    ]
    texts = [{"key": number, "value": text.encode()} for text, number in strings.items()]
    profile = TENSORFLOW.message_class("ProfileProto")(
        nodes=pairs, has_trace=int(bool(strings)), steps=[*model.steps], id_to_string=texts
    )
    return bytes(profile.SerializeToString())


def _traces(model: Model, strings: dict[str, int]) -> list[list[dict[str, int]]]:
    """Return the stack of each node; strings of its frames are numbered in `strings`."""
    stacks = model.stacks
    frames = [
        {
            "file_id": strings.setdefault(file, len(strings)),
            "lineno": line,
            "function_id": strings.setdefault(function, len(strings)),
        }
        for file, line, function in zip(stacks.files, stacks.lines, stacks.functions, strict=True)
    ]
    frame = stacks.frame.tolist()
    ends = itertools.pairwise(stacks.ends.tolist())
    return [[frames[number] for number in frame[start:stop]] for start, stop in ends]


def _entry(key: int, shapes: Shapes, row: int) -> dict[str, Any]:
    return {"key": key, "value": {"int64_values": list(shapes.dims(row))}}


def _add_inputs(graph: Graph, place: list[int], nodes: list[dict[str, Any]]) -> None:
    """Add the inputs of nodes: source nodes, their output indices, and their shapes.

    tfprof stores one output per source, so for several outputs only `input_shapes` is complete.
    """
    index: dict[int, int] = defaultdict(int)
    columns = (graph.input_of, graph.input_source, graph.input_slot)
    for own, source, slot in zip(*(column.tolist() for column in columns), strict=True):
        key = index[own]
        index[own] += 1
        slot = max(slot, 0)  # control inputs are negative
        if source >= 0:
            node = nodes[place[own]]
            node.setdefault("inputs", []).append({"key": key, "value": place[source]})
            node.setdefault("src_output_index", []).append({"key": place[source], "value": slot})
            if slot < graph.output_first[source + 1] - graph.output_first[source]:
                shape = _entry(key, graph.output_shapes, int(graph.output_first[source]) + slot)
                node.setdefault("input_shapes", []).append(shape)


_ROWS = 100_000  # records per write; bounds the memory
# Protobuf tags: field number and wire type (0: varint, 2: length-delimited).
_EXECS, _KEY, _VALUE = b"\x62", b"\x08", b"\x12"
_RUN_COUNT, _START, _END, _DEVICES, _MEMORY = b"\x08", b"\x10", b"\x18", b"\x32", b"\x3a"
_ACCELERATOR_EXECS, _CPU_EXECS, _DEVICE, _TIMES = 0x22, 0x2A, b"\x0a", b"\x0a"
_BYTES = (b"\x30", b"\x38", b"\x40", b"\x48")


class _Rows(Struct, frozen=True):
    """A record per recorded node and step, by node and then by step."""

    node: Int64s
    step: Int64s
    runs: Int64s
    memory: Int64s


class _Singles(Struct, frozen=True):
    """Single executions, in order of their record (`row`) and device."""

    row: Int64s
    device: Int64s
    start: Int64s
    duration: Int64s


def execution_bytes(model: Model) -> Iterator[bytes]:
    """Yield the serialized field `execs` of each ProfileNode."""
    rows, singles = _sorted(model)
    ends = np.searchsorted(rows.node, np.arange(len(model.names) + 1))
    first = 0
    while first < len(model.names):
        last = max(first + 1, int(np.searchsorted(ends, ends[first] + _ROWS, side="right")) - 1)
        last = min(last, len(model.names))
        data, stops = _serialized(model, rows, singles, slice(int(ends[first]), int(ends[last])))
        at = stops[ends[first : last + 1] - ends[first]].tolist()
        yield from (data[start:stop] for start, stop in itertools.pairwise(at))
        first = last


def _sorted(model: Model) -> tuple[_Rows, _Singles]:
    steps = [*model.steps.values()]
    none = np.zeros(0, np.int64)
    numbers = np.repeat(np.array([*model.steps], np.int64), [len(each.node) for each in steps])
    node = np.concatenate([none, *(each.node for each in steps)])
    order = np.lexsort((numbers, node))
    place = np.empty(len(node), np.int64)
    place[order] = np.arange(len(node))
    memory = np.concatenate([np.zeros((4, 0), np.int64), *(each.memory for each in steps)], axis=1)
    runs = np.concatenate([none, *(each.runs for each in steps)])
    rows = _Rows(node[order], numbers[order], runs[order], memory[:, order])
    starts = np.cumsum([0, *(len(each.node) for each in steps)])
    owners = [
        place[start + np.searchsorted(each.node, each.intervals.node)]
        for start, each in zip(starts.tolist(), steps, strict=False)
    ]
    row = np.concatenate([none, *owners])
    device, start, duration = (
        np.concatenate([none, *(getattr(each.intervals, name) for each in steps)])
        for name in ("device", "start", "duration")
    )
    order = np.lexsort((device, row))
    return rows, _Singles(row[order], device[order], start[order], duration[order])


def _serialized(model: Model, rows: _Rows, singles: _Singles, part: slice) -> tuple[bytes, Int64s]:
    """Return serialized records, and the start of each plus the end of the last."""
    count = part.stop - part.start
    inside = slice(*np.searchsorted(singles.row, [part.start, part.stop]).tolist())
    row, device = singles.row[inside] - part.start, singles.device[inside]
    start, duration = singles.start[inside], singles.duration[inside]
    is_first = np.ones(len(row), np.bool_)
    is_first[1:] = (row[1:] != row[:-1]) | (device[1:] != device[:-1])
    groups = np.flatnonzero(is_first)
    each = np.diff(np.append(groups, len(row)))
    times = prefixed(_TIMES, prefixed(_TIMES, beside(varint(start), varint(duration))))
    heads = _heads(model, device[groups], sums(each, times))
    stream = _interleaved(heads, each, times)
    in_row = np.bincount(row[groups], minlength=count) + np.bincount(row, minlength=count)
    length = sums(in_row, stream)
    first, last = np.full(count, np.iinfo(np.int64).max), np.zeros(count, np.int64)
    np.minimum.at(first, row, start)
    np.maximum.at(last, row, start + duration)
    scalars = _scalars(rows, part, (np.where(last > 0, first, 0), last))
    key = beside(constant(_KEY, count), varint(rows.step[part]))
    value = beside(constant(_VALUE, count), varint(scalars.size + length), scalars)
    records = prefixed(_EXECS, beside(key, value), length)
    return below(records, (in_row, stream)), np.concatenate(([0], np.cumsum(records.size + length)))


def _scalars(rows: _Rows, part: slice, span: tuple[Int64s, Int64s]) -> Cells:
    """Return the fields that occur once per record: runs, start, end, and memory."""
    fields = zip((_RUN_COUNT, _START, _END), (rows.runs[part], *span), strict=True)
    count = part.stop - part.start
    memory = [
        beside(constant(tag, count), varint(column)) for tag, column in zip(_BYTES, rows.memory[:, part], strict=True)
    ]
    return beside(
        *(beside(constant(tag, count), varint(column)) for tag, column in fields), prefixed(_MEMORY, beside(*memory))
    )


def _heads(model: Model, device: Int64s, length: Int64s) -> Cells:
    """Return the header of a device's executions, which take `length` bytes; it contains the device twice."""
    names = [name.encode() for name in model.devices] or [b""]
    width = max(map(len, names))
    table = np.array([list(name.ljust(width)) for name in names], np.uint8).reshape(len(names), width)
    sizes = np.array([*map(len, names)], np.int64)
    name = Cells.of(table[device], np.arange(width) < sizes[device][:, None], sizes[device])
    is_stream = np.array([is_all_streams(each) for each in model.devices], np.bool_)
    kinds = np.where(is_stream[device], _ACCELERATOR_EXECS, _CPU_EXECS).astype(np.uint8)[:, None]
    tag = Cells.of(kinds, np.ones_like(kinds, np.bool_), np.ones(len(device), np.int64))
    body = beside(prefixed(_DEVICE, name), constant(_VALUE, len(device)), varint(length))
    return beside(prefixed(_DEVICES, name), tag, varint(body.size + length), body)


def _interleaved(heads: Cells, counts: Int64s, items: Cells) -> Cells:
    """Return each head followed by its items."""
    width = max(heads.width, items.width)
    first = np.cumsum(counts + 1) - (counts + 1)
    place = np.concatenate((first, ranges(first + 1, counts)))
    order = np.empty(len(place), np.int64)
    order[place] = np.arange(len(place))
    data, used = (
        np.concatenate(parts)[order] for parts in zip(heads.laid_out(width), items.laid_out(width), strict=True)
    )
    return Cells.of(data, used.view(np.bool_), np.concatenate((heads.size, items.size))[order])
