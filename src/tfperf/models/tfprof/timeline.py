"""Views as trace files for chrome://tracing and Perfetto.

The graph view shows executions on their devices at their recorded times, arrows between devices, and the memory of
accelerators. The scope and code views have no times, so they are a layout of boxes as wide as their totals.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.arrays import Bools, Int64s
from tfperf.base.files import new_file
from tfperf.base.units import counted, format_bytes
from tfperf.export.timeline.export import file_chunks, format_of
from tfperf.export.timeline.host_timeline import ArrowEnds, Counter, EventArguments, Track, TrackGroup
from tfperf.export.timeline.tracks import lanes
from tfperf.formats.models.input_file import InputFile, TfprofInputError
from tfperf.formats.models.messages import TENSORFLOW
from tfperf.formats.wire.decoder import Decoder, items, numbers, offsets, take, texts
from tfperf.formats.wire.event_columns import StatKind
from tfperf.models.tfprof import OptionError
from tfperf.models.tfprof.model import AVERAGE, Executions, Model
from tfperf.models.tfprof.options import PLACE, Options
from tfperf.models.tfprof.run_metadata import NodeIndex, is_accelerator, read_run_metadata, records_by_device
from tfperf.models.tfprof.views import View, show_tree
from tfperf.report.flame_tree import placed

LARGE_BYTES = 200_000_000  # above this size, trace viewers fail to open a file, or take minutes
LATEST = 1 << 52  # microseconds since 1970; a later time can only come from a damaged file
TOP = 10  # maximum number of nodes in the chart of allocations
_LARGEST = 1 << 50  # more bytes than any accelerator has


def write_timeline(model: Model, view: View, options: Options, path: Path) -> list[str]:
    """Write a view to a trace file; return notes for the user.

    The suffix gives the format, as in `tfperf timeline`; the default is Chrome's JSON. The graph view has a process per
    device, with executions in lanes without overlap, arrows between devices, and the memory of accelerators. Step -1
    shows all steps at their times, and a process with the extent of each step. In the scope and code views, step -1 is
    the mean.

    Raises ValueError for the op view and for a step that was not recorded, TfprofInputError if there is nothing to
    draw, OutputError if the file cannot be written.
    """
    if view == "op":
        raise OptionError("the op view has no timeline: use the scope, graph or code view")
    steps = model.recorded(options.step)
    if not any(len(each.intervals.node) for each in steps.values()):
        raise TfprofInputError(
            "no executions were recorded, so the timeline is empty: pass RunMetadata files with --run-meta"
        )
    notes: list[str] = []
    groups = [_layout(model, view, options, notes)] if view != "graph" else real_time(model, options, [*steps.items()])
    size = 0
    with new_file(path) as file:
        for chunk in file_chunks(format_of(path) or "json", [groups]):
            size += file.write(chunk)
    if size > LARGE_BYTES:
        smaller = "select one step, or omit short executions with --min-micros"
        notes.append(f"{path} has {format_bytes(size)}, which viewers may fail to open: {smaller}")
    return notes


def _group(
    title: str,
    category: str,
    lane: Int64s,
    times: tuple[Int64s, Int64s],
    labels: tuple[Int64s, Sequence[str]],
    **more: Any,
) -> TrackGroup:
    """Return events as tracks, ordered by lane. `times` are starts and ends, `labels` indices into a list of names."""
    stops = [0, *np.cumsum(np.bincount(lane)).tolist()]
    tracks = (Track(f"lane {number}", first, stop) for number, (first, stop) in enumerate(pairwise(stops), 1))
    return TrackGroup(
        title=title,
        category=category,
        tracks=tuple(tracks),
        start=times[0],
        end=times[1],
        name=labels[0],
        names=labels[1],
        ticks_per_us=1,
        **{"arguments": EventArguments.none(len(lane)), **more},
    )


def _layout(model: Model, view: View, options: Options, notes: list[str]) -> TrackGroup:
    shown = show_tree(model, view, options)
    start, width = placed(shown.tree.depth, shown.total[PLACE["micros"]])
    rows = np.flatnonzero(width > 0)
    notes.append(f"the horizontal axis is not time: in the {view} view, the width of a box shows its total micros")
    if len(rows) < len(shown.tree):
        notes.append(f"{counted(len(shown.tree) - len(rows), 'row')} of 0 us not drawn")
    if not len(rows):
        raise TfprofInputError(f"the rows of the {view} view took no time, so nothing can be drawn")
    step = f"mean of {counted(len(model.steps), 'step')}" if options.step == AVERAGE else f"step {options.step}"
    own = shown.tree.own[PLACE["micros"]][rows]
    return _group(
        f"Layout by total micros, not time: {view} view, {step}",
        "Layout",
        np.zeros(len(rows), np.int64),
        (start[rows], (start + width)[rows]),
        (rows, shown.tree.names),
        arguments=EventArguments.of_columns(
            (("total_us", StatKind.INT, width[rows], None), ("own_us", StatKind.INT, own, None))
        ),
    )


class _Slices(Struct, frozen=True, kw_only=True):
    """Executions of all steps by time, the longer first; `step` is a step number, other fields are indices."""

    node: Int64s
    step: Int64s
    start: Int64s
    end: Int64s
    device: Int64s


def real_time(model: Model, options: Options, steps: Sequence[tuple[int, Executions]]) -> list[TrackGroup]:
    """Return the executions of the nodes in the graph view; raises TfprofInputError if there are none."""
    nodes = show_tree(model, "graph", options).tree.node
    is_shown = np.zeros(len(model.names), np.bool_)
    is_shown[nodes[nodes >= 0]] = True
    node, device, start, duration = (
        np.concatenate([getattr(each.intervals, name) for _, each in steps])
        for name in ("node", "device", "start", "duration")
    )
    number = np.repeat([step for step, _ in steps], [len(each.intervals.node) for _, each in steps])
    start, duration = np.clip(start, 0, LATEST), np.clip(duration, 0, LATEST)
    order = np.lexsort((-duration, start))
    order = order[is_shown[node[order]]]
    if not len(order):
        raise TfprofInputError("the rows of the graph view were not executed, so nothing can be drawn")
    slices = _Slices(
        node=node[order], step=number[order], start=start[order], end=(start + duration)[order], device=device[order]
    )
    groups = [_steps(slices)] if len(steps) > 1 else []
    leaves, arrives = _arrows(model, is_shown, slices)

    def rank(device: int) -> tuple[bool, bool, str]:
        """Order kernels first, then their launches, then the rest."""
        name = model.devices[device]
        return "stream" not in name, not is_accelerator(name), name

    for number_of_device in sorted(np.unique(slices.device).tolist(), key=rank):
        groups.append(_of_device(model, slices, number_of_device, (leaves, arrives), several=len(steps) > 1))
    return [*groups, *_memory_groups(model, steps)]


def _of_device(
    model: Model, slices: _Slices, device: int, arrows: tuple[Int64s, Int64s], *, several: bool
) -> TrackGroup:
    rows = np.flatnonzero(slices.device == device)
    lane = lanes(slices.start[rows], slices.end[rows])
    order = np.argsort(lane, kind="stable")
    rows, lane = rows[order], lane[order]
    place = np.full(len(slices.device), -1, np.int64)
    place[rows] = np.arange(len(rows))
    ends = []
    for at in arrows:
        inside = np.flatnonzero(place[at] >= 0)
        inside = inside[np.argsort(place[at[inside]], kind="stable")]
        ends.append(ArrowEnds(place[at[inside]], inside + 1))
    columns = [("op", StatKind.TEXT, slices.node[rows], None), ("step", StatKind.INT, slices.step[rows], None)]
    name = model.devices[device]
    schedules = is_accelerator(name) and "stream" not in name
    return _group(
        f"{'Op scheduling' if schedules else 'Op execution'}: {name}",
        "Op",
        lane,
        (slices.start[rows], slices.end[rows]),
        (slices.node[rows], model.names),
        arguments=EventArguments.of_columns(columns[: 1 + several], model.ops),
        leaving=ends[0],
        arriving=ends[1],
    )


def _steps(slices: _Slices) -> TrackGroup:
    """Return the extent of each step, from its first start to its last end."""
    step, index = np.unique(slices.step, return_inverse=True)
    start, end = np.full(len(step), LATEST, np.int64), np.zeros(len(step), np.int64)
    np.minimum.at(start, index.reshape(-1), slices.start)
    np.maximum.at(end, index.reshape(-1), slices.end)
    order = np.lexsort((-end, start))
    lane = lanes(start[order], end[order])
    by_lane = np.argsort(lane, kind="stable")
    order, lane = order[by_lane], lane[by_lane]
    names = [f"step {number}" for number in step.tolist()]
    return _group("Steps", "step", lane, (start[order], end[order]), (order, names))


def _arrows(model: Model, is_shown: Bools, slices: _Slices) -> tuple[Int64s, Int64s]:
    """Return the rows at which arrows start and end, from a node on one device to its consumer on another.

    Per step, an arrow leads to the first execution of the consumer, from the last execution of the source before it.
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
        by_node = rows[np.lexsort((slices.end[rows], slices.node[rows]))]
        node, first_place = np.unique(slices.node[rows], return_index=True)
        first_row = np.full(len(model.names), -1, np.int64)
        first_row[node] = rows[first_place]
        to = first_row[pairs[1]]
        # The last row of each node that ends in time: rows of `by_node` are ordered by node and end.
        until = slices.start[np.maximum(to, 0)]
        ends = slices.end[by_node]
        times = np.unique(np.concatenate((ends, until)))
        known = slices.node[by_node] * len(times) + np.searchsorted(times, ends)
        place = np.searchsorted(known, pairs[0] * len(times) + np.searchsorted(times, until), side="right") - 1
        place = np.where((place >= 0) & (slices.node[by_node[np.maximum(place, 0)]] == pairs[0]), place, -1)
        found = (to >= 0) & (place >= 0)
        leaves.append(by_node[place[found]])
        arrives.append(to[found])
    return np.concatenate(leaves), np.concatenate(arrives)


