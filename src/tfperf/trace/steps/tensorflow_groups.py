"""Steps as TensorFlow's profiler creates them (`--attribution tensorflow`): groups of events, and their times.

Events form a graph: an event is a child of the event around it on its thread, and of the event on another thread that
caused it (equal producer and consumer ids, equal correlation ids of launch and kernel). A step is the part of the graph
reachable from a root event. Because a group is never removed once assigned, and roots are visited in a fixed order, the
group of an event is the first root in that order from which it can be reached.

Most events have only the parent around them. They are folded into the nearest *entry* above them (a root, or an event
caused on another thread), so the searched graph has only entries as nodes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.arrays import (
    EMPTY,
    NO_NUMBERS,
    Bools,
    Int64s,
    Intervals,
    covers,
    distinct,
    lookup,
    ranges,
    union,
    union_all,
)
from tfperf.formats.wire.event_columns import STEPS_LINE, Stat
from tfperf.trace.event_names import is_fetch, is_input_function, mask
from tfperf.trace.host.activities import PRIORITY, Activity, ActivityTimes, Codes, device_codes, host_codes
from tfperf.trace.host_trace import HostTrace, rows_of
from tfperf.trace.nesting import nest

_LOOPS = frozenset(("WhileOp-EvalCond", "WhileOp-StartBody", "ForOp", "ParallelForOp", "ForeverOp"))
_IMPLICIT_ROOTS = ("FunctionRun", "SessionRun", "RunGraph", "ExecutorState::Process")
_CROWD = 64
_NOBODY = np.iinfo(np.int64).max


class _Edges(NamedTuple):
    """Links between events on different lines: rows `parent[i]` caused rows `child[i]`."""

    parent: Int64s
    child: Int64s


def group_trace(trace: HostTrace) -> HostTrace:
    """Return the trace with the stats `group_id` and `step_name` that TensorFlow's profiler would add.

    The trace must have been read with the stats of `known_stats.LINKS`, and with `instants`. As in TensorFlow, traces
    with functional loops stay ungrouped.
    """
    if _LOOPS & {trace.names[name] for name in distinct(trace.name).tolist()}:
        return trace
    parent, depth = _nest_lines(trace)
    roots, level, edges = _roots(trace)
    edges = _joined([edges, _context_edges(trace), _fetch_edges(trace, parent), _kernel_edges(trace)])
    rank, order = _search(trace, (parent, depth), roots, level, edges)
    stats = dict(trace.stats)
    grouped = np.flatnonzero(rank != _NOBODY)
    stats["group_id"] = Stat(grouped.astype(np.int32), rank[grouped])
    stats["step_name"] = _step_names(trace, parent, order)
    return replace(trace, stats=stats)


def _nest_lines(trace: HostTrace) -> tuple[Int64s, Int64s]:
    """Return parent and depth of every event on its line; asynchronous events (`_a`) neither nest nor hold others."""
    parent, depth = np.full(len(trace.name), -1, np.int64), np.zeros(len(trace.name), np.int64)
    nestable = trace.number("_a", 0) == 0
    for line in trace.lines:
        rows = np.flatnonzero(nestable[line.start : line.stop]) + line.start
        nesting = nest(trace.start_ps[rows], trace.end_ps[rows])
        parent[rows] = np.where(nesting.parent >= 0, rows[nesting.parent], -1)
        depth[rows] = nesting.depth
    return parent, depth


def _roots(trace: HostTrace) -> tuple[Int64s, Int64s, _Edges]:
    """Return root rows with their levels, and the links that loop iterations add."""
    iterations = _loop_iterations(trace)
    if iterations is not None:
        return iterations
    level = trace.number("_r", 0)
    for name, value in (("TraceContext", 1), ("BatchingSessionRun", 1), ("ProcessBatch", 2)):
        rows = trace.host_events(mask(trace.names, name.__eq__))
        level[rows] = np.where(level[rows] == 0, value, level[rows])
    rows = np.flatnonzero(level != 0)
    rows = rows[~_from_tfdata(trace, rows)]
    return rows, level[rows], _joined([])


def _from_tfdata(trace: HostTrace, rows: Int64s) -> Bools:
    ids, has_id = trace.number("id", 0), trace.has_stat("id")
    captured = trace.host_events(mask(trace.names, is_input_function))
    return has_id[rows] & np.isin(ids[rows], ids[captured[has_id[captured]]])


def _loop_iterations(trace: HostTrace) -> tuple[Int64s, Int64s, _Edges] | None:
    """Return loop iterations, which are the only roots if an executor runs a loop: the earliest event of each leads."""
    rows = trace.host_events(mask(trace.names, "ExecutorState::Process".__eq__))
    rows = rows[trace.has_stat("id")[rows] & trace.has_stat("iter_num")[rows]]
    rows = rows[~_from_tfdata(trace, rows)]
    ids, iteration = trace.number("id", 0)[rows], trace.number("iter_num", 0)[rows]
    looping = np.isin(ids, ids[iteration > 0])
    if not looping.any():
        return None
    rows, ids, iteration = rows[looping], ids[looping], iteration[looping]
    order = np.lexsort((trace.start_ps[rows], iteration, ids))
    rows, ids, iteration = rows[order], ids[order], iteration[order]
    first = np.concatenate(([True], (ids[1:] != ids[:-1]) | (iteration[1:] != iteration[:-1])))
    leader = rows[np.maximum.accumulate(np.where(first, np.arange(len(rows)), 0))]
    return rows[first], np.ones(int(first.sum()), np.int64), _Edges(leader[~first], rows[~first])


def _joined(edges: list[_Edges]) -> _Edges:
    parents, children = zip(_Edges(NO_NUMBERS, NO_NUMBERS), *edges, strict=True)
    return _Edges(np.concatenate(parents), np.concatenate(children))


def _context_edges(trace: HostTrace) -> _Edges:
    """Link producers and consumers of one context (type and id), unless there are many on both sides."""
    produce = np.flatnonzero(trace.has_stat("_pt") & trace.has_stat("_p"))
    consume = np.flatnonzero(trace.has_stat("_ct") & trace.has_stat("_c"))
    kinds = np.concatenate((trace.number("_pt", 0)[produce], trace.number("_ct", 0)[consume]))
    ids = np.concatenate((trace.number("_p", 0)[produce], trace.number("_c", 0)[consume]))
    _, key = np.unique(np.stack((kinds, ids)), axis=1, return_inverse=True)
    key = key.reshape(-1)
    producer_key, consumer_key = key[: len(produce)], key[len(produce) :]
    count = int(key.max()) + 1 if len(key) else 0
    producers, consumers = np.bincount(producer_key, minlength=count), np.bincount(consumer_key, minlength=count)
    crowded = (producers >= _CROWD) & (consumers >= _CROWD)
    produce, producer_key = produce[~crowded[producer_key]], producer_key[~crowded[producer_key]]
    order = np.argsort(consumer_key, kind="stable")
    consume, consumer_key = consume[order], consumer_key[order]
    first = np.searchsorted(consumer_key, producer_key, side="left")
    matches = np.searchsorted(consumer_key, producer_key, side="right") - first
    return _Edges(np.repeat(produce, matches), consume[ranges(first, matches)])


def _fetch_edges(trace: HostTrace, parent: Int64s) -> _Edges:
    """Link executors to the fetches of their step: equal `id` and `iter_num`; the last executor counts."""
    keyed = trace.has_stat("id") & trace.has_stat("iter_num")
    executors = trace.host_events(mask(trace.names, "ExecutorState::Process".__eq__))
    fetches = trace.host_events(mask(trace.names, is_fetch))
    executors, fetches = executors[keyed[executors]], fetches[keyed[fetches]]
    ids, iteration = trace.number("id", 0), trace.number("iter_num", 0)
    both = np.concatenate((executors, fetches))
    _, key = np.unique(np.stack((ids[both], iteration[both])), axis=1, return_inverse=True)
    key = key.reshape(-1)
    last = np.full(len(both), -1, np.int64)
    last[key[: len(executors)]] = executors  # of several values for a key, the last one stays
    executor = last[key[len(executors) :]]
    return _Edges(executor[executor >= 0], fetches[executor >= 0])


def _kernel_edges(trace: HostTrace) -> _Edges:
    """Link a launch on the host to the kernel on a device with its correlation id."""
    stat = trace.stat("correlation_id")
    on_host = trace.on_host[stat.event]
    launch, launch_key = stat.event[on_host].astype(np.int64), stat.value[on_host]
    kernel, kernel_key = stat.event[~on_host].astype(np.int64), stat.value[~on_host]
    keys, first = np.unique(launch_key[::-1], return_index=True)  # of several launches with an id the last counts
    place = lookup(keys, kernel_key)
    return _Edges(launch[::-1][first][place[place >= 0]], kernel[place >= 0])


def _search(
    trace: HostTrace, nesting: tuple[Int64s, Int64s], roots: Int64s, level: Int64s, edges: _Edges
) -> tuple[Int64s, Int64s]:
    """Return the rank of each event's group (or `_NOBODY`), and the root rows in order of rank.

    A root below another of the same or a higher level leads no group. The others lead in order of level (highest
    first), then of time.
    """
    parent, depth = nesting
    count = len(trace.name)
    is_entry = np.zeros(count, np.bool_)
    is_entry[roots] = True
    is_entry[edges.child] = True
    entry_of = _nearest_entry(parent, depth, is_entry)
    around = np.flatnonzero(is_entry & (parent >= 0))
    graph = _Graph.of(
        np.concatenate((entry_of[edges.parent], entry_of[parent[around]])), np.concatenate((edges.child, around))
    )
    value = np.full(count, _NOBODY, np.int64)
    value[roots] = -level
    leading = graph.least_above(value)[roots] > -level
    leaders = roots[leading]
    leaders = leaders[np.lexsort((trace.start_ps[leaders], -level[leading]))]
    value = np.full(count, _NOBODY, np.int64)
    value[leaders] = np.arange(len(leaders))
    rank = np.minimum(value, graph.least_above(value))
    return np.where(entry_of >= 0, rank[np.maximum(entry_of, 0)], _NOBODY), leaders


class _Graph(Struct, frozen=True):
    """Links sorted by their source; `first[node]` is where those of a node start."""

    first: Int64s
    target: Int64s

    @staticmethod
    def of(source: Int64s, target: Int64s) -> _Graph:
        source, target = source[source >= 0], target[source >= 0]
        order = np.argsort(source, kind="stable")
        size = int(max(source.max(initial=-1), target.max(initial=-1))) + 1
        return _Graph(np.searchsorted(source[order], np.arange(size + 1)), target[order])

    def least_above(self, value: Int64s) -> Int64s:
        """Return, for each node, the smallest value of all nodes from which it can be reached."""
        least = np.full(len(value), _NOBODY, np.int64)
        passed_on = value.copy()
        changed = np.flatnonzero(value[: len(self.first) - 1] != _NOBODY)
        while len(changed):
            count = self.first[changed + 1] - self.first[changed]
            target = self.target[ranges(self.first[changed], count)]
            np.minimum.at(least, target, np.repeat(passed_on[changed], count))
            reached = distinct(target)
            changed = reached[least[reached] < passed_on[reached]]
            passed_on[changed] = least[changed]
        return least


def _nearest_entry(parent: Int64s, depth: Int64s, is_entry: Bools) -> Int64s:
    """Return, for each event, itself or the nearest event above it that is an entry (-1: none)."""
    entry = np.where(is_entry, np.arange(len(parent)), -1)
    order = np.argsort(depth, kind="stable")
    bounds = np.searchsorted(depth[order], np.arange(1, int(depth.max(initial=0)) + 2))
    for start, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        rows = order[start:stop]
        entry[rows] = np.where(entry[rows] >= 0, entry[rows], entry[parent[rows]])
    return entry


def _step_names(trace: HostTrace, parent: Int64s, leaders: Int64s) -> Stat:
    """Name the steps whose root has a number: `<graph type or event name> <step number>`."""
    implicit = mask(trace.names, lambda name: name in _IMPLICIT_ROOTS)
    rows = np.flatnonzero(~implicit[trace.name[leaders]])
    texts: list[str] = []
    for rank, row in zip(rows.tolist(), leaders[rows].tolist(), strict=True):
        graph_type = _inherited(trace.stat("graph_type"), parent, row)
        label = trace.stat("graph_type").texts[graph_type] if graph_type is not None else trace.names[trace.name[row]]
        number = _value_at(trace.stat("iter_num"), row)
        number = number if number is not None else _inherited(trace.stat("step_num"), parent, row)
        texts.append(f"{label} {rank if number is None else number}")
    order = np.argsort(leaders[rows], kind="stable")
    return Stat(leaders[rows][order].astype(np.int32), order.astype(np.int64), "text", tuple(texts))


def _value_at(stat: Stat, row: int) -> int | None:
    place = int(lookup(stat.event, np.array([row]))[0])
    return int(stat.value[place]) if place >= 0 else None


def _inherited(stat: Stat, parent: Int64s, row: int) -> int | None:
    """Return the stat of the event or of the nearest event around it that has it."""
    while row >= 0:
        value = _value_at(stat, row)
        if value is not None:
            return value
        row = int(parent[row])
    return None


# --- times ---
# Groups are the steps of TensorFlow's profiler; old versions stored them, `group_trace` computes them.


class GroupSpans(Struct, frozen=True):
    """One entry per group with a step marker: its id and its span. `names` maps ids to step names."""

    group: Int64s
    start: Int64s
    end: Int64s
    names: dict[int, str]
    device_groups: Int64s
    """Groups with a marker on a device (empty without devices)."""


def has_device_plane(trace: HostTrace) -> bool:
    """Return whether there is a GPU or TPU plane, even if empty, as TensorFlow does."""
    return any(plane.kind in ("gpu", "tpu") for plane in trace.planes)


def is_marker_name(name: str) -> bool:
    """Return whether TensorFlow treats any grouped event of this name as a step marker."""
    return name.startswith(("train", "test", "TraceContext")) and "/" not in name


def host_markers(trace: HostTrace, group: Int64s) -> Int64s:
    """Return the rows of grouped host events that mark a step by their name or a step name."""
    rows = trace.host_events(mask(trace.names, is_marker_name))
    step_name = trace.stat("step_name")
    named = mask((*step_name.texts, ""), bool)
    named_rows = step_name.event[named[step_name.value]].astype(np.int64)
    both = distinct(np.concatenate((rows, named_rows[trace.on_host[named_rows]])))
    return np.asarray(both[group[both] >= 0], np.int64)


def group_spans(trace: HostTrace, group: Int64s) -> GroupSpans:
    """Return the span of each group: its longest host marker, unless the longest device marker extends beyond it."""
    host = host_markers(trace, group)
    device = _device_markers(trace, group)
    host_span = _longest(group[host], trace.start_ps[host], trace.end_ps[host])
    device_span = _longest(*device)
    device_groups = np.array(sorted(device_span), np.int64)
    allowed = device_span if has_device_plane(trace) else host_span
    spans = {}
    for key in sorted(allowed):
        on_host, on_device = host_span.get(key), device_span.get(key)
        if on_host and on_device and not (on_host[0] <= on_device[0] and on_device[1] <= on_host[1]):
            on_host = None
        spans[key] = on_host or on_device
    table = np.array([(key, *span) for key, span in spans.items() if span], np.int64).reshape(-1, 3)
    stat = trace.stat("step_name")
    names = {
        int(group[row]): stat.texts[value]
        for row, value in zip(stat.event.tolist(), stat.value.tolist(), strict=True)
        if stat.texts[value] and group[row] >= 0
    }
    return GroupSpans(table[:, 0], table[:, 1], table[:, 2], names, device_groups)


def _longest(group: Int64s, start: Int64s, end: Int64s) -> dict[int, tuple[int, int]]:
    order = np.lexsort((start, start - end, group))
    first = np.flatnonzero(np.concatenate(([True], np.diff(group[order]) != 0))) if len(group) else order
    rows = order[first]
    return dict(zip(group[rows].tolist(), zip(start[rows].tolist(), end[rows].tolist(), strict=True), strict=True))


_Spans = tuple[Int64s, Int64s, Int64s]


def _device_markers(trace: HostTrace, group: Int64s) -> _Spans:
    """Return the step markers of devices: the stored step line, or its derived equivalent."""
    parts: list[_Spans] = [(NO_NUMBERS, NO_NUMBERS, NO_NUMBERS)]
    for plane in trace.devices:
        stored = [line for line in trace.device_lines(plane, derived=True) if line.id == STEPS_LINE]
        if stored:
            rows = rows_of(stored)
            rows = rows[group[rows] >= 0]
            parts.append((group[rows], trace.start_ps[rows], trace.end_ps[rows]))
        else:
            parts.append(_derived_markers(trace, plane, group))
    groups, starts, ends = map(np.concatenate, zip(*parts, strict=True))
    return groups, starts, ends


def _derived_markers(trace: HostTrace, plane: int, group: Int64s) -> _Spans:
    """Merge neighboring device events of one group; an event without a group gets that of the previous event."""
    rows = rows_of(trace.device_lines(plane))
    rows = rows[np.lexsort((trace.duration_ps[rows], trace.start_ps[rows]))]
    last_grouped = np.maximum.accumulate(np.where(group[rows] >= 0, np.arange(len(rows)), -1))
    groups = group[rows[last_grouped[last_grouped >= 0]]]
    rows = rows[last_grouped >= 0]
    if not len(rows):
        return rows, rows, rows
    first = np.flatnonzero(np.concatenate(([True], np.diff(groups) != 0)))
    return groups[first], trace.start_ps[rows[first]], np.maximum.reduceat(trace.end_ps[rows], first)


def grouped_times(trace: HostTrace, group: Int64s, spans: GroupSpans) -> ActivityTimes:
    """Return the activities in each group, as TensorFlow attributes them, on stretched time."""
    rows, codes = _grouped_events(trace, group, spans)
    order = np.argsort(spans.group)
    place = lookup(spans.group[order], group[rows])
    rows, codes, place = rows[place >= 0], codes[place >= 0], place[place >= 0]
    first, last = spans.start[order].copy(), spans.end[order].copy()
    np.minimum.at(first, place, trace.start_ps[rows])
    np.maximum.at(last, place, trace.end_ps[rows])
    shift = np.concatenate(([0], np.cumsum(last - first + 1)[:-1])) - first
    start, end = trace.start_ps[rows] + shift[place], trace.end_ps[rows] + shift[place]
    busy = {Activity(code): union(start[codes == code], end[codes == code]) for code in distinct(codes).tolist()}
    busy = _with_instants(busy, start, end, codes, stops=last + shift)
    back = np.argsort(order)
    start, end = spans.start + shift[back], spans.end + shift[back]
    return ActivityTimes(PRIORITY["tensorflow"], busy, start, end, origin=(first + shift)[back])


def _grouped_events(trace: HostTrace, group: Int64s, spans: GroupSpans) -> tuple[Int64s, Codes]:
    """Return the rows that TensorFlow types, and their activities."""
    has_device = has_device_plane(trace)
    codes = host_codes(trace, "tensorflow", has_device=has_device)[trace.name]
    correlated = trace.has_stat("correlation_id")
    if has_device:
        by_copy = (codes == Activity.HOST_TO_DEVICE) | (codes == Activity.HOST_TO_HOST) | (codes == Activity.NONE)
        codes[correlated & ~by_copy] = Activity.KERNEL_LAUNCH
    codes[host_markers(trace, group)] = Activity.NONE
    counted = trace.on_host & (group >= 0)
    if has_device:
        on_device = device_codes(trace, "tensorflow")
        for line in (line for plane in trace.devices for line in trace.device_lines(plane)):
            of_line = slice(line.start, line.stop)
            codes[of_line] = on_device[of_line]
            counted[of_line] = correlated[of_line] & (group[of_line] >= 0)
    rows = np.flatnonzero(counted & (codes != Activity.NONE))
    if has_device:
        rows = rows[np.isin(group[rows], spans.device_groups)]
    return rows, codes[rows]


def _with_instants(
    busy: dict[Activity, Intervals], start: Int64s, end: Int64s, codes: Codes, *, stops: Int64s
) -> dict[Activity, Intervals]:
    """Let events of zero duration raise the state as TensorFlow's sweep does.

    In that sweep, an instant switches the state to its activity until the next event of equal or higher priority
    starts. So it acts like an event that lasts until then (or until its group ends), unless an event of equal or higher
    priority is active at that moment.
    """
    instant = end == start
    if not instant.any():
        return busy
    stretched, higher, higher_start = dict(busy), EMPTY, NO_NUMBERS
    for activity in PRIORITY["tensorflow"]:
        which = codes == activity
        higher_start = np.sort(np.concatenate((higher_start, start[which & ~instant])))
        higher = union_all([higher, busy.get(activity, EMPTY)])
        at = distinct(start[which & instant])
        at = at[~covers(higher, at)]
        if len(at):
            following = np.searchsorted(higher_start, at, side="right")
            next_start = np.append(higher_start, np.iinfo(np.int64).max)[following]
            group_end = stops[np.minimum(np.searchsorted(stops, at), len(stops) - 1)]
            stretch = union(at, np.minimum(next_start, group_end))
            stretched[activity] = union_all([busy.get(activity, EMPTY), stretch])
            higher = union_all([higher, stretch])
    return stretched
