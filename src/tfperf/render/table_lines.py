"""A table as lines of a terminal: a header, a rule and rows, in columns of the widths that `column_widths` gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest

from rich.text import Text

from tfperf.render.column_widths import GAP, column_widths
from tfperf.render.text import cells, fold, shorten, wrap
from tfperf.render.values import TextTable

Cell = Sequence[str]
"""The lines of one cell."""


def table_lines(table: TextTable, width: int, *, interactive: bool) -> list[Text]:
    """Return the table as styled lines; a wide cell is cut for a person's terminal and folded elsewhere."""
    sizes = column_widths(table, width)
    # Files and pipes get ASCII: the encoding of their reader is not known.
    rule = (" " * GAP).join(("─" if interactive else "-") * size for size in sizes)
    columns = [
        _fitted(texts, size, interactive=interactive)
        for texts, size in zip(zip(*table.rows, strict=True), sizes, strict=True)
    ]
    lines = [Text(line, style="bold") for line in _joined(_heads(table, sizes), sizes, numeric=table.numeric)]
    lines.append(Text(rule, style="dim"))
    for row in zip(*columns, strict=True):
        lines += map(Text, _joined(row, sizes, numeric=table.numeric))
    return lines


def _heads(table: TextTable, sizes: Sequence[int]) -> list[Cell]:
    """Return the headers, wrapped to their columns and standing on the rule."""
    heads = [wrap(header, size) for header, size in zip(table.headers, sizes, strict=True)]
    depth = max(map(len, heads))
    return [[""] * (depth - len(head)) + head for head in heads]


def _fitted(texts: Sequence[str], width: int, *, interactive: bool) -> list[Cell]:
    """Return a column's cells: one line each for a person, unless two names would look the same; else folded."""
    cut = [shorten(text, width) for text in texts]
    meant = Counter(short for short, _ in set(zip(cut, texts, strict=True)))
    return [
        [short] if interactive and meant[short] == 1 else fold(text, width, hang=2)
        for short, text in zip(cut, texts, strict=True)
    ]


def _joined(row: Sequence[Cell], sizes: Sequence[int], *, numeric: Sequence[bool]) -> list[str]:
    """Return a row's lines, each cell filled up to its column: numbers to the right, text to the left."""
    lines = []
    for parts in zip_longest(*row, fillvalue=""):
        spaces = [" " * (size - cells(part)) for part, size in zip(parts, sizes, strict=True)]
        filled = [
            space + part if number else part + space for part, space, number in zip(parts, spaces, numeric, strict=True)
        ]
        lines.append((" " * GAP).join(filled).rstrip(" "))
    return lines
