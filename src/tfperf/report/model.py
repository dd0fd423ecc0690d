"""The neutral middle between sections and formats: what a report holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.display import Shown, cut
from tfperf.base.units import Unit, counted, format_ms, format_percent

if TYPE_CHECKING:
    import pandas as pd

    from tfperf.base.arrays import Int32s, Int64s
else:  # reports are made without numpy, too
    Int32s = Int64s = Any

FORMAT_VERSION = 1
"""Version of the JSON document; its history is in docs/json-format.md."""
Severity = Literal["problem", "hint", "info"]
Level = Literal["brief", "full", "data"]
"""Where a part of a report appears. brief: in a whole report for people, and wherever there is more. full: where people
ask for the section by name. data: in JSON and CSV, and on a page."""
Data = Mapping[str, Sequence[Any]]
"""The columns of a table by their keys, all of one length."""


class Column(Shown, Struct, frozen=True):
    """One declared column: `key` names it in JSON, CSV and SQL (with its unit), `title` heads it for people."""

    key: str
    title: str
    dtype: type[int] | type[float] | type[str] | type[bool]
    """What a cell holds, unless it is None."""
    unit: Unit = ""
    meaning: str = ""
    level: Level = "brief"
    depth_key: str = ""
    """If set, people see the column as a tree: this column of the table holds the level of each row, from 0."""
    whole_key: str = ""
    """If set, this column has short names; that column of the table has the whole ones, which people can look up."""
    over_steps: bool = False
    """Whether a cell is an average over the steps that counted when the profile was read."""
    is_id: bool = False
    """Whether a cell is an id, a number from 0 to 2^64 - 1; others fit into an int64."""


def at_levels(columns: Sequence[Column], levels: Mapping[str, Level]) -> tuple[Column, ...]:
    """Return the columns, those whose keys are in `levels` at another level."""
    return tuple(replace(column, level=levels.get(column.key, column.level)) for column in columns)


class Ranked(Shown, Struct, frozen=True):
    """That the column `by` ranks a table, the largest number first: people see `top` rows, unless they say how many.

    `each` is what has a row, however many there are: "hosts", "devices". Then rows are in any order, and of many,
    people see the worst, and percentiles of all; so does a page.
    """

    by: str
    top: int = 10
    each: str = ""
    least_is_worst: bool = False
    apart: str = ""
    """A column whose values are ranked each by itself. Of many hosts, the worst are those of its first value, and each
    value has percentiles of its own."""


class Table(Shown, Struct, frozen=True):
    """Rows by column; `total_rows` says how many there were before `head` cut the list."""

    name: str
    title: str
    columns: tuple[Column, ...]
    data: Data
    total_rows: int
    note: str = ""
    bar_key: str = ""
    """The column that a page draws as bars, one for each row; empty: none.

    Labels are from the first column without a unit whose texts tell the rows apart."""
    level: Level = "brief"
    ranked: Ranked | None = None
    """How it is ranked. A table that is not ranked is never cut by people who say how many rows they want."""
    brief_rows: int | None = None
    """How many rows a whole report for people has of a table that is not ranked; None: all."""
    all_rows_in: str = ""
    """Where people see all rows of a table that is cut; empty: where they say how many they want."""
    split_key: str = ""
    """If set, people see a table for each value of this column, a page too, and not the column."""
    rows_for_people: tuple[int, ...] | None = None
    """The rows that people see, if not all."""

    def __len__(self) -> int:
        """Return the number of rows held."""
        return len(self.data[self.columns[0].key]) if self.columns else 0

    def __repr__(self) -> str:
        cells = f"{len(self):,} of {self.total_rows:,} rows, {len(self.columns)} columns"
        return cut(f"<Table {self.name}: {cells}>")

    @property
    def table(self) -> pd.DataFrame:
        """Return it as a DataFrame: the columns that people see first, then the others; what is unknown is NA."""

        return frame(self.columns, self.data)

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Iterate over rows as tuples in column order."""
        return zip(*(self.data[column.key] for column in self.columns), strict=True)

    def head(self, count: int) -> Table:
        """Return the table with its first `count` rows; `total_rows` stays."""
        return replace(self, data={key: values[:count] for key, values in self.data.items()})

    def only(self, rows: Sequence[int]) -> Table:
        """Return the table with some of its rows, as if it had no others."""
        data = {key: [values[row] for row in rows] for key, values in self.data.items()}
        return replace(self, data=data, total_rows=len(rows))


def table_of(name: str, title: str, columns: Sequence[Column], data: Data, **attributes: Any) -> Table:
    """Return a table of the declared columns of `data`, with all its rows; `attributes` are other fields of Table."""
    rows = len(data[columns[0].key])
    return Table(name, title, tuple(columns), {column.key: data[column.key] for column in columns}, rows, **attributes)


_LEVELS = ("brief", "full", "data")
_DTYPES = {int: "Int64", float: "Float64", bool: "boolean"}


