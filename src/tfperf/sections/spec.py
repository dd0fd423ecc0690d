"""What a section declares about itself, and a table about itself: once, and everything else reads it from here."""

from __future__ import annotations

from collections.abc import Callable
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from tfperf.report.model import Column, Data, Table, table_of

if TYPE_CHECKING:
    import pandas as pd

    from tfperf.sections.results import Results

Function = Callable[..., Any] | str
"""A function, or where it is ("package.module:function"): then its module is imported when it is first called."""


def call(function: Function, *arguments: Any) -> Any:
    """Call a declared function."""
    return (resolve_name(function) if isinstance(function, str) else function)(*arguments)


class TableSpec(Struct, frozen=True, kw_only=True):
    """A table, declared: its name and columns are the same in JSON, CSV, SQL and `--limit`."""

    name: str
    title: str
    row: str
    """What a row is, in words: the meaning of the table in SQL."""
    details: str = ""
    """What else a reader of its file must know: a paragraph of docs/csv-files.md."""
    columns: tuple[Column, ...]
    data: Callable[[Results], Data | None]
    """Returns the columns by key, also more than are declared; None if this profile has no such table."""
    name_key: str
    """The column that tells people which row it is; `name` in a limit's condition means it."""
    about_steps: bool = False
    """Whether it says nothing without enough steps."""
    over_hosts: bool = False
    """Whether it compares hosts: then a limit measures it once, not for each host."""
    counts_all_steps: bool = False
    """Whether it rests on the steps that counted when the profile was read, and cannot be narrowed afterwards."""
    empty_means_none: bool = False
    """Whether a profile without the table has no such rows; otherwise it is unknown whether it has."""
    in_report: bool = True
    """False: only SQL has it."""
    in_limits: bool = True
    """False: no limit can be on it."""
    aliases: tuple[str, ...] = ()
    """More names in SQL and in limits."""
    top: int = 10
    """How many rows people see, unless they say how many."""

    def build(self, results: Results, **attributes: Any) -> Table | None:
        """Return the table of a profile, None if it has none; `attributes` replace fields of the `Table`."""
        data = self.data(results)
        if data is None:
            return None
        return replace(table_of(self.name, self.title, self.columns, data, top=self.top), **attributes)


class Tabular(Struct, frozen=True):
    """A result that is a table too."""

    def columns(self) -> dict[str, Any]:
        """Return the columns of `table` without pandas."""
        raise NotImplementedError

    @property
    def table(self) -> pd.DataFrame:
        """Return the columns as a table of pandas, times in milliseconds."""
        import pandas as pd

        return pd.DataFrame(self.columns())


def present(*tables: Table | None) -> tuple[Table, ...]:
    """Return those of the tables that there are."""
    return tuple(table for table in tables if table is not None)


class SectionSpec(Struct, frozen=True, kw_only=True):
    """A section, declared: a question about a profile, and everything that answers it.

    `analyze(host)` gets a `tfperf.sections.host.Host` and returns a small, picklable result; `combine(results)` gets
    those of all hosts and returns the result of the run. A section that only concludes from others has
    `derive(results)` instead, or neither. `build(results)` gets a `tfperf.sections.results.Results` and returns a
    `tfperf.report.model.Section`. None of them prints, reads files or changes what it gets.
    """

    name: str
    title: str
    build: Function
    analyze: Function | None = None
    combine: Function | None = None
    derive: Function | None = None
    rests_on: tuple[str, ...] = ()
    """Sections whose results this one uses."""
    stats: frozenset[str] = frozenset()
    """Names of the stats that `analyze` reads, beyond those of steps."""
    tables: tuple[TableSpec, ...] = ()
    without_device: str = ""
    """For a section about devices: the sentence in its place where no device recorded anything."""
    narrow: Function | None = None
    """narrow(result, before, after): the result over fewer steps; `before` and `after` are breakdowns of the host."""
    is_lead: bool = False
    """Whether the section belongs at the top of a document that is read from its top."""
