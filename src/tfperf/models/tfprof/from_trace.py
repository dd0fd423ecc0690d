"""A tfprof model of a TensorFlow 2 profile: the cost of ops by name scope, kernel type and Python function.

A profile has names of ops and times, but no graph, variable sizes or float operations. These come from a graph and an
op log, joined by name, or are unknown. `TracedModel.check` rejects unknown attributes, so they are never shown as 0.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.arrays import MOST, NO_NUMBERS, Bools, Int64s, distinct, distinct_index
from tfperf.base.storage.remote_path import Location, located
from tfperf.base.units import counted, format_ms
from tfperf.formats.models.dtypes import Shapes
from tfperf.formats.models.graph_def import Graph, read_graph
from tfperf.formats.models.input_file import InputFile, TfprofInputError
from tfperf.models.tfprof import OptionError
from tfperf.models.tfprof.model import Executions, Intervals, Model, build_model
from tfperf.models.tfprof.op_log import OpLog, Stacks, read_op_log
from tfperf.models.tfprof.options import Options
from tfperf.models.tfprof.step_times import check_skipped
from tfperf.models.tfprof.views import View
from tfperf.trace.event_names import is_eager_call, is_python_frame, mask
from tfperf.trace.host.host_ops import NO_FRAMEWORK_OP, OpEvents, device_op_events, host_op_events
from tfperf.trace.host.python_frames import PythonFunction, python_functions
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.known_stats import DEVICE_OPS, HOST_OPS
from tfperf.trace.logdir import choose_hosts, choose_run, find_runs
from tfperf.trace.nesting import nest
from tfperf.trace.read import read_host
from tfperf.trace.steps.find_steps import find_steps
from tfperf.trace.steps.steps import Steps, step_word
from tfperf.trace.steps.tpu_steps import core_steps

NO_FRAMES = (
    "the profile has no Python frames, so the code view is not available: record them with `tfperf run "
    "--python-trace train.py`, or for a running job with `tfperf capture --python-trace --port 6009`; or pass the "
    "log of the code that built the graph with --op-log"
)
_NO_GRAPH = (
    "a profile has no graph, so the graph view is not available: pass a graph with --graph "
    "(concrete_function.graph.as_graph_def(add_shapes=True))"
)
_MEMORY = ("bytes", "peak_bytes", "residual_bytes", "output_bytes")
_WHY = {
    **dict.fromkeys(_MEMORY, "a profile does not record memory per op; use tfperf analyze -s memory"),
    "params": "a profile has no variable sizes; pass the graph with --graph",
    "float_ops": (
        "a profile has no float operations; pass the graph with --graph, its log with --op-log, and a profile in "
        "which the host ran all ops"
    ),
    "occurrence": "some ops are visible only through their kernels, so their number of runs is unknown",
    "accelerator_micros": "kernels are launched by threads without Python frames",
}
_CPU = "/device:cpu:0"
_US_PER_MS = 1000.0
_INLINED = re.compile(r"(?:Stateful)?PartitionedCall(?:_\d+)?/")
"""Prefix of the names of nodes of an inlined function."""


class TracedModel(Struct, frozen=True, kw_only=True):
    """A profile's model; `notes` explain its numbers. `unknown` attributes have no source; their zeros mean nothing."""

    model: Model
    notes: tuple[str, ...]
    unknown: frozenset[str]

    def check(self, options: Options) -> None:
        """Raise OptionError for options that use unknown attributes."""
        asked = {*options.select, options.order_by}
        asked |= {name for name in self.unknown if getattr(options, f"min_{name}") > 0}
        for name in sorted(self.unknown & asked):
            raise OptionError(f"{name} is unknown: {_WHY[name]}")


