"""What a section and a table declare about themselves, and the one list of sections."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from io import FileIO
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.display import Shown
from tfperf.report.model import Column, Data, Ranked, Table, table_of

if TYPE_CHECKING:
    from tfperf.analysis.results import Results
else:  # help(TableSpec) looks the name up
    Results = Any

Function = Callable[..., Any] | str
"""A function, or where it is ("package.module:function"): then its module is imported when it is first called."""


def call(function: Function, *arguments: Any) -> Any:
    """Call a declared function."""
    return (_resolved(function) if isinstance(function, str) else function)(*arguments)


_resolved = cache(resolve_name)
"""Looking a function up takes longer than some of them take of a small host."""


class TableSpec(Shown, Struct, frozen=True, kw_only=True):
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
    ranked: Ranked | None = None
    """By which column it is ranked. People may cut a table that is; no other one."""
    brief_rows: int | None = None
    """How many rows a whole report for people has of a table that is not ranked, such as a list over time."""

    def build(self, results: Results, **attributes: Any) -> Table | None:
        """Return the table of a profile, None if it has none; `attributes` replace fields of the `Table`."""
        data = self.data(results)
        return None if data is None else replace(self.of(data), **attributes)

    def of(self, data: Data) -> Table:
        """Return the table of these columns, of which there may be more than are declared."""
        rows = {"ranked": self.ranked, "brief_rows": self.brief_rows}
        return table_of(self.name, self.title, self.columns, data, **rows)


def fields(columns: Iterable[Column], rows: Sequence[Any]) -> dict[str, Sequence[Any]]:
    """Return the columns of a table whose rows are objects: of each, the field of that name, None without one."""
    return {column.key: [getattr(row, column.key, None) for row in rows] for column in columns}


def present(*tables: Table | None) -> tuple[Table, ...]:
    """Return those of the tables that there are."""
    return tuple(table for table in tables if table is not None)


class SectionSpec(Shown, Struct, frozen=True, kw_only=True):
    """A section, declared: a question about a profile, and everything that answers it.

    `analyze(host)` gets a `tfperf.analysis.results.Host` and returns a small, picklable result; `combine(results)` gets
    those of all hosts and returns the result of the run. A section that concludes from others has `derive(results)`,
    with or without the two, and `results.combined(name)` for it. `build(results)` gets a
    `tfperf.analysis.results.Results` and returns a `tfperf.report.model.Section`. None of them prints, reads files or
    changes what it gets.
    """

    name: str
    title: str
    build: Function
    analyze: Function | None = None
    combine: Function | None = None
    combines_in_tree: bool = False
    """Whether `combine` also takes what it returned for some of the hosts. Many hosts need less memory then."""
    shorten: Function | None = None
    """shorten(result, most): of a host of many, the result with so many rows, and one for all others or none.

    It is the same object if it has no more rows."""
    derive: Function | None = None
    rests_on: tuple[str, ...] = ()
    """Sections whose results this one uses."""
    stats: frozenset[str] = frozenset()
    """Names of the stats that `analyze` reads, beyond those of steps."""
    tables: tuple[TableSpec, ...] = ()
    summarize: Function | None = None
    """summarize(results): of the section overview, the summary that a JSON document begins with."""
    without_device: str = ""
    """For a section about devices: the sentence in its place where no device recorded anything."""
    narrow: Function | None = None
    """narrow(result, before, after): the result over fewer steps; `before` and `after` are breakdowns of the host."""
    is_picture: bool = False
    """Whether it is made only where it is asked for by name, or for a format that shows pictures."""
    document: Function | None = None
    """document(results): an object at the top of the JSON document, under the name of the section."""


GROUP = "tfperf.sections"
OURS = (
    "diagnosis",
    "overview",
    "steps",
    "wall",
    "hosts",
    "batch",
    "idle",
    "input",
    "tfdata",
    "ops",
    "kernels",
    "xla",
    "roofline",
    "functions",
    "python",
    "memory",
    "host_threads",
    "environment",
    "gaps",
    "timeline",
)
"""The sections of tfperf, in the order of the report: each is a folder beside this file."""
LEADS = ("diagnosis",)
"""Those of them that are the answer: the first screen. Named here, so that no other section is imported for it."""
ANALYZED_FIRST = ("steps", "environment", "xla")
"""Those whose results the analysis of a host by others uses; by all other sections of tfperf, it goes in any order."""
UNREPORTED = {
    "op_sums": "tfperf.sections.ops.sums:OP_SUMS",
    "python_stacks": "tfperf.sections.python.analysis:STACKS",
    "step_sums": "tfperf.judge.compare.step_sums:STEP_SUMS",
}
"""Where sections are declared that no report has: only a command asks for what they find out."""


@cache
def _others() -> tuple[dict[str, SectionSpec], tuple[str, ...]]:
    """Return the sections of other packages, and why some of them are omitted."""
    specs: dict[str, SectionSpec] = {}
    omitted = []
    if not any(map(_declares_sections, sys.path)):
        return {}, ()
    from importlib.metadata import entry_points

    for point in entry_points(group=GROUP):
        try:
            spec = point.load()
            problem = _problem(spec, point.name, specs)
        except Exception as error:
            problem = described(error)
        if problem:
            omitted.append(omission(point.name, problem))
        else:
            specs[point.name] = spec
    return specs, tuple(omitted)


def _declares_sections(folder: str) -> bool:
    """Tell whether a package in a folder of sys.path declares sections: importlib.metadata takes 30 ms to import."""
    with suppress(OSError), os.scandir(folder or os.curdir) as entries:
        packages = [entry.path for entry in entries if entry.name.endswith("-info")]
        return any(map(_declares, packages))
    return False


def _declares(package: str) -> bool:
    try:
        with FileIO(f"{package}/entry_points.txt") as file:
            return f"[{GROUP}]".encode() in file.read()
    except OSError:
        return False


def described(error: Exception) -> str:
    """Return what a section of another package raised, in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def omission(section: str, reason: str) -> str:
    """Return the line that says that a section is missing, and why."""
    return f"section {section} is omitted: {reason}"


