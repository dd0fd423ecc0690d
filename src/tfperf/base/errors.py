"""Every error that tfperf raises on purpose.

TfperfError              the operation failed; the message states the problem, the place and a fix (exit code 1)
├── TraceNotFoundError   the path, run or host does not exist
├── TraceFormatError     the file exists, but it is not a readable XSpace
├── StepsNotFoundError   the profile does not have the selected steps
├── OutputError          the report could not be written
└── CaptureError         a job could not be profiled; `reason` is one word for scripts
"""

from __future__ import annotations

from typing import Literal


class TfperfError(Exception):
    """Base class of all errors that a user can act on; `str(error)` is one line."""


class TraceNotFoundError(TfperfError):
    """A path, run or host does not exist or cannot be opened."""


class TraceFormatError(TfperfError):
    """A file cannot be read as an XSpace because it is empty, truncated, damaged or in another format."""


class StepsNotFoundError(TfperfError):
    """A profile does not have any of the selected steps; `has_others`: it has other steps."""

    def __init__(self, message: str, *, has_others: bool = False) -> None:
        super().__init__(message)
        self.has_others = has_others


class OutputError(TfperfError):
    """A report could not be written to its destination."""


class TfperfWarning(RuntimeWarning):
    """An operation works, but with a limitation; one line with a fix."""


Reason = Literal[
    "already_started", "bad_address", "bad_reply", "busy", "died", "dropped", "gpu_missing", "idle", "interrupted",
    "no_framework", "no_python_frames", "no_result", "no_steps", "not_a_profiler", "not_listening", "not_started",
    "not_written", "port_taken", "refused", "timeout", "tls", "too_large", "unknown_host", "unreachable", "unsupported",
    "written_remotely",
]  # fmt: skip
"""Why a trace is missing or incomplete, in one word for scripts; docs/capture.md describes each."""


class CaptureError(TfperfError):
    """A job could not be profiled; `reason` gives scripts the cause."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason: Reason = reason
