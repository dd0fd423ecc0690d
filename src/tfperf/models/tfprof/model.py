"""Nodes of a graph with their executions, shapes, types and call stacks: the data of tfprof's views."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence

import msgspec
import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Bools, Int64s
from tfperf.base.units import listed
from tfperf.formats.models.dtypes import Shapes
from tfperf.formats.models.graph_def import Graph
from tfperf.formats.models.input_file import Source
from tfperf.models.tfprof import OptionError
from tfperf.models.tfprof.op_log import OpLog, Stacks
from tfperf.models.tfprof.options import ATTRIBUTES, PLACE
from tfperf.models.tfprof.run_metadata import HostStep, NodeIndex, Records, host_steps

CHECKPOINT_VARIABLES = "_checkpoint_variables"  # type of nodes whose values are in a checkpoint
_MOST_KERNELS = 3
AVERAGE = -1  # step number of the mean of all steps


class Intervals(Struct, frozen=True, kw_only=True):
    """Executions of nodes on devices, in microseconds since 1970; `device` indexes `Model.devices`."""

    node: Int64s
    device: Int64s
    start: Int64s
    duration: Int64s


class Executions(Struct, frozen=True, kw_only=True):
    """Records of one step: one row per recorded node, in ascending order.

    Times in ns are exact if the records have them, else converted from microseconds. `started` and `ended` are
    microseconds since 1970 over all devices; 0 if no record has a time. The rows of `memory` are requested, peak,
    residual and output bytes.
    """

    node: Int64s
    runs: Int64s
    accelerator_micros: Int64s
    cpu_micros: Int64s
    accelerator_nanos: Int64s
    cpu_nanos: Int64s
    started: Int64s
    ended: Int64s
    memory: Int64s
    intervals: Intervals
    allocators: tuple[Source, ...] = ()
    """Sources of the records of accelerator allocators (`timeline.allocations_of`)."""

    def renumbered(self, place: Int64s) -> Executions:
        """Return a copy in which node i has the number `place[i]`."""
        node = place[self.node]
        order = np.argsort(node)
        columns = {name: getattr(self, name)[..., order] for name in self.__struct_fields__ if name not in _NO_COLUMNS}
        return Executions(
            node=node[order],
            intervals=msgspec.structs.replace(self.intervals, node=place[self.intervals.node]),
            allocators=self.allocators,
            **columns,
        )


_NO_COLUMNS = ("node", "intervals", "allocators")


class Model(Struct, frozen=True, kw_only=True):
    """A graph and its runs. Nodes are sorted by name, the order in which tfprof visits them."""

    names: list[str]
    ops: list[str]
    device: list[str]
    """Device of each node, in lower case; empty if it never ran."""
    devices: list[str]
    """All devices with executions, in lower case, including streams of accelerators."""
    types: list[str]
    type_of: tuple[Int64s, Int64s]
    """Pairs of a node and one of its types: its op, its device, and its types in the log."""
    shape: Shapes
    float_ops: Int64s
    """Float operations per execution of each node, from the log."""
    input_of: Int64s
    input_source: Int64s
    input_shape: Shapes
    """Shape of each input: the shape of the source output that the input names."""
    first_slot_shape: Shapes
    """Input shapes under tfprof's assumption (D1) that every input is the first output of its source."""
    stacks: Stacks
    steps: Mapping[int, Executions]
    nhwc: list[str] = []
    """Names of nodes whose attribute `data_format` is NHWC."""
    kernel: list[str] = []
    """Kernel that the runtime ran for each node; empty if it was not recorded, as in a profile."""
    hosts: list[HostStep] = []
    mean: Executions | None = None  # None averages each node over the steps that recorded it, as tfprof does
    skipped: int = 0  # number of leading steps left out

    def values(self, step: int) -> Int64s:
        """Return the own values of all nodes in a step, or their mean: one row per entry of `ATTRIBUTES`.

        Raises ValueError for a step that was not recorded.
        """
        count = len(self.names)
        values = np.zeros((len(ATTRIBUTES), count), np.int64)
        recorded = np.zeros(count, np.int64)
        for each in self.averaged(step):
            recorded[each.node] += 1
            values[PLACE["runs"], each.node] += each.runs
            values[PLACE["accelerator_micros"], each.node] += each.accelerator_micros
            values[PLACE["cpu_micros"], each.node] += each.cpu_micros
            values[: len(each.memory), each.node] += each.memory
        values[PLACE["micros"]] = values[PLACE["accelerator_micros"]] + values[PLACE["cpu_micros"]]
        if step == AVERAGE:
            # Round toward zero, as C++ does.
            quotient = np.abs(values) // np.maximum(recorded, 1)
            values = np.where(values < 0, -quotient, quotient)
        values[PLACE["params"]] = self.shape.elements()
        values[PLACE["float_ops"]] = self.float_ops * np.where(self.has_run(), values[PLACE["runs"]], 1)
        values[PLACE["definitions"]] = 1
        return values

    def averaged(self, step: int) -> list[Executions]:
        """Return the executions that `values` averages, per node over those that include it; for one step, its own."""
        recorded = [*self.recorded(step).values()]
        return [self.mean] if step == AVERAGE and self.mean is not None else recorded

    def has_run(self) -> Bools:
        """Return which nodes any step recorded; the float operations of other nodes describe a single run.

        A node without records was pruned from the graph that ran, or fused into the kernel of another node.
        """
        ran = np.zeros(len(self.names), np.bool_)
        for each in self.steps.values():
            ran[each.node] = True
        return ran

    def ran_as(self, nodes: Sequence[int]) -> str:
        """Return the kernels that ran for nodes, the most frequent first, if their types differ from the op."""
        if not self.kernel:
            return ""
        expected = {"", *(self.ops[node] for node in nodes)}
        ran = Counter(self.kernel[node] for node in nodes if self.kernel[node] not in expected)
        return ", ".join(kernel for kernel, _ in ran.most_common(_MOST_KERNELS))

    def recorded(self, step: int) -> Mapping[int, Executions]:
        """Return the records of a step, or of all steps for their mean; ValueError for an unknown step."""
        if step == AVERAGE:
            return self.steps
        if step not in self.steps:
            there = (
                f"use one of {listed([*map(str, self.steps)], 8)}, or -1 for their mean" if self.steps else "none was"
            )
            raise OptionError(f"step {step} was not recorded: {there}")
        return {step: self.steps[step]}

    def input_rows(self) -> tuple[Int64s, Int64s]:
        """Return the start of each node's inputs in the list of all inputs, and their number."""
        each = np.bincount(self.input_of, minlength=len(self.names))
        return np.cumsum(each) - each, each


