"""From a trace file to a HostTrace."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from tfperf.arrays import Bools, Int32s, Int64s
from tfperf.errors import TraceFormatError
from tfperf.trace.event_names import is_memory, mask
from tfperf.trace.host_trace import HostTrace, Line, MemoryEvents, Plane, PlaneKind
from tfperf.trace.stat_names import ON_NAMES, wanted_stats
from tfperf.wire.hlo import PLANE as HLO_PLANE
from tfperf.wire.hlo import read_programs
from tfperf.wire.planes import EventBatch, PlaneHeader, read_events, read_header
from tfperf.wire.stats import EveryStat, Stat, StatColumn, StatKind, StatRows
from tfperf.wire.trace_file import TraceFile, walk

_HOST_PLANES = (
    "/host:CPU", "/host:TPU-runtime", "/host:CUPTI", "/host:python-tracer", "/host:ROCTRACER", "/host:NVTX-CUPTI",
)  # fmt: skip
_DERIVED_BASE, _DERIVED_COUNT = -559038737, 390
_MAX_PS = 1 << 60
"""13 days: no capture is longer, and sums and differences of a few such times still fit into an int64."""


def plane_kind(name: str) -> PlaneKind:
    """Tell what a plane stands for, by its name."""
    if name.startswith(_HOST_PLANES):
        return "host"
    if name.startswith("/device:GPU:"):
        return "gpu"
    if re.fullmatch(r"/device:TPU:\d+( \[\d+\])?", name):
        return "tpu"
    return "sparse core" if re.match(r"/device:TPU:\d+ SparseCore", name) else "other"


@dataclass
class _Events:
    """Pieces of the columns of some events while the file is read; batch by batch, joined once."""

    name: list[Int32s] = field(default_factory=list)
    begin: list[Int64s] = field(default_factory=list)
    duration: list[Int64s] = field(default_factory=list)
    stats: dict[str, list[Stat]] = field(default_factory=dict)
    every: list[StatRows] = field(default_factory=list)
    count: int = 0


@dataclass
class _Columns:
    """What is collected while the file is read."""

    names: list[str] = field(default_factory=list)
    display_names: list[str] = field(default_factory=list)
    name_stats: dict[str, dict[int, int | str]] = field(default_factory=dict)
    events: _Events = field(default_factory=_Events)
    memory: _Events = field(default_factory=_Events)
    """Allocations and deallocations; they have no duration, and so are not among `events`."""
    lines: list[tuple[int, int, str, int, int, int]] = field(default_factory=list)
    """(plane, id, name, timestamp_ns, events kept, memory events kept)"""
    stat_keys: dict[str, int] = field(default_factory=dict)
    notes_memory: Bools = field(default_factory=lambda: np.empty(0, np.bool_))
    """For each name, whether it notes an allocation."""
    malformed: int = 0
    aggregated: int = 0


def read_host(
    path: Path,
    host: str = "",
    *,
    links: bool = False,
    instants: bool = False,
    everything: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> HostTrace:
    """Read one trace file. `host` names it; by default it is called what the file says.

    `links` also reads the stats that connect threads, `instants` keeps events without duration; both are needed only to
    reproduce what TensorFlow concluded. `everything` does both, keeps all stats, and planes that no analyzer knows.
    Raises TraceNotFoundError and TraceFormatError.
    """
    columns, instants, links = _Columns(), instants or everything, links or everything
    planes: list[Plane] = []
    programs: dict[int, bytes] = {}
    with TraceFile(path) as source:
        space = walk(source)
        for span in space.planes:
            header, span = read_header(source, span, ON_NAMES)
            kind, seen = plane_kind(header.name), 0
            name_ids = _add_names(columns, header)
            if header.name == HLO_PLANE:
                programs |= read_programs(source, span)
            if kind != "other" or everything:
                for batch in read_events(source, span, header, wanted_stats(kind, links=links, every=everything)):
                    seen += len(batch.metadata_id)
                    if progress:
                        progress(source.position, source.size)
                    _add_batch(columns, len(planes), name_ids, batch, header.stat_names, instants=instants)
            planes.append(Plane(header.id, header.name, kind, header.stats, seen))
        source.check_unchanged()
    if not any(plane.name for plane in planes):
        raise TraceFormatError(f"{path} is no XSpace: none of its {len(planes)} planes has a name; check the file")
    shown = host or next(iter(space.hostnames), "localhost")
    trace = _join(columns, planes, (path, shown, source.size), (space.errors, space.warnings), instants=instants)
    return replace(trace, hlo_protos=programs)


def _add_names(columns: _Columns, header: PlaneHeader) -> tuple[Int64s, Int64s]:
    """Append the plane's event names; return its metadata ids (sorted) and the index of each into `names`."""
    first = len(columns.names)
    columns.names += ["", *header.event_names]
    columns.display_names += ["", *header.event_display_names]
    columns.notes_memory = np.concatenate((columns.notes_memory, mask(columns.names[first:], is_memory)))
    for stat, values in header.event_stats.items():
        known = columns.name_stats.setdefault(stat, {})
        known.update({first + 1 + position: value for position, value in values.items()})
    order = np.argsort(header.event_ids, kind="stable")
    return header.event_ids[order], order + first + 1


