"""What `tfperf doctor` shows: each check, and above them what to mend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tfperf.outcomes import Check, Status
from tfperf.report.model import Column, Finding, Report, Section, Severity, Table

COLUMNS = (
    Column("check", "Check", str, "", "what was looked at"),
    Column("status", "Status", str, "", "ok, warn or fail"),
    Column("found", "Found", str, "", "what is there"),
    Column("fix", "Fix", str, "", "how to mend it; empty if there is nothing to mend", level="data"),
)
_WORST_FIRST: tuple[Status, ...] = ("fail", "warn", "ok")
_SEVERITIES: Mapping[Status, Severity] = {"fail": "problem", "warn": "hint", "ok": "info"}


def doctor_report(checks: Sequence[Check]) -> Report:
    """List the checks as they were made; what is not in order, or can be followed up, is a finding too."""
    data: dict[str, Sequence[Any]] = {
        "check": [check.name for check in checks],
        "status": [check.status for check in checks],
        "found": [check.found for check in checks],
        "fix": [check.fix for check in checks],
    }
    table = Table("checks", "Checks", COLUMNS, data, len(checks))
    return Report(
        {}, _summary(checks), (Section("doctor", "What can be profiled here", _findings(checks), tables=(table,)),)
    )


def _findings(checks: Sequence[Check]) -> tuple[Finding, ...]:
    """Return what to act on, the worst first."""
    return tuple(
        Finding(check.name.replace(" ", "_"), _SEVERITIES[status], f"{check.name}: {check.found}", check.fix)
        for status in _WORST_FIRST
        for check in checks
        if check.status == status and (status != "ok" or check.fix)
    )


def _summary(checks: Sequence[Check]) -> dict[str, Any]:
    """Return the fixed JSON keys: how many of each, and the worst."""
    counts: dict[str, int] = {
        status: sum(check.status == status for check in checks) for status in reversed(_WORST_FIRST)
    }
    return {**counts, "status": next((status for status in _WORST_FIRST if counts[status]), "ok")}
