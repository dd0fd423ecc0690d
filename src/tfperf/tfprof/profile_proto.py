"""A profile as tfprof writes it (ProfileProto): graph, runs and log in one."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec.structs import replace

from tfperf.arrays import Int64s, lookup
from tfperf.tfprof.allocations import allocator_log
from tfperf.tfprof.input_file import InputFile
from tfperf.tfprof.messages import TENSORFLOW
from tfperf.tfprof.model import Executions, Intervals, Model, sum_by
from tfperf.tfprof.op_log import stacks_of, string_table
from tfperf.tfprof.ragged import Shapes
from tfperf.tfprof.run_metadata import is_accelerator
from tfperf.wire.decoder import Decoder, items, numbers, offsets, take, texts


def read_profile(file: InputFile) -> Model:
    """Read a profile; raises TfprofInputError."""
    if not file.data:
        raise file.refused("is empty: it should be a profile of tfprof (ProfileProto)")
    decoder = Decoder(file, 0, TENSORFLOW)
    profile = decoder.one("ProfileProto", file.data)
    pairs = items(profile.column("nodes"))
    if not len(pairs):
        raise file.damaged(0, "a profile without nodes")
    nodes = decoder.all("ProfileNode", pairs.field("value"))
    names = texts(nodes.column("name"))
    if not all(names):
        raise file.damaged(0, "nodes without a name")
    order = np.array(sorted(range(len(names)), key=names.__getitem__), np.int64)
    place = np.empty(len(names), np.int64)
    place[order] = np.arange(len(names))
    ops, devices = texts(nodes.column("op")), texts(nodes.column("canonical_device"))
    types, type_of = _types(nodes, place)
    input_of, source, slot = _inputs(nodes, place, numbers(pairs.field("key")))
    shapes = _input_shapes(nodes, place, source, slot)
    all_devices, steps = _steps(nodes, place)
    rows = np.array([row for row, device in enumerate(devices) if is_accelerator(device)], np.int64)
    if len(rows):
        log = allocator_log(file, take(pairs.field("value"), rows), place[rows])
        steps = {step: replace(each, allocators=(replace(log, step=step),)) for step, each in steps.items()}
    stacks = stacks_of(nodes.column("trace").field("traces"), string_table(profile.column("id_to_string")))
    return Model(
        names=[names[number] for number in order.tolist()],
        ops=[ops[number] for number in order.tolist()],
        device=[devices[number] for number in order.tolist()],
        devices=all_devices,
        types=types,
        type_of=type_of,
        shape=_shapes(nodes.column("shape")).take(order),
        float_ops=numbers(nodes.column("float_ops"))[order],
        input_of=input_of,
        input_source=source,
        input_shape=shapes,
        first_slot_shape=shapes,
        stacks=stacks.take(order),
        steps=steps,
    )


def _owner(lists: Any, place: Int64s) -> Int64s:
    """Return for each item of the lists the node that it belongs to."""
    return np.repeat(place, np.diff(offsets(lists)))


def _types(nodes: Any, place: Int64s) -> tuple[list[str], tuple[Int64s, Int64s]]:
    lists = nodes.column("op_types")
    number: dict[str, int] = {}
    kind = np.array([number.setdefault(text, len(number)) for text in texts(items(lists))], np.int64)
    node = _owner(lists, place)
    order = np.lexsort((kind, node))
    return [*number], (node[order], kind[order])


def _shapes(lists: Any) -> Shapes:
    """Return shapes that are lists of numbers; an empty one is not known."""
    ends = offsets(lists).astype(np.int64)
    return Shapes(ends - ends[0], numbers(items(lists)).astype(np.int64), np.diff(ends) > 0)


def _inputs(nodes: Any, place: Int64s, ids: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Return of each input the node that it goes into, the one that it comes from, and the output of that."""
    lists = nodes.column("inputs")
    pairs, of = items(lists), _owner(lists, place)
    by_id = np.argsort(ids)
    found = lookup(ids[by_id], numbers(pairs.field("value")))
    source = np.where(found >= 0, place[by_id[np.maximum(found, 0)]], -1)
    order = np.lexsort((numbers(pairs.field("key")), of))
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
    return of[order], source[order], np.array(slot, np.int64)


def _input_shapes(nodes: Any, place: Int64s, source: Int64s, slot: Int64s) -> Shapes:
    """Return the shape of what comes into each input: that of the output that it comes from."""
    lists = nodes.column("output_shapes")
    pairs = items(lists)
    shapes = _shapes(pairs.field("value").field("int64_values"))
    outputs = numbers(pairs.field("key"))
    most = int(max(outputs.max(initial=0), slot.max(initial=0))) + 1
    key = _owner(lists, place) * most + outputs
    by_key = np.argsort(key, kind="stable")
    found = np.where(source >= 0, lookup(key[by_key], source * most + slot), -1)
    return shapes.take(np.where(found >= 0, by_key[np.maximum(found, 0)] if len(by_key) else -1, -1))


def _steps(nodes: Any, place: Int64s) -> tuple[list[str], dict[int, Executions]]:
    """Return all devices, and what each step recorded."""
    lists = nodes.column("execs")
    pairs, of = items(lists), _owner(lists, place)
    step, execs = numbers(pairs.field("key")), pairs.field("value")
    count = len(of)
    devices: list[str] = []
    accelerator, on_accelerator = _times(execs.field("accelerator_execs"), devices)
    cpu, on_cpu = _times(execs.field("cpu_execs"), devices)
    memory_lists = execs.field("memory_execs")
    owner, memory = _owner(memory_lists, np.arange(count)), items(memory_lists)
    names = ("requested_bytes", "peak_bytes", "residual_bytes", "output_bytes")
    sums = np.stack([sum_by(owner, numbers(memory.field(name)), count) for name in names])
    singles = [np.concatenate(columns) for columns in zip(on_accelerator, on_cpu, strict=True)]
    steps = {}
    for number in sorted({*step.tolist()}):
        rows = np.flatnonzero(step == number)
        rows = rows[np.argsort(of[rows])]
        single = np.flatnonzero(step[singles[0]] == number)
        steps[number] = Executions(
            node=of[rows],
            runs=numbers(execs.field("run_count"))[rows],
            accelerator_micros=accelerator[rows],
            cpu_micros=cpu[rows],
            memory=sums[:, rows],
            intervals=Intervals(
                node=of[singles[0][single]],
                device=singles[1][single],
                start=singles[2][single],
                duration=singles[3][single],
            ),
        )
    return devices, steps


def _times(lists: Any, devices: list[str]) -> tuple[Int64s, tuple[Int64s, Int64s, Int64s, Int64s]]:
    """Return the summed durations of each entry, and the single executions: entry, device, start, duration."""
    count = len(lists)
    pairs = items(lists)
    names = texts(pairs.field("key"))
    devices.extend(name for name in dict.fromkeys(names) if name not in devices)
    times = pairs.field("value").field("times")
    entry = _owner(times, _owner(lists, np.arange(count)))
    device = _owner(times, np.array([devices.index(name) for name in names], np.int64))
    values = items(times).field("int64_values")
    ends, flat = offsets(values).astype(np.int64), numbers(items(values))
    is_pair = np.diff(ends) == 2
    first = ends[:-1][is_pair] - ends[0]
    start, duration = flat[first], flat[first + 1]
    return sum_by(entry[is_pair], duration, count), (entry[is_pair], device[is_pair], start, duration)
