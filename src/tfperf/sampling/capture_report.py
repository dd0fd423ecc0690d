"""The report of `tfperf capture`: which traces came, and why others did not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tfperf.capture.outcomes import Captured
from tfperf.report.model import Column, Finding, Report, Section, table_of

COLUMNS = (
    Column("worker", "Worker", str, "", "the address of the profiler server"),
    Column("size_bytes", "Bytes", int, "count", "size of the trace file"),
    Column("event_count", "Events", int, "count", "events in the trace"),
    Column("step_count", "Steps", int, "count", "steps in the trace; only with --analyze"),
    Column(
        "overhead_percent", "Overhead", float, "%", "by how much profiling made steps longer, where that was measured"
    ),
    Column("reason", "Reason", str, "", "empty if all is well, else a word of docs/capture.md"),
    Column("message", "Message", str, "", "what happened and what to try", level="data"),
    Column("path", "File", str, "", "the trace file", level="data"),
)


def capture_report(folder: Path, captured: Sequence[Captured], step_counts: Mapping[Path, int] | None = None) -> Report:
    """List what came of each worker; `step_counts` are those of the traces that could be analyzed, None if none was."""
    columns = tuple(column for column in COLUMNS if column.key != "step_count" or step_counts is not None)
    steps = [(step_counts or {}).get(result.path) if result.path else None for result in captured]
    data: dict[str, Sequence[Any]] = {
        column.key: [getattr(result, column.key, None) for result in captured] for column in columns
    }
    data["path"] = [None if result.path is None else str(result.path) for result in captured]
    if step_counts is not None:
        data["step_count"] = steps
    # A message without a reason is worth knowing, but not a problem.
    findings = tuple(
        Finding(result.reason or "note", "problem" if result.reason else "info", result.message)
        for result in captured
        if result.message
    )
    table = table_of("captured", "Workers", columns, data)
    kept = [result for result in captured if result.path]
    kept_steps = [count for result, count in zip(captured, steps, strict=True) if result.path]
    known_steps = [count for count in kept_steps if count is not None]
    problem = next((result for result in captured if result.reason), None)
    summary = {
        "workers": len(captured),
        "captured": len(kept),
        "reason": problem.reason if problem else "",
        "message": problem.message if problem else "",
        "event_count": sum(result.event_count or 0 for result in kept),
        "captured_steps": sum(known_steps) if kept and len(known_steps) == len(kept) else None,
    }
    section = Section("capture", "Capture", findings=findings, tables=(table,))
    return Report({"folder": str(folder) if kept else None}, summary, (section,))
