"""Text from a trace as HTML: what it shows is what `render.text.brief` shows, and no part of it is ever markup."""

from __future__ import annotations

import html

from tfperf.render.text import brief

LONGEST_TEXT = 2_000
"""Characters of a sentence; what is longer is cut in its middle."""
LONGEST_NAME = 500
"""Characters of a name in a table or a chart; CSV files have the whole of it."""


def escape(text: str, most: int = LONGEST_TEXT) -> str:
    """Return text for an element or for an attribute in quotes."""
    return html.escape(brief(text, most))
