"""Every error that tfperf raises on purpose.

TfperfError              could not do it; the message says what, where and what to try (exit code 1)
├── TraceNotFoundError   the path, run or host that was asked for is not there
├── TraceFormatError     the file is there, but it is not a readable XSpace
├── OutputError          the report could not be written
└── CaptureError         a job could not be profiled; `reason` is one word for scripts
"""

from __future__ import annotations

from typing import Literal


class TfperfError(Exception):
    """Base of all errors that a user can act on; `str(error)` is one line."""


class TraceNotFoundError(TfperfError):
    """A path, run or host does not exist or cannot be opened."""


class TraceFormatError(TfperfError):
    """A file cannot be read as an XSpace: empty, cut off, damaged or of another format."""


class OutputError(TfperfError):
    """A report could not be written where it was asked for."""


class TfperfWarning(RuntimeWarning):
    """Something works, but worse than it could; one line that says what to do."""


Reason = Literal[
    "already_started", "bad_address", "bad_reply", "busy", "died", "dropped", "gpu_missing", "idle", "interrupted",
    "no_python_frames", "no_result", "no_steps", "no_tensorflow", "not_a_profiler", "not_listening", "not_started",
    "not_written", "port_taken", "refused", "timeout", "tls", "too_large", "unknown_host", "unreachable", "unsupported",
    "written_remotely",
]  # fmt: skip
"""Why there is no trace, or not all of it, in one word for scripts; docs/capture.md says what each means."""


class CaptureError(TfperfError):
    """A job could not be profiled; `reason` tells scripts why."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason: Reason = reason
