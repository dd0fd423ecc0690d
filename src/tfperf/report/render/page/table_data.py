"""A table as data in the page: columns, strings once, numbers with the digits that are shown, compressed.

    {"columns": [{"title", "unit", "main", "tree", "whole", "kind", ...}], "depths": [0, 1, ...] or null}

`whole` is the number of the column that has the whole names of what a column shortens, or null.

A column of kind `number` has `values`, null for what is unknown. One of kind `text` has `words`, all different, and
`places`: for each row the place of its word, or -1. In a long table numbers are cut to six digits, two more than are
shown.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from msgspec.structs import replace

from tfperf.report.model import Column, Table
from tfperf.report.render.text_table import header, main_columns
from tfperf.report.render.values import Plain, brief, cell_text, plain

LONGEST_NAME = 500
"""Characters of a name in a table or a chart; CSV files have the whole of it."""
_EXACT = 10**15
"""Larger whole numbers travel as text: the page shows them as floats, and soon JavaScript cannot tell them apart."""
_LONG = 2_000
_MANY_CELLS = 2_000_000
_SMALLEST_SHARE = 0.5
_SPARE = 0.95

JsonObject = dict[str, Any]


class PackedTable(NamedTuple):
    """A table as it travels: `table` may have fewer rows and columns than the report's own."""

    table: Table
    base64: str
    """Base64 of gzip of JSON."""
    has_all_columns: bool = True


def pack(table: Table) -> PackedTable:
    """Return the whole table, or that with the main columns if the whole could never fit into a page."""
    # Encoding what does not fit takes seconds.
    if len(table) * len(table.columns) > _MANY_CELLS:
        return _without_other_columns(table)
    return PackedTable(table, _encoded(table))


def fit(tables: Sequence[PackedTable], room: int) -> list[PackedTable]:
    """Return the tables in at most `room` bytes: the largest lose first all but their main columns, then rows.

    What a table without any row takes stays, so a room of nothing at all is not kept.
    """
    packed = list(tables)
    while (excess := sum(len(each.base64) for each in packed) - room) > 0:
        largest = max(range(len(packed)), key=lambda number: len(packed[number].base64))
        if not len(packed[largest].table):
            break
        packed[largest] = _smaller(packed[largest], excess)
    return packed


def plain_items(values: Sequence[Any]) -> list[Any]:
    """Return `plain` of each value; what is so already, as most columns are, is not looked at one by one."""
    items = values.tolist() if hasattr(values, "tolist") else list(values)
    if set(map(type, items)) <= {int, str, type(None)}:
        return items
    return [(item if math.isfinite(item) else None) if type(item) is float else plain(item) for item in items]


def _without_other_columns(table: Table) -> PackedTable:
    main = replace(table, columns=main_columns(table))
    return PackedTable(main, _encoded(main), has_all_columns=len(main.columns) == len(table.columns))


def _smaller(packed: PackedTable, excess: int) -> PackedTable:
    """Return the table with its main columns only; if it has no others, with fewer rows, but half of them at least."""
    table, size = packed.table, len(packed.base64)
    if len(main_columns(table)) < len(table.columns):
        return _without_other_columns(table)
    share = max((size - excess) / size * _SPARE, _SMALLEST_SHARE)
    shorter = table.head(int(len(table) * share))
    return packed._replace(table=shorter, base64=_encoded(shorter))


def _encoded(table: Table) -> str:
    text = json.dumps(_table_data(table), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    # With the time of packing in it, two pages of one report would differ.
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


def _table_data(table: Table) -> JsonObject:
    depth_keys = [column.depth_key for column in table.columns if column.depth_key]
    main = {column.key for column in main_columns(table)}
    columns = [
        {
            "title": brief(header(column), LONGEST_NAME),
            "unit": column.unit,
            "main": column.key in main,
            "tree": bool(column.depth_key),
            "whole": next((at for at, other in enumerate(table.columns) if other.key == column.whole_key), None),
            **_column_data(table.data[column.key], column, is_long=len(table) > _LONG),
        }
        for column in table.columns
    ]
    depths = [int(plain(depth) or 0) for depth in table.data[depth_keys[0]]] if depth_keys else None
    return {"columns": columns, "depths": depths}


def _column_data(values: Sequence[Any], column: Column, *, is_long: bool) -> JsonObject:
    """Return the values of a column: numbers as they are, all else as texts."""
    items = plain_items(values)
    kinds = set(map(type, items))
    is_exact = all(-_EXACT < item < _EXACT for item in items if type(item) is int)
    if kinds <= {int, float, type(None)} and kinds & {int, float} and is_exact:
        if is_long:
            items = [float(f"{item:.6g}") if type(item) is float else item for item in items]
        return {"kind": "number", "values": items}
    return _words(items, column)


def _words(items: Sequence[Plain], column: Column) -> JsonObject:
    """Return distinct texts and where they stand; what differs only in a part that is cut away becomes one."""

    @lru_cache(maxsize=None, typed=True)
    def text(item: Plain) -> str:
        return brief(cell_text(item, column.unit), LONGEST_NAME)

    words: dict[str, int] = {}
    places = [-1 if item is None else words.setdefault(text(item), len(words)) for item in items]
    return {"kind": "text", "words": list(words), "places": places}