def _name_of(ids: tuple[Int64s, Int64s], metadata_id: Int64s, unknown: int) -> Int32s:
    """Map metadata ids of a plane to indices into `names`; an id without metadata gets the empty name."""
    keys, indices = ids
    if not len(keys):
        return np.full(len(metadata_id), unknown, np.int32)
    if keys[0] >= 0 and keys[-1] < 1024 + 4 * max(len(keys), len(metadata_id)):
        table = np.full(int(keys[-1]) + 2, unknown, np.int32)
        table[keys] = indices
        return np.asarray(table[np.where((metadata_id >= 0) & (metadata_id <= keys[-1]), metadata_id, keys[-1] + 1)])
    place = np.minimum(np.searchsorted(keys, metadata_id, side="right") - 1, len(keys) - 1)
    found = keys[np.maximum(place, 0)] == metadata_id
    return np.where(found, indices[np.maximum(place, 0)], unknown).astype(np.int32)


def _add_batch(
    columns: _Columns, plane: int, ids: tuple[Int64s, Int64s], batch: EventBatch, stat_names: dict[int, str],
    *, instants: bool,
) -> None:  # fmt: skip
    duration, offset = batch.duration_ps, batch.offset_ps
    sane = (duration >= 0) & (duration < _MAX_PS) & (offset > -_MAX_PS) & (offset < _MAX_PS)
    keep = sane & ~batch.aggregated
    columns.malformed += len(sane) - int(sane.sum())
    columns.aggregated += int((sane & batch.aggregated).sum())
    name = _name_of(ids, batch.metadata_id, len(columns.names) - len(ids[0]) - 1)
    notes_memory = keep & columns.notes_memory[name]
    if not instants:
        keep &= duration > 0
    kept_until, noted_until = (np.concatenate(([0], np.cumsum(mask))) for mask in (keep, notes_memory))
    _add_lines(columns, plane, batch, kept_until, noted_until)
    _add_events(columns.events, columns, batch, name, keep, kept_until, stat_names)
    if noted_until[-1]:
        _add_events(columns.memory, columns, replace(batch, every=None), name, notes_memory, noted_until, stat_names)


def _add_events(
    events: _Events, columns: _Columns, batch: EventBatch, name: Int32s, keep: Bools, kept_until: Int64s,
    stat_names: dict[int, str],
) -> None:  # fmt: skip
    events.name.append(name[keep])
    events.begin.append(batch.offset_ps[keep])
    events.duration.append(batch.duration_ps[keep])
    for stat, column in batch.stats.items():
        events.stats.setdefault(stat, []).append(_kept_stat(column, keep, kept_until, events.count))
    if batch.every is not None:
        events.every.append(_kept_rows(batch.every, columns.stat_keys, stat_names, keep, kept_until, events.count))
    events.count += int(kept_until[-1])


def _kept_rows(
    every: EveryStat, keys: dict[str, int], stat_names: dict[int, str], keep: Bools, kept_until: Int64s, first: int
) -> StatRows:
    mine = np.flatnonzero(keep[every.event])
    ids, which = np.unique(every.key[mine], return_inverse=True)
    known = [keys.setdefault(stat_names.get(key, ""), len(keys)) for key in ids.tolist()]
    key = np.array(known, np.int32)[which.reshape(-1)]
    event = (kept_until[every.event[mine]] + first).astype(np.int32)
    return StatRows(event, key, every.kind[mine], every.value[mine], (), tuple(every.texts))


