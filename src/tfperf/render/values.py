"""Values as people read them in the terminal and in Markdown, and plain Python values for JSON and CSV."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from tfperf.render.text import safe
from tfperf.render.tree import ASCII, Branches, tree_texts
from tfperf.report.model import Column, Fact, Report, Table
from tfperf.units import format_bytes, format_ms, format_percent

Plain = float | int | str | bool | None

NOT_KNOWN = "-"

_LISTED_ITEMS = 4


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table as text: one-line cells that are safe to show, and which columns are right-aligned numbers."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[bool, ...]


def plain(value: Any) -> Plain:
    """Return a Python value for a numpy scalar; NaN and the infinities are not known: None."""
    item = value.item() if hasattr(value, "item") else value
    if isinstance(item, float):
        return item if math.isfinite(item) else None
    return item if item is None or isinstance(item, (bool, int, str)) else str(item)


def cell_text(value: Any, unit: str) -> str:
    """Show one value without its unit, on one line and safe to print."""
    item = plain(value)
    if item is None:
        return NOT_KNOWN
    if isinstance(item, bool):
        return "yes" if item else "no"
    if isinstance(item, str):
        return safe(item)
    if unit in ("ms", "us"):
        return format_ms(item)
    if unit == "%":
        return format_percent(item)
    if unit == "bytes":
        return format_bytes(item)
    return _number_text(item, grouped=unit == "count")


def fact_text(fact: Fact) -> str:
    """Show a fact's value with its unit: `15.9 ms`, `63.4%`, `1,234`."""
    text = cell_text(fact.value, fact.unit)
    if text == NOT_KNOWN or fact.unit in ("", "count", "bytes"):
        return text
    return f"{text}%" if fact.unit == "%" else f"{text} {fact.unit}"


def text_table(table: Table, branches: Branches = ASCII) -> TextTable:
    """Return the compact columns of a table as text; `branches` draws those that are trees."""
    columns = [column for column in table.columns if column.compact]
    texts = [_column_texts(table, column, branches) for column in columns]
    return TextTable(
        headers=tuple(_header(column) for column in columns),
        rows=tuple(zip(*texts, strict=True)),
        numeric=tuple(bool(column.unit) or _all_numbers(table, column) for column in columns),
    )


def _column_texts(table: Table, column: Column, branches: Branches) -> list[str]:
    texts = [cell_text(value, column.unit) for value in table.data[column.key]]
    return tree_texts(texts, table.data[column.depth_key], branches) if column.depth_key else texts


def cut_note(table: Table) -> str:
    """Say how many rows were left out and how to get them; nothing where all are shown."""
    if len(table) >= table.total_rows:
        return ""
    return f"showing {len(table):,} of {table.total_rows:,}; --top {table.total_rows} shows all"


def source_facts(report: Report) -> tuple[Fact, ...]:
    """Return what was read as facts, in the words of the keys: `run_name` is `Run name`."""
    shown = ((key, value) for key, value in report.source.items() if not isinstance(value, dict))
    return tuple(Fact(key, key.replace("_", " ").capitalize(), _listed(value)) for key, value in shown)


def _listed(value: Any) -> Plain:
    """Return a list as its first items and a count of the others, anything else as it is."""
    if not isinstance(value, (list, tuple)):
        return plain(value)
    texts = [cell_text(item, "") for item in value[:_LISTED_ITEMS]]
    more = len(value) - len(texts)
    return ", ".join(texts) + (f" and {more:,} more" if more else "") or None


def _header(column: Column) -> str:
    """Return a column's title with its unit, unless the title says it: `ms/step`, `% of step`."""
    said = column.unit in ("", "count", "bytes", *re.split(r"[^\w%]", column.title))
    return safe(column.title if said else f"{column.title} ({column.unit})")


def _all_numbers(table: Table, column: Column) -> bool:
    """Tell whether a column without a unit holds numbers and nothing else."""
    values = [plain(value) for value in table.data[column.key]]
    known = [value for value in values if value is not None]
    return bool(known) and all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in known)


def _number_text(number: float, *, grouped: bool) -> str:
    """Show a number that has no unit; only counts get thousands separators, ids and step numbers do not."""
    if isinstance(number, float) and number.is_integer() and abs(number) < 1e15:
        number = int(number)
    if isinstance(number, int):
        return f"{number:,}" if grouped else str(number)
    return f"{number:,.1f}" if grouped and abs(number) >= 100 else f"{number:.6g}"
