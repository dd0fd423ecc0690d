"""From the trace of a host to groups of tracks: the steps, the planes of devices, those of the host, all others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import NO_NUMBERS, Bools, Int32s, Int64s, Uint8s, distinct, union
from tfperf.export.timeline.arrows import PlacedArrows
from tfperf.export.timeline.host_timeline import (
    PS_PER_NS,
    ArrowEnds,
    Counter,
    EventArguments,
    HostTimeline,
    Track,
    TrackGroup,
)
from tfperf.export.timeline.overlaps import assign_tracks
from tfperf.export.timeline.selection import Selection, matching_lines, overlaps, select_events, selected_steps
from tfperf.formats.wire.event_columns import NO_STAT_ROWS, StatKind
from tfperf.trace.device.device_work import device_label
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.known_stats import IDS
from tfperf.trace.steps.steps import Steps

_PLANE_ORDER = ("tpu", "sparse core", "gpu", "host", "other")
_IMPOSSIBLE_BYTES = 1 << 62
"""Bytes that nobody has; two such numbers do not add up."""
_LINKS = frozenset({"_pt", "_p", "_ct", "_c", "_r", "_a"})
"""Stats that link events; viewers get arrows for them."""

_LONG_NAME = 128
"""A name longer than that gives way to the display name, where there is one."""


class _PlacedPlane(Struct, frozen=True):
    """A plane: its rows of the trace in the order to show them, and the tracks that they are on."""

    plane: int
    rows: Int64s
    tracks: tuple[Track, ...]


def host_timeline(
    trace: HostTrace, steps: Steps, selection: Selection, *, prefix: str = "", first_arrow: int = 1
) -> HostTimeline:
    """Return what to show of a host; `prefix` goes before the titles of groups, arrows are numbered from `first_arrow`.

    The trace must have been read with everything.
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
    groups += _plane_groups(trace, placed, arrows, _memory_counters(trace, selected, selection, origin_ps), prefix)
    return HostTimeline(
        groups=tuple(groups),
        steps=len(selected),
        copies=len(copies.start_ps) if copies is not None else 0,
        events=trace.event_count,
        omitted=omitted,
        arrows=len(arrows.source),
        cut_arrows=arrows.cut,
        backward_arrows=arrows.backward,
    )


def _origin_ps(trace: HostTrace) -> int:
    """Return the time from which viewers count: 0, or that of the first event if it is before 0."""
    return min(int(trace.start_ps.min(initial=0)), int(trace.memory.start_ps.min(initial=0)), 0)


def _place(trace: HostTrace, plane: int, keep: Bools) -> _PlacedPlane:
    """Put the events of a plane on tracks: one for each line, more where events overlap without nesting."""
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
    """Return the tracks of a line, whose rows are ordered by track; `track` numbers them from 0."""
    stops = (np.concatenate(([0], np.cumsum(np.bincount(track)))) + first_row).tolist()
    return [
        Track(f"{name} ({number + 1})" if number else name, start, stop, extra=number > 0)
        for number, (start, stop) in enumerate(pairwise(stops))
    ]


def _plane_groups(
    trace: HostTrace, placed: Sequence[_PlacedPlane], arrows: PlacedArrows, counters: tuple[Counter, ...], prefix: str
) -> list[TrackGroup]:
    """Return a group for each plane; the counters go to the first plane of the host, else to the first of all."""
    origin_ps, names = _origin_ps(trace), _shown_names(trace)
    arguments = _trace_arguments(trace, names)
    by_preference = sorted(placed, key=lambda plane: trace.planes[plane.plane].kind != "host")
    groups, first_place = [], 0
    for plane in placed:
        header, rows = trace.planes[plane.plane], plane.rows
        leaving, arriving = arrows.ends(first_place, first_place + len(rows))
        first_place += len(rows)
        groups.append(
            TrackGroup(
                title=prefix + header.name,
                category=header.kind,
                tracks=plane.tracks,
                start_ps=trace.start_ps[rows] - origin_ps,
                end_ps=trace.end_ps[rows] - origin_ps,
                name=trace.name[rows],
                names=names,
                arguments=arguments.of(rows),
                leaving=leaving,
                arriving=arriving,
                counters=counters if plane is by_preference[0] else (),
            )
        )
    return groups