_NEVER = np.iinfo(np.int64).max


def executions(parts: Sequence[Records], index: NodeIndex) -> Executions:
    """Return the records of a step per node, from one file or more; unknown nodes are added to the index."""
    joined = [index.join(part) for part in parts]
    node, place = np.unique(np.concatenate([each.node for each in joined]), return_inverse=True)

    def column(name: str) -> Int64s:
        return np.concatenate([getattr(part, name)[each.rows] for part, each in zip(parts, joined, strict=True)])

    timed = column("start_micros") > 0
    is_canonical = np.concatenate([each.is_canonical for each in joined])
    of_streams = np.concatenate([each.is_all_streams for each in joined])
    on_device = timed & is_canonical & ~of_streams
    duration = column("duration_micros")
    nanos = np.where(column("duration_nanos") > 0, column("duration_nanos"), 1000 * duration)
    started, ended = np.full(len(node), _NEVER, np.int64), np.zeros(len(node), np.int64)
    np.minimum.at(started, place.reshape(-1)[timed], column("start_micros")[timed])
    np.maximum.at(ended, place.reshape(-1)[timed], (column("start_micros") + duration)[timed])
    device = np.concatenate([each.device for each in joined])
    single = on_device | (timed & of_streams)
    memory = [np.where(is_canonical, column(name), 0) for name in ("requested", "peak", "residual", "output")]
    return Executions(
        node=node,
        memory=np.stack([sum_by(place, values, len(node)) for values in memory]),
        runs=sum_by(place, on_device.astype(np.int64), len(node)),
        accelerator_micros=sum_by(place, np.where(timed & of_streams, duration, 0), len(node)),
        cpu_micros=sum_by(place, np.where(on_device, duration, 0), len(node)),
        accelerator_nanos=sum_by(place, np.where(timed & of_streams, nanos, 0), len(node)),
        cpu_nanos=sum_by(place, np.where(on_device, nanos, 0), len(node)),
        started=np.where(started == _NEVER, 0, started),
        ended=ended,
        intervals=Intervals(
            node=np.concatenate([each.node for each in joined])[single],
            device=device[single],
            start=column("start_micros")[single],
            duration=duration[single],
        ),
        allocators=tuple(records.allocators for records in parts if records.allocators is not None),
    )


def sum_by(place: Int64s, values: Int64s, count: int) -> Int64s:
    """Return the sum of the values of each of `count` places."""
    total = np.zeros(count, np.int64)
    np.add.at(total, place.reshape(-1), values)
    return total


