"""From a trace file to a HostTrace."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tfperf.errors import TraceFormatError
from tfperf.intervals import Int64s
from tfperf.trace.model import Bools, HostTrace, Line, Plane, PlaneKind, Stat
from tfperf.wire.arrow import Int32s
from tfperf.wire.decode import EventBatch, PlaneHeader, read_events, read_header
from tfperf.wire.source import Source, walk
from tfperf.wire.stats import StatColumn, Wanted

_HOST_PLANES = (
    "/host:CPU", "/host:TPU-runtime", "/host:CUPTI", "/host:python-tracer", "/host:ROCTRACER", "/host:NVTX-CUPTI",
)  # fmt: skip
_DERIVED_BASE, _DERIVED_COUNT = -559038737, 390
_MAX_PS = 1 << 60
"""13 days: no capture is longer, and sums and differences of a few such times still fit into an int64."""

_NUMBERS = {"group_id", "step_num", "correlation_id", "tracing_count", "is_eager", "id", "is_func"}
_LINK_NUMBERS = {"_r", "_pt", "_p", "_ct", "_c", "_a", "iter_num"}
_TEXTS = {
    "tf_function_call", "graph_type", "step_name", "tf_op", "level 0", "memcpy_details", "hlo_op",
    "eager_op", "hlo_category", "shape", "device_type_string", "_ipl_stage_name",
}  # fmt: skip
_TPU_NUMBERS = {"program_id", "symbol_id", "device_offset_ps", "device_duration_ps"}
_TFDATA_NUMBERS = {
    "parent_id", "parallelism", "buffered_elements", "buffer_limit", "batch_size", "cycle_length", "cpu_budget",
    "threadpool_size",
}  # fmt: skip
_TFDATA_TEXTS = {"autotune", "deterministic"}
_ITERATOR = re.compile("Iterator::")
_NAMED_ITERATOR = re.compile("Iterator::(?:[^:]+|.*::Prefetch)$")
_ID_ON = re.compile("Iterator::|FunctionRun$|InstantiatedCapturedFunction|ExecutorState::Process|IteratorGetNext.*::")


def wanted_stats(*, links: bool) -> Wanted:
    """Return the stats to decode; `links` adds those that connect threads, which most events carry."""
    numbers, texts = _NUMBERS | _TPU_NUMBERS | _TFDATA_NUMBERS, frozenset(_TEXTS | _TFDATA_TEXTS | {"name"})
    only_on = {_ITERATOR: frozenset(_TFDATA_NUMBERS | _TFDATA_TEXTS), _NAMED_ITERATOR: frozenset({"name"})}
    if links:
        return Wanted(frozenset(numbers | _LINK_NUMBERS), texts, only_on)
    return Wanted(frozenset(numbers), texts, {**only_on, _ID_ON: frozenset({"id"})})


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
class _Columns:
    """Pieces of the columns while the file is read; batch by batch, joined once."""

    names: list[str] = field(default_factory=list)
    display_names: list[str] = field(default_factory=list)
    name_stats: dict[str, dict[int, int | str]] = field(default_factory=dict)
    name: list[Int32s] = field(default_factory=list)
    begin: list[Int64s] = field(default_factory=list)
    duration: list[Int64s] = field(default_factory=list)
    stats: dict[str, list[Stat]] = field(default_factory=dict)
    lines: list[tuple[int, int, str, int, int]] = field(default_factory=list)
    """(plane, id, name, timestamp_ns, events kept)"""
    count: int = 0
    malformed: int = 0


def read_host(
    path: Path,
    host: str = "",
    *,
    links: bool = False,
    instants: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> HostTrace:
    """Read one trace file. `host` names it; by default it is called what the file says.

    `links` also reads the stats that connect threads, `instants` keeps events without duration; both are needed only to
    reproduce what TensorFlow concluded. Raises TraceNotFoundError and TraceFormatError.
    """
    wanted, columns = wanted_stats(links=links), _Columns()
    planes: list[Plane] = []
    with Source(path) as source:
        space = walk(source)
        for span in space.planes:
            header, span = read_header(source, span, wanted)
            kind, seen = plane_kind(header.name), 0
            name_ids = _add_names(columns, header)
            if kind != "other":
                for batch in read_events(source, span, header, wanted):
                    seen += len(batch.metadata_id)
                    if progress:
                        progress(source.position, source.size)
                    _add_batch(columns, len(planes), name_ids, batch, instants=instants)
            planes.append(Plane(header.id, header.name, kind, header.stats, seen))
        source.check_unchanged()
    if not any(plane.name for plane in planes):
        raise TraceFormatError(f"{path} is no XSpace: none of its {len(planes)} planes has a name; check the file")
    shown = host or next(iter(space.hostnames), "localhost")
    return _join(columns, planes, (path, shown, source.size), (space.errors, space.warnings), instants=instants)


def _add_names(columns: _Columns, header: PlaneHeader) -> tuple[Int64s, Int64s]:
    """Append the plane's event names; return its metadata ids (sorted) and the index of each into `names`."""
    first = len(columns.names)
    columns.names += ["", *header.event_names]
    columns.display_names += ["", *header.event_display_names]
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


