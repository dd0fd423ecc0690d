"""A profile as a dataset of Parquet files, for DuckDB, dask, Spark and others."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from tfperf.analysis.load import Analysis, load
from tfperf.base.errors import OutputError
from tfperf.base.files import cannot_write, new_folder, replace_file
from tfperf.export.query.arrow_tables import NestedTrace, by_index, listed, numbers, with_nesting, words
from tfperf.export.query.sources import BY_HOST, FORMAT, MARKER, check_format, is_dataset, partition
from tfperf.export.query.sql_tables import ID_STATS, TEXT_STATS
from tfperf.formats.wire.event_columns import NO_STAT, NO_STAT_ROWS, StatKind
from tfperf.trace.event_names import parse_op
from tfperf.trace.host_trace import HostTrace, Plane
from tfperf.trace.logdir import HostFile
from tfperf.trace.read import AlsoRead
from tfperf.trace.steps.step_range import cut_trace
from tfperf.trace.steps.steps import Steps

_DELTA = ("event", "start_ps", "producer_id", "consumer_id")
"""Mostly increasing columns; delta encoding makes them a fifth smaller."""


class WrittenDataset(Struct, frozen=True):
    """The result of `write_parquet`."""

    folder: Path
    run: str
    tables: tuple[str, ...]
    events: int
    size_bytes: int


def write_parquet(
    path: str | Path | Analysis, folder: str | Path, *, all_stats: bool = False, force: bool = False, **options: Any
) -> WrittenDataset:
    """Write all events and tables of a profile as Parquet files into the dataset `folder`, created if missing.

    `path` is a logdir, a run folder, a `*.xplane.pb` file or a result of `tfperf.load`; `options` are those of
    `tfperf.load`. The run is added to the dataset; an existing one is replaced only with `force`. `all_stats` adds the
    table `stats`. Raises OutputError, TraceNotFoundError and TraceFormatError.
    """
    if isinstance(path, Analysis):
        check_dataset(Path(folder))
        return _write_dataset(path, Path(folder), ReadAhead(_reader(all_stats=all_stats)), all_stats, force)
    return write_loaded(folder, partial(load, path, **options), all_stats=all_stats, force=force)


def write_loaded(
    folder: str | Path, load_it: Callable[..., Analysis], *, all_stats: bool = False, force: bool = False
) -> WrittenDataset:
    """Run `write_parquet` on a profile that `load_it` loads: `tfperf.load` with options."""
    from tfperf.export.query.sql_tables import STATS

    target, read = Path(folder), _reader(all_stats=all_stats)
    check_dataset(target)
    with reading_ahead(read, None if all_stats else STATS) as (ahead, begin):
        return _write_dataset(load_it(beside=begin), target, ahead, all_stats, force)


def _reader(*, all_stats: bool) -> Read:
    """Return the reader of a host's events, with all columns that are written."""
    from tfperf.export.query.sql_tables import STATS
    from tfperf.trace.read import read_host

    everything: dict[str, Any] = {"everything": True} if all_stats else {"stats": STATS, "instants": True}

    def read(file: HostFile, **more: Any) -> NestedTrace:
        return with_nesting(read_host(file.path, file.host, **everything, **more))

    return read


def _write_dataset(analysis: Analysis, target: Path, ahead: ReadAhead, all_stats: bool, force: bool) -> WrittenDataset:
    name = analysis.run.name
    place = target / partition("run", name)
    with new_folder(place, force=force) as made:
        if place.exists() and not force:
            raise OutputError(f"the dataset {target} already has the run {name}; pass --force to replace it")
        with ThreadPoolExecutor(1) as pool:
            of_report = pool.submit(_write_tables, analysis, made)
            events = _write_hosts(analysis, made, ahead, all_stats=all_stats)
            # Inside the block, which waits for the thread even if a signal arrives.
            tables = (*of_report.result(), "host_files", *BY_HOST[: 1 + all_stats])
        size = sum(file.stat().st_size for file in made.rglob("*.parquet"))
        if not is_dataset(target):
            replace_file(target / MARKER, json.dumps({"format": FORMAT}).encode() + b"\n")
    return WrittenDataset(target, name, tables, events, size)


def check_dataset(target: Path) -> None:
    """Raise OutputError for a folder with other content, which would mix with the dataset."""
    try:
        if is_dataset(target):
            check_format(target)
        elif target.exists() and not (
            target.is_dir() and all(path.name.startswith(".tfperf") for path in target.iterdir())
        ):
            raise OutputError(f"{target} exists, but is not a tfperf dataset; choose a new folder")
    except OSError as error:
        raise cannot_write(target, error) from error


