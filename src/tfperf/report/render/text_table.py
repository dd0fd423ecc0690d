"""Tables as text: fit cells into a width, and lay out columns."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import zip_longest

from msgspec import Struct

from tfperf.report.model import Column, Table
from tfperf.report.palette import CATEGORY_STYLES, ROLES, Colours
from tfperf.report.render.values import ELLIPSIS, cell_text, for_people, plain

BAR_BLOCKS, BAR_ASCII = "▏▎▍▌▋▊▉█", "#"
PLAIN_ELLIPSIS = "..."
_AFTER_WORD = re.compile(r"(?<=[^/: _,<])[/: _,<]+")
_INSIDE_WORD = re.compile(r"(?<=[A-Za-z0-9])(?=[A-Z][a-z])|(?<=[a-z]-)(?=[a-z])")
"""Where a long name may be broken: after the end of a word, else before a capital."""
_WORDS = re.compile(r"[\w.,:;()%'/-]+( [\w.,:;()%'/-]+)+")
"""Words with spaces, as in sentences but not in kernel names with template arguments."""
_MOST_LINES = 3
"""Approximate maximum of folded lines per cell in a terminal."""
_ONE_CELL_EACH = re.compile("[ -~\xa1-\xac\xae-\u02ff\u2010-\u2027\u2500-\u259f]*")
"""Latin letters, dashes, dots and lines. Other text is measured by rich, whose import takes 10 ms."""
_LONG = 512
"""From this length on, rich does not remember the width of a text."""
_JOINERS = frozenset("\u200d\ufe0f")
"""Zero width joiner and variation selector 16."""


def cells(text: str) -> int:
    """Return the number of terminal columns of the text."""
    if text.isascii() or _ONE_CELL_EACH.fullmatch(text):
        return len(text)
    from rich.cells import cell_len

    # Of a long text, each different character is measured once, unless its width depends on its neighbours.
    if len(text) < _LONG or not _JOINERS.isdisjoint(text):
        return cell_len(text)
    return sum(cell_len(character) * count for character, count in Counter(text).items())


def shorten(text: str, width: int, *, mark: str = ELLIPSIS) -> str:
    """Fit text into `width` cells, replacing its middle by `mark`; its end, where op names differ, gets more."""
    if cells(text) <= width:
        return text
    room = max(width - cells(mark), 0)
    head = room // 3
    return begin_of(text, head) + mark + _suffix(text, room - head) if room else mark[:width]


def fold(text: str, width: int, *, hang: int = 0) -> list[str]:
    """Split text into lines of at most `width` cells, all but the first indented by `hang`, without loss.

    Lines end after a slash, colons, a space, a comma or an underscore. A longer word is broken before a capital, after
    a hyphen, or at the end of the line.
    """
    lines: list[str] = []
    indent, start = "", 0
    # Measure only text that may fit, not the whole rest, to avoid quadratic time for long names.
    while (rest := text[start : start + 4 * width + 1]) and (len(rest) > 4 * width or cells(indent + rest) > width):
        line = begin_of(rest, max(width - len(indent), 1)) or rest[0]
        for border in (_AFTER_WORD, _INSIDE_WORD):
            ends = [match.end() for match in border.finditer(rest[: len(line) + 1]) if 0 < match.end() <= len(line)]
            if ends:
                line = line[: ends[-1]]
                break
        lines.append(indent + line)
        start += len(line)
        indent = " " * hang
    return [*lines, indent + rest] if rest or not lines else lines


def wrap(text: str, width: int) -> list[str]:
    """Return text as lines of at most `width` cells, broken between words; a longer word is folded."""
    lines: list[str] = []
    for word in text.split(" "):
        joined = f"{lines[-1]} {word}" if lines else word
        if lines and cells(joined) <= width:
            lines[-1] = joined
        else:
            lines += fold(word, width)
    return lines


def _brackets(depth: int) -> str:
    return rf"\((?:[^()]|{_brackets(depth - 1)})*\)" if depth else r"\([^()]*\)"


_CALL = rf"(?:[^\s()]*\w{_brackets(2)})+[^\s()]*"
_COMMAND = r"\(?tfperf [a-z-]+(?: PATH)?(?: -[a-z] [^\s,;)]+| --[\w-]+)*\S*"
_NUMBER, _UNIT = r"[<>]?\d[\d.,]*", r"(?:ms|us|s|MB|GB|kB|GB/s|steps/s)\b\S*"
_TIME = rf"\(?(?:wall time per )?(?:step )?{_NUMBER}(?: -> {_NUMBER})?(?: to {_NUMBER})? {_UNIT}"
_SHORT_GROUP = rf"\([^()]{{0,30}}\w{_brackets(1)}[^()]{{0,9}}\)\S*"
_UNBROKEN = re.compile(rf"{_COMMAND}|{_CALL}|{_SHORT_GROUP}|{_TIME}|\(?-[a-z] \w+\S*|\S+")
"""Commands, calls with their arguments, numbers with their unit, and words."""


def wrap_prose(text: str, width: int, target: str = "") -> list[str]:
    """Return text as lines of at most `width` cells, with `target` for PATH in commands.

    A command is never broken, even if it is longer; code and numbers with a unit only if they are longer.
    """
    lines: list[str] = []
    for unit in _UNBROKEN.findall(text):
        is_command = unit.lstrip("(").startswith("tfperf ")
        named = unit.replace(" PATH", f" {target}") if is_command and target else unit
        parts = [named] if is_command or cells(named) <= width else wrap(named, width)
        for number, part in enumerate(parts):
            longer = f"{lines[-1]} {part}" if lines and not number else part
            if lines and not number and cells(longer) <= width:
                lines[-1] = longer
            else:
                lines.append(part)
    return lines or [""]


def begin_of(text: str, width: int) -> str:
    """Return the longest prefix that fits into `width` cells."""
    if text.isascii():
        return text[:width]
    # Combining marks take no cell, so a line could contain any number of them.
    longest = min(len(text), 4 * width)
    return next((text[: end - 1] for end in range(1, longest + 1) if cells(text[:end]) > width), text[:longest])


def _suffix(text: str, width: int) -> str:
    if text.isascii():
        return text[max(len(text) - width, 0) :]
    first = max(len(text) - 4 * width, 0)
    return next((text[start:] for start in range(first, len(text)) if cells(text[start:]) <= width), "")


class Part(Struct, frozen=True):
    """A piece of a line; `style` is a rich style, empty for plain text; `link` is an address, empty for no link."""

    text: str
    style: str = ""
    link: str = ""


Line = Sequence[Part]


def line_of(text: str, style: str = "") -> Line:
    """Return a line in one style."""
    return (Part(text, style),)


def plain_text(line: Line) -> str:
    """Return the line's text without styles and trailing spaces."""
    return "".join(part.text for part in line).rstrip(" ")


