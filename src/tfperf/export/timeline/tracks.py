"""Track groups of a host: the steps, device planes, host planes, and other planes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.arrays import (
    NO_NUMBERS,
    Bools,
    Int32s,
    Int64s,
    Uint8s,
    distinct,
    overlap,
    union,
    union_all,
    union_sorted,
)
from tfperf.export.timeline.derived import derived_groups
from tfperf.export.timeline.host_timeline import (
    PS_PER_NS,
    PS_PER_US,
    ArrowEnds,
    Counter,
    EventArguments,
    HostTimeline,
    Track,
    TrackGroup,
)
from tfperf.export.timeline.selection import Selection, matching_lines, overlaps, select_events, selected_steps
from tfperf.formats.wire.event_columns import NO_STAT_ROWS, StatKind
from tfperf.trace.device.device_work import device_label, work_lines
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.known_stats import IDS
from tfperf.trace.nesting import nest
from tfperf.trace.steps.steps import Steps

_PLANE_ORDER = ("tpu", "sparse core", "gpu", "host", "other")
_IMPOSSIBLE_BYTES = 1 << 62  # the sum of two would overflow
_LINKS = frozenset({"_pt", "_p", "_ct", "_c", "_r", "_a"})  # stats that link events; viewers get arrows for them

_LONG_NAME = 128  # a longer name is replaced by the display name, if there is one


class _PlacedPlane(Struct, frozen=True):
    """A plane: its trace rows in display order, and their tracks."""

    plane: int
    rows: Int64s
    tracks: tuple[Track, ...]


def host_timeline(
    trace: HostTrace, steps: Steps, selection: Selection, *, prefix: str = "", first_arrow: int = 1
) -> HostTimeline:
    """Return the timeline of a host, from a trace that was read with `everything`.

    `prefix` precedes the titles of groups; arrows are numbered from `first_arrow`.
    """
    selected = selected_steps(steps, selection)
    keep, omitted = select_events(trace, selected, selection)
    origin_ps = _origin_ps(trace)
    order = sorted(range(len(trace.planes)), key=lambda plane: _PLANE_ORDER.index(trace.planes[plane].kind))
    placed = [plane for plane in (_place(trace, number, keep) for number in order) if plane.tracks]
    arrows = PlacedArrows.between(trace, [plane.rows for plane in placed], first_arrow)
    groups = [_steps_group(selected, prefix, origin_ps)] if len(selected) else []
    copies = _copies_group(trace, selected, selection, prefix) if trace.device_kind == "tpu" else None
    groups += [copies] if copies is not None else []
    derived = derived_groups(trace, steps, selected, selection, origin_ps)
    counters = _counters(trace, placed, selected, selection)
    recorded = _plane_groups(trace, placed, arrows, counters, prefix)
    for plane in order:
        if plane in derived:
            groups.append(replace(derived[plane], title=prefix + derived[plane].title))
        if plane in recorded:
            groups.append(recorded[plane])
    return HostTimeline(
        groups=tuple(groups),
        steps=len(selected),
        copies=len(copies.start) if copies is not None else 0,
        derived=sum(len(group.start) for group in derived.values()),
        events=trace.event_count,
        omitted=omitted,
        arrows=len(arrows.source),
        cut_arrows=arrows.cut,
        backward_arrows=arrows.backward,
    )


def _origin_ps(trace: HostTrace) -> int:
    """Return the time origin: 0, or the time of the first event if it is before 0."""
    return min(int(trace.start_ps.min(initial=0)), int(trace.memory.start_ps.min(initial=0)), 0)


def _place(trace: HostTrace, plane: int, keep: Bools) -> _PlacedPlane:
    """Assign the events of a plane to tracks: one per line, more if events overlap without nesting."""
    all_rows: list[Int64s] = []
    tracks: list[Track] = []
    for line in trace.lines:
        if line.plane != plane:
            continue
        rows = np.flatnonzero(keep[line.start : line.stop]) + line.start
        if not len(rows):
            continue
        track = assign_tracks(trace.start_ps[rows], trace.end_ps[rows])
        first_row = tracks[-1].stop if tracks else 0
        tracks += _tracks(line.name, track, first_row)
        all_rows.append(rows[np.argsort(track, kind="stable")] if int(track.max()) else rows)
    return _PlacedPlane(plane, np.concatenate(all_rows) if all_rows else NO_NUMBERS, tuple(tracks))


def _tracks(name: str, track: Int64s, first_row: int) -> list[Track]:
    """Return the tracks of a line, whose rows are ordered by `track`, numbered from 0."""
    stops = (np.concatenate(([0], np.cumsum(np.bincount(track)))) + first_row).tolist()
    return [
        Track(f"{name} ({number + 1})" if number else name, start, stop, extra=number > 0)
        for number, (start, stop) in enumerate(pairwise(stops))
    ]


def _plane_groups(
    trace: HostTrace,
    placed: Sequence[_PlacedPlane],
    arrows: PlacedArrows,
    counters: Mapping[int, list[Counter]],
    prefix: str,
) -> dict[int, TrackGroup]:
    """Return the group of each plane (an index); `counters` are those of each plane."""
    origin_ps = _origin_ps(trace)
    names = tuple(
        display_name if display_name and (len(name) > _LONG_NAME or not name) else name
        for name, display_name in zip(trace.names, trace.display_names, strict=True)
    )
    arguments = _trace_arguments(trace, names)
    groups, first_place = {}, 0
    for plane in placed:
        header, rows = trace.planes[plane.plane], plane.rows
        leaving, arriving = arrows.ends(first_place, first_place + len(rows))
        first_place += len(rows)
        groups[plane.plane] = TrackGroup(
            title=prefix + header.name,
            category=header.kind,
            tracks=plane.tracks,
            start=trace.start_ps[rows] - origin_ps,
            end=trace.end_ps[rows] - origin_ps,
            name=trace.name[rows],
            names=names,
            arguments=arguments.of(rows),
            leaving=leaving,
            arriving=arriving,
            counters=tuple(counters.get(plane.plane, ())),
        )
    return groups


def _steps_group(steps: Steps, prefix: str, origin_ps: int) -> TrackGroup:
    """Return the steps as events, with their number, kind, and the reason for their exclusion from averages."""
    order = np.lexsort((-steps.end_ps, steps.start_ps))
    track = assign_tracks(steps.start_ps[order], steps.end_ps[order])
    order = order[np.argsort(track, kind="stable")]
    kinds, flags = ([texts[i] for i in order.tolist()] for texts in (steps.kinds, steps.flags))
    numbers, place = steps.numbers[order], np.arange(len(order))
    arguments = EventArguments.of_columns(
        (
            ("number", StatKind.INT, numbers, None),
            ("kind", StatKind.TEXT, place, None),
            ("excluded from averages", StatKind.TEXT, place + len(order), np.array([bool(flag) for flag in flags])),
        ),
        (*kinds, *flags),
    )
    return TrackGroup(
        title=f"{prefix}Steps",
        category="step",
        tracks=tuple(_tracks("steps", track, 0)),
        start=steps.start_ps[order] - origin_ps,
        end=steps.end_ps[order] - origin_ps,
        name=np.arange(len(order)),
        names=[f"{kind} {number}" for kind, number in zip(kinds, numbers.tolist(), strict=True)],
        arguments=arguments,
    )


_WAYS = {"to_device": "to the chip", "to_host": "to the host", "on_device": "on the chip", "exchange": "between chips"}


def _copies_group(trace: HostTrace, steps: Steps, selection: Selection, prefix: str) -> TrackGroup | None:
    """Return asynchronous copies and exchanges of chips, from start to end, with a track per chip.

    Both ends are ops. Not every chip has the profiler's own line of these copies.
    """
    from tfperf.trace.device.tpu_copies import async_runs, bytes_of  # few traces are of TPUs

    runs = async_runs(trace)
    shown = runs.is_paired & (runs.end_ps - runs.begun_ps >= max(selection.min_duration_ps, 1))
    if selection.steps is not None:
        shown &= overlaps(union(steps.start_ps, steps.end_ps), runs.begun_ps, runs.end_ps)
    if selection.threads:
        planes = {line.plane for line in matching_lines(trace, selection.threads)}
        shown &= np.isin(runs.plane, [*planes])
    tracks: list[Track] = []
    parts: list[Int64s] = []
    for plane in distinct(runs.plane[shown]).tolist():
        rows = np.flatnonzero(shown & (runs.plane == plane))
        rows = rows[np.lexsort((-runs.end_ps[rows], runs.begun_ps[rows]))]
        track = assign_tracks(runs.begun_ps[rows], runs.end_ps[rows])
        tracks += _tracks(device_label(trace.planes[plane].name), track, tracks[-1].stop if tracks else 0)
        parts.append(rows[np.argsort(track, kind="stable")])
    if not parts:
        return None
    rows = np.concatenate(parts)
    kind = runs.kind[rows]
    sizes = np.array([bytes_of(each.shape) or 0 for each in runs.kinds], np.int64)[kind]
    waited_ns = (runs.end_ps[rows] - runs.awaited_ps[rows]) // PS_PER_NS
    arguments = EventArguments.of_columns(
        (
            ("array", StatKind.TEXT, np.asarray(kind, np.int64), None),
            ("bytes", StatKind.INT, sizes, sizes > 0),
            ("waited for (ns)", StatKind.INT, waited_ns, None),
        ),
        tuple(each.shape for each in runs.kinds),
    )
    origin_ps = _origin_ps(trace)
    return TrackGroup(
        title=f"{prefix}TPU copies",
        category="copy",
        tracks=tuple(tracks),
        start=runs.begun_ps[rows] - origin_ps,
        end=runs.end_ps[rows] - origin_ps,
        name=kind,
        names=[f"{each.start} {_WAYS[each.way]}" for each in runs.kinds],
        arguments=arguments,
    )


def _counters(
    trace: HostTrace, placed: Sequence[_PlacedPlane], steps: Steps, selection: Selection
) -> dict[int, list[Counter]]:
    """Return the counters of each plane (an index): those of the host on its first plane, else on the first one."""
    counters = defaultdict[int, list[Counter]](list)
    planes = [each.plane for each in placed]
    for plane, counter in _busy_counters(trace, steps, selection):
        if plane in planes:
            counters[plane].append(counter)
    if planes:
        home = min(planes, key=lambda plane: (trace.planes[plane].kind != "host", planes.index(plane)))
        counters[home] += [*_memory_counters(trace), *_buffer_counters(trace)]
    windows, origin_ps = union(steps.start_ps, steps.end_ps), _origin_ps(trace)
    for plane, of_plane in counters.items():
        for place, counter in enumerate(of_plane):
            shown = np.ones(len(counter.time), np.bool_)
            if selection.steps is not None:
                shown = overlaps(windows, counter.time, counter.time)
            of_plane[place] = replace(counter, time=counter.time[shown] - origin_ps, value=counter.value[shown])
        counters[plane] = [counter for counter in of_plane if len(counter.time)]
    return counters


def _memory_counters(trace: HostTrace) -> Iterator[Counter]:
    """Yield the bytes in use of each allocator over time."""
    memory = trace.memory
    names, allocator = trace.allocators
    allocated, reserved = memory.number("bytes_allocated", -1), memory.number("bytes_reserved", 0)
    known = (allocator >= 0) & (allocated >= 0) & (allocated < _IMPOSSIBLE_BYTES) & (reserved < _IMPOSSIBLE_BYTES)
    for number, name in enumerate(names):
        rows = np.flatnonzero(known & (allocator == number))
        rows = rows[np.argsort(memory.start_ps[rows], kind="stable")]
        yield Counter(f"memory of {name}", memory.start_ps[rows], allocated[rows] + np.maximum(reserved[rows], 0))


def _buffer_counters(trace: HostTrace) -> Iterator[Counter]:
    """Yield the number of elements in the buffer of each tf.data stage at each call, if recorded."""
    if not any(len(trace.stat(stat).event) for stat in ("buffered_elements", "buffer_limit")):
        return
    from tfperf.trace.tfdata import find_pipelines  # few traces have these stats

    pipelines = find_pipelines(trace)
    if pipelines is None:
        return
    for index, stage in enumerate(pipelines.stages):
        if np.isnan(pipelines.buffered[index]):
            continue
        rows = pipelines.calls.row[pipelines.calls.stage == index]
        rows = rows[np.argsort(trace.start_ps[rows], kind="stable")]
        # An empty buffer is not recorded.
        value = np.maximum(trace.number_at("buffered_elements", rows, 0), 0)
        number = f" of pipeline {stage.pipeline + 1}" if len(pipelines.roots) > 1 else ""
        yield Counter(
            f"buffer of {stage.path.removeprefix('Iterator::')}{number}", trace.start_ps[rows], value, "elements"
        )


_MOST_WINDOWS = 1000


def _busy_counters(trace: HostTrace, steps: Steps, selection: Selection) -> Iterator[tuple[int, Counter]]:
    """Yield for each device the share of equal windows in which it works (kernels, copies, ops), and its plane."""
    busy = {
        plane: union_all(
            [
                union_sorted(trace.start_ps[line.start : line.stop], trace.end_ps[line.start : line.stop])
                for line in work_lines(trace, plane)
            ]
        )
        for plane in trace.devices
    }
    busy = {plane: flat for plane, flat in busy.items() if len(flat.start)}
    if not busy or (selection.steps is not None and not len(steps)):
        return
    low, high = min(int(flat.start[0]) for flat in busy.values()), max(int(flat.end[-1]) for flat in busy.values())
    if selection.steps is not None:
        low, high = int(steps.start_ps.min()), int(steps.end_ps.max())
    sizes = (digit * 10**exponent * PS_PER_US for exponent in range(9) for digit in (1, 2, 5))
    size = next(size for size in sizes if high - low <= size * _MOST_WINDOWS)
    border = np.arange(low // size, -(-high // size) + 1) * size
    border[0], border[-1] = low, high
    unit, per_unit = next((each for each in (("s", 10**12), ("ms", 10**9)) if size >= each[1]), ("us", PS_PER_US))
    for plane, flat in busy.items():
        percent = np.rint(100 * overlap(flat, border[:-1], border[1:]) / np.diff(border)).astype(np.int64)
        at = np.flatnonzero(np.diff(percent, prepend=-1))
        time, value = np.append(border[at], high), np.append(percent[at], 0)
        yield plane, Counter(f"busy, % of {size // per_unit} {unit}", time, value, "%")


def _trace_arguments(trace: HostTrace, shown_names: Sequence[str]) -> EventArguments:
    """Return the arguments of all events in row order, from a trace that was read with `everything`."""
    stats = trace.every_stat or NO_STAT_ROWS
    shown = np.array([key not in _LINKS for key in stats.keys], np.bool_)
    which = np.flatnonzero(shown[stats.key])
    event, key, kind, value = stats.event[which], stats.key[which], stats.kind[which], stats.value[which]
    keys, texts = list(stats.keys), list(stats.texts)
    stats_of_names = {stat: values for stat, values in trace.name_stats.items() if values and stat not in _LINKS}
    if long_names := {i: name for i, name in enumerate(trace.names) if name and name != shown_names[i]}:
        stats_of_names["long_name"] = {**long_names}
    by_name = [_of_events(trace, stat, values, keys, texts) for stat, values in stats_of_names.items()]
    if by_name:
        event, key, kind, value = map(np.concatenate, zip((event, key, kind, value), *by_name, strict=True))
        order = np.argsort(event, kind="stable")
        event, key, kind, value = event[order], key[order], kind[order], value[order]
    stop = np.concatenate(([0], np.cumsum(np.bincount(event, minlength=len(trace.name)))))
    return EventArguments(stop=stop, key=key, kind=kind, value=value, keys=tuple(keys), texts=tuple(texts))


def _of_events(
    trace: HostTrace, stat: str, values: Mapping[int, int | float | str], keys: list[str], texts: list[str]
) -> tuple[Int32s, Int32s, Uint8s, Int64s]:
    """Return events, keys, kinds and values of all events whose names have a stat; adds its key and texts."""
    value_of = np.zeros(len(trace.names), np.int64)
    kind_of = np.full(len(trace.names), len(StatKind), np.uint8)
    for name, value in values.items():
        if isinstance(value, str):
            value_of[name], kind_of[name] = len(texts), StatKind.TEXT
            texts.append(value)
        else:
            value_of[name], kind_of[name] = value, StatKind.UNSIGNED if stat in IDS else StatKind.INT
    keys.append(stat)
    rows = np.flatnonzero(kind_of[trace.name] < len(StatKind)).astype(np.int32)
    names = trace.name[rows]
    return rows, np.full(len(rows), len(keys) - 1, np.int32), kind_of[names], value_of[names]


_NARROW_TYPES, _NARROW_IDS = 1 << 6, 1 << 56


class EventPairs(NamedTuple):
    """Rows of the trace: the source and the target of each arrow."""

    source: Int64s
    target: Int64s


def launches(trace: HostTrace) -> EventPairs:
    """Return the host event that launched each device event (same `correlation_id`)."""
    stat = trace.stat("correlation_id")
    on_device = np.zeros(len(trace.name), np.bool_)
    for line in trace.lines:
        if trace.planes[line.plane].is_device and not line.derived:
            on_device[line.start : line.stop] = True
    rows = stat.event.astype(np.int64)
    host, device = trace.on_host[rows], on_device[rows]
    none = np.zeros(len(rows), np.int64)
    return _match(trace, (none[host], stat.value[host], rows[host]), (none[device], stat.value[device], rows[device]))


def handovers(trace: HostTrace) -> EventPairs:
    """Return the producer (kind `_pt`, id `_p`) of each consumer event (kind `_ct`, id `_c`)."""
    return _match(trace, _ends(trace, "_pt", "_p"), _ends(trace, "_ct", "_c"))


def enqueued_runs(trace: HostTrace) -> EventPairs:
    """Return the host event that enqueued each program run on a TPU chip."""
    if trace.device_kind != "tpu":
        return EventPairs(NO_NUMBERS, NO_NUMBERS)
    from tfperf.trace.device.tpu_runs import find_runs  # few traces are of TPUs

    runs = find_runs(trace)
    is_known = runs.enqueue >= 0
    return EventPairs(runs.enqueue[is_known], runs.row[is_known])


_Ends = tuple[Int64s, Int64s, Int64s]


def _ends(trace: HostTrace, kind_stat: str, id_stat: str) -> _Ends:
    kinds, ids = trace.stat(kind_stat), trace.stat(id_stat)
    rows = ids.event.astype(np.int64)
    if len(kinds.event) == len(rows) and bool((kinds.event == rows).all()):
        return kinds.value, ids.value, rows
    has_kind = trace.has_stat(kind_stat)[rows]
    rows = rows[has_kind]
    return trace.number_at(kind_stat, rows), ids.value[has_kind], rows


def _match(trace: HostTrace, sources: _Ends, targets: _Ends) -> EventPairs:
    """Match targets with sources of the same key: the last one that starts no later, else the first."""
    rows = np.concatenate((sources[2], targets[2]))
    is_source = np.arange(len(rows)) < len(sources[2])
    if not len(sources[2]) or not len(targets[2]):
        return EventPairs(rows[:0], rows[:0])
    kind, number = (np.concatenate((sources[i], targets[i])) for i in (0, 1))
    # One combined key if possible, because each key costs a sort.
    narrow = bool(((kind >= 0) & (kind < _NARROW_TYPES) & (number >= 0) & (number < _NARROW_IDS)).all())
    keys = (number * _NARROW_TYPES + kind,) if narrow else (number, kind)
    order = np.lexsort((~is_source, trace.start_ps[rows], *keys))
    new_key = np.zeros(len(rows), np.bool_)
    for key in keys:
        new_key[1:] |= np.diff(key[order]) != 0
    nearest = _nearest_source(is_source[order], new_key)
    matched = np.flatnonzero(~is_source[order] & (nearest >= 0))
    source, target = rows[order[nearest[matched]]], rows[order[matched]]
    apart = source != target
    return EventPairs(source[apart], target[apart])


def _nearest_source(is_source: Bools, new_key: Bools) -> Int64s:
    """Return for each position the last source up to it with the same key, else the next one, else -1."""
    place, count = np.arange(len(new_key)), len(new_key)
    first = np.maximum.accumulate(np.where(new_key, place, 0))
    ends = np.concatenate((np.flatnonzero(new_key), [count]))
    until = ends[np.cumsum(new_key)]
    last = np.maximum.accumulate(np.where(is_source, place, -1))
    following = np.minimum.accumulate(np.where(is_source, place, count)[::-1])[::-1]
    return np.where(last >= first, last, np.where(following < until, following, -1))


class PlacedArrows(Struct, frozen=True):
    """Arrows between rows in display order; `cut` counts arrows with a missing end, `backward` reversed ones."""

    first_number: int
    source: Int64s
    target: Int64s
    cut: int
    backward: int

    @classmethod
    def between(cls, trace: HostTrace, shown: Sequence[Int64s], first_number: int) -> PlacedArrows:
        """Return the arrows between displayed rows; `shown` are the rows of each group."""
        place = np.full(len(trace.name), -1, np.int64)
        rows = np.concatenate(shown) if shown else NO_NUMBERS
        place[rows] = np.arange(len(rows))
        kinds = (launches(trace), handovers(trace), enqueued_runs(trace))
        source, target = (np.concatenate(ends) for ends in zip(*kinds, strict=True))
        if len(kinds[2].source):  # flows may contain the same pairs
            first = np.unique(source * len(place) + target, return_index=True)[1]
            source, target = source[np.sort(first)], target[np.sort(first)]
        source, target = place[source], place[target]
        whole = (source >= 0) & (target >= 0)
        cut = int(len(whole) - whole.sum())
        source, target = source[whole], target[whole]
        # A viewer processes arrow ends in time order, and drops the arrow if the target end comes first.
        start_ns = trace.start_ps[rows] // PS_PER_NS
        early = start_ns[target] < start_ns[source]
        turned = early | ((start_ns[target] == start_ns[source]) & (target < source))
        source, target = np.where(turned, target, source), np.where(turned, source, target)
        return cls(first_number, source, target, cut, int(early.sum()))

    def ends(self, start: int, stop: int) -> tuple[ArrowEnds, ArrowEnds]:
        """Return the ends of arrows that leave and arrive in the rows from `start` to `stop`."""
        ends = []
        for places in (self.source, self.target):
            inside = np.flatnonzero((places >= start) & (places < stop))
            inside = inside[np.argsort(places[inside], kind="stable")]
            ends.append(ArrowEnds(places[inside] - start, inside + self.first_number))
        return ends[0], ends[1]


_FIRST_FREE = 200  # number of lanes that are filled one after the other
_ROUNDS = 8  # afterwards, the remaining events go to tracks without nesting


def assign_tracks(start: Int64s, end: Int64s) -> Int64s:
    """Return the track of each event of a line, 0 if all of them nest.

    Rows are sorted by start, the longer first. An event that starts inside an earlier one and ends after it crosses it.
    Events that cross none nest among each other and stay on track 0. The outermost others are distributed to tracks on
    which they do not overlap, together with the events inside them; events that still cross go to the next round. An
    event without duration crosses nothing.
    """
    track = np.zeros(len(start), np.int64)
    rest = np.flatnonzero(end > start)
    running = np.arange(len(rest)) - np.searchsorted(np.sort(end[rest]), start[rest], side="right")
    if bool((running == nest(start[rest], end[rest]).depth).all()):
        return track
    rest = rest[_crosses(np.zeros(len(rest), np.int64), start[rest], end[rest])]
    used = 1
    for _ in range(_ROUNDS):
        if not len(rest):
            return track
        lane, crosses = _round(start[rest], end[rest])
        track[rest[~crosses]] = used + lane[~crosses]
        used, rest = used + int(lane.max()) + 1, rest[crosses]
    track[rest] = used + lanes(start[rest], end[rest])
    return track


def _round(start: Int64s, end: Int64s) -> tuple[Int64s, Bools]:
    """Return a track for each event, and which events cross another there."""
    outer = nest(start, end).parent
    top = np.flatnonzero(outer < 0)
    lane = np.zeros(len(start), np.int64)
    lane[top] = lanes(start[top], end[top])
    outer[top] = top
    while bool((outer[outer] != outer).any()):
        outer = outer[outer]
    lane = lane[outer]
    order = np.argsort(lane, kind="stable")
    crosses = np.empty(len(start), np.bool_)
    crosses[order] = _crosses(lane[order], start[order], end[order])
    return lane, crosses


def _crosses(lane: Int64s, start: Int64s, end: Int64s) -> Bools:
    """Return which events end after an earlier one in which they started; rows are sorted by lane, start, longer first.

    In time order, take the first end after an event's start that belongs to it or to an earlier row. If it is not its
    own, the event crosses that row. With rows and ends reversed, this is a search for a parent.
    """
    count = len(start)
    order = start_end_order(lane, start, end)
    place = np.empty(2 * count, np.int64)
    place[order] = np.arange(2 * count)
    row, last = order % count, 2 * count - 1
    parent = nest(np.arange(2 * count), 4 * count - row[::-1]).parent
    return np.asarray(last - parent[last - place[:count]] != place[count:])


def start_end_order(lane: Int64s, start: Int64s, end: Int64s) -> Int64s:
    """Return starts (row numbers) and ends (row numbers plus the row count) by lane and time.

    At equal times, ends come first, the inner before the outer, then starts, the outer before the inner.
    """
    row = np.arange(len(start))
    is_start = np.arange(2 * len(start)) < len(start)
    keys = (np.concatenate((row, -row)), is_start, np.concatenate((start, end)), np.concatenate((lane, lane)))
    return np.lexsort(keys)


def lanes(start: Int64s, end: Int64s) -> Int64s:
    """Return for each event the first lane that is free when it starts; rows are sorted by start.

    An event without duration still occupies its lane for a moment. A lane is a chain from each event to the first one
    that starts after its end. Pointer doubling finds it without a step per event. After `_FIRST_FREE` lanes, the
    remaining events take as many lanes as run at once, in the order in which these become free.
    """
    lane = np.zeros(len(start), np.int64)
    end = np.maximum(end, start + 1)
    rest = np.arange(len(start))
    for number in range(_FIRST_FREE):
        if not len(rest):
            return lane
        count = len(rest)
        jump = np.append(np.searchsorted(start[rest], end[rest]), count)
        taken = np.zeros(1, np.int64)
        further = jump[taken]
        while len(further := further[further < count]):
            taken, jump = np.concatenate((taken, further)), jump[jump]
            further = jump[taken]
        lane[rest[taken]] = number
        rest = np.delete(rest, taken)
    # If k events run at once, the k-th event after one that ends takes its lane.
    count, by_end = len(rest), np.argsort(end[rest], kind="stable")
    running = np.arange(1, count + 1) - np.searchsorted(end[rest][by_end], start[rest], side="right")
    most = int(running.max(initial=0))
    before = np.concatenate((np.arange(min(most, count)), by_end[: count - most]))
    while bool((before >= most).any()):
        before = before[before]
    lane[rest] = _FIRST_FREE + before
    return lane
