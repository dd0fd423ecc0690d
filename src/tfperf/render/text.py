"""Text from a trace, made fit to be shown: names are whatever the profiled program chose.

The order is always `safe` first, then cutting or folding: an escape is longer than the character it shows.
"""

from __future__ import annotations

ELLIPSIS = "…"
PLAIN_ELLIPSIS = "..."

_PAUSES = "/: "


def safe(text: str) -> str:
    r"""Return text with every unprintable character as a visible escape: `\n`, `\x1b`, `\u202e`, `\udc80`.

    Unprintable is what `str.isprintable` says: control characters, bidi overrides and other invisible
    formatting, line separators, lone surrogates, odd spaces. The result is one line that no terminal acts on.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def shorten(text: str, width: int, *, mark: str = ELLIPSIS) -> str:
    """Return text in at most `width` cells, its middle replaced by `mark` so that both ends stay visible.

    The end gets two thirds: it is where op names differ.
    """
    if cells(text) <= width:
        return text
    room = max(width - cells(mark), 0)
    head = room // 3
    return _prefix(text, head) + mark + _suffix(text, room - head) if room else mark[:width]


def brief(text: str, most: int) -> str:
    """Return text on one line that is safe to show, in at most `most` characters: of longer text both ends stay.

    Two thirds are the end, which is where op names differ. Characters are counted, not cells: what is no terminal has
    no cells, and measuring them is slow.
    """
    visible = safe(text)
    head = most // 3
    return visible if len(visible) <= most else visible[:head] + ELLIPSIS + visible[head + 1 - most :]


def fold(text: str, width: int, *, hang: int = 0) -> list[str]:
    """Return text as lines of at most `width` cells, all but the first indented by `hang`; nothing is lost.

    Lines end after a slash, a colon or a space; a part that is longer than a line is broken where that ends.
    """
    lines: list[str] = []
    indent, at = "", 0
    # Looking at what may fit only, not at the whole rest, keeps long names from taking quadratic time.
    while (rest := text[at : at + 4 * width + 1]) and (len(rest) > 4 * width or cells(indent + rest) > width):
        line = _prefix(rest, max(width - len(indent), 1)) or rest[0]
        pause = 1 + max(map(line.rfind, _PAUSES))
        if pause and cells(_part(rest, pause)) <= width - hang:
            line = line[:pause]
        lines.append(indent + line)
        at += len(line)
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


def cells(text: str) -> int:
    """Return how many columns of a terminal the text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _escape(char: str) -> str:
    r"""Return the Python escape of one character; `\ud800` for a lone surrogate too."""
    return char.encode("unicode_escape").decode("ascii")


def _part(text: str, start: int) -> str:
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
    return next((text[at:] for at in range(first, len(text)) if cells(text[at:]) <= width), "")
