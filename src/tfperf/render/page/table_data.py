"""A table as data in the page: columns, strings once, numbers with the digits that are shown, compressed.

    {"columns": [{"title", "unit", "compact", "tree", "kind", ...}], "depths": [0, 1, ...] or null}

A column of kind `number` has `values`, null for what is not known. One of kind `text` has `words`, all different, and
`at`: for each row the place of its word, or -1. In a long table numbers are cut to six digits, two more than are shown.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from tfperf.render.page.text import LONGEST_NAME
from tfperf.render.text import brief
from tfperf.render.values import Plain, cell_text, plain, text_table
from tfperf.report.model import Column, Table

_EXACT = 10**15
"""Larger whole numbers travel as text: the page shows them as floats, and soon JavaScript cannot tell them apart."""
_LONG = 2_000
_MANY_CELLS = 2_000_000
_SMALLEST_SHARE = 0.5
_SPARE = 0.95

Coded = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Island:
    """A table as it travels: `table` may have fewer rows and columns than the report's own."""

    table: Table
    data: str
    """Base64 of gzip of JSON."""
    all_columns: bool = True


def fit(tables: Sequence[Table], room: int) -> list[Island]:
    """Return the tables in at most `room` bytes: the largest lose first the columns that are hidden, then rows.

    What a table without any row takes stays, so a room of nothing at all is not kept.
    """
    islands = [_first_try(table) for table in tables]
    while (excess := sum(len(own.data) for own in islands) - room) > 0:
        largest = max(range(len(islands)), key=lambda at: len(islands[at].data))
        if not len(islands[largest].table):
            break
        islands[largest] = _smaller(islands[largest], excess)
    return islands


def headers(table: Table) -> tuple[str, ...]:
    """Return the title of each column with its unit, hidden columns included."""
    columns = tuple(replace(column, compact=True, depth_key="") for column in table.columns)
    return text_table(Table("", "", columns, {column.key: () for column in columns}, 0)).headers


def _first_try(table: Table) -> Island:
    # Encoding what could never fit takes seconds.
    if len(table) * len(table.columns) > _MANY_CELLS:
        return _without_hidden(table)
    return Island(table, _packed(table))


def _without_hidden(table: Table) -> Island:
    kept = replace(table, columns=tuple(column for column in table.columns if column.compact))
    return Island(kept, _packed(kept), all_columns=len(kept.columns) == len(table.columns))


def _smaller(island: Island, excess: int) -> Island:
    """Return the table without its hidden columns; if it has none, with less rows, but half of them at least."""
    table, size = island.table, len(island.data)
    if any(not column.compact for column in table.columns):
        return _without_hidden(table)
    share = max((size - excess) / size * _SPARE, _SMALLEST_SHARE)
    kept = table.head(int(len(table) * share))
    return replace(island, table=kept, data=_packed(kept))


def _packed(table: Table) -> str:
    # A time of packing would make two pages of one report differ.
    coded = json.dumps(_coded(table), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return base64.b64encode(gzip.compress(coded.encode(), 6, mtime=0)).decode()


def _coded(table: Table) -> Coded:
    trees = [column.depth_key for column in table.columns if column.depth_key]
    depths = [int(plain(depth) or 0) for depth in table.data[trees[0]]] if trees else None
    titles = headers(table)
    columns = [
        {
            "title": brief(title, LONGEST_NAME),
            "unit": column.unit,
            "compact": column.compact,
            "tree": bool(column.depth_key),
            **_values(table.data[column.key], column, is_long=len(table) > _LONG),
        }
        for title, column in zip(titles, table.columns, strict=True)
    ]
    return {"columns": columns, "depths": depths}


def _values(values: Sequence[Any], column: Column, *, is_long: bool) -> Coded:
    items = plain_items(values)
    kinds = set(map(type, items))
    if kinds <= {int, float, type(None)} and kinds & {int, float} and _is_exact(items):
        return {"kind": "number", "values": [_digits(item) for item in items] if is_long else items}
    return _words(items, column)


def plain_items(values: Sequence[Any]) -> list[Any]:
    """Return `plain` of each value; what is so already, as most columns are, is not looked at one by one."""
    items = values.tolist() if hasattr(values, "tolist") else list(values)
    kinds = set(map(type, items))
    if kinds <= {int, str, type(None)}:
        return items
    return [_finite(item) if type(item) is float else plain(item) for item in items]


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _is_exact(items: Sequence[Any]) -> bool:
    return all(-_EXACT < item < _EXACT for item in items if type(item) is int)


def _digits(number: Any) -> Any:
    return float(f"{number:.6g}") if type(number) is float else number


def _words(items: Sequence[Plain], column: Column) -> Coded:
    """Return distinct texts and where they stand; what differs only in a part that is cut away becomes one."""

    @lru_cache(maxsize=None, typed=True)
    def text(item: Plain) -> str:
        return brief(cell_text(item, column.unit), LONGEST_NAME)

    places: dict[str, int] = {}
    at = [-1 if item is None else places.setdefault(text(item), len(places)) for item in items]
    return {"kind": "text", "words": list(places), "at": at}
