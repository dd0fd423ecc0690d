"""The reports of `tfperf capture` (which traces came, why others did not) and of `tfperf doctor` (what to fix)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import asdict, astuple

from tfperf.base.units import counted
from tfperf.capture.outcomes import Captured, Check, Status, start_spread_ms
from tfperf.report.model import Column, Finding, Report, Section, Severity, at_levels, table_of

_MOST_FINDINGS = 10
CAPTURED_COLUMNS = (
    Column("worker", "Worker", str, "", "the address of the profiler server"),
    Column("size_bytes", "Bytes", int, "count", "size of the trace file"),
    Column("event_count", "Events", int, "count", "events in the trace"),
    Column("step_count", "Steps", int, "count", "steps in the trace; only with --analyze"),
    Column(
        "overhead_percent", "Overhead", float, "%", "by how much profiling made steps longer, where that was measured"
    ),
    Column("reason", "Reason", str, "", "empty if all is well, else a word of docs/capture.md"),
    Column(
        "start_time_us",
        "Started",
        int,
        "us",
        "when the session started: microseconds since 1970 by the clock of the worker",
        level="data",
    ),
    Column("message", "Message", str, "", "what happened and what to try", level="data"),
    Column("path", "File", str, "", "the trace file", level="data"),
)
_CHECK_COLUMNS = (
    Column("check", "Check", str, "", "what was checked"),
    Column("status", "Status", str, "", "ok, warn or fail"),
    Column("found", "Found", str, "", "what was found"),
    Column("fix", "Fix", str, "", "how to fix it; empty if there is nothing to fix", level="data"),
)
_SEVERITIES: dict[Status, Severity] = {"fail": "problem", "warn": "hint", "ok": "info"}  # The worst first.


def capture_report(folder: Path, captured: Sequence[Captured], step_counts: Mapping[Path, int] | None = None) -> Report:
    """List what came of each worker; `step_counts` are those of the traces that could be analyzed, None if none was."""
    columns = tuple(column for column in CAPTURED_COLUMNS if column.key != "step_count" or step_counts is not None)
    counts = step_counts or {}
    rows: list[dict[str, Any]] = []
    for result in captured:
        path = result.path
        rows.append({**asdict(result), "path": path and str(path), "step_count": path and counts.get(path)})
    data = {column.key: [row[column.key] for row in rows] for column in columns}
    # A message without a reason is worth knowing, but not a problem.
    findings = [
        Finding(result.reason or "note", "problem" if result.reason else "info", result.message)
        for result in captured
        if result.message
    ]
    if len(findings) > _MOST_FINDINGS:
        more = f"{len(findings) - _MOST_FINDINGS} more workers have a message; the JSON has all (--format json)"
        findings[_MOST_FINDINGS:] = [Finding("more", "info", more)]
    # Programs have the same columns each time; people need no empty ones.
    empty = [column.key for column in columns if not any(value not in (None, "") for value in data[column.key])]
    columns = at_levels(columns, dict.fromkeys(empty, "data"))
    table = table_of("captured", "Workers", columns, data)
    kept = [row for row in rows if row["path"]]
    steps = [row["step_count"] for row in kept]
    problems = [result for result in captured if result.reason]
    problem = next((result for result in problems if result.message), None)
    spread_ms = start_spread_ms(captured)
    summary = {
        "workers": len(captured),
        "captured": len(kept),
        "reason": problem.reason if problem else "",
        "message": problem.message if problem else "",
        "event_count": sum(row["event_count"] or 0 for row in kept),
        "captured_steps": sum(steps) if steps and None not in steps else None,
        "start_spread_ms": spread_ms,
    }
    notes = [f"{len(kept)} of {counted(len(captured), 'worker')} gave a trace."] if len(captured) > 1 else []
    if any(result.reason == "dropped" for result in captured):
        notes = ["No trace was kept, since not all workers gave one (--all-or-nothing)."]
    if spread_ms is not None:
        notes.append(f"Their sessions started within {spread_ms:,.1f} ms, by their own clocks.")
    section = Section(
        "capture",
        "Capture",
        findings=tuple(findings),
        tables=(table,),
        notes=(" ".join(notes),) * bool(notes),
        is_lead=True,
    )
    return Report({"folder": str(folder) if kept else None}, summary, (section,))


def doctor_report(checks: Sequence[Check]) -> Report:
    """List the checks in their order; what needs a fix, or can be followed up, is also a finding, the worst first."""
    statuses = [check.status for check in checks]
    rows = list(map(astuple, checks))
    data = {column.key: [row[place] for row in rows] for place, column in enumerate(_CHECK_COLUMNS)}
    findings = tuple(
        Finding(check.name.replace(" ", "_"), severity, f"{check.name}: {check.found}", check.fix)
        for status, severity in _SEVERITIES.items()
        for check in checks
        if check.status == status and (status != "ok" or check.fix)
    )
    summary: dict[str, Any] = {status: statuses.count(status) for status in reversed(_SEVERITIES)}
    summary["status"] = next((status for status in _SEVERITIES if status in statuses), "ok")
    table = table_of("checks", "Checks", _CHECK_COLUMNS, data)
    return Report({}, summary, (Section("doctor", "What can be profiled here", findings=findings, tables=(table,)),))
