"""How text fits into the cells of a terminal: measured, cut in the middle, folded, or wrapped between words.

Text is made safe first (`safe_text.safe`): an escape is longer than the character it shows. Lines are parts of text,
each with a style ("bold red"); rich, which knows the escape codes, is imported only where there is colour.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tfperf.render.safe_text import ELLIPSIS

PLAIN_ELLIPSIS = "..."

_PAUSES = "/: "
_ONE_CELL_EACH = re.compile("[ -~\xa1-\xac\xae-\u02ff\u2010-\u2027\u2500-\u259f]*")
"""Latin letters, dashes, dots and lines. To measure anything else, rich is imported, which takes 10 ms."""


def cells(text: str) -> int:
    """Return how many columns of a terminal the text takes."""
    if text.isascii() or _ONE_CELL_EACH.fullmatch(text):
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def shorten(text: str, width: int, *, mark: str = ELLIPSIS) -> str:
    """Return text in at most `width` cells, its middle replaced by `mark` so that both ends stay visible.

    The end gets two thirds: it is where op names differ.
    """
    if cells(text) <= width:
        return text
    room = max(width - cells(mark), 0)
    head = room // 3
    return _prefix(text, head) + mark + _suffix(text, room - head) if room else mark[:width]


def fold(text: str, width: int, *, hang: int = 0) -> list[str]:
    """Return text as lines of at most `width` cells, all but the first indented by `hang`; nothing is lost.

    Lines end after a slash, a colon or a space; a part that is longer than a line is broken where that ends.
    """
    lines: list[str] = []
    indent, start = "", 0
    # Looking only at what may fit, not at the whole rest, keeps long names from taking quadratic time.
    while (rest := text[start : start + 4 * width + 1]) and (len(rest) > 4 * width or cells(indent + rest) > width):
        line = _prefix(rest, max(width - len(indent), 1)) or rest[0]
        pause = 1 + max(map(line.rfind, _PAUSES))
        if pause and cells(_up_to_pause(rest, pause)) <= width - hang:
            line = line[:pause]
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


def _up_to_pause(text: str, start: int) -> str:
    """Return text from `start` to its next pause."""
    ends = [end for end in (text.find(pause, start) for pause in _PAUSES) if end >= 0]
    return text[start : min(ends) + 1] if ends else text[start:]


def _prefix(text: str, width: int) -> str:
    """Return the longest start of text that fits into `width` cells."""
    if text.isascii():
        return text[:width]
    # Combining marks take no cell: a line full of them would be measured again for each one.
    longest = min(len(text), 4 * width)
    return next((text[: end - 1] for end in range(1, longest + 1) if cells(text[:end]) > width), text[:longest])


def _suffix(text: str, width: int) -> str:
    """Return the longest end of text that fits into `width` cells."""
    if text.isascii():
        return text[max(len(text) - width, 0) :]
    first = max(len(text) - 4 * width, 0)
    return next((text[start:] for start in range(first, len(text)) if cells(text[start:]) <= width), "")


class Part(NamedTuple):
    """A piece of a line; `style` is rich's name of it, empty for plain text."""

    text: str
    style: str = ""


Line = Sequence[Part]


def line_of(text: str, style: str = "") -> Line:
    """Return a line in one style."""
    return (Part(text, style),)


def plain_text(line: Line) -> str:
    """Return what the line says, without styles and without spaces at its end."""
    return "".join(part.text for part in line).rstrip(" ")


def width_of(line: Line) -> int:
    """Return how many cells the line takes."""
    return sum(cells(part.text) for part in line)


def coloured_text(line: Line) -> str:
    """Return the line with an escape code before and after each part that has a style."""
    from rich.color import ColorSystem
    from rich.style import Style

    return "".join(
        Style.parse(part.style).render(part.text, color_system=ColorSystem.STANDARD) if part.style else part.text
        for part in line
    )


def joined(lines: Iterable[Line], *, colour: bool) -> str:
    """Return the lines as text, each ended by a newline."""
    as_text = coloured_text if colour else plain_text
    return "".join(f"{as_text(line)}\n" for line in lines)
