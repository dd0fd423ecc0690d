"""The one list of sections: those of tfperf, and those of other packages (entry points `tfperf.sections`)."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from pkgutil import resolve_name

from tfperf.sections.spec import SectionSpec, TableSpec

GROUP = "tfperf.sections"
OURS = (
    "overview",
    "steps",
    "idle",
    "input",
    "tfdata",
    "ops",
    "kernels",
    "functions",
    "memory",
    "environment",
    "recommendations",
    "gaps",
)
"""The sections of tfperf, in the order of the report: each is a folder beside this file."""


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
    try:
        files = Path(folder).glob("*-info/entry_points.txt")
        return any(f"[{GROUP}]" in file.read_text(encoding="utf-8", errors="replace") for file in files)
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
    if name in OURS or name in others:
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


def omitted_sections() -> tuple[str, ...]:
    """Return a line for each section of another package that cannot be used."""
    return _others()[1]


@cache
def find_section(name: str) -> SectionSpec:
    """Return the declaration of a section; imports its folder. Raises KeyError."""
    if name in OURS:
        spec: SectionSpec = resolve_name(f"tfperf.sections.{name}:SECTION")
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
