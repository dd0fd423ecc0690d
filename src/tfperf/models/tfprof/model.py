"""The nodes of a graph with all that is known of them: what tfprof's views arrange."""

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

CHECKPOINT_VARIABLES = "_checkpoint_variables"
"""The type of nodes whose values a checkpoint has."""
_MOST_KERNELS = 3
AVERAGE = -1
"""The step that stands for the mean of all steps."""


class Intervals(Struct, frozen=True, kw_only=True):
    """Executions of nodes on devices, in microseconds since 1970; `device` indexes `Model.devices`."""

    node: Int64s
    device: Int64s
    start: Int64s
    duration: Int64s


class Executions(Struct, frozen=True, kw_only=True):
    """What a step recorded: one row for each node that it has a record of, ascending.

    Nanoseconds are exact where the records have them, else they are those of the microseconds. `started` and `ended`
    are microseconds since 1970, over the records of any device; 0 where none has a time. `memory` has the rows
    requested, peak, residual and output bytes. `intervals` are single executions.
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
    """Where to read what allocators of accelerators recorded (`allocations.py`)."""

    def renumbered(self, place: Int64s) -> Executions:
        """Return the same where node i is called `place[i]`."""
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
    """A graph and its runs. Nodes are sorted by name, as tfprof goes through them."""

    names: list[str]
    ops: list[str]
    device: list[str]
    """The device of each node, in lower case; empty where it never ran."""
    devices: list[str]
    """All devices that have executions, in lower case; streams of accelerators too."""
    types: list[str]
    type_of: tuple[Int64s, Int64s]
    """Pairs of a node and one of its types: its op, its device, and what the log says."""
    shape: Shapes
    float_ops: Int64s
    """Of one execution of each node, as the log says."""
    input_of: Int64s
    input_source: Int64s
    input_shape: Shapes
    """Of each input, the shape of what comes in: of the output that is named."""
    first_slot_shape: Shapes
    """The same if all came from the first output of their sources, as the reference believes (D1)."""
    stacks: Stacks
    steps: Mapping[int, Executions]
    nhwc: list[str] = []
    """Names of the nodes whose attribute `data_format` is NHWC."""
    kernel: list[str] = []
    """What ran in the place of each node, as the runtime says; empty where it says nothing, as in a profile."""
    hosts: list[HostStep] = []
    """What each host did in each step."""
    mean: Executions | None = None
    """The mean of all steps; None: of each node over the steps that have a record of it, as tfprof has it."""
    skipped: int = 0
    """How many steps before these were left out."""

    def values(self, step: int) -> Int64s:
        """Return the own values of all nodes in a step, or their mean: a row for each of `ATTRIBUTES`.

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
            # Quotients as C++ has them, toward zero.
            quotient = np.abs(values) // np.maximum(recorded, 1)
            values = np.where(values < 0, -quotient, quotient)
        values[PLACE["params"]] = self.shape.elements()
        values[PLACE["float_ops"]] = self.float_ops * np.where(self.has_run(), values[PLACE["runs"]], 1)
        values[PLACE["definitions"]] = 1
        return values

    def averaged(self, step: int) -> list[Executions]:
        """Return the executions of which `values` is the mean, of each node over those that have it: of a step, one."""
        recorded = [*self.recorded(step).values()]
        return [self.mean] if step == AVERAGE and self.mean is not None else recorded

    def has_run(self) -> Bools:
        """Tell which nodes any step recorded; the float operations of the others are those of one run.

        Such a node was left out of the graph that ran, or runs as a part of another one, whose kernel holds both.
        """
        ran = np.zeros(len(self.names), np.bool_)
        for each in self.steps.values():
            ran[each.node] = True
        return ran

    def ran_as(self, nodes: Sequence[int]) -> str:
        """Return the kernels that ran for nodes, the most frequent first, where these are of other types."""
        if not self.kernel:
            return ""
        expected = {"", *(self.ops[node] for node in nodes)}
        ran = Counter(self.kernel[node] for node in nodes if self.kernel[node] not in expected)
        return ", ".join(kernel for kernel, _ in ran.most_common(_MOST_KERNELS))

    def recorded(self, step: int) -> Mapping[int, Executions]:
        """Return what was recorded in a step, or in all of them for their mean; ValueError if the step is not there."""
        if step == AVERAGE:
            return self.steps
        if step not in self.steps:
            there = (
                f"use one of {listed([*map(str, self.steps)], 8)}, or -1 for their mean" if self.steps else "none was"
            )
            raise OptionError(f"step {step} was not recorded: {there}")
        return {step: self.steps[step]}

    def input_rows(self) -> tuple[Int64s, Int64s]:
        """Return where the inputs of each node start among all inputs, and how many it has."""
        each = np.bincount(self.input_of, minlength=len(self.names))
        return np.cumsum(each) - each, each


_NEVER = np.iinfo(np.int64).max


def executions(parts: Sequence[Records], index: NodeIndex) -> Executions:
    """Return what a step recorded of each node, in one file or several; unknown nodes are added to the index."""
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
    """Return for each of `count` places the sum of the values that go there."""
    total = np.zeros(count, np.int64)
    np.add.at(total, place.reshape(-1), values)
    return total


def build_model(graph: Graph, steps: Mapping[int, Iterable[Records]], log: OpLog | None) -> Model:
    """Join a graph, the records of its steps (those of one step together), and its log."""
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
    """Return the call stacks by node; empty ones where the log has none."""
    if log is None or not entries:
        none = np.zeros(0, np.int64)
        return Stacks(ends=np.zeros(count + 1, np.int64), frame=none, files=[], lines=[], functions=[])
    row = np.full(count, -1, np.int64)
    node, entry = np.array(entries, np.int64).T
    has_stack = np.diff(log.stacks.ends)[entry] > 0
    row[node[has_stack]] = entry[has_stack]
    return log.stacks.take(row)


def with_checkpoint(model: Model, names: Container[str]) -> Model:
    """Return the model where the nodes of these names, which a checkpoint holds, have the type that says so."""
    nodes = [node for node, name in enumerate(model.names) if name in names]
    node = np.concatenate((model.type_of[0], np.array(nodes, np.int64)))
    kind = np.concatenate((model.type_of[1], np.full(len(nodes), len(model.types), np.int64)))
    order = np.argsort(node, kind="stable")
    return msgspec.structs.replace(
        model, types=[*model.types, CHECKPOINT_VARIABLES], type_of=(node[order], kind[order])
    )


def typed(model: Model, matched: Bools) -> Bools:
    """Tell for each node whether one of its types is matched."""
    node, kind = model.type_of
    found = np.zeros(len(model.names), np.bool_)
    found[node[matched[kind]]] = True
    return found