def trace_model(  # noqa: PLR0913  (every parameter is an option that users name)
    path: str | Location,
    view: View = "scope",
    *,
    graph: Path | None = None,
    op_log: Path | None = None,
    run: str | None = None,
    host: str | None = None,
    step_marker: str | None = None,
    skip_first: int = 0,
) -> TracedModel:
    """Return the model of a profile for a view.

    `path` is a logdir, a run folder or one `*.xplane.pb` file. `graph` (a GraphDef) and `op_log` are joined by node
    names. Steps are the whole steps of the kind that tfperf averages, by number, without the first `skip_first`. Raises
    TfprofInputError for a view that the profile does not support, OptionError if no step is left, TraceNotFoundError
    and TraceFormatError.
    """
    if view == "graph" and graph is None:
        raise TfprofInputError(_NO_GRAPH)
    selected = choose_hosts(choose_run(find_runs(located(path)), run), (host,) if host else ())
    file = selected.files[0]
    trace = read_host(file.path, file.host, stats=HOST_OPS | DEVICE_OPS | {"eager_op"})
    nodes = read_graph(InputFile(graph, "GraphDef")) if graph is not None else _NOTHING
    log = read_op_log(InputFile(op_log, "OpLogProto")) if op_log is not None else None
    found = find_steps(trace, step_marker)
    steps = _Windows(trace, found, skip_first)
    if view == "code" and op_log is None:
        traced = _of_python(trace, steps)
    else:
        on_device = device_op_events(trace)
        if trace.device_kind == "tpu" and found.headline.any():
            on_device = replace(on_device, start=_starts_in_steps(trace, found, on_device))
        traced = _of_ops(trace, steps, on_device, nodes, log)
    model = replace(traced.model, skipped=skip_first)
    notes = (*traced.notes, *steps.notes)
    if len(selected.files) > 1:
        notes = (*notes, f"Costs are for {file.host}, one of {len(selected.files)} hosts.")
    return replace(traced, model=model, notes=notes)


class _Windows:
    """The counted steps as windows; without any, the whole capture as step 0."""

    def __init__(self, trace: HostTrace, steps: Steps, skip_first: int) -> None:
        every = np.flatnonzero(steps.headline)
        check_skipped(skip_first, max(len(every), 1))
        rows = every[skip_first:]
        counted_steps = steps.only(rows)
        self.start, self.end, self.numbers = counted_steps.start_ps, counted_steps.end_ps, counted_steps.numbers
        self.notes: tuple[str, ...] = ()
        if not len(every):
            self.start, self.end = (np.array([each], np.int64) for each in trace.extent_ps)
            self.numbers = np.zeros(1, np.int64)
            self.notes = (f"The profile has no steps ({steps.explanation}): step 0 is the whole capture.",)
            return
        if len(distinct(self.numbers)) < len(rows):
            self.numbers = np.arange(len(rows))
            self.notes += ("Several steps have the same number in the program, so they are renumbered from 0.",)
        started = "it started" if trace.device_kind == "tpu" else "the host started it"
        kind = step_word(counted_steps.kinds[0])
        whole = "" if not any(counted_steps.flags) else ", including partial steps"
        left_out = len(steps) - len(every)
        others = f"; {counted(skip_first, 'first step')} skipped" if skip_first else ""
        others += (
            f"; {counted(left_out, 'other step')} (cut off, slow, or of another kind) excluded" if left_out else ""
        )
        self.notes += (
            f"The mean is over {counted(len(rows), kind)}{whole}, even if an op did not run in all of them{others}. "
            f"An op belongs to the step in which {started}.",
        )

    def executions(self, costs: Costs, order: Int64s) -> tuple[dict[int, Executions], Executions]:
        """Return the executions of each step by number, and their mean."""
        of_steps, mean = by_step(costs, self.start, self.end, order)
        return dict(zip(self.numbers.tolist(), of_steps, strict=True)), mean


def _starts_in_steps(trace: HostTrace, steps: Steps, events: OpEvents) -> Int64s:
    """Return the start of each TPU op's step, because TPU cores have their own steps; -1 outside of steps."""
    starts = np.full(len(events.start), -1, np.int64)
    for plane, begin, end in core_steps(trace, steps):
        ops = np.flatnonzero(events.plane == plane)
        step = np.searchsorted(begin, events.start[ops], side="right") - 1
        is_inside = (step >= 0) & (events.start[ops] < np.append(end, 0)[step])
        starts[ops] = np.where(is_inside, np.append(steps.start_ps, 0)[step], -1)
    return starts


