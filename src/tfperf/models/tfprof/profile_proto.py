"""A profile as tfprof writes it (ProfileProto): graph, runs and log in one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from tfperf.base.arrays import Int64s, lookup
from tfperf.formats.wire.decoder import Decoder, items, numbers, offsets, texts
from tfperf.models.tfprof.graph_def import with_nhwc
from tfperf.models.tfprof.input_file import InputFile
from tfperf.models.tfprof.messages import TENSORFLOW
from tfperf.models.tfprof.model import Executions, Intervals, Model, sum_by
from tfperf.models.tfprof.op_log import stacks_of, string_table
from tfperf.models.tfprof.ragged import Shapes
from tfperf.models.tfprof.run_metadata import is_accelerator

_LARGEST_SLOT = (1 << 16) - 1
"""Of the outputs of a node; no op of TensorFlow has a hundredth of that."""
_MOST_STEPS = 20_000


def read_profile(file: InputFile) -> Model:
    """Read a profile; raises TfprofInputError."""
    if not file.data:
        raise file.refused("is empty: it should be a profile of tfprof (ProfileProto)")
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
    types, type_of = _types(nodes, place)
    input_of, index, source, slot = _inputs(nodes, place, numbers(pairs.field("key")))
    shapes = _input_shapes(nodes, place, (input_of, index), (source, slot))
    all_devices, steps = _steps(file, nodes, place)
    if any(map(is_accelerator, devices)):
        steps = {step: replace(each, allocators=(file.source(),)) for step, each in steps.items()}
    stacks = stacks_of(file, nodes.column("trace").field("traces"), string_table(profile.column("id_to_string")))
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
        kernel=[""] * len(names),
        nhwc=[name for name, is_nhwc in zip(names, with_nhwc(nodes.column("attrs")).tolist(), strict=True) if is_nhwc],
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


def _inputs(nodes: Any, place: Int64s, ids: Int64s) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Return of each input the node that it goes into and its number there, the one that it comes from, and its output.

    Inputs are in order of the nodes that they go into.
    """
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


def _input_shapes(nodes: Any, place: Int64s, inputs: tuple[Int64s, Int64s], sources: tuple[Int64s, Int64s]) -> Shapes:
    """Return the shape of what comes into each input: the one that is stated, or that of the output it comes from.

    `inputs` are nodes and the numbers of their inputs, `sources` are nodes and the numbers of their outputs.
    """
    shapes, row = _shapes_at(nodes.column("output_shapes"), place, *sources)
    stated, stated_row = _shapes_at(nodes.column("input_shapes"), place, *inputs)
    return shapes.followed_by(stated).take(np.where(stated_row >= 0, len(shapes) + stated_row, row))


def _shapes_at(lists: Any, place: Int64s, node: Int64s, number: Int64s) -> tuple[Shapes, Int64s]:
    """Return the shapes that nodes have by number, and which of them is that of each node and number; -1 for none."""
    pairs = items(lists)
    shapes = _shapes(pairs.field("value").field("int64_values"))
    numbered = np.clip(numbers(pairs.field("key")), -1, _LARGEST_SLOT + 1)
    several = _LARGEST_SLOT + 3
    key = _owner(lists, place) * several + numbered + 1
    by_key = np.argsort(key, kind="stable")
    found = np.where(node >= 0, lookup(key[by_key], node * several + number + 1), -1)
    return shapes, np.where(found >= 0, by_key[np.maximum(found, 0)] if len(by_key) else -1, -1)


def _steps(file: InputFile, nodes: Any, place: Int64s) -> tuple[list[str], dict[int, Executions]]:
    """Return all devices, and what each step recorded."""
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
    """Return the summed durations of each entry, and the single executions: entry, device, start, duration."""
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
