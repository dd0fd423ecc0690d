"""The report of `tfperf capture`: which traces came, and why others did not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

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
    counts = step_counts or {}
    rows: list[dict[str, Any]] = [
        {
            **asdict(result),
            "path": result.path and str(result.path),
            "step_count": result.path and counts.get(result.path),
        }
        for result in captured
    ]
    data = {column.key: [row[column.key] for row in rows] for column in columns}
    # A message without a reason is worth knowing, but not a problem.
    findings = tuple(
        Finding(result.reason or "note", "problem" if result.reason else "info", result.message)
        for result in captured
        if result.message
    )
    table = table_of("captured", "Workers", columns, data)
    kept = [row for row in rows if row["path"]]
    steps = [row["step_count"] for row in kept]
    problem = next((result for result in captured if result.reason), None)
    summary = {
        "workers": len(captured),
        "captured": len(kept),
        "reason": problem.reason if problem else "",
        "message": problem.message if problem else "",
        "event_count": sum(row["event_count"] or 0 for row in kept),
        "captured_steps": sum(steps) if steps and None not in steps else None,
    }
    section = Section("capture", "Capture", findings=findings, tables=(table,))
    return Report({"folder": str(folder) if kept else None}, summary, (section,))
