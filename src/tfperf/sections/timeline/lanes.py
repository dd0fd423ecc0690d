"""The lanes of a picture: nested events of a step by thread and stream, the busiest lanes first."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.analysis.registry import Host
from tfperf.base.arrays import (
    NO_NUMBERS,
    Int32s,
    Int64s,
    Intervals,
    distinct_index,
    lookup,
    overlap,
    union_all,
    union_sorted,
)
from tfperf.base.units import format_ms
from tfperf.report.model import BlockName, Blocks, Lane, LaneGroup
from tfperf.sections.idle.analysis import CAUSE_TEXTS, CAUSES, Windows, gaps_of
from tfperf.trace.device.device_work import device_label, work_lines
from tfperf.trace.event_names import (
    is_hand_over,
    is_input_function,
    is_iterator,
    is_python_frame,
    parse_op,
    without_frame_mark,
)
from tfperf.trace.host.activities import Activity, device_codes, host_codes, tpu_codes
from tfperf.trace.host.host_state import main_line
from tfperf.trace.host.launches import launching_calls
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.nesting import nest, self_time
from tfperf.trace.steps.breakdown import CATEGORY_ACTIVITIES
from tfperf.trace.steps.categories import CATEGORIES, CATEGORY_TITLES

MOST_LANES = 24
"""Maximum lanes of a group; the others are only counted."""
_MOST_GROUPS = 24
_PROGRAM_ROWS, _USUAL_ROWS = 16, 6
"""Maximum rows of the program's lane, and of other lanes; deeper events are not drawn."""
_STRETCHES = 500
"""Number of stretches in the load of a group."""
_OPEN_DEVICES = 2
"""Number of devices that are open initially, in addition to the program."""
_NO_NAMES: Int32s = np.empty(0, np.int32)


class LaneEvents(Struct, frozen=True, kw_only=True):
    """Drawn events of a step, and the row of the trace of each (-1 for gaps)."""

    groups: tuple[LaneGroup, ...]
    events: DrawnEvents
    trace_row: Int64s
    deeper: int
    """Number of events that are too deeply nested to be drawn."""
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
    busy_ps = np.zeros(len(trace.lines), np.int64)
    edges = np.array([(line.start, line.stop) for line in trace.lines], np.int64).reshape(-1, 2)
    first, last = np.searchsorted(inside, edges).T
    for index in np.flatnonzero(last > first).tolist():
        rows = inside[first[index] : last[index]]
        start = np.maximum(trace.start_ps[rows], window.start_ps)
        busy_ps[index] = union_sorted(start, np.minimum(trace.end_ps[rows], window.end_ps)).total()
    for role in line_roles(host, busy_ps, window):
        by_group.setdefault(role.group, []).append(role)
    gaps = {each.device: each for each in idle_gaps(host, window)}
    groups: list[LaneGroup] = []
    drawn: list[list[_DrawnLane]] = []
    devices = 0
    for title, roles in list(by_group.items())[:_MOST_GROUPS]:
        lanes = [_lane(trace, inside, window, role, texts) for role in roles]
        lanes.sort(key=lambda each: -each.lane.busy_percent)
        busy, omitted = [each.busy for each in lanes], max(len(lanes) - MOST_LANES, 0)
        # Streams share a device, which is busy if any of them is.
        load = _load(busy if title in ROLE_TITLES.values() else [union_all(busy)], window)
        lanes = [*([_idle(gaps[title], window, texts)] if title in gaps else []), *lanes[:MOST_LANES]]
        devices += title not in ROLE_TITLES.values()
        is_open = title == ROLE_TITLES["program"] or (title not in ROLE_TITLES.values() and devices <= _OPEN_DEVICES)
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