# --- memory ---


def _memory_groups(model: Model, steps: Sequence[tuple[int, Executions]]) -> Iterator[TrackGroup]:
    """Yield counters for each accelerator with records of its allocators.

    `Allocated bytes` is the allocator's memory in use after an execution. `Largest allocations` shows the nodes that
    held most: the memory that they allocated and did not free themselves. A later free by another node is not recorded.
    """
    names, index = np.unique(np.array(["", *model.device]), return_inverse=True)
    device = index.reshape(-1)[1:]
    read = [(step, allocations_of(model, step)) for step, each in steps if each.allocators]
    none = np.zeros(0, np.int64)
    for number, name in enumerate(names.tolist()):
        counters = [
            counter
            for step, allocations in read
            for counter in _counters(model, allocations, device == number, f", step {step}" * (len(steps) > 1))
        ]
        if counters:
            group = _group(f"Memory: {name}", "Memory", none, (none, none), (none, ()))
            yield replace(group, counters=tuple(counters))


def _counters(model: Model, allocations: Allocations, of_device: Bools, suffix: str) -> Iterator[Counter]:
    """Yield the counters of a device in order of time, without times and sizes from damaged files."""

    def sound(amounts: Amounts) -> Amounts:
        is_sound = of_device[amounts.node] & (amounts.bytes < _LARGEST) & (amounts.bytes > -_LARGEST)
        return amounts.only(is_sound & (amounts.micros >= 0) & (amounts.micros <= LATEST)).ordered()

    changes, in_use = sound(allocations.changes), sound(allocations.in_use)
    if len(in_use.node):
        yield Counter("Allocated bytes", in_use.micros, in_use.bytes)
    if len(changes.node):
        # Memory allocated before the capture counts from the first time.
        times = np.concatenate((changes.micros[changes.micros > 0], in_use.micros))
        first = int(times.min()) if len(times) else 0
        nodes, micros, held = _largest(replace(changes, micros=np.maximum(changes.micros, first)))
        for node, values in zip(nodes.tolist(), held, strict=True):
            yield Counter(f"Largest allocations{suffix}: {model.names[node]}", micros, values)