def _of_ops(trace: HostTrace, steps: _Windows, on_device: OpEvents, graph: Graph, log: OpLog | None) -> TracedModel:
    """Return the model of all framework ops that ran."""
    on_host = host_op_events(trace)
    name_of = _joined_names(on_host.ops, on_device.ops, graph=graph)
    kernels: dict[str, list[str]] = {}
    for name, kind in (*on_host.ops, *on_device.ops):
        if kind not in (known := kernels.setdefault(name_of[name], [])):
            known.append(kind)
    if not kernels:
        raise TfprofInputError(
            f"{trace.path} has no TensorFlow ops: profile with --host-tracer-level 2 while the job is running steps"
        )
    model = build_model(_extended(graph, kernels), {}, log)
    number = {name: node for node, name in enumerate(model.names)}
    place = {name: number[joined_name] for name, joined_name in name_of.items()}
    devices = [_CPU, *(plane.name.lower() for plane in trace.planes)]
    costs = joined([_costs(on_host, place, on_device=False), _costs(on_device, place, on_device=True)])
    types = [(number[name], kind) for name, kinds in kernels.items() for kind in kinds]
    unknown = {*_MEMORY}
    if not graph.names:
        unknown |= {"params", "float_ops"}
    if log is None:
        unknown.add("float_ops")
    if {name_of[name] for name, _ in on_device.ops} - {name_of[name] for name, _ in on_host.ops}:
        unknown |= {"occurrence", "float_ops"}
    traced = _with(model, steps, costs, devices, types)
    notes = _notes(graph, kernels, on_device)
    if trace.device_kind == "tpu":
        cores = len(distinct(on_device.plane))
        sum_us = 0 if traced.mean is None else int(traced.mean.accelerator_micros.sum())
        mean = format_ms(sum_us / max(cores, 1) / _US_PER_MS)
        notes = (
            f"Times are sums over {counted(cores, 'TPU core')}: {mean} ms per core and step, including waits for "
            f"copies. {NO_FRAMEWORK_OP}: ops that the compiler added, such as copies.",
        )
    return TracedModel(model=traced, notes=notes, unknown=frozenset(unknown))


def _joined_names(*ops: Sequence[tuple[str, str]], graph: Graph) -> dict[str, str]:
    """Return the node name of each op name in the profile: the name in the graph, if it exists.

    An inlined function prefixes the names of its nodes with the name of its call.
    """
    known = {*graph.names}
    names: dict[str, str] = {}
    for name in (name for some in ops for name, _ in some):
        inner = name
        while inner not in known and (call := _INLINED.match(inner)):
            inner = inner[call.end() :]
        names[name] = inner if inner in known else name
    return names


def _notes(graph: Graph, kernels: dict[str, list[str]], on_device: OpEvents) -> tuple[str, ...]:
    """Return notes on names, types and times."""
    notes = ["Op types are the types of the kernels that ran (_FusedMatMul). A fused op has the name of its last part."]
    if graph.names:
        there = len({*graph.names}.intersection(kernels))
        notes = [
            f"{there} of the {counted(len(kernels), 'op')} that ran are in the graph by name; the others are listed "
            "separately, by the types of their kernels (TensorFlow's optimizer renames and fuses ops)."
        ]
    if len(on_device.op):
        notes.append("Device time is the time of kernels and copies with a known op, summed over devices.")
    return tuple(notes)


def _costs(events: OpEvents, place: dict[str, int], *, on_device: bool) -> Costs:
    node = np.array([place[name] for name, _ in events.ops], np.int64)[events.op] if len(events.op) else events.op
    nothing = np.zeros(len(node), np.int64)
    return Costs(
        node=node,
        device=events.plane + 1 if on_device else nothing,
        start=events.start,
        begin=events.begin,
        end=events.end,
        cpu_ps=nothing if on_device else events.self_ps,
        accelerator_ps=events.self_ps if on_device else nothing,
        runs=nothing if on_device else nothing + 1,
    )