def _lane(trace: HostTrace, inside: Int64s, window: Window, role: LineRole, texts: BlockTexts) -> _DrawnLane:
    line = trace.lines[role.line]
    first, last = np.searchsorted(inside, (line.start, line.stop)).tolist()
    rows = inside[first:last]
    start = np.maximum(trace.start_ps[rows], window.start_ps)
    end = np.minimum(trace.end_ps[rows], window.end_ps)
    # Events that begin before the window are cut to its start; the longer one remains the outer one.
    order = np.lexsort((rows, -end, start))
    rows, start, end = rows[order], start[order], end[order]
    nesting = nest(start, end)
    self_ps = self_time(end - start, nesting.parent)
    most_rows = _PROGRAM_ROWS if role.group == ROLE_TITLES["program"] else _USUAL_ROWS
    shown = np.flatnonzero(nesting.depth < most_rows)
    # Short integers are sorted in linear time.
    shown = shown[np.argsort(nesting.depth[shown].astype(np.uint8), kind="stable")]
    busy, depth = union_sorted(start, end), nesting.depth[shown]
    percent = 100.0 * busy.total() / max(window.end_ps - window.start_ps, 1)
    name, note = texts.of(rows[shown], in_pipeline=role.group == ROLE_TITLES["tf.data"])
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
    edges = np.linspace(window.start_ps, window.end_ps, _STRETCHES + 1).astype(np.int64)
    total = np.zeros(_STRETCHES, np.float64)
    for of_lane in busy:
        total += overlap(of_lane, edges[:-1], edges[1:])
    share = total / np.maximum((edges[1:] - edges[:-1]) * max(len(busy), 1), 1)
    return tuple(np.ceil(100.0 * share).astype(np.int64).tolist())


def _joined(lanes: Sequence[_DrawnLane]) -> tuple[DrawnEvents, Int64s]:
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


Role = Literal["program", "tf.data", "launching", "other"]
ROLE_TITLES: dict[Role, str] = {
    "program": "Program",
    "tf.data": "tf.data",
    "launching": "Launching threads",
    "other": "Other threads",
}
"""The roles of host threads, in drawing order."""
_THREAD_ID = re.compile(r"/-?\d+\Z")
"""The end of a thread's name in profiles: equal names get numbers from 1 instead."""
_TF_DATA_SHARE = 0.5
"""A thread belongs to tf.data if stages take more than this share of its busy time."""


class LineRole(Struct, frozen=True):
    """A line with its lane group and title."""

    line: int
    group: str
    title: str


def line_roles(host: Host, busy_ps: Int64s, window: Window) -> Iterator[LineRole]:
    """Yield the lines to draw, group by group; `busy_ps` is the busy time of each line in the window."""
    trace = host.trace
    launching = {*trace.line_of[launching_calls(trace)[0]].tolist()}
    main, stages = main_line(trace), _stage_of_lines(host, busy_ps, window)
    by_role: dict[Role, list[LineRole]] = {role: [] for role in ROLE_TITLES}
    for index, line in enumerate(trace.lines):
        if trace.planes[line.plane].kind != "host" or line.derived or not busy_ps[index]:
            continue
        role: Role = "other"
        title = _THREAD_ID.sub("", line.name)
        if index == main:
            role = "program"
        elif index in stages:
            role, title = "tf.data", f"{stages[index]} ({title})"
        elif line.name.startswith("tf_data_"):
            role = "tf.data"
        elif index in launching:
            role = "launching"
        by_role[role].append(LineRole(index, ROLE_TITLES[role], title))
    for roles in by_role.values():
        counts, numbers = Counter(role.title for role in roles), Counter[str]()
        for each in roles:
            numbers[each.title] += 1
            number = f" {numbers[each.title]}" if counts[each.title] > 1 else ""
            yield replace(each, title=f"{each.title}{number}")
    yield from _streams(trace, busy_ps)


def _streams(trace: HostTrace, busy_ps: Int64s) -> Iterator[LineRole]:
    for plane in trace.devices:
        label = device_label(trace.planes[plane].name)
        streams = {(line.id, line.start) for line in work_lines(trace, plane)}
        for index, line in enumerate(trace.lines):
            if line.plane == plane and (line.id, line.start) in streams and busy_ps[index]:
                yield LineRole(index, label, line.name)


