"""Arrow tables of HostTraces that share their memory: numbers are not copied, each name is stored once.

Several hosts are chunks of one table. SQL sees a view (`VIEWS`) of a table whose columns are computed (`end_ps`) or
whose 64-bit column holds values of several types.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from tfperf.base.arrays import Bools, Int64s
from tfperf.base.errors import TfperfError
from tfperf.export.query.sql_tables import COMPUTED, SqlTable
from tfperf.formats.wire.event_columns import NO_STAT_ROWS, Line, StatKind, unsigned
from tfperf.report.render.values import encodable
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.known_stats import IDS
from tfperf.trace.nesting import nest, self_time

Columns = dict[str, Any]
_AT_ONCE = 2  # number of lines nested in parallel
MOST_EVENTS = int(np.iinfo(np.int32).max)
_KINDS = tuple(kind.name.lower() for kind in StatKind)

VIEWS: Mapping[str, str] = {
    "events": (
        "SELECT run, event, host, plane, kind, line, line_name, derived, name, display_name, start_ps, duration_ps, "
        f"self_ps, depth, {', '.join(f'{what} AS {name}' for name, what in COMPUTED.items())}"
    ),
    "stats": (
        "SELECT run, event, host, name, kind, "
        f"CASE code WHEN {StatKind.INT} THEN bits::HUGEINT WHEN {StatKind.UNSIGNED} THEN unsigned::HUGEINT END "
        f"AS int_value, CASE code WHEN {StatKind.REAL} THEN real END AS real_value, text AS text_value, "
        f"CASE code WHEN {StatKind.BYTES} THEN bits END AS size_bytes"
    ),
    "plane_stats": "SELECT run, host, plane, name, int_text::HUGEINT AS int_value, real_value, text_value",
    "name_stats": "SELECT run, host, event_name, name, int_text::HUGEINT AS int_value, real_value, text_value",
}


def recorded(name: str, hosts: Sequence[HostTrace], run: str) -> Any:
    """Return a recorded table of a run (one of `sql_tables.RECORDED`) as a `pyarrow.Table`.

    It shares the memory of the traces, which must not change afterwards and must have been read with `everything`.
    Raises TfperfError if there are more events than an int32 can number.
    """
    if sum(len(trace.name) for trace in hosts) > MOST_EVENTS:
        raise TfperfError("too many events for one query: select hosts with --host")
    tables = []
    for columns in _TABLES[name](hosts):
        rows = len(next(iter(columns.values())))
        tables.append(pa.table({"run": by_index(numbers(np.zeros(rows, np.int8)), words([run])), **columns}))
    return pa.concat_tables(tables)


def as_declared(declared: SqlTable, data: Mapping[str, Sequence[Any]]) -> Any:
    """Return columns as a `pyarrow.Table` with the declared types, or inferred ones if they do not fit; NaN is null."""
    kinds = {"BIGINT": pa.int64(), "UBIGINT": pa.uint64(), "DOUBLE": pa.float64(), "BOOLEAN": pa.bool_()}
    columns = {}
    for column in declared.columns:
        values = data[column.name]
        if column.type == "VARCHAR":
            columns[column.name] = words([None if value is None else str(value) for value in values])
        else:
            columns[column.name] = listed(values, kinds[column.type])
    return pa.table(columns)


def _firsts(hosts: Sequence[HostTrace], part: str) -> list[int]:
    """Return the number of the first event or line of each host; numbers continue across hosts."""
    return list(accumulate((len(getattr(trace, part)) for trace in hosts), initial=0))[:-1]


def _events(hosts: Sequence[HostTrace]) -> Iterator[Columns]:
    for trace, first_event, first_line in zip(hosts, _firsts(hosts, "name"), _firsts(hosts, "lines"), strict=True):
        line, name, nested = numbers(trace.line_of), numbers(trace.name), with_nesting(trace)
        shown = [display or full for display, full in zip(trace.display_names, trace.names, strict=True)]
        yield {
            "event": numbers(np.arange(first_event, first_event + len(trace.name), dtype=np.int32)),
            **{key: by_index(line, values) for key, values in _line_columns(trace, first_line).items()},
            "name": by_index(name, words(trace.names)),
            "display_name": by_index(name, words(shown)),
            "start_ps": numbers(trace.start_ps),
            "duration_ps": numbers(trace.duration_ps),
            "self_ps": numbers(nested.self_ps),
            "depth": numbers(nested.depth.astype(np.int32)),
        }


class NestedTrace(Struct, frozen=True):
    """The events of a host, with the depth and the self time of each on its line."""

    trace: HostTrace
    depth: Int64s
    self_ps: Int64s


def with_nesting(trace: HostTrace) -> NestedTrace:
    """Compute the depth and the self time of every event."""
    depth, self_ps, end_ps = np.zeros(len(trace.name), np.int64), trace.duration_ps.copy(), trace.end_ps

    def of_line(line: Line) -> None:
        rows = slice(line.start, line.stop)
        nested = nest(trace.start_ps[rows], end_ps[rows])
        depth[rows], self_ps[rows] = nested.depth, self_time(trace.duration_ps[rows], nested.parent)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        deque(pool.map(of_line, trace.lines), maxlen=0)
    return NestedTrace(trace, depth, self_ps)


def _line_columns(trace: HostTrace, first: int) -> dict[str, Any]:
    """Return the columns that describe lines, with one entry per line."""
    planes = [trace.planes[line.plane] for line in trace.lines]
    return {
        "line": numbers(np.arange(first, first + len(trace.lines), dtype=np.int32)),
        "host": words([trace.host] * len(trace.lines)),
        "plane": words([plane.name for plane in planes]),
        "kind": words([plane.kind for plane in planes]),
        "line_name": words([line.name for line in trace.lines]),
        "derived": listed([line.derived for line in trace.lines], pa.bool_()),
    }


def _lines(hosts: Sequence[HostTrace]) -> Iterator[Columns]:
    for trace, first in zip(hosts, _firsts(hosts, "lines"), strict=True):
        columns = _line_columns(trace, first)
        derived = columns.pop("derived")
        yield {
            **columns,
            "line_id": listed([line.id for line in trace.lines], pa.int64()),
            "derived": derived,
            "events": listed([line.stop - line.start for line in trace.lines], pa.int64()),
        }


def _stats(hosts: Sequence[HostTrace]) -> Iterator[Columns]:
    """Yield the same bits as int64, uint64, float64 and, for texts, as text index."""
    for trace, first_event in zip(hosts, _firsts(hosts, "name"), strict=True):
        rows = trace.every_stat or NO_STAT_ROWS
        event = rows.event + np.int32(first_event) if first_event else rows.event
        code = numbers(rows.kind)
        # A bitmap marks text values; other values are null.
        is_text = pa.py_buffer(np.packbits(rows.kind == StatKind.TEXT, bitorder="little"))
        bits = numbers(rows.value)
        text = pa.Array.from_buffers(bits.type, len(bits), [is_text, bits.buffers()[1]])
        yield {
            "event": numbers(event),
            "host": by_index(numbers(np.zeros(len(event), np.int8)), words([trace.host])),
            "name": by_index(numbers(rows.key), words(rows.keys or [""])),
            "kind": by_index(code, words(_KINDS)),
            "code": code,
            "bits": bits,
            "unsigned": numbers(rows.value, "uint64"),
            "real": numbers(rows.value, "float64"),
            "text": by_index(text, words(rows.texts or [""])),
        }


def _planes(hosts: Sequence[HostTrace]) -> Iterator[Columns]:
    planes = [(trace.host, plane) for trace in hosts for plane in trace.planes]
    yield {
        "host": words([host for host, _ in planes]),
        "plane": words([plane.name for _, plane in planes]),
        "kind": words([plane.kind for _, plane in planes]),
        "plane_id": listed([plane.id for _, plane in planes], pa.int64()),
        "is_device": listed([plane.is_device for _, plane in planes], pa.bool_()),
        "events": listed([plane.event_count for _, plane in planes], pa.int64()),
    }


def _plane_stats(hosts: Sequence[HostTrace]) -> Iterator[Columns]:
    rows = [
        (trace.host, plane.name, stat, value)
        for trace in hosts
        for plane in trace.planes
        for stat, value in plane.stats.items()
    ]
    yield _typed_stats(rows, "plane")


def _name_stats(hosts: Sequence[HostTrace]) -> Iterator[Columns]:
    rows = [
        (trace.host, trace.names[name], stat, unsigned(value) if stat in IDS and isinstance(value, int) else value)
        for trace in hosts
        for stat, values in trace.name_stats.items()
        for name, value in values.items()
    ]
    yield _typed_stats(rows, "event_name")


def _typed_stats(rows: Sequence[tuple[str, str, str, int | float | str]], owner: str) -> Columns:
    """Return one column per type; integers are text, because no Arrow type holds both 2^64 - 1 and negative ones."""
    host, owners, stat, values = list(zip(*rows, strict=True)) or ((),) * 4
    return {
        "host": words(host),
        owner: words(owners),
        "name": words(stat),
        "int_text": words([str(value) if isinstance(value, int) else None for value in values]),
        "real_value": listed([value if isinstance(value, float) else None for value in values], pa.float64()),
        "text_value": words([value if isinstance(value, str) else None for value in values]),
    }


def _hosts(hosts: Sequence[HostTrace]) -> Iterator[Columns]:
    def of_hosts(value: Callable[[HostTrace], int | None]) -> Any:
        return listed([value(trace) for trace in hosts], pa.int64())

    yield {
        "host": words([trace.host for trace in hosts]),
        "path": words([str(trace.path) for trace in hosts]),
        "size_bytes": of_hosts(lambda trace: trace.size_bytes),
        "events": of_hosts(lambda trace: len(trace.name)),
        "malformed_events": of_hosts(lambda trace: trace.malformed_events),
        "aggregated_events": of_hosts(lambda trace: trace.aggregated_events),
        "start_ps": of_hosts(lambda trace: trace.extent_ps[0] if len(trace.name) else None),
        "end_ps": of_hosts(lambda trace: trace.extent_ps[1] if len(trace.name) else None),
        "errors": words(["; ".join(trace.errors) or None for trace in hosts]),
        "warnings": words(["; ".join(trace.warnings) or None for trace in hosts]),
    }


_TABLES: Mapping[str, Callable[[Sequence[HostTrace]], Iterator[Columns]]] = {
    "events": _events,
    "stats": _stats,
    "lines": _lines,
    "planes": _planes,
    "plane_stats": _plane_stats,
    "name_stats": _name_stats,
    "host_files": _hosts,
}


_SAFE = 1 << 53  # below this, float64 represents every integer


def numbers(values: npt.NDArray[Any], type_name: str = "", *, missing: Bools | None = None) -> Any:
    """Return numbers without copying, null if missing; `type_name` reinterprets their bits as that type."""
    kind = pa.type_for_alias(type_name or values.dtype.name)
    return pa.Array.from_buffers(kind, len(values), [_validity(missing), pa.py_buffer(np.ascontiguousarray(values))])


def by_index(index: Any, values: Any) -> Any:
    """Return a dictionary column; the index is not validated because it is generated internally."""
    return pa.DictionaryArray.from_arrays(index, values, safe=False)


def words(texts: Sequence[str | None]) -> Any:
    """Return texts in UTF-8, null for None; unpaired surrogates become U+FFFD."""
    try:
        encoded = [text.encode() if text else b"" for text in texts]
    except UnicodeEncodeError:
        encoded = [encodable(text).encode() if text else b"" for text in texts]
    stops = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([*map(len, encoded)], out=stops[1:])
    missing = np.array([text is None for text in texts], np.bool_)
    buffers = [_validity(missing), pa.py_buffer(stops), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.large_string(), len(encoded), buffers)


def listed(values: Sequence[Any], kind: Any) -> Any:
    """Return Python values as a type, or as their inferred type if they do not fit; None and NaN are null."""
    types = {*map(type, values)} - {type(None)}
    missing = np.array([value is None for value in values], np.bool_)
    known = [0 if value is None else value for value in values]
    if kind == pa.bool_() and types <= {bool}:
        bits = pa.py_buffer(np.packbits(np.array(known, np.bool_), bitorder="little"))
        return pa.Array.from_buffers(kind, len(known), [_validity(missing), bits])
    if kind == pa.int64() and types <= {int} and all(-(1 << 63) <= value < 1 << 63 for value in known):
        return numbers(np.array(known, np.int64), missing=missing)
    if kind == pa.float64() and (types <= {float} or (types <= {float, int} and max(map(abs, known)) < _SAFE)):
        reals = np.array(known, np.float64)
        return numbers(reals, missing=missing | np.isnan(reals))
    try:
        return pa.array(values, kind, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array(values, from_pandas=True)


def _validity(missing: Bools | None) -> Any:
    """Return the bitmap of present values; None if all are present."""
    if missing is None or not missing.any():
        return None
    return pa.py_buffer(np.packbits(~missing, bitorder="little"))
