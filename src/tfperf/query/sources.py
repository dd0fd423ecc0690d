"""Where the tables of a query come from: the trace files and the analysis, each read only if a query needs it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from tfperf.analysis import Analysis, load
from tfperf.errors import TfperfError
from tfperf.query.sql_tables import RECORDED, analyzed_tables
from tfperf.sections.registry import find_table
from tfperf.trace.activities import Attribution
from tfperf.trace.logdir import Run, choose_hosts, choose_run, find_runs

if TYPE_CHECKING:
    from tfperf.trace.host_trace import HostTrace


class Source(Struct, frozen=True, dict=True):
    """The tables of one run; `analyze(sections)` analyzes it by the sections whose tables are needed."""

    run: Run
    analyze: Callable[[Collection[str]], Analysis]
    omitted: dict[str, str] = field(default_factory=dict)
    """Tables of sections of other packages that failed when they were asked for, with the reason."""

    def tables(self, names: Collection[str]) -> dict[str, Any]:
        """Return those that this profile has as `pyarrow.Table`s. Raises TraceNotFoundError and TraceFormatError."""
        from tfperf.query.recorded import as_declared, recorded

        tables = {table.name: recorded(table.name, self._traces) for table in RECORDED if table.name in names}
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

    @cached_property
    def _traces(self) -> tuple[HostTrace, ...]:
        from tfperf.trace.read import read_host

        return tuple(read_host(file.path, file.host, everything=True) for file in self.run.files)


def source_of(
    path: str | Path | Analysis,
    *,
    run: str | Sequence[str] | None = None,
    hosts: Sequence[str] = (),
    attribution: Attribution = "corrected",
    step_marker: str | None = None,
) -> Source:
    """Return what can be queried of a profile; nothing is read yet. Raises TraceNotFoundError.

    `path` and the options are those of `tfperf.load`; an analysis is used as it is, and completed where a query needs
    sections that it lacks.
    """
    if isinstance(path, Analysis):
        return Source(path.run, path.more)
    chosen = choose_hosts(choose_run(find_runs(Path(path)), run), tuple(hosts))

    def analyze(sections: Collection[str]) -> Analysis:
        # The folder of the run: by now, there may be a newer one.
        return load(
            path,
            sections=tuple(sections),
            run=str(chosen.folder),
            hosts=hosts,
            attribution=attribution,
            step_marker=step_marker,
        )

    return Source(chosen, analyze)