def _of_python(trace: HostTrace, steps: _Windows) -> TracedModel:
    """Return the model of the TensorFlow calls of Python functions."""
    calls = python_calls(trace)
    if calls is None:
        raise TfprofInputError(NO_FRAMES)
    if not len(calls.node):
        raise TfprofInputError(
            "the profile has Python frames, but they contain no calls into TensorFlow, so the code view is not "
            "available; tfperf analyze -s python shows Python functions"
        )
    return TracedModel(
        model=_model_of_calls(calls, steps),
        notes=(
            "Times are for calls from Python into TensorFlow, including their waits, but not work of TensorFlow's "
            "own threads after a call returns. tfperf analyze -s python shows the time of Python itself.",
            *([f"Omitted: {counted(calls.outside, 'call')} outside of Python frames."] * bool(calls.outside)),
        ),
        unknown=frozenset((*_MEMORY, "params", "float_ops", "accelerator_micros")),
    )


def _model_of_calls(calls: PythonCalls, steps: _Windows) -> Model:
    kernels = {name: [kind] for name, kind in calls.nodes}
    model = build_model(_extended(_NOTHING, kernels), {}, None)
    place = {name: node for node, name in enumerate(model.names)}
    of_node = np.array([place[name] for name, _ in calls.nodes], np.int64)
    node, nothing = of_node[calls.node], np.zeros(len(calls.node), np.int64)
    costs = Costs(
        node=node,
        device=nothing,
        start=calls.start,
        begin=calls.start,
        end=calls.end,
        cpu_ps=calls.self_ps,
        accelerator_ps=nothing,
        runs=nothing + 1,
    )
    rows = np.empty(len(of_node), np.int64)
    rows[of_node] = np.arange(len(of_node))
    return replace(_with(model, steps, costs, [_CPU], []), stacks=calls.stacks.take(rows))


_NOTHING = Graph(
    names=[],
    ops=[],
    shape=Shapes(np.zeros(1, np.int64), np.zeros(0, np.int64), np.zeros(0, np.bool_)),
    input_of=np.zeros(0, np.int64),
    input_source=np.zeros(0, np.int64),
    input_slot=np.zeros(0, np.int64),
    output_first=np.zeros(1, np.int64),
    output_shapes=Shapes(np.zeros(1, np.int64), np.zeros(0, np.int64), np.zeros(0, np.bool_)),
    dtype=np.zeros(0, np.int64),
    is_nhwc=np.zeros(0, np.bool_),
)


def _extended(graph: Graph, kernels: dict[str, list[str]]) -> Graph:
    """Return the graph with the nodes that only the profile has, whose ops are kernel types."""
    known = {*graph.names}
    more = [name for name in kernels if name not in known]
    count = len(graph.names)
    return replace(
        graph,
        names=[*graph.names, *more],
        ops=[*graph.ops, *(kernels[name][0] for name in more)],
        shape=graph.shape.take(np.concatenate((np.arange(count), np.full(len(more), -1)))),
        output_first=np.concatenate((graph.output_first, np.full(len(more), graph.output_first[-1]))),
        dtype=np.concatenate((graph.dtype, np.zeros(len(more), np.int64))),
        is_nhwc=np.concatenate((graph.is_nhwc, np.zeros(len(more), np.bool_))),
    )


def _with(model: Model, steps: _Windows, costs: Costs, devices: list[str], types: Sequence[tuple[int, str]]) -> Model:
    """Return the model with its executions, and with the node types and devices in them."""
    of_scope = sorted(range(len(model.names)), key=lambda node: model.names[node].replace("/", "\0"))
    order = np.empty(len(of_scope), np.int64)
    order[of_scope] = np.arange(len(of_scope))
    by_number, mean = steps.executions(costs, order)
    # A node that ran on an accelerator is assigned to it: the host only launched it.
    device = np.full(len(model.names), -1, np.int64)
    np.maximum.at(device, costs.node, costs.device)
    ran_on = [devices[each] if each >= 0 else "" for each in device.tolist()]
    number = {kind: place for place, kind in enumerate(model.types)}
    pairs = {*zip(*(column.tolist() for column in model.type_of), strict=True)}
    every = [*types, *((node, name) for node, name in enumerate(ran_on) if name)]
    pairs |= {(node, number.setdefault(kind, len(number))) for node, kind in every}
    node, kind = np.array(sorted(pairs), np.int64).reshape(-1, 2).T
    return replace(
        model, device=ran_on, devices=devices, types=[*number], type_of=(node, kind), steps=by_number, mean=mean
    )


