"""The content of a report, independent of sections and formats."""

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
    from tfperf.report.palette import Role
else:  # reports are also built without numpy
    Int32s = Int64s = Any

FORMAT_VERSION = 1
"""Version of the JSON document; docs/json-format.md has its history."""
Severity = Literal["problem", "hint", "info"]
Level = Literal["brief", "full", "data"]
"""Where a part of a report appears. brief: in whole reports for people, and in all others. full: if a section is
selected by name. data: in JSON, CSV and HTML.
"""
Data = Mapping[str, Sequence[Any]]
"""Table columns by key, with equal lengths."""


class Column(Shown, Struct, frozen=True):
    """A declared column: `key` is its name in JSON, CSV and SQL with the unit, `title` its heading for people."""

    key: str
    title: str
    dtype: type[int] | type[float] | type[str] | type[bool]
    """Type of the cells that are not None."""
    unit: Unit = ""
    meaning: str = ""
    level: Level = "brief"
    depth_key: str = ""
    """If set, the column is displayed as a tree; the column with this key has each row's level, from 0."""
    whole_key: str = ""
    """If set, the column has short names, and the column with this key the whole ones."""
    over_steps: bool = False
    """Whether cells are averages over the steps selected when the profile was read."""
    is_id: bool = False
    """Whether cells are ids from 0 to 2^64 - 1; other integers fit into an int64."""


def at_levels(columns: Sequence[Column], levels: Mapping[str, Level]) -> tuple[Column, ...]:
    """Return the columns with new levels by key."""
    return tuple(replace(column, level=levels.get(column.key, column.level)) for column in columns)


ROWS_FOR_PEOPLE = 10
"""Rows of a ranked table that people get unless they set a number."""


class Ranked(Shown, Struct, frozen=True):
    """A table's ranking by the column `by`, largest first: people get `top` rows unless they set a number.

    `each` ("hosts", "devices") if each has a row, in any order; of many, people get the worst and percentiles.
    """

    by: str
    top: int = ROWS_FOR_PEOPLE
    each: str = ""
    least_is_worst: bool = False
    apart: str = ""
    """A column whose values are ranked separately, with percentiles each; its first value selects the worst hosts."""


