"""`tfperf doctor`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.exceptions import Exit
from msgspec.structs import astuple

from tfperf.cli import options
from tfperf.report.model import Column, Finding, Report, Section, Severity, table_of

if TYPE_CHECKING:
    from tfperf.capture.outcomes import Check, Status


@click.command("doctor", short_help="Check whether jobs can be profiled on this machine, and suggest fixes.")
@click.option("--port", type=options.PORT, help="Also check the job on this machine with this profiler port.")
@click.option("--worker", metavar="HOST:PORT", help="Also check the job at HOST:PORT, [IPV6]:PORT or unix:/PATH.")
@options.TLS_CA
@options.logdir_option("Folder for traces.")
@options.report_options
def command(port: int | None, worker: str | None, tls_ca: Path | None, logdir: Path, **output: Any) -> None:
    """Check whether jobs can be profiled on this machine and, with --port, whether a running job can; suggest fixes.

    Checks versions, GPUs and the requirements of their tracer, ports, and the log folder. Does not change anything;
    profiles a running job for 50 ms. Exit code 1 if a check fails.

    \b
    Example:
      tfperf doctor
      tfperf doctor --port 6009
      tfperf doctor --format json
    """
    from tfperf.capture.doctor import run_checks

    if port is not None and worker is not None:
        raise click.UsageError("select one job with --port PORT (this machine) or --worker HOST:PORT")
    job = next(iter(options.parse_addresses(port, () if worker is None else (worker,))), None)
    options.check_output(output["output"], output["format_name"], force=output["force"])
    report = doctor_report(run_checks(logdir, job, tls_ca=tls_ca))
    options.show(report, **output)
    if report.summary["status"] == "fail":
        raise Exit(1)


_CHECK_COLUMNS = (
    Column("check", "Check", str, "", "name of the check"),
    Column("status", "Status", str, "", "ok, warn or fail"),
    Column("found", "Found", str, "", "result of the check"),
    Column("fix", "Fix", str, "", "suggested fix; empty if there is nothing to fix", level="data"),
)
_SEVERITIES: dict[Status, Severity] = {"fail": "problem", "warn": "hint", "ok": "info"}  # The worst first.


def doctor_report(checks: Sequence[Check]) -> Report:
    """Return a report of the checks; those with a fix or a follow-up are also findings, the worst first."""
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
    return Report({}, summary, (Section("doctor", "Profiling on this machine", findings=findings, tables=(table,)),))
