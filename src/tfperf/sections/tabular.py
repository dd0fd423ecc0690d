"""Results that are tables too: `result.table` has the columns that a section declares, whatever the profile holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct

from tfperf.display import Shown, cut
from tfperf.report.model import Data, Table
from tfperf.sections.registry import TableSpec, find_section
from tfperf.sections.results import Results
from tfperf.trace.logdir import Run

if TYPE_CHECKING:
    import pandas as pd


def declared(section: str, name: str) -> TableSpec:
    """Return the declaration of a table."""
    return next(table for table in find_section(section).tables if table.name == name)


class HasTable(Shown):
    """A result that is a table too: `home` names the section and the table that declares its columns."""

    __slots__ = ()
    home: ClassVar[tuple[str, str]]

    @property
    def table(self) -> pd.DataFrame:
        """Return the table as a DataFrame: the columns that people see first, then the others; times in milliseconds.

        Its columns are those of docs/csv-files.md, whether there are rows or not. Their types are Int64, Float64,
        string and boolean; unknown is NA.
        """
        return self.as_table().table

    def as_table(self) -> Table:
        """Return the table as reports have it; without rows if the profile has no such table."""
        spec, data = self._spec(), self._data()
        if data is None:
            data = {column.key: () for column in spec.columns}
        return spec.of(data)

    def _spec(self) -> TableSpec:
        return declared(*self.home)

    def _data(self) -> Data | None:
        """Return the declared columns: what the first table of a section says rests on nothing else."""
        return self._spec().data(_alone(self.home[0], self))

    def __repr__(self) -> str:
        name, rows = self._spec().name, len(self.as_table())
        return cut(f"<{type(self).__name__}: {rows:,} {'row' if rows == 1 else 'rows'} of the table {name}>")


class Tabular(HasTable, Struct, frozen=True):
    """A result that is a table too, and has fields."""


def _alone(section: str, result: Any) -> Results:
    """Return the results of a run of which only that of one section is known."""
    results = Results(Run("", Path(), ()), "corrected", (), (section,))
    results._combined[section] = result
    return results