class Table(Shown, Struct, frozen=True):
    """Rows by column; `total_rows` is their number before `head` cut the table."""

    name: str
    title: str
    columns: tuple[Column, ...]
    data: Data
    total_rows: int
    note: str = ""
    bar_key: str = ""
    """Column drawn as bars in HTML, labeled by the unitless column with the most distinct texts; empty: none."""
    level: Level = "brief"
    ranked: Ranked | None = None
    """The ranking. A table without one is not cut to a requested number of rows."""
    brief_rows: int | None = None
    """Rows of an unranked table in whole reports for people; None: all."""
    all_rows_in: str = ""
    """The place of all rows of a cut table; empty: the option for the number of rows."""
    split_key: str = ""
    """If set, people and HTML reports get a table per value of this column, without the column."""
    rows_for_people: tuple[int, ...] | None = None
    """Rows for people; None: all."""
    note_for_people: str = ""
    """Remark on `rows_for_people`, for people only."""

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.data[self.columns[0].key]) if self.columns else 0

    def __repr__(self) -> str:
        cells = f"{len(self):,} of {self.total_rows:,} rows, {len(self.columns)} columns"
        return cut(f"<Table {self.name}: {cells}>")

    @property
    def table(self) -> pd.DataFrame:
        """Return a DataFrame with the main columns first; unknown values are NA."""

        return frame(self.columns, self.data)

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield the rows as tuples in column order."""
        return zip(*(self.data[column.key] for column in self.columns), strict=True)

    def head(self, count: int) -> Table:
        """Return the first `count` rows as a table; `total_rows` stays."""
        data, rows = {key: values[:count] for key, values in self.data.items()}, self.rows_for_people
        return replace(self, data=data, rows_for_people=rows and tuple(row for row in rows if row < count))

    def only(self, rows: Sequence[int]) -> Table:
        """Return these rows as a complete table, for people too."""
        data = {key: [values[row] for row in rows] for key, values in self.data.items()}
        return replace(self, data=data, total_rows=len(rows), rows_for_people=None)


def table_of(name: str, title: str, columns: Sequence[Column], data: Data, **attributes: Any) -> Table:
    """Return a table with the declared columns of `data` and all rows; `attributes` are other fields of Table."""
    rows = len(data[columns[0].key])
    return Table(name, title, tuple(columns), {column.key: data[column.key] for column in columns}, rows, **attributes)


_LEVELS = ("brief", "full", "data")
_DTYPES = {int: "Int64", float: "Float64", bool: "boolean"}


def frame(columns: Iterable[Column], data: Data) -> pd.DataFrame:
    """Return the columns as a DataFrame, main columns first; unknown values are NA in every type."""
    import pandas as pd

    ordered = sorted(columns, key=lambda column: _LEVELS.index(column.level))
    # Names in a profile may be invalid Unicode, which Arrow's strings reject.
    dtypes: dict[type, Any] = {**_DTYPES, str: pd.StringDtype("python")}
    arrays = {}
    for each in ordered:
        cells = [None if isinstance(cell, float) and not math.isfinite(cell) else cell for cell in data[each.key]]
        arrays[each.key] = pd.array(cells, dtype="UInt64" if each.is_id else dtypes[each.dtype])
    return pd.DataFrame(arrays)


class Declaration(Protocol):
    """The part of a table's declaration (a `tfperf.TableSpec`) that a result needs."""

    @property
    def name(self) -> str:
        """Return the name of the table."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """Return the columns."""

    def of(self, data: Data) -> Table:
        """Return a table of these columns."""


class DeclaredTable(Shown):
    """A result that is also a table: `home` names the section and the table that declares its columns."""

    __slots__ = ()
    home: ClassVar[tuple[str, str]]

    @property
    def table(self) -> pd.DataFrame:
        """Return a DataFrame with the main columns first, as in docs/csv-files.md; times are in milliseconds.

        Even without rows, it has all columns, of type Int64, Float64, string or boolean; unknown values are NA.
        """
        return self.as_table().table

    def as_table(self) -> Table:
        """Return the table of the report; without rows if the profile has no such table."""
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
    """A number in a text: one quantity per `key` (its meaning), unit and `of` (its subject)."""

    key: str
    value: float | None
    unit: Literal["%", "ms"] = "%"
    of: str = ""

    def __str__(self) -> str:
        """Format it with its unit: `64.4%`, `19.4 ms`."""
        if self.value is None:
            return "-"
        return f"{format_percent(self.value)}%" if self.unit == "%" else f"{format_ms(self.value)} ms"


class Fact(Shown, Struct, frozen=True):
    """One named value, displayed on a line: `Average step time  15.9 ms`."""

    key: str
    title: str
    value: float | int | str | bool | None
    unit: Unit = ""
    note: str = ""
    level: Level = "brief"
    quantities: tuple[Quantity, ...] = ()
    """Its numbers that other places repeat, and every percentage in its note."""


class Finding(Shown, Struct, frozen=True):
    """A conclusion in words with its number, and an action."""

    code: str
    severity: Severity
    text: str
    action: str = ""
    level: Level = "brief"
    causes: tuple[str, ...] = ()
    """Codes of the causes that it is evidence for: no problem of its own. Their actions replace its own, if any."""
    quantities: tuple[Quantity, ...] = ()
    """The numbers in its text and action: every percentage, and every time that other places repeat."""
    cause_titles: tuple[str, ...] = ()
    """Names of `causes`; empty in a report without the diagnosis, which decides which of them apply."""
    url: str = ""
    """Documentation of the action; empty if there is none."""

    @property
    def see(self) -> str:
        """Return a reference to its causes in the diagnosis; empty without causes, or with an action of its own."""
        if not self.causes or self.action:
            return ""
        *others, last = self.cause_titles or ("",)
        named = f"{', '.join(others)} or {last}" if others else last
        return f"{named} in -s diagnosis" if named else "-s diagnosis"


class StepChart(Struct, frozen=True):
    """Stacked bars, one per step: `series` maps a category title to its milliseconds per step."""

    title: str
    labels: tuple[str, ...]
    series: Mapping[str, Sequence[float]]
    flags: tuple[str, ...]
    """Per step: empty, or why it is not averaged ("partial", "retrace", ...)."""
    kinds: tuple[str, ...] = ()
    """Per step: its kind ("train", "eval"); empty if all have the same."""
    averaged: Sequence[bool] = ()
    """Per step: whether the headline figures use it; empty: those without a flag are."""
    level: Level = "brief"


class BarChart(Struct, frozen=True):
    """One bar per label; values are in `unit`, None is unknown."""

    title: str
    unit: Unit
    labels: tuple[str, ...]
    values: tuple[float | None, ...]
    level: Level = "brief"


class GroupedBars(Struct, frozen=True):
    """Adjacent bars for each label, one per series ("before", "after"); None is unknown."""

    title: str
    unit: Unit
    labels: tuple[str, ...]
    series: Mapping[str, tuple[float | None, ...]]
    level: Level = "brief"


class Segment(Struct, frozen=True, kw_only=True):
    """A part of a whole: `value` in the unit of its bar, of which the first fix likely removes `saved`.

    `share` is its percentage as text, as in the sentence about the cause `code` (empty: no cause explains the time).
    """

    role: Role
    title: str
    value: float
    share: str
    saved: float = 0.0
    code: str = ""
    categories: tuple[str, ...] = ()
    """Titles of the categories that the time of the cause belongs to."""


class SegmentBar(Struct, frozen=True, kw_only=True):
    """A whole cut into segments, in the order of `palette.ROLES`.

    `spread` has the 5th percentile, the median and the 95th percentile of the wholes, and `values` each of them, but
    not for an average over hosts.
    """

    title: str
    short_title: str
    unit: Unit
    total: float
    segments: tuple[Segment, ...]
    spread: tuple[float, float, float] | None = None
    values: tuple[float, ...] = ()
    level: Level = "brief"


class ChangedPart(Struct, frozen=True, kw_only=True):
    """A part of a whole in two runs, in the unit of its chart."""

    role: Role
    title: str
    before: float
    after: float

    @property
    def change(self) -> float:
        """Return after - before."""
        return self.after - self.before


class ComparedRun(Struct, frozen=True, kw_only=True):
    """A run of a comparison: the statistic of its step times, and the times of its steps in order.

    `change` compares it with the first run; empty for the first one, and without an interval.
    """

    label: str
    value: float | None
    change: str
    values: tuple[float, ...]


class ComparisonChart(Struct, frozen=True, kw_only=True):
    """A change from the first run to the last: its size, its parts, and the step times of every run.

    The parts add up to the mean step time of each of the two runs; there are none if they cannot be compared.
    """

    title: str
    direction: Literal["faster", "slower", "same", "unknown"]
    headline: str
    times: str
    """The compared statistic before and after: `19.4 -> 6.32 ms`; empty if unknown."""
    detail: str
    unit: Unit
    runs: tuple[ComparedRun, ...]
    parts: tuple[ChangedPart, ...] = ()
    remark: str = ""
    """What else differs between the runs."""
    is_fair: bool = True
    level: Level = "brief"


Status = Literal["pass", "breach", "unknown"]
RESULTS: dict[Status, str] = {"pass": "PASS", "breach": "FAIL", "unknown": "UNKNOWN"}
"""Words for the result of a limit, and of a check."""


class Gauge(Struct, frozen=True, kw_only=True):
    """A limit with the measured value; `share` and `bound_share` are places on its axis from 0 to 1.

    Both are None if there is no number to draw.
    """

    limit: str
    measured: str
    status: Status
    share: float | None = None
    bound_share: float | None = None


class GaugeChart(Struct, frozen=True, kw_only=True):
    """The result of a check in one line, and a gauge per limit. In a terminal, it precedes all other output."""

    title: str
    status: Status
    headline: str
    gauges: tuple[Gauge, ...]
    level: Level = "brief"


class Change(Struct, frozen=True, kw_only=True):
    """A change of the program: `after` is the time in ms with it, at best and at worst, if `condition` holds.

    `of` completes the time in words, such as "for the same number of examples". `snippet` is code to type: lines that
    start with `+ `, `- ` or two spaces, as in a diff.
    """

    text: str
    after: tuple[float, float] | None = None
    of: str = ""
    condition: str = ""
    snippet: str = ""
    url: str = ""


class Card(Struct, frozen=True, kw_only=True):
    """A cause of lost time and its changes, the best one first.

    `before` is the current time in ms of `whole`. The first change saves `saved` ms of the cause's own time, at least
    and at most, or nothing that is known; the savings of cards with the same `whole` do not overlap. `see` names the
    sections with the evidence.
    """

    code: str
    title: str
    role: Role
    severity: Severity
    cost: str
    detail: str
    confidence: str
    whole: str
    before: float
    saved: tuple[float, float] | None
    changes: tuple[Change, ...]
    see: tuple[str, ...] = ()


class Sparkline(Struct, frozen=True, kw_only=True):
    """A value over time in one row: each value lasts from its time (ms) to the next; `low` and `high` are the scale.

    `span` is the time axis, for charts with one in common; None: from the first time to the last. With `x_title`, the
    times are other numbers, and this is their name.
    """

    title: str
    times: tuple[float, ...]
    values: tuple[float, ...]
    low: float
    high: float
    unit: Unit = ""
    span: tuple[float, float] | None = None
    x_title: str = ""
    level: Level = "brief"


class LogChart(Struct, frozen=True, kw_only=True):
    """Named points on two logarithmic axes, and lines; values that are not positive are omitted.

    `weights` has the size of each point, in percent of the whole: `weight_title` says of what. `remark` says what is
    not drawn, and why.
    """

    title: str
    x_title: str
    y_title: str
    points: tuple[tuple[str, float, float], ...]
    """(name, x, y)."""
    lines: Mapping[str, tuple[tuple[float, float], ...]]
    weights: tuple[float, ...] = ()
    weight_title: str = ""
    remark: str = ""
    level: Level = "brief"


class FlameChart(Struct, frozen=True, kw_only=True):
    """Nested boxes in preorder, the root first: a flame graph, or a tree with bars.

    `starts` and `widths` are in `unit`; `own` is a box without the boxes inside. `before` is each box's width in the
    compared run, if any. `omitted` is the number of narrower boxes that are not included. In a comparison, `totals` are
    the values of this run: 0 for a box of the compared run only, whose width is its value there. Boxes around it are
    wider than their value.
    """

    title: str
    unit: Unit
    names: tuple[str, ...]
    labels: tuple[str, ...]
    depths: tuple[int, ...]
    starts: tuple[float, ...]
    widths: tuple[float, ...]
    own: tuple[float, ...]
    before: tuple[float, ...] = ()
    totals: tuple[float, ...] = ()
    omitted: int = 0
    level: Level = "brief"


class Ribbon(Struct, frozen=True, kw_only=True):
    """The time of a step by category, in consecutive spans; `category` is an index into `titles`."""

    title: str
    titles: tuple[str, ...]
    category: Int64s
    start_ns: Int64s
    end_ns: Int64s

    def title_at(self, start_ns: int) -> str:
        """Return the category of the span that starts at this time, not of an empty one before it."""
        return self.titles[int(self.category[self.start_ns.searchsorted(start_ns, side="right") - 1])]


class Lane(Struct, frozen=True, kw_only=True):
    """A thread, a stream or similar: `rows` of blocks, nested ones below their parents."""

    title: str
    rows: int
    busy_percent: float


class LaneGroup(Struct, frozen=True, kw_only=True):
    """Lanes with the same role, busiest first. `load` is their utilization in equal parts of the step, in percent."""

    title: str
    lanes: tuple[Lane, ...]
    is_open: bool
    load: tuple[int, ...]
    omitted: int = 0
    """Number of lanes that are not drawn."""


class Blocks(Struct, frozen=True, eq=False, kw_only=True):
    """All blocks at one level of detail: consecutive events shorter than `finest_ns` are one block.

    `row` counts the rows of all lanes of all groups. A block of several events (`count`) has the name that takes most
    of it, and `self_ns` is their total duration; for one event, its self time.
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
    """Properties of all blocks with a name: the `kind` (for the color), and the type and name of their op."""

    name: str
    kind: str
    type: str = ""
    op: str = ""