def _largest(changes: Amounts) -> tuple[Int64s, Int64s, list[Int64s]]:
    """Return the nodes that held most, the times of changes, and the bytes of each node at these times."""
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


_OF_GPUS = "GPU"  # in names of accelerator allocators; names of pinned host memory contain it in lower case


class Amounts(Struct, frozen=True, kw_only=True):
    """Bytes of nodes at times (microseconds since 1970)."""

    node: Int64s
    micros: Int64s
    bytes: Int64s

    def only(self, rows: Bools) -> Amounts:
        """Return the amounts of these rows."""
        return Amounts(node=self.node[rows], micros=self.micros[rows], bytes=self.bytes[rows])

    def ordered(self) -> Amounts:
        """Return the amounts in order of time."""
        order = np.argsort(self.micros, kind="stable")
        return Amounts(node=self.node[order], micros=self.micros[order], bytes=self.bytes[order])


class Allocations(Struct, frozen=True, kw_only=True):
    """`changes` are allocations of nodes (frees are negative, earlier memory is at time 0); `in_use` is the total."""

    changes: Amounts
    in_use: Amounts


def allocations_of(model: Model, step: int) -> Allocations:
    """Read the records of accelerator allocators in a step; empty if there are none; raises TfprofInputError.

    They are read from the model's source on demand, because only timelines need them.
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
    """Return the allocations in the accelerator records of a run."""
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
    """Return the allocations of nodes on accelerators in one step of a profile."""
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
    """Join allocations and frees, memory kept from before, and memory in use."""
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