def _write_tables(analysis: Analysis, made: Path) -> tuple[str, ...]:
    """Write every table that the profile has, as in reports."""
    from tfperf.analysis.registry import find_table
    from tfperf.export.query.arrow_tables import as_declared
    from tfperf.export.query.sql_tables import analyzed_tables

    written = []
    for name, declared in analyzed_tables().items():
        section, spec = find_table(name)
        if name != spec.name or section not in analysis.sections:
            continue
        data = analysis.table(name)
        if data is not None:
            _write([[as_declared(declared, data)]], made / name)
            written.append(name)
    return tuple(written)


def _write_hosts(analysis: Analysis, made: Path, ahead: ReadAhead, *, all_stats: bool) -> int:
    """Write the events of each host in turn, and the list of hosts; return the number of events."""
    import pyarrow as pa

    from tfperf.export.query.arrow_tables import listed, words
    from tfperf.export.query.sql_tables import HOST_FILES

    rows: list[dict[str, Any]] = []
    work = {each.host: each for each in analysis["hosts"].hosts} if "hosts" in analysis.sections else {}
    for file, results in zip(analysis.run.files, analysis.hosts, strict=True):
        nested = ahead.of(file)
        if results.part is not None:
            nested = with_nesting(cut_trace(nested.trace, results.part))
        trace = nested.trace
        of_host = made / partition("host", file.host)
        of_host.mkdir()
        _write(event_parts(nested, results["steps"].steps), of_host / "events")
        if all_stats:
            _write([stat_tables(trace)], of_host / "stats")
        row = work.get(file.host)
        start_ps, end_ps = trace.extent_ps if len(trace.name) else (None, None)
        rows.append(
            {
                "host": file.host,
                "role": row.task.role or None if row else None,
                "path": str(file.path),
                "size_bytes": trace.size_bytes,
                "events": len(trace.name),
                "clock_start_ns": trace.clock_start_ns,
                "clock_ahead_ns": row.clock.ahead_ns if row and row.clock else None,
                "start_ps": start_ps,
                "end_ps": end_ps,
            }
        )
    table = {}
    for column in HOST_FILES.columns[1:]:
        values = [row[column.name] for row in rows]
        table[column.name] = words(values) if column.type == "VARCHAR" else listed(values, pa.int64())
    _write([[pa.table(table)]], made / "host_files")
    return sum(row["events"] for row in rows)


def _write(parts: Sequence[Iterable[Any]], folder: Path) -> None:
    """Write each part to a file, two at a time: tables of one schema, each a row group."""

    folder.mkdir()
    paths = (folder / f"part-{number}.parquet" for number in range(len(parts)))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        deque(pool.map(_write_part, parts, paths), maxlen=0)


def _write_part(tables: Iterable[Any], path: Path) -> None:
    writer = None
    try:
        for table in tables:
            if writer is None:
                schema = table.schema
                whole = {field.name for field in schema if pa.types.is_integer(field.type)}
                deltas = {name: "DELTA_BINARY_PACKED" for name in _DELTA if name in whole}
                others = [name for name in schema.names if name not in deltas]
                encoded = {"use_dictionary": others, "column_encoding": deltas or None}
                writer = pq.ParquetWriter(path, schema, compression="zstd", **encoded)
            writer.write_table(table, row_group_size=max(len(table), 1))
    finally:
        if writer is not None:
            writer.close()


_KINDS = tuple(kind.name.lower() for kind in StatKind)
AT_ONCE = 2  # lines nested, and parts written, in parallel
ROWS = 1 << 20
"""Maximum rows per table. Each becomes a row group, which readers skip by a column's minimum and maximum."""