def frame(columns: Iterable[Column], data: Data) -> pd.DataFrame:
    """Return the columns as a DataFrame, those that people see first; what is unknown is NA, in every type."""
    import pandas as pd

    ordered = sorted(columns, key=lambda column: _LEVELS.index(column.level))
    # Names in a profile may hold what is no text, which the strings of Arrow refuse.
    dtypes: dict[type, Any] = {**_DTYPES, str: pd.StringDtype("python")}
    arrays = {}
    for each in ordered:
        cells = [None if isinstance(cell, float) and not math.isfinite(cell) else cell for cell in data[each.key]]
        arrays[each.key] = pd.array(cells, dtype="UInt64" if each.is_id else dtypes[each.dtype])
    return pd.DataFrame(arrays)


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
        section, name = self.home
        tables: tuple[Declaration, ...] = resolve_name(f"tfperf.sections.{section}:SECTION").tables
        return next(table for table in tables if table.name == name)

    def _data(self) -> Data | None:
        raise NotImplementedError

    def __repr__(self) -> str:
        name, rows = self._spec().name, len(self.as_table())
        return cut(f"<{type(self).__name__}: {rows:,} {'row' if rows == 1 else 'rows'} of the table {name}>")


class Quantity(Struct, frozen=True):
    """A number in a text: `key` says what it is, and `of` whose. What has the same key, unit and `of` is one number."""

    key: str
    value: float | None
    unit: Literal["%", "ms"] = "%"
    of: str = ""

    def __str__(self) -> str:
        """Show it as people read it: `64.4%`, `19.4 ms`."""
        if self.value is None:
            return "-"
        return f"{format_percent(self.value)}%" if self.unit == "%" else f"{format_ms(self.value)} ms"


class Fact(Shown, Struct, frozen=True):
    """One named value, shown as a line: `Average step time  15.9 ms`."""

    key: str
    title: str
    value: float | int | str | bool | None
    unit: Unit = ""
    note: str = ""
    level: Level = "brief"
    quantities: tuple[Quantity, ...] = ()
    """What it states that stands elsewhere too, and every share in its note."""


class Finding(Shown, Struct, frozen=True):
    """One conclusion in words: what was seen (with its number), and what to do about it."""

    code: str
    severity: Severity
    text: str
    action: str = ""
    level: Level = "brief"
    causes: tuple[str, ...] = ()
    """Codes of the causes that it is evidence for: what to do is said there, once, and not here."""
    quantities: tuple[Quantity, ...] = ()
    """The numbers that its text and its action state: every share, and every time that stands elsewhere too."""

    @property
    def see(self) -> str:
        """Return where it is said what to do; empty if nowhere."""
        *others, last = self.causes or ("",)
        named = f"{', '.join(others)} or {last}" if others else last
        return f"{named} in -s diagnosis" if named else ""


class StepChart(Struct, frozen=True):
    """Stacked bars, one per step: `series` maps a category title to its milliseconds per step."""

    title: str
    labels: tuple[str, ...]
    series: Mapping[str, Sequence[float]]
    flags: tuple[str, ...]
    """Per step: empty, or why the step is omitted from averages ("partial", "retrace", ...)."""
    kinds: tuple[str, ...] = ()
    """Per step: its kind ("train", "eval"); empty if all steps are of one kind."""
    level: Level = "brief"


class BarChart(Struct, frozen=True):
    """One bar per label; values are in `unit`, None is unknown."""

    title: str
    unit: Unit
    labels: tuple[str, ...]
    values: tuple[float | None, ...]
    level: Level = "brief"


class GroupedBars(Struct, frozen=True):
    """Bars side by side for each label, one of each series ("before", "after"); None is unknown."""

    title: str
    unit: Unit
    labels: tuple[str, ...]
    series: Mapping[str, tuple[float | None, ...]]
    level: Level = "brief"


class Sparkline(Struct, frozen=True, kw_only=True):
    """A value over time in one row: each value holds from its time (ms) to the next; `low` and `high` are the scale."""

    title: str
    times: tuple[float, ...]
    values: tuple[float, ...]
    low: float
    high: float
    unit: Unit = ""
    level: Level = "brief"


class LogChart(Struct, frozen=True, kw_only=True):
    """Points, each with a name, on two logarithmic axes, and lines; what is not above zero has no place there."""

    title: str
    x_title: str
    y_title: str
    points: tuple[tuple[str, float, float], ...]
    """Name, x and y."""
    lines: Mapping[str, tuple[tuple[float, float], ...]]
    level: Level = "brief"


class FlameChart(Struct, frozen=True, kw_only=True):
    """Boxes inside each other, in preorder, the first around all others: a flame graph, or a tree with bars.

    `starts` and `widths` are in `unit`, `own` is what a box is without those in it. `before`, if any, is how wide each
    box is in the run that this one is compared with. `omitted` counts narrower boxes that it lacks.
    """

    title: str
    unit: Unit
    names: tuple[str, ...]
    labels: tuple[str, ...]
    """Their short names."""
    depths: tuple[int, ...]
    """How many boxes are around each."""
    starts: tuple[float, ...]
    widths: tuple[float, ...]
    own: tuple[float, ...]
    before: tuple[float, ...] = ()
    omitted: int = 0
    level: Level = "brief"