def _add_batch(columns: _Columns, plane: int, ids: tuple[Int64s, Int64s], batch: EventBatch, *, instants: bool) -> None:
    duration, offset = batch.duration_ps, batch.offset_ps
    sane = (duration >= 0) & (duration < _MAX_PS) & (offset > -_MAX_PS) & (offset < _MAX_PS)
    keep = sane & ~batch.aggregated
    if not instants:
        keep &= duration > 0
    columns.malformed += len(sane) - int(sane.sum())
    kept_until = np.concatenate(([0], np.cumsum(keep)))
    unknown = len(columns.names) - len(ids[0]) - 1
    columns.name.append(_name_of(ids, batch.metadata_id, unknown)[keep])
    columns.begin.append(offset[keep])
    columns.duration.append(duration[keep])
    _add_lines(columns, plane, batch, kept_until)
    for stat, column in batch.stats.items():
        columns.stats.setdefault(stat, []).append(_kept_stat(column, keep, kept_until, columns.count))
    columns.count += int(kept_until[-1])


def _add_lines(columns: _Columns, plane: int, batch: EventBatch, kept_until: Int64s) -> None:
    counts = np.diff(kept_until[np.concatenate(([0], batch.line_stop)).astype(np.int64)]).tolist()
    for index, (line, count) in enumerate(zip(batch.lines, counts, strict=True)):
        if index == 0 and batch.continued:
            count += columns.lines.pop()[4]
        columns.lines.append((plane, _signed_id(line.id), line.name, line.timestamp_ns, count))


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
    name = np.concatenate(columns.name) if columns.name else np.empty(0, np.int32)
    begin = np.concatenate(columns.begin) if columns.begin else np.empty(0, np.int64)
    duration = np.concatenate(columns.duration) if columns.duration else np.empty(0, np.int64)
    for pieces in (columns.name, columns.begin, columns.duration):
        pieces.clear()  # joined now: keeping both would double the memory
    lines = _place_lines(columns, begin)
    stats = {stat: _join_stats(pieces) for stat, pieces in columns.stats.items()}
    order = _row_order(lines, begin, duration)
    if order is not None:
        name, begin, duration = name[order], begin[order], duration[order]
        stats = {stat: _reorder(values, order) for stat, values in stats.items()}
        lines = _merge_same(lines)
    return HostTrace(
        host=file[1], path=file[0], size_bytes=file[2], planes=tuple(planes), lines=tuple(lines),
        name=name, begin_ps=begin, duration_ps=duration,
        names=tuple(columns.names), display_names=tuple(columns.display_names),
        stats=stats, name_stats=columns.name_stats,
        errors=messages[0], warnings=messages[1], malformed_events=columns.malformed, has_instants=instants,
    )  # fmt: skip


def _place_lines(columns: _Columns, begin: Int64s) -> list[Line]:
    """Give each line its rows, and move its events from the line's own clock to the file's, in place."""
    zero = _clock_zeros({stamp for *_, stamp, count in columns.lines if count})
    lines, start = [], 0
    for plane, line_id, name, stamp, count in columns.lines:
        if count:
            begin[start : start + count] += (stamp - zero[stamp]) * 1000
        lines.append(Line(plane, line_id, name, start, start + count, is_derived(line_id)))
        start += count
    return lines


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
