"""Regular expressions that a user gave."""

from __future__ import annotations

import re
import warnings


def compiled(pattern: str) -> re.Pattern[str]:
    """Return the compiled pattern; raises ValueError with what is wrong with it."""
    try:
        with warnings.catch_warnings():
            # Python warns of patterns that a later version may read otherwise; nobody asked for that here.
            warnings.simplefilter("ignore")
            return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        said = error.msg if isinstance(error, re.error) else "it is too large"
        raise ValueError(f"{pattern[:80]!r} is no regular expression: {said}") from None
