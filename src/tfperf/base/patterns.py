"""User-supplied regular expressions, searched by RE2 (in Arrow) in linear time.

Python's `re` backtracks: `(a+)+$` on a name of thirty letters would never end.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Bools
from tfperf.base.errors import TfperfError

_MOST_SECONDS = 10.0
"""Linear time can still be slow: `a.{999}c` takes a thousand times longer per letter than other expressions."""
_AT_ONCE = 1000
_LONGEST = 1000
_LONGEST_QUOTE = 60
_NOT_IN_RE2 = "; RE2 syntax has no look-ahead, look-behind or backreferences"


class Pattern(Struct, frozen=True):
    """A regular expression in RE2 syntax, created by `pattern`."""

    text: str
    ignore_case: bool = False

    def found_in(self, texts: Sequence[str]) -> Bools:
        """Return whether each text matches anywhere; raise TfperfError if the search takes too long."""
        until = time.monotonic() + _MOST_SECONDS
        found = [np.zeros(0, np.bool_)]
        for at in range(0, len(texts), _AT_ONCE):
            if time.monotonic() > until:
                raise TfperfError(f"the search for {_quoted(self.text)} takes too long; use a simpler expression")
            found.append(_search(texts[at : at + _AT_ONCE], self.text, self.ignore_case))
        return np.concatenate(found)


def pattern(text: str, *, ignore_case: bool = False) -> Pattern:
    """Compile a regular expression; raise ValueError with the reason if it is invalid."""
    import pyarrow

    if len(text) > _LONGEST:
        raise ValueError(f"{_quoted(text)} is too long for a regular expression: use at most {_LONGEST:,} characters")
    try:
        _search([""], text, ignore_case)
    except pyarrow.ArrowInvalid as error:
        reason = str(error).removeprefix("Invalid regular expression: ").removesuffix(f": {text}")
        reason = reason if reason.isprintable() else reason.partition(": ")[0]
        hint = _NOT_IN_RE2 if reason.startswith(("invalid perl operator", "invalid escape sequence")) else ""
        raise ValueError(f"{_quoted(text)} is not a regular expression: {reason}{hint}") from None
    return Pattern(text, ignore_case)


def _search(texts: Sequence[str], text: str, ignore_case: bool) -> Bools:
    import pyarrow
    from pyarrow import compute

    try:
        array = pyarrow.array(texts, pyarrow.large_string())
    except UnicodeEncodeError:  # Lone surrogates have no UTF-8 encoding.
        array = pyarrow.array(list(map(_encodable, texts)), pyarrow.large_string())
    found = compute.match_substring_regex(array, _encodable(text), ignore_case=ignore_case)
    return np.asarray(found.to_numpy(zero_copy_only=False), np.bool_)


def _encodable(text: str) -> str:
    return text.encode(errors="replace").decode()


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}...")
