"""The report: the neutral middle between analyzers and renderers.

Analyzers know nothing of it, renderers know nothing else. Values are plain Python (or numpy) numbers and text in the
unit that the column or fact names; None is "not known" and is never shown as zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tfperf.units import Unit

FORMAT_VERSION = 1
"""Version of the JSON document; its history is in docs/json-format.md."""

Severity = Literal["problem", "hint", "info"]


@dataclass(frozen=True, slots=True)
class Column:
    """One declared column: `key` names it in JSON and CSV (with its unit), `title` heads it for people."""

    key: str
    title: str
    unit: Unit = ""
    meaning: str = ""
    compact: bool = True
    """False: left out of terminal and Markdown tables, which must fit 80 columns; always in JSON and CSV."""
    depth_key: str = ""
    """If set, people see the column as a tree: this column of the table holds the level of each row, from 0."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows by column; `total_rows` says how many there were before `head` cut the list."""

    name: str
    title: str
    columns: tuple[Column, ...]
    data: Mapping[str, Sequence[Any]]
    total_rows: int
    note: str = ""
    bar_key: str = ""
    """The column that a page draws as bars, one for each row; empty: none.

    Labels are from the first compact column without a unit whose texts tell the rows apart."""

    def __len__(self) -> int:
        """Return the number of rows held."""
        return len(self.data[self.columns[0].key]) if self.columns else 0

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Iterate over rows as tuples in column order."""
        return zip(*(self.data[column.key] for column in self.columns), strict=True)

    def head(self, count: int) -> Table:
        """Return the table with its first `count` rows; `total_rows` stays."""
        return replace(self, data={key: values[:count] for key, values in self.data.items()})


@dataclass(frozen=True, slots=True)
class Fact:
    """One named value, shown as a line: `Average step time  15.9 ms`."""

    key: str
    title: str
    value: float | int | str | bool | None
    unit: Unit = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One conclusion in words: what was seen (with its number), and what to do about it."""

    code: str
    severity: Severity
    text: str
    action: str = ""


@dataclass(frozen=True, slots=True)
class StepChart:
    """Stacked bars, one per step: `series` maps a category title to its milliseconds per step."""

    title: str
    labels: tuple[str, ...]
    series: Mapping[str, Sequence[float]]
    flags: tuple[str, ...]
    """Per step: empty, or why the step is left out of averages ("partial", "retrace", ...)."""


@dataclass(frozen=True, slots=True)
class BarChart:
    """One bar per label; values are in `unit`, None is not known."""

    title: str
    unit: Unit
    labels: tuple[str, ...]
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class GroupedBars:
    """Bars side by side for each label, one of each series ("before", "after"); None is not known."""

    title: str
    unit: Unit
    labels: tuple[str, ...]
    series: Mapping[str, tuple[float | None, ...]]


@dataclass(frozen=True, slots=True)
class Sparkline:
    """A value over time in one row: each value holds from its time (ms) to the next; `low` and `high` are the scale."""

    title: str
    times: tuple[float, ...]
    values: tuple[float, ...]
    low: float
    high: float
    unit: Unit = ""


Chart = StepChart | BarChart | GroupedBars | Sparkline


@dataclass(frozen=True, slots=True)
class Section:
    """What one `-s NAME` shows, in the order findings, facts, charts, tables, notes."""

    name: str
    title: str
    findings: tuple[Finding, ...] = ()
    facts: tuple[Fact, ...] = ()
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """A whole analysis. `source` says what was read, `summary` holds the fixed JSON keys."""

    source: Mapping[str, Any]
    summary: Mapping[str, Any]
    sections: tuple[Section, ...] = field(default=())

    def tables(self) -> Iterator[Table]:
        """Iterate over every table of every section."""
        for section in self.sections:
            yield from section.tables
