"""The events and stats of one host as Arrow tables: what the datasets `events` and `stats` hold."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct

from tfperf.base.arrays import Bools, Int64s
from tfperf.export.parquet.columns import ID_STATS, TEXT_STATS
from tfperf.export.query.arrow_columns import by_index, numbers, words
from tfperf.formats.wire.event_columns import NO_STAT, NO_STAT_ROWS, Line, StatKind
from tfperf.trace.device.collectives import step_of
from tfperf.trace.event_names import parse_op
from tfperf.trace.host_trace import HostTrace, Plane
from tfperf.trace.nesting import nest, self_time
from tfperf.trace.steps.steps import Steps

_KINDS = tuple(kind.name.lower() for kind in StatKind)
AT_ONCE = 2
"""Lines that are nested, and parts that are written, at the same time."""
ROWS = 1 << 20
"""Rows of a table at most. It becomes a row group: readers skip one by the least and largest value of a column."""


class NestedTrace(Struct, frozen=True):
    """The events of a host, with the depth and the self time of each on its line."""

    trace: HostTrace
    depth: Int64s
    self_ps: Int64s


def event_parts(nested: NestedTrace, steps: Steps) -> list[Iterator[Any]]:
    """Return the events in parts of about `ROWS` rows: iterators over `pyarrow.Table`s, each of one plane.

    Rows are ordered by plane, line and start. Parts can be made at the same time.
    """
    trace, shared = nested.trace, _shared(nested, steps)
    parts: list[list[tuple[Plane, slice]]] = [[]]
    for plane, rows in _pieces(trace):
        if sum(other.stop - other.start for _, other in parts[-1]) + rows.stop - rows.start > ROWS:
            parts.append([])
        parts[-1].append((plane, rows))
    return [(_event_table(trace, shared, *piece) for piece in part) for part in parts if part]


def _event_table(trace: HostTrace, shared: Mapping[str, Any], plane: Plane, rows: slice) -> Any:
    count, line = rows.stop - rows.start, trace.line_of[rows]
    return pa.table(
        {
            "event": numbers(np.arange(rows.start, rows.stop, dtype=np.int32)),
            "plane": _same(plane.name, count),
            "kind": _same(plane.kind, count),
            "line_id": numbers(shared["line_ids"][line]),
            "line_name": _by_index(line, shared["lines"]),
            "name": _by_index(trace.name[rows], shared["names"]),
            "op_type": _op_types(trace, rows, shared),
            "start_ps": numbers(trace.start_ps[rows]),
            "duration_ps": numbers(trace.duration_ps[rows]),
            "self_ps": numbers(shared["self_ps"][rows]),
            "depth": numbers(shared["depth"][rows].astype(np.int16)),
            "step": numbers(shared["step"][rows], missing=shared["without_step"][rows]),
            **_stat_columns(trace, rows),
        }
    )


def _pieces(trace: HostTrace) -> Iterator[tuple[Plane, slice]]:
    """Yield rows of one plane, `ROWS` at a time; lines of a plane follow each other."""
    lines = [line for line in trace.lines if line.stop > line.start]
    for number, of_plane in groupby(lines, key=lambda line: line.plane):
        whole = list(of_plane)
        for first in range(whole[0].start, whole[-1].stop, ROWS):
            yield trace.planes[number], slice(first, min(first + ROWS, whole[-1].stop))


def stat_tables(trace: HostTrace) -> Iterator[Any]:
    """Yield all stats of all events, a piece at a time; the trace must have been read with everything."""
    stats = trace.every_stat or NO_STAT_ROWS
    for first in range(0, len(stats.event), ROWS):
        rows = slice(first, first + ROWS)
        kind, value = stats.kind[rows], stats.value[rows]
        is_text, is_real = kind == StatKind.TEXT, kind == StatKind.REAL
        is_whole = (kind == StatKind.INT) | (kind == StatKind.UNSIGNED)
        index = np.where(is_text, value, 0)
        unsigned = (kind == StatKind.UNSIGNED) & (value < 0)
        yield pa.table(
            {
                "event": numbers(stats.event[rows]),
                "name": _by_index(stats.key[rows], words(stats.keys or [""])),
                "kind": _by_index(kind, words(_KINDS)),
                "int_value": numbers(value, missing=~is_whole | unsigned),
                "unsigned_value": numbers(value, "uint64", missing=~unsigned),
                "real_value": numbers(value, "float64", missing=~is_real),
                "text_value": by_index(numbers(index.astype(np.int32), missing=~is_text), words(stats.texts or [""])),
            }
        )


def with_nesting(trace: HostTrace) -> NestedTrace:
    """Find the depth and the self time of every event."""
    depth, self_ps, end_ps = np.zeros(len(trace.name), np.int64), trace.duration_ps.copy(), trace.end_ps

    def of_line(line: Line) -> None:
        rows = slice(line.start, line.stop)
        nested = nest(trace.start_ps[rows], end_ps[rows])
        depth[rows], self_ps[rows] = nested.depth, self_time(trace.duration_ps[rows], nested.parent)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        deque(pool.map(of_line, trace.lines), maxlen=0)
    return NestedTrace(trace, depth, self_ps)


def _shared(nested: NestedTrace, steps: Steps) -> dict[str, Any]:
    """Return what all pieces are made of: columns of the whole host, and texts that columns point to, each once."""
    trace = nested.trace
    row = step_of(steps, trace.start_ps)
    types = [op.type if (op := parse_op(name)).kind else None for name in trace.names]
    places = {text: place for place, text in enumerate(dict.fromkeys(filter(None, types)))}
    return {
        "depth": nested.depth,
        "self_ps": nested.self_ps,
        "step": steps.numbers[row] if len(steps) else row,
        "without_step": row < 0,
        "line_ids": np.array([line.id for line in trace.lines], np.int64),
        "lines": words([line.name for line in trace.lines]),
        "names": words(trace.names),
        "op_types": words(list(places) or [""]),
        "op_type_of_name": np.array([-1 if text is None else places[text] for text in types], np.int32),
    }


def _op_types(trace: HostTrace, rows: slice, shared: Mapping[str, Any]) -> Any:
    index = shared["op_type_of_name"][trace.name[rows]]
    return by_index(numbers(np.maximum(index, 0), missing=index < 0), shared["op_types"])


def _stat_columns(trace: HostTrace, rows: slice) -> dict[str, Any]:
    """Return the columns of stats; null where an event has none."""
    columns, count = {}, rows.stop - rows.start
    for name, stat_name in (*ID_STATS.items(), *TEXT_STATS.items()):
        stat = trace.stats.get(stat_name, NO_STAT)
        texts = stat.texts if name in TEXT_STATS else None
        # Numbers of another type would have all events converted.
        ends = np.array((rows.start, rows.stop), stat.event.dtype)
        first, last = np.searchsorted(stat.event, ends).tolist()
        if first == last:
            kind = pa.int64() if texts is None else pa.dictionary(pa.int32(), pa.large_string())
            columns[name] = pa.nulls(count, kind)
            continue
        values, missing = np.zeros(count, np.int64), np.ones(count, np.bool_)
        at = np.subtract(stat.event[first:last], rows.start, dtype=np.intp)
        values[at], missing[at] = stat.value[first:last], False
        columns[name] = _typed(values, missing, texts)
    return columns


def _typed(values: Int64s, missing: Bools, texts: tuple[str, ...] | None) -> Any:
    if texts is None:
        return numbers(values, missing=missing)
    return by_index(numbers(values.astype(np.int32), missing=missing), words(texts or [""]))


def _same(text: str, count: int) -> Any:
    return _by_index(np.zeros(count, np.int32), words([text]))


def _by_index(index: Any, texts: Any) -> Any:
    return by_index(numbers(np.asarray(index, np.int32)), texts)
