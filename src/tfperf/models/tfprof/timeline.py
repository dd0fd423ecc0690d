"""Views as files for trace viewers: Chrome's JSON, as chrome://tracing and Perfetto read it.

The graph view has executions at the times at which they were recorded; the scope and the code view have no times of
their own, so they are a layout: boxes as wide as their totals.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Bools, Int64s
from tfperf.base.files import new_file
from tfperf.base.units import counted, format_bytes
from tfperf.formats.models.input_file import InputFile, TfprofInputError
from tfperf.formats.models.messages import TENSORFLOW
from tfperf.formats.wire import json_lines as text
from tfperf.formats.wire.decoder import Decoder, items, numbers, offsets, take, texts
from tfperf.models.tfprof import OptionError
from tfperf.models.tfprof.layout import layout
from tfperf.models.tfprof.model import AVERAGE, Executions, Intervals, Model
from tfperf.models.tfprof.options import PLACE, Options
from tfperf.models.tfprof.run_metadata import NodeIndex, is_accelerator, read_run_metadata, records_by_device
from tfperf.models.tfprof.views import View, show_tree

LARGE_BYTES = 200_000_000
"""From here on, viewers fail to open a file, or take minutes."""


def write_timeline(model: Model, view: View, options: Options, path: Path) -> list[str]:
    """Write what a view shows to this file, for a trace viewer; return what to tell about it.

    The graph view has a process for each device, with executions in lanes in which they do not overlap, arrows from
    device to device, and the memory of accelerators. Step -1 has all steps at their times, and a process that shows
    where each is. In the scope and code view, step -1 is the mean.

    Raises ValueError for the op view and for a step that was not recorded, TfprofInputError if there is nothing to
    draw, OutputError if the file cannot be written.
    """
    timeline = make_timeline(model, view, options)
    size = 0
    with new_file(path) as file:
        for chunk in timeline.chunks():
            size += file.write(chunk)
    return [*timeline.notes, *_large(path, size)]


def _large(path: Path, size: int) -> Iterator[str]:
    if size > LARGE_BYTES:
        smaller = "choose one step, or leave out short executions with --min-micros"
        yield f"{path} has {format_bytes(size)}, which viewers may fail to open: {smaller}"


def make_timeline(model: Model, view: View, options: Options) -> Timeline:
    """Return what the file of a view shows; raises as `write_timeline`."""
    if view == "op":
        raise OptionError("the op view has no timeline: the scope, graph and code views have")
    steps = model.recorded(options.step)
    if not any(len(each.intervals.node) for each in steps.values()):
        raise TfprofInputError("no execution was recorded, so there is no timeline: give records with --run-meta")
    return _layout(model, view, options) if view != "graph" else real_time(model, options, [*steps.items()])


def _layout(model: Model, view: View, options: Options) -> Timeline:
    shown = show_tree(model, view, options)
    boxes = layout(shown, "micros")
    rows = np.flatnonzero(boxes.width > 0)
    step = f"mean of {counted(len(model.steps), 'step')}" if options.step == AVERAGE else f"step {options.step}"
    own, width = shown.tree.own[PLACE["micros"]], boxes.width

    def lines(chosen: Int64s) -> Any:
        at = rows[chosen]
        head = text.line(',\n{"ph":"X","cat":"Layout","pid":1,"tid":1,"name":', names_at(shown.tree.names, at))
        place = text.line(head, ',"ts":', text.whole(boxes.start[at]), ',"dur":', text.whole(width[at]))
        return text.line(place, ',"args":{"total_us":', text.whole(width[at]), ',"own_us":', text.whole(own[at]), "}}")

    notes = [f"this is a layout, not time: in the {view} view, each box is as wide as its total micros"]
    if len(rows) < len(shown.tree):
        notes.append(f"{counted(len(shown.tree) - len(rows), 'row')} of 0 us not drawn")
    if not len(rows):
        raise TfprofInputError(f"nothing that the {view} view shows took time, so there is nothing to draw")
    title = f"Layout by total micros, not time: {view} view, {step}"
    return Timeline(processes=[Process(1, title, lanes=1)], events=[Events(boxes.start[rows], lines)], notes=notes)


class _Slices(Struct, frozen=True, kw_only=True):
    """Executions, and where each is drawn; `node` indexes names of the model, `step` is a number."""

    node: Int64s
    step: Int64s
    start: Int64s
    duration: Int64s
    process: Int64s
    lane: Int64s


def real_time(model: Model, options: Options, steps: Sequence[tuple[int, Executions]]) -> Timeline:
    """Return the executions of the nodes that the graph view shows; raises TfprofInputError for none."""
    nodes = show_tree(model, "graph", options).tree.node
    is_shown = np.zeros(len(model.names), np.bool_)
    is_shown[nodes[nodes >= 0]] = True
    kept = [_kept(each.intervals, is_shown) for _, each in steps]
    used = np.unique(np.concatenate([each.device for each in kept])).tolist()
    if not used:
        raise TfprofInputError("nothing that the graph view shows was executed, so there is nothing to draw")
    devices = sorted(used, key=lambda device: _rank(model.devices[device]))
    first = 2 if len(steps) > 1 else 1
    process = np.full(len(model.devices), -1, np.int64)
    process[devices] = np.arange(first, first + len(devices))
    slices = _slices(kept, [step for step, _ in steps], process)
    processes = [
        Process(number, _title(model.devices[device]), _lane_count(slices.lane[slices.process == number]))
        for number, device in enumerate(devices, first)
    ]
    events = [_executions(model, slices, several=len(steps) > 1), *_arrows(model, is_shown, slices)]
    if len(steps) > 1:
        spans, lane_count = _steps(slices)
        processes.insert(0, Process(1, "Steps", lane_count))
        events.insert(0, spans)
    of_memory = memory_counters(model, steps, first + len(devices))
    processes += of_memory.processes
    events += of_memory.events
    return Timeline(processes=processes, events=events, notes=[])


def _kept(intervals: Intervals, is_shown: Bools) -> Intervals:
    rows = np.flatnonzero(is_shown[intervals.node])
    return Intervals(
        node=intervals.node[rows],
        device=intervals.device[rows],
        start=np.clip(intervals.start[rows], 0, LATEST),
        duration=np.clip(intervals.duration[rows], 0, LATEST),
    )


def _rank(device: str) -> tuple[bool, bool, str]:
    """Return where a device stands: kernels first, then what schedules them, then the rest."""
    return "stream" not in device, not is_accelerator(device), device


def _title(device: str) -> str:
    schedules = is_accelerator(device) and "stream" not in device
    return f"{'Op scheduling' if schedules else 'Op execution'}: {device}"


def _slices(kept: Sequence[Intervals], steps: Sequence[int], process: Int64s) -> _Slices:
    """Return the executions of all steps in order of time, the longer first."""
    start, duration, node, device = (
        np.concatenate([getattr(each, name) for each in kept]) for name in ("start", "duration", "node", "device")
    )
    order = np.lexsort((-duration, start))
    of = process[device][order]
    lane = np.zeros(len(order), np.int64)
    for number in np.unique(of).tolist():
        rows = order[of == number]
        lane[of == number] = lanes(start[rows], start[rows] + duration[rows])
    step = np.repeat(steps, [len(each.node) for each in kept])
    return _Slices(
        node=node[order], step=step[order], start=start[order], duration=duration[order], process=of, lane=lane
    )


def _executions(model: Model, slices: _Slices, *, several: bool) -> Events:
    def lines(rows: Int64s) -> Any:
        node = slices.node[rows]
        head = text.line(',\n{"ph":"X","cat":"Op","name":', names_at(model.names, node), _place(slices, rows))
        times = text.line(head, text.whole(slices.start[rows]), ',"dur":', text.whole(slices.duration[rows]))
        args = text.line(times, ',"args":{"op":', names_at(model.ops, node))
        return text.line(args, ',"step":', text.whole(slices.step[rows]), "}}") if several else text.line(args, "}}")

    return Events(slices.start, lines)


def _lane_count(lane: Int64s) -> int:
    return int(lane.max(initial=-1)) + 1


def _steps(slices: _Slices) -> tuple[Events, int]:
    """Return where each step is, from its first start to its last end, and how many lanes that takes."""
    step, index = np.unique(slices.step, return_inverse=True)
    start = np.full(len(step), LATEST, np.int64)
    end = np.zeros(len(step), np.int64)
    np.minimum.at(start, index.reshape(-1), slices.start)
    np.maximum.at(end, index.reshape(-1), slices.start + slices.duration)
    order = np.argsort(start, kind="stable")
    step, start, end = step[order], start[order], end[order]
    lane = lanes(start, end)

    def lines(rows: Int64s) -> Any:
        head = text.line(',\n{"ph":"X","cat":"Step","pid":1,"tid":', text.whole(lane[rows] + 1), ',"name":')
        named = text.line(
            head, text.quoted([f"step {number}" for number in step[rows].tolist()]), ',"ts":', text.whole(start[rows])
        )
        return text.line(named, ',"dur":', text.whole((end - start)[rows]), ',"args":{}}')

    return Events(start, lines), _lane_count(lane)


def _place(slices: _Slices, rows: Int64s) -> Any:
    """Return the fields of process and lane, up to the time."""
    lane = text.whole(slices.lane[rows] + 1)
    return text.line(',"pid":', text.whole(slices.process[rows]), ',"tid":', lane, ',"ts":')


def _arrows(model: Model, is_shown: Bools, slices: _Slices) -> list[Events]:
    """Return arrows from what runs on one device to what it feeds on another, once in a step.

    An arrow leads to the first execution of what is fed, from the last one that ends before it.
    """
    _, device = np.unique(np.array(["", *model.device]), return_inverse=True)
    device = device.reshape(-1)[1:]
    source, target = model.input_source, model.input_of
    ran = np.zeros(len(model.names), np.bool_)
    ran[slices.node] = True
    crosses = np.flatnonzero((source >= 0) & is_shown[source] & is_shown[target])
    crosses = crosses[
        (device[source[crosses]] != device[target[crosses]]) & ran[source[crosses]] & ran[target[crosses]]
    ]
    pairs = np.unique(np.stack((source[crosses], target[crosses])), axis=1)
    leaves, arrives = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for step in np.unique(slices.step).tolist():
        rows = np.flatnonzero(slices.step == step)
        ends = slices.start[rows] + slices.duration[rows]
        by_node = rows[np.lexsort((ends, slices.node[rows]))]
        node, first_place = np.unique(slices.node[rows], return_index=True)
        first_row = np.full(len(model.names), -1, np.int64)
        first_row[node] = rows[first_place]
        to = first_row[pairs[1]]
        place = _last_before(slices, by_node, pairs[0], slices.start[np.maximum(to, 0)])
        found = (to >= 0) & (place >= 0)
        leaves.append(by_node[place[found]])
        arrives.append(to[found])
    return _arrow_events(slices, np.concatenate(leaves), np.concatenate(arrives))


def _last_before(slices: _Slices, by_node: Int64s, node: Int64s, until: Int64s) -> Int64s:
    """Return where in `by_node` (by node and end) the last row of each node stands that ends in time, else -1."""
    ends = (slices.start + slices.duration)[by_node]
    times = np.unique(np.concatenate((ends, until)))
    known = slices.node[by_node] * len(times) + np.searchsorted(times, ends)
    place = np.searchsorted(known, node * len(times) + np.searchsorted(times, until), side="right") - 1
    return np.where((place >= 0) & (slices.node[by_node[np.maximum(place, 0)]] == node), place, -1)


def _arrow_events(slices: _Slices, leaves: Int64s, arrives: Int64s) -> list[Events]:
    # Viewers look for the box around the time of an arrow's end, and the end of a box is not in it.
    left = slices.start[leaves] + np.maximum(slices.duration[leaves] - 1, 0)

    def ends(head: str, at: Int64s, micros: Int64s) -> Events:
        def lines(rows: Int64s) -> Any:
            place = text.line(head, text.whole(rows + 1), _place(slices, at[rows]))
            return text.line(place, text.whole(micros[rows]), "}")

        return Events(micros, lines)

    link = '"cat":"DataFlow","name":"input","id":'
    return [
        ends(f',\n{{"ph":"s",{link}', leaves, left),
        ends(f',\n{{"ph":"f","bp":"e",{link}', arrives, slices.start[arrives]),
    ]


TOP = 10
"""Nodes whose allocations are drawn."""

_LARGEST = 1 << 50
"""Bytes that no accelerator has."""


def memory_counters(model: Model, steps: Sequence[tuple[int, Executions]], first_process: int) -> Timeline:
    """Return a process for each accelerator whose allocators recorded something, numbered from the first.

    `Allocated bytes` is what the allocator had in use after an execution. `Largest allocations` is what the nodes that
    held most had taken and not given back themselves: what is given back later, by others, is not recorded.
    """
    names, index = np.unique(np.array(["", *model.device]), return_inverse=True)
    device = index.reshape(-1)[1:]
    read = [(step, allocations_of(model, step)) for step, each in steps if each.allocators]
    processes: list[Process] = []
    events: list[Events] = []
    for number, name in enumerate(names.tolist()):
        process = first_process + len(processes)
        found = [
            counter
            for step, allocations in read
            for counter in _counters(
                model, _of_device(allocations, device == number), process, f", step {step}" * (len(steps) > 1)
            )
        ]
        if found:
            processes.append(Process(process, f"Memory: {name}"))
            events += found
    return Timeline(processes=processes, events=events, notes=[])


def _of_device(allocations: Allocations, nodes: Bools) -> Allocations:
    """Return what was recorded of these nodes, in order of time; times and sizes made by damage are left out."""

    def sound(amounts: Amounts) -> Amounts:
        of_device = nodes[amounts.node] & (amounts.bytes < _LARGEST) & (amounts.bytes > -_LARGEST)
        return amounts.only(of_device & (amounts.micros >= 0) & (amounts.micros <= LATEST)).ordered()

    return Allocations(changes=sound(allocations.changes), in_use=sound(allocations.in_use))


def _counters(model: Model, allocations: Allocations, process: int, suffix: str) -> Iterator[Events]:
    head = f',\n{{"ph":"C","cat":"Memory","pid":{process},"name":'
    in_use = allocations.in_use
    if len(in_use.node):
        yield Events(
            in_use.micros,
            lambda rows: text.line(
                f'{head}"Allocated bytes","ts":',
                text.whole(in_use.micros[rows]),
                ',"args":{"bytes":',
                text.whole(in_use.bytes[rows]),
                "}}",
            ),
        )
    changes = _since_start(allocations)
    if len(changes.node):
        nodes, micros, held = _largest(changes)
        keys = [json.dumps(model.names[node]) for node in nodes.tolist()]

        def lines(rows: Int64s) -> Any:
            parts = [
                part for key, values in zip(keys, held, strict=True) for part in (f",{key}:", text.whole(values[rows]))
            ]
            parts[0] = parts[0][1:]
            name = json.dumps(f"Largest allocations{suffix}")
            return text.line(f'{head}{name},"ts":', text.whole(micros[rows]), ',"args":{', *parts, "}}")

        yield Events(micros, lines)


def _since_start(allocations: Allocations) -> Amounts:
    """Return the changes in order of time; what was there before counts from the first time on."""
    changes = allocations.changes
    times = np.concatenate((changes.micros[changes.micros > 0], allocations.in_use.micros))
    first = int(times.min()) if len(times) else 0
    return Amounts(node=changes.node, micros=np.maximum(changes.micros, first), bytes=changes.bytes)


def _largest(changes: Amounts) -> tuple[Int64s, Int64s, list[Int64s]]:
    """Return the nodes that held most, the times at which that changed, and what each held at each of them."""
    order = np.argsort(changes.node, kind="stable")
    node, micros = changes.node[order], changes.micros[order]
    nodes, first = np.unique(node, return_index=True)
    until = np.cumsum(changes.bytes[order])
    before = np.concatenate(([0], until))[first]
    held = until - np.repeat(before, np.diff(np.concatenate((first, [len(node)]))))
    most = np.argsort(-np.maximum.reduceat(held, first), kind="stable")[:TOP]
    rows = [slice(start, stop) for start, stop in zip(first, [*first[1:], len(node)], strict=True)]
    times = np.unique(np.concatenate([micros[rows[place]] for place in most.tolist()]))
    columns = []
    for place in most.tolist():
        at = np.searchsorted(micros[rows[place]], times, side="right")
        columns.append(np.concatenate(([0], held[rows[place]]))[at])
    return nodes[most], times, columns


_OF_GPUS = "GPU"
"""In the names of allocators of accelerators; those of their pinned host memory have it in small letters."""


class Amounts(Struct, frozen=True, kw_only=True):
    """Bytes at times (microseconds since 1970), each of a node."""

    node: Int64s
    micros: Int64s
    bytes: Int64s

    def only(self, rows: Bools) -> Amounts:
        """Return these only."""
        return Amounts(node=self.node[rows], micros=self.micros[rows], bytes=self.bytes[rows])

    def ordered(self) -> Amounts:
        """Return the same in order of time."""
        order = np.argsort(self.micros, kind="stable")
        return Amounts(node=self.node[order], micros=self.micros[order], bytes=self.bytes[order])


class Allocations(Struct, frozen=True, kw_only=True):
    """`changes` is what nodes took (negative: gave back), at 0 what they kept from before; `in_use` what all had."""

    changes: Amounts
    in_use: Amounts


def allocations_of(model: Model, step: int) -> Allocations:
    """Read what the allocators of accelerators recorded in a step; empty if there are none; raises TfprofInputError.

    A model does not hold this, since only timelines show it: it is read from where the model came from.
    """
    read = []
    for source in model.steps[step].allocators:
        file = source.open()
        of = _of_profile(file, model, step) if file.kind == "ProfileProto" else _of_run(file, model)
        read.append(of)
    return Allocations(
        changes=_concatenated([each.changes for each in read]), in_use=_concatenated([each.in_use for each in read])
    )


def _of_run(file: InputFile, model: Model) -> Allocations:
    """Return what is in the records of a run that belong to accelerators."""
    records = read_run_metadata(file)
    joined = NodeIndex(model.names, model.ops).join(records)
    known = joined.is_canonical & (joined.node < len(model.names))
    rows, node = joined.rows[known], joined.node[known]
    number: dict[str, int] = {"": -1}
    device = np.array([number.setdefault(name, len(number)) for name in records.devices], np.int64)
    accelerators = np.array([is_accelerator(name) for name in records.devices], np.bool_)
    own_device = np.array([number.get(name, -1) for name in model.device], np.int64)
    own = accelerators[records.device[rows]] & (device[records.device[rows]] == own_device[node])
    rows, node = rows[own], node[own]
    decoder = Decoder(file, 0, TENSORFLOW)
    serialized = items(records_by_device(file, decoder)[1])
    return _of_records(decoder.all("NodeMemory", take(serialized, rows)), node)


def _of_records(records: Any, node: Int64s) -> Allocations:
    lists, stats = records.column("memory"), records.column("memory_stats")
    allocators = items(lists)
    of_gpus = np.array([_OF_GPUS in name for name in texts(allocators.field("allocator_name"))], np.bool_)
    owner = np.repeat(np.arange(len(node)), np.diff(offsets(lists)))
    ended = numbers(records.column("all_start_micros")) + numbers(records.column("op_end_rel_micros"))
    row = owner[of_gpus]
    in_use = Amounts(
        node=node[row], micros=ended[row], bytes=numbers(allocators.field("allocator_bytes_in_use"))[of_gpus]
    )
    entries = allocators.field("allocation_records")
    of = np.repeat(np.where(of_gpus, owner, -1), np.diff(offsets(entries)))
    kept = np.where(stats.is_valid().to_numpy(zero_copy_only=False), numbers(stats.field("persistent_memory_size")), 0)
    return _allocations(items(entries), np.where(of >= 0, node[of], -1), (node, kept), in_use)


def _of_profile(file: InputFile, model: Model, step: int) -> Allocations:
    """Return what a profile has of nodes on accelerators, in one of its steps."""
    decoder = Decoder(file, 0, TENSORFLOW)
    serialized = items(decoder.one("ProfileProto", file.data).column("nodes")).field("value")
    nodes = decoder.all("ProfileNodeMemory", serialized)
    place = {name: number for number, name in enumerate(model.names) if is_accelerator(model.device[number])}
    node = np.array([place.get(name, -1) for name in texts(nodes.column("name"))], np.int64)
    execs = nodes.column("execs")
    pairs = items(execs)
    owner = np.repeat(node, np.diff(offsets(execs)))
    owner = np.where(numbers(pairs.field("key")) == step, owner, -1)
    lists, entries = (pairs.field("value").field(name) for name in ("memory_execs", "allocations"))
    uses, of_uses = items(lists), np.repeat(owner, np.diff(offsets(lists)))
    in_use = Amounts(
        node=of_uses, micros=numbers(uses.field("memory_micros")), bytes=numbers(uses.field("allocator_bytes_in_use"))
    )
    kept = numbers(uses.field("accelerator_persistent_bytes"))
    return _allocations(items(entries), np.repeat(owner, np.diff(offsets(entries))), (of_uses, kept), in_use)


def _allocations(entries: Any, of: Int64s, kept: tuple[Int64s, Int64s], in_use: Amounts) -> Allocations:
    """Put together what was taken and given back, what was kept from before, and what was in use."""
    nodes, sizes = kept
    taken = Amounts(node=of, micros=numbers(entries.field("alloc_micros")), bytes=numbers(entries.field("alloc_bytes")))
    before = Amounts(node=np.where(sizes > 0, nodes, -1), micros=np.zeros(len(nodes), np.int64), bytes=sizes)
    is_known = (in_use.node >= 0) & (in_use.micros > 0) & (in_use.bytes > 0)
    changes = _concatenated([before, taken])
    return Allocations(changes=changes.only(changes.node >= 0), in_use=in_use.only(is_known))


def _concatenated(parts: Sequence[Amounts]) -> Amounts:
    none = np.zeros(0, np.int64)
    return Amounts(
        node=np.concatenate([none, *(part.node for part in parts)]),
        micros=np.concatenate([none, *(part.micros for part in parts)]),
        bytes=np.concatenate([none, *(part.bytes for part in parts)]),
    )


_ROUNDS = 200
"""Lanes that are filled one after the other, before the rest gets one each."""


def lanes(start: Int64s, end: Int64s) -> Int64s:
    """Return for each interval the first lane that is free when it starts; intervals are sorted by start.

    One without length takes its lane for a moment all the same. A lane is a chain: from an interval to the first that
    starts when it has ended. Pointers that double find it, without a step for each interval.
    """
    lane = np.zeros(len(start), np.int64)
    end = np.maximum(end, start + 1)
    rest = np.arange(len(start))
    for number in range(_ROUNDS):
        if not len(rest):
            return lane
        taken = _chain(np.searchsorted(start[rest], end[rest]))
        lane[rest[taken]] = number
        rest = np.delete(rest, taken)
    lane[rest] = _ROUNDS + np.arange(len(rest))
    return lane


def _chain(following: Int64s) -> Int64s:
    """Return the places that are reached from the first; from the last, one comes to a place behind all."""
    count = len(following)
    jump = np.concatenate((following, [count]))
    taken = np.zeros(1, np.int64)
    while True:
        further = jump[taken]
        further = further[further < count]
        if not len(further):
            return taken
        taken = np.concatenate((taken, further))
        jump = jump[jump]


LATEST = 1 << 52
"""In microseconds since 1970; a time behind it was not recorded, but made by damage."""

_BATCH = 1 << 16


class Events(Struct, frozen=True):
    """Events of one kind: when each happens (microseconds), and what makes the lines of some of them."""

    micros: Int64s
    lines: Callable[[Int64s], Any]


class Process(Struct, frozen=True):
    """What has lanes, or counters: a device, or a view. Lanes are numbered from 1."""

    number: int
    title: str
    lanes: int = 0

    def described(self) -> Iterator[dict[str, Any]]:
        """Iterate over the events that name it and its lanes, and say where it stands."""
        yield {"ph": "M", "pid": self.number, "name": "process_name", "args": {"name": self.title}}
        yield {"ph": "M", "pid": self.number, "name": "process_sort_index", "args": {"sort_index": self.number}}
        for lane in range(1, self.lanes + 1):
            name = {"name": f"lane {lane}"}
            yield {"ph": "M", "pid": self.number, "tid": lane, "name": "thread_name", "args": name}


class Timeline(Struct, frozen=True, kw_only=True):
    """What a file shows, and what to say about it."""

    processes: list[Process]
    events: list[Events]
    notes: list[str]

    def chunks(self) -> Iterator[bytes]:
        """Iterate over the bytes of the file: who has events, then the events, in order of time."""
        yield b'{"displayTimeUnit":"ns","traceEvents":['
        yield ",\n".join(json.dumps(event) for each in self.processes for event in each.described()).encode()
        kind = np.repeat(np.arange(len(self.events)), [len(events.micros) for events in self.events])
        row = np.concatenate([np.arange(len(events.micros)) for events in self.events])
        order = np.argsort(np.concatenate([events.micros for events in self.events]), kind="stable")
        for start in range(0, len(order), _BATCH):
            part = order[start : start + _BATCH]
            of_kind = [np.flatnonzero(kind[part] == number) for number in range(len(self.events))]
            lines = [
                events.lines(row[part[places]])
                for events, places in zip(self.events, of_kind, strict=True)
                if len(places)
            ]
            yield text.to_bytes(text.interleaved(lines, np.concatenate(of_kind)))
        yield b"]}\n"


def names_at(names: Sequence[str], index: Int64s) -> Any:
    """Return for each row the name at an index, as JSON."""
    used, place = np.unique(index, return_inverse=True)
    return text.chosen(text.quoted([names[number] for number in used.tolist()]), place.reshape(-1))
