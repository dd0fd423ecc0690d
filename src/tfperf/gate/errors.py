"""What can be wrong with what the gate was asked: wrong usage, not a verdict.

LimitError         a limit cannot be read, or nothing could ever be judged by it
└── ConfigError    a file of limits cannot be read, or holds what is none
"""

from __future__ import annotations

from tfperf.errors import TfperfError


class LimitError(TfperfError):
    """A limit cannot be read; the message says what, where, and what to try, in one line (exit code 2)."""


class ConfigError(LimitError):
    """A file of limits cannot be read; the message names the file and the key."""


def as_written(text: str) -> str:
    """Return what a user wrote as a message repeats it: not all of it, if it is long."""
    return text if len(text) <= 80 else f"{text[:80]}..."