_PS_PER_US, _PS_PER_NS = 1_000_000, 1000


class Costs(Struct, frozen=True, kw_only=True):
    """Executions of nodes, one each, in picoseconds; `device` indexes a list of devices.

    `start` determines the step of an execution; `begin` and `end` are its times. `cpu_ps` and `accelerator_ps` exclude
    nested ops. `runs` is 1 for an execution of the op, and 0 for a kernel that it launched.
    """

    node: Int64s
    device: Int64s
    start: Int64s
    begin: Int64s
    end: Int64s
    cpu_ps: Int64s
    accelerator_ps: Int64s
    runs: Int64s

    def only(self, rows: Int64s) -> Costs:
        """Return these executions."""
        return Costs(**{name: getattr(self, name)[rows] for name in self.__struct_fields__})


def joined(parts: Sequence[Costs]) -> Costs:
    """Return all executions as one."""
    return Costs(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in Costs.__struct_fields__})


def by_step(costs: Costs, start: Int64s, end: Int64s, order: Int64s) -> tuple[list[Executions], Executions]:
    """Return the executions of each step, and their mean over all steps.

    Steps are half-open, ascending windows without overlap. `order` is the position of each node in the tree of name
    scopes: rounding to microseconds keeps the error of any scope's sum within one.
    """
    step = np.searchsorted(start, costs.start, side="right") - 1
    inside = np.flatnonzero((step >= 0) & (costs.start < end[np.maximum(step, 0)])) if len(start) else NO_NUMBERS
    inside = inside[np.argsort(step[inside], kind="stable")]
    counts = np.bincount(step[inside], minlength=len(start))
    parts = np.split(inside, np.cumsum(counts)[:-1]) if len(start) else []
    steps = [_executions(costs.only(rows), order, 1) for rows in parts]
    none = Intervals(node=NO_NUMBERS, device=NO_NUMBERS, start=NO_NUMBERS, duration=NO_NUMBERS)
    return steps, replace(_executions(costs.only(inside), order, max(len(start), 1)), intervals=none)


