"""Results that are tables too: `result.table` has the columns that a section declares, whatever the profile holds."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING, ClassVar, Protocol

from tfperf.base.display import Shown, cut
from tfperf.report.model import Column, Data, Table

if TYPE_CHECKING:
    import pandas as pd


class Declaration(Protocol):
    """What a result needs of the declaration of its table, a `tfperf.TableSpec`."""

    @property
    def name(self) -> str:
        """Return the name of the table."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """Return the columns."""

    def of(self, data: Data) -> Table:
        """Return the table of these columns."""


class DeclaredTable(Shown):
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

    def _spec(self) -> Declaration:
        """Return the declaration of the table, in the package of its section."""
        section, name = self.home
        tables: tuple[Declaration, ...] = resolve_name(f"tfperf.sections.{section}:SECTION").tables
        return next(table for table in tables if table.name == name)

    def _data(self) -> Data | None:
        """Return the declared columns by key; None if the profile has no such table."""
        raise NotImplementedError

    def __repr__(self) -> str:
        name, rows = self._spec().name, len(self.as_table())
        return cut(f"<{type(self).__name__}: {rows:,} {'row' if rows == 1 else 'rows'} of the table {name}>")
