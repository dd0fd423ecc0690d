"""What `tfperf capture` shows: which traces came, and why others did not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tfperf.outcomes import Captured
from tfperf.report.model import Column, Finding, Report, Section, Table

COLUMNS = (
    Column("worker", "Worker", str, "", "the address that was asked"),
    Column("size_bytes", "Bytes", int, "count", "size of the trace file"),
    Column("event_count", "Events", int, "count", "events in the trace"),
    Column("step_count", "Steps", int, "count", "steps that tfperf finds in the trace"),
    Column(
        "overhead_percent", "Overhead", float, "%", "by how much profiling made steps longer, where that was measured"
    ),
    Column("reason", "Reason", str, "", "empty if all is well, else a word of docs/capture.md"),
    Column("message", "Message", str, "", "what happened and what to try", level="data"),
    Column("path", "File", str, "", "the trace file", level="data"),
)


def capture_report(folder: Path, captured: Sequence[Captured], steps: Mapping[Path, int]) -> Report:
    """List what came of each worker; `steps` holds the number of steps of those files that could be analyzed."""
    data: dict[str, Sequence[Any]] = {
        column.key: [getattr(one, column.key, None) for one in captured] for column in COLUMNS
    }
    data["path"] = [None if one.path is None else str(one.path) for one in captured]
    data["step_count"] = [None if one.path is None else steps.get(one.path) for one in captured]
    kept = [one for one in captured if one.path]
    table = Table("captured", "Workers", COLUMNS, data, len(captured))
    section = Section("capture", "Capture", findings=tuple(_findings(captured)), tables=(table,))
    return Report({"folder": str(folder) if kept else None}, _summary(captured, kept, data["step_count"]), (section,))


def _findings(captured: Sequence[Captured]) -> list[Finding]:
    """Name each problem; a message without a reason is only worth knowing."""
    return [
        Finding(one.reason or "note", "problem" if one.reason else "info", one.message)
        for one in captured
        if one.message
    ]


def _summary(captured: Sequence[Captured], kept: Sequence[Captured], steps: Sequence[int | None]) -> dict[str, Any]:
    """Return the fixed JSON keys: `reason` is the first there is, empty if every worker gave all."""
    return {
        "workers": len(captured),
        "captured": len(kept),
        "reason": next((one.reason for one in captured if one.reason), ""),
        "message": next((one.message for one in captured if one.reason), ""),
        "event_count": sum(one.event_count or 0 for one in kept),
        "captured_steps": _sum_if_known([count for one, count in zip(captured, steps, strict=True) if one.path]),
    }


def _sum_if_known(counts: Sequence[int | None]) -> int | None:
    """Return the sum; None if there is nothing to add up, or a part of it is not known."""
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None
