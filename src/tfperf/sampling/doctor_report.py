"""The report of `tfperf doctor`: each check, and above them what to fix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfperf.capture.outcomes import Check, Status
from tfperf.report.model import Column, Finding, Report, Section, Severity, table_of

COLUMNS = (
    Column("check", "Check", str, "", "what was checked"),
    Column("status", "Status", str, "", "ok, warn or fail"),
    Column("found", "Found", str, "", "what was found"),
    Column("fix", "Fix", str, "", "how to fix it; empty if there is nothing to fix", level="data"),
)
_SEVERITIES: dict[Status, Severity] = {"fail": "problem", "warn": "hint", "ok": "info"}  # The worst first.


def doctor_report(checks: Sequence[Check]) -> Report:
    """List the checks in their order; what needs a fix, or can be followed up, is also a finding, the worst first."""
    statuses = [check.status for check in checks]
    data: dict[str, Sequence[Any]] = {
        "check": [check.name for check in checks],
        "status": statuses,
        "found": [check.found for check in checks],
        "fix": [check.fix for check in checks],
    }
    findings = tuple(
        Finding(check.name.replace(" ", "_"), severity, f"{check.name}: {check.found}", check.fix)
        for status, severity in _SEVERITIES.items()
        for check in checks
        if check.status == status and (status != "ok" or check.fix)
    )
    summary: dict[str, Any] = {status: statuses.count(status) for status in reversed(_SEVERITIES)}
    summary["status"] = next((status for status in _SEVERITIES if status in statuses), "ok")
    table = table_of("checks", "Checks", COLUMNS, data)
    return Report({}, summary, (Section("doctor", "What can be profiled here", findings=findings, tables=(table,)),))