def _executions(costs: Costs, order: Int64s, divisor: int) -> Executions:
    """Return the executions of a step, or the mean of several, by node."""
    node, place = distinct_index(costs.node)
    sums = np.zeros((3, len(node)), np.int64)
    for row, values in zip(sums, (costs.cpu_ps, costs.accelerator_ps, costs.runs), strict=True):
        np.add.at(row, place, values)
    by_scope = np.argsort(order[node], kind="stable")
    started, ended = np.full(len(node), MOST, np.int64), np.zeros(len(node), np.int64)
    np.minimum.at(started, place, costs.begin)
    np.maximum.at(ended, place, costs.end)
    return Executions(
        node=node,
        runs=(sums[2] + divisor // 2) // divisor,
        cpu_micros=_whole(sums[0], by_scope, divisor * _PS_PER_US),
        accelerator_micros=_whole(sums[1], by_scope, divisor * _PS_PER_US),
        cpu_nanos=_whole(sums[0], by_scope, divisor * _PS_PER_NS),
        accelerator_nanos=_whole(sums[1], by_scope, divisor * _PS_PER_NS),
        started=started // _PS_PER_US,
        ended=ended // _PS_PER_US,
        memory=np.zeros((4, len(node)), np.int64),
        intervals=Intervals(
            node=costs.node,
            device=costs.device,
            start=costs.begin // _PS_PER_US,
            duration=(costs.end - costs.begin + _PS_PER_US // 2) // _PS_PER_US,
        ),
    )


def _whole(values: Int64s, order: Int64s, unit: int) -> Int64s:
    """Return values in a unit, carrying the rounding error to the next value in `order`."""
    until = (np.cumsum(values[order]) + unit // 2) // unit
    rounded = np.empty_like(values)
    rounded[order] = np.diff(until, prepend=0)
    return rounded


_FUNCTION = re.compile(r"__inference_(.+)_\d+")
_NAMED = re.compile(r"Eager(?:Local)?Execute: (.+)", re.DOTALL)
_OF_FUNCTION = "tf.function"


class PythonCalls(Struct, frozen=True, kw_only=True):
    """TensorFlow calls of Python functions: `node` indexes `nodes`, times are in picoseconds.

    A node is a callee at one call site; its type is the op that Python runs, or `tf.function`. `stacks` are the stacks
    of the nodes. `self_ps` excludes Python functions that the call runs. `outside` counts calls outside any frame.
    """

    nodes: tuple[tuple[str, str], ...]
    stacks: Stacks
    node: Int64s
    start: Int64s
    end: Int64s
    self_ps: Int64s
    outside: int


def python_calls(trace: HostTrace) -> PythonCalls | None:
    """Return the calls; None if the profile has no Python frames."""
    of_name = mask(trace.names, is_python_frame)
    if not of_name.any() or not len(trace.host_events(of_name)):
        return None
    rows = trace.host_events(of_name | mask(trace.names, is_eager_call))
    frames = _nested(trace, rows, of_name[trace.name[rows]])
    self_ps = trace.duration_ps[rows].copy()
    # Python frames that a call runs are excluded from its self time.
    called = np.flatnonzero(frames.called_by >= 0)
    np.add.at(self_ps, frames.called_by[called], -trace.duration_ps[rows[called]])
    calls = np.flatnonzero(frames.is_root)
    inside = calls[frames.around[calls] >= 0]
    path, paths = _paths(trace.name[rows], frames, inside)
    functions = dict(enumerate(python_functions(trace.names)))
    what, texts = _called(trace, rows, frames.root, inside)
    pairs, node = np.unique(np.stack((path, what)), axis=1, return_inverse=True)
    return PythonCalls(
        nodes=_names(
            [texts[each] for each in pairs[1].tolist()], [functions[paths.name[each]] for each in pairs[0].tolist()]
        ),
        stacks=_stacks([paths.names(each) for each in pairs[0].tolist()], functions),
        node=node.reshape(-1),
        start=trace.start_ps[rows[inside]],
        end=trace.end_ps[rows[inside]],
        self_ps=np.maximum(self_ps[inside], 0),
        outside=len(calls) - len(inside),
    )


class _Frames(NamedTuple):
    """Frames and parts of TensorFlow calls by index, with their nesting."""

    is_root: Bools
    """Whether it is a call and not a part of one: its parent is a frame, or it has no parent."""
    root: Int64s
    """The enclosing call, or the call itself."""
    around: Int64s
    """The innermost enclosing frame, -1 for none."""
    called_by: Int64s
    """For a frame whose parent is a call: that call; else -1."""
    depth: Int64s


def _nested(trace: HostTrace, rows: Int64s, is_frame: Bools) -> _Frames:
    parent, depth = np.full((2, len(rows)), -1, np.int64)
    for line in trace.lines:
        first, last = np.searchsorted(rows, (line.start, line.stop)).tolist()
        nesting = nest(trace.start_ps[rows[first:last]], trace.end_ps[rows[first:last]])
        parent[first:last] = np.where(nesting.parent >= 0, nesting.parent + first, -1)
        depth[first:last] = nesting.depth
    in_call = (parent >= 0) & ~is_frame[parent]
    root = np.where(in_call & ~is_frame, parent, np.arange(len(rows)))
    while (root != (further := root[root])).any():
        root = further
    return _Frames(
        is_root=~is_frame & ~in_call,
        root=root,
        around=np.where(in_call, parent[root[parent]], parent),
        called_by=np.where(in_call & is_frame, root[parent], -1),
        depth=depth,
    )


def _paths(name: Int64s, frames: _Frames, calls: Int64s) -> tuple[Int64s, _Paths]:
    """Return the stack number of each call, and the stacks.

    Stacks are built by level from the outermost frames; frames with the same name in one stack are merged.
    """
    needed = np.zeros(len(name), np.bool_)
    waiting = frames.around[calls]
    while len(waiting := distinct(waiting[waiting >= 0])):
        waiting = waiting[~needed[waiting]]
        needed[waiting] = True
        waiting = frames.around[waiting]
    rows = np.flatnonzero(needed)
    rows = rows[np.argsort(frames.depth[rows], kind="stable")]
    number = np.full(len(name) + 1, -1, np.int64)  # the last entry is for "no frame" (-1)
    paths = _Paths([], [])
    for level in np.split(rows, np.flatnonzero(np.diff(frames.depth[rows])) + 1):
        keys, index = np.unique(np.stack((number[frames.around[level]], name[level])), axis=1, return_inverse=True)
        number[level] = len(paths.above) + index.reshape(-1)
        paths.above.extend(keys[0].tolist())
        paths.name.extend(keys[1].tolist())
    return number[frames.around[calls]], paths


class _Paths(NamedTuple):
    """Stacks by number: the stack without the innermost frame (-1: empty), and the name of that frame."""

    above: list[int]
    name: list[int]

    def names(self, path: int) -> list[int]:
        found = []
        while path >= 0:
            found.append(self.name[path])
            path = self.above[path]
        return found[::-1]


def _called(trace: HostTrace, rows: Int64s, root: Int64s, calls: Int64s) -> tuple[Int64s, list[_What]]:
    """Return the callee number of each call, and the callees, from the outermost event that names one."""
    numbers: dict[_What, int] = {}
    named = (_NAMED.fullmatch(name) for name in trace.names)
    of_name = [numbers.setdefault(_what(match[1]), len(numbers)) if match else -1 for match in named]
    of_text = [numbers.setdefault(_what(text), len(numbers)) for text in trace.stat("eager_op").texts]
    noted = trace.number_at("eager_op", rows, -1)
    what = np.where(
        noted >= 0, np.array([*of_text, -1], np.int64)[noted], np.array(of_name, np.int64)[trace.name[rows]]
    )
    says = np.flatnonzero(what >= 0)
    first = np.full(len(rows), -1, np.int64)
    first[root[says][::-1]] = what[says][::-1]
    found = first[calls]
    unnamed = found < 0
    found[unnamed] = numbers.setdefault(_What("TensorFlow", "TensorFlow"), len(numbers))
    return found, [*numbers]


class _What(NamedTuple):
    name: str
    type: str


def _what(text: str) -> _What:
    function = _FUNCTION.fullmatch(text)
    return _What(function[1], _OF_FUNCTION) if function else _What(text, text)


def _names(called: list[_What], callers: list[PythonFunction]) -> tuple[tuple[str, str], ...]:
    """Return unique names of the nodes, and their types."""
    seen: dict[str, int] = {}
    nodes = []
    for what, caller in zip(called, callers, strict=True):
        name = f"{what.name} in {caller.shown}"
        count = seen[name] = seen.get(name, 0) + 1
        nodes.append((f"{name} #{count}" if count > 1 else name, what.type))
    return tuple(nodes)


def _stacks(paths: list[list[int]], functions: dict[int, PythonFunction]) -> Stacks:
    """Return stacks in op log form; the folder of package files marks them as installed."""
    used = sorted({name for path in paths for name in path})
    number = {name: place for place, name in enumerate(used)}
    of_frame = [functions[name] for name in used]
    # A C function has a module instead of a file.
    files = [function.file or function.shown.removesuffix(f".{function.name}") for function in of_frame]
    return Stacks(
        ends=np.cumsum([0, *map(len, paths)], dtype=np.int64),
        frame=np.array([number[name] for path in paths for name in path], np.int64),
        files=[
            f"/site-packages/{function.package}/{file}" if function.package else file
            for function, file in zip(of_frame, files, strict=True)
        ],
        lines=[function.line for function in of_frame],
        functions=[function.name for function in of_frame],
    )