def _steps_group(steps: Steps, prefix: str, origin_ps: int) -> TrackGroup:
    """Return the steps as events, with their number, kind, and why one is omitted from averages."""
    order = np.lexsort((-steps.end_ps, steps.start_ps))
    track = assign_tracks(steps.start_ps[order], steps.end_ps[order])
    order = order[np.argsort(track, kind="stable")]
    kinds, flags = ([texts[i] for i in order.tolist()] for texts in (steps.kinds, steps.flags))
    numbers, no_arrows, count = steps.numbers[order], ArrowEnds(NO_NUMBERS, NO_NUMBERS), len(order)
    there = np.ones((count, 3), np.bool_)
    there[:, 2] = [bool(flag) for flag in flags]
    key = np.tile(np.arange(3, dtype=np.int32), (count, 1))
    arguments = EventArguments(
        stop=np.concatenate(([0], np.cumsum(there.sum(axis=1)))),
        key=key[there],
        kind=np.where(key == 0, StatKind.INT, StatKind.TEXT).astype(np.uint8)[there],
        value=np.stack((numbers, np.arange(count), np.arange(count) + count), axis=1)[there],
        keys=("number", "kind", "omitted from averages"),
        texts=(*kinds, *flags),
    )
    return TrackGroup(
        title=f"{prefix}Steps",
        category="step",
        tracks=tuple(_tracks("steps", track, 0)),
        start_ps=steps.start_ps[order] - origin_ps,
        end_ps=steps.end_ps[order] - origin_ps,
        name=np.arange(len(order), dtype=np.int32),
        names=[f"{kind} {number}" for kind, number in zip(kinds, numbers.tolist(), strict=True)],
        arguments=arguments,
        leaving=no_arrows,
        arriving=no_arrows,
    )


_WAYS = {"to_device": "to the chip", "to_host": "to the host", "on_device": "on the chip", "exchange": "between chips"}


def _copies_group(trace: HostTrace, steps: Steps, selection: Selection, prefix: str) -> TrackGroup | None:
    """Return what chips copy or exchange beside their ops, each from its start to its end, with a track for each chip.

    Both are ops. The profiler's own line of such copies is not on every chip.
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
    kind, count, no_arrows = runs.kind[rows], len(rows), ArrowEnds(NO_NUMBERS, NO_NUMBERS)
    sizes = np.array([bytes_of(each.shape) or 0 for each in runs.kinds], np.int64)[kind]
    waited_ns = (runs.end_ps[rows] - runs.awaited_ps[rows]) // PS_PER_NS
    values = np.stack((kind, sizes, waited_ns), axis=1)
    there = np.ones((count, 3), np.bool_)
    there[:, 1] = sizes > 0
    key = np.tile(np.arange(3, dtype=np.int32), (count, 1))
    origin_ps = _origin_ps(trace)
    return TrackGroup(
        title=f"{prefix}Copies of TPUs",
        category="copy",
        tracks=tuple(tracks),
        start_ps=runs.begun_ps[rows] - origin_ps,
        end_ps=runs.end_ps[rows] - origin_ps,
        name=kind.astype(np.int32),
        names=[f"{each.start} {_WAYS[each.way]}" for each in runs.kinds],
        arguments=EventArguments(
            stop=np.concatenate(([0], np.cumsum(there.sum(axis=1)))),
            key=key[there],
            kind=np.where(key == 0, StatKind.TEXT, StatKind.INT).astype(np.uint8)[there],
            value=values[there],
            keys=("array", "bytes", "waited for (ns)"),
            texts=tuple(each.shape for each in runs.kinds),
        ),
        leaving=no_arrows,
        arriving=no_arrows,
    )


def _memory_counters(trace: HostTrace, steps: Steps, selection: Selection, origin_ps: int) -> tuple[Counter, ...]:
    """Return the bytes that each allocator has in use, wherever it notes them."""
    memory = trace.memory
    names, allocator = trace.allocators
    allocated, reserved = memory.number("bytes_allocated", -1), memory.number("bytes_reserved", 0)
    shown = (allocator >= 0) & (allocated >= 0) & (allocated < _IMPOSSIBLE_BYTES) & (reserved < _IMPOSSIBLE_BYTES)
    if selection.steps is not None:
        shown &= overlaps(union(steps.start_ps, steps.end_ps), memory.start_ps, memory.start_ps)
    counters = []
    for number, name in enumerate(names):
        rows = np.flatnonzero(shown & (allocator == number))
        rows = rows[np.argsort(memory.start_ps[rows], kind="stable")]
        if len(rows):
            time_ps, used = memory.start_ps[rows] - origin_ps, allocated[rows] + np.maximum(reserved[rows], 0)
            counters.append(Counter(f"memory of {name}", time_ps, used))
    return tuple(counters)


def _shown_names(trace: HostTrace) -> tuple[str, ...]:
    """Return the names that viewers show for events, by index of the event's name."""
    return tuple(
        display_name if display_name and (len(name) > _LONG_NAME or not name) else name
        for name, display_name in zip(trace.names, trace.display_names, strict=True)
    )


def _trace_arguments(trace: HostTrace, shown_names: Sequence[str]) -> EventArguments:
    """Return the arguments of all events, in order of rows, of a trace that was read with everything."""
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
    """Return events, keys, kinds and values for all events whose names carry a stat; adds its key and texts."""
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
