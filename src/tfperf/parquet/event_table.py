"""The events and stats of one host as Arrow tables: what the datasets `events` and `stats` hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from tfperf.arrays import Bools, Int64s
from tfperf.parquet.columns import ID_STATS, TEXT_STATS
from tfperf.query.recorded import words
from tfperf.trace.collectives import step_of
from tfperf.trace.event_names import parse_op
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.nesting import nest, self_time
from tfperf.trace.steps import Steps
from tfperf.wire.event_columns import NO_STAT_ROWS, StatKind

_KINDS = tuple(kind.name.lower() for kind in StatKind)
_STATS_AT_ONCE = 1 << 20


def event_tables(trace: HostTrace, steps: Steps) -> Iterator[Any]:
    """Yield a `pyarrow.Table` of the events of each plane that has any, ordered by line and start."""
    depth, self_ps = _nesting(trace)
    row = step_of(steps, trace.start_ps)
    step = (steps.numbers[row] if len(steps) else row, row < 0)
    names = _dictionaries(trace)
    lines = [line for line in trace.lines if line.stop > line.start]
    while lines:
        of_plane = [line for line in lines if line.plane == lines[0].plane]
        # Lines of a plane follow each other.
        rows = slice(of_plane[0].start, of_plane[-1].stop)
        lines = lines[len(of_plane) :]
        plane, count, line = trace.planes[of_plane[0].plane], rows.stop - rows.start, trace.line_of[rows]
        yield pa.table(
            {
                "event": pa.array(np.arange(rows.start, rows.stop, dtype=np.int32)),
                "plane": _same(plane.name, count),
                "kind": _same(plane.kind, count),
                "line_id": pa.array(np.array([each.id for each in trace.lines], np.int64)[line]),
                "line_name": _by_index(line, names["lines"]),
                "name": _by_index(trace.name[rows], names["names"]),
                "op_type": _op_types(trace, rows, names),
                "start_ps": pa.array(trace.start_ps[rows]),
                "duration_ps": pa.array(trace.duration_ps[rows]),
                "self_ps": pa.array(self_ps[rows]),
                "depth": pa.array(depth[rows].astype(np.int16)),
                "step": pa.array(step[0][rows], mask=step[1][rows]),
                **_stat_columns(trace, rows),
            }
        )


def stat_tables(trace: HostTrace) -> Iterator[Any]:
    """Yield all stats of all events, a piece at a time; the trace must have been read with everything."""
    stats = trace.every_stat or NO_STAT_ROWS
    for first in range(0, len(stats.event), _STATS_AT_ONCE):
        rows = slice(first, first + _STATS_AT_ONCE)
        kind, value = stats.kind[rows], stats.value[rows]
        is_text, is_real = kind == StatKind.TEXT, kind == StatKind.REAL
        is_whole = (kind == StatKind.INT) | (kind == StatKind.UNSIGNED)
        index = np.where(is_text, value, 0)
        unsigned = (kind == StatKind.UNSIGNED) & (value < 0)
        yield pa.table(
            {
                "event": pa.array(stats.event[rows]),
                "name": _by_index(stats.key[rows], words(stats.keys or [""])),
                "kind": _by_index(kind, words(_KINDS)),
                "int_value": pa.array(value, mask=~is_whole | unsigned),
                "unsigned_value": pa.array(value.view(np.uint64), mask=~unsigned),
                "real_value": pa.array(value.view(np.float64), mask=~is_real),
                "text_value": pa.DictionaryArray.from_arrays(
                    pa.array(index.astype(np.int32), mask=~is_text), words(stats.texts or [""])
                ),
            }
        )


def _nesting(trace: HostTrace) -> tuple[Int64s, Int64s]:
    """Return the depth and the self time of every event, on its line."""
    depth, self_ps = np.zeros(len(trace.name), np.int64), trace.duration_ps.copy()
    for line in trace.lines:
        rows = slice(line.start, line.stop)
        nested = nest(trace.start_ps[rows], trace.end_ps[rows])
        depth[rows], self_ps[rows] = nested.depth, self_time(trace.duration_ps[rows], nested.parent)
    return depth, self_ps


def _dictionaries(trace: HostTrace) -> dict[str, Any]:
    """Return the texts that columns of events point to, each once."""
    types = [op.type if (op := parse_op(name)).kind else None for name in trace.names]
    places = {text: place for place, text in enumerate(dict.fromkeys(filter(None, types)))}
    return {
        "lines": words([line.name for line in trace.lines]),
        "names": words(trace.names),
        "op_types": words(list(places) or [""]),
        "op_type_of_name": np.array([-1 if text is None else places[text] for text in types], np.int32),
    }


def _op_types(trace: HostTrace, rows: slice, names: Mapping[str, Any]) -> Any:
    index = names["op_type_of_name"][trace.name[rows]]
    return pa.DictionaryArray.from_arrays(pa.array(index, mask=index < 0), names["op_types"])


def _stat_columns(trace: HostTrace, rows: slice) -> dict[str, Any]:
    """Return the columns of stats; null where an event has none."""
    columns = {}
    for name, stat_name in (*ID_STATS.items(), *TEXT_STATS.items()):
        stat = trace.stats.get(stat_name)
        values, missing = np.zeros(rows.stop - rows.start, np.int64), np.ones(rows.stop - rows.start, np.bool_)
        texts: tuple[str, ...] = ()
        if stat is not None:
            first, last = np.searchsorted(stat.event, (rows.start, rows.stop)).tolist()
            at = stat.event[first:last] - rows.start
            values[at], missing[at], texts = stat.value[first:last], False, stat.texts
        columns[name] = _typed(values, missing, texts if name in TEXT_STATS else None)
    return columns


def _typed(values: Int64s, missing: Bools, texts: tuple[str, ...] | None) -> Any:
    if texts is None:
        return pa.array(values, mask=missing)
    return pa.DictionaryArray.from_arrays(pa.array(values.astype(np.int32), mask=missing), words(texts or [""]))


def _same(text: str, count: int) -> Any:
    return _by_index(np.zeros(count, np.int32), words([text]))


def _by_index(index: Any, texts: Any) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(np.asarray(index, np.int32)), texts)
