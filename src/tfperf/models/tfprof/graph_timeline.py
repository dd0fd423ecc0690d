"""The graph view in real time: executions on their devices, arrows between devices, memory of accelerators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Bools, Int64s
from tfperf.formats.wire import json_lines as text
from tfperf.models.tfprof.chrome_events import LATEST, Events, Process, Timeline, names_at
from tfperf.models.tfprof.input_file import TfprofInputError
from tfperf.models.tfprof.lanes import lanes
from tfperf.models.tfprof.memory_counters import memory_counters
from tfperf.models.tfprof.model import Executions, Intervals, Model
from tfperf.models.tfprof.options import Options
from tfperf.models.tfprof.run_metadata import is_accelerator
from tfperf.models.tfprof.views import show_tree


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
