"""Results of sections that are tables too, whose columns need nothing but the result."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from tfperf.analysis.registry import TableSpec, find_section
from tfperf.analysis.results import Results
from tfperf.report.declared_table import DeclaredTable
from tfperf.report.model import Data
from tfperf.trace.logdir import Run


def declared(section: str, name: str) -> TableSpec:
    """Return the declaration of a table."""
    return next(table for table in find_section(section).tables if table.name == name)


class HasTable(DeclaredTable):
    """A result that is the first table of a section: what that table says rests on nothing else."""

    __slots__ = ()

    def _data(self) -> Data | None:
        section = self.home[0]
        alone = Results(Run("", Path(), ()), "corrected", (), (section,))
        alone._combined[section] = self
        return self._spec().data(alone)


class Tabular(HasTable, Struct, frozen=True):
    """A result that is a table too, and has fields."""