class Ribbon(Struct, frozen=True, kw_only=True):
    """The time of a step by category, one stretch after the other; `category` is an index into `titles`."""

    title: str
    titles: tuple[str, ...]
    category: Int64s
    start_ns: Int64s
    end_ns: Int64s

    def title_at(self, start_ns: int) -> str:
        """Return the category of the stretch that starts then, and not of an empty one before it."""
        return self.titles[int(self.category[self.start_ns.searchsorted(start_ns, side="right") - 1])]


class Lane(Struct, frozen=True, kw_only=True):
    """A thread, a stream or the like: so many `rows` of blocks, those inside others below them."""

    title: str
    rows: int
    busy_percent: float


class LaneGroup(Struct, frozen=True, kw_only=True):
    """Lanes of one role, the busiest first. `load` is how busy they are in equal stretches of the step, in percent."""

    title: str
    lanes: tuple[Lane, ...]
    is_open: bool
    load: tuple[int, ...]
    omitted: int = 0
    """How many lanes are not drawn."""


class Blocks(Struct, frozen=True, eq=False, kw_only=True):
    """All blocks at one level of detail: events shorter than `finest_ns` that follow one another are one block.

    `row` counts the rows of all lanes of all groups. A block of several events (`count`) has the name of what takes
    most of it, and `self_ns` is how long they last in all; of one event, its time without those inside it.
    """

    finest_ns: int
    row: Int32s
    start_ns: Int64s
    duration_ns: Int64s
    name: Int32s
    count: Int64s
    self_ns: Int64s
    note: Int32s
    """Index into the notes of the picture; -1: none."""


class BlockName(Struct, frozen=True):
    """What blocks of a name have in common: their `kind`, which gives the colour, the type and the name of their op."""

    name: str
    kind: str
    type: str = ""
    op: str = ""


class Links(Struct, frozen=True, eq=False, kw_only=True):
    """Links from one event to another: `kind` is an index into `kinds`, ends are a row and a time inside the event."""

    kinds: tuple[str, ...]
    kind: Int64s
    from_row: Int32s
    from_ns: Int64s
    to_row: Int32s
    to_ns: Int64s
    omitted: int = 0


class MemoryCurve(Struct, frozen=True):
    """Bytes in use of an allocator; each value holds until the next time."""

    title: str
    times_ns: Int64s
    used_bytes: Int64s


class StepPicture(Struct, frozen=True, eq=False, kw_only=True):
    """A step as swim lanes. `levels` are from coarse to fine; `places` say where in the step a cause costs most.

    A place is the start and the end of a stretch, and the time of all such stretches in the step.
    """

    title: str
    host: str
    step: int
    """Its number."""
    duration_ns: int
    categories: Mapping[str, int]
    """Nanoseconds of each category, by its title, as in the table of steps; unknown ones are not there."""
    ribbons: tuple[Ribbon, ...]
    groups: tuple[LaneGroup, ...]
    levels: tuple[Blocks, ...]
    names: tuple[BlockName, ...]
    notes: tuple[str, ...]
    links: Links
    memory: tuple[MemoryCurve, ...] = ()
    places: Mapping[str, tuple[int, int, int]] = {}
    remarks: tuple[str, ...] = ()
    """What is not drawn, and why."""
    level: Literal["brief", "full", "data"] = "brief"


Chart = StepChart | BarChart | GroupedBars | Sparkline | LogChart | FlameChart | StepPicture


class Section(Shown, Struct, frozen=True):
    """What one `-s NAME` shows, in the order findings, facts, charts, tables, notes."""

    name: str
    title: str
    findings: tuple[Finding, ...] = ()
    facts: tuple[Fact, ...] = ()
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    detail_notes: tuple[str, ...] = ()
    """Notes that a whole report for people omits."""
    pointer: str = ""
    """Where people read more: the last line of the section in a whole report."""
    level: Level = "brief"
    """full: only where the section is asked for by name, and in JSON and CSV."""
    is_lead: bool = False
    """Whether the section is the answer: the first screen, and the top of a document that is read from its top."""


class Deferred(Mapping[str, Any]):
    """A mapping that is made when it is first read: only some formats show it."""

    def __init__(self, make: Callable[[], Mapping[str, Any]]) -> None:
        self._made = cache(make)

    def __getitem__(self, key: str) -> Any:
        """Return the value of a key."""
        return self._made()[key]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the keys."""
        return iter(self._made())

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self._made())


class Report(Shown, Struct, frozen=True):
    """A whole analysis. `source` says what was read, `summary` holds the fixed JSON keys."""

    source: Mapping[str, Any]
    summary: Mapping[str, Any]
    sections: tuple[Section, ...] = ()
    omitted: tuple[str, ...] = ()
    """A line for each section of another package that is missing, with the reason."""
    documents: Mapping[str, Any] = {}
    """Objects that stand at the top of the JSON document, by their keys."""

    def __repr__(self) -> str:
        return cut(
            f"<Report of {counted(len(self.sections), 'section')}: {', '.join(each.name for each in self.sections)}>"
        )

    def tables(self) -> Iterator[Table]:
        """Iterate over every table of every section."""
        for section in self.sections:
            yield from section.tables
