"""`tfperf doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tfperf.cli.options import chosen_format, report_options, show


@click.command("doctor", short_help="Check what can be profiled here, and how to fix what cannot.")
@click.option("--port", type=click.IntRange(1, 65535), help="Check the job with this profiler port on this machine.")
@click.option("--worker", metavar="HOST:PORT", help="Check the job at HOST:PORT, [IPV6]:PORT or unix:/PATH.")
@click.option(
    "--tls-ca",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Encrypt, and trust the certificates in this PEM file.",
)
@click.option(
    "--logdir", type=click.Path(path_type=Path), default="logs", show_default=True, help="Where traces are to go."
)
@report_options
@click.pass_context
def command(
    context: click.Context,
    /,
    port: int | None,
    worker: str | None,
    tls_ca: Path | None,
    logdir: Path,
    **output_options: Any,
) -> None:
    """Check what can be profiled on this machine and, with --port, of a running job; say how to fix what cannot.

    Checks versions, GPUs and what their tracer needs, ports, and the log folder. Nothing is changed; a job is profiled
    for 50 ms. Exit code 1 if a check fails.

    \b
    Example:
      tfperf doctor
      tfperf doctor --port 6009
      tfperf doctor --format json
    """
    from tfperf.capture.address import parse_address
    from tfperf.capture.doctor import run_checks
    from tfperf.errors import CaptureError
    from tfperf.sampling.reports import doctor_report

    if port is not None and worker is not None:
        raise click.UsageError("name one job: --port PORT on this machine, or --worker HOST:PORT")
    try:
        text = f"localhost:{port}" if port is not None else worker
        job = None if text is None else parse_address(text)
    except CaptureError as error:
        raise click.UsageError(str(error)) from error
    report = doctor_report(run_checks(logdir, job, tls_ca=tls_ca))
    format_name, output, force = (output_options[name] for name in ("format_name", "output", "force"))
    show(report, chosen_format(format_name, output), output, force=force)
    if report.summary["status"] == "fail":
        context.exit(1)
