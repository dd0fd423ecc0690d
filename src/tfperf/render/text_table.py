"""A table as text: headers with units, one safe line per cell, trees drawn into the column of their names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from tfperf.render.safe_text import safe
from tfperf.render.values import cell_text, plain
from tfperf.report.model import Column, Table


class TextTable(NamedTuple):
    """A table as text: one-line cells that are safe to show, and which columns are right-aligned numbers."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[bool, ...]


class Branches(NamedTuple):
    """What is drawn before a name in a tree: for the name itself, and for the levels above it."""

    middle: str
    last: str
    passing: str
    nothing: str


LINES = Branches("├ ", "└ ", "│ ", "  ")
ASCII = Branches("|-", "`-", "| ", "  ")
DOTS = Branches("· ", "· ", "· ", "· ")
"""For Markdown, which drops leading spaces and reads bars and backticks as its own."""


def main_columns(table: Table) -> tuple[Column, ...]:
    """Return the columns that stand in a table for people; the others are for pages and programs."""
    return tuple(column for column in table.columns if column.level != "data")


def text_table(table: Table, branches: Branches = ASCII) -> TextTable:
    """Return the main columns of a table as text; `branches` draws those that are trees."""
    columns = main_columns(table)
    texts = []
    for column in columns:
        cells = [cell_text(value, column.unit) for value in table.data[column.key]]
        texts.append(tree_texts(cells, table.data[column.depth_key], branches) if column.depth_key else cells)
    return TextTable(
        headers=tuple(map(header, columns)),
        rows=tuple(zip(*texts, strict=True)),
        numeric=tuple(bool(column.unit) or _holds_numbers(table, column) for column in columns),
    )


def header(column: Column) -> str:
    """Return a column's title with its unit, unless the title names it: `ms/step`, `% of step`."""
    is_named = column.unit in ("", "count", "bytes", *re.split(r"[^\w%]", column.title))
    return safe(column.title if is_named else f"{column.title} ({column.unit})")


def cut_note(table: Table) -> str:
    """Say how many rows are shown and how to get the others; nothing where all are shown."""
    if len(table) >= table.total_rows:
        return ""
    return f"showing {len(table):,} of {table.total_rows:,}; --top {table.total_rows} shows all"


def tree_texts(names: Sequence[str], depths: Sequence[int], branches: Branches) -> list[str]:
    """Return the names with their branches; `depths` counts levels from 0, each name below the last of less depth."""
    texts = []
    for row, (name, depth) in enumerate(zip(names, depths, strict=True)):
        above = (
            branches.passing if _level_continues(depths, row, level) else branches.nothing for level in range(1, depth)
        )
        last = (branches.middle if _level_continues(depths, row, depth) else branches.last) if depth > 0 else ""
        texts.append("".join(above) + last + name)
    return texts


def _level_continues(depths: Sequence[int], row: int, level: int) -> bool:
    """Tell whether another name of this level follows before one of a lower level."""
    return next((depth for depth in depths[row + 1 :] if depth <= level), 0) == level


def _holds_numbers(table: Table, column: Column) -> bool:
    """Tell whether a column holds numbers and nothing else."""
    values = [item for item in map(plain, table.data[column.key]) if item is not None]
    return bool(values) and all(isinstance(item, (int, float)) and not isinstance(item, bool) for item in values)