def _add_lines(columns: _Columns, plane: int, batch: EventBatch, kept_until: Int64s, noted_until: Int64s) -> None:
    ends = np.concatenate(([0], batch.line_stop)).astype(np.int64)
    counts, noted = np.diff(kept_until[ends]).tolist(), np.diff(noted_until[ends]).tolist()
    for index, line in enumerate(batch.lines):
        count, more = counts[index], noted[index]
        if index == 0 and batch.continued:
            before = columns.lines.pop()
            count, more = count + before[4], more + before[5]
        columns.lines.append((plane, _signed_id(line.id), line.name, line.timestamp_ns, count, more))


def _signed_id(line_id: int) -> int:
    """Return the id as writers mean it: derived lines come as int32 or as its unsigned form."""
    return line_id - (1 << 32) if (1 << 31) <= line_id < (1 << 32) and is_derived(line_id - (1 << 32)) else line_id


def is_derived(line_id: int) -> bool:
    """Tell whether a line id lies in the range that the profiler reserves for computed lines."""
    return _DERIVED_BASE <= line_id < _DERIVED_BASE + _DERIVED_COUNT


def _kept_stat(column: StatColumn, keep: Bools, kept_until: Int64s, first: int) -> Stat:
    mine = np.flatnonzero(keep[column.event])
    event = (kept_until[column.event[mine]] + first).astype(np.int32)
    return Stat(event, column.value[mine], tuple(column.texts or ()))


def _join(
    columns: _Columns,
    planes: list[Plane],
    file: tuple[Path, str, int],
    messages: tuple[tuple[str, ...], tuple[str, ...]],
    *,
    instants: bool,
) -> HostTrace:
    name, begin, duration = _joined(columns.events)
    lines, zero = _place_lines(columns, begin)
    stats = {stat: _join_stats(pieces) for stat, pieces in columns.events.stats.items()}
    every = _join_rows(columns.events.every, columns.stat_keys)
    order = _row_order(lines, begin, duration)
    if order is not None:
        name, begin, duration = name[order], begin[order], duration[order]
        stats = {stat: _reorder(values, order) for stat, values in stats.items()}
        every = every and _reorder_rows(every, order)
        lines = _merge_same(lines)
    return HostTrace(
        host=file[1], path=file[0], size_bytes=file[2], planes=tuple(planes), lines=tuple(lines),
        name=name, start_ps=begin, duration_ps=duration,
        names=tuple(columns.names), display_names=tuple(columns.display_names),
        stats=stats, name_stats=columns.name_stats,
        errors=messages[0], warnings=messages[1], malformed_events=columns.malformed, has_instants=instants,
        memory=_memory(columns, zero), every_stat=every, aggregated_events=columns.aggregated,
    )  # fmt: skip


def _joined(events: _Events) -> tuple[Int32s, Int64s, Int64s]:
    """Return name, begin and duration in one piece each."""
    if not events.name:
        return np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64)
    joined = np.concatenate(events.name), np.concatenate(events.begin), np.concatenate(events.duration)
    for pieces in (events.name, events.begin, events.duration):
        pieces.clear()  # joined now: keeping both would double the memory
    return joined


def _memory(columns: _Columns, zero: dict[int, int]) -> MemoryEvents:
    """Return the allocations and deallocations, on the same clock as all events."""
    name, begin, _ = _joined(columns.memory)
    noting = [(stamp, count) for *_, stamp, _, count in columns.lines if count]
    shifts = np.array([(stamp - zero[stamp]) * 1000 for stamp, _ in noting], np.int64)
    begin = begin + np.repeat(shifts, [count for _, count in noting])
    allocates = np.array([own == "MemoryAllocation" for own in columns.names], np.bool_)[name]
    return MemoryEvents(begin, allocates, {stat: _join_stats(pieces) for stat, pieces in columns.memory.stats.items()})


def _place_lines(columns: _Columns, begin: Int64s) -> tuple[list[Line], dict[int, int]]:
    """Give each line its rows, and move its events from the line's own clock to the file's, in place.

    Return also where the file's clock stands at 0 for each timestamp of a line.
    """
    zero = _clock_zeros({line[3] for line in columns.lines if line[4] or line[5]})
    lines, start = [], 0
    for plane, line_id, name, stamp, count, _ in columns.lines:
        if count:
            begin[start : start + count] += (stamp - zero[stamp]) * 1000
        lines.append(Line(plane, line_id, name, start, start + count, is_derived(line_id)))
        start += count
    return lines, zero