def build_model(graph: Graph, steps: Mapping[int, Iterable[Records]], log: OpLog | None) -> Model:
    """Join a graph, the records of its steps (several files per step are merged), and its log."""
    index = NodeIndex(graph.names, graph.ops)
    recorded: dict[int, Executions] = {}
    hosts = []
    for step, records in steps.items():
        parts = [*records]
        recorded[step] = executions(parts, index)
        hosts += host_steps(step, parts)
    names = index.names
    order = sorted(range(len(names)), key=names.__getitem__)
    place = np.empty(len(names), np.int64)
    place[order] = np.arange(len(names))
    all_devices = index.devices
    devices = ["" if device < 0 else all_devices[device] for device in index.device_of().tolist()]
    devices += [""] * (len(names) - len(devices))
    known = len(graph.names)
    shape_row = np.array(order, np.int64)
    inputs = np.argsort(place[graph.input_of], kind="stable")
    source = graph.input_source[inputs]
    by_name = {name: position for position, name in enumerate(names[number] for number in order)}
    entries = [(by_name[name], entry) for entry, name in enumerate(log.names if log else ()) if name in by_name]
    types, type_of = _types(
        [index.ops[number] for number in order], [devices[number] for number in order], log, entries
    )
    float_ops = np.zeros(len(names), np.int64)
    if log is not None and entries:
        node, entry = np.array(entries, np.int64).T
        counted = log.float_ops[entry] > 0
        float_ops[node[counted]] = log.float_ops[entry[counted]]
    return Model(
        names=[names[number] for number in order],
        ops=[index.ops[number] for number in order],
        device=[devices[number] for number in order],
        devices=all_devices,
        types=types,
        type_of=type_of,
        shape=graph.shape.take(np.where(shape_row < known, shape_row, -1)),
        float_ops=float_ops,
        input_of=place[graph.input_of[inputs]],
        input_source=np.where(source >= 0, place[source], -1),
        input_shape=_input_shapes(graph, inputs, graph.input_slot),
        first_slot_shape=_input_shapes(graph, inputs, np.zeros(len(inputs), np.int64)),
        stacks=_stacks(log, entries, len(names)),
        steps={step: each.renumbered(place) for step, each in recorded.items()},
        nhwc=[graph.names[number] for number in np.flatnonzero(graph.is_nhwc).tolist()],
        kernel=[index.kernels.get(number, "") for number in order],
        hosts=hosts,
    )


def _input_shapes(graph: Graph, inputs: Int64s, slots: Int64s) -> Shapes:
    source, slot = graph.input_source[inputs], np.maximum(slots[inputs], 0)
    at = np.maximum(source, 0)
    row = graph.output_first[at] + slot
    there = (source >= 0) & (row < graph.output_first[at + 1])
    return graph.output_shapes.take(np.where(there, row, -1))


def _types(
    ops: list[str], devices: list[str], log: OpLog | None, entries: list[tuple[int, int]]
) -> tuple[list[str], tuple[Int64s, Int64s]]:
    number: dict[str, int] = {}
    pairs = {(node, number.setdefault(op, len(number))) for node, op in enumerate(ops)}
    pairs |= {(node, number.setdefault(device, len(number))) for node, device in enumerate(devices) if device}
    if log is not None:
        pairs |= {(node, number.setdefault(kind, len(number))) for node, entry in entries for kind in log.types[entry]}
    node, kind = np.array(sorted(pairs), np.int64).reshape(-1, 2).T
    return [*number], (node, kind)


def _stacks(log: OpLog | None, entries: list[tuple[int, int]], count: int) -> Stacks:
    if log is None or not entries:
        none = np.zeros(0, np.int64)
        return Stacks(ends=np.zeros(count + 1, np.int64), frame=none, files=[], lines=[], functions=[])
    row = np.full(count, -1, np.int64)
    node, entry = np.array(entries, np.int64).T
    has_stack = np.diff(log.stacks.ends)[entry] > 0
    row[node[has_stack]] = entry[has_stack]
    return log.stacks.take(row)


def with_checkpoint(model: Model, names: Container[str]) -> Model:
    """Return the model with `CHECKPOINT_VARIABLES` as a type of these nodes, whose values a checkpoint has."""
    nodes = [node for node, name in enumerate(model.names) if name in names]
    node = np.concatenate((model.type_of[0], np.array(nodes, np.int64)))
    kind = np.concatenate((model.type_of[1], np.full(len(nodes), len(model.types), np.int64)))
    order = np.argsort(node, kind="stable")
    return msgspec.structs.replace(
        model, types=[*model.types, CHECKPOINT_VARIABLES], type_of=(node[order], kind[order])
    )


def typed(model: Model, matched: Bools) -> Bools:
    """Return for each node whether one of its types is matched."""
    node, kind = model.type_of
    found = np.zeros(len(model.names), np.bool_)
    found[node[matched[kind]]] = True
    return found