def _stage_of_lines(host: Host, busy_ps: Int64s, window: Window) -> dict[int, str]:
    work, pipelines = host.stage_work, host.pipelines
    if work is None or pipelines is None:
        return {}
    start, end = np.maximum(work.start, window.start_ps), np.minimum(work.end, window.end_ps)
    rows = np.flatnonzero((end > start) & (work.stage >= 0))
    if not len(rows):
        return {}
    count = len(pipelines.stages)
    line = host.trace.line_of[work.row[rows]].astype(np.int64)
    pairs, pair = distinct_index(line * count + work.stage[rows])
    worked = np.bincount(pair, weights=(end - start)[rows].astype(np.float64))
    by_line: dict[int, list[tuple[float, int]]] = {}
    for key, time_ps in zip(pairs.tolist(), worked.tolist(), strict=True):
        by_line.setdefault(key // count, []).append((time_ps, key % count))
    main = main_line(host.trace)
    return {
        index: pipelines.stages[max(parts)[1]].name
        for index, parts in by_line.items()
        if index != main and sum(time_ps for time_ps, _ in parts) > _TF_DATA_SHARE * busy_ps[index]
    }


_SPLITS = 2_000
"""Maximum number of gaps shown with a split: the longest."""


class IdleGaps(Struct, frozen=True, kw_only=True):
    """The gaps of one device; `cause` is an index into `causes`, and `splits` gives the shares of several causes."""

    device: str
    start_ps: Int64s
    end_ps: Int64s
    cause: Int64s
    causes: tuple[str, ...]
    splits: tuple[str, ...]


def idle_gaps(host: Host, window: Window) -> Iterator[IdleGaps]:
    """Yield the gaps of each device that recorded work."""
    edges = np.array([window.start_ps], np.int64), np.array([window.end_ps], np.int64)
    windows = Windows(*edges, np.ones(1, np.bool_))
    for device in host.device_times:
        if not len(device.busy.start):
            continue
        gaps = gaps_of(host.trace, device, windows, host.launch_links, host.host_states)
        order = np.argsort(gaps.start_ps, kind="stable")
        gaps = gaps.only(order)
        splits = [""] * len(order)
        for gap in np.argsort(-gaps.duration_ps, kind="stable")[:_SPLITS].tolist():
            causes = [i for i in np.argsort(-gaps.time_ps[:, gap], kind="stable").tolist() if gaps.time_ps[i, gap]]
            if len(causes) > 1:
                shares = (int(gaps.time_ps[i, gap]) / 1e9 for i in causes)
                titles = (CAUSE_TEXTS[CAUSES[i]].title for i in causes)
                splits[gap] = ", ".join(f"{title} {format_ms(ms)} ms" for title, ms in zip(titles, shares, strict=True))
        yield IdleGaps(
            device=device_label(device.name),
            start_ps=gaps.start_ps,
            end_ps=gaps.end_ps,
            cause=gaps.time_ps.argmax(axis=0),
            causes=tuple(CAUSE_TEXTS[cause].title for cause in CAUSES),
            splits=tuple(splits),
        )


PARTS = {"input_wait": "Input wait", "host_to_device": CATEGORY_TITLES["host_to_device"]}
"""The two parts of the category Input, which have separate colors."""
TITLES = {**{key: CATEGORY_TITLES[key] for key in CATEGORIES}, **PARTS}
PIPELINE, PYTHON, CALL, IDLE = "Input pipeline", "Python", "Call", "Idle"
"""Kinds of blocks without a category."""
_LONGEST = 200
_MOST_NOTES = 20_000
_KINDS = {activity: TITLES[key] for key, activities in CATEGORY_ACTIVITIES.items() for activity in activities}


class BlockTexts:
    """The names and notes of a host's events, created on demand and numbered."""

    def __init__(self, host: Host) -> None:
        self._trace = host.trace
        self._work = host.device_work
        self._host_codes = host_codes(host.trace, "corrected", has_device=bool(host.trace.devices))
        self._device_codes = _device_codes(host.trace)
        self.names: dict[BlockName, int] = {}
        self.notes: dict[str, int] = {}

    def of(self, rows: Int64s, *, in_pipeline: bool = False) -> tuple[Int32s, Int32s]:
        """Return for each row of the trace the numbers of its name and of its note; -1 without a note.

        `in_pipeline`: ops are work of the input pipeline, not of the step.
        """
        trace = self._trace
        code = np.where(trace.on_host[rows], self._host_codes[trace.name[rows]], 0).astype(np.int64)
        if self._device_codes is not None:
            code = np.where(trace.on_host[rows], code, self._device_codes[rows])
        on_device = (~trace.on_host[rows]).astype(np.int64)
        keys = (trace.name[rows].astype(np.int64) * len(Activity) + code) * 2 + on_device
        values, index = distinct_index(keys)
        numbers = [self._name(int(key), in_pipeline=in_pipeline) for key in values.tolist()]
        name = np.array(numbers, np.int32)[index] if len(values) else np.zeros(0, np.int32)
        return name, self._notes(rows)

    def gap(self, cause: str) -> int:
        """Return the name number of gaps with this cause."""
        return self.names.setdefault(BlockName(cause, f"{IDLE}: {cause}"), len(self.names))

    def note(self, text: str) -> int:
        """Return the number of a note; -1 if it is empty or exceeds the maximum."""
        if not text or (len(self.notes) >= _MOST_NOTES and text not in self.notes):
            return -1
        return self.notes.setdefault(text, len(self.notes))

    def _name(self, key: int, *, in_pipeline: bool) -> int:
        rest, on_device = divmod(key, 2)
        name_index, code = divmod(rest, len(Activity))
        text = self._trace.names[name_index]
        # TPUs record the text of an HLO op, such as `%copy.1 = f32[8]{0} copy(...)`.
        has_short_name = len(text) > _LONGEST or text.startswith("%")
        shown = (self._trace.display_names[name_index] if has_short_name else "") or without_frame_mark(text)
        activity = Activity(code)
        if on_device:
            block = BlockName(shown[:_LONGEST], _KINDS.get(activity, TITLES["device_compute"]))
        else:
            op = parse_op(text)
            is_op = op.kind in ("tensorflow", "jax")
            kind = PYTHON if is_python_frame(text) else _KINDS.get(activity, CALL)
            is_input = is_iterator(text) or is_hand_over(text) or is_input_function(text)
            kind = PIPELINE if is_input or (in_pipeline and kind == TITLES["host_compute"]) else kind
            names = (op.type[:_LONGEST], op.name[:_LONGEST]) if is_op else ()
            block = BlockName(shown[:_LONGEST], kind, *names)
        return self.names.setdefault(block, len(self.names))

    def _notes(self, rows: Int64s) -> Int32s:
        note = np.full(len(rows), -1, np.int32)
        place = lookup(self._work.rows, rows)
        at = np.flatnonzero(place >= 0)
        if not len(at):
            return note
        trace, event = self._trace, rows[at]
        columns = [self._work.op[place[at]]]
        texts = [tuple(f"op {op.name} ({op.type})" for op in self._work.ops)]
        for stat in ("kernel_details", "memcpy_details"):
            columns.append(trace.number_at(stat, event, -1))
            texts.append(trace.stat(stat).texts)
        key = np.zeros(len(at), np.int64)
        for column, words in zip(columns, texts, strict=True):
            key = key * (len(words) + 1) + column + 1
        values, index = distinct_index(key)
        numbers = [self._note(int(value), texts) for value in values.tolist()]
        note[at] = np.array(numbers, np.int32)[index]
        return note

    def _note(self, key: int, texts: list[tuple[str, ...]]) -> int:
        parts = []
        for words in reversed(texts):
            key, place = divmod(key, len(words) + 1)
            if place:
                parts.append(words[place - 1][:_LONGEST])
        return self.note("; ".join(part for part in reversed(parts) if part))


def _device_codes(trace: HostTrace) -> Int64s | None:
    if trace.device_kind == "gpu":
        return device_codes(trace, "corrected").astype(np.int64)
    return tpu_codes(trace).astype(np.int64) if trace.device_kind == "tpu" else None


# --- blocks of a picture at several levels of detail, which limit its size ---
# At each level, events shorter than one pixel are merged: those of one row that start in the same cell of a few pixels,
# with no longer event between them, form one block. The pixels limit the number of blocks per level, and the finest
# level shows every event unless there are too many.

MOST_BLOCKS = (4_000, 12_000, 36_000)
"""Maximum blocks of the coarse, middle and fine level."""
_PIXELS = 1_000
"""Pixels per step at the coarse level."""
_CELL = 4
"""Pixels per cell in which short events are merged."""
_FINEST_NS = 1


class DrawnEvents(Struct, frozen=True, eq=False, kw_only=True):
    """The events of a picture, ordered by row, then by start; nanoseconds from the start of the step."""

    row: Int32s
    start_ns: Int64s
    end_ns: Int64s
    name: Int32s
    self_ns: Int64s
    note: Int32s

    def __len__(self) -> int:
        return len(self.row)


def no_events() -> DrawnEvents:
    """Return a picture's events without any."""
    numbers = {"start_ns": NO_NUMBERS, "end_ns": NO_NUMBERS, "self_ns": NO_NUMBERS}
    return DrawnEvents(row=_NO_NAMES, name=_NO_NAMES, note=_NO_NAMES, **numbers)


def levels_of(events: DrawnEvents, duration_ns: int) -> tuple[Blocks, ...]:
    """Return the levels from coarse to fine, without those that show no more than the previous one."""
    if not len(events):
        return (_blocks(events, 0),)
    fine = _resolution(events, duration_ns, 0, MOST_BLOCKS[2])
    coarse = _resolution(events, duration_ns, max(duration_ns // _PIXELS, fine), MOST_BLOCKS[0])
    middle = _resolution(events, duration_ns, max(int((max(fine, _FINEST_NS) * coarse) ** 0.5), fine), MOST_BLOCKS[1])
    levels: list[Blocks] = []
    for finest_ns in (coarse, middle, fine):
        if levels and finest_ns >= levels[-1].finest_ns:
            continue
        blocks = _blocks(events, finest_ns)
        if levels and len(blocks.row) == len(levels[-1].row):
            levels.pop()  # the finer one shows the same, and is right at any zoom
        levels.append(blocks)
    return tuple(levels)


def _resolution(events: DrawnEvents, duration_ns: int, finest_ns: int, most: int) -> int:
    """Return the shortest duration, at least `finest_ns`, with at most `most` blocks, or longer than the step."""
    while finest_ns < duration_ns and len(_firsts(events, finest_ns)) > most:
        finest_ns = max(2 * finest_ns, _FINEST_NS)
    return finest_ns


def _firsts(events: DrawnEvents, finest_ns: int) -> Int64s:
    if finest_ns <= 0:
        return np.arange(len(events))
    is_short = events.end_ns - events.start_ns < finest_ns
    cell = events.start_ns // (_CELL * finest_ns)
    is_first = np.ones(len(events), np.bool_)
    is_first[1:] = ~is_short[1:] | ~is_short[:-1]
    is_first[1:] |= (events.row[1:] != events.row[:-1]) | (cell[1:] != cell[:-1])
    return np.flatnonzero(is_first)


def _blocks(events: DrawnEvents, finest_ns: int) -> Blocks:
    first = _firsts(events, finest_ns)
    count = np.diff(first, append=len(events))
    start, duration = events.start_ns[first], events.end_ns - events.start_ns
    name, self_ns, note = events.name[first], events.self_ns[first], events.note[first]
    if len(first) < len(events):
        is_one = count == 1
        name = np.where(is_one, name, _largest_name(events, first, duration)).astype(np.int32)
        self_ns = np.where(is_one, self_ns, np.add.reduceat(duration, first))
        note = np.where(is_one, note, -1).astype(np.int32)
        duration = np.maximum.reduceat(events.end_ns, first) - start
    return Blocks(
        finest_ns=finest_ns,
        row=events.row[first],
        start_ns=start,
        duration_ns=duration,
        name=name,
        count=count,
        self_ns=self_ns,
        note=note,
    )


def _largest_name(events: DrawnEvents, first: Int64s, duration: Int64s) -> Int32s:
    """Return for each block the name with the longest total time; of equal ones, the one with the smaller index."""
    block = np.cumsum(np.bincount(first, minlength=len(events))) - 1
    order = np.lexsort((events.name, block))
    block, name = block[order], events.name[order]
    is_new = np.ones(len(order), np.bool_)
    is_new[1:] = (block[1:] != block[:-1]) | (name[1:] != name[:-1])
    starts = np.flatnonzero(is_new)
    total, block, name = np.add.reduceat(duration[order], starts), block[starts], name[starts]
    ranked = np.lexsort((name, -total, block))
    leads = np.ones(len(ranked), np.bool_)
    leads[1:] = block[ranked][1:] != block[ranked][:-1]
    return np.asarray(name[ranked[leads]], np.int32)


class Window(Struct, frozen=True):
    """A step from its start to its end, in picoseconds on the clock of the trace."""

    start_ps: int
    end_ps: int

    @property
    def duration_ns(self) -> int:
        """Return the duration in nanoseconds."""
        return int(self.ns(np.array([self.end_ps]))[0])

    def ns(self, times_ps: Int64s) -> Int64s:
        """Return times in nanoseconds from the window's start, clipped to its edges."""
        return (np.clip(times_ps, self.start_ps, self.end_ps) - self.start_ps + 500) // 1000
