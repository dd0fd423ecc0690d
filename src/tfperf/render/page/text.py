"""Text from a trace as HTML: what it shows is what `render.text.safe` shows, and no part of it is ever markup."""

from __future__ import annotations

import html

from tfperf.render.text import ELLIPSIS, safe

LONGEST_TEXT = 2_000
"""Characters of a sentence; what is longer is cut in its middle."""
LONGEST_NAME = 500
"""Characters of a name in a table or a chart; CSV files have the whole of it."""


def shown(text: str, most: int = LONGEST_TEXT) -> str:
    """Return text as it is shown: one line, nothing invisible, at most `most` characters.

    Of longer text both ends stay, two thirds of it the end, which is where op names differ. Characters are counted, not
    cells: a page has no cells, and measuring them is slow.
    """
    visible = safe(text)
    if len(visible) <= most:
        return visible
    head = most // 3
    return visible[:head] + ELLIPSIS + visible[head + 1 - most :]


def escape(text: str, most: int = LONGEST_TEXT) -> str:
    """Return text for an element or for an attribute in quotes."""
    return html.escape(shown(text, most))