def width_of(line: Line) -> int:
    """Return the width of the line in cells."""
    return sum(cells(part.text) for part in line)


_BASIC_LOOKS = {
    **{each.look: ROLES[each.role].basic_look for each in CATEGORY_STYLES.values()},
    **{role.look: role.basic_look for role in ROLES.values()},
}
"""Colors of the palette in a terminal of 16 colors, whose nearest ones would be alike."""


def coloured_text(line: Line, colours: Colours = "16") -> str:
    """Return the line with escape codes around each styled part, in the nearest of the terminal's colors."""
    from rich.color import ColorSystem
    from rich.style import Style

    system = {"16": ColorSystem.STANDARD, "256": ColorSystem.EIGHT_BIT, "truecolor": ColorSystem.TRUECOLOR}[colours]
    texts = []
    for part in line:
        style = _BASIC_LOOKS.get(part.style, part.style) if colours == "16" else part.style
        texts.append(Style.parse(style).render(part.text, color_system=system) if style else part.text)
    return "".join(texts)


def joined(lines: Iterable[Line], *, colour: bool, colours: Colours = "16", links: bool = False) -> str:
    """Return the lines as text, each with a newline."""
    if links:
        lines = ([_linked(part) for part in line] for line in lines)
    if not colour:
        return "".join(f"{plain_text(line)}\n" for line in lines)
    return "".join(f"{coloured_text(line, colours)}\n" for line in lines)


def _linked(part: Part) -> Part:
    return part if not part.link else Part(f"\x1b]8;;{part.link}\x1b\\{part.text}\x1b]8;;\x1b\\", part.style)