class Links(Struct, frozen=True, eq=False, kw_only=True):
    """Links between events: `kind` is an index into `kinds`, ends are a row and a time inside the event."""

    kinds: tuple[str, ...]
    kind: Int64s
    from_row: Int32s
    from_ns: Int64s
    to_row: Int32s
    to_ns: Int64s
    omitted: int = 0


class MemoryCurve(Struct, frozen=True):
    """Bytes in use of an allocator; each value lasts until the next time."""

    title: str
    times_ns: Int64s
    used_bytes: Int64s


class StepPicture(Struct, frozen=True, eq=False, kw_only=True):
    """A step as swim lanes, `levels` from coarse to fine. `places`: a cause's costliest span, and its total time."""

    title: str
    host: str
    step: int
    duration_ns: int
    categories: Mapping[str, int]
    """Nanoseconds per category by title, as in the table of steps; unknown ones are missing."""
    ribbons: tuple[Ribbon, ...]
    groups: tuple[LaneGroup, ...]
    levels: tuple[Blocks, ...]
    names: tuple[BlockName, ...]
    notes: tuple[str, ...]
    links: Links
    memory: tuple[MemoryCurve, ...] = ()
    places: Mapping[str, tuple[int, int, int]] = {}
    remarks: tuple[str, ...] = ()
    """Parts that are not drawn, with the reason."""
    is_requested: bool = False
    """Whether the user selected the step; the page then opens on it."""
    level: Literal["brief", "full", "data"] = "brief"


