"""The results of a capture and of a check, as plain values."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from msgspec import Struct

from tfperf.base.display import Shown
from tfperf.base.errors import CaptureError, Reason
from tfperf.base.units import counted, format_bytes

Status = Literal["ok", "warn", "fail"]


class Captured(Shown, Struct, frozen=True, kw_only=True):
    """The result of profiling one worker.

    `path` is the trace file, None if none was kept. `reason` is empty if the trace has all that was asked for, else
    one of the words in docs/capture.md; `message` then says what happened and what to try. A result may have both a
    trace and a reason, for example when the GPU events are missing. `overhead_percent` says by how much profiling
    made steps longer; None where this was not measured.
    """

    worker: str
    path: Path | None = None
    size_bytes: int | None = None
    event_count: int | None = None
    reason: Reason | Literal[""] = ""
    message: str = ""
    overhead_percent: float | None = None
    start_time_us: int | None = None
    """When the session started, in microseconds since 1970 by the clock of the worker; None if that is unknown."""

    def describe(self) -> str:
        """Return one line: where the trace is, its size, and what taking it cost; or why there is none."""
        if self.path is None:
            return f"nothing was captured: {self.message}"
        facts = [format_bytes(self.size_bytes or 0), counted(self.event_count or 0, "event")]
        if self.overhead_percent is not None:
            slower = self.overhead_percent
            facts.append(f"steps took {slower:.0f} % longer" if slower >= 1 else "steps took no longer")
        return f"the trace is in {self.path} ({', '.join(facts)})" + (self.message and f"; {self.message}")


def start_spread_ms(captured: Iterable[Captured]) -> float | None:
    """Return how far apart the sessions of several workers started, by their clocks; None unless two are known."""
    starts = [result.start_time_us for result in captured if result.start_time_us is not None]
    return (max(starts) - min(starts)) / 1e3 if len(starts) > 1 else None


class Check(Struct, frozen=True):
    """One check of `tfperf doctor`: what was found and, on one line, how to fix it."""

    name: str
    status: Status
    found: str
    fix: str = ""

    @classmethod
    def of_error(cls, name: str, error: CaptureError) -> Check:
        """Return the check that failed with this error; what follows the semicolon in its message is the fix."""
        found, _, fix = str(error).partition("; ")
        # A job that somebody else profiles, or that keeps its traces, has no fault.
        return cls(name, "warn" if error.reason in ("busy", "written_remotely") else "fail", found, fix)
