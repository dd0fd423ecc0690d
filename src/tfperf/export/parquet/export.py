"""A profile as a dataset: every table of the report, and the events of each host, written whole or not at all."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from tfperf.analysis.load import Analysis, load
from tfperf.base.errors import OutputError
from tfperf.base.files import cannot_write, replace_file
from tfperf.base.folders import new_folder
from tfperf.export.parquet.read_ahead import Read, ReadAhead, reading_ahead
from tfperf.export.query.dataset import BY_HOST, FORMAT, MARKER, check_format, is_dataset, partition
from tfperf.trace.logdir import HostFile

if TYPE_CHECKING:
    from tfperf.export.parquet.event_table import NestedTrace

_DELTA = ("event", "start_ps", "producer_id", "consumer_id")
"""Columns that mostly grow: stored as differences they take a fifth less."""


class WrittenDataset(Struct, frozen=True):
    """What `write_parquet` wrote."""

    folder: Path
    run: str
    tables: tuple[str, ...]
    events: int
    size_bytes: int


def write_parquet(
    path: str | Path | Analysis, folder: str | Path, *, all_stats: bool = False, force: bool = False, **options: Any
) -> WrittenDataset:
    """Write all events and all tables of a profile as Parquet files into the dataset `folder`, made if it is missing.

    `path` is a logdir, a run folder, a `*.xplane.pb` file or what `tfperf.load` returned; `options` are those of
    `tfperf.load`. A run is added to what the dataset holds; one that it holds already is replaced only with `force`.
    `all_stats` adds the table `stats`. Raises OutputError, TraceNotFoundError and TraceFormatError.
    """
    if isinstance(path, Analysis):
        check_dataset(Path(folder))
        return _write_dataset(path, Path(folder), ReadAhead(_reader(all_stats=all_stats)), all_stats, force)
    return write_loaded(folder, partial(load, path, **options), all_stats=all_stats, force=force)


def write_loaded(
    folder: str | Path, load_it: Callable[..., Analysis], *, all_stats: bool = False, force: bool = False
) -> WrittenDataset:
    """Do what `write_parquet` does, with a profile that `load_it` loads: `tfperf.load` with options."""
    from tfperf.export.parquet.columns import STATS

    target, read = Path(folder), _reader(all_stats=all_stats)
    check_dataset(target)
    with reading_ahead(read, None if all_stats else STATS) as (ahead, begin):
        return _write_dataset(load_it(beside=begin), target, ahead, all_stats, force)


def _reader(*, all_stats: bool) -> Read:
    """Return what reads the events of a host, with all that is written of them."""
    from tfperf.export.parquet.columns import STATS
    from tfperf.export.parquet.event_table import with_nesting
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
            raise OutputError(f"the dataset {target} holds the run {name} already; pass --force to replace it")
        with ThreadPoolExecutor(1) as pool:
            of_report = pool.submit(_write_tables, analysis, made)
            events = _write_hosts(analysis, made, ahead, all_stats=all_stats)
            # In this block, which waits for the thread even if a signal comes meanwhile.
            tables = (*of_report.result(), "host_files", *BY_HOST[: 1 + all_stats])
        size = sum(file.stat().st_size for file in made.rglob("*.parquet"))
        if not is_dataset(target):
            replace_file(target / MARKER, json.dumps({"format": FORMAT}).encode() + b"\n")
    return WrittenDataset(target, name, tables, events, size)


def check_dataset(target: Path) -> None:
    """Raise OutputError for a folder that holds something else, which would be mixed up with the dataset."""
    try:
        if is_dataset(target):
            check_format(target)
        elif target.exists() and not (
            target.is_dir() and all(path.name.startswith(".tfperf") for path in target.iterdir())
        ):
            raise OutputError(f"{target} exists and is not a dataset of tfperf; name a new folder")
    except OSError as error:
        raise cannot_write(target, error) from error


def _write_tables(analysis: Analysis, made: Path) -> tuple[str, ...]:
    """Write every table that the profile has, as the report has it."""
    from tfperf.analysis.registry import find_table
    from tfperf.export.query.recorded import as_declared
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
    """Write the events of each host, one after the other, and the list of hosts; return the number of events."""
    import pyarrow as pa

    from tfperf.export.parquet.columns import HOST_FILES
    from tfperf.export.parquet.event_table import event_parts, stat_tables
    from tfperf.export.query.arrow_columns import listed, words

    rows: list[dict[str, Any]] = []
    work = {each.host: each for each in analysis["hosts"].hosts} if "hosts" in analysis.sections else {}
    for file, results in zip(analysis.run.files, analysis.hosts, strict=True):
        nested = ahead.of(file)
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
    """Write parts, each a file: tables of one schema, of which each is a row group. Two are made at a time."""
    from tfperf.export.parquet.event_table import AT_ONCE

    folder.mkdir()
    paths = (folder / f"part-{number}.parquet" for number in range(len(parts)))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        deque(pool.map(_write_part, parts, paths), maxlen=0)


def _write_part(tables: Iterable[Any], path: Path) -> None:
    writer = None
    try:
        for table in tables:
            writer = writer or _writer(table.schema, path)
            writer.write_table(table, row_group_size=max(len(table), 1))
    finally:
        if writer is not None:
            writer.close()


def _writer(schema: Any, path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    whole = {field.name for field in schema if pa.types.is_integer(field.type)}
    deltas = {name: "DELTA_BINARY_PACKED" for name in _DELTA if name in whole}
    others = [name for name in schema.names if name not in deltas]
    return pq.ParquetWriter(path, schema, compression="zstd", use_dictionary=others, column_encoding=deltas or None)
