"""`tfperf doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.exceptions import Exit

from tfperf.cli import options


@click.command("doctor", short_help="Check what can be profiled here, and how to fix what cannot.")
@click.option("--port", type=options.PORT, help="Also check the job with this profiler port on this machine.")
@click.option("--worker", metavar="HOST:PORT", help="Also check the job at HOST:PORT, [IPV6]:PORT or unix:/PATH.")
@options.TLS_CA
@options.logdir_option("Where traces will go.")
@options.report_options
def command(port: int | None, worker: str | None, tls_ca: Path | None, logdir: Path, **output: Any) -> None:
    """Check what can be profiled on this machine and, with --port, of a running job; say how to fix what cannot.

    Checks versions, GPUs and what their tracer needs, ports, and the log folder. Nothing is changed; a job is profiled
    for 50 ms. Exit code 1 if a check fails.

    \b
    Example:
      tfperf doctor
      tfperf doctor --port 6009
      tfperf doctor --format json
    """
    from tfperf.capture.doctor import run_checks
    from tfperf.live.sampling import doctor_report

    if port is not None and worker is not None:
        raise click.UsageError("name one job: --port PORT on this machine, or --worker HOST:PORT")
    job = next(iter(options.parse_addresses(port, () if worker is None else (worker,))), None)
    options.check_output(output["output"], output["format_name"], force=output["force"])
    report = doctor_report(run_checks(logdir, job, tls_ca=tls_ca))
    options.show(report, **output)
    if report.summary["status"] == "fail":
        raise Exit(1)