Chart = (StepChart | SegmentBar | ComparisonChart | GaugeChart | BarChart | GroupedBars) | (
    Sparkline | LogChart | FlameChart | StepPicture
)


class Section(Shown, Struct, frozen=True):
    """The output of `-s NAME`: findings, facts, charts, tables and notes, in this order."""

    name: str
    title: str
    findings: tuple[Finding, ...] = ()
    facts: tuple[Fact, ...] = ()
    cards: tuple[Card, ...] = ()
    """Pages have them in place of the tables, and of the findings after the first one."""
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    detail_notes: tuple[str, ...] = ()
    """Notes that whole reports for people omit."""
    pointer: str = ""
    """Where to read more: the last line of the section in a whole report."""
    level: Level = "brief"
    """full: only if the section is selected by name, and in JSON and CSV."""
    is_lead: bool = False
    """Whether the section is the first screen, and comes first in documents."""


class Deferred(Mapping[str, Any]):
    """A mapping that is computed on first access, because only some formats need it."""

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
    """A whole analysis. `source` describes its input, `summary` contains the fixed JSON keys."""

    source: Mapping[str, Any]
    summary: Mapping[str, Any]
    sections: tuple[Section, ...] = ()
    omitted: tuple[str, ...] = ()
    """A line with the reason for each unavailable section of another package."""
    documents: Mapping[str, Any] = {}
    """Top-level objects of the JSON document by key."""

    def __repr__(self) -> str:
        return cut(
            f"<Report of {counted(len(self.sections), 'section')}: {', '.join(each.name for each in self.sections)}>"
        )

    def tables(self) -> Iterator[Table]:
        """Iterate over every table of every section."""
        for section in self.sections:
            yield from section.tables
