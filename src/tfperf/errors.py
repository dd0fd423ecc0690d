"""Every error that tfperf raises on purpose.

TfperfError              could not do it; the message says what, where and what to try (exit code 1)
├── TraceNotFoundError   the path, run or host that was asked for is not there
├── TraceFormatError     the file is there, but it is not a readable XSpace
└── OutputError          the report could not be written
"""

from __future__ import annotations


class TfperfError(Exception):
    """Base of all errors that a user can act on; `str(error)` is one line."""


class TraceNotFoundError(TfperfError):
    """A path, run or host does not exist or cannot be opened."""


class TraceFormatError(TfperfError):
    """A file cannot be read as an XSpace: empty, cut off, damaged or of another format."""


class OutputError(TfperfError):
    """A report could not be written where it was asked for."""
