"""The lanes of a picture: events of a step by thread and stream, nested, the busiest lanes first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
from msgspec import Struct

from tfperf.analysis.results import Host
from tfperf.base.arrays import NO_NUMBERS, Int32s, Int64s, Intervals, overlap, union_all, union_sorted
from tfperf.report.step_picture import Lane, LaneGroup
from tfperf.sections.timeline.block_names import BlockTexts
from tfperf.sections.timeline.idle_lane import IdleGaps, idle_gaps
from tfperf.sections.timeline.levels import DrawnEvents
from tfperf.sections.timeline.thread_roles import TITLES, LineRole, line_roles
from tfperf.sections.timeline.window import Window
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.nesting import nest, self_time

MOST_LANES = 24
"""Lanes of a group; those that are less busy are counted."""
_MOST_GROUPS = 24
_MOST_ROWS = {TITLES["program"]: 16}
_USUAL_ROWS = 6
"""Rows of a lane: what lies deeper inside other events is not drawn."""
_STRETCHES = 500
"""Into so many stretches the load of a group is cut."""
_OPEN_DEVICES = 2
"""So many devices are open at first; the program is, too."""
_NO_NAMES: Int32s = np.empty(0, np.int32)


class LaneEvents(Struct, frozen=True, kw_only=True):
    """What is drawn of the events of a step, and of which row of the trace each is (-1: of none, but a gap)."""

    groups: tuple[LaneGroup, ...]
    events: DrawnEvents
    trace_row: Int64s
    deeper: int
    """How many events are not drawn because they lie too deep inside others."""
    omitted_groups: int


class _DrawnLane(Struct, frozen=True, kw_only=True):
    """A lane with its events, ordered by `depth` (the row of each in the lane), then by start."""

    lane: Lane
    depth: Int64s
    start_ns: Int64s
    end_ns: Int64s
    self_ns: Int64s
    name: Int32s
    note: Int32s
    trace_row: Int64s
    busy: Intervals
    deeper: int = 0


def lane_events(host: Host, window: Window, texts: BlockTexts) -> LaneEvents:
    """Return the lanes of the step in this window, with their events."""
    trace = host.trace
    inside = np.flatnonzero((trace.start_ps < window.end_ps) & (trace.end_ps > window.start_ps))
    by_group: dict[str, list[LineRole]] = {}
    for role in line_roles(host, _busy_ps(trace, inside, window), window):
        by_group.setdefault(role.group, []).append(role)
    gaps = {each.device: each for each in idle_gaps(host, window)}
    groups: list[LaneGroup] = []
    drawn: list[list[_DrawnLane]] = []
    devices = 0
    for title, roles in list(by_group.items())[:_MOST_GROUPS]:
        lanes = [_lane(trace, inside, window, role, texts) for role in roles]
        lanes.sort(key=lambda each: -each.lane.busy_percent)
        busy, omitted = [each.busy for each in lanes], max(len(lanes) - MOST_LANES, 0)
        # Streams of a device share it: it is busy if any of them is.
        load = _load(busy if title in TITLES.values() else [union_all(busy)], window)
        lanes = [*([_idle(gaps[title], window, texts)] if title in gaps else []), *lanes[:MOST_LANES]]
        devices += title not in TITLES.values()
        is_open = title == TITLES["program"] or (title not in TITLES.values() and devices <= _OPEN_DEVICES)
        of_group = tuple(each.lane for each in lanes)
        groups.append(LaneGroup(title=title, lanes=of_group, is_open=is_open, load=load, omitted=omitted))
        drawn.append(lanes)
    events, trace_row = _joined([*chain.from_iterable(drawn)])
    return LaneEvents(
        groups=tuple(groups),
        events=events,
        trace_row=trace_row,
        deeper=sum(each.deeper for each in chain.from_iterable(drawn)),
        omitted_groups=max(len(by_group) - _MOST_GROUPS, 0),
    )


def _busy_ps(trace: HostTrace, inside: Int64s, window: Window) -> Int64s:
    """Return how long each line is busy in the window: of nested events, the outermost count."""
    busy_ps = np.zeros(len(trace.lines), np.int64)
    for index, rows in _by_line(trace, inside):
        start = np.maximum(trace.start_ps[rows], window.start_ps)
        busy_ps[index] = union_sorted(start, np.minimum(trace.end_ps[rows], window.end_ps)).total()
    return busy_ps


def _by_line(trace: HostTrace, inside: Int64s) -> Iterator[tuple[int, Int64s]]:
    first = np.searchsorted(inside, np.array([line.start for line in trace.lines], np.int64))
    last = np.searchsorted(inside, np.array([line.stop for line in trace.lines], np.int64))
    for index in np.flatnonzero(last > first).tolist():
        yield index, inside[first[index] : last[index]]


def _lane(trace: HostTrace, inside: Int64s, window: Window, role: LineRole, texts: BlockTexts) -> _DrawnLane:
    line = trace.lines[role.line]
    first, last = np.searchsorted(inside, (line.start, line.stop)).tolist()
    rows = inside[first:last]
    start = np.maximum(trace.start_ps[rows], window.start_ps)
    end = np.minimum(trace.end_ps[rows], window.end_ps)
    # Events that begin before the window begin together in it; of those, the longer one still is the outer one.
    order = np.lexsort((rows, -end, start))
    rows, start, end = rows[order], start[order], end[order]
    nesting = nest(start, end)
    self_ps = self_time(end - start, nesting.parent)
    shown = np.flatnonzero(nesting.depth < _MOST_ROWS.get(role.group, _USUAL_ROWS))
    # Short numbers are sorted in linear time.
    shown = shown[np.argsort(nesting.depth[shown].astype(np.uint8), kind="stable")]
    busy, depth = union_sorted(start, end), nesting.depth[shown]
    percent = 100.0 * busy.total() / max(window.end_ps - window.start_ps, 1)
    name, note = texts.of(rows[shown])
    return _DrawnLane(
        lane=Lane(title=role.title, rows=int(depth.max(initial=0)) + 1, busy_percent=percent),
        depth=depth,
        start_ns=window.ns(start[shown]),
        end_ns=window.ns(end[shown]),
        self_ns=(self_ps[shown] + 500) // 1000,
        name=name,
        note=note,
        trace_row=rows[shown],
        busy=busy,
        deeper=len(rows) - len(shown),
    )


def _idle(gaps: IdleGaps, window: Window, texts: BlockTexts) -> _DrawnLane:
    """Return the lane of what a device waits for."""
    start, end = window.ns(gaps.start_ps), window.ns(gaps.end_ps)
    numbers = [texts.gap(cause) for cause in gaps.causes]
    percent = 100.0 * int((gaps.end_ps - gaps.start_ps).sum()) / max(window.end_ps - window.start_ps, 1)
    return _DrawnLane(
        lane=Lane(title="Idle, by cause", rows=1, busy_percent=percent),
        depth=np.zeros(len(start), np.int64),
        start_ns=start,
        end_ns=end,
        self_ns=end - start,
        name=np.array(numbers, np.int32)[gaps.cause],
        note=np.array([texts.note(text) for text in gaps.splits], np.int32),
        trace_row=np.full(len(start), -1, np.int64),
        busy=Intervals(gaps.start_ps, gaps.end_ps),
    )


def _load(busy: Sequence[Intervals], window: Window) -> tuple[int, ...]:
    """Return how busy lanes are on average in equal stretches of the window, in percent."""
    edges = np.linspace(window.start_ps, window.end_ps, _STRETCHES + 1).astype(np.int64)
    total = np.zeros(_STRETCHES, np.float64)
    for of_lane in busy:
        total += overlap(of_lane, edges[:-1], edges[1:])
    share = total / np.maximum((edges[1:] - edges[:-1]) * max(len(busy), 1), 1)
    return tuple(np.ceil(100.0 * share).astype(np.int64).tolist())


def _joined(lanes: Sequence[_DrawnLane]) -> tuple[DrawnEvents, Int64s]:
    """Return the events of all lanes, ordered by row, and the row of the trace of each."""
    first_rows = np.cumsum([0, *(each.lane.rows for each in lanes)]).tolist()
    rows = [each.depth + first for each, first in zip(lanes, first_rows, strict=False)]
    events = DrawnEvents(
        row=np.concatenate([NO_NUMBERS, *rows]).astype(np.int32),
        start_ns=np.concatenate([NO_NUMBERS, *(each.start_ns for each in lanes)]),
        end_ns=np.concatenate([NO_NUMBERS, *(each.end_ns for each in lanes)]),
        name=np.concatenate([_NO_NAMES, *(each.name for each in lanes)]),
        self_ns=np.concatenate([NO_NUMBERS, *(each.self_ns for each in lanes)]),
        note=np.concatenate([_NO_NAMES, *(each.note for each in lanes)]),
    )
    return events, np.concatenate([NO_NUMBERS, *(each.trace_row for each in lanes)])