def _problem(spec: object, name: str, others: Iterable[str]) -> str:
    """Say what is wrong with the section of another package, nothing if it fits in."""
    if not isinstance(spec, SectionSpec):
        return f"it is {type(spec).__name__}, not a SectionSpec"
    if spec.name != name:
        return f"it calls itself {spec.name}"
    if is_ours(name) or name in others:
        return "another section has this name"
    if not name.isidentifier():
        return "its name is not an identifier"
    missing = [other for other in spec.rests_on if other not in OURS]
    if missing:
        return f"it rests on {missing[0]}, which is not a section of tfperf"
    taken = {table for ours in OURS for spec_of in (find_section(ours),) for table in _names(spec_of)}
    clash = next((table for table in _names(spec) if table in taken), None)
    return f"tfperf has a table {clash}" if clash else ""


def _names(spec: SectionSpec) -> list[str]:
    return [name for table in spec.tables for name in (table.name, *table.aliases)]


def section_names() -> tuple[str, ...]:
    """Return the names of all sections, in the order of the report: those of other packages come last."""
    return (*OURS, *_others()[0])


def is_ours(name: str) -> bool:
    """Tell whether a section is one of tfperf."""
    return name in OURS or name in UNREPORTED


def default_sections() -> tuple[str, ...]:
    """Return the names of the sections that are analyzed where none is named: all but pictures."""
    return tuple(name for name in section_names() if not find_section(name).is_picture)


def omitted_sections() -> tuple[str, ...]:
    """Return a line for each section of another package that cannot be used."""
    return _others()[1]


@cache
def find_section(name: str) -> SectionSpec:
    """Return the declaration of a section; imports its folder. Raises KeyError."""
    if is_ours(name):
        spec: SectionSpec = resolve_name(UNREPORTED.get(name, f"tfperf.sections.{name}:SECTION"))
        return spec
    return _others()[0][name]


def all_tables() -> tuple[TableSpec, ...]:
    """Return the declarations of the tables of all sections."""
    return tuple(table for name in section_names() for table in find_section(name).tables)


def find_table(name: str) -> tuple[str, TableSpec]:
    """Return the section that declares a table, and the declaration; `name` may be an alias. Raises KeyError."""
    for section in section_names():
        for table in find_section(section).tables:
            if name in (table.name, *table.aliases):
                return section, table
    raise KeyError(name)


def with_dependencies(names: Iterable[str]) -> tuple[str, ...]:
    """Return the sections and those that they rest on, each after those that it rests on."""
    ordered: dict[str, None] = {}

    def add(name: str) -> None:
        for other in find_section(name).rests_on:
            add(other)
        ordered[name] = None

    for name in names:
        add(name)
    return tuple(ordered)


def why_missing(section: str) -> str:
    """Say why there is no result of a section: it was not analyzed, or is none."""
    from tfperf.base.units import did_you_mean

    names = section_names()
    if section in names:
        return f"{section} was not analyzed; name it in the sections to load"
    return f"{section!r} is not a section: {did_you_mean(section, names) or 'tfperf.load(PATH).sections has all'}"
