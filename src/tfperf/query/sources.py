"""Where the tables of a query come from: the trace files and the analysis, each read only if a query needs it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from tfperf.errors import TfperfError
from tfperf.query.sql_tables import RECORDED, SqlTable, analyzed_tables
from tfperf.sections.registry import find_table
from tfperf.trace.logdir import Run

if TYPE_CHECKING:
    from tfperf.analysis import Analysis
    from tfperf.trace.host_trace import HostTrace


class Source(Struct, frozen=True, dict=True):
    """The tables of one run; `analyze(sections)` analyzes it by the sections whose tables are needed."""

    run: Run
    analyze: Callable[[Collection[str]], Analysis]
    omitted: dict[str, str] = field(default_factory=dict)
    """Tables of sections of other packages that failed when they were asked for, with the reason."""

    def tables(self, names: Collection[str]) -> dict[str, Any]:
        """Return those of the tables that this profile has, each as a `pyarrow.Table`.

        Raises TraceNotFoundError and TraceFormatError.
        """
        from tfperf.query.recorded import recorded

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
                tables[name] = _arrow(table, data)
        return tables

    @cached_property
    def _traces(self) -> tuple[HostTrace, ...]:
        from tfperf.trace.read import read_host

        return tuple(read_host(file.path, file.host, everything=True) for file in self.run.files)


def _arrow(declared: SqlTable, data: Mapping[str, Sequence[Any]]) -> Any:
    """Return columns as the table declares them."""
    import pyarrow as pa

    return pa.table({column.name: _column(data[column.name], column.type) for column in declared.columns})


def _column(values: Sequence[Any], type_name: str) -> Any:
    """Return values in that type, or in their own if they do not fit; NaN is unknown."""
    import pyarrow as pa

    from tfperf.query.recorded import words

    if type_name == "VARCHAR":
        return words([None if value is None else str(value) for value in values])
    kinds = {"BIGINT": pa.int64(), "DOUBLE": pa.float64(), "BOOLEAN": pa.bool_()}
    try:
        return pa.array(values, kinds[type_name], from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array(values, from_pandas=True)
