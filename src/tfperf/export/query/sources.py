"""Where the tables of a query come from: the trace files and the analysis, each read only if a query needs it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from tfperf.analysis.load import Analysis, load
from tfperf.analysis.registry import find_table
from tfperf.base.errors import TfperfError
from tfperf.base.storage.remote_path import Location, located
from tfperf.export.query.dataset import Dataset, check_format, is_dataset
from tfperf.export.query.sql_tables import RECORDED, SqlTable, analyzed_tables, every_table
from tfperf.trace.host.activities import Attribution
from tfperf.trace.logdir import Run, choose_hosts, choose_run, find_runs

if TYPE_CHECKING:
    from tfperf.trace.host_trace import HostTrace


_NEED_STATS = frozenset({"stats", "name_stats"})
"""Tables of which the stats of events must be read."""


class Source(Struct, frozen=True, dict=True):
    """The tables of one run; `analyze(sections)` analyzes it by the sections whose tables are needed."""

    run: Run
    analyze: Callable[[Collection[str]], Analysis]
    omitted: dict[str, str] = field(default_factory=dict)
    """Tables of sections of other packages that failed when they were asked for, with the reason."""

    def tables(self, names: Collection[str]) -> dict[str, Any]:
        """Return those that this profile has as `pyarrow.Table`s. Raises TraceNotFoundError and TraceFormatError."""
        from tfperf.export.query.recorded import as_declared, recorded

        wanted = [table.name for table in RECORDED if table.name in names]
        traces = () if not wanted else self._whole_traces if _NEED_STATS.intersection(wanted) else self._traces
        tables = {name: recorded(name, traces, self.run.name) for name in wanted}
        declared = {name: table for name, table in analyzed_tables().items() if name in names}
        if not declared:
            return tables
        analysis = self.analyze(sorted({find_table(name)[0] for name in declared}))
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
        """Do nothing: what a query reads of a profile is in memory."""

    @property
    def declared(self) -> dict[str, SqlTable]:
        """Return every table that a query may name."""
        return every_table()

    @cached_property
    def views(self) -> Mapping[str, str]:
        """Return the views that SQL sees instead of tables."""
        from tfperf.export.query.recorded import VIEWS

        return VIEWS

    @property
    def described(self) -> dict[str, Any]:
        """Return what is queried, as reports say it."""
        run = self.run
        return {"run": run.name, "folder": str(run.folder), "hosts": [file.host for file in run.files]}

    @cached_property
    def _whole_traces(self) -> tuple[HostTrace, ...]:
        from tfperf.trace.read import read_host

        return tuple(read_host(file.path, file.host, everything=True) for file in self.run.files)

    @cached_property
    def _traces(self) -> tuple[HostTrace, ...]:
        """Return the traces without stats, which take most of the time."""
        from tfperf.trace.read import read_host

        if "_whole_traces" in self.__dict__:
            return self._whole_traces
        files = self.run.files
        return tuple(read_host(file.path, file.host, everything=True, stats=frozenset()) for file in files)


def source_of(
    path: str | Location | Analysis,
    *,
    run: str | Sequence[str] | None = None,
    hosts: Sequence[str] = (),
    attribution: Attribution = "corrected",
    step_marker: str | None = None,
) -> Source | Dataset:
    """Return what can be queried of a profile, or of a dataset; nothing is read yet. Raises TraceNotFoundError.

    `path` and the options are those of `tfperf.load`; an analysis is used as it is, and completed where a query needs
    sections that it lacks. A dataset has no such options: raises TfperfError.
    """
    if isinstance(path, Analysis):
        return Source(path.run, path.more)
    place = located(path)
    if isinstance(place, Path) and is_dataset(place):
        if run or hosts or step_marker or attribution != "corrected":
            raise TfperfError(f"{path} is a dataset: choose its runs and hosts in the query, as in WHERE run = '...'")
        check_format(place)
        return Dataset(place)
    chosen = choose_hosts(choose_run(find_runs(place), run), tuple(hosts))

    def analyze(sections: Collection[str]) -> Analysis:
        # The folder of the run: by now, there may be a newer one.
        return load(
            path,
            sections=tuple(sections),
            run=str(Path(*chosen.folder.resolve().parts)),
            hosts=hosts,
            attribution=attribution,
            step_marker=step_marker,
        )

    return Source(chosen, analyze)
