"""Sources of a query's tables: trace files and analysis, each read only if a query needs it."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from msgspec import DecodeError, Struct, ValidationError, field, json

from tfperf.analysis.load import Analysis, load, unfinished_hosts
from tfperf.analysis.registry import MissingHost, OtherSection, find_table, missing_text
from tfperf.base.errors import TfperfError, TfperfWarning, TraceFormatError
from tfperf.base.storage.remote_path import Location, located
from tfperf.export.query.sql_tables import (
    COMPUTED,
    EVENTS,
    RECORDED,
    STAT_TABLE,
    SqlColumn,
    SqlTable,
    Type,
    analyzed_tables,
    dataset_tables,
    every_table,
)
from tfperf.trace.host.activities import Attribution
from tfperf.trace.logdir import Run, choose_hosts, choose_run, find_runs, sampled
from tfperf.trace.steps.step_range import StepPart, StepRange, cut_trace, range_text

if TYPE_CHECKING:
    from tfperf.trace.host_trace import HostTrace

_SQL_TYPES: Mapping[str, Type] = {
    "bool": "BOOLEAN",
    "double": "DOUBLE",
    "float": "DOUBLE",
    "uint64": "HUGEINT",
    "int16": "INTEGER",
    "int32": "INTEGER",
}  # texts, also in dictionaries: VARCHAR; other integers: BIGINT
_NEED_STATS = frozenset({"stats", "name_stats"})  # tables that need the stats of events


class Source(Struct, frozen=True, dict=True):
    """The tables of one run; `analyze(sections)` runs the sections whose tables are needed."""

    run: Run
    analyze: Callable[[Collection[str]], Analysis]
    omitted: dict[str, str] = field(default_factory=dict)
    """Tables of failed sections of other packages, with the reason."""
    strict: bool = False
    """Whether a missing host is an error, not a warning."""
    steps: StepRange | None = None
    """The selected steps: events are cut to their time."""

    def tables(self, names: Collection[str]) -> dict[str, Any]:
        """Return the available tables as `pyarrow.Table`s, and warn (TfperfWarning) of missing hosts.

        Raises TraceNotFoundError and TraceFormatError, and TfperfError for missing hosts if `strict`.
        """
        from tfperf.export.query.arrow_tables import as_declared, recorded

        wanted = [table.name for table in RECORDED if table.name in names]
        traces = () if not wanted else self._whole_traces if _NEED_STATS.intersection(wanted) else self._traces
        tables = {name: recorded(name, traces, self.run.name) for name in wanted}
        declared = {name: table for name, table in analyzed_tables().items() if name in names}
        if not declared:
            self._report_missing(self._unread if wanted else ())
            return tables
        analysis = self.analyze(sorted({find_table(name)[0] for name in declared}))
        self._report_missing(analysis.missing)
        for name, table in declared.items():
            try:
                data = analysis.table(name)
            except TfperfError as error:
                self.omitted[name] = str(error)
                continue
            if data is not None:
                tables[name] = as_declared(table, data)
        return tables

    def check_unchanged(self) -> None:
        """Do nothing: the data of a profile is in memory."""

    @property
    def declared(self) -> dict[str, SqlTable]:
        """Return every table that a query may name."""
        return every_table()

    @cached_property
    def views(self) -> Mapping[str, str]:
        """Return the views that replace tables in SQL."""
        from tfperf.export.query.arrow_tables import VIEWS

        return VIEWS

    @property
    def described(self) -> dict[str, Any]:
        """Return the description of the source for reports."""
        run = self.run
        steps = {} if self.steps is None else {"steps": range_text(self.steps)}
        return {"run": run.name, "folder": str(run.folder), "hosts": [file.host for file in run.files], **steps}

    def _report_missing(self, missing: Sequence[MissingHost]) -> None:
        unfinished = unfinished_hosts(self.run)
        missing = tuple(dict.fromkeys((*missing, *unfinished)))
        text = missing_text(len(self.run.files) + len(unfinished) - len(missing), missing)
        if text and self.strict:
            raise TfperfError(f"{text} (omit --strict to continue without them)")
        if text:
            warnings.warn(text, TfperfWarning, stacklevel=2)

    @cached_property
    def _whole_traces(self) -> tuple[HostTrace, ...]:
        return self._read()

    @cached_property
    def _traces(self) -> tuple[HostTrace, ...]:
        """Return the traces without stats, which take most of the time to read."""
        return self._whole_traces if "_whole_traces" in self.__dict__ else self._read(stats=frozenset())

    @cached_property
    def _unread(self) -> list[MissingHost]:
        """Return the hosts that could not be read so far."""
        return []

    def _read(self, **options: Any) -> tuple[HostTrace, ...]:
        from tfperf.trace.read import read_host

        traces = []
        parts: dict[str, StepPart | None] = {file.host: None for file in self.run.files}
        if self.steps is not None:  # hosts without these steps have no events in their time
            analysis = self.analyze(("steps",))
            self._unread.extend(analysis.missing)
            parts = {host.host: host.part for host in analysis.hosts}
        for file in (file for file in self.run.files if file.host in parts):
            try:
                trace = read_host(file.path, file.host, everything=True, **options)
                part = parts[file.host]
                traces.append(trace if part is None else cut_trace(trace, part))
            except TraceFormatError as error:
                if len(self.run.files) == 1:
                    raise
                self._unread.append(MissingHost(file.host, str(error)))
        if not traces:
            raise TraceFormatError(missing_text(0, self._unread))
        return tuple(traces)


def source_of(  # noqa: PLR0913  (every parameter is an option that users name)
    path: str | Location | Analysis,
    *,
    run: str | Sequence[str] | None = None,
    hosts: Sequence[str] = (),
    attribution: Attribution = "corrected",
    step_marker: str | None = None,
    steps: StepRange | None = None,
    host_patterns: Sequence[str] = (),
    sample_hosts: int | None = None,
    jobs: int | None = None,
    cluster: str | None = None,
    strict: bool = False,
) -> Source | Dataset:
    """Return the source of a profile or dataset, without reading it. Raises TraceNotFoundError.

    `path` and the options are as in `tfperf.load`; a missing host is a warning, or an error if `strict`. An analysis is
    reused, and completed if a query needs further sections. Raises TfperfError for options with a dataset, which
    supports none.
    """
    if isinstance(path, Analysis):
        return Source(path.run, path.more, steps=path.steps)
    place = located(path)
    if isinstance(place, Path) and is_dataset(place):
        has_options = any((run, hosts, host_patterns, sample_hosts, jobs, cluster, strict, step_marker, steps))
        if has_options or attribution != "corrected":
            raise TfperfError(f"{path} is a dataset: select runs and hosts in the query, as in WHERE run = '...'")
        check_format(place)
        return Dataset(place)
    chosen = choose_hosts(choose_run(find_runs(place), run), tuple(hosts), tuple(host_patterns))
    chosen = chosen if sample_hosts is None else sampled(chosen, sample_hosts)[0]

    def analyze(sections: Collection[str]) -> Analysis:
        # Use the run folder, because a newer run may exist by now.
        return load(
            path,
            sections=tuple(map(OtherSection, sections)),
            run=str(Path(*chosen.folder.resolve().parts)),
            hosts=hosts,
            host_patterns=host_patterns,
            sample_hosts=sample_hosts,
            attribution=attribution,
            step_marker=step_marker,
            steps=steps,
            jobs=jobs,
            cluster=cluster,
        )

    return Source(chosen, analyze, strict=strict, steps=steps)


MARKER = "tfperf_dataset.json"  # marks a folder as a dataset
FORMAT = 3  # 1 had a folder per table, with runs in it; 2 had no `derived` in events
BY_HOST = ("events", "stats")  # tables with a folder per host
_LONGEST = 240


def is_dataset(path: Path) -> bool:
    """Return whether a folder is a dataset."""
    return (path / MARKER).is_file()


def check_format(path: Path) -> None:
    """Raise TraceFormatError for a dataset in an unsupported format."""
    try:
        found = json.decode((path / MARKER).read_bytes(), type=dict[str, int]).get("format")
    except (DecodeError, ValidationError):
        found = None
    except OSError as error:
        raise TraceFormatError(f"cannot read {path / MARKER}: {error.strerror or error}") from error
    if found != FORMAT:
        raise TraceFormatError(f"{path} is a dataset of format {found}, not {FORMAT}; export its runs to a new folder")


def partition(key: str, value: str) -> str:
    """Return the name of the partition folder of a value; a long name is shortened with a hash."""
    encoded = quote(value, safe="", errors="replace")
    if len(encoded) > _LONGEST:
        digest = hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[:12]
        while len(encoded) > _LONGEST - len(digest) - 1:
            value = value[:-1]
            encoded = quote(value, safe="", errors="replace")
        encoded += f"~{digest}"
    return f"{key}={encoded}"


class Dataset(Struct, frozen=True, dict=True):
    """The tables of a dataset, from the runs that it holds when it is opened."""

    folder: Path
    omitted: dict[str, str] = field(default_factory=dict)

    @property
    def views(self) -> Mapping[str, str]:
        """Return the views that replace files in SQL, with computed columns that no file holds."""
        columns = [COMPUTED.get(name, name) + f" AS {name}" for name in (column.name for column in EVENTS.columns)]
        whole = "coalesce(int_value::HUGEINT, unsigned_value::HUGEINT) AS int_value"
        stats = [whole if column.name == "int_value" else column.name for column in STAT_TABLE.columns]
        return {"events": f"SELECT {', '.join(columns)}", "stats": f"SELECT {', '.join(stats)}"}

    @property
    def described(self) -> dict[str, Any]:
        """Return the description of the source for reports."""
        return {"folder": str(self.folder)}

    @property
    def declared(self) -> dict[str, SqlTable]:
        """Return the available tables, as declared, with additional columns from their files."""
        known, tables = dataset_tables(), {}
        for name in self.names:
            of_table = known.get(name, SqlTable(name, "", ()))
            # The run folder is a column of every table.
            declared = {column.name: column for column in (EVENTS.columns[0], *of_table.columns)}
            fields = [] if name in self.views else self._open(name).schema
            columns = [
                SqlColumn(each.name, sql_type, column.unit, column.meaning)
                for each in fields
                for sql_type in ["VARCHAR" if "string" in str(each.type) else _SQL_TYPES.get(str(each.type), "BIGINT")]
                for column in [declared.get(each.name, SqlColumn(each.name, "VARCHAR", "", ""))]
            ]
            tables[name] = SqlTable(name, of_table.meaning, tuple(columns) or of_table.columns)
        return tables

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the tables."""
        return tuple(sorted(self._files))

    def tables(self, names: Collection[str]) -> dict[str, Any]:
        """Return tables as Arrow datasets, which read data on demand."""
        return {name: self._open(name) for name in self.names if name in names}

    def check_unchanged(self) -> None:
        """Raise TfperfError if a run was replaced or removed since the dataset was opened."""
        for run, before in self._runs.items():
            try:
                is_same = os.path.samestat(before, run.stat())
            except OSError:
                is_same = False
            if not is_same:
                raise TfperfError(f"{run} was replaced during the query; repeat the query")

    @cached_property
    def _runs(self) -> dict[Path, os.stat_result]:
        runs = {run: run.stat() for run in sorted(self.folder.glob("run=*")) if run.is_dir()}
        for old in sorted(self.folder.glob(".tfperf/run=*/old")):
            if (run := self.folder / old.parent.name) not in runs:
                missing = f"{run} is missing, because an export is replacing it or was killed"
                warnings.warn(f"{missing}; the next export restores it", TfperfWarning, stacklevel=2)
        return runs

    @cached_property
    def _files(self) -> dict[str, list[str]]:
        files: dict[str, list[str]] = {}
        for run in self._runs:
            for file in sorted(run.rglob("*.parquet")):
                files.setdefault(file.parent.name, []).append(str(file))
        return {name: paths for name, paths in files.items() if name.isidentifier()}

    def _open(self, name: str) -> Any:
        import pyarrow as pa
        import pyarrow.dataset as ds

        keys = ["run", "host"] if name in BY_HOST else ["run"]
        scheme = ds.partitioning(pa.schema([(key, pa.string()) for key in keys]), flavor="hive")
        try:
            return ds.dataset(
                self._files[name], format="parquet", partitioning=scheme, partition_base_dir=str(self.folder)
            )
        except (OSError, pa.ArrowInvalid) as error:
            text = " ".join(str(error).split())
            raise TraceFormatError(f"cannot read the table {name} of the dataset {self.folder}: {text}") from error
