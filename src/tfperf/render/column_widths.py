"""How a table shares a line: number columns get what they need, text columns the rest.

Numbers are never wrapped or cut. Where the whole does not fit, the headers of number columns first go onto
two lines; then wide text columns give way, and nothing else does. Where even that is too much, the table is
wider than asked.
"""

from __future__ import annotations

from tfperf.render.text import cells
from tfperf.render.values import TextTable

GAP = 2
SMALLEST_TEXT = 8
LONGEST_HEAD = 16


def column_widths(table: TextTable, width: int) -> list[int]:
    """Return the width of each column in cells, so that with the gaps they fill `width` if that can be."""
    bodies = [max(map(cells, column), default=0) for column in zip(*table.rows, strict=True)]
    full = [max(cells(header), body) for header, body in zip(table.headers, bodies, strict=True)]
    room = width - GAP * (len(full) - 1)
    if sum(full) <= room:
        return full
    heads = [min(two_line_width(header), LONGEST_HEAD) for header in table.headers]
    wrapped = [max(head, body) for head, body in zip(heads, bodies, strict=True)]
    for_text = room - sum(size for size, number in zip(wrapped, table.numeric, strict=True) if number)
    shared = iter(_share([size for size, number in zip(wrapped, table.numeric, strict=True) if not number], for_text))
    return [size if number else next(shared) for size, number in zip(wrapped, table.numeric, strict=True)]


def two_line_width(header: str) -> int:
    """Return the least width at which a header stands on two lines, broken at a space."""
    words = header.split(" ")
    splits = range(1, len(words) + 1)
    return min(max(cells(" ".join(words[:at])), cells(" ".join(words[at:]))) for at in splits)


def _share(sizes: list[int], room: int) -> list[int]:
    """Return sizes that fill the room: columns within an equal part keep theirs, the others share the rest.

    Of these the widest, as a rule the name of an op, gets twice as much.
    """
    wide = list(range(len(sizes)))
    while narrow := [at for at in wide if sizes[at] <= max(room, 0) // len(wide)]:
        room -= sum(sizes[at] for at in narrow)
        wide = [at for at in wide if at not in narrow]
    if not wide:
        return sizes
    widest = max(wide, key=sizes.__getitem__)
    parts = {at: max(room // (len(wide) + 1), SMALLEST_TEXT) for at in wide}
    parts[widest] = max(room - sum(parts.values()) + parts[widest], SMALLEST_TEXT)
    return [min(size, parts.get(at, size)) for at, size in enumerate(sizes)]
