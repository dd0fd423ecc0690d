"""What a capture or a check came to: plain values that `capture` makes and reports show."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tfperf.errors import Reason

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Captured:
    """What came of profiling one worker.

    `path` is the trace file, None if nothing was kept. `reason` is empty if all that was asked for is there, else one
    of the words of docs/capture.md; `message` then says what happened and what to try. A trace may be there and a
    reason too: the part of the GPU may be missing, say. `overhead_percent` is by how much profiling made steps longer,
    None where that was not measured.
    """

    worker: str
    path: Path | None = None
    size_bytes: int | None = None
    event_count: int | None = None
    reason: Reason | Literal[""] = ""
    message: str = ""
    overhead_percent: float | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that `tfperf doctor` looked at: what it found, and in one line how to mend it."""

    name: str
    status: Status
    found: str
    fix: str = ""