_GAP = "  "
_SMALLEST_TEXT = 8
_LONGEST_HEADER = 16
_HEADER_LINES = (2, 3)
"""Lines for headers that do not fit on one."""
Cell = Sequence[str]
"""The lines of one cell."""


class TextTable(Struct, frozen=True):
    """A table as text: one-line cells that are safe to display, and which columns are right-aligned numbers."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[bool, ...]


class Branches(Struct, frozen=True):
    """Prefixes of names in a tree: for the name itself, and for the levels above it."""

    middle: str
    last: str
    passing: str
    nothing: str


LINES = Branches("├ ", "└ ", "│ ", "  ")
ASCII = Branches("|-", "`-", "| ", "  ")
DOTS = Branches("· ", "· ", "· ", "· ")
"""For Markdown, which drops leading spaces and interprets bars and backticks."""


def main_columns(table: Table) -> tuple[Column, ...]:
    """Return the columns of tables for people; the others are for pages and programs."""
    return tuple(column for column in table.columns if column.level != "data")


def text_table(table: Table, branches: Branches = ASCII) -> TextTable:
    """Return the main columns of a table as text; `branches` draws trees."""
    columns = main_columns(table)
    texts, numeric = [], []
    for column in columns:
        values = table.data[column.key]
        names = [cell_text(value, column.unit) for value in values]
        texts.append(tree_texts(names, table.data[column.depth_key], branches) if column.depth_key else names)
        kinds = set() if column.unit else {type(item) for item in map(plain, values) if item is not None}
        numeric.append(bool(column.unit) or (bool(kinds) and kinds <= {int, float}))
    return TextTable(tuple(map(header, columns)), tuple(zip(*texts, strict=True)), tuple(numeric))


def header(column: Column) -> str:
    """Return a column's title with its unit, unless the title contains it: `ms/step`, `% of step`."""
    is_named = column.unit in ("", "count", "bytes", *re.split(r"[^\w%]", column.title))
    return for_people(column.title if is_named else f"{column.title} ({column.unit})")


def cut_note(table: Table) -> str:
    """Return how many rows are shown, which, and how to get the others; empty if all are shown."""
    if len(table) >= table.total_rows:
        return ""
    everything = table.all_rows_in or f"--top {table.total_rows}"
    ranked, order = table.ranked, ""
    # State the ranking of hosts or devices; the ranking of other tables is visible.
    if ranked is not None and ranked.each and any(value is not None for value in table.data[ranked.by]):
        titles = (header(column) for column in table.columns if column.key == ranked.by)
        order = f", the {'least' if ranked.least_is_worst else 'largest'} {next(titles, ranked.by)} first"
    return f"showing {len(table):,} of {table.total_rows:,}{order}; {everything} shows all"


def tree_texts(names: Sequence[str], depths: Sequence[int], branches: Branches) -> list[str]:
    """Return the names with their branches; a name's parent is the last one of less depth, counted from 0."""
    texts: list[str] = []
    follows: list[bool] = []  # By level: whether another name of it follows before one of a lower level.
    for name, depth in zip(reversed(names), reversed(depths), strict=True):
        follows += [False] * (depth + 1 - len(follows))
        above = (branches.passing if goes_on else branches.nothing for goes_on in follows[1:depth])
        last = (branches.middle if follows[depth] else branches.last) if depth > 0 else ""
        texts.append("".join(above) + last + name)
        follows[depth:] = [True]
    return texts[::-1]


def table_lines(table: TextTable, width: int, *, interactive: bool) -> list[Line]:
    """Return the table as styled lines; a wide cell is cut for a terminal and folded elsewhere."""
    widths = column_widths(table, width)
    bodies = zip(zip(*table.rows, strict=True), widths, strict=True)
    columns = [_fitted(texts, size, interactive=interactive) for texts, size in bodies]
    # Files and pipes get ASCII, because their encoding is unknown.
    rule = _GAP.join(("─" if interactive else "-") * size for size in widths)
    headers = [wrap(header, size) for header, size in zip(table.headers, widths, strict=True)]
    depth = max(map(len, headers))
    standing = [[""] * (depth - len(header)) + header for header in headers]
    lines = [line_of(text, "bold") for text in _side_by_side(standing, widths, table.numeric)]
    lines.append(line_of(rule, "dim"))
    for row in zip(*columns, strict=True):
        lines += map(line_of, _side_by_side(row, widths, table.numeric))
    return lines


