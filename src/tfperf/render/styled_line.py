"""Lines of a terminal as parts of text with a style each ("bold red"), and the escape codes for them.

Most runs end in a pipe or a file, which get no colour; rich, which knows the codes, is imported for those that do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tfperf.render.text_fitting import cells


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