def event_parts(nested: NestedTrace, steps: Steps) -> list[Iterator[Any]]:
    """Return the events in parts of about `ROWS` rows: iterators over `pyarrow.Table`s, each of one plane.

    Rows are ordered by plane, line and start. Parts can be built in parallel.
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
    index = shared["op_type_of_name"][trace.name[rows]]
    return pa.table(
        {
            "event": numbers(np.arange(rows.start, rows.stop, dtype=np.int32)),
            "plane": _same(plane.name, count),
            "kind": _same(plane.kind, count),
            "line_id": numbers(shared["line_ids"][line]),
            "line_name": _by_index(line, shared["lines"]),
            "derived": shared["derived"].take(numbers(np.asarray(line, np.int32))),
            "name": _by_index(trace.name[rows], shared["names"]),
            "op_type": by_index(numbers(np.maximum(index, 0), missing=index < 0), shared["op_types"]),
            "start_ps": numbers(trace.start_ps[rows]),
            "duration_ps": numbers(trace.duration_ps[rows]),
            "self_ps": numbers(shared["self_ps"][rows]),
            "depth": numbers(shared["depth"][rows].astype(np.int16)),
            "step": numbers(shared["step"][rows], missing=shared["without_step"][rows]),
            **_stat_columns(trace, rows),
        }
    )


def _pieces(trace: HostTrace) -> Iterator[tuple[Plane, slice]]:
    """Yield up to `ROWS` rows of one plane at a time; the lines of a plane are contiguous."""
    lines = [line for line in trace.lines if line.stop > line.start]
    for number, of_plane in groupby(lines, key=lambda line: line.plane):
        whole = list(of_plane)
        for first in range(whole[0].start, whole[-1].stop, ROWS):
            yield trace.planes[number], slice(first, min(first + ROWS, whole[-1].stop))


def stat_tables(trace: HostTrace) -> Iterator[Any]:
    """Yield all stats of all events in pieces; the trace must have been read with everything."""
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
                "size_bytes": numbers(value, missing=kind != StatKind.BYTES),
            }
        )


def _shared(nested: NestedTrace, steps: Steps) -> dict[str, Any]:
    """Return the data shared by all pieces: columns of the whole host, and unique texts that columns refer to."""
    trace = nested.trace
    row = steps.at(trace.start_ps)
    types = [op.type if (op := parse_op(name)).kind else None for name in trace.names]
    places = {text: place for place, text in enumerate(dict.fromkeys(filter(None, types)))}
    return {
        "depth": nested.depth,
        "self_ps": nested.self_ps,
        "step": steps.numbers[row] if len(steps) else row,
        "without_step": row < 0,
        "line_ids": np.array([line.id for line in trace.lines], np.int64),
        "derived": listed([line.derived for line in trace.lines], pa.bool_()),
        "lines": words([line.name for line in trace.lines]),
        "names": words(trace.names),
        "op_types": words(list(places) or [""]),
        "op_type_of_name": np.array([-1 if text is None else places[text] for text in types], np.int32),
    }


def _stat_columns(trace: HostTrace, rows: slice) -> dict[str, Any]:
    """Return the columns of stats, null for events without the stat."""
    columns, count = {}, rows.stop - rows.start
    for name, stat_name in (*ID_STATS.items(), *TEXT_STATS.items()):
        stat = trace.stats.get(stat_name, NO_STAT)
        texts = stat.texts if name in TEXT_STATS else None
        # A number of another type would convert the whole array.
        ends = np.array((rows.start, rows.stop), stat.event.dtype)
        first, last = np.searchsorted(stat.event, ends).tolist()
        if first == last:
            kind = pa.int64() if texts is None else pa.dictionary(pa.int32(), pa.large_string())
            columns[name] = pa.nulls(count, kind)
            continue
        values, missing = np.zeros(count, np.int64), np.ones(count, np.bool_)
        at = np.subtract(stat.event[first:last], rows.start, dtype=np.intp)
        values[at], missing[at] = stat.value[first:last], False
        if texts is None:
            columns[name] = numbers(values, missing=missing)
        else:
            columns[name] = by_index(numbers(values.astype(np.int32), missing=missing), words(texts or [""]))
    return columns


def _same(text: str, count: int) -> Any:
    return _by_index(np.zeros(count, np.int32), words([text]))


def _by_index(index: Any, texts: Any) -> Any:
    return by_index(numbers(np.asarray(index, np.int32)), texts)


_LARGEST_BYTES = 1 << 28
Read = Callable[..., "NestedTrace"]
"""Called with a `HostFile`, and optionally `progress`."""
Begin = Callable[["HostFile"], AlsoRead | None]
"""Called with the file of a single host before it is read; returns additional readers."""


class _Ended(Exception):  # noqa: N818  (not an error, but the end of a thread)
    """Raised in the thread to stop it when its result is no longer needed."""


class ReadAhead(Struct):
    """Data that is read ahead, if any; `read` reads the rest."""

    read: Read
    path: Any = None
    events: Future[NestedTrace] | None = None

    def of(self, file: HostFile) -> NestedTrace:
        """Return the events of a host. Raises TraceFormatError."""
        if self.events is not None and file.path == self.path:
            return self.events.result()
        return self.read(file)


@contextmanager
def reading_ahead(read: Read, stats: frozenset[str] | None) -> Iterator[tuple[ReadAhead, Begin]]:
    """Yield the callback for `tfperf.load`, so that a single host is read once, with these stats (None: all).

    With all stats, which an analysis cannot read, a thread reads the host. A thread that is still reading at the end is
    stopped.
    """

    ahead, is_wanted = ReadAhead(read), True

    def go_on(_done: int, _total: int) -> None:
        if not is_wanted:
            raise _Ended

    with ThreadPoolExecutor(1, thread_name_prefix="tfperf-read-ahead") as pool:

        def receive(trace: HostTrace) -> None:
            ahead.path, ahead.events = trace.path, pool.submit(with_nesting, trace)

        def begin(file: HostFile) -> AlsoRead | None:
            if (file.size_bytes or _LARGEST_BYTES + 1) > _LARGEST_BYTES:
                return None
            if stats is not None:
                return AlsoRead(stats, receive)
            if isinstance(file.path, Path):  # other files would be downloaded twice in parallel
                ahead.path, ahead.events = file.path, pool.submit(read, file, progress=go_on)
            return None

        try:
            yield ahead, begin
        finally:
            is_wanted = False
