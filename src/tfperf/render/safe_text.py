"""Text from a trace, made safe to show: names are whatever the profiled program chose.

The order is always `safe` first, then cutting or folding: an escape is longer than the character it shows.
"""

from __future__ import annotations

ELLIPSIS = "…"


def safe(text: str) -> str:
    r"""Return text with every unprintable character as a visible escape: `\n`, `\x1b`, `\u202e`, `\udc80`.

    Unprintable is what `str.isprintable` says: control characters, bidi overrides and other invisible
    formatting, line separators, lone surrogates, unusual spaces. The result is one line that no terminal acts on.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def brief(text: str, limit: int) -> str:
    """Return text on one safe line of at most `limit` characters: longer text loses its middle.

    Two thirds are the end, which is where op names differ. Characters are counted, not cells: outside a terminal there
    are no cells, and measuring them is slow.
    """
    visible = safe(text)
    if len(visible) <= limit:
        return visible
    head = limit // 3
    return visible[:head] + ELLIPSIS + visible[head + 1 - limit :]