def _clock_zeros(stamps: set[int]) -> dict[int, int]:
    """Return for each timestamp (ns) of a line what to count it from, so that picoseconds fit into an int64.

    That is 0, or for a clock that counts from 1970 its earliest line. Lines further apart than any capture lasts are on
    different clocks; each of these counts from its own earliest line.
    """
    most = _MAX_PS // 1000
    zero = 0 if all(abs(stamp) < most for stamp in stamps) else min(stamps)
    zeros = {}
    for stamp in sorted(stamps):
        zero = stamp if stamp - zero >= most else zero
        zeros[stamp] = zero
    return zeros


def _join_stats(pieces: list[Stat]) -> Stat:
    """Join the pieces of a stat; texts become one list of distinct ones."""
    event = np.concatenate([piece.event for piece in pieces])
    if not any(piece.texts for piece in pieces):
        return Stat(event, np.concatenate([piece.value for piece in pieces]))
    known: dict[str, int] = {}
    value = [
        np.array([known.setdefault(text, len(known)) for text in piece.texts], np.int64)[piece.value]
        for piece in pieces
    ]
    return Stat(event, np.concatenate(value), tuple(known))


def _join_rows(pieces: list[StatRows], keys: dict[str, int]) -> StatRows | None:
    """Join the pieces of all stats; texts become one list of distinct ones."""
    if not pieces:
        return None
    known: dict[str, int] = {}
    values = []
    for piece in pieces:
        index = np.array([known.setdefault(text, len(known)) for text in piece.texts], np.int64)
        value, is_text = piece.value, piece.kind == StatKind.TEXT
        value[is_text] = index[value[is_text]] if len(index) else 0
        values.append(value)
    return StatRows(
        np.concatenate([piece.event for piece in pieces]), np.concatenate([piece.key for piece in pieces]),
        np.concatenate([piece.kind for piece in pieces]), np.concatenate(values), tuple(keys), tuple(known),
    )  # fmt: skip


def _reorder_rows(rows: StatRows, order: Int64s) -> StatRows:
    row = np.empty(len(order), np.int32)
    row[order] = np.arange(len(order), dtype=np.int32)
    event = row[rows.event]
    by_row = np.argsort(event, kind="stable")
    return replace(rows, event=event[by_row], key=rows.key[by_row], kind=rows.kind[by_row], value=rows.value[by_row])


def _row_order(lines: list[Line], begin: Int64s, duration: Int64s) -> Int64s | None:
    """Return the row order that the model promises, or None if the file has it already."""
    same = len({(line.plane, line.id) for line in lines}) < len(lines)
    if not same and all(_is_sorted(begin[line.start : line.stop], duration[line.start : line.stop]) for line in lines):
        return None
    first_of: dict[tuple[int, int], int] = {}
    rank = [first_of.setdefault((line.plane, line.id), index) for index, line in enumerate(lines)]
    of_line = np.repeat(np.array(rank, np.int64), [line.stop - line.start for line in lines])
    return np.lexsort((-duration, begin, of_line))


def _is_sorted(begin: Int64s, duration: Int64s) -> bool:
    step = begin[1:] - begin[:-1]
    return bool(((step > 0) | ((step == 0) & (duration[1:] <= duration[:-1]))).all())


def _reorder(stat: Stat, order: Int64s) -> Stat:
    row = np.empty(len(order), np.int32)
    row[order] = np.arange(len(order), dtype=np.int32)
    event = row[stat.event]
    by_row = np.argsort(event, kind="stable")
    return Stat(event[by_row], stat.value[by_row], stat.texts)


def _merge_same(lines: list[Line]) -> list[Line]:
    """Merge lines with the same id on a plane, which are one timeline; their rows are neighbours by now."""
    counts: dict[tuple[int, int], list[Line]] = {}
    for line in lines:
        counts.setdefault((line.plane, line.id), []).append(line)
    merged, start = [], 0
    for group in counts.values():
        stop = start + sum(line.stop - line.start for line in group)
        first = group[0]
        merged.append(Line(first.plane, first.id, first.name, start, stop, first.derived))
        start = stop
    return merged
