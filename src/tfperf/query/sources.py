"""Where the tables of a query come from: the trace files and the analysis, each read only if a query needs it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tfperf.query.tables import BUILT, RECORDED, RENAMED, SqlTable, found_out
from tfperf.trace.logdir import Run

if TYPE_CHECKING:
    from tfperf.report.model import Table
    from tfperf.session import Trace
    from tfperf.trace.host_trace import HostTrace


@dataclass(frozen=True)
class Source:
    """The tables of one run; `analyse` makes its analysis when that is needed."""

    run: Run
    analyse: Callable[[], Trace]

    def tables(self, names: Collection[str]) -> dict[str, Any]:
        """Return those of the tables that this profile has, each as a `pyarrow.Table`.

        Raises TraceNotFoundError and TraceFormatError.
        """
        from tfperf.query.columns import recorded

        tables = {table.name: recorded(table.name, self._recorded) for table in RECORDED if table.name in names}
        for table in found_out():
            if table.name in names and (made := self._found_out(table)) is not None:
                tables[table.name] = made
        return tables

    @cached_property
    def _recorded(self) -> tuple[HostTrace, ...]:
        from tfperf.trace.read import read_host

        return tuple(read_host(file.path, file.host, everything=True) for file in self.run.files)

    @cached_property
    def _analysis(self) -> Trace:
        return self.analyse()

    @cached_property
    def _reported(self) -> Mapping[str, Table]:
        """Return the tables of the report by their names in SQL."""
        return {RENAMED.get(table.name, table.name): table for table in self._analysis.report().tables()}

    def _found_out(self, declared: SqlTable) -> Any:
        """Return a table of the analysis; None if this profile has none of that name."""
        import pyarrow as pa

        if declared.name == "host_steps":
            steps = pa.concat_tables(self._host_steps(declared))
            return steps if len(steps) else None
        names = [name for name in BUILT.get(declared.name, (declared.name,)) if name in self._reported]
        parts = [_side(name) | dict(self._reported[name].data) for name in names]
        return pa.concat_tables([_arrow(declared, part) for part in parts]) if parts else None

    def _host_steps(self, declared: SqlTable) -> list[Any]:
        made = []
        for host in self._analysis.hosts:
            steps = host.breakdown.steps
            own = {"host": [host.host] * len(steps), "start_ps": steps.start_ps, "end_ps": steps.end_ps}
            made.append(_arrow(declared, {**own, **host.breakdown.columns()}))
        return made


def _side(name: str) -> dict[str, Any]:
    """Return the column that tells ops of devices from those of hosts, as a single value."""
    return {"side": name.removesuffix("_ops")}


def _arrow(declared: SqlTable, data: Mapping[str, Any]) -> Any:
    """Return columns as the table declares them; a single text stands for all rows."""
    import pyarrow as pa

    rows = max(len(values) for values in data.values() if not isinstance(values, str))
    return pa.table({
        column.name: _column([own] * rows if isinstance(own := data[column.name], str) else own, column.type)
        for column in declared.columns
    })  # fmt: skip


def _column(values: Sequence[Any], type_name: str) -> Any:
    """Return values in that type, or if they do not fit in the one that they have; NaN is not known."""
    import pyarrow as pa

    from tfperf.query.columns import words

    if type_name == "VARCHAR":
        return words([None if value is None else str(value) for value in values])
    kinds = {"BIGINT": pa.int64(), "DOUBLE": pa.float64(), "BOOLEAN": pa.bool_()}
    try:
        return pa.array(values, kinds[type_name], from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array(values, from_pandas=True)