def fits(table: TextTable, width: int) -> bool:
    """Return whether the lines of the table are at most `width` cells wide."""
    widths = column_widths(table, width)
    return sum(widths) + len(_GAP) * (len(widths) - 1) <= width


def column_widths(table: TextTable, width: int) -> list[int]:
    """Return the width of each column in cells; with the gaps, they fill `width` if possible."""
    bodies = [max(map(cells, column), default=0) for column in zip(*table.rows, strict=True)]
    full = [max(cells(header), body) for header, body in zip(table.headers, bodies, strict=True)]
    room = width - len(_GAP) * (len(full) - 1)
    if sum(full) <= room:
        return full
    for lines in _HEADER_LINES:
        headers = [min(header_width(header, lines), _LONGEST_HEADER) for header in table.headers]
        widths = [max(header, body) for header, body in zip(headers, bodies, strict=True)]
        least = (
            size if is_number else min(size, _SMALLEST_TEXT)
            for size, is_number in zip(widths, table.numeric, strict=True)
        )
        if sum(least) <= room:
            break
    texts = [column for column, is_number in enumerate(table.numeric) if not is_number]
    taken = sum(widths) - sum(widths[column] for column in texts)
    for column, size in zip(texts, _shared([widths[column] for column in texts], room - taken), strict=True):
        widths[column] = size
    return widths


def header_width(header: str, lines: int) -> int:
    """Return the smallest width at which a header takes at most this number of lines, broken at spaces."""
    widths = range(max(map(cells, header.split(" "))), cells(header))
    return next((width for width in widths if len(wrap(header, width)) <= lines), cells(header))


def _shared(widths: list[int], room: int) -> list[int]:
    """Return widths that fill the room: narrow columns keep theirs, the widest (usually op names) gets two shares."""
    wide = list(range(len(widths)))
    while narrow := [column for column in wide if widths[column] <= max(room, 0) // len(wide)]:
        room -= sum(widths[column] for column in narrow)
        wide = [column for column in wide if column not in narrow]
    if not wide:
        return widths
    widest = max(wide, key=widths.__getitem__)
    limits = {column: max(room // (len(wide) + 1), _SMALLEST_TEXT) for column in wide}
    limits[widest] = max(room - sum(limits.values()) + limits[widest], _SMALLEST_TEXT)
    return [min(size, limits.get(column, size)) for column, size in enumerate(widths)]


def _fitted(texts: Sequence[str], width: int, *, interactive: bool) -> list[Cell]:
    """Return a column's cells, folded except in a terminal, where long names that stay distinct are cut."""
    cut = [shorten(text, width) for text in texts]
    meanings = Counter(short for short, _ in set(zip(cut, texts, strict=True)))
    fitted: list[Cell] = []
    for short, text in zip(cut, texts, strict=True):
        is_sentence = _WORDS.fullmatch(text) and cells(text) <= _MOST_LINES * width
        is_cut = interactive and meanings[short] == 1 and not is_sentence
        fitted.append([short] if is_cut else fold(text, width, hang=2))
    return fitted


def _side_by_side(row: Sequence[Cell], widths: Sequence[int], numeric: Sequence[bool]) -> list[str]:
    lines = []
    for texts in zip_longest(*row, fillvalue=""):
        filled = []
        for text, size, is_number in zip(texts, widths, numeric, strict=True):
            space = " " * (size - cells(text))
            filled.append(space + text if is_number else text + space)
        lines.append(_GAP.join(filled).rstrip(" "))
    return lines


def bar_text(share: float, room: int, *, interactive: bool) -> str:
    """Return a bar; a positive value has at least the smallest mark."""
    if not interactive:
        return BAR_ASCII * max(round(share * room), 1)
    eighths = max(round(share * room * 8), 1)
    return BAR_BLOCKS[-1] * (eighths // 8) + (BAR_BLOCKS[eighths % 8 - 1] if eighths % 8 else "")
